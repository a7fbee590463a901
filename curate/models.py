"""The recipe's models: opened once each, and asked behind one reply log, one accounting and one budget."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from curate.engines.accounting import Accounting
from curate.engines.base import Ask, Capability, Engine, EngineIdentity
from curate.engines.client import CallBudget, Client, Replies
from curate.engines.config import EngineConfig, OpenAIConfig, open_engine
from curate.engines.redaction import redactor
from curate.errors import EngineError, UsageError
from curate.recipe import Recipe


class Described(Protocol):
    """What a stage is planned from: an engine, or what is known of one that is open elsewhere."""

    @property
    def identity(self) -> EngineIdentity:
        """All that determines a reply, but the request."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the engine can do."""
        ...


@dataclass(frozen=True)
class EngineFacts:
    """An engine's description; it pickles, so the engine may be in another process."""

    identity: EngineIdentity
    capabilities: frozenset[Capability]
    open_dialogues: int
    warnings: tuple[str, ...] = ()
    served: str = ""
    """The model that a server says its replies come from; empty for a model in this process."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Descriptions by role, as `ForkModels` has engines."""

    judge: EngineFacts
    policy: EngineFacts
    reviser: EngineFacts

    @property
    def served(self) -> list[EngineFacts]:
        """The models whose replies say where they come from."""
        return [facts for facts in (self.judge, self.policy, self.reviser) if facts.served]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know of the engines, each once."""
        roles = (self.judge, self.policy, self.reviser)
        return tuple(dict.fromkeys(text for facts in roles for text in facts.warnings))


@dataclass(frozen=True, slots=True)
class ForkModels:
    """Engines by role; the policy is the judge and the reviser the policy where none is named."""

    judge: Engine
    policy: Engine
    reviser: Engine

    @property
    def facts(self) -> ModelFacts:
        """What the engines are, without them."""
        return ModelFacts(
            *(
                EngineFacts(
                    engine.identity,
                    engine.capabilities,
                    engine.open_dialogues,
                    warnings_of(engine),
                    getattr(engine, "served", ""),
                )
                for engine in (self.judge, self.policy, self.reviser)
            )
        )


def warnings_of(engine: Engine) -> tuple[str, ...]:
    """What an engine found out on opening that a user should know; most have nothing to say."""
    return tuple(getattr(engine, "warnings", ()))


@asynccontextmanager
async def open_models(recipe: Recipe) -> AsyncIterator[ForkModels]:
    """Open the recipe's engines, each distinct one once; they are closed at the end."""
    async with AsyncExitStack() as stack:
        opened: dict[str, Engine] = {}

        async def engine(config: EngineConfig) -> Engine:
            key = config.model_dump_json()
            if key not in opened:
                opened[key] = await open_engine(config)
                stack.push_async_callback(opened[key].close)
            return opened[key]

        models = recipe.models
        if models.judge is None:
            raise UsageError("no judge is named", expected="models.judge")
        judge = await engine(models.judge)
        policy = await engine(models.policy) if models.policy and recipe.fork else judge
        reviser = await engine(models.reviser) if models.reviser and recipe.fork else policy
        yield ForkModels(judge, policy, reviser)


def check_served(facts: EngineFacts, first: str) -> None:
    """Refuse a server that serves another model than the one whose replies are kept.

    Args:
        facts: of the engine as it is now.
        first: the name that its replies had when the first was kept.

    Raises:
        EngineError: the names differ.
    """
    if facts.served != first:
        raise EngineError(
            f"the replies kept for {facts.identity.model} come from another model than is served now",
            got=facts.served,
            expected=first,
            fix="serve that one again; or set `revision` on the model, which then is a new one that "
            "everything is asked of",
        )


_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([MB])(?![a-z0-9])", re.IGNORECASE)


def trust_warning(identity: EngineIdentity) -> str | None:
    """What to say of a judge whose name tells that it is small; None where it is not, or does not tell.

    Below 1 billion parameters verdicts are noise. Up to 8 billion a judge can rank dialogues, and agrees
    with people too little for its thresholds to be taken on trust.
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


class Asks:
    """The models of a run behind one reply log, one accounting and one budget."""

    def __init__(
        self,
        recipe: Recipe,
        models: ForkModels,
        cache: Replies,
        accounting: Accounting,
        budget: CallBudget,
    ) -> None:
        configs, redact = recipe.models, redactor(recipe.redact)
        judge_config = configs.judge
        if judge_config is None:
            raise UsageError("no judge is named", expected="models.judge")

        def asker(engine: Engine, config: EngineConfig, refresh: Collection[str] = ()) -> Client:
            return Client(
                engine,
                cache,
                retries=config.retries,
                deadline=config.deadline if isinstance(config, OpenAIConfig) else None,
                prices=config.prices,
                accounting=accounting,
                budget=budget,
                refresh=refresh,
                redact=redact if config.is_hosted else None,
            )

        policy_config = configs.policy or judge_config
        self.judge: Ask = asker(models.judge, judge_config)
        # For --retry unscored: kept replies are what could not be used, so they are asked for anew.
        asked_again = ("judge", "adherence", "fork", "natural")
        self.judge_again: Ask = asker(models.judge, judge_config, asked_again)
        self.policy: Ask = asker(models.policy, policy_config)
        self.reviser: Ask = asker(models.reviser, configs.reviser or policy_config)
