"""The models of a run or of a call of the Python API: opened once each, called in one way.

Which model answers, and its kept replies, budget, prices and redaction, are put together here and nowhere
else, so that a run and the Python API cannot differ in them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from curate.engines.accounting import Accounting
from curate.engines.base import Ask, Capability, Engine, EngineIdentity
from curate.engines.cache import ReplyCache
from curate.engines.client import CallBudget, Client, Replies
from curate.engines.config import EngineConfig, OpenAIConfig
from curate.engines.open import open_engine
from curate.engines.personal_data import PersonalData
from curate.engines.redaction import redactor
from curate.errors import EngineError
from curate.records import EngineRecord, StageName


@dataclass(frozen=True)
class EngineFacts:
    """An engine's description; it pickles, so the engine may be in another process."""

    identity: EngineIdentity
    capabilities: frozenset[Capability]
    open_dialogues: int
    warnings: tuple[str, ...] = ()
    served: str = ""
    """The model that a server says its replies come from; empty for a model in this process."""

    @property
    def record(self) -> EngineRecord:
        """Return the engine's entry in the manifest."""
        return EngineRecord(**asdict(self.identity), capabilities=tuple(sorted(self.capabilities)))


Described = Engine | EngineFacts
"""An open engine, or the description of one that is open elsewhere; stages are planned from either."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Descriptions by role, as `ModelPool` has engines."""

    judge: EngineFacts
    policy: EngineFacts
    reviser: EngineFacts
    metrics: EngineFacts
    judges: tuple[EngineFacts, ...]

    @property
    def served(self) -> list[EngineFacts]:
        """Return the models whose replies name their model."""
        return [facts for facts in self._each if facts.served]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the engines' warnings, each once."""
        return tuple(dict.fromkeys(text for facts in self._each for text in facts.warnings))

    def records(self, judges: Iterable[str]) -> dict[str, EngineRecord]:
        """Return the manifest's entries by role; `judges` are the roles of all that score by the rubric."""
        by_role = {
            "judge": self.judge,
            "policy": self.policy,
            "reviser": self.reviser,
            "metrics": self.metrics,
            **dict(zip(judges, self.judges, strict=True)),
        }
        return {role: facts.record for role, facts in by_role.items()}

    @property
    def _each(self) -> tuple[EngineFacts, ...]:
        return *self.judges, self.judge, self.policy, self.reviser, self.metrics

    def open_dialogues(self, stage: StageName) -> int:
        """Return the number of dialogues of a stage that are best kept open: as many as its models like together."""
        if stage is StageName.METRICS:
            return self.metrics.open_dialogues
        if stage in (StageName.JUDGE, StageName.PERSONA):
            return sum(judge.open_dialogues for judge in self.judges)
        return self.judge.open_dialogues


def _facts(engine: Engine) -> EngineFacts:
    return EngineFacts(
        engine.identity,
        engine.capabilities,
        engine.open_dialogues,
        warnings_of(engine),
        getattr(engine, "served", ""),
    )


def warnings_of(engine: Engine) -> tuple[str, ...]:
    """Return an engine's warnings from when it was opened; most have none."""
    return tuple(getattr(engine, "warnings", ()))


@dataclass(frozen=True, slots=True)
class Asks:
    """The models of a pool as stages call them; those ending in `_again` ignore each kept reply once."""

    judge: Ask
    judge_again: Ask
    policy: Ask
    reviser: Ask
    metrics: Ask
    metrics_again: Ask
    judges: tuple[tuple[Ask, Ask], ...] = ()
    """Each judge of several, with and without kept replies; empty where there is one."""

    @classmethod
    def of(cls, ask: Ask) -> Asks:
        """Return asks with one model in every role."""
        return cls(ask, ask, ask, ask, ask, ask)

    def of_judge(self, index: int) -> Asks:
        """Return a copy with one of several judges as the judge, who scores metrics too."""
        if not self.judges:
            return self
        judge, again = self.judges[index]
        return replace(
            self, judge=judge, judge_again=again, metrics=judge, metrics_again=again, judges=()
        )

    def with_judges(self, change: Callable[[Ask], Ask]) -> Asks:
        """Return a copy with every judge's ask changed."""
        return replace(
            self,
            judge=change(self.judge),
            judge_again=change(self.judge_again),
            judges=tuple((change(judge), change(again)) for judge, again in self.judges),
        )


Opener = Callable[[str, EngineConfig], Awaitable[Engine]]
"""Opens the model of a role from its config."""


async def open_role(_: str, config: EngineConfig) -> Engine:
    """Open a model whatever its role."""
    return await open_engine(config)


