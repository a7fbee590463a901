"""Drop pairs of the validation side that are also among the training pairs.

A split keeps dialogues apart; what a policy wrote and where a pair was cut is known only later. So the accepted
pairs are compared once more as they are to be exported: their prompts, and each prompt with either of its sides.
A held-out pair that equals or nearly equals one of the others in any of these is dropped as `split_leak`.

This module is imported where it is needed, since numpy and rensa are slow to import.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import numpy as np

from curate.dialogue import Dialogue
from curate.records import DropReason, PreferencePair
from curate.run.outputs import (
    DROPPED_PAIRS,
    NATURAL_PAIRS,
    PAIRS,
    PairCounts,
    read_pairs,
    write_pairs,
)
from curate.selection.config import NearConfig
from curate.selection.dedup import Sketches, TextBatch, batches, view_text
from curate.selection.minhash import Groups
from curate.selection.shingles import tokenise, worth
from curate.selection.splits import MIN_WORDS

_TEXTS = 3  # of a pair: its prompt, and both whole sides


def find_leaks(
    read_accepted: Callable[[], Iterable[PreferencePair]],
    is_held_out: Callable[[PreferencePair], bool],
    near: NearConfig,
    folder: Path | None = None,
) -> dict[str, str]:
    """Find the held-out pairs that are near one that is not, directly or through a chain of near pairs.

    Args:
        read_accepted: returns the accepted pairs in the same order each time; called three times.
        is_held_out: tells the validation side.
        near: shingles, and the Jaccard similarity from which on two texts are the same.
        folder: for the temporary file of shingles.

    Returns:
        By `pair_id`, the id of a pair of the training side.
    """
    sketches = Sketches(near, ("dialogue",), near.threshold)
    ids: list[str] = []
    held_out: list[bool] = []
    for pair in read_accepted():
        ids.append(pair.pair_id)
        held_out.append(is_held_out(pair))
    for batch in batches(_texts(read_accepted())):
        sketches.add(TextBatch(batch))
    groups = Groups(_TEXTS * len(ids))
    with ExitStack() as stack:
        among = np.arange(_TEXTS * len(ids), dtype=np.int64)
        opened = sketches.open(among, lambda: _texts(read_accepted()), folder, stack)
        for texts in opened.values():
            texts.join(groups, near.threshold)
    trained: dict[int, str] = {}
    roots = list(groups.roots())
    for row, root in enumerate(roots):
        if not held_out[row // _TEXTS]:
            trained.setdefault(root, ids[row // _TEXTS])
    return {
        ids[row // _TEXTS]: trained[root]
        for row, root in enumerate(roots)
        if held_out[row // _TEXTS] and root in trained
    }


def drop_leaks(run: Path, held_out: Collection[str], near: NearConfig) -> PairCounts | None:
    """Drop the leaks among the pairs that a run has written; return the new counts of `write_pairs`, None without leaks.

    Args:
        run: the run folder.
        held_out: ids of the dialogues of the validation side.
        near: as in `find_leaks`.
    """

    def accepted() -> Iterator[PreferencePair]:
        return chain(read_pairs(run, PAIRS), read_pairs(run, NATURAL_PAIRS))

    folder = run / "pairs"
    leaks = find_leaks(accepted, lambda pair: pair.dialogue_id in held_out, near, folder)
    if not leaks:
        return None

    def settled(name: str, *, natural: bool) -> Iterator[PreferencePair]:
        for pair in read_pairs(run, name):
            if pair.pair_id in leaks:
                detail = f"training pair {leaks[pair.pair_id]} is the same, or nearly"
                detail = "; ".join(filter(None, (pair.detail, detail)))
                pair = pair.model_copy(
                    update={"drop_reason": DropReason.SPLIT_LEAK, "detail": detail}
                )
            yield pair
        for pair in read_pairs(run, DROPPED_PAIRS):
            if (pair.source == "natural") == natural:
                yield pair

    return write_pairs(run, settled(PAIRS, natural=False), settled(NATURAL_PAIRS, natural=True))


def _texts(pairs: Iterable[PreferencePair]) -> Iterator[Dialogue]:
    """Yield three dialogues a pair. A prompt too short to tell anything has no messages, and is near to nothing."""
    for pair in pairs:
        prompt = Dialogue(id="-", messages=pair.prompt)
        is_long_enough = worth(tokenise(view_text(prompt, "dialogue"))) >= MIN_WORDS
        yield prompt if is_long_enough else Dialogue(id="-", messages=())
        for side in (pair.chosen, pair.rejected):
            yield Dialogue(id="-", messages=pair.prompt if side is None else (*pair.prompt, side))
