"""`Stage`: what a stage is, and how it makes the row of an item."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import compress
from pathlib import Path
from typing import Any, Generic, TypeVar

from curate.dialogue import Dialogue, Message
from curate.engines.base import Ask, Completion, EngineIdentity, Request
from curate.engines.model_pool import Asks
from curate.engines.stand_in import Expected, LookUp, StandIn, nothing_kept, settled
from curate.errors import CurateError
from curate.pairs.prefix import pair_id
from curate.records import (
    AdherenceScore,
    FactualityScore,
    JudgeIdentity,
    Judgment,
    MetricsScore,
    PairCheck,
    PreferencePair,
    ScoringMode,
    StageName,
    Unscored,
    UnscoredReason,
)
from curate.records.reasons import DropReason
from curate.storage.stage_rows import fingerprint
from curate.storage.whole_files import disk_error

R = TypeVar("R")
Judged = Judgment | Unscored
Scored = AdherenceScore | Unscored
Measured = MetricsScore | Unscored
Checked = FactualityScore | Unscored
Forks = list[PreferencePair]
StageRow = Judged | Scored | Measured | Checked | PreferencePair | Forks
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The input of one row; it can be pickled.

    Attributes:
        judgment: judgment of the dialogue; needed by `fork` only.
        faults: problems that poor metrics found, by turn; used by `fork` only.
        pair: pair to verify, with the dialogue as its prompt; needed by `natural` only.
        again: the judge's cached replies about this dialogue are unusable; ask again.
        turns: turns that `again` applies to, while cached replies about other turns are used; empty: all.
    """

    dialogue: Dialogue
    judgment: Judgment | None = None
    faults: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    again: bool = False
    turns: frozenset[int] = frozenset()
    pair: PreferencePair | None = None

    @property
    def key(self) -> str:
        """Return the key of the row: 32 hex digits."""
        return self.dialogue.content_hash if self.pair is None else self.pair.pair_id


@dataclass(frozen=True, slots=True)
class Calibrated(Generic[R]):
    """A calibration that is applied to a stage's rows once they exist; no model calls.

    Attributes:
        apply: returns the calibrated row for the judge's own one.
        identity: identity in the calibrated rows.
        fingerprint: names the folder of the calibrated rows.
    """

    apply: Callable[[R], R]
    identity: JudgeIdentity
    fingerprint: str


Expects = Callable[[Dialogue, int, LookUp], list[Expected]]


@dataclass(frozen=True, slots=True)
class Stage(Generic[R]):
    """A stage ready to run.

    Attributes:
        fingerprint: names the folder of its rows; changes with everything that would change a row.
        run: makes the row of an item; the asks decide about cached replies and retries.
        expects: as `expected_load`.
        mode: the resolved scoring mode, for the rubric judge and metrics.
        warning: a warning for the user, shown once.
        calibrated: calibration applied to its rows before anything reads them; None without one.
        judges: identities of the judges of a jury or cascade; empty for one judge.
    """

    name: StageName
    fingerprint: str
    identity: JudgeIdentity
    run: Callable[[WorkItem, Asks], Awaitable[R]]
    expects: Expects
    mode: ScoringMode | None = None
    warning: str | None = None
    calibrated: Calibrated[R] | None = None
    judges: tuple[JudgeIdentity, ...] = ()

    def expected_load(
        self, dialogue: Dialogue, *, at: int = 0, look_up: LookUp = nothing_kept
    ) -> list[Expected]:
        """Return the calls that a dialogue's row is expected to take, in order, without making them.

        For `fork` they are those of a fork that gives a pair; for `natural` those of a pair that passes, with a chosen side
        like the dialogue's last answer.

        Args:
            at: number that selects the turn to fork at (modulo the number of turns).
            look_up: returns answers of `judge` and `adherence` that need no call.
        """
        return self.expects(dialogue, at, look_up)

    @property
    def result(self) -> str:
        """Return the fingerprint of the rows that other stages read."""
        return self.fingerprint if self.calibrated is None else self.calibrated.fingerprint


async def make_row(stage: Stage[Any], item: WorkItem, asks: Asks) -> StageRow:
    """Return the row of an item; if a bug prevents it, an unscored one that says so.

    A bug costs one dialogue, not the run, and its row is made again by the next run (`staging.is_settled`).

    Raises:
        CurateError: what ends a run, such as a budget, a model that cannot be reached or a full disk.
    """
    try:
        row: StageRow = await stage.run(item, past_kept_replies(item, asks))
        return row
    except CurateError:
        raise
    except Exception as error:  # broad on purpose
        if isinstance(error, OSError) and error.errno in _FULL:
            raise disk_error(Path(error.filename or "."), error) from error
        return _unmade(stage.name, item, f"{type(error).__name__}: {error}"[:_DETAIL_CHARS])


