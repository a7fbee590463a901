"""Facts about what a trainer does with rows: stated once in its module, for the writer and for the checker.

A fact holds for one release of the trainer, which is named with it. What the trainer's own code shows when it is run
(`trainer_check.replay`) is not repeated here: these facts help where the trainer is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

FileFormat = Literal["jsonl", "parquet"]

TrainingStage = Literal["sft", "dpo", "kto", "reward"]

Effect = Literal["stops", "dropped", "corrupted", "mis_masked", "truncated", "noted"]
"""Effect of a defect on a row, worst first. `stops`: the training run ends with an error. `noted`: nothing is lost."""


class Fate(NamedTuple):
    """What a trainer does with a row that has a defect.

    Attributes:
        effect: effect on the row.
        does: what the trainer would do with the row, a sentence without its subject.
    """

    effect: Effect
    does: str


Fates = Mapping[str, Fate | None]
"""Fates by the code of the defect (see `trainer_check.findings`); None if it is no defect for this trainer."""

TrainerRole = Literal["system", "developer", "user", "assistant", "call", "tool"]
"""Author of a message. `call` is also the assistant's: a message that is the JSON text of a tool call."""

CHAT_ROLES: Final[Mapping[str, TrainerRole]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

PICTURES: Final = ("image", "images")

USUAL: Final[Mapping[str, Fate]] = {
    "unknown_columns": Fate("stops", "stop: it finds none of the columns it reads"),
    "extra_columns": Fate(
        "stops", "stop unless the model takes pictures: a column of them is there"
    ),
    "missing_column": Fate("stops", "stop: a column it reads is null"),
    "mixed_shapes": Fate("stops", "stop: the columns are not of the form it joins"),
    "not_messages": Fate("stops", "stop: it expects messages, each with a role and a content"),
    "no_messages": Fate("stops", "stop: it reads the first message of an empty list"),
    "unknown_role": Fate(
        "corrupted", "train on the role's name unchanged: its template knows no such role"
    ),
    "null_content": Fate(
        "noted", "hand a null to the template; some write it out as the word None"
    ),
    "content_not_text": Fate(
        "corrupted", "hand the parts to the template; one for plain text writes out their code"
    ),
    "call_not_json": Fate("stops", "stop, or render a call without a name"),
    "arguments_not_object": Fate(
        "noted", "hand the text to the template; many templates fail on it or encode it twice"
    ),
    "tools_not_json": Fate("stops", "stop: tools must be JSON, a list of definitions"),
    "tools_not_carried": Fate(
        "corrupted", "leave tools or tool calls out, and train on what is left"
    ),
    "empty_user": Fate("corrupted", "train on an answer to nothing"),
    "empty_prompt": Fate(
        "corrupted", "render no prompt at all, or stop where its template wants one"
    ),
    "empty_side": Fate("corrupted", "train on the end of the turn alone"),
    "prompt_not_open": Fate(
        "corrupted", "add a second assistant header after the assistant's own message"
    ),
    "side_not_assistant": Fate(
        "mis_masked", "train on another's words as if they were the assistant's"
    ),
    "several_messages": Fate(
        "mis_masked",
        "train on every token after the prompt, the user's and the headers among them",
    ),
    "identical_sides": Fate("corrupted", "train on it without a warning; the row teaches nothing"),
    "same_tokens": Fate(
        "corrupted", "train on it without a warning; rendered, both sides are the same tokens"
    ),
    "no_assistant": Fate("corrupted", "train on no answer: there is none"),
    "ends_open": Fate("noted", "keep what follows the last answer, without training on it"),
    "untrimmed": Fate("noted", "train on the white space too, unless its template trims"),
    "template_fails": Fate("stops", "stop: its chat template refuses the messages"),
    "too_long": Fate("truncated", "cut off the end, where the answer is"),
}
"""Fates with most trainers; a trainer that differs says so in its own facts."""

CUTS_PROMPT: Final = Fate(
    "mis_masked", "leave the end of the prompt out, where it renders differently with its answer"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """A set of columns that a stage can train on.

    Attributes:
        columns: required columns: one dialogue, or a prompt and one or two sides.
        sides: those of the columns that are answers; with none the single column is a dialogue.
        has_prompt: True if the first column is the prompt; otherwise each side is a whole dialogue.
        holds: forms that the columns may have: lists of messages, one message a side, or texts.
        unless: columns whose presence rules this layout out.
        fates: fates that differ from the stage's.
    """

    columns: tuple[str, ...]
    sides: tuple[str, ...] = ()
    has_prompt: bool = True
    holds: frozenset[Literal["messages", "message", "text"]] = frozenset({"messages"})
    unless: tuple[str, ...] = ()
    fates: Fates = field(default_factory=dict)

    def fits(self, columns: tuple[str, ...]) -> bool:
        """Return True if a file with these columns has this layout."""
        return set(self.columns) <= set(columns) and not set(self.unless) & set(columns)


def pairs_in(*columns: str, holds: str = "messages") -> Layout:
    """Return a layout of a prompt and its sides, in this order, with the forms named in `holds`."""
    return Layout(columns, columns[1:], holds=frozenset(holds.split()))  # type: ignore[arg-type]


def whole_pairs_in(*columns: str, holds: str = "messages", fates: Fates | None = None) -> Layout:
    """Return a layout of two sides, each with the whole dialogue, with the forms named in `holds`."""
    return replace(
        pairs_in(*columns, holds=holds), sides=columns, has_prompt=False, fates=fates or {}
    )


@dataclass(frozen=True, slots=True)
class Order:
    """Required order of roles: after a system message, the user or a tool and the assistant alternate.

    Attributes:
        merges: roles whose neighbouring messages count as one.
        answers_may_open: True if the assistant may speak first.
    """

    merges: frozenset[TrainerRole] = frozenset()
    answers_may_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """Facts about what a trainer does with the rows of one stage.

    Attributes:
        layouts: the first that fits is read.
        marker_columns: sets of columns; a file that has all columns of a set is for this stage.
        limit: default limit of a row's length in tokens; None for the model's own.
        fates: fates of a row that differ from those with most trainers (`USUAL`).
        side_fates: fates of a message in a side of a pair that differ from `fates`.
        roles: roles by the trainer's names for them.
        order: required order of roles; None for any.
        drops_tools: why tools are not carried; empty if they are.
        drops_calls: why tool calls in messages are not carried; empty if they are.
        tools: required form of `tools`.
        arguments: required form of a call's arguments.
        read_columns: columns it knows, so that any other is a finding; None if it ignores others.
        message_keys: the same for a message's keys.
        refused_columns: columns that end the run.
        trains_on_all: True if the user's words are trained on by default.
        renders: by the tokenizer's chat template, by a template of the trainer's own, or not at all: texts unchanged.
        prompt_is_prefix: True if it takes the prompt, rendered alone, for the beginning of the whole.
    """

    layouts: tuple[Layout, ...]
    marker_columns: tuple[frozenset[str], ...] = ()
    limit: int | None = None
    fates: Fates = field(default_factory=dict)
    side_fates: Fates = field(default_factory=dict)
    roles: Mapping[str, TrainerRole] = field(default_factory=lambda: CHAT_ROLES)
    order: Order | None = None
    drops_tools: str = ""
    drops_calls: str = ""
    tools: Literal["list or text", "list", "text"] = "list or text"
    arguments: Literal["object", "text", "any"] = "object"
    read_columns: frozenset[str] | None = None
    message_keys: frozenset[str] | None = None
    refused_columns: tuple[str, ...] = ()
    trains_on_all: bool = False
    renders: Literal["template", "own template", "text"] = "template"
    prompt_is_prefix: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFacts:
    """Facts about a trainer.

    Attributes:
        package: name for pip; None if there is nothing to install.
        release: the release that the facts are about.
        setting: its name for the limit of a row's length.
        stages: facts by stage, in the order in which a file's columns are compared with them.
        fewest_rows: minimum number of rows in a file.
        suffixes: suffixes of the files it reads.
        formats: formats of the files that are written for it, the preferred one first.
        description_file: the file beside the data that says how it reads each file; empty if it needs none.
    """

    package: str | None
    release: str
    setting: str
    stages: Mapping[TrainingStage, StageFacts]
    fewest_rows: int = 1
    suffixes: tuple[str, ...] = (".jsonl", ".json", ".ndjson", ".parquet")
    formats: tuple[FileFormat, ...] = ("jsonl", "parquet")
    description_file: str = ""

    def stage_of(self, columns: tuple[str, ...]) -> TrainingStage:
        """Return the stage that columns are made for; SFT by default."""
        for stage, facts in self.stages.items():
            if any(names <= set(columns) for names in facts.marker_columns):
                return stage
        return "sft"
