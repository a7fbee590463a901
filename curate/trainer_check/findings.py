"""Findings of a check: each kind with what to do about it, and the report that adds them up.

What a trainer does with the row is a fact of its module in `export`, or was observed when its own code was run; what to
do about a finding is the same for all trainers, and is stated here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

from curate.export.trainer_facts import Effect

EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)

ADVICE: Final = {
    "not_json": "fix or remove the line",
    "not_a_row": "write one JSON object a row",
    "no_rows": "check the path and what wrote the file",
    "unknown_columns": "rename the columns to the ones this trainer reads",
    "not_read": "write the rows in the kind of file that this trainer reads",
    "missing_column": "give every row of the file the same columns, or leave the row out",
    "mixed_shapes": "write prompt and sides in one form: all lists of messages, or all text",
    "not_messages": "write a list of messages, each with a role and a content",
    "no_messages": "leave the row out, or give it its messages",
    "content_not_text": "write the content as one text",
    "null_content": 'write "" where a message has no text',
    "empty_prompt": "leave the row out, or give the prompt its question",
    "empty_user": "leave the row out, or give the user's message its text",
    "prompt_not_open": "end the prompt with the user's or a tool's message",
    "side_not_assistant": "write exactly one assistant message a side",
    "several_messages": "keep one assistant message a side; move what comes before into the prompt",
    "empty_side": "leave the row out, or give the side a text or a tool call",
    "identical_sides": "leave the row out",
    "same_tokens": "leave the row out; the sides differ only in what the template removes",
    "prefix_differs": "give both sides the same messages up to the last one",
    "unknown_role": "rename the role to one the trainer knows",
    "role_order": "make the roles alternate, or leave the dialogue out",
    "no_assistant": "leave the dialogue out: there is nothing to train on",
    "ends_open": "cut what follows the last assistant message",
    "untrimmed": "strip white space from both ends of what is trained on",
    "tools_not_carried": "leave rows with tools out, or use a trainer and template that carry them",
    "tools_not_json": "write tools as the JSON text of a list of function definitions",
    "call_not_json": "write the call as the JSON text of an object with name and arguments",
    "arguments_not_object": "write a tool call's arguments as an object, not as text",
    "template_fails": "leave the row out, or use a template that takes such messages",
    "prompt_not_prefix": "use a template that renders the prompt the same alone and with its answer",
    "prompt_too_long": "raise the limit, or leave the row out",
    "too_long": "raise the limit, or leave the row out",
    "label_not_bool": "write the label as true or false",
    "extra_columns": "move what the trainer does not read to a file beside it",
    "too_few_rows": "collect more rows",
    "system_null": "leave the key `system` out of the file, or fill it in every row",
    "duplicate_prompt": "check that the repeated prompts are meant",
    "trains_on_all": "set assistant_only_loss=True unless the model should learn the user's text too",
    "trains_on_all_unclear": "replay through TRL: assistant_only_loss=True leaves it out, but only with a chat "
    "template that marks assistant tokens or that TRL knows",
    "trains_on_all_unmarked": "put {% generation %} and {% endgeneration %} around the assistant's text and end "
    "token in the chat template, then set assistant_only_loss=True; or write rows of prompt and completion",
    "no_dataset_info": "put a dataset_info.json that names this file beside it",
    "partial_columns": "write every column the data has into `columns`; what is left out is unset",
    "partial_tags": "write all seven tags; what is left out is unset",
    "split_leak": "keep a prompt on one side of the split only",
    "replay_failed": "see its message, and fix or leave out the row",
    "replay_dropped": "see what the trainer logs about the row, or leave it out",
    "replay_differs": "go by the trainer's own code, and report the difference",
    "answer_changed": "strip the answer, or use a template that writes it unchanged",
    "others_trained": "check which messages the trainer is told to train on",
    "question_cut": "raise the limit, or leave the row out",
}
"""What to do about a finding, by its code."""


class Problem(NamedTuple):
    """A problem of a row, without the row's number.

    Attributes:
        code: a key of `ADVICE`.
        effect: effect on the row.
        does: what the trainer would do with the row, a sentence without its subject.
        detail: the place or text, shortened.
        replayed: True if the trainer's own code did it; otherwise it is stated by the facts about the trainer.
    """

    code: str
    effect: Effect
    does: str
    detail: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its file and row.

    Attributes:
        file: name of the file.
        row: number of the row in its file, from 0; None for the whole file.
        basis: `replayed` through the trainer's own code, or `stated` by the facts about it.
        version: the trainer's release that was run, or that the facts are about.
    """

    file: str
    row: int | None
    code: str
    effect: Effect
    does: str
    do: str
    detail: str
    basis: Literal["replayed", "stated"]
    version: str


