"""Replay of files through the trainer's own code, in this or another environment, and comparison with the stated facts.

`runner.py` is run by the interpreter that has the trainer. Where its answer differs from what was stated, the trainer's
own code is right, since it is what trains.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from curate.errors import UsageError
from curate.export.trainer_facts import StageFacts
from curate.trainer_check import runner
from curate.trainer_check.data_files import shown
from curate.trainer_check.examples import ANSWERS, ChatMessage, Example
from curate.trainer_check.findings import Problem, Replay
from curate.trainer_check.template_checks import ChatTokenizer, TemplateError, expected_answers

_LOST: Final = ("stops", "dropped")
_SHORTEST_TELLING: Final = 16
"""Number of letters from which a text does not occur in another one by chance."""


def is_installed(package: str) -> bool:
    """Return True if the trainer is installed in curate's environment."""
    return importlib.util.find_spec(package.removeprefix("ms-")) is not None


def ask(package: str, python: str, tokenizer: str, jobs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Run a trainer's loader on files, in a process of its own.

    Args:
        package: the trainer's package name for pip.
        python: an interpreter that has the trainer.
        tokenizer: a folder, a `tokenizer.json` or a Hub id.
        jobs: jobs in the form of `runner`.

    Returns:
        One answer per job, in the form of `runner`.

    Raises:
        UsageError: there is no such interpreter, or it cannot run the trainer.
    """
    asked = {"package": package, "tokenizer": tokenizer, "jobs": list(jobs)}
    try:
        done = subprocess.run(
            [python, runner.__file__], input=orjson.dumps(asked), capture_output=True, check=False
        )
    except OSError as error:
        raise UsageError(
            "the interpreter cannot be run",
            got=f"{python}: {error.strerror}",
            expected="--python: the path of a Python that has the trainer",
        ) from error
    answers = [orjson.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(jobs):
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        lacks = f"'{python}' -m pip install {package}" if "NotFoundError" in last else None
        raise UsageError(f"{package} cannot be run by {python}", got=shown(last, 200), fix=lacks)
    return answers


def read_answer(answer: Mapping[str, Any], texts: Path) -> Replay:
    """Return an answer of `runner` with the lengths in its file of texts."""
    lengths = {at: row["length"] for at, row in enumerate(read_texts(texts)) if row is not None}
    return Replay(
        f"{answer['package']} {answer['version']}",
        answer["rows_in"],
        answer["rows_kept"],
        tuple(answer["dropped"]),
        {int(row): error for row, error in answer["stopped"].items()},
        answer["error"],
        answer.get("marks_answers"),
        lengths,
    )


def read_texts(texts: Path) -> Iterator[Any]:
    """Yield the prepared form of each row, in order; None for a row that did not come through."""
    with texts.open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def settle(
    replay: Replay, of_file: list[Problem], of_rows: dict[int, list[Problem]]
) -> tuple[list[Problem], dict[int, list[Problem]]]:
    """Compare the stated problems with what the trainer did: which rows it drops, and at which it stops.

    Returns:
        The problems of the file and of each row, marked as replayed where the trainer did as stated.
    """
    settled = {row: list(problems) for row, problems in of_rows.items()}
    of_file = list(of_file)
    for row, error in replay.stopped.items():
        _confirm(
            settled.setdefault(row, []), "stops", "replay_failed", "stop, as it did here", error
        )
    for row in replay.dropped:
        does = "drop the row, as it did here"
        _confirm(settled.setdefault(row, []), "dropped", "replay_dropped", does, "")
    if replay.error is not None:
        if not replay.stopped:  # no single row causes it; the stated problems explain it
            marked = [problem for problem in of_file if problem.effect == "stops"]
            rows = [
                row
                for row, problems in settled.items()
                if (any(problem.effect == "stops" for problem in problems))
            ]
            of_file = [p._replace(replayed=True) if p in marked else p for p in of_file]
            for row in rows:
                settled[row] = [p._replace(replayed=p.effect == "stops") for p in settled[row]]
            if not marked and not rows:
                does = "stop, as it did here"
                of_file.append(Problem("replay_failed", "stops", does, replay.error, True))
        return of_file, settled
    does = "keep the row, as it did here"
    for row, problems in settled.items():
        if row in replay.lengths:
            settled[row] = [_kept(p, does) if p.effect in _LOST else p for p in problems]
    of_file = [_kept(p, "not stop, as here") if p.effect == "stops" else p for p in of_file]
    others = replay.rows_in - replay.rows_kept - len(replay.dropped)
    if others > 0:
        does = f"drop {others:,} more rows, as it did here"
        of_file.append(Problem("replay_dropped", "dropped", does, "which ones was not found", True))
    return of_file, settled


def _confirm(problems: list[Problem], effect: str, code: str, does: str, detail: str) -> None:
    """Mark a row's problems with an effect as replayed; add one if there is none."""
    stated = [at for at, problem in enumerate(problems) if problem.effect == effect]
    for at in stated:
        problems[at] = problems[at]._replace(replayed=True, detail=problems[at].detail or detail)
    if not stated:
        problems.append(Problem(code, effect, does, detail, True))  # type: ignore[arg-type]


def _kept(problem: Problem, does: str) -> Problem:
    return Problem("replay_differs", "noted", does, f"{problem.code} was stated", True)


def compare_texts(
    example: Example, prepared: Mapping[str, Any], tokenizer: ChatTokenizer, facts: StageFacts
) -> list[Problem]:
    """Return problems where the model would see or be trained on other text than the row holds.

    Args:
        example: content of a row without a problem worse than `noted`.
        prepared: the row as the trainer prepared it, in the form of `runner.Made`.
        tokenizer: tokenizer with the template that the trainer renders with, unless it has its own.
        facts: facts of the stage.
    """
    if example.is_text or prepared["trained"] is None:
        return []
    assert isinstance(example.prompt, list)
    trained = [_letters(text, tokenizer) for text in prepared["trained"]]
    problems = []
    for answers, text, shown_text in zip(
        _answers(example, len(trained)), trained, prepared["trained"], strict=True
    ):
        if any(_letters(answer, tokenizer) not in text for answer in answers):
            does = "train on something else than the answer, as it did here"
            problems.append(Problem("answer_changed", "corrupted", does, shown(shown_text), True))
    if not problems and example.sides and facts.renders == "template":
        problems = _beside_answers(example, prepared["trained"], trained, tokenizer)
    users = [m for m in example.prompt if m["role"] == "user" and isinstance(m["content"], str)]
    answered = _letters(
        " ".join(answer for part in _answers(example, 1) for answer in part), tokenizer
    )
    for message in [] if facts.trains_on_all else users:
        letters = _letters(message["content"], tokenizer)
        if (
            len(letters) >= _SHORTEST_TELLING
            and letters not in answered
            and any(letters in t for t in trained)
        ):
            does = "train on the user's words, as it did here"
            problems.append(
                Problem("others_trained", "mis_masked", does, shown(message["content"]), True)
            )
    if users and _letters(users[-1]["content"], tokenizer) not in _letters(
        prepared["seen"], tokenizer
    ):
        does = "cut off the end of the question, as it did here"
        problems.append(
            Problem("question_cut", "truncated", does, shown(users[-1]["content"]), True)
        )
    return problems


def _answers(example: Example, sides: int) -> list[list[str]]:
    """Return the texts to train on, by side, without calls and thinking, which templates write in many ways."""
    parts: list[Sequence[ChatMessage]] = [
        side if isinstance(side, list) else [{"role": "assistant", "content": side}]
        for side in example.sides.values()
    ] or [example.answers]
    listed = [
        [
            message["content"]
            for message in part
            if message["role"] in ANSWERS[:1]
            and isinstance(message["content"], str)
            and "<think>" not in message["content"]
            and all(message.get(mask, True) for mask in ("train", "loss", "weight"))
        ]
        for part in parts
    ]
    return listed if len(listed) == sides else [[text for part in listed for text in part]] * sides


def _beside_answers(
    example: Example, shows: Sequence[str], trained: Sequence[str], tokenizer: ChatTokenizer
) -> list[Problem]:
    """Return a problem if more or less is trained on than what the template writes after the prompt."""
    try:
        expected = expected_answers(example, tokenizer)
    except TemplateError:
        return []
    for answer, text, shown_text in zip(expected, trained, shows, strict=False):
        if _letters(answer, tokenizer) != text:
            does = "train on more or less than the answer, as it did here"
            return [Problem("answer_changed", "corrupted", does, shown(shown_text), True)]
    return []


def _letters(text: str, tokenizer: ChatTokenizer) -> str:
    """Return a text without white space and end tokens, which trainers strip and add."""
    return "".join((text.replace(tokenizer.eos, "") if tokenizer.eos else text).split())


def how_to(package: str | None, trainer: str, tokenizer: str | None) -> str:
    """Return a sentence on the options that make the trainer's own code run."""
    if package is None:
        return f"{trainer} has no loader to run: all of this is stated"
    needs = [] if tokenizer else ["--tokenizer"]
    needs.append(
        f"--python ENV/bin/python, where ENV is an environment after `pip install {package}`"
    )
    return "not replayed; to run the trainer's own loader give " + " and ".join(needs)


def here(package: str) -> str | None:
    """Return this interpreter if it has the trainer; else None."""
    return sys.executable if is_installed(package) else None
