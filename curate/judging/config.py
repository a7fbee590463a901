"""The options of the rubric judge, and which scoring mode they come to on an engine.

The pipeline composes `RubricConfig` into the recipe and calls `resolve_mode` once before a run; from
then on `mode` is `json` or `tokens` and part of the judge's identity. A user's prompt file is read when
the config is made, so that an edit in the middle of a run cannot change the prompt under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from curate.engines.base import Capability
from curate.errors import UsageError
from curate.records import Calibration, ScoringMode
from curate.records.calibration_file import read_calibration
from curate.records.config import Config
from curate.records.several_judges import JuryRule

DimensionName = Literal[
    "context_use", "helpfulness", "safety", "coherence", "task_completion", "repair_handling"
]
OtherScore = Literal["adherence", "metrics", "pairs"]
"""What a jury scores beside the rubric."""
Level = Annotated[int, Field(ge=1, le=5)]


def _known_text(value: Any) -> Any:
    """Refuse values of `text` that earlier versions had, and say what to write instead."""
    if value in ("joint", "separate"):
        raise ValueError(f"{value} was removed; write `all`, or leave it out for `auto`")
    return value


class RubricConfig(Config):
    """How the rubric judge scores dialogues. The output schema and the verdict rules are fixed."""

    gone: ClassVar[Mapping[str, str]] = {
        "spare_prefix": "use `retry_prefix`",
        "turn_view": "a question about a turn shows the dialogue up to that turn; `mode: json` shows the whole dialogue",
    }

    mode: Literal["auto", "json", "tokens"] = Field(
        "auto",
        description="`tokens`: read each score from the log-probabilities of its labels. `json`: ask for "
        "all scores in one JSON reply. `auto`: tokens where the engine gives "
        "log-probabilities, else json.",
    )
    samples: int = Field(
        1,
        ge=1,
        le=64,
        description="json mode: replies sampled at temperature 1; the shares of their answers are each "
        "score's probabilities, with an expectation and a spread. 1: one reply at temperature "
        "0.",
    )
    thought_tokens: int = Field(
        0,
        ge=0,
        le=32768,
        description="For a model that thinks before it answers: most tokens of a thought. In tokens mode "
        "the model is asked for a thought first, and each label is read after it. Other "
        "replies may be longer by this many tokens.",
    )
    max_turns: int = Field(
        10,
        ge=1,
        description="Most scored turns in one call; longer dialogues are judged in windows.",
    )
    window_turns: int = Field(
        5, ge=4, le=6, description="Scored turns in each window of a longer dialogue."
    )
    overlap: int = Field(1, ge=0, le=3, description="Turns that two neighbouring windows share.")
    window_context: Literal["summary", "full"] = Field(
        "summary",
        description="What a window shows of the turns before it. `summary`: a running summary. `full`: the"
        " turns themselves.",
    )
    conversation: Literal["further_call", "windows"] = Field(
        "further_call",
        description="Conversation scores of a dialogue judged in windows. `further_call`: one more call "
        "over the whole text. `windows`: the lowest score of any window.",
    )
    on_mismatch: Literal["use_rule", "retry", "reject"] = Field(
        "use_rule",
        description="When the judge's verdict differs from the one its scores give by the verdict rule. "
        "`use_rule`: take the rule's. `retry`: ask again. `reject`: leave the dialogue "
        "unscored.",
    )
    text: Annotated[Literal["auto", "all", "off"], BeforeValidator(_known_text)] = Field(
        "auto",
        description="Whether the judge also explains its scores, in one call after them: issues of weak "
        "turns, notes and decision basis. `auto`: notes and basis only for dialogues that are "
        "not excellent; `all`: for every dialogue; `off`: no explanations.",
    )
    retries: int = Field(
        2,
        ge=0,
        le=10,
        description="How often an unusable reply is asked for again. In tokens mode: how often a score "
        "whose labels have less probability than `min_coverage` is asked in another wording, "
        "after `retry_prefix`.",
    )
    paraphrases: int = Field(
        1,
        ge=1,
        le=4,
        description="tokens mode: wordings in which each score is asked; their distributions are averaged.",
    )
    min_scored_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Keep a dialogue with unscored turns if at least this share (0-1) of its turns has "
        "scores; null: all turns must.",
    )
    show_reasoning: bool = Field(False, description="Show the assistant's thinking to the judge.")
    missing_scenario: Literal["error", "skip"] = Field(
        "error",
        description="A dialogue without a scenario. `error`: it is unscored. `skip`: it is judged without "
        "one.",
    )
    min_coverage: float = Field(
        0.1,
        ge=0,
        le=1,
        description="tokens mode: lowest probability (0-1) that the labels of a score must have together.",
    )
    answer_prefix: str = Field(
        "(",
        description="tokens mode: text that a score's reply is forced to start with, where the engine can "
        "do that. No trailing space: tokenizers would merge it with the label.",
    )
    retry_prefix: str = Field(
        "Score: (",
        description="tokens mode: the forced start in place of `answer_prefix` when a score is asked again"
        " because its labels had too little probability.",
    )
    prompt_file: Path | None = Field(
        None,
        description="File whose text replaces the rubric; `{anchors}` and `{examples}` are filled in.",
    )
    rubric: str | None = Field(
        None, description="Text that replaces the rubric, as in `prompt_file`."
    )
    anchors: dict[DimensionName, dict[Level, str]] = Field(
        default_factory=dict,
        description="Your own descriptions of single levels, e.g. `helpfulness: {3: …}`.",
    )
    examples: tuple[str, ...] = Field((), description="Worked examples, shown after the scales.")
    jury: JuryRule | dict[DimensionName | OtherScore, JuryRule] = Field(
        "median",
        description="How the scores of `models.judges` are combined: one rule for all scores, or one each "
        "by dimension, `adherence`, `metrics` and `pairs` (median where not named). `median` "
        "(of two levels the lower), `minimum`, or `vote`: the level that most judges give; for"
        " probabilities the mean.",
    )
    calibration: Annotated[
        Calibration | None,
        BeforeValidator(
            lambda value: read_calibration(value, "judge.calibration", "identity"),
            json_schema_input_type=Calibration | str | None,
        ),
    ] = Field(
        None,
        description="File written by `curate calibrate`: scores become calibrated levels, which decide the"
        " verdict and the weakest turn, and `p_good` is filled in where it was fitted. Refused"
        " for another judge. Makes no model calls.",
    )
    persona_check: int = Field(
        0,
        ge=0,
        description="Number of dialogues that are judged again with another dialogue's scenario. A judge "
        "whose scores do not fall ignores the scenario (`persona_collapse`). At least 10 are "
        "needed; 20 to 50 are enough.",
    )
    text_max_tokens: int = Field(
        800,
        ge=16,
        description="Longest reply of the call for explanations, in tokens; calls for fewer lines allow "
        "less.",
    )
    ledger_max_tokens: int = Field(
        320, ge=32, description="Longest running summary of earlier turns, in tokens."
    )
    issue_max_tokens: int = Field(
        96, ge=16, description="Longest description of one issue, in tokens."
    )

    _prompt_text: str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check(self) -> RubricConfig:
        for name in ("answer_prefix", "retry_prefix"):
            value = getattr(self, name)
            if value != value.rstrip():
                raise ValueError(f"{name} must not end with a space or newline")
        if self.mode == "tokens" and self.samples > 1:
            raise ValueError(
                "samples applies to mode: json only, since mode: tokens reads each score's distribution directly: "
                "leave samples out, or set mode: json"
            )
        if self.prompt_file is not None:
            if self.rubric is not None:
                raise ValueError("give either rubric or prompt_file, not both")
            try:
                self._prompt_text = self.prompt_file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"prompt_file cannot be read: {error}") from error
        own_rubric = self.own_rubric
        if own_rubric is not None and not own_rubric.strip():
            raise ValueError("the rubric is empty")
        return self

    @property
    def jury_rules(self) -> dict[str, JuryRule]:
        """The jury's rule of each dimension, of `adherence`, `metrics` and `pairs`."""
        jury = self.jury
        return {
            name: jury.get(name, "median") if isinstance(jury, dict) else jury
            for name in (*get_args(DimensionName), *get_args(OtherScore))
        }

    @property
    def own_rubric(self) -> str | None:
        """The user's rubric text, from `rubric` or `prompt_file`; None where ours is used."""
        return self.rubric if self.rubric is not None else self._prompt_text


