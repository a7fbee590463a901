"""Which cases a judge is probed with: drawn from the sample's dialogues, or from any that are good as they are."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.planning.metering import Load
from curate.recipe import Recipe, parse_source
from curate.records import Rates
from curate.run.sample_dialogues import sample_dialogues
from curate.sources import open_source
from curate.sources.shipped_files import sample_rewordings
from curate.trust.probe_cases import (
    ProbeCase,
    plant_cases,
    shortened,
)
from curate.trust.probe_variants import (
    Variant,
    clean_variants,
    hidden_instructions,
    swapped_sides,
)
from curate.wording import plural

CASES = 312
"""Planted flaws of a whole card: 24 of each kind, where the dialogues have room for as many."""
LEAST_CASES = 13
_SHARE_OF_LINE = 10
"""Of each further line there is one case for so many planted flaws."""
_LEAST_OF_LINE = 8
_POOL = 4
"""Dialogues read for each case, at most."""


_PLANTED_BY_EDIT = ("wrong_tool", "wrong_argument", "forgotten_constraint")
"""Kinds that a model's words do not make: what is wrong in them is a call, or a rule that only an edit is sure to break."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What a judge is to be asked.

    Attributes:
        cases: planted flaws with their twins.
        variants: dialogues in two versions.
        sides: cases whose two sides are shown together.
        again: dialogues that are judged twice, and whose last turn is asked about in other words.
        source: which dialogues these are made from.
        wanted: flaws asked for; there are fewer where the dialogues have no room for more.
        load: of all of it, tokens counted at 4 characters each.
        rates: of the judge; None where they are not known.
        seconds: that it takes at them.
        cost: at the recipe's prices and without a prefix cache; None where the judge has none.
        by_policy: so many of the cases are to be planted by the recipe's policy.
        planted_by: cases by who planted them.
        not_planted: asked of a policy and not used, by reason; those cases keep their edit.
    """

    cases: tuple[ProbeCase, ...]
    variants: tuple[Variant, ...]
    sides: tuple[ProbeCase, ...]
    again: tuple[Dialogue, ...]
    source: str
    seed: int
    wanted: int
    load: Load = field(default_factory=Load)
    rates: Rates | None = None
    seconds: float | None = None
    cost: float | None = None
    by_policy: int = 0
    planted_by: dict[str, int] = field(default_factory=dict)
    not_planted: dict[str, int] = field(default_factory=dict)

    @property
    def judged(self) -> list[Dialogue]:
        """Every dialogue to be judged, once; those that share a start stand together."""
        held: dict[str, dict[str, Dialogue]] = {}

        def add(group: str, *dialogues: Dialogue | None) -> None:
            for dialogue in filter(None, dialogues):
                held.setdefault(group, {})[dialogue.content_hash] = dialogue

        for dialogue in self.again:
            add(dialogue.content_hash, dialogue)
        for case in self.cases:
            add(case.group, case.untouched, case.planted, case.harmless)
        for variant in self.variants:
            add(variant.group, variant.first, variant.second)
        return list({key: one for of in held.values() for key, one in of.items()}.values())


def draw_cases(
    recipe: Recipe,
    data: str | None = None,
    limit: int = CASES,
    seed: int = 42,
    by_policy: int = 0,
) -> ProbePlan:
    """Plant flaws and draw what else is asked; no model calls, and nothing is counted yet.

    Args:
        recipe: names the judge; its role and scenario are those of dialogues that carry none.
        data: a path or Hub id of dialogues that are good as they are; the sample's where None.
        limit: most planted flaws. Of each other line there are a tenth as many, at least 8.
        seed: of the draws.
        by_policy: so many of the flaws are planted by the recipe's policy, as far as it can: of kinds that are said
            in words.

    Raises:
        UsageError: no judge is named, or no policy that is to plant; the data has no room for flaws.
    """
    if recipe.models.lead is None:
        raise UsageError("no judge is named", expected="models.judge")
    if by_policy and recipe.models.policy is None:
        raise UsageError("no policy is named to plant flaws", expected="models.policy")
    rewordings, translated = sample_rewordings()
    clean = _clean_dialogues(recipe, data, limit, seed)
    cases = plant_cases(clean, limit, rewordings=rewordings, seed=seed) if clean else []
    if len(cases) < min(limit, LEAST_CASES):
        raise UsageError(
            "the dialogues have too little room for planted flaws",
            got=f"{plural(len(cases), 'flaw')} in {plural(len(clean), 'dialogue')}",
            expected=f"at least {LEAST_CASES}",
            fix="name more dialogues, or leave --data out: the sample has room for 300",
        )
    each = max(_LEAST_OF_LINE, limit // _SHARE_OF_LINE)
    drawn = random.Random(seed).sample(clean, len(clean))
    return ProbePlan(
        cases=tuple(cases),
        variants=(
            *clean_variants(drawn, each, translated, seed),
            *hidden_instructions(cases, each, seed),
        ),
        sides=tuple(swapped_sides(cases, each, seed)),
        again=tuple(drawn[:each]),
        source="curate's sample dialogues" if data is None else data,
        seed=seed,
        wanted=limit,
        by_policy=min(by_policy, sum(map(is_in_words, cases))),
        planted_by={"edits": len(cases)},
    )


def _clean_dialogues(recipe: Recipe, data: str | None, limit: int, seed: int) -> list[Dialogue]:
    if data is None:
        return [shortened(dialogue) for dialogue in sample_dialogues(recipe)]
    read = open_source(parse_source({"path": data})).read(
        recipe.role, recipe.scenario, recipe.role_from
    )
    dialogues: dict[str, Dialogue] = {}
    for dialogue in (held for unit in read for held in unit.dialogues):
        if any(turn.in_rubric for turn in dialogue.turns):
            short = shortened(dialogue)
            dialogues.setdefault(short.content_hash, short)
        if len(dialogues) >= _POOL * limit:
            break
    # As many dialogues as cases are enough, and of one order whatever the file's.
    names = sorted(dialogues)
    return [dialogues[key] for key in random.Random(seed).sample(names, len(names))[:limit]]


def is_in_words(case: ProbeCase) -> bool:
    """Whether a model could write the flaw: it is in a message's words, and any words can have it."""
    message = case.untouched.messages[case.index]
    return case.kind not in _PLANTED_BY_EDIT and bool(message.content.strip())
