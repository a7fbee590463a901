"""Fork one judged dialogue into verified preference pairs.

One straight line a candidate turn, cheapest check first: find it (no call), ask what has to be known of it
(does it suffice, which message failed), score the original again (is it bad at all?), make candidates, drop
those that differ in nothing or make something up, score the rest and compare each with the original, and confirm
from the best downwards until one passes; with `early_stop` candidates are made one by one instead, until one
passes.

Every candidate turn gives a record: one where it is dropped, else one for each candidate that was made, passed
or dropped. So the records of a run are its funnel (`pairs.funnel`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from curate.dialogue import Dialogue, Message
from curate.pairs.candidates import Candidate, criticise, resample, revise
from curate.pairs.changes import describe_changes
from curate.pairs.config import ForkConfig
from curate.pairs.fork_points import ForkPoint, find_forks, flaws_by_turn
from curate.pairs.judge_functions import ForkAsks
from curate.pairs.prefix import pair_id, prompt_messages, with_messages
from curate.pairs.questions import failed_message, repair_suffices
from curate.pairs.settle import hold_by_itself, pull_of
from curate.pairs.substance import is_identical, same_calls
from curate.pairs.verification import (
    CheckOutcome,
    Sides,
    SideScores,
    check_role_and_facts,
    check_specifics,
    check_texts,
    compare_orders,
    cut_after,
    decide_check,
    score_chosen,
    score_rejected,
    token_ratio,
    unscored_check,
    weigh,
)
from curate.records import DropReason, Judgment, PairCheck, PreferencePair, Unscored


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork, what it asks, and what its records have in common.

    Attributes:
        prompt: the dialogue with exactly the prompt's messages.
        models: None where none is asked.
    """

    dialogue: Dialogue
    point: ForkPoint
    prompt: Dialogue
    rejected: Message
    config: ForkConfig
    models: ForkAsks | None = None
    issue: str = ""

    @property
    def asks(self) -> ForkAsks:
        """The models of a fork that asks."""
        assert self.models is not None, "a fork without models"
        return self.models

    @property
    def turn(self) -> int:
        """The number of the turn that is forked."""
        assert self.point.turn is not None, "a fork that asks has a turn"
        return self.point.turn

    def sides(self, chosen: Message) -> Sides:
        """Return the original and the candidate that may stand in its place."""
        return Sides(self.prompt, chosen, self.rejected, self.turn)

    def record(
        self,
        candidate: Candidate | None,
        drop_reason: DropReason | None,
        detail: str = "",
        check: PairCheck | None = None,
    ) -> PreferencePair:
        """Return the record of one candidate, or of the whole fork where there is none."""
        chosen = candidate.message if candidate else None
        writer = ""
        if candidate:
            is_revision = candidate.source == "revision"
            writer = self.asks.reviser_id if is_revision else self.asks.policy_id
        # A twin has its sibling's text, and a fork without a chosen side has none: told apart by salt.
        label = candidate.label if candidate else f"fork {self.point.turn}"
        shares_text = chosen is None or drop_reason == DropReason.DUPLICATE
        # Of a long dialogue every bad turn has a record; with their prompts they would take its square.
        prompt = self.prompt.messages if candidate else ()
        return PreferencePair(
            pair_id=pair_id(
                prompt,
                self.dialogue.tools,
                chosen,
                self.rejected,
                salt=f"{self.dialogue.id}/{self.dialogue.content_hash}/{label}"
                if shares_text
                else "",
            ),
            dialogue_id=self.dialogue.id,
            content_hash=self.dialogue.content_hash,
            source=candidate.source if candidate else "none",
            basis="judge",
            turn=self.point.turn,
            prompt=prompt,
            tools=self.dialogue.tools,
            chosen=chosen,
            rejected=self.rejected,
            drop_reason=drop_reason,
            detail=f"{label}: {detail}" if detail and candidate else detail,
            confidence=self.point.confidence,
            issue=(candidate.issue if candidate else "") or self.issue,
            changes=describe_changes(self.rejected, chosen) if chosen else (),
            sampling=dict(candidate.sampling) if candidate else {},
            policy=writer,
            judge=self.models.judging.judge_id if self.models else "",
            check=check,
            lineage=self.dialogue.lineage,
        )

    def dropped(self, finding: CheckOutcome) -> list[PreferencePair]:
        """Return the one record of a fork that ends before there is a candidate."""
        return [self.record(None, finding.drop_reason, finding.detail, finding.check)]


