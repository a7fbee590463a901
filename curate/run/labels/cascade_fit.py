"""Fit a cascade's threshold to the dialogues of a run that both of its judges scored; no model calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from curate.errors import UsageError
from curate.judging.cascade import CascadeRule
from curate.records import GOOD_VERDICTS, CascadeFit, JudgeIdentity, Judgment, StageName
from curate.records.validation_errors import validated
from curate.run.ingest import read_dialogues
from curate.run.labels.run_scores import groups_of, read_judgments
from curate.run.read_back import read_manifest
from curate.trust.cascade_threshold import Tried, fit_cascade_threshold
from curate.trust.gold import match_gold
from curate.trust.label_rows import Unused, read_gold
from curate.wording import plural


def fit_cascade(
    run: Path, gold: Path | None = None, *, risk: float = 0.1, confidence: float = 0.9
) -> tuple[CascadeFit, Unused]:
    """Fit the doubt up to which a cascade's first judge may decide alone.

    Without labels a dialogue is lost if the second judge gives it another verdict; with labels if, by people, the
    first judge is wrong about whether it is good and the second is right.

    Args:
        run: of a cascade. Without a threshold both judges were asked about all of its dialogues; with one those of
            its check are used, which are drawn evenly.
        gold: labels of whole dialogues, `verdict` or `accept`, as `curate calibrate` reads them.
        risk: largest share of all dialogues that may be lost.
        confidence: that no larger share is lost.

    Returns:
        The fit, and the rows of `gold` that could not be used.

    Raises:
        UsageError: no run of a cascade, no labels of its dialogues, too few of them; shares that are none.
        CurateError: no threshold lets the first judge decide anything.
    """
    identity, rule = _cascade(run)
    is_good, unused = _labels(run, gold)
    dialogues = _dialogues(run, rule, is_good)
    threshold = fit_cascade_threshold(list(dialogues.values()), risk, confidence)
    first, second = (JudgeIdentity.model_validate(judge) for judge in identity.sampling["judges"])
    error = (
        "the second would have changed its verdict"
        if is_good is None
        else "people find it wrong and the second right"
    )
    return CascadeFit(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        judges=(first, second),
        doubt=rule.asked_doubt,
        threshold=threshold.value,
        truth="second judge" if is_good is None else "people",
        risk=risk,
        confidence=confidence,
        dialogues=len(dialogues),
        kept=threshold.kept,
        lost=threshold.lost,
        lost_at_most=threshold.at_most,
        labelled=() if is_good is None else tuple(dialogues),
        sentence=f"Up to a doubt of {threshold.value:.2f} the first judge decides: {threshold.kept} of {len(dialogues)} "
        f"dialogues. In {threshold.lost} of them {error}; with {confidence:.0%} confidence that is so in at most "
        f"{threshold.at_most:.1%} of all dialogues.",
    ), unused


def _cascade(run: Path) -> tuple[JudgeIdentity, CascadeRule]:
    """Return the identity of a run's cascade, and when it asks its second judge."""
    manifest = read_manifest(run)
    identity = manifest.identities.get(StageName.JUDGE)
    if identity is None or identity.uncalibrated().engine != "cascade":
        raise UsageError(
            "the run has no cascade",
            got=f"{run}: judge {identity.engine if identity else 'none'}",
            expected="a run of a recipe with models.judge: {cascade: [small, large]}",
        )
    config = manifest.recipe["models"]["judge"]
    rule = validated(
        CascadeRule,
        {key: config[key] for key in CascadeRule.model_fields if config.get(key) is not None},
        "the run's cascade cannot be read",
    )
    return identity, rule


def _labels(run: Path, gold: Path | None) -> tuple[Mapping[str, bool] | None, Unused]:
    if gold is None:
        return None, Unused()
    labels = match_gold(read_gold(gold), read_dialogues(run))
    if not labels.good:
        raise UsageError(
            "no label says whether a dialogue of the run is good",
            got=f"{plural(labels.rows, 'label')} in {gold}",
            expected="labels of whole dialogues: dimension verdict or accept",
        )
    return labels.good, labels.unused


def _dialogues(
    run: Path, rule: CascadeRule, is_good: Mapping[str, bool] | None
) -> dict[str, Tried]:
    """Return the dialogues to fit to by content hash: one a group, since what is alike counts once."""
    groups = groups_of(run)
    dialogues: dict[str, Tried] = {}
    fitted_groups: set[str] = set()
    for key, row in read_judgments(run):
        if rule.highest_sure is not None and not rule.is_checked(key):
            continue
        if (is_good is not None and key not in is_good) or groups[key] in fitted_groups:
            continue
        dialogue = _tried(row, None if is_good is None else is_good[key])
        if dialogue is not None:
            dialogues[key] = dialogue
            fitted_groups.add(groups[key])
    return dialogues


def _tried(row: Judgment, truth: bool | None) -> Tried | None:
    """Return a dialogue as the fit reads it; None if a judge has no verdict, since it is escalated anyway."""
    if len(row.opinions) < 2:
        return None
    first, second = row.opinions
    if first.verdict is None or second.verdict is None or first.doubt is None:
        return None
    if truth is None:
        return Tried(first.doubt, first.verdict != second.verdict)
    first_good, second_good = (opinion.verdict in GOOD_VERDICTS for opinion in (first, second))
    return Tried(first.doubt, first_good != truth and second_good == truth)