def past_kept_replies(item: WorkItem, asks: Asks) -> Asks:
    """Return the asks for an item; if it is asked again they bypass the cached replies that it names."""
    if not item.again:
        return asks
    if not item.turns:
        return replace(asks, judge=asks.judge_again, metrics=asks.metrics_again)

    async def ask(requests: Sequence[Request]) -> list[Completion]:
        is_again = [not item.turns.isdisjoint(request.turns) for request in requests]
        answers: dict[bool, Iterator[Completion]] = {}
        for again, judge in ((False, asks.judge), (True, asks.judge_again)):
            if again in is_again:
                selected = compress(requests, (one == again for one in is_again))
                answers[again] = iter(await judge(list(selected)))
        return [next(answers[again]) for again in is_again]

    return replace(asks, judge=ask)


def _unmade(stage: StageName, item: WorkItem, detail: str) -> StageRow:
    check = PairCheck(unscored=UnscoredReason.INTERNAL_ERROR)
    if item.pair is not None:
        detail = f"{item.pair.detail}; {UnscoredReason.INTERNAL_ERROR}: {detail}".removeprefix("; ")
        changed = {"drop_reason": DropReason.UNSCORED, "detail": detail, "check": check}
        return item.pair.model_copy(update=changed)
    dialogue = item.dialogue
    if stage is not StageName.FORK:
        return Unscored.of(dialogue, stage, UnscoredReason.INTERNAL_ERROR, detail)
    rejected = Message(role="assistant")
    salt = f"{dialogue.id}/{dialogue.content_hash}/{UnscoredReason.INTERNAL_ERROR}"
    return [
        PreferencePair(
            pair_id=pair_id((), dialogue.tools, None, rejected, salt=salt),
            dialogue_id=dialogue.id,
            content_hash=dialogue.content_hash,
            source="none",
            basis="judge",
            turn=item.judgment.weakest_turn if item.judgment else None,
            prompt=(),
            tools=dialogue.tools,
            chosen=None,
            rejected=rejected,
            drop_reason=DropReason.UNSCORED,
            detail=f"{UnscoredReason.INTERNAL_ERROR}: {detail}",
            check=check,
            lineage=dialogue.lineage,
        )
    ]


def calls_as_it_runs(
    run: Callable[[WorkItem, Asks], Awaitable[object]], role: str = "judge"
) -> Expects:
    """Return the expected calls of a stage that asks one model the same questions whatever it answers."""

    def expected(dialogue: Dialogue, _: int, look_up: LookUp) -> list[Expected]:
        stand_in = StandIn(role, look_up=look_up)
        settled(run(WorkItem(dialogue), Asks.of(stand_in)))
        return stand_in.calls

    return expected


_SHARED_CODE = ("dialogue.py", "engines", "records", "stages", "statistics.py", "wording.py")
"""Modules and rooms of the package that all stages use."""


def stage_code(*rooms: str) -> str:
    """Return a hash of the code and prompts that make a stage's rows: its rooms', and those that all stages share.

    After a change the rows are made again, from cached replies.
    """
    return fingerprint(*map(code_version, sorted({*rooms, *_SHARED_CODE})))


@cache
def code_version(name: str, package: str = "curate") -> str:
    """Return a hash of the source and prompts of a module (`dialogue.py`) or a room, subfolders included."""
    digest = hashlib.blake2b(digest_size=8)
    place = resources.files(package).joinpath(name)
    for source, content in _sources(place) if place.is_dir() else [(name, place.read_bytes())]:
        digest.update(source.encode() + b"\n" + content)
    return digest.hexdigest()


def _sources(folder: Traversable, inside: str = "") -> Iterator[tuple[str, bytes]]:
    """Name below the folder and content of each Python file and prompt in it, by name."""
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            yield from _sources(entry, f"{inside}{entry.name}/")
        elif entry.name.endswith((".py", ".md")):
            yield inside + entry.name, entry.read_bytes()


def stage_fingerprint(room: str, config: dict[str, Any], identity: JudgeIdentity) -> str:
    """Return the fingerprint of rows that a config, who scores and the code of a room determine."""
    return fingerprint(config, identity.model_dump(mode="json"), stage_code(room))


def identity_of(engine: EngineIdentity, mode: str, prompts: str) -> JudgeIdentity:
    """Return the identity of scores by an engine in a mode, with prompts of a version."""
    return JudgeIdentity(
        engine=engine.engine,
        model=engine.model,
        revision=engine.revision,
        quantisation=engine.quantisation,
        mode=mode,
        prompt_version=prompts,
        sampling={"temperature": 0.0, **dict(engine.detail)},
    )


def asks_about(dialogue: Dialogue, ask: Ask, *, stage: StageName | None = None) -> Ask:
    """Return the ask with its requests marked as being about a dialogue, so that one server gets them all.

    With a stage, the requests are accounted to it, whichever stage wrote them.
    """
    affinity = dialogue.content_hash

    def mark(request: Request) -> Request:
        if stage is None:
            return replace(request, affinity=affinity)
        purpose = f"{stage}.{request.purpose.partition('.')[2]}"
        return replace(request, affinity=affinity, purpose=purpose)

    async def marked(requests: Sequence[Request]) -> list[Completion]:
        return await ask([mark(request) for request in requests])

    return marked


def label_of(identity: EngineIdentity) -> str:
    """Return an engine as `engine:model@revision`."""
    revision = f"@{identity.revision[:12]}" if identity.revision else ""
    return f"{identity.engine}:{identity.model}{revision}"
