"""Checking files for a trainer: which reading applies, and the findings of every row added up."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, Protocol, get_args

import orjson

from curate.export.checking import trl
from curate.export.checking.findings import CheckReport, FileReport, Lengths, Problem
from curate.export.checking.lengths import ChatTokenizer, load_chat_tokenizer
from curate.export.checking.reading import DataFile, Row, find_files
from curate.export.checking.shapes import Outcome

Trainer = Literal["trl"]
Through = Literal["auto", "installed", "restated"]

TRAINERS: Final[tuple[Trainer, ...]] = get_args(Trainer)
STAGES: Final = {"trl": ("sft", "dpo", "kto", "reward")}


_REPEATED: Final = Problem("duplicate_prompt", "noted", "train on the same prompt once more")


class Reading(Protocol):
    """How a trainer reads the rows of one file."""

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole."""
        ...

    def read(self, row: Row) -> Outcome:
        """What the trainer does with a row."""
        ...


def check_path(
    path: Path,
    trainer: Trainer,
    *,
    stage: str | None = None,
    tokenizer: str | None = None,
    max_length: int | None = None,
    through: Through = "auto",
) -> CheckReport:
    """Say what a trainer would do with the rows of a file or of a folder's files.

    Args:
        path: JSON Lines, a JSON list or Parquet, or a folder of such files.
        trainer: whose reading applies.
        stage: `sft`, `dpo`, `kto` or `reward`; None takes each file's columns for it.
        tokenizer: a folder, a `tokenizer.json` or a Hub id; without it nothing is rendered or counted.
        max_length: the trainer's limit in tokens; None is its default.
        through: `installed` also runs the installed trainer's own preparation, `restated` does not,
            `auto` does where it is installed and a tokenizer is given.

    Raises:
        UsageError: an unknown stage, or the tokenizer or the trainer is not there.
        SourceError: there is nothing to read.
    """
    loaded = None if tokenizer is None else load_chat_tokenizer(tokenizer)
    files, skipped = find_files(path)
    reports = [_check_file(file, trainer, stage, loaded, max_length) for file in files]
    return CheckReport(trainer, str(path), tokenizer, tuple(reports), skipped)


def _read(file: DataFile, reading: Reading, report: FileReport) -> None:
    """Read every row, and note where a prompt stood before."""
    prompts: set[bytes] = set()
    for at, row in enumerate(file.rows()):
        if isinstance(row, Problem):
            report.add(at, [row])
            continue
        outcome = reading.read(row)
        problems = outcome.problems
        if outcome.prompt is not None:
            digest = blake2b(orjson.dumps(outcome.prompt, default=repr), digest_size=12).digest()
            if digest in prompts:
                report.duplicate_prompts += 1
                problems = [*problems, _REPEATED]
            prompts.add(digest)
        if outcome.needed is not None and report.lengths is not None:
            report.lengths.needed.append(outcome.needed)
        report.add(at, problems)
    if report.rows == 0:
        report.add(None, [Problem("no_rows", "stops", "stop: the file has no rows")])


def _check_file(
    file: DataFile,
    trainer: Trainer,
    stage: str | None,
    tokenizer: ChatTokenizer | None,
    max_length: int | None,
) -> FileReport:
    columns = file.columns()
    limit = trl.DEFAULT_LIMIT if max_length is None else max_length
    chosen = stage or trl.stage_of(columns)
    reading = trl.TrlReading(chosen, columns, tokenizer, limit)
    report = FileReport(file.name, chosen)
    if tokenizer is not None:
        report.lengths = Lengths(trl.SETTING, limit, exact=True)
    report.add(None, reading.file_problems())
    _read(file, reading, report)
    return report
