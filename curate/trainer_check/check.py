"""Checks of files for a trainer: row by row, by a replay through the trainer's own code, and the report of both."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from curate.errors import UsageError
from curate.export.trainer_facts import Layout, TrainerFacts, TrainingStage
from curate.export.trainers import TRAINERS, Trainer
from curate.trainer_check import replay
from curate.trainer_check.data_files import CheckedFile, FileRow, find_files
from curate.trainer_check.dataset_info import DatasetInfo, described_files
from curate.trainer_check.examples import Example, Unread, read_example
from curate.trainer_check.findings import CheckReport, FileReport, Lengths, Problem
from curate.trainer_check.row_checks import Problems, check_example, check_users
from curate.trainer_check.template_checks import ChatTokenizer, check_rendered, open_tokenizer

Through = Literal["auto", "installed", "restated"]

STAGES: Final[dict[str, tuple[TrainingStage, ...]]] = {
    trainer: tuple(module.facts.stages) for trainer, module in TRAINERS.items()
}

_REPEATED: Final = Problem("duplicate_prompt", "noted", "train on the same prompt once more")
_LEAKED: Final = Problem("split_leak", "noted", "train on a prompt that it validates on as well")


def check_path(
    path: Path,
    trainer: Trainer,
    *,
    stage: str | None = None,
    tokenizer: str | None = None,
    max_length: int | None = None,
    through: Through = "auto",
    python: str | None = None,
) -> CheckReport:
    """Report what a trainer would do with the rows of a file or of a folder's files.

    Args:
        path: a JSON Lines, JSON list or Parquet file, or a folder of such files. Prompts in a `validation` folder within
            are compared with those of the files.
        trainer: the trainer whose facts apply; `unsloth` reads as `trl`.
        stage: one of `STAGES`; None for the stage that fits each file's columns.
        tokenizer: a folder, a `tokenizer.json` or a Hub id; without it nothing is rendered, counted or replayed.
        max_length: the trainer's limit in tokens; None for its default.
        through: `installed` requires the trainer's own loader to run, `restated` never runs it, `auto` runs it if it is
            installed and there is a tokenizer.
        python: an interpreter that has the trainer, if this one does not.

    Raises:
        UsageError: the tokenizer or the trainer is missing.
        SourceError: there is nothing to read.
    """
    facts = TRAINERS[trainer].facts
    interpreter = _interpreter(trainer, facts, tokenizer, through, python)
    chat_tokenizer = None if tokenizer is None else open_tokenizer(tokenizer)
    files, skipped = find_files(path)
    if facts.description_file and path.is_dir():
        files, skipped = _described(path, files, skipped)
    checks = [_FileCheck(file, facts, stage, chat_tokenizer, max_length) for file in files]
    held_out = _validation_prompts(path, facts, stage)
    for check in checks:
        check.state(held_out)
    if interpreter is not None and tokenizer is not None and facts.package is not None:
        _replay(checks, facts.package, interpreter, tokenizer)
    not_replayed = "" if interpreter else replay.how_to(facts.package, trainer, tokenizer)
    reports = tuple(check.reported() for check in checks)
    return CheckReport(trainer, str(path), tokenizer, reports, skipped, not_replayed)


def _interpreter(
    trainer: str, facts: TrainerFacts, tokenizer: str | None, through: Through, python: str | None
) -> str | None:
    """Return the Python that runs the trainer's own loader; None if it is not run."""
    is_optional = python is None and through == "auto"
    if through == "restated" or (is_optional and tokenizer is None):
        return None
    interpreter = python or (facts.package and replay.here(facts.package))
    if is_optional:
        return interpreter or None
    if facts.package is None:
        raise UsageError(
            f"{trainer} has no loader that could be run",
            expected=", ".join(t for t in TRAINERS if TRAINERS[t].facts.package is not None),
            fix="leave --through and --python out",
        )
    if interpreter is None:
        raise UsageError(
            f"the package '{facts.package}' is not installed",
            fix=f"give --python, an interpreter that has {facts.package}, or leave --through out",
        )
    if tokenizer is None:
        raise UsageError("the trainer's own loader needs a tokenizer", fix="give --tokenizer")
    return interpreter


def _described(
    folder: Path, files: tuple[CheckedFile, ...], skipped: tuple[tuple[str, str], ...]
) -> tuple[tuple[CheckedFile, ...], tuple[tuple[str, str], ...]]:
    """Return the files of a folder that its `dataset_info.json` names; all files if there is none."""
    names = described_files(folder)
    if names is None:
        return files, skipped
    others = [
        (file.name, "not named in dataset_info.json") for file in files if file.name not in names
    ]
    return tuple(file for file in files if file.name in names), (*skipped, *others)


