"""One benchmark: every method on every condition, figures beside baselines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from curate.adherence.reference.scorer import check_scorer
from curate.adherence.reference_config import ON_VECTORS
from curate.benchmark.baselines import BLOCK, baselines
from curate.benchmark.figures import BaselineComparison, MethodFigures, figures, verdicts
from curate.benchmark.labelled_turns import LabelledTurn
from curate.benchmark.method_scores import Comparer, Progress, judge_turns, require_judge
from curate.benchmark.methods import Method, MethodScores
from curate.errors import CurateError, UsageError
from curate.executors.loop import run as run_in_loop
from curate.recipe import Recipe
from curate.storage.run_folder import REPLIES
from curate.trust.agreement import RESAMPLES

SIZES = (15, 50)
"""The paper's smaller conditions; all rows are the last one."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a benchmark.

    Attributes:
        methods: reference and judge methods.
        saved: scores made elsewhere, one a row of the whole file.
        conditions: numbers of first rows, rising; None for the paper's 15 and 50, and all.
        recipe: names the judge, where a method needs one.
        store: folder that keeps embeddings and replies; None keeps embeddings in memory.
        tolerant: a method that cannot run is told and left out, not an error.
        threshold: see `figures`.
        block: see `baselines`.
        resamples: of every bootstrap.
    """

    methods: tuple[Method, ...] = ()
    saved: tuple[MethodScores, ...] = ()
    conditions: tuple[int, ...] | None = None
    recipe: Recipe | None = None
    store: Path | None = None
    tolerant: bool = False
    threshold: float | None = None
    block: int = BLOCK
    resamples: int = RESAMPLES


@dataclass(frozen=True, slots=True)
class BenchmarkCondition:
    """The first n turns: scores by method and by baseline, with their figures.

    `figures` holds the methods first, then the baselines.
    """

    n: int
    methods: tuple[MethodScores, ...]
    baselines: tuple[MethodScores, ...]
    figures: tuple[MethodFigures, ...]
    verdicts: tuple[BaselineComparison, ...] = ()

    @property
    def method_names(self) -> list[str]:
        """Names of the methods, in order."""
        return [scores.name for scores in self.methods]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The result of a benchmark.

    Attributes:
        turns: of the whole file.
        conditions: by rising n; only the last has verdicts.
        not_run: methods that could not run, with the reason.
        warnings: what a reader must hear.
        threshold: as asked for.
    """

    turns: tuple[LabelledTurn, ...]
    conditions: tuple[BenchmarkCondition, ...]
    not_run: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    threshold: float | None = None

    @property
    def full(self) -> BenchmarkCondition:
        """The largest condition."""
        return self.conditions[-1]


def run_benchmark(
    turns: Sequence[LabelledTurn], options: Options, progress: Progress = lambda *_: None
) -> Benchmark:
    """Score the turns by every method and measure them.

    A judge is asked about each turn once: its prompt does not depend on the condition. A reference method is
    fitted on each condition anew.

    Raises:
        UsageError: a condition, a method or its model cannot be had, or the threshold is no number.
        EngineError: a model cannot be reached or opened.
    """
    sizes = _sizes(options.conditions, len(turns))
    _refuse_threshold(options.threshold)
    require_judge(options.recipe, options.methods)
    _refuse_repeats([*options.methods, *options.saved])
    compared = [method for method in options.methods if not method.is_judge]
    for method in compared if not options.tolerant else ():
        check_scorer(method.config)
    scored, not_run = _compare(compared, turns, sizes, options, progress)
    judged, warnings = _judge(options, turns[: sizes[-1]], progress)
    conditions = []
    for n in sizes:
        by_method = {**scored[n], **{scores.name: scores.first(n) for scores in judged}}
        methods = [by_method[method.name] for method in options.methods if method.name in by_method]
        methods += [scores.first(n) for scores in options.saved]
        conditions.append(_condition(turns[:n], methods, options, is_last=n == sizes[-1]))
    return Benchmark(tuple(turns), tuple(conditions), not_run, tuple(warnings), options.threshold)