class ModelPool:
    """Models by role; `async with` opens each distinct one once, and closes what it opened.

    Args:
        judge: its config, or an engine that is open (and stays so).
        policy: the judge where None.
        reviser: the policy where None.
        metrics: the judge where None.
        judges: all that score by the rubric, by role, the judge among them as `judge`; the judge alone where empty.
        redact: kinds of personal data that are replaced in requests to a model elsewhere, as that of an engine that
            is already open may be.

    Raises:
        UsageError, EngineError: on entering, as `open_engine`.
    """

    def __init__(
        self,
        judge: Engine | EngineConfig,
        policy: Engine | EngineConfig | None = None,
        reviser: Engine | EngineConfig | None = None,
        *,
        metrics: Engine | EngineConfig | None = None,
        judges: Mapping[str, Engine | EngineConfig] = MappingProxyType({}),
        redact: Collection[PersonalData] = (),
        opener: Opener = open_role,
    ) -> None:
        self._opener = opener
        policy = judge if policy is None else policy
        self._judges = tuple(judges) or ("judge",)
        self._models = {
            **judges,
            "judge": judge,
            "policy": policy,
            "reviser": policy if reviser is None else reviser,
            "metrics": judge if metrics is None else metrics,
        }
        self._engines = {
            role: model for role, model in self._models.items() if isinstance(model, Engine)
        }
        self._redact = redactor(redact)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ModelPool:
        opened: dict[str, Engine] = {}
        async with AsyncExitStack() as stack:
            for role, config in self._models.items():
                if isinstance(config, Engine):
                    continue
                key = config.model_dump_json(exclude={"prices"})
                if key not in opened:
                    opened[key] = await self._opener(role, config)
                    stack.push_async_callback(opened[key].close)
                self._engines[role] = opened[key]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def judge(self) -> Engine:
        """Return the model that scores and compares."""
        return self._engines["judge"]

    @property
    def judges(self) -> tuple[Engine, ...]:
        """Return the models that score by the rubric: one judge, a jury, or the two of a cascade."""
        return tuple(self._engines[role] for role in self._judges)

    @property
    def policy(self) -> Engine:
        """Return the model that writes resamples."""
        return self._engines["policy"]

    @property
    def reviser(self) -> Engine:
        """Return the model that writes revisions."""
        return self._engines["reviser"]

    @property
    def metrics(self) -> Engine:
        """Return the model that scores by weighted metrics."""
        return self._engines["metrics"]

    @property
    def facts(self) -> ModelFacts:
        """Return descriptions of the engines."""
        return ModelFacts(
            judge=_facts(self.judge),
            policy=_facts(self.policy),
            reviser=_facts(self.reviser),
            metrics=_facts(self.metrics),
            judges=tuple(map(_facts, self.judges)),
        )

    def asks(self, replies: Replies | None, accounting: Accounting, budget: CallBudget) -> Asks:
        """Return the asks of these models: kept replies first, every call counted and taken from the budget."""

        def client(role: str, refresh: Collection[str] = ()) -> Client:
            model, engine = self._models[role], self._engines[role]
            options: dict[str, Any] = {"redact": self._redact}
            if not isinstance(model, Engine):
                options = {
                    "retries": model.retries,
                    "deadline": model.deadline if isinstance(model, OpenAIConfig) else None,
                    "prices": model.prices,
                    "redact": self._redact if model.is_hosted else None,
                }
            return Client(
                engine, replies, accounting=accounting, budget=budget, refresh=refresh, **options
            )

        # For --retry unscored: the kept replies could not be used, so their requests are sent again.
        judges = {
            role: (client(role), client(role, tuple(StageName)))
            for role in dict.fromkeys(("judge", *self._judges))
        }
        judge, judge_again = judges["judge"]
        return Asks(
            judge=judge,
            judge_again=judge_again,
            policy=client("policy"),
            reviser=client("reviser"),
            metrics=client("metrics"),
            metrics_again=client("metrics", tuple(StageName)),
            judges=tuple(judges[role] for role in self._judges) if len(self._judges) > 1 else (),
        )

    @asynccontextmanager
    async def asking(
        self, replies: Path | None, accounting: Accounting, budget: CallBudget
    ) -> AsyncIterator[Asks]:
        """Yield `asks` with a response cache of this process, which is closed at the end.

        Args:
            replies: its file; None keeps nothing.

        Raises:
            CurateError: the cache cannot be used.
            EngineError: its replies come from another model than is served now.
        """
        with ExitStack() as stack:
            cache = None if replies is None else stack.enter_context(ReplyCache(replies))
            if cache is not None:
                for facts in self.facts.served:
                    check_served(facts, cache.first_served(facts.identity.key, facts.served))
            try:
                yield self.asks(cache, accounting, budget)
            finally:
                accounting.damaged += 0 if cache is None else cache.damaged


ModelsByRole = ModelPool | ModelFacts
"""Models by role: open here, or the descriptions of those that are open elsewhere."""


def check_served(facts: EngineFacts, first: str) -> None:
    """Refuse a server that serves another model than the one whose replies are kept.

    Args:
        first: the name that its replies had when the first was kept.

    Raises:
        EngineError: the names differ.
    """
    if facts.served != first:
        raise EngineError(
            f"the cached replies of {facts.identity.model} come from another model than the one served now",
            got=facts.served,
            expected=first,
            fix="serve that one again; or set `revision` on the model, which then counts as a new one: "
            "every request is sent again",
        )


_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([MB])(?![a-z0-9])", re.IGNORECASE)


def trust_warning(identity: EngineIdentity) -> str | None:
    """Return a warning about a judge whose name says that it is small; None for other names.

    Below 1 billion parameters verdicts are noise. Up to 8 billion a judge can rank dialogues, and agrees
    with people too little to trust its thresholds unmeasured.
    """
    sizes = [
        float(number) / (1000 if unit in "mM" else 1)
        for number, unit in _SIZE.findall(identity.model.rsplit("/", 1)[-1])
    ]
    if not sizes or max(sizes) > 8:
        return None
    if max(sizes) < 1:
        return (
            f"The judge, {identity.model}, is too small to be trusted: it shows that everything runs; its "
            "verdicts are noise and say nothing about quality. Name a real judge before you use the result."
        )
    return (
        f"The judge, {identity.model}, is a small model: measure its agreement with people on your data "
        "before you rely on its thresholds."
    )
