"""Checks of a set of pairs for faults that no pair shows alone: shortcuts, repeats, lopsided mixes.

Each check is a figure compared with a threshold of the recipe, and passes or warns. A warning drops no row:
it says what a model may learn from the set instead of what was meant. A figure that cannot be had (too few
pairs, an extra that is not installed, a language nobody named) is `not_run` with the reason, and no pass.

Pairs stream through. Held are two numbers a pair, counters, and the words of at most `sample` pairs as numbers.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import orjson
from pydantic import Field

from curate.dialogue import Message
from curate.records import TURN_DIMENSIONS, PairSetReport, PreferencePair, SetCheck
from curate.records.config import Config
from curate.trust.agreement import auc
from curate.trust.telling_words import WordCounts
from curate.wording import plural

ReadPairs = Callable[[], Iterable[PreferencePair]]
"""Gives the same accepted pairs whenever it is called."""

UNKNOWN = "unknown"
_OTHERS = "(others)"
_LISTED = 20


class PairSetConfig(Config):
    """Thresholds of the checks over all pairs of a run; null turns a check off."""

    min_pairs: int = Field(50, ge=2, description="Fewest pairs that the checks are run on.")
    longer_wins: float | None = Field(
        0.6,
        ge=0.5,
        le=1,
        description="Largest share of pairs whose chosen side is the longer one; the same for the shorter "
        "one.",
    )
    length_auc: float | None = Field(
        0.6,
        ge=0.5,
        le=1,
        description="Largest AUC with which length alone may tell chosen from rejected sides, in either "
        "direction; 0.5 is chance.",
    )
    word_auc: float | None = Field(
        0.65,
        ge=0.5,
        le=1,
        description="Largest AUC with which a bag-of-words classifier, cross-validated by prompt, may tell"
        " them apart; 0.5 is chance.",
    )
    repeated_prompts: float | None = Field(
        0.2,
        ge=0,
        le=1,
        description="Largest share of pairs whose prompt is the same as another pair's, or nearly. Needs "
        "the extra `dedup`.",
    )
    dimension_share: float | None = Field(
        0.8,
        gt=0,
        le=1,
        description="Largest share of judged pairs whose biggest gain is in the same dimension.",
    )
    source_share: float | None = Field(
        0.9,
        gt=0,
        le=1,
        description="Largest share of pairs from one data source, where there are several.",
    )
    role_share: float | None = Field(
        0.9,
        gt=0,
        le=1,
        description="Largest share of pairs with one role, where there are several.",
    )
    language_share: float | None = Field(
        0.9,
        gt=0,
        le=1,
        description="Largest share of pairs in one language, where there are several.",
    )
    sample: int = Field(
        20_000,
        ge=100,
        description="Most pairs whose words are counted; a larger set is sampled evenly.",
    )


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Facts about the dialogue a pair comes from; None where the data does not say."""

    role: str | None = None
    language: str | None = None


@dataclass(slots=True)
class _Seen:
    """Counts over the pairs read so far."""

    words: WordCounts
    pairs: int = 0
    chosen: array[int] = field(default_factory=lambda: array("l"))
    rejected: array[int] = field(default_factory=lambda: array("l"))
    mixes: dict[str, Counter[str]] = field(
        default_factory=lambda: {
            name: Counter()
            for name in ("made_by", "basis", "dimension", "source", "role", "language")
        }
    )


def check_pair_set(
    read: ReadPairs,
    config: PairSetConfig,
    *,
    about: Callable[[PreferencePair], PairFacts] = lambda _: PairFacts(),
    count_repeats: Callable[[ReadPairs], int] | None = None,
) -> PairSetReport:
    """Look at a whole set of accepted pairs.

    Args:
        read: the pairs; called once, and by `count_repeats`.
        config: thresholds.
        about: role and language of a pair's dialogue.
        count_repeats: how many of the pairs have a prompt that equals or nearly equals that of another one
            that is not counted.

    Returns:
        The checks that were asked for, in fixed order, and the mixes, the most frequent value first.
    """
    counts = _look(read(), config, about)
    checks = [
        check
        for check in (
            _longer_wins(counts, config),
            _length_auc(counts, config),
            _word_auc(counts, config),
            _repeated_prompts(counts, config, read, count_repeats),
            _mix("dimension_mix", counts, "dimension", config.dimension_share, config),
            _mix("source_mix", counts, "source", config.source_share, config),
            _mix("role_balance", counts, "role", config.role_share, config),
            _mix("language_balance", counts, "language", config.language_share, config),
        )
        if check is not None
    ]
    mixes = {name: _listed(values) for name, values in counts.mixes.items()}
    return PairSetReport(pairs=counts.pairs, checks=tuple(checks), mixes=mixes)


