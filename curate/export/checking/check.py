"""Checking files for a trainer: which reading applies, and the findings of every row added up."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

import orjson

from curate.errors import UsageError
from curate.export.checking import (
    axolotl,
    dataset_info,
    installed,
    llamafactory,
    openai,
    openrlhf,
    swift,
    trl,
    verl,
)
from curate.export.checking.findings import CheckReport, FileReport, Lengths, Problem, Replay
from curate.export.checking.lengths import ChatTokenizer, load_chat_tokenizer
from curate.export.checking.reading import DataFile, Row, find_files
from curate.export.checking.shapes import Outcome, empty_user_problems
from curate.export.config import Trainer

Through = Literal["auto", "installed", "restated"]

TRAINERS: Final[tuple[Trainer, ...]] = get_args(Trainer)
STAGES: Final[dict[str, tuple[str, ...]]] = {
    "trl": get_args(trl.Stage),
    "unsloth": get_args(trl.Stage),
    "axolotl": get_args(axolotl.Stage),
    "llamafactory": get_args(dataset_info.Stage),
    "swift": get_args(swift.Stage),
    "openrlhf": get_args(openrlhf.Stage),
    "verl": get_args(verl.Stage),
    "openai": get_args(openai.Stage),
}

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
        trainer: whose reading applies; `unsloth` reads as `trl`.
        stage: one of `STAGES`; None takes each file's columns for it.
        tokenizer: a folder, a `tokenizer.json` or a Hub id; without it nothing is rendered or counted.
        max_length: the trainer's limit in tokens; None is its default.
        through: `installed` also runs the installed trainer's own preparation, `restated` does not,
            `auto` does where it is installed and a tokenizer is given.

    Raises:
        UsageError: the tokenizer or the trainer is not there.
        SourceError: there is nothing to read.
    """
    loaded = None if tokenizer is None else load_chat_tokenizer(tokenizer)
    runs = loaded is not None and (
        through == "installed" or (through == "auto" and installed.is_installed(trainer))
    )
    if through == "installed":
        installed.require(trainer)
        if loaded is None:
            raise UsageError("the installed trainer needs a tokenizer", fix="give --tokenizer")
    files, skipped = find_files(path)
    if trainer == "llamafactory" and path.is_dir():
        files, skipped = _described(path, files, skipped)
    reports = []
    for file in files:
        report, reading = _prepared(file, trainer, stage, loaded, max_length)
        report.add(None, reading.file_problems())
        _read(file, reading, report)
        if trainer == "openai" and report.rows < openai.FEWEST_ROWS:
            does = f"reject the file: it takes {openai.FEWEST_ROWS} examples or more"
            report.add(None, [Problem("too_few_rows", "stops", does, str(report.rows))])
        if runs and loaded is not None and report.rows:
            limit = None if report.lengths is None else report.lengths.limit
            report.replay = installed.replay(file, trainer, report.stage, loaded, limit)
            _compare(report, report.replay)
        reports.append(report)
    return CheckReport(trainer, str(path), tokenizer, tuple(reports), skipped)


def _described(
    folder: Path, files: tuple[DataFile, ...], skipped: tuple[tuple[str, str], ...]
) -> tuple[tuple[DataFile, ...], tuple[tuple[str, str], ...]]:
    """Those files of a folder that its `dataset_info.json` names; all where there is none."""
    named = dataset_info.described_files(folder)
    if named is None:
        return files, skipped
    others = [
        (file.name, "not named in dataset_info.json") for file in files if file.name not in named
    ]
    return tuple(file for file in files if file.name in named), (*skipped, *others)


def _compare(report: FileReport, replay: Replay) -> None:
    """Say where the installed trainer disagrees with what was found; it is the one that trains."""
    stops = any(finding.effect == "stops" for finding in report.findings)
    if replay.error is not None:
        if not stops:
            problem = Problem("replay_failed", "stops", "stop, as it did here", replay.error)
            report.add(None, [problem])
        return
    kept = report.rows - report.effects["dropped"]
    if stops or replay.rows_kept != kept:
        does = f"keep {replay.rows_kept:,} of {replay.rows_in:,} rows, as it did here"
        detail = "an error was expected" if stops else f"{kept:,} were expected"
        report.add(None, [Problem("replay_differs", "noted", does, detail)])


def _prepared(
    file: DataFile,
    trainer: Trainer,
    stage: str | None,
    tokenizer: ChatTokenizer | None,
    max_length: int | None,
) -> tuple[FileReport, Reading]:
    """The reading that applies to a file, and the report to fill; a stage given was checked before."""
    columns = file.columns()
    named: Any = stage  # one of the trainer's own
    limit = max_length
    reading: Reading
    match trainer:
        case "trl" | "unsloth":
            named, setting = stage or trl.stage_of(columns), trl.SETTING
            limit = limit or trl.DEFAULT_LIMIT
            reading = trl.TrlReading(named, columns, tokenizer, limit)
        case "axolotl":
            named, setting = stage or axolotl.stage_of(columns), axolotl.SETTING
            limit = limit or axolotl.DEFAULT_LIMIT
            reading = axolotl.AxolotlReading(named, columns, tokenizer, limit)
        case "llamafactory":
            info = dataset_info.DatasetInfo.of_file(file.path, columns)
            named, setting = info.stage, llamafactory.SETTING
            limit = limit or llamafactory.DEFAULT_LIMIT
            reading = llamafactory.LlamaFactoryReading(info, columns, tokenizer, limit)
        case "swift":
            named, setting = stage or swift.stage_of(columns), swift.SETTING
            reading = swift.SwiftReading(named, columns, tokenizer, limit)
        case "openrlhf":
            named, setting = stage or openrlhf.stage_of(columns), openrlhf.SETTING
            limit = limit or openrlhf.default_limit(named)
            reading = openrlhf.OpenRlhfReading(named, columns, tokenizer, limit)
        case "verl":
            named, setting = stage or verl.stage_of(columns), verl.SETTING
            limit = limit or verl.DEFAULT_LIMIT
            is_parquet = file.kind == "parquet"
            reading = verl.VerlReading(named, columns, is_parquet, tokenizer, limit)
        case "openai":
            named, setting = stage or openai.stage_of(columns), openai.SETTING
            is_lines = file.path.suffix.lower() == ".jsonl"
            reading = openai.OpenAiReading(named, columns, is_lines, tokenizer, limit)
    report = FileReport(file.name, named)
    if tokenizer is not None:
        exact = trainer not in ("llamafactory", "swift", "openai")
        report.lengths = Lengths(setting, limit, exact)
    return report, reading


def _read(file: DataFile, reading: Reading, report: FileReport) -> None:
    """Read every row, and note where a prompt stood before."""
    prompts: set[bytes] = set()
    for at, row in enumerate(file.rows()):
        if isinstance(row, Problem):
            report.add(at, [row])
            continue
        outcome = reading.read(row)
        problems = [*outcome.problems, *empty_user_problems(row)]
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