Faults = Mapping[int, tuple[str, ...]]
"""By turn what is wrong with it, in words."""
NO_FAULTS: Faults = MappingProxyType({})


async def fork_dialogue(
    dialogue: Dialogue,
    judgment: Judgment,
    asks: ForkAsks,
    config: ForkConfig,
    faults: Faults = NO_FAULTS,
) -> list[PreferencePair]:
    """Fork a judged dialogue; accepted and dropped pairs alike, at most one accepted a candidate turn.

    `faults` says by turn what metrics found wrong: those turns are candidates, and a reviser is told of it.

    Calls, at most, for each of `config.max_forks` turns: wordings * (1 + candidates) scores of a turn, as many
    samples of the policy as `resamples`, one revision with up to two descriptions of the issue; for each
    candidate that gets so far six questions for every five new details, two comparisons and two scores of role
    adherence; two comparisons of the best two candidates. Before all that two questions with `at: earliest`, and
    with `tool_turns: failed_message` as many as there are ways to fail; after it a judgment of the dialogue up to
    a pair that passed. A turn found fine again makes room for the next. No call for a turn that is dropped by
    the judgment.
    """
    records: list[PreferencePair] = []
    forked = 0
    for point in find_forks(dialogue, judgment, config, faults):
        if point.drop_reason is None and forked == config.max_forks:
            point = replace(
                point, drop_reason=DropReason.OVER_LIMIT, detail=f"max_forks is {config.max_forks}"
            )
        if point.drop_reason is not None:
            records.append(_dropped(dialogue, point, config, asks))
            continue
        fork_records = await _fork_at(dialogue, judgment, point, asks, config, faults)
        forked += any(record.source != "none" for record in fork_records)
        records.extend(fork_records)
    return records


def drop_forks(
    dialogue: Dialogue, judgment: Judgment, config: ForkConfig, drop_reason: DropReason, detail: str
) -> list[PreferencePair]:
    """Return the records of a dialogue that is not forked for a reason of its own, such as `contaminated`.

    One a candidate turn, as `fork_dialogue` would give it; a turn that the judgment drops keeps that reason.
    """
    return [
        _dropped(
            dialogue,
            point if point.drop_reason else replace(point, drop_reason=drop_reason, detail=detail),
            config,
        )
        for point in find_forks(dialogue, judgment, config)
    ]


def open_fork(
    dialogue: Dialogue, point: ForkPoint, config: ForkConfig, asks: ForkAsks | None
) -> Fork:
    """Return the fork at a point; a dropped one without a message stands at the dialogue's end."""
    index = len(dialogue.messages) if point.index is None else point.index
    prompt = prompt_messages(dialogue.messages[:index], keep_reasoning=config.prompt_reasoning)
    rejected = Message(role="assistant") if point.index is None else dialogue.messages[index]
    return Fork(dialogue, point, with_messages(dialogue, prompt), rejected, config, asks)


def _dropped(
    dialogue: Dialogue, point: ForkPoint, config: ForkConfig, asks: ForkAsks | None = None
) -> PreferencePair:
    return open_fork(dialogue, point, config, asks).record(None, point.drop_reason, point.detail)


