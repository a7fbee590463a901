"""Parameters of the reference methods: which encoder, how neighbours and distributions are read.

Defaults are the paper's ("Role Adherence", Fritz and Fiorenza 2026). Where its text and its experiments
differ, a parameter chooses between them and says which is which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from curate.records.config import Config

ReferenceMethod = Literal[
    "cosine",
    "knn",
    "bertscore",
    "nli",
    "mahalanobis",
    "kl",
    "pca_mahalanobis",
    "rouge",
    "bleu",
]

ON_VECTORS: Final = ("cosine", "knn", "mahalanobis", "pca_mahalanobis")
"""Methods that compare the sentence encoder's vectors."""

ON_WORDS: Final = ("kl", "rouge", "bleu")
"""Methods that count words: no model is loaded."""

EVALUATION_ONLY = frozenset({"pca_mahalanobis", "rouge", "bleu"})
"""Methods for comparison only: the first ranks violations above adherent turns, the others punish paraphrases.
Filtering on one gives a warning."""

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"


class ReferenceConfig(Config):
    """How turns are compared with their references. Each description names the methods that read the key."""

    encoder: str = Field(
        DEFAULT_ENCODER,
        description="Sentence encoder, a Hub id or a folder: cosine, knn, mahalanobis, "
        "pca_mahalanobis, and nli with `nli_base: cosine`.",
    )
    revision: str | None = Field(None, description="Commit, tag or branch of the models' Hub ids.")
    device: str | None = Field(
        None,
        description="Where models run, such as `cpu` or `cuda:0`; by default a GPU if there is one.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Precision of the models' weights. bfloat16 is faster where the hardware supports it, "
        "and changes scores by about 0.001.",
    )
    role_beside: bool = Field(
        False,
        description="Put the role definition before the turn's text and compare both together (as the "
        "paper's text says of its deterministic methods; its experiments compare the turn "
        "alone).",
    )
    k: int = Field(
        1, ge=1, description="knn: the score is the mean over the k most similar references."
    )
    pool: Literal["turn", "role"] = Field(
        "turn",
        description="knn: the references to search. `turn`: the turn's own (the paper's text). `role`: all"
        " references of its role in the run (the paper's experiments).",
    )
    alpha: float = Field(
        1.0,
        gt=0,
        description="mahalanobis, pca_mahalanobis: score = exp(-alpha * distance / scale).",
    )
    scale: Literal["median", "none"] = Field(
        "median",
        description="median: distances are divided by their median over the role's turns in the run "
        "(the paper's experiments). none: exp(-alpha * distance), the paper's text, which with 384 "
        "dimensions leaves every score below 0.01.",
    )
    ridge: float = Field(
        0.01, gt=0, description="mahalanobis, pca_mahalanobis: constant added to every variance."
    )
    components: int = Field(
        32, ge=1, description="pca_mahalanobis: number of principal components."
    )
    beta: float = Field(1.0, gt=0, description="kl: score = exp(-beta * divergence).")
    vocabulary: int = Field(
        500,
        ge=1,
        description="kl: number of words compared, the most frequent ones in the role's references.",
    )
    bertscore_model: str = Field(
        "roberta-large", description="bertscore: a transformers encoder, a Hub id or a folder."
    )
    layer: int | None = Field(
        None,
        ge=1,
        description="bertscore: layer whose hidden states are compared. By default the bert-score "
        "package's choice for well-known models; required for any other model.",
    )
    idf: bool = Field(
        False,
        description="bertscore: weight tokens by inverse document frequency in the references.",
    )
    baseline: Path | None = Field(
        None,
        description="bertscore: rescale with a table in the bert-score package's format "
        "(LAYER,P,R,F); no rescaling by default.",
    )
    nli_model: str = Field(
        "FacebookAI/roberta-large-mnli",
        description="nli: a sequence classifier with a contradiction label, a Hub id or a folder.",
    )
    nli_base: Literal["cosine", "one"] = Field(
        "cosine",
        description="nli: score of a turn that does not contradict all of its references (one that does "
        "scores 0). `cosine`: its cosine similarity (the paper's text). `one`: 1, a binary "
        "classifier (its experiments).",
    )