def check_rows(reports: Mapping[str, PairSetReport]) -> list[tuple[str, str, str, str, str]]:
    """Return a table of checks for a reader: set, check, figure, threshold, and the status with what there is to say.

    Checks of a set that were not run for one reason share a row, the last of the set.

    Args:
        reports: by set, as the manifest's `pair_checks`.
    """
    rows = []
    for name, report in reports.items():
        idle: dict[str, list[str]] = {}
        for check in report.checks:
            if check.status == "not_run":
                idle.setdefault(check.detail, []).append(check.name)
                continue
            figure = "" if check.figure is None else f"{check.figure:.2f}"
            limit = "" if check.threshold is None else f"{check.threshold:.2f}"
            text = check.detail if check.status != "pass" else ""
            rows.append(
                (name, check.name, figure, limit, ": ".join(filter(None, (check.status, text))))
            )
        for detail, names in idle.items():
            named = names[0] if len(names) == 1 else plural(len(names), "check")
            rows.append((name, named, "", "", f"not run: {detail}"))
    return rows


def _look(
    pairs: Iterable[PreferencePair],
    config: PairSetConfig,
    about: Callable[[PreferencePair], PairFacts],
) -> _Seen:
    counts = _Seen(WordCounts(config.sample))
    for pair in pairs:
        if pair.chosen is None:
            continue
        counts.pairs += 1
        counts.chosen.append(side_length(pair.chosen))
        counts.rejected.append(side_length(pair.rejected))
        if config.word_auc is not None:
            counts.words.add(_conversation(pair), pair.chosen, pair.rejected)
        facts = about(pair)
        values = {
            "made_by": pair.source,
            "basis": pair.basis,
            "dimension": _dimension(pair),
            "source": pair.lineage.source if pair.lineage else None,
            "role": facts.role,
            "language": facts.language,
        }
        for name, value in values.items():
            counts.mixes[name][value or UNKNOWN] += 1
    return counts


def side_length(side: Message) -> int:
    """Return the characters of a side, tool calls included."""
    calls = sum(
        len(call.name)
        + len(call.arguments if isinstance(call.arguments, str) else orjson.dumps(call.arguments))
        for call in side.tool_calls
    )
    return len(side.content.strip()) + calls


def _dimension(pair: PreferencePair) -> str | None:
    """Return the dimension that gains the most, the first of equals; None where no judge scored the sides."""
    check = pair.check
    if check is None or not check.chosen_scores or not check.rejected_scores:
        return None
    gains = {
        name: check.chosen_scores[name] - check.rejected_scores[name]
        for name in TURN_DIMENSIONS
        if name in check.chosen_scores and name in check.rejected_scores
    }
    return max(gains, key=lambda name: gains[name]) if gains else None


def _longer_wins(counts: _Seen, config: PairSetConfig) -> SetCheck | None:
    longer = sum(one > other for one, other in zip(counts.chosen, counts.rejected, strict=True))
    shorter = sum(one < other for one, other in zip(counts.chosen, counts.rejected, strict=True))
    unequal = longer + shorter
    share = longer / unequal if unequal else None
    detail = (
        f"the longer side is chosen in {longer} of {plural(unequal, 'pair')}, lengths differing"
    )
    return _two_sided("longer_wins", share, config.longer_wins, unequal, detail, config)


def _length_auc(counts: _Seen, config: PairSetConfig) -> SetCheck | None:
    lengths = [*counts.chosen, *counts.rejected]
    is_chosen = [True] * counts.pairs + [False] * counts.pairs
    area = auc(lengths, is_chosen) if config.length_auc is not None else None
    longer = area is not None and area > 0.5
    detail = f"chosen sides are {'longer' if longer else 'shorter'} as a rule"
    return _two_sided("length_auc", area, config.length_auc, counts.pairs, detail, config)