SAMPLE_TEMPERATURE = 1.0
"""Of several sampled replies: at 1 their shares estimate the model's own distribution."""

READING_OPTIONS = (
    "samples",
    "thought_tokens",
    "paraphrases",
    "show_reasoning",
    "max_turns",
    "window_turns",
    "overlap",
    "window_context",
    "conversation",
)
"""What changes a judge's readings and is in none of its prompts' versions."""


def reading_options(config: RubricConfig, mode: ScoringMode) -> dict[str, Any]:
    """Return those of `READING_OPTIONS` that are not the defaults; part of the judge's identity.

    Left out where they are the defaults, so that identities from before they were kept stay what they are.
    """
    ignored = ("paraphrases",) if mode == "json" else ("samples",)
    options = {
        name: value
        for name in READING_OPTIONS
        if name not in ignored
        and (value := getattr(config, name)) != RubricConfig.model_fields[name].default
    }
    return options | ({"temperature": SAMPLE_TEMPERATURE} if "samples" in options else {})


def resolve_mode(config: RubricConfig, capabilities: frozenset[Capability]) -> ScoringMode:
    """Return the scoring mode of a run.

    Raises:
        UsageError: `tokens` is asked for and the engine has no log-probabilities; or a label is to be read behind
            a thought, which the engine cannot be given.
    """
    mode = scoring_mode(config.mode, capabilities, "judge")
    if mode == "tokens" and config.thought_tokens and Capability.THOUGHTS not in capabilities:
        raise UsageError(
            "judge.thought_tokens cannot be used: this engine cannot begin a reply with a thought",
            got=", ".join(sorted(capabilities)),
            expected="an engine on which a reply can begin with a thought",
            fix="use the engine llamacpp, transformers or vllm, name the server's `tokenizer` on the engine openai, set "
            "judge.mode to 'json', or leave judge.thought_tokens out",
        )
    return mode


def scoring_mode(
    requested: Literal["auto", "json", "tokens"], capabilities: frozenset[Capability], section: str
) -> ScoringMode:
    """Return the mode on an engine: `auto` becomes `tokens` where it gives log-probabilities, else `json`.

    Args:
        section: of the recipe, for the error.

    Raises:
        UsageError: `tokens` is asked for and the engine has no log-probabilities.
    """
    can_read = bool(capabilities & {Capability.TOP_LOGPROBS, Capability.LABEL_LOGPROBS})
    if requested == "tokens" and not can_read:
        raise UsageError(
            "scoring mode 'tokens' needs an engine that gives log-probabilities",
            got=", ".join(sorted(capabilities)) or "an engine without any such capability",
            expected="top_logprobs or label_logprobs",
            fix=f"set {section}.mode to 'json' or 'auto', or choose another engine",
        )
    if requested != "auto":
        return requested
    return "tokens" if can_read else "json"
