"""The checks over all pairs of a run: the pairs it wrote, what its dialogues are, and how prompts compare.

`trust.pair_set` knows neither files nor near-duplicates; this module passes them to it. The result is in
the manifest (`pair_checks`), from where summary, report and dataset card take it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from curate.dialogue import Dialogue
from curate.records import PairSetReport, PreferencePair
from curate.run.ingest import read_index
from curate.run.outputs import pair_readers
from curate.selection.config import DedupConfig
from curate.trust.pair_set import PairFacts, PairSetConfig, ReadPairs, check_pair_set


def check_pairs(run: Path, config: PairSetConfig) -> dict[str, PairSetReport]:
    """Check the accepted pairs of a run folder: those made by the judge, those of the data, and all.

    Args:
        run: the run folder, its pairs written.
        config: thresholds.

    Returns:
        `judge`, `natural` and, where there are pairs of both kinds, `all`; a kind without pairs is left out.
    """
    readers = {kind: read for kind, read in pair_readers(run).items() if next(read(), None)}
    if len(readers) < 3:
        readers.pop("all", None)
    facts = _facts(run, {pair.dialogue_id for read in readers.values() for pair in read()})
    return {
        name: check_pair_set(
            read,
            config,
            about=lambda pair: facts.get(pair.dialogue_id, PairFacts()),
            count_repeats=count_repeated_prompts,
        )
        for name, read in readers.items()
    }


def count_repeated_prompts(read: ReadPairs) -> int:
    """Count the pairs whose prompt equals, or nearly equals, that of an earlier pair.

    Equal and near mean the same as for duplicates of dialogues, by the defaults of `select.dedup`.
    """
    from curate.selection.dedup import Deduplication

    with Deduplication(lambda: _prompts(read()), DedupConfig()) as duplicates:
        return len(duplicates.at().removed)


def _prompts(pairs: Iterable[PreferencePair]) -> Iterator[Dialogue]:
    for pair in pairs:
        yield Dialogue(id=pair.pair_id, messages=pair.prompt, tools=pair.tools)


def _facts(run: Path, ids: set[str]) -> dict[str, PairFacts]:
    """Return role and language of the dialogues with these ids."""
    if not ids:
        return {}
    index = read_index(run, "id", "role", "language")
    rows = index.filter(pl.col("id").is_in(sorted(ids))).iter_rows()
    return {name: PairFacts(role, language) for name, role, language in rows}