def _word_auc(counts: _Seen, config: PairSetConfig) -> SetCheck | None:
    if config.word_auc is None:
        return None
    if counts.pairs < config.min_pairs:
        return _too_few("word_auc", config.word_auc, counts.pairs, config)
    shortcut = counts.words.shortcut()
    if shortcut is None:
        detail = "all pairs come from one conversation, so that nothing can be held out"
        return _not_run("word_auc", config.word_auc, counts.pairs, detail)
    detail = "; ".join(map(str, shortcut.words)) or "many words tell a little, none much"
    return _checked("word_auc", shortcut.auc, config.word_auc, shortcut.pairs, detail)


def _conversation(pair: PreferencePair) -> str:
    """Return the key that pairs of one prompt, or of one conversation that goes on, have in common."""
    opening = next((m.content for m in pair.prompt if m.role == "user"), "")
    return " ".join(opening.casefold().split())


def _repeated_prompts(
    counts: _Seen,
    config: PairSetConfig,
    read: ReadPairs,
    count_repeats: Callable[[ReadPairs], int] | None,
) -> SetCheck | None:
    name, threshold = "repeated_prompts", config.repeated_prompts
    if threshold is None:
        return None
    if counts.pairs < config.min_pairs:
        return _too_few(name, threshold, counts.pairs, config)
    if count_repeats is None:
        return _not_run(name, threshold, counts.pairs, "nothing was given to compare prompts with")
    repeats = count_repeats(read)
    detail = f"{repeats} of {plural(counts.pairs, 'pair')}"
    return _checked(name, repeats / counts.pairs, threshold, counts.pairs, detail)


def _mix(
    name: str, counts: _Seen, mix: str, threshold: float | None, config: PairSetConfig
) -> SetCheck | None:
    """Check the largest share of one value among the pairs of which it is known."""
    if threshold is None:
        return None
    known = Counter({value: n for value, n in counts.mixes[mix].items() if value != UNKNOWN})
    total, unknown = known.total(), counts.mixes[mix][UNKNOWN]
    note = f"; {mix} unknown for {unknown} of {plural(counts.pairs, 'pair')}" if unknown else ""
    if counts.pairs and not total:
        return _not_run(name, threshold, 0, f"{mix} unknown for all {plural(counts.pairs, 'pair')}")
    if total < config.min_pairs:
        return _too_few(name, threshold, total, config, note)
    value, count = min(known.items(), key=lambda item: (-item[1], item[0]))
    if len(known) == 1 and mix != "dimension":
        return _not_run(name, threshold, total, f"only one {mix}: {value}{note}")
    return _checked(name, count / total, threshold, total, f"most are {value}{note}")


def _two_sided(
    name: str,
    figure: float | None,
    threshold: float | None,
    n: int,
    detail: str,
    config: PairSetConfig,
) -> SetCheck | None:
    """Check a figure that may not be further from 0.5 than the threshold, in either direction."""
    if threshold is None:
        return None
    if figure is None or n < config.min_pairs:
        return _too_few(name, threshold, n, config)
    return _checked(name, figure, threshold, n, detail, largest=max(figure, 1 - figure))


def _checked(
    name: str,
    figure: float,
    threshold: float,
    n: int,
    detail: str,
    *,
    largest: float | None = None,
) -> SetCheck:
    """Return the check of a figure against its threshold; `largest` is compared in its place where given."""
    over = (figure if largest is None else largest) > threshold
    return SetCheck(
        name=name,
        figure=figure,
        threshold=threshold,
        status="warn" if over else "pass",
        n=n,
        detail=detail,
    )


def _too_few(
    name: str, threshold: float, n: int, config: PairSetConfig, note: str = ""
) -> SetCheck:
    return _not_run(
        name, threshold, n, f"{plural(n, 'pair')}, at least {config.min_pairs} are needed{note}"
    )


def _not_run(name: str, threshold: float, n: int, why: str) -> SetCheck:
    return SetCheck(name=name, threshold=threshold, status="not_run", n=n, detail=why)


def _listed(values: Counter[str]) -> dict[str, int]:
    """Return the values by frequency, those beyond the first twenty in one sum."""
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ordered[_LISTED:])
    return dict(ordered[:_LISTED]) | ({_OTHERS: rest} if rest else {})
