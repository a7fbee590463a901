"""One reference method over a run: fitted on all dialogues, then asked about each.

Dialogues are read once or twice before the first is scored: models then see full batches of texts of like
length, and distributions are whole. What that costs is kept in a file, so each dialogue's own scoring is a
few look-ups, and a second run over the same texts runs no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from curate.adherence.config import AdherenceConfig, settle_calibration
from curate.adherence.reference.bertscore import BertScore, TokenEncoder, check_options
from curate.adherence.reference.cases import Case, ComparisonMethod, case_chunks, cases_of, compared
from curate.adherence.reference.entailment import Entailment, PairClassifier
from curate.adherence.reference.lexical import Divergence, Overlap, bleu, rouge_l
from curate.adherence.reference.vectors import Distance, Nearest
from curate.adherence.reference_config import ON_WORDS, ReferenceConfig
from curate.adherence.sentence_encoder import Embedder, Encoder, SentenceEncoder
from curate.adherence.session_score import (
    STAGE,
    NoSession,
    aggregate,
    held_to_threshold,
    score_record,
    without_role,
)
from curate.dialogue import Dialogue
from curate.errors import missing_extra
from curate.records import AdherenceScore, AdherenceTurn, JudgeIdentity, Unscored, UnscoredReason
from curate.storage.store import Store

VERSION = "reference-1"


def open_method(
    name: str, config: ReferenceConfig, store: Store, encoder: Encoder | None = None
) -> ComparisonMethod:
    """Return the method of that name, unfitted; no model is loaded yet.

    Args:
        store: where vectors and pair scores are kept.
        encoder: an open sentence encoder in place of the config's.
    """
    if name == "kl":
        return Divergence(config)
    if name == "rouge":
        return Overlap(rouge_l, "rouge_l_f1")
    if name == "bleu":
        return Overlap(bleu, "bleu_4")
    if name == "bertscore":
        return BertScore(TokenEncoder(config), store, config)
    embedder = Embedder(encoder or SentenceEncoder(config), store)
    if name == "nli":
        base = embedder if config.nli_base == "cosine" else None
        return Entailment(PairClassifier(config), base, store)
    if name == "mahalanobis":
        return Distance(embedder, config)
    if name == "pca_mahalanobis":
        return Distance(embedder, config, config.components)
    return Nearest(embedder, *((config.k, config.pool) if name == "knn" else (1, "turn")))


def fit(
    method: ComparisonMethod, config: ReferenceConfig, dialogues: Callable[[], Iterable[Dialogue]]
) -> None:
    """Take a method through its passes over all dialogues."""
    for take in (method.learn, method.settle) if method.needs_second_pass else (method.learn,):
        for cases in case_chunks(dialogues()):
            take([compared(case, config) for case in cases])


def check_scorer(config: AdherenceConfig) -> None:
    """Refuse what can be seen to fail before anything is read or any model asked.

    Raises:
        UsageError: a package of the extra `scorers` is missing, no layer is known for the BERTScore
            model, or the baseline does not hold that layer.
    """
    method = config.scoring_method
    if method in ("llm_judge", *ON_WORDS):
        return
    for package in ("torch", "transformers", "sentence_transformers"):
        if find_spec(package) is None:
            raise missing_extra(package.replace("_", "-"), "scorers")
    if method == "bertscore":
        check_options(config.reference)


class ReferenceScorer:
    """A fitted method, ready to score dialogues.

    Args:
        config: names the method; `reference` holds its parameters.
        dialogues: gives all dialogues of the run, in the same order each time it is called.
        store: file that keeps vectors and pair scores; None keeps them in memory.

    Attributes:
        identity: who scores, and how; covers the texts a distribution was fitted on.
        config: the config in force: `output_mode` says what scores these are.
    """

    def __init__(
        self,
        config: AdherenceConfig,
        dialogues: Callable[[], Iterable[Dialogue]],
        store: Path | None = None,
    ) -> None:
        assert config.scoring_method != "llm_judge"
        binary = config.scoring_method == "nli" and config.reference.nli_base == "one"
        self.config = config.model_copy(
            update={"output_mode": "binary" if binary else "continuous"}
        )
        self._method = open_method(config.scoring_method, config.reference, Store(store))
        fit(self._method, config.reference, dialogues)
        self._fitted_on = self._method.fitted_on()
        described = self._method.describe()
        if config.reference.role_beside:
            described["role_beside"] = True
        identity = JudgeIdentity(
            engine="reference",
            model=str(described.pop("encoder", "")),
            revision=str(described.pop("revision", "")),
            quantisation="",
            mode=config.scoring_method,
            prompt_version=VERSION,
            sampling=described,
        )
        self.config, self.identity, ignored = settle_calibration(self.config, identity)
        warnings = [text for text in (_warning(self._method, config), ignored) if text]
        self.warning = "\n".join(warnings) or None

    def score(self, dialogue: Dialogue) -> AdherenceScore | Unscored:
        """Score every assistant turn of a dialogue against its references.

        Scores below 0 (a negative cosine) are 0 in the record. The role definition names the distribution
        and is otherwise not read.

        Returns:
            The score, or `Unscored` with reason `missing_role` (`skipped` where the config says so),
            `references_mismatch` (more references than assistant turns), `no_assistant_turn`,
            `weights_mismatch`, or the reason its turns have no score: `no_reference`, `no_text`,
            `too_few_references` (a role's distribution cannot be fitted), that of the first such turn where
            these differ. All of them are errors of the data: no model was asked that could have failed.
        """
        if (refusal := without_role(dialogue, self.config)) is not None:
            return refusal
        cases = cases_of(dialogue)
        if cases is None:
            detail = f"{len(dialogue.references)} references for fewer assistant turns"
            return Unscored.of(dialogue, STAGE, UnscoredReason.REFERENCES_MISMATCH, detail)
        per_turn = [self._turn(case) for case in cases]
        session = aggregate(per_turn, self.config)
        if isinstance(session, NoSession):
            first = next((turn.unscored for turn in per_turn if turn.unscored), None)
            reason = (
                first
                if first and session.reason == UnscoredReason.UNSCORED_TURNS
                else session.reason
            )
            return Unscored.of(dialogue, STAGE, reason, session.detail)
        fitted_on = self._fitted_on.get(cases[0].role, 0)
        return score_record(
            dialogue, self.config, self.identity, session, per_turn, fitted_on=fitted_on
        )

    def _turn(self, case: Case) -> AdherenceTurn:
        reading = self._method.score(compared(case, self.config.reference))
        if reading.score is None:
            return AdherenceTurn(turn=case.turn, unscored=reading.unscored)
        score = min(1.0, max(0.0, reading.score))
        return AdherenceTurn(turn=case.turn, **held_to_threshold(score, self.config))


def _warning(method: ComparisonMethod, config: AdherenceConfig) -> str | None:
    if not method.cut:
        return None
    return (
        f"adherence: {method.cut} texts are longer than the model of {config.scoring_method} reads; "
        "what stands behind its limit was not compared"
    )
