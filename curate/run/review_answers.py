"""People's decisions about a run: read and merged, put in place of the rules' decisions, and exported.

The answers are in `RUN/review/answers.jsonl`. Selection and export read them there, so that a run that is resumed or
repeated keeps them. Of two answers of one person to the same question the later counts. Where several people decide about
a dialogue, the majority wins; where as many accept as reject, the rules' decision stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import ValidationError

from curate.errors import UsageError, first_misfit
from curate.records import PreferencePair, ReviewAnswer, ReviewReport
from curate.run.outputs import NATURAL_PAIRS, PAIRS, stored_pairs
from curate.storage.line_files import read_records
from curate.storage.whole_files import atomic_file, make_folder

REVIEWED: Final = "reviewed"
"""Reason of a dialogue that people rejected."""
_SIDES = ("chosen", "rejected", "tie")


@dataclass(slots=True)
class Reviews:
    """The decisions that follow from people's answers.

    Attributes:
        dialogues: by content hash, whether people accept the dialogue, who voted, and when last.
        disagreed: content hashes of the dialogues that as many accept as reject.
        turned: ids of the pairs whose rejected side more people call better than its chosen one.
        texts: by pair id the chosen text as the last reviewer wrote it.
        raters: everybody who answered.
    """

    dialogues: dict[str, tuple[bool, tuple[str, ...], str]] = field(default_factory=dict)
    disagreed: set[str] = field(default_factory=set)
    turned: set[str] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    raters: set[str] = field(default_factory=set)

    def pairs(self, pairs: Iterable[PreferencePair]) -> Iterator[PreferencePair]:
        """Yield the pairs with the chosen texts that reviewers wrote."""
        for pair in pairs:
            text = self.texts.get(pair.pair_id)
            if text is not None and pair.chosen is not None:
                chosen = pair.chosen.model_copy(update={"content": text})
                yield pair.model_copy(update={"chosen": chosen})
            else:
                yield pair


def answers_path(run: Path) -> Path:
    """Return the path of the file in which a run folder keeps people's answers."""
    return run / "review" / "answers.jsonl"


def read_answers(path: Path) -> list[ReviewAnswer]:
    """Return the answers of a review file.

    Raises:
        UsageError: no such file, or a line that is no answer; nothing of such a file is taken.
    """
    if not path.is_file():
        raise UsageError("no such review file", got=path, expected="an export of the report's page")
    return parse_answers(path, path.read_bytes().splitlines())


def parse_answers(path: Path, lines: Iterable[bytes]) -> list[ReviewAnswer]:
    """Return the answers in lines of JSON; `path` is for the message.

    Raises:
        UsageError: a line is no answer.
    """
    answers = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            answer = ReviewAnswer.model_validate_json(line)
        except ValidationError as error:
            raise UsageError(
                f"line {number} of {path} is not an answer of a review, or is cut off",
                got=first_misfit(error),
                fix="export the review again; nothing of this file was taken",
            ) from error
        if answer.dimension == "accept" and answer.value not in ("accept", "reject"):
            raise _unknown(path, number, answer, "accept or reject")
        if answer.dimension == "better" and answer.value not in _SIDES:
            raise _unknown(path, number, answer, ", ".join(_SIDES))
        answers.append(answer)
    return answers


def _unknown(path: Path, number: int, answer: ReviewAnswer, expected: str) -> UsageError:
    return UsageError(
        f"line {number} of {path} has no such answer about {answer.dimension}",
        got=answer.value,
        expected=expected,
    )


def kept_answers(run: Path) -> list[ReviewAnswer]:
    """Return the answers that a run folder has; none where nobody reviewed it.

    Raises:
        CurateError: a line is damaged.
    """
    path = answers_path(run)
    return list(read_records(path, ReviewAnswer.model_validate_json)) if path.is_file() else []


def latest_answers(*parts: Iterable[ReviewAnswer]) -> list[ReviewAnswer]:
    """Return all answers; of those to the same question by the same person only the latest."""
    latest: dict[tuple[object, ...], ReviewAnswer] = {}
    for answer in chain.from_iterable(parts):
        earlier = latest.get(answer.question)
        if earlier is None or answer.time >= earlier.time:
            latest[answer.question] = answer
    return list(latest.values())


