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
from curate.records.jury import JuryRule

DimensionName = Literal[
    "context_use", "helpfulness", "safety", "coherence", "task_completion", "repair_handling"
]
OtherScore = Literal["adherence", "metrics", "pairs"]
"""What a jury scores beside the rubric."""
Level = Annotated[int, Field(ge=1, le=5)]


def _known_text(value: Any) -> Any:
    """Refuse values of `text` that earlier versions had, and say what to write instead."""
    if value in ("joint", "separate"):
        raise ValueError(f"{value} is no more; write `all`, or leave it out for `auto`")
    return value


class RubricConfig(Config):
    """How dialogues are judged turn by turn. The schema and the verdict rules are not options."""

    gone: ClassVar[Mapping[str, str]] = {
        "spare_prefix": "it is `retry_prefix` now",
        "turn_view": "a question about a turn shows the dialogue up to it; `mode: json` shows all of it",
    }

    mode: Literal["auto", "json", "tokens"] = Field(
        "auto", description="`auto`: tokens where the engine gives log-probabilities, else json."
    )
    samples: int = Field(
        1,
        ge=1,
        le=64,
        description="So many replies are sampled at temperature 1 (json mode): their shares are each score's "
        "probabilities, with an expectation and a spread. 1 asks for one reply at temperature 0.",
    )
    thought_tokens: int = Field(
        0,
        ge=0,
        le=32768,
        description="Room for a model that thinks before it answers. tokens mode: a thought of at most so many "
        "tokens is asked for, and each label is read behind it. Other replies may be so much longer.",
    )
    max_turns: int = Field(10, ge=1, description="Up to this many scored turns in one call.")
    window_turns: int = Field(5, ge=4, le=6, description="Turns of a window of a longer dialogue.")
    overlap: int = Field(1, ge=0, le=3, description="Turns two neighbouring windows share.")
    window_context: Literal["summary", "full"] = Field(
        "summary",
        description="What a later window sees of earlier turns: a ledger, or all of them.",
    )
    conversation: Literal["further_call", "windows"] = Field(
        "further_call",
        description="Conversation scores of a windowed dialogue: one further call over the whole text, "
        "or the minimum over the windows.",
    )
    on_mismatch: Literal["use_rule", "retry", "reject"] = Field(
        "use_rule",
        description="When the judge's verdict is not the one its scores give by the rule.",
    )
    text: Annotated[Literal["auto", "all", "off"], BeforeValidator(_known_text)] = Field(
        "auto",
        description="Words behind the scores, in one call after them: issues of weak turns, notes and decision basis. "
        "`auto`: notes and basis of dialogues that are not excellent; `all`: of every one; `off`: no words.",
    )
    retries: int = Field(
        2,
        ge=0,
        le=10,
        description="How often a reply that cannot be used is asked again (in tokens mode: a score whose "
        "labels hold too little of the mass, in another wording behind `retry_prefix`).",
    )
    paraphrases: int = Field(
        1,
        ge=1,
        le=4,
        description="Wordings in which each score is asked, their distributions averaged (tokens mode).",
    )
    min_scored_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Keep a dialogue with unscored turns from this share of scored ones.",
    )
    show_reasoning: bool = Field(False, description="Show parsed-off thinking to the judge.")
    missing_scenario: Literal["error", "skip"] = Field(
        "error", description="A dialogue without scenario: unscored, or judged without one."
    )
    min_coverage: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Least mass the labels must have for a score to count (tokens mode).",
    )
    answer_prefix: str = Field(
        "(",
        description="Forced start of a score, where the engine can (tokens mode). No trailing "
        "space: tokenizers would put the label into another token.",
    )
    retry_prefix: str = Field(
        "Score: (",
        description="Forced start instead, when a score whose labels held too little of the mass is asked "
        "again (tokens mode).",
    )
    prompt_file: Path | None = Field(
        None,
        description="A file whose text replaces the rubric; `{anchors}` and `{examples}` are filled in.",
    )
    rubric: str | None = Field(None, description="The same, as text in the recipe.")
    anchors: dict[DimensionName, dict[Level, str]] = Field(
        default_factory=dict, description="Own words for single levels, e.g. `helpfulness: {3: …}`."
    )
    examples: tuple[str, ...] = Field((), description="Worked examples, shown after the scales.")
    jury: JuryRule | dict[DimensionName | OtherScore, JuryRule] = Field(
        "median",
        description="How the scores of `models.judges` become one, for all of them or by dimension, `adherence`, "
        "`metrics` and `pairs` (median for those not named): the median (of two levels the lower), the minimum, or "
        "the level that most judges give. Of probabilities a vote is the mean.",
    )
    calibration: Annotated[
        Calibration | None,
        BeforeValidator(
            lambda value: read_calibration(value, "judge.calibration", "identity"),
            json_schema_input_type=Calibration | str | None,
        ),
    ] = Field(
        None,
        description="File that `curate calibrate` wrote: scores become calibrated levels, which verdict and "
        "weakest turn go by, and `p_good` is known where it was fitted. Refused for another judge. Costs no call.",
    )
    persona_check: int = Field(
        0,
        ge=0,
        description="So many dialogues are judged again with another dialogue's scenario: a judge whose scores do "
        "not fall then ignores the scenario (`persona_collapse`). At least 10 tell something; 20 to 50 are enough.",
    )
    text_max_tokens: int = Field(
        800, ge=16, description="Bound of the call for words; fewer lines have a smaller one."
    )
    ledger_max_tokens: int = Field(320, ge=32, description="Bound of a ledger of earlier turns.")
    issue_max_tokens: int = Field(96, ge=16, description="Bound of one description of an issue.")

    _prompt_text: str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check(self) -> RubricConfig:
        for name in ("answer_prefix", "retry_prefix"):
            value = getattr(self, name)
            if value != value.rstrip():
                raise ValueError(f"{name} must not end with a space or newline")
        if self.mode == "tokens" and self.samples > 1:
            raise ValueError(
                "samples are of JSON replies, and mode: tokens reads each score's distribution by itself: "
                "leave samples out, or set mode: json"
            )
        if self.prompt_file is not None:
            if self.rubric is not None:
                raise ValueError("give either rubric or prompt_file, not both")
            try:
                self._prompt_text = self.prompt_file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"prompt_file cannot be read: {error}") from error
        own = self.own_rubric
        if own is not None and not own.strip():
            raise ValueError("the rubric is empty")
        return self

    @property
    def jury_rules(self) -> dict[str, JuryRule]:
        """The jury's rule of each dimension, of `adherence`, `metrics` and `pairs`."""
        given = self.jury
        return {
            name: given.get(name, "median") if isinstance(given, dict) else given
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
            "judge.thought_tokens: labels are to be read behind a thought, which this engine cannot be given",
            got=", ".join(sorted(capabilities)),
            expected="an engine on which a reply can begin with a thought",
            fix="use the engine llamacpp, transformers or vllm, name the server's `tokenizer` on the engine openai, set "
            "judge.mode to 'json', or leave judge.thought_tokens out",
        )
    return mode


def scoring_mode(
    asked: Literal["auto", "json", "tokens"], capabilities: frozenset[Capability], section: str
) -> ScoringMode:
    """Return the mode on an engine: `auto` becomes `tokens` where it gives log-probabilities, else `json`.

    Args:
        section: of the recipe, for the error.

    Raises:
        UsageError: `tokens` is asked for and the engine has no log-probabilities.
    """
    can_read = bool(capabilities & {Capability.TOP_LOGPROBS, Capability.LABEL_LOGPROBS})
    if asked == "tokens" and not can_read:
        raise UsageError(
            "scoring mode 'tokens' needs an engine that gives log-probabilities",
            got=", ".join(sorted(capabilities)) or "an engine without any such capability",
            expected="top_logprobs or label_logprobs",
            fix=f"set {section}.mode to 'json' or 'auto', or choose another engine",
        )
    if asked != "auto":
        return asked
    return "tokens" if can_read else "json"