def _validation_prompts(path: Path, facts: TrainerFacts, stage: str | None) -> frozenset[bytes]:
    """Return digests of the prompts in a folder's `validation` folder, if it has one with rows."""
    folder = path / "validation"
    if not folder.is_dir() or not any(file.stat().st_size for file in folder.glob("*.*")):
        return frozenset()
    prompts: set[bytes] = set()
    for file in find_files(folder)[0]:
        check = _FileCheck(file, facts, stage, None, None)
        prompts |= {_digest(e) for _, _, e, _ in check.examples() if e is not None}
    return frozenset(prompts)


def _digest(example: Example) -> bytes:
    return blake2b(orjson.dumps(example.asked, default=repr), digest_size=12).digest()


class _FileCheck:
    """The check of one file."""

    def __init__(
        self,
        file: CheckedFile,
        facts: TrainerFacts,
        stage: str | None,
        tokenizer: ChatTokenizer | None,
        max_length: int | None,
    ) -> None:
        self.file = file
        self.columns = file.columns()
        self.info = DatasetInfo.of_file(file.path, self.columns) if facts.description_file else None
        option: Any = stage  # one of the trainer's own
        self.stage: TrainingStage = (
            self.info.stage if self.info else option or facts.stage_of(self.columns)
        )
        self.trainer = facts
        self.facts = facts.stages[self.stage]
        if self.info is not None:
            self.facts = self.info.facts(self.facts)
        layouts = self.facts.layouts
        fitting = (each for each in layouts if self.info or each.fits(self.columns))
        self.layout: Layout | None = next(fitting, None)
        self.tokenizer = tokenizer
        self.limit = max_length or self.facts.limit
        release = f"{facts.package} {facts.release}" if facts.package else facts.release
        self.report = FileReport(file.name, self.stage, release)
        if tokenizer is not None:
            exact = self.facts.renders != "own template"
            self.report.lengths = Lengths(facts.setting, self.limit, exact)
        self.of_file: list[Problem] = []
        self.of_rows: dict[int, list[Problem]] = {}

    def examples(self) -> Iterator[tuple[int, FileRow | None, Example | None, Problems]]:
        """Yield number, row, example and problems of each row; if there is no example, a problem says why."""
        for at, row in enumerate(self.file.rows()):
            problems = Problems(self.facts, self.layout)
            if isinstance(row, Problem):
                problems.append(row)
                yield at, None, None, problems
                continue
            example = None
            if self.layout is not None:
                try:
                    plain = row if self.info is None else self.info.row(row)
                    example = read_example(plain, self.layout, self.facts.roles)
                except Unread as unread:
                    problems.note(unread.code, unread.detail)
            yield at, row, example, problems

    # -- stated

    def state(self, held_out: frozenset[bytes]) -> None:
        """Find the problems that show without running the trainer."""
        has_system = "system" in self.columns and self.info is None
        labelled = self.stage == "kto" and (
            self.layout is None or "rejected" not in self.layout.sides
        )
        prompts: set[bytes] = set()
        has_row = False
        for at, row, example, problems in self.examples():
            self.report.rows += 1
            if row is not None:
                has_row = True
                problems += [] if self.info is None else self.info.unread(row)
                check_users(row, problems)
                if has_system and row.get("system") is None:
                    problems.note("system_null")
            if example is not None:
                check_example(example, self.facts, problems, labelled=labelled)
                digest = _digest(example)
                if digest in prompts:
                    self.report.duplicate_prompts += 1
                    problems.append(_REPEATED)
                if digest in held_out:
                    problems.append(_LEAKED)
                prompts.add(digest)
                self._measure(example, problems)
            if problems:
                self.of_rows[at] = problems
        self._state_file(has_row=has_row)
        rows = self.report.rows
        if not rows:
            self.of_file.append(Problem("no_rows", "stops", "stop: the file has no rows"))
        elif rows < self.trainer.fewest_rows:
            does = f"reject the file: it takes {self.trainer.fewest_rows} examples or more"
            self.of_file.append(Problem("too_few_rows", "stops", does, str(rows)))

    def _measure(self, example: Example, problems: Problems) -> None:
        if self.tokenizer is None or self.report.lengths is None:
            return
        needed = check_rendered(example, self.tokenizer, self.facts, self.limit, problems)
        if needed is not None:
            self.report.lengths.needed.append(needed)

    def _state_file(self, *, has_row: bool) -> None:
        """Find the problems of the file as a whole; without a readable row its columns are not known."""
        problems = Problems(self.facts)
        suffix = self.file.path.suffix.lower()
        if suffix not in self.trainer.suffixes:
            does = f"stop: it reads {' and '.join(self.trainer.suffixes)} alone"
            problems.append(Problem("not_read", "stops", does, suffix))
        if self.info is not None:
            problems += self.info.problems(self.columns)
        elif self.layout is None and has_row:
            problems.note("unknown_columns", ", ".join(self.columns))
        if refused := [name for name in self.facts.refused_columns if name in self.columns]:
            problems.note("extra_columns", ", ".join(refused))
        known = self.facts.read_columns
        if self.layout is not None and known is not None and not known.issuperset(self.columns):
            problems.note("extra_columns", ", ".join(c for c in self.columns if c not in known))
        if self.facts.trains_on_all and self.layout is not None and not self.layout.sides:
            problems.append(_trains_on_all(self.tokenizer, None))
        self.of_file = problems

    # -- replayed

    def job(self, texts: Path) -> dict[str, Any]:
        """Return the job for the runner."""
        effects = {row: {p.effect for p in problems} for row, problems in self.of_rows.items()}
        return {
            "stops": [row for row, each in effects.items() if "stops" in each],
            "drops": [
                row for row, each in effects.items() if "dropped" in each and "stops" not in each
            ],
            "path": str(self.file.path.resolve()),
            "kind": self.file.kind,
            "stage": self.stage,
            "limit": self.limit,
            "texts": str(texts),
        }

    def take(self, answer: dict[str, Any], texts: Path) -> None:
        """Compare the stated problems with the runner's answer."""
        outcome = replay.read_replay(answer, texts)
        self.report.replay = outcome
        self.of_file, self.of_rows = replay.settle_problems(outcome, self.of_file, self.of_rows)
        if outcome.marks_answers is not None:
            self.of_file = [
                _trains_on_all(self.tokenizer, outcome.marks_answers)
                if problem.code.startswith("trains_on_all")
                else problem
                for problem in self.of_file
            ]
        if outcome.error is not None or self.tokenizer is None:
            return
        if self.report.lengths is not None and outcome.rows_kept == outcome.rows_in:
            self.report.lengths.needed = list(outcome.lengths.values())
            self.report.lengths.exact = True
        for (at, _, example, _), prepared in zip(
            self.examples(), replay.read_texts(texts), strict=False
        ):
            problems = self.of_rows.get(at, [])
            if example is None or prepared is None or any(p.effect != "noted" for p in problems):
                continue
            changed = replay.compare_texts(example, prepared, self.tokenizer, self.facts)
            if changed:
                self.of_rows[at] = [*problems, *changed]

    def reported(self) -> FileReport:
        """Return the report with all problems added."""
        report = self.report
        report.add(None, self.of_file)
        for at, problems in sorted(self.of_rows.items()):
            report.add(at, problems)
        report.effects["intact"] += report.rows - len(self.of_rows)
        return report