def write_answers(run: Path, answers: Iterable[ReviewAnswer]) -> None:
    """Replace the answers that a run folder has."""
    make_folder(answers_path(run).parent)
    with atomic_file(answers_path(run)) as file:
        for answer in answers:
            file.write(answer.model_dump_json(exclude_none=True).encode() + b"\n")


def reviews_of(answers: Iterable[ReviewAnswer]) -> Reviews:
    """Return what the answers decide; each person has one vote a question."""
    reviews = Reviews()
    votes: dict[str, list[ReviewAnswer]] = defaultdict(list)
    sides: dict[str, list[str]] = defaultdict(list)
    for answer in sorted(answers, key=lambda answer: answer.time):
        reviews.raters.add(answer.rater)
        if answer.dimension == "accept":
            votes[answer.content].append(answer)
        elif answer.dimension == "better" and answer.pair_id is not None:
            sides[answer.pair_id].append(str(answer.value))
        elif answer.dimension == "chosen_text" and answer.pair_id is not None:
            reviews.texts[answer.pair_id] = str(answer.value)
    for content, answers_on in votes.items():
        accepted = sum(answer.value == "accept" for answer in answers_on)
        if 2 * accepted == len(answers_on):
            reviews.disagreed.add(content)
        else:
            raters = tuple(answer.rater for answer in answers_on)
            accept = 2 * accepted > len(answers_on)
            reviews.dialogues[content] = (accept, raters, answers_on[-1].time)
    for pair_id, better in sides.items():
        if better.count("rejected") > better.count("chosen"):
            reviews.turned.add(pair_id)
    return reviews


def with_reviews(decided: pl.DataFrame, reviews: Reviews) -> pl.DataFrame:
    """Return the decisions of the rules, with people's decisions in their place.

    Args:
        decided: as `selection.rules.decide` gives it, by the rules alone.
        reviews: what people decided.

    Returns:
        The same frame: a dialogue that people accept has no reasons, one that they reject the reason `reviewed`; the
        column `reviewed` has who, when and the rules' reasons.
    """
    if not reviews.dialogues:
        return decided
    reasons: list[list[str]] = []
    reviewed: list[dict[str, Any] | None] = []
    for content, rules in decided.select("content_hash", "reasons").iter_rows():
        review = reviews.dialogues.get(content)
        if review is None:
            reasons.append(rules)
            reviewed.append(None)
            continue
        accept, raters, time = review
        reasons.append([] if accept else [REVIEWED])
        reviewed.append(
            {"accept": accept, "raters": list(raters), "time": time, "rule_reasons": rules}
        )
    return decided.with_columns(
        pl.Series("reasons", reasons, dtype=decided.schema["reasons"]),
        pl.Series("reviewed", reviewed, dtype=decided.schema["reviewed"]),
    )


def by_rules(decided: pl.DataFrame) -> pl.DataFrame:
    """Return decisions with the rules' own reasons where people's decisions are in their place."""
    is_reviewed = pl.col("reviewed").is_not_null()
    rules = pl.col("reviewed").struct.field("rule_reasons")
    return decided.with_columns(
        reasons=pl.when(is_reviewed).then(rules).otherwise(pl.col("reasons")),
        reviewed=pl.lit(None, dtype=decided.schema["reviewed"]),
    )


def review_report(
    decided: pl.DataFrame | None, reviews: Reviews, pair_ids: Iterable[str]
) -> ReviewReport | None:
    """Return what people decided, in figures; None where nobody reviewed.

    Args:
        decided: with the reviews; None where the recipe selects nothing.
        reviews: what people decided.
        pair_ids: of the pairs that passed.
    """
    if not reviews.raters:
        return None
    passed = set(pair_ids)
    reviewed = [] if decided is None else decided["reviewed"].drop_nulls().to_list()
    hashes = set() if decided is None else set(decided["content_hash"])
    return ReviewReport(
        raters=len(reviews.raters),
        accepted=sum(review["accept"] for review in reviewed),
        rejected=sum(not review["accept"] for review in reviewed),
        disagreed=len(reviews.disagreed & hashes),
        changed=sum(review["accept"] == bool(review["rule_reasons"]) for review in reviewed),
        pairs_turned=len(reviews.turned & passed),
        texts=len((reviews.texts.keys() & passed) - reviews.turned),
    )


def passed_pairs(run: Path) -> set[str]:
    """Return the ids of the pairs that passed, forked and natural."""
    return {pair["pair_id"] for pair in stored_pairs(run, PAIRS, NATURAL_PAIRS)}
