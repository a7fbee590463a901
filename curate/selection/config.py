"""What the recipe says about selection: conditions, duplicates, eval sets, the split, sets for humans.

Conditions are checked when the config is made, so a recipe with a misspelt column is refused before any
model is asked.
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
"""Reason codes and set names of our own; a condition of that name could not be told from them."""


class Share(Config):
    """A share of the dialogues, by a score. Dialogues without that score are not in it."""

    fraction: float = Field(gt=0, le=1, description="Share taken, rounded up to whole dialogues.")
    by: str = Field(description="SQL expression to rank by, as `mean_score`.")
    descending: bool = Field(True, description="Take the highest; false takes the lowest.")
    within: tuple[str, ...] = Field(
        (), description="Columns; the share is taken of each group of equal values, as [role]."
    )


View = Literal["dialogue", "first_user"]
"""What of a dialogue is compared: all messages but system ones, or the first user message."""


class NearConfig(Config):
    """Near-duplicates: Jaccard similarity of the sets of shingles (runs of words)."""

    threshold: float = Field(0.8, gt=0, le=1, description="Jaccard similarity that is too much.")
    of: tuple[View, ...] = Field(("dialogue",), min_length=1, description="What is compared.")
    shingle: int = Field(3, ge=1, description="Words a shingle.")
    min_words: int = Field(
        8, ge=0, description="First user messages of fewer words are not compared, as `hello`."
    )
    permutations: int = Field(
        128, ge=16, description="Of MinHash; more find more of what is just above the threshold."
    )
    seed: int = Field(0, ge=0, description="Of the permutations.")


class EmbeddingConfig(Config):
    """Duplicates by meaning: cosine of sentence embeddings of the whole dialogue."""

    model: str = Field(description="sentence-transformers model: Hub id or folder.")
    threshold: float = Field(0.95, gt=0, le=1, description="Cosine similarity that is too much.")
    of: View = Field("dialogue", description="What is embedded.")


class DedupConfig(Config):
    """Of dialogues that say the same, one is kept. Compared are those that meet all conditions."""

    exact: bool = Field(
        True, description="The same messages and tools, but for spaces at the ends of texts."
    )
    near: NearConfig | None = Field(NearConfig(), description="null: not looked for.")
    embedding: EmbeddingConfig | None = None
    keep: str = Field(
        "first",
        description="Which one stays: `first` read, or the highest by an SQL expression over the score "
        "table, as mean_score.",
    )

    @property
    def ranking(self) -> str | None:
        """The expression to rank by; None where the first is kept."""
        return None if self.keep == "first" else self.keep


class EvalSet(Config):
    """Texts of an evaluation, which must not be trained on."""

    path: str = Field(min_length=1, description="File, folder, glob or Hub dataset id.")
    field: str | tuple[str, ...] | None = Field(
        None,
        description="Columns that hold the text; nested ones with dots. null: every text in a row, "
        "whatever its shape. A .txt file has one text a line.",
    )
    name: str | None = Field(None, description="In reports; defaults to the path's last part.")
    config: str | None = Field(None, description="Hub: the dataset's configuration.")
    split: str | None = Field(None, description="Hub: the split.")
    revision: str | None = Field(None, description="Hub: branch, tag or commit.")
    ngram: int = Field(13, ge=2, description="Words in a row that may not be shared.")
    common: int | None = Field(
        10,
        ge=1,
        description="n-grams in more texts of this set than that are its template and do not count; null: "
        "all count.",
    )

    @property
    def label(self) -> str:
        """How reports call it."""
        return self.name or self.path.rstrip("/").rpartition("/")[2] or self.path

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns as a tuple; empty where none is named."""
        return (self.field,) if isinstance(self.field, str) else (self.field or ())


Tie = Literal["group", "conversation", "prompt", "near_duplicates"]


class SplitConfig(Config):
    """Train and validation, with nothing of one in the other."""

    validation: float = Field(0.05, gt=0, lt=1, description="Share of the dialogues.")
    by: tuple[Tie, ...] = Field(
        ("group", "conversation", "prompt", "near_duplicates"),
        description="What stays on one side: the same group, rows of the source in common, the same beginning "
        "up to some user message, near-duplicates (of the dialogue or its first user message).",
    )
    threshold: float | None = Field(
        None, gt=0, le=1, description="Of near-duplicates; null: that of dedup.near, else 0.8."
    )
    seed: int = Field(0, ge=0, description="Other seeds give other splits.")


class SelectConfig(Config):
    """Which dialogues train, and which a human should see."""

    where: dict[str, str] | Literal["auto"] = Field(
        "auto",
        description="Named SQL conditions over the score table; all must be true. The name is the reason "
        "code of a rejection. auto: in_role (adherent) where adherence ran, and good_verdict "
        "(verdict >= 'good') where the judge did and its levels are calibrated.",
    )
    rejected_sides: bool = Field(
        False,
        description="Also train on what the data itself calls the worse alternative: rejected sides, "
        "lower-ranked siblings, failed trajectories.",
    )
    top: Share | None = Field(
        None,
        description="Of the dialogues that meet all conditions, the best share. Where neither this nor "
        "`where` is given and levels are not calibrated: the better half by mean_score.",
    )
    certificate: Annotated[
        Certificate | None,
        BeforeValidator(read_certificate, json_schema_input_type=Certificate | str | None),
    ] = Field(
        None,
        description="File that `curate certify` wrote: its threshold (or condition) must be met, too, and is all that "
        "must be where `where` is auto and it was not taken from an SFT set. Refused where judge, prompts or source "
        "differ. The run says whether the SFT set is the one that was certified.",
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
    dedup: DedupConfig | None = Field(
        None, description="Of the dialogues that meet all conditions, removes duplicates."
    )
    decontaminate: tuple[EvalSet, ...] = Field(
        (), description="Evaluation sets that no dialogue may share a run of words with."
    )
    split: SplitConfig | None = Field(None, description="Divides into train and validation.")

    @property
    def named(self) -> dict[str, str] | None:
        """The recipe's own conditions; None where the default ones apply."""
        return None if self.where == "auto" else self.where

    @property
    def certified_rule(self) -> str | None:
        """The condition of the certificate; None where there is none, or it certified an SFT set as it was."""
        return (self.certificate.certified.rule or None) if self.certificate else None

    @property
    def leaves_it_to_the_certificate(self) -> bool:
        """True where the certificate's condition stands in place of the default ones."""
        held = self.certificate
        return self.where == "auto" and held is not None and held.certified.of != "sft"

    @property
    def needs_cleaning(self) -> bool:
        """True where the dialogues' texts are wanted, not their scores only."""
        return bool(self.dedup or self.decontaminate or self.split)

    @property
    def split_near(self) -> NearConfig | None:
        """What counts as near where the split keeps near-duplicates together; None where it does not."""
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
                    "the name of a condition is its reason code and must be one word of its own",
                    got=f"select.where.{name}",
                    expected="lower-case letters, digits and underscores, and none of "
                    + ", ".join(sorted(RESERVED)),
                )
            check_condition(sql, f"select.where.{name}")
        if self.certificate is not None and self.certificate.kind is not TrustKind.CERTIFICATE:
            raise UsageError(
                "the certificate is of pairs",
                got="select.certificate",
                expected="one of dialogues; that of pairs goes to fork.certificate",
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
                expected="names that tell collisions apart",
                fix="give one a `name:`",
            )
        if self.review is not None:
            check_condition(self.review, "select.review")
        if isinstance(self.active, str):
            check_condition(self.active, "select.active")
        return self
