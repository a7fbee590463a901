"""What the recipe says about selection: named conditions, a top share, and the sets for humans.

Conditions are checked when the config is made, so a recipe with a misspelt column is refused before any
model is asked.
"""

from __future__ import annotations

import re

from pydantic import Field, model_validator

from curate.dialogue import Frozen
from curate.errors import UsageError
from curate.selection.expressions import check_columns, check_condition, check_ranking

_NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED = frozenset({"unscored", "top", "sft", "rejected", "review", "active"})
"""Reason codes and set names of our own; a condition of that name could not be told from them."""


class Share(Frozen):
    """A share of the dialogues, by a score. Dialogues without that score are not in it."""

    fraction: float = Field(gt=0, le=1, description="Share taken, rounded up to whole dialogues.")
    by: str = Field(description="SQL expression to rank by, as `mean_score`.")
    descending: bool = Field(True, description="Take the highest; false takes the lowest.")
    within: tuple[str, ...] = Field(
        (), description="Columns; the share is taken of each group of equal values, as [role]."
    )


class SelectConfig(Frozen):
    """Which dialogues train, and which a human should see."""

    where: dict[str, str] | None = Field(
        None,
        description="Named SQL conditions over the score table; all must be true. The name is the reason "
        "code of a rejection. Not given: good_verdict (verdict >= 'good') where the judge ran, and "
        "in_role (adherent) where adherence did.",
    )
    top: Share | None = Field(
        None, description="Of the dialogues that meet all conditions, the best share."
    )
    review: str | None = Field(
        None,
        description="SQL condition of the review set, as: verdict_mismatch OR weakest_mismatch",
    )
    active: str | Share | None = Field(
        Share(fraction=0.1, by="attention"),
        description="Active-learning set: an SQL condition, or a share by a score. By default the tenth "
        "of the scored dialogues that are lowest or least certain. null: none.",
    )

    @model_validator(mode="after")
    def _check(self) -> SelectConfig:
        for name, sql in (self.where or {}).items():
            if not _NAME.fullmatch(name) or name in RESERVED:
                raise UsageError(
                    "the name of a condition is its reason code and must be one word of its own",
                    got=f"select.where.{name}",
                    expected="lower-case letters, digits and underscores, and none of "
                    + ", ".join(sorted(RESERVED)),
                )
            check_condition(sql, f"select.where.{name}")
        for place, share in (("top", self.top), ("active", self.active)):
            if isinstance(share, Share):
                check_ranking(share.by, f"select.{place}.by")
                check_columns(share.within, f"select.{place}.within")
        if self.review is not None:
            check_condition(self.review, "select.review")
        if isinstance(self.active, str):
            check_condition(self.active, "select.active")
        return self
