"""Compare a run's estimate with what the run then asked for."""

from __future__ import annotations

from dataclasses import dataclass

from curate.records import Manifest, StageEstimate
from curate.wording import plural

_ENDED = ("done", "unscored")


@dataclass(frozen=True, slots=True)
class ComparedCount:
    """An estimated figure beside the actual one; None if not known."""

    name: str
    expected: float | None
    actual: float | None
    digits: int = 0

    def shown(self, value: float | None) -> str:
        """Return a value of this row as text."""
        return "not known" if value is None else f"{value:,.{self.digits}f}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of the whole run, with notes on how to read them."""

    rows: tuple[ComparedCount, ...]
    notes: tuple[str, ...]


def compare(manifest: Manifest) -> Comparison | None:
    """Compare a run's estimate with its counts; None if it has no estimate.

    The estimate is for all dialogues. If an earlier run left rows, a stage's figures are scaled to the share of rows
    that were missing. Kept replies are not estimated: they are requests without tokens, and a note says how many there
    were. Figures of a run that stopped early stay as they are.
    """
    estimate = manifest.estimate
    if estimate is None:
        return None
    shares = {name: _share_asked(manifest, name) for name in estimate.stages}
    total = _total(estimate.stages, shares)
    whole = estimate.total.prefilled_tokens + estimate.total.completion_tokens
    part = (total["prefilled_tokens"] + total["completion_tokens"]) / whole if whole else 0.0
    stages = [manifest.stages[name] for name in estimate.stages if name in manifest.stages]
    prefilled = manifest.tokens_in - manifest.tokens_cached if manifest.tokens_cached else None
    seconds = [manifest.seconds_by_stage.get(name, 0.0) for name in estimate.stages]
    rows = [
        ComparedCount("requests", total["requests"], sum(stage.requests for stage in stages)),
        ComparedCount("tokens in", total["prompt_tokens"], manifest.tokens_in),
        ComparedCount("  of these prefilled", total["prefilled_tokens"], prefilled),
        ComparedCount("tokens out", total["completion_tokens"], manifest.tokens_out),
        ComparedCount("seconds asking", _times(estimate.seconds, part), sum(seconds), digits=1),
    ]
    if estimate.cost is not None or manifest.cost is not None:
        rows.append(ComparedCount("cost", _times(estimate.cost, part), manifest.cost, digits=4))
    notes = [f"expected from {estimate.sampled} of {plural(estimate.dialogues, 'dialogue')}"]
    notes += [f"assumed: {assumption}" for assumption in estimate.assumptions]
    if prefilled is None and manifest.tokens_in:
        notes.append("the engine reports no cached tokens, so what it prefilled is not known")
    answered = sum(stage.requests - stage.requests_sent for stage in stages)
    if answered > 0:
        notes.append(f"{answered:,} of the requests were answered by kept replies, without tokens")
    if manifest.status not in _ENDED:
        notes.append("the run did not get to its end; what is expected is for the whole")
    return Comparison(tuple(rows), tuple(notes))


def _share_asked(manifest: Manifest, name: str) -> float:
    """Return the share of a stage's rows that this process had to make."""
    stage = manifest.stages.get(name)
    if stage is None or not stage.rows or manifest.status not in _ENDED:
        return 1.0
    return (stage.rows - stage.reused) / stage.rows


def _total(stages: dict[str, StageEstimate], shares: dict[str, float]) -> dict[str, float]:
    columns = ("requests", "prompt_tokens", "prefilled_tokens", "completion_tokens")
    return {
        column: sum(getattr(stage, column) * shares[name] for name, stage in stages.items())
        for column in columns
    }


def _times(value: float | None, share: float) -> float | None:
    return None if value is None else value * share