async def _fork_at(
    dialogue: Dialogue,
    judgment: Judgment,
    point: ForkPoint,
    asks: ForkAsks,
    config: ForkConfig,
    faults: Faults,
) -> list[PreferencePair]:
    """Fork at one candidate turn; one record where it is dropped, else one for each candidate."""
    fork = open_fork(dialogue, point, config, asks)
    finding = await repair_suffices(dialogue, judgment, point, asks, config)
    if finding.drop_reason is not None:
        return fork.dropped(finding)
    failed = await failed_message(dialogue, point, asks, config)
    if isinstance(failed, CheckOutcome):
        return fork.dropped(failed)
    point, how = failed
    fork = open_fork(dialogue, point, config, asks)
    if point.drop_reason is not None:
        return fork.dropped(CheckOutcome(PairCheck(), point.drop_reason, point.detail))
    rejected, finding = await score_rejected(
        fork.prompt, fork.rejected, fork.turn, asks.judging, config
    )
    if rejected is None or finding.drop_reason is not None:
        return fork.dropped(finding)
    issues = next((entry.issues for entry in judgment.per_turn if entry.turn == fork.turn), ())
    fork = replace(fork, issue=one_line(how, *issues, *faults.get(fork.turn, ())))
    if config.early_stop:
        return await _first_to_pass(fork, rejected)
    if config.guided_revision:
        fork = replace(fork, issue=await whole_issue(fork))
    candidates = [candidate async for candidate in candidates_of(fork)]
    return await _best_to_pass(fork, candidates, rejected)


async def whole_issue(fork: Fork) -> str:
    """Return the flaw in words for a reviser: what is known of it and the broken principles, else ask for it."""
    broken = await criticise(fork.prompt, fork.rejected, fork.asks, fork.config)
    if fork.issue or broken:
        return one_line(fork.issue, broken)
    return await fork.asks.describe_issue(cut_after(fork.prompt, fork.rejected), fork.turn)


def one_line(*parts: str) -> str:
    """Join what is known of a flaw to one line."""
    return "; ".join(part.strip() for part in parts if part.strip())


async def candidates_of(fork: Fork) -> AsyncIterator[Candidate]:
    """Yield candidates as they are asked for: resamples one by one with `early_stop`, else all in one call.

    With `early_stop` the issue is asked for when it comes to the revision, which may never be.
    """
    asks, config = fork.asks, fork.config
    every = range(config.resamples)
    for samples in ([sample] for sample in every) if config.early_stop else (every,):
        for candidate in await resample(fork.prompt, fork.rejected, asks, config, samples):
            yield candidate
    if config.guided_revision:
        issue = await whole_issue(fork) if config.early_stop else fork.issue
        yield await revise(fork.prompt, fork.rejected, issue, asks, config)


async def _first_to_pass(fork: Fork, rejected: SideScores) -> list[PreferencePair]:
    """Make and verify candidates one after the other, up to the first that passes."""
    records: list[PreferencePair] = []
    earlier: list[Candidate] = []
    async for candidate in candidates_of(fork):
        scored = await _score(fork, candidate, earlier, rejected)
        earlier.append(candidate)
        if isinstance(scored, PreferencePair):
            records.append(scored)
            continue
        finding = hold_by_itself(scored.check, fork.config)
        if finding.drop_reason is None:
            finding = await _confirm(fork, scored)
        records.append(fork.record(candidate, finding.drop_reason, finding.detail, finding.check))
        if finding.drop_reason is None:
            break
    return records


async def _best_to_pass(
    fork: Fork, candidates: Sequence[Candidate], rejected: SideScores
) -> list[PreferencePair]:
    """Drop, score, rank by evidence, and confirm from the best downwards until one passes."""
    records: list[PreferencePair] = []
    ranked: list[_Scored] = []
    for position, candidate in enumerate(candidates):
        scored = await _score(fork, candidate, candidates[:position], rejected)
        if isinstance(scored, PreferencePair):
            records.append(scored)
        else:
            ranked.append(scored)
    # Then the length nearest to the original's. The sort is stable.
    ranked.sort(key=lambda entry: (-entry.evidence, abs(entry.ratio - 1)))
    has_passed = False
    for entry in await _compare_best(fork, ranked):
        if has_passed:
            finding = CheckOutcome(entry.check, DropReason.NOT_BEST, "another candidate was taken")
        else:
            finding = await _confirm(fork, entry)
            has_passed = finding.drop_reason is None
        records.append(
            fork.record(entry.candidate, finding.drop_reason, finding.detail, finding.check)
        )
    return records