@dataclass(slots=True)
class Lengths:
    """Lengths of a file's rows for the trainer, in tokens; one number per row.

    Attributes:
        needed: the smallest limit under which each row loses nothing.
        limit: the limit that applies, or None if the trainer has none.
        setting: the trainer's name for the limit.
        exact: True if the trainer renders with the tokenizer's own template, as the check does.
    """

    setting: str
    limit: int | None
    exact: bool
    needed: list[int] = field(default_factory=list)

    def keeping(self, percent: float) -> int:
        """Return the smallest limit under which this percentage of the measured rows loses nothing."""
        ordered = sorted(self.needed)
        at = max(0, -(-len(ordered) * percent // 100) - 1)
        return ordered[int(at)]

    def as_dict(self) -> dict[str, Any]:
        """Return the lengths for the report; without a measured row only the limit."""
        lengths: dict[str, Any] = {
            "setting": self.setting,
            "limit": self.limit,
            "exact": self.exact,
        }
        if not self.needed:
            return lengths | {"measured": 0}
        return lengths | {
            "measured": len(self.needed),
            "median": self.keeping(50),
            "longest": max(self.needed),
            "keeps_95_percent": self.keeping(95),
            "keeps_99_percent": self.keeping(99),
            "keeps_all": max(self.needed),
        }


@dataclass(frozen=True, slots=True)
class Replay:
    """Outcome of a replay through the trainer's own loader.

    Attributes:
        version: package and release.
        rows_in, rows_kept: number of rows that the loader read, and that it kept.
        dropped: numbers of the dropped rows, as far as they are known.
        stopped: error at a row by the row's number, as far as they are known.
        error: error that the loader stopped with, or None.
        marks_answers: TRL only: True if it can train on the assistant's tokens alone with the chat template.
        lengths: tokens of each kept row, by its number.
    """

    version: str
    rows_in: int
    rows_kept: int
    dropped: tuple[int, ...] = ()
    stopped: Mapping[int, str] = field(default_factory=dict)
    error: str | None = None
    marks_answers: bool | None = None
    lengths: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class FileReport:
    """Findings in one file. Every row is in `rows` and counted once, under its worst effect.

    Attributes:
        stated: the trainer's release that the facts are about.
    """

    file: str
    stage: str
    stated: str
    rows: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    duplicate_prompts: int = 0
    lengths: Lengths | None = None
    replay: Replay | None = None

    def add(self, row: int | None, problems: Sequence[Problem]) -> None:
        """Add the problems of a row, or of the file with `row` None; only the worst of each code."""
        worst = {problem.code: problem for problem in sorted(problems, key=_severity, reverse=True)}
        replayed = self.replay.version if self.replay is not None else ""
        for code, effect, does, detail, is_replayed in sorted(worst.values(), key=_severity):
            finding = Finding(
                *(self.file, row, code, effect, does, ADVICE[code], detail),
                basis="replayed" if is_replayed else "stated",
                version=replayed if is_replayed else self.stated,
            )
            self.findings.append(finding)
            self.codes[code] += 1
        if row is not None:
            self.effects[min(worst.values(), key=_severity).effect if worst else "intact"] += 1

    @property
    def is_clean(self) -> bool:
        """True if neither a row nor the file as a whole is lost or changed."""
        return all(finding.effect == "noted" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as in `curate check --json`."""
        replay = None
        if self.replay is not None:
            names = ("version", "rows_in", "rows_kept", "error")
            replay = {name: getattr(self.replay, name) for name in names}
        return {
            "file": self.file,
            "stage": self.stage,
            "stated": self.stated,
            "rows": self.rows,
            "effects": {name: self.effects[name] for name in ("intact", *EFFECTS)},
            "codes": dict(sorted(self.codes.items())),
            "duplicate_prompts": self.duplicate_prompts,
            "lengths": None if self.lengths is None else self.lengths.as_dict(),
            "replay": replay,
            "findings": [asdict(finding) for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a trainer would do with a file or a folder.

    Attributes:
        skipped: files of the folder that were not read, with the reason.
        not_replayed: why the trainer's own code was not run, and how to run it; empty if it was run.
    """

    trainer: str
    path: str
    tokenizer: str | None
    files: tuple[FileReport, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    not_replayed: str = ""

    @property
    def is_clean(self) -> bool:
        """True if no row of any file would be lost or changed."""
        return all(file.is_clean for file in self.files)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as in `curate check --json`."""
        totals: Counter[str] = Counter()
        for file in self.files:
            totals.update(file.effects)
        return {
            "trainer": self.trainer,
            "path": self.path,
            "tokenizer": self.tokenizer,
            "clean": self.is_clean,
            "not_replayed": self.not_replayed,
            "rows": sum(file.rows for file in self.files),
            "effects": {name: totals[name] for name in ("intact", *EFFECTS)},
            "files": [file.as_dict() for file in self.files],
            "skipped": [{"file": name, "reason": reason} for name, reason in self.skipped],
        }


def _severity(problem: Problem) -> int:
    return EFFECTS.index(problem.effect)
