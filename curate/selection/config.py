"""The section `select` of a recipe: conditions, duplicates, eval sets, the split, sets for people.

Conditions are checked when the config is made, so a recipe with a misspelt column is refused before any model
call.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from curate.errors import UsageError
from curate.records import Certificate, TrustKind
from curate.records.calibration_file import read_certificate
from curate.records.config import Config
from curate.selection.columns import REJECTED_SIDES
from curate.selection.expressions import check_columns, check_condition, check_ranking

_NAME = re.compile(r"[a-z][a-z0-9_]*")
Removal = Literal[
    "contaminated",
    "duplicate_exact",
    "near_duplicate",
    "near_duplicate_prompt",
    "embedding_duplicate",
]
"""Reason codes of what `dedup` and `decontaminate` remove."""

RESERVED = frozenset(
    {
        *("unscored", "top", "certified", "sft", "rejected", "review", "active"),
        *REJECTED_SIDES,
        *get_args(Removal),
    }
)
"""Built-in reason codes and set names; a condition may not use them."""


class Share(Config):
    """The dialogues with the highest or lowest values of an expression. Dialogues where it is null are not included."""

    fraction: float = Field(
        gt=0, le=1, description="Share of the dialogues (0-1), rounded up to whole dialogues."
    )
    by: str = Field(
        description="SQL expression over the score table to rank by, such as `mean_score`."
    )
    descending: bool = Field(True, description="true: take the highest values; false: the lowest.")
    within: tuple[str, ...] = Field(
        (), description="Columns to group by, such as `[role]`; the share is taken from each group."
    )


View = Literal["dialogue", "first_user"]
"""Which text of a dialogue is compared."""
_VIEWS = "`dialogue`: all messages but system ones. `first_user`: the first user message."


class NearConfig(Config):
    """Near-duplicates: Jaccard similarity of the sets of shingles (runs of words)."""

    threshold: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Jaccard similarity (0-1) from which on two texts are near-duplicates.",
    )
    of: tuple[View, ...] = Field(
        ("dialogue",),
        min_length=1,
        description=f"What is compared. {_VIEWS}",
    )
    shingle: int = Field(3, ge=1, description="Words in a shingle.")
    min_words: int = Field(
        8,
        ge=0,
        description="First user messages with fewer words (such as `hello`) are not compared.",
    )
    permutations: int = Field(
        128,
        ge=16,
        description="MinHash permutations; more of them find more pairs just above the threshold.",
    )
    seed: int = Field(0, ge=0, description="Random seed of the permutations.")


class EmbeddingConfig(Config):
    """Duplicates by meaning: cosine similarity of sentence embeddings."""

    model: str = Field(description="sentence-transformers model: Hub id or folder.")
    threshold: float = Field(
        0.95, gt=0, le=1, description="Cosine similarity from which on two texts are duplicates."
    )
    of: View = Field(
        "dialogue",
        description=f"What is embedded. {_VIEWS}",
    )


class DedupConfig(Config):
    """Removal of duplicates among the dialogues that meet all conditions: one of each group is kept."""

    exact: bool = Field(
        True,
        description="Remove dialogues with the same messages and tools; spaces at the ends of texts are "
        "ignored.",
    )
    near: NearConfig | None = Field(
        NearConfig(), description="Remove near-duplicates by shared runs of words; null: off."
    )
    embedding: EmbeddingConfig | None = Field(
        None, description="Remove duplicates by meaning; null: off."
    )
    keep: str = Field(
        "first",
        description="Which dialogue of a group is kept: `first` (in reading order), or the one with the "
        "highest value of an SQL expression over the score table, such as `mean_score`.",
    )

    @property
    def ranking(self) -> str | None:
        """Return the expression to rank by; None where the first is kept."""
        return None if self.keep == "first" else self.keep


class EvalSet(Config):
    """Texts of an evaluation set, which must not be trained on."""

    path: str = Field(min_length=1, description="File, folder, glob or Hub dataset id.")
    field: str | tuple[str, ...] | None = Field(
        None,
        description="Columns that hold the text; dots for nested ones. null: every text in a row. A .txt "
        "file has one text per line.",
    )
    name: str | None = Field(
        None, description="Name in reports; by default the last part of the path."
    )
    config: str | None = Field(None, description="Hub: the dataset's configuration.")
    split: str | None = Field(None, description="Hub: the split.")
    revision: str | None = Field(None, description="Hub: branch, tag or commit.")
    ngram: int = Field(
        13,
        ge=2,
        description="Length in words of a run that a dialogue may not share with this set.",
    )
    common: int | None = Field(
        10,
        ge=1,
        description="Runs of words found in more than this many texts of the set are taken for its "
        "template and ignored; null: none are ignored.",
    )

    @property
    def label(self) -> str:
        """Return the set's name in reports."""
        return self.name or self.path.rstrip("/").rpartition("/")[2] or self.path

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the columns as a tuple; empty where none is named."""
        return (self.field,) if isinstance(self.field, str) else (self.field or ())


Tie = Literal["group", "conversation", "prompt", "near_duplicates"]


class SplitConfig(Config):
    """Division into train and validation sets, with nothing of one in the other."""

    validation: float = Field(
        0.05, gt=0, lt=1, description="Share of the dialogues in the validation set."
    )
    by: tuple[Tie, ...] = Field(
        ("group", "conversation", "prompt", "near_duplicates"),
        description="Dialogues that stay on the same side. `group`: the same group. `conversation`: rows "
        "of the source in common. `prompt`: the same beginning up to some user message. "
        "`near_duplicates`: near-duplicate dialogues or first user messages.",
    )
    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Jaccard similarity of near-duplicates; null: that of `dedup.near`, else 0.8.",
    )
    seed: int = Field(0, ge=0, description="Random seed; another seed gives another split.")


class SelectConfig(Config):
    """Which dialogues are trained on, and which a person should look at."""

    where: dict[str, str] | Literal["auto"] = Field(
        "auto",
        description="SQL conditions over the score table by name; a dialogue must meet all of them. The "
        "name is the reason code of a rejection. `auto`: `in_role` (adherent) where adherence "
        "was scored, and `good_verdict` (verdict >= 'good') where the judge's levels are "
        "calibrated.",
    )
    rejected_sides: bool = Field(
        False,
        description="Also train on what the data itself calls the worse alternative: rejected sides, "
        "lower-ranked siblings, failed trajectories.",
    )
    top: Share | None = Field(
        None,
        description="Take only the best share of the dialogues that meet all conditions. By default, if "
        "`where` is not given either and levels are not calibrated: the better half by "
        "mean_score.",
    )
    certificate: Annotated[
        Certificate | None,
        BeforeValidator(read_certificate, json_schema_input_type=Certificate | str | None),
    ] = Field(
        None,
        description="File written by `curate certify`: dialogues must also reach its threshold (or meet "
        "its condition). With `where: auto` this replaces the default conditions, unless it "
        "certified an SFT set. Refused where judge, prompts or source differ. The run reports "
        "whether the SFT set is the certified one.",
    )
    review: str | None = Field(
        None,
        description="SQL condition of the set that people review, such as: verdict_mismatch OR "
        "weakest_mismatch",
    )
    active: str | Share | None = Field(
        Share(fraction=0.1, by="attention"),
        description="Active-learning set: an SQL condition, or a share by an expression. By default the "
        "tenth of the scored dialogues with the highest `attention` (low or uncertain scores)."
        " null: none.",
    )
    dedup: DedupConfig | None = Field(
        None, description="Remove duplicates among the dialogues that meet all conditions."
    )
    decontaminate: tuple[EvalSet, ...] = Field(
        (),
        description="Evaluation sets: dialogues that share a run of words with one are rejected.",
    )
    split: SplitConfig | None = Field(
        None, description="Divide the SFT set into train and validation."
    )

    @property
    def named(self) -> dict[str, str] | None:
        """Return the recipe's own conditions; None where the default ones apply."""
        return None if self.where == "auto" else self.where

    @property
    def certified_rule(self) -> str | None:
        """Return the certificate's condition; None without one, or where an SFT set was certified as it was."""
        return (self.certificate.certified.rule or None) if self.certificate else None

    @property
    def leaves_it_to_the_certificate(self) -> bool:
        """True where the certificate's condition stands in place of the default ones."""
        certificate = self.certificate
        return (
            self.where == "auto" and certificate is not None and certificate.certified.of != "sft"
        )

    @property
    def needs_cleaning(self) -> bool:
        """True where selection reads the dialogues' texts, not only their scores."""
        return bool(self.dedup or self.decontaminate or self.split)

    @property
    def split_near(self) -> NearConfig | None:
        """Return how near-duplicates are found for the split; None where it does not keep them together."""
        if self.split is None or "near_duplicates" not in self.split.by:
            return None
        near = (self.dedup.near if self.dedup is not None else None) or NearConfig()
        return near.model_copy(update={"threshold": self.split.threshold or near.threshold})

    @field_validator("decontaminate", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return (value,) if isinstance(value, (dict, EvalSet)) else value

    @model_validator(mode="after")
    def _check(self) -> SelectConfig:
        for name, sql in (self.named or {}).items():
            if not _NAME.fullmatch(name) or name in RESERVED:
                raise UsageError(
                    "the name of a condition becomes a drop reason and must not be one that exists",
                    got=f"select.where.{name}",
                    expected="lower-case letters, digits and underscores, and none of "
                    + ", ".join(sorted(RESERVED)),
                )
            check_condition(sql, f"select.where.{name}")
        if self.certificate is not None and self.certificate.kind is not TrustKind.CERTIFICATE:
            raise UsageError(
                "the certificate is for pairs",
                got="a certificate for pairs in select.certificate",
                expected="a certificate for dialogues; one for pairs goes into fork.certificate",
            )
        if self.certified_rule is not None:
            check_condition(self.certified_rule, "select.certificate")
        for place, share in (("top", self.top), ("active", self.active)):
            if isinstance(share, Share):
                check_ranking(share.by, f"select.{place}.by")
                check_columns(share.within, f"select.{place}.within")
        if self.dedup is not None and self.dedup.ranking is not None:
            check_ranking(self.dedup.ranking, "select.dedup.keep")
        labels = [evals.label for evals in self.decontaminate]
        if len(labels) != len(set(labels)):
            raise UsageError(
                "two eval sets have the same name",
                got=", ".join(labels),
                expected="different names",
                fix="give one a `name:`",
            )
        if self.review is not None:
            check_condition(self.review, "select.review")
        if isinstance(self.active, str):
            check_condition(self.active, "select.active")
        return self
