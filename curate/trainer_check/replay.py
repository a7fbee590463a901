"""Replay of files through the trainer's own code, in this or another environment, and comparison with the stated facts.

`runner.py` is run by the interpreter that has the trainer. Where its answer differs from what was stated, the trainer's
own code is right, since it is what trains.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import orjson

from curate.errors import UsageError
from curate.export.trainer_facts import Effect, StageFacts
from curate.trainer_check import runner
from curate.trainer_check.data_files import shown
from curate.trainer_check.examples import ChatMessage, Example
from curate.trainer_check.findings import Problem, Replay
from curate.trainer_check.template_checks import ChatTokenizer, TemplateError, expected_answers

_LOST: Final = ("stops", "dropped")
_SHORTEST_TELLING: Final = 16
"""Number of letters from which a text does not occur in another one by chance."""


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
    order = {"package": package, "tokenizer": tokenizer, "jobs": list(jobs)}
    try:
        process = subprocess.run(
            [python, runner.__file__], input=orjson.dumps(order), capture_output=True, check=False
        )
    except OSError as error:
        raise UsageError(
            "the interpreter cannot be run",
            got=f"{python}: {error.strerror}",
            expected="--python: the path of a Python that has the trainer",
        ) from error
    answers = [orjson.loads(line) for line in process.stdout.splitlines()]
    if process.returncode or len(answers) != len(jobs):
        last = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        fix = f"'{python}' -m pip install {package}" if "NotFoundError" in last else None
        raise UsageError(f"{package} cannot be run by {python}", got=shown(last, 200), fix=fix)
    return answers


def read_replay(answer: Mapping[str, Any], texts: Path) -> Replay:
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


def settle_problems(
    replay: Replay, of_file: list[Problem], of_rows: dict[int, list[Problem]]
) -> tuple[list[Problem], dict[int, list[Problem]]]:
    """Compare the stated problems with what the trainer did: which rows it drops, and at which it stops.

    Returns:
        The problems of the file and of each row, marked as replayed where the trainer did as stated.
    """
    settled = defaultdict(list, {row: list(problems) for row, problems in of_rows.items()})
    for row, error in replay.stopped.items():
        settled[row] = _confirmed(settled[row], _observed("replay_failed", "stops", "stop", error))
    for row in replay.dropped:
        drop = _observed("replay_dropped", "dropped", "drop the row")
        settled[row] = _confirmed(settled[row], drop)
    if replay.error is not None:
        if not replay.stopped:  # no single row causes it; the stated problems explain it
            rows = [row for row, stated in settled.items() if _has_effect(stated, "stops")]
            is_stated = _has_effect(of_file, "stops")
            detail = "" if rows or is_stated else replay.error
            stop = _observed("replay_failed", "stops", "stop", detail)
            for row in rows:
                settled[row] = _confirmed(settled[row], stop)
            if is_stated or not rows:
                of_file = _confirmed(of_file, stop)
        return of_file, settled
    keep, go_on = "keep the row, as it did here", "not stop, as here"
    for row, problems in settled.items():
        if row in replay.lengths:
            settled[row] = [_contradicted(p, keep) if p.effect in _LOST else p for p in problems]
    of_file = [_contradicted(p, go_on) if p.effect == "stops" else p for p in of_file]
    others = replay.rows_in - replay.rows_kept - len(replay.dropped)
    if others > 0:
        does, detail = f"drop {others:,} more rows", "which ones was not found"
        of_file.append(_observed("replay_dropped", "dropped", does, detail))
    return of_file, settled


def _observed(code: str, effect: Effect, does: str, detail: str = "") -> Problem:
    return Problem(code, effect, f"{does}, as it did here", detail, replayed=True)


def _has_effect(problems: Sequence[Problem], effect: Effect) -> bool:
    return any(problem.effect == effect for problem in problems)


def _confirmed(problems: Sequence[Problem], observed: Problem) -> list[Problem]:
    """Return stated problems, those with the observed effect marked as replayed; with the observed one if there are none."""
    if not _has_effect(problems, observed.effect):
        return [*problems, observed]
    return [
        problem._replace(replayed=True, detail=problem.detail or observed.detail)
        if problem.effect == observed.effect
        else problem
        for problem in problems
    ]


def _contradicted(problem: Problem, does: str) -> Problem:
    return Problem("replay_differs", "noted", does, f"{problem.code} was stated", replayed=True)


def compare_texts(
    example: Example, prepared: Mapping[str, Any], tokenizer: ChatTokenizer, facts: StageFacts
) -> list[Problem]:
    """Return problems where the model would see or be trained on other text than the row holds.

    Args:
        example: content of a row without a problem worse than `noted`.
        prepared: the row as the trainer prepared it, in the form of `runner.PreparedRow`.
        tokenizer: tokenizer with the template that the trainer renders with, unless it has its own.
        facts: facts of the stage.
    """
    if example.is_text or prepared["trained"] is None:
        return []
    assert isinstance(example.prompt, list)

    def letters(text: str) -> str:
        """Return a text without white space and end tokens, which trainers strip and add."""
        return "".join((text.replace(tokenizer.eos, "") if tokenizer.eos else text).split())

    trained = [(text, letters(text)) for text in prepared["trained"]]
    problems = []
    for answers, (text, compared) in zip(_answers(example, len(trained)), trained, strict=True):
        if any(letters(answer) not in compared for answer in answers):
            does = "train on something else than the answer"
            problems.append(_observed("answer_changed", "corrupted", does, shown(text)))
    if not problems and example.sides and facts.renders == "template":
        # More or less may be trained on than the template writes after the prompt.
        for answer, (text, compared) in zip(
            _rendered_answers(example, tokenizer), trained, strict=False
        ):
            if letters(answer) != compared:
                does = "train on more or less than the answer"
                problems = [_observed("answer_changed", "corrupted", does, shown(text))]
                break
    questions = [
        message["content"]
        for message in example.prompt
        if message["role"] == "user" and isinstance(message["content"], str)
    ]
    all_answers = letters(" ".join(chain.from_iterable(_answers(example, 1))))
    for question in [] if facts.trains_on_all else questions:
        compared = letters(question)
        is_telling = len(compared) >= _SHORTEST_TELLING and compared not in all_answers
        if is_telling and any(compared in text for _, text in trained):
            does = "train on the user's words"
            problems.append(_observed("others_trained", "mis_masked", does, shown(question)))
    if questions and letters(questions[-1]) not in letters(prepared["seen"]):
        does = "cut off the end of the question"
        problems.append(_observed("question_cut", "truncated", does, shown(questions[-1])))
    return problems


def _answers(example: Example, sides: int) -> list[list[str]]:
    """Return the texts to train on, by side, without calls and thinking, which templates write in many ways."""
    parts: list[Sequence[ChatMessage]] = [
        side if isinstance(side, list) else [{"role": "assistant", "content": side}]
        for side in example.sides.values()
    ] or [example.answers]
    texts = [
        [
            message["content"]
            for message in part
            if message["role"] == "assistant"
            and isinstance(message["content"], str)
            and "<think>" not in message["content"]
            and all(message.get(mask, True) for mask in ("train", "loss", "weight"))
        ]
        for part in parts
    ]
    return texts if len(texts) == sides else [list(chain.from_iterable(texts))] * sides


def _rendered_answers(example: Example, tokenizer: ChatTokenizer) -> list[str]:
    """Return what the template writes after the prompt, for each side; `[]` if it refuses the messages."""
    try:
        return expected_answers(example, tokenizer)
    except TemplateError:
        return []


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
    """Return this interpreter if it has the trainer's package; else None."""
    return sys.executable if importlib.util.find_spec(package.removeprefix("ms-")) else None