def _replay(checks: list[_FileCheck], package: str, python: str, tokenizer: str) -> None:
    """Run the trainer's own loader on all files that have rows, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        checked = [
            (check, Path(folder) / f"{at}.jsonl")
            for at, check in enumerate(checks)
            if check.report.rows
        ]
        jobs = [check.job(texts) for check, texts in checked]
        answers = replay.ask(package, python, tokenizer, jobs) if jobs else []
        for (check, texts), answer in zip(checked, answers, strict=True):
            check.take(answer, texts)


def _trains_on_all(tokenizer: ChatTokenizer | None, marks_answers: bool | None) -> Problem:
    """Return a problem: the user's words are trained on; and whether the chat template allows to leave them out.

    Args:
        tokenizer: tokenizer with the chat template; None if there is none.
        marks_answers: the trainer's answer about the template; None if the trainer was not run.
    """
    does = "train on every token, the user's too"
    has_marks = tokenizer is not None and "generation %}" in tokenizer.template.replace(
        "-%}", " %}"
    )
    if marks_answers or (marks_answers is None and has_marks):
        code, does = "trains_on_all", does + ", unless told otherwise"
    elif marks_answers is None:
        code, does = "trains_on_all_unclear", does + ", unless told otherwise"
    else:
        code = "trains_on_all_unmarked"
        does += (
            ", and stop at assistant_only_loss=True: the chat template marks no assistant tokens"
        )
    return Problem(code, "noted", does, "", marks_answers is not None)