async def _compare_best(fork: Fork, ranked: list[_Scored]) -> list[_Scored]:
    """Return the candidates, the best two swapped where they are close and the judge prefers the second.

    Close are two whose evidence differs by no more than the position pulled either of their comparisons with the
    original: what was read of each does not tell them apart, and showing them side by side does.
    """
    if len(ranked) < 2:
        return ranked
    first, second = ranked[:2]
    pull = max(abs(pull_of(entry.check) or 0.0) for entry in (first, second))
    curve = fork.config.curve
    weight = 1.0 if curve is None else curve.preference_weight
    if first.evidence - second.evidence > weight * pull:
        return ranked
    best = replace(fork.sides(first.message), rejected=second.message)
    finding = await compare_orders(best, PairCheck(), fork.asks.judging, fork.config)
    preference = finding.check.preference
    is_worse = preference is not None and preference < 0
    return [second, first, *ranked[2:]] if is_worse else ranked


@dataclass(frozen=True, slots=True)
class _Scored:
    """A candidate whose readings speak for it."""

    candidate: Candidate
    message: Message
    ratio: float
    check: PairCheck

    @property
    def evidence(self) -> float:
        """Evidence that it is better than the original: log-odds, or the margin where there are letters only."""
        known = self.check.evidence
        return (self.check.margin or 0.0) if known is None else known


async def _score(
    fork: Fork, candidate: Candidate, earlier: Sequence[Candidate], rejected: SideScores
) -> _Scored | PreferencePair:
    """Return the candidate with the judge's readings, or the record that it is dropped."""
    message = candidate.message
    drop_reason, detail = unusable(fork.rejected, candidate, earlier)
    if drop_reason is not None or message is None:
        return fork.record(candidate, drop_reason, detail)
    sides, judging, config = fork.sides(message), fork.asks.judging, fork.config
    ratio = token_ratio(message, fork.rejected)
    finding = await check_specifics(sides, PairCheck(), judging, config)
    if finding.drop_reason is None:
        scores, finding = await score_chosen(sides, finding.check, judging, config)
        if scores is not None:
            finding = weigh(scores, rejected, ratio, config, finding.check)
    if finding.drop_reason is None:
        finding = await compare_orders(sides, finding.check, judging, config)
    if finding.drop_reason is None:
        finding = decide_check(finding.check, config)
    if finding.drop_reason is not None:
        return fork.record(candidate, finding.drop_reason, finding.detail, finding.check)
    return _Scored(candidate, message, ratio, finding.check)


async def _confirm(fork: Fork, entry: _Scored) -> CheckOutcome:
    """Check the role of both sides; with `at: earliest` also the candidate in the dialogue it repairs."""
    asks, config = fork.asks, fork.config
    sides = fork.sides(entry.message)
    finding = await check_role_and_facts(sides, entry.check, asks.judging, config)
    # What follows a corrected call is not known, so a turn that ends with one cannot be judged as a whole.
    if finding.drop_reason is not None or config.at != "earliest" or entry.message.tool_calls:
        return finding
    judged = await asks.rejudge(sides.parts[0])
    if isinstance(judged, Unscored):
        detail = f"judged with the repaired turn: {judged.reason} {judged.detail}".strip()
        return unscored_check(finding.check, judged.reason, detail)
    bad = [(turn, names) for turn, names in flaws_by_turn(judged, config).items() if names]
    check = finding.check.model_copy(update={"confirmed": not bad})
    if bad:
        turn, names = bad[0]
        detail = f"judged with the repaired turn, turn {turn} is bad in {', '.join(names)}"
        return CheckOutcome(check, DropReason.DOES_NOT_SUFFICE, detail)
    return CheckOutcome(check)


def unusable(
    original: Message, candidate: Candidate, earlier: Sequence[Candidate]
) -> tuple[DropReason | None, str]:
    """Return why a candidate is not looked at: it has no message, another's, or nothing new."""
    message = candidate.message
    if message is None:
        return candidate.drop_reason, candidate.detail
    for other in earlier:
        if other.message is not None and is_identical(message, other.message):
            return DropReason.DUPLICATE, f"the same text as {other.label}"
    finding = check_texts(message, original)
    if finding.drop_reason is None and original.tool_calls and same_calls(message, original):
        return DropReason.COSMETIC, "the same calls with the same arguments"
    return finding.drop_reason, finding.detail
