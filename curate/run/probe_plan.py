"""The cases that a judge is probed with: drawn from the sample's dialogues, or from any that have no flaws of their own."""

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
from curate.trust.probe_card import LEAST_DIALOGUES
from curate.trust.probe_cases import (
    ProbeCase,
    first_turns,
    plant_cases,
)
from curate.trust.probe_variants import (
    Variant,
    clean_variants,
    hidden_instructions,
    swapped_sides,
)
from curate.wording import plural

CASES = 312
"""Planted flaws of a full card: 24 of each kind, where the dialogues have room for as many."""
LEAST_CASES = 13
_SHARE_OF_LINE = 10
"""Planted flaws for each case of a further line."""
_LEAST_OF_LINE = 8
_SHARE_OF_CROSSING = 4
"""Cases of a further line for each case of a fake in another place than a user's message."""
_POOL = 4
"""Most dialogues read for each case."""
_PLANTED_BY_EDIT = ("wrong_tool", "wrong_argument", "forgotten_constraint")
"""Kinds that a policy does not write: the flaw is in a call, or breaks a rule that only an edit is sure to break."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """The cases and dialogues to ask a judge about, and what that takes.

    Attributes:
        cases: planted flaws with their twins.
        variants: dialogues in two versions.
        sides: cases whose two sides are shown together.
        repeated: dialogues that are judged twice, and whose last turn is asked about in other words.
        source: where the dialogues are from, in words.
        limit: most flaws to plant; there are fewer where the dialogues have no room for more.
        load: of all calls, tokens counted at 4 characters each.
        rates: of the judge; None where they are not known.
        seconds: time that the calls take at these rates.
        cost: at the recipe's prices and without a prefix cache; None where the judge has none.
        by_policy: number of cases for the recipe's policy to plant.
        planted_by: number of cases by who planted them.
        not_planted: flaws that the policy could not write, by reason; those cases keep their edit.
    """

    cases: tuple[ProbeCase, ...]
    variants: tuple[Variant, ...]
    sides: tuple[ProbeCase, ...]
    repeated: tuple[Dialogue, ...]
    source: str
    seed: int
    limit: int
    load: Load = field(default_factory=Load)
    rates: Rates | None = None
    seconds: float | None = None
    cost: float | None = None
    by_policy: int = 0
    planted_by: dict[str, int] = field(default_factory=dict)
    not_planted: dict[str, int] = field(default_factory=dict)

    @property
    def judged(self) -> list[Dialogue]:
        """Every dialogue to be judged, once; those that share a start are next to each other."""
        groups: dict[str, dict[str, Dialogue]] = {}

        def add(group: str, *dialogues: Dialogue | None) -> None:
            for dialogue in filter(None, dialogues):
                groups.setdefault(group, {})[dialogue.content_hash] = dialogue

        for dialogue in self.repeated:
            add(dialogue.content_hash, dialogue)
        for case in self.cases:
            add(case.group, case.untouched, case.planted, case.harmless)
        for variant in self.variants:
            add(variant.group, variant.first, variant.second)
        unique = {key: one for group in groups.values() for key, one in group.items()}
        return list(unique.values())


def draw_cases(
    recipe: Recipe,
    data: str | None = None,
    limit: int = CASES,
    seed: int = 42,
    by_policy: int = 0,
) -> ProbePlan:
    """Plant flaws and draw the cases of the other lines; no model calls, and no load yet.

    Args:
        recipe: names the judge; its role and scenario are those of dialogues that carry none.
        data: a path or Hub id of dialogues that have no flaws of their own; the sample's where None.
        limit: most planted flaws. Each other line has a tenth as many cases, at least 8; each fake in another place
            than a user's message a fortieth, or none where that is too few for a figure.
        seed: of the draws.
        by_policy: number of flaws for the recipe's policy to write, as far as it can, and as far as they are in words.

    Raises:
        UsageError: no judge is named, or no policy where it should plant; the data has too little room for flaws.
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
    crossings = each // _SHARE_OF_CROSSING
    if crossings < LEAST_DIALOGUES:
        crossings = 0  # too few to say anything
    shuffled = random.Random(seed).sample(clean, len(clean))
    return ProbePlan(
        cases=tuple(cases),
        variants=(
            *clean_variants(shuffled, each, translated, seed),
            *hidden_instructions(cases, each, crossings, seed),
        ),
        sides=tuple(swapped_sides(cases, each, seed)),
        repeated=tuple(shuffled[:each]),
        source="curate's sample dialogues" if data is None else data,
        seed=seed,
        limit=limit,
        by_policy=min(by_policy, sum(map(is_in_words, cases))),
        planted_by={"edits": len(cases)},
    )


def _clean_dialogues(recipe: Recipe, data: str | None, limit: int, seed: int) -> list[Dialogue]:
    if data is None:
        return [first_turns(dialogue) for dialogue in sample_dialogues(recipe)]
    source = open_source(parse_source({"path": data}))
    units = source.read(recipe.role, recipe.scenario, recipe.role_from)
    dialogues: dict[str, Dialogue] = {}
    for dialogue in (dialogue for unit in units for dialogue in unit.dialogues):
        if any(turn.in_rubric for turn in dialogue.turns):
            short = first_turns(dialogue)
            dialogues.setdefault(short.content_hash, short)
        if len(dialogues) >= _POOL * limit:
            break
    # As many dialogues as cases are enough; the draw does not depend on the file's order.
    keys = sorted(dialogues)
    return [dialogues[key] for key in random.Random(seed).sample(keys, len(keys))[:limit]]


def is_in_words(case: ProbeCase) -> bool:
    """Return whether a model could write the flaw: its kind is one of words, and the message has text."""
    message = case.untouched.messages[case.index]
    return case.kind not in _PLANTED_BY_EDIT and bool(message.content.strip())