def _refuse_repeats(named: Sequence[Method | MethodScores]) -> None:
    names = Counter(one.name for one in named)
    repeated = [name for name, times in names.items() if times > 1]
    if repeated:
        raise UsageError(
            "a method is named twice", got=", ".join(repeated), expected="each method once"
        )


def _refuse_threshold(threshold: float | None) -> None:
    if threshold is not None and not math.isfinite(threshold):
        raise UsageError("a threshold is not a finite number", got=threshold, expected="a number")


def _sizes(sizes: Sequence[int] | None, rows: int) -> tuple[int, ...]:
    if sizes is None:
        return (*(n for n in SIZES if n < rows), rows)
    wrong = [n for n in sizes if not 2 <= n <= rows]
    if wrong or not sizes:
        raise UsageError(
            "a condition does not fit the benchmark",
            got=", ".join(map(str, wrong)) or "none",
            expected=f"numbers of first rows, from 2 to {rows}",
        )
    return tuple(sorted(set(sizes)))


def _compare(
    methods: Sequence[Method],
    turns: Sequence[LabelledTurn],
    sizes: Sequence[int],
    options: Options,
    progress: Progress,
) -> tuple[dict[int, dict[str, MethodScores]], dict[str, str]]:
    by_size: dict[int, dict[str, MethodScores]] = {n: {} for n in sizes}
    not_run: dict[str, str] = {}
    if not methods:
        return by_size, not_run
    broken: dict[str, str] = {}
    comparer = Comparer(options.store / "embeddings.sqlite" if options.store else None)
    try:
        for method in methods:
            reads = _encoder(method)
            if reads in broken:
                not_run[method.name] = broken[reads]
                continue
            try:
                check_scorer(method.config)
                for done, n in enumerate(sizes, start=1):
                    by_size[n][method.name] = comparer.score(method, turns[:n])
                    progress(method.name, done, len(sizes))
            except CurateError as error:
                if not options.tolerant:
                    raise
                not_run[method.name] = str(error)
                if reads:
                    # A model that failed to open is not tried again for each method: the Hub's client retries for long.
                    broken[reads] = str(error)
    finally:
        comparer.close()
    return by_size, not_run


def _encoder(method: Method) -> str:
    """Return the sentence encoder that a method reads with; empty for the others."""
    reads = method.config.scoring_method in ON_VECTORS
    return method.config.reference.encoder if reads else ""


def _judge(
    options: Options, turns: Sequence[LabelledTurn], progress: Progress
) -> tuple[list[MethodScores], list[str]]:
    methods = [method for method in options.methods if method.is_judge]
    if not methods or options.recipe is None:
        return [], []
    if options.store is None:
        raise UsageError(
            f"{methods[0].name} needs an output folder",
            expected="--out DIR, where replies are kept, so that no call is repeated",
        )
    replies = options.store / REPLIES
    return run_in_loop(judge_turns(methods, turns, options.recipe, replies, progress))


def _condition(
    turns: Sequence[LabelledTurn],
    methods: Sequence[MethodScores],
    options: Options,
    *,
    is_last: bool,
) -> BenchmarkCondition:
    plain = [
        MethodScores(name, tuple(scores), "baseline", needs_references=name == "overlap")
        for name, scores in baselines(turns, options.block).items()
    ]
    against = (
        verdicts(
            {scores.name: scores.scores for scores in methods},
            {scores.name: scores.scores for scores in plain},
            turns,
            resamples=options.resamples,
        )
        if is_last
        else []
    )
    return BenchmarkCondition(
        n=len(turns),
        methods=tuple(methods),
        baselines=tuple(plain),
        figures=tuple(
            figures(
                scores.name,
                scores.scores,
                turns,
                threshold=None if scores.origin == "baseline" else options.threshold,
                resamples=options.resamples,
            )
            for scores in (*methods, *plain)
        ),
        verdicts=tuple(against),
    )
