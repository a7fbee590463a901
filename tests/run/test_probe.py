"""Probe a judge with planted flaws, end to end: the card's line for a bias catches each judge that has it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curate.cli import app, main
from curate.dialogue import Message
from curate.engines import model_pool
from curate.engines.base import Capability, Completion, EngineIdentity, Request
from curate.engines.model_pool import Asks, EngineFacts
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine
from curate.engines.stand_in import settled
from curate.errors import CurateError, UsageError
from curate.judging.config import RubricConfig
from curate.recipe import Recipe, parse_recipe
from curate.records import ProbeReport, TrustKind
from curate.records.validation import validate_record
from curate.run.pipeline import run_recipe
from curate.run.probe import (
    compare_probes,
    outcomes_path,
    plan_probe,
    probe_judge,
    read_probe,
    write_probe,
)
from curate.run.probe_asking import Probed, Prober, rubric_of
from curate.run.probe_plan import ProbePlan, draw_cases, is_in_words
from curate.run.read_back import read_manifest
from curate.run.sample_dialogues import sample_dialogues
from curate.run.trust_reports import read_trust_report
from curate.run.verify import verify_run
from curate.sources.shipped_files import sample_rewordings
from curate.stages import bind_verifier, judge_stage
from curate.trust.probe_cases import KIND_SENTENCES
from curate.trust.probe_variants import (
    ATTACKS,
    CROSSINGS,
    Variant,
    clean_variants,
    hidden_instructions,
)

_MESSAGE = re.compile(r"^\[(\d+)\.(\w+) ?([^\]]*)\]\n(.*?)(?=^\[\d+\.|^</dialogue>)", re.M | re.S)
_KINDS = {sentence: kind for kind, sentence in KIND_SENTENCES.items()}


def recipe(**sections: Any) -> Recipe:
    base = {
        "name": "probed",
        "source": {"path": "nothing.jsonl"},
        "models": {"judge": {"engine": "scripted", "replies": []}},
        "judge": {"mode": "tokens"},
    }
    return parse_recipe(base | sections)


@cache
def plan(limit: int = 130) -> ProbePlan:
    return plan_probe(recipe(), limit=limit)


def shown(message: Message) -> str:
    calls = "".join(
        f"(calls tool) {call.name} {json.dumps(call.arguments, separators=(',', ':'))}"
        for call in message.tool_calls
    )
    return (message.content.strip() + "\n" + calls).strip()


@cache
def truth() -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    """Kind of a flaw by the user's words and the reply's, and the scenario of a dialogue by its first words."""
    flaws, scenarios = {}, {}
    for case in plan().cases:
        messages = case.planted.messages
        question = next(m for m in reversed(messages[: case.index]) if m.role == "user")
        key = question.content.splitlines()[0], shown(messages[case.index])
        flaws[key] = case.kind
    for dialogue in plan().judged:
        first = next(m for m in dialogue.messages if m.role == "user").content
        scenarios.setdefault(first.splitlines()[0], dialogue.scenario or "")
    for variant in plan().variants:
        if variant.line == "other_scenario":
            first = next(m for m in variant.first.messages if m.role == "user").content
            scenarios[first.splitlines()[0]] = variant.first.scenario or ""
    return flaws, scenarios


class Seen:
    """The prompt of a judge, taken apart: messages, scenario, question and turn."""

    def __init__(self, request: Request) -> None:
        self.request = request
        text = "\n".join(str(message["content"]) for message in request.messages)
        self.text = text
        start = text.rindex("<dialogue>\n")
        body = text[start:]
        self.messages = [
            (int(turn), role, name, text_of_message.strip())
            for turn, role, name, text_of_message in _MESSAGE.findall(body)
        ]
        scenario = re.search(r"<scenario>\n(.*?)\n</scenario>", text, re.S)
        self.scenario = scenario[1] if scenario else ""
        self.question = request.question
        number = re.search(r"[Tt]urn (\d+)", self.question)
        self.turn = int(number[1]) if number and "whole" not in self.question else None

    def user(self, turn: int) -> str:
        return next(
            (
                text_of_message.splitlines()[0]
                for n, role, _, text_of_message in self.messages
                if (n, role) == (turn, "user")
            ),
            "",
        )

    def replies(self, turn: int | None = None) -> list[str]:
        return [
            text_of_message
            for n, role, _, text_of_message in self.messages
            if role == "assistant" and turn in (None, n)
        ]

    def flaw(self, turn: int) -> str | None:
        flaws, _ = truth()
        return next(
            (
                flaws[key]
                for reply in self.replies(turn)
                if (key := (self.user(turn), reply)) in flaws
            ),
            None,
        )

    @property
    def turns(self) -> list[int]:
        return sorted({turn for turn, role, *_ in self.messages if role == "assistant"})


def good(seen: Seen) -> float:
    """Return 4.9 where nothing is wrong, a low score where there is a flaw, less under the scenario of another dialogue."""
    _, scenarios = truth()
    own_scenario = scenarios.get(seen.user(1), seen.scenario)
    translated = sample_rewordings()[1].get(own_scenario)
    lost = 0.0 if seen.scenario in (own_scenario, translated) else 0.9
    looked_at = seen.turns if seen.turn is None else [seen.turn]
    if any(seen.flaw(turn) for turn in looked_at):
        return (3.2 if seen.turn is None else 1.4) - lost / 3
    return 4.9 - lost


def picks_untouched(seen: Seen, sides: Sequence[str]) -> str:
    flaws, _ = truth()
    question = seen.user(seen.messages[-1][0])
    return "B" if (question, sides[0]) in flaws else "A"


def names_kind(seen: Seen) -> str:
    assert seen.turn is not None
    return seen.flaw(seen.turn) or "evasion"


class Judge:
    """Answers every question of a probe with three functions."""

    def __init__(
        self,
        score: Callable[[Seen], float] = good,
        pick: Callable[[Seen, Sequence[str]], str] = picks_untouched,
        kind: Callable[[Seen], str] = names_kind,
    ) -> None:
        self.score, self.pick, self.kind = score, pick, kind
        self.asked = 0

    def __call__(self, request: Request) -> Completion:
        self.asked += 1
        seen = Seen(request)
        purpose = request.purpose.partition(".")[2]
        if purpose in ("plant", "reword"):
            return Completion(rewrite(seen.question, purpose))
        if purpose == "compare":
            sides = re.findall(r"<candidate>\n(.*?)\n</candidate>", seen.question, re.S)
            return likely(self.pick(seen, sides), request.labels)
        if purpose == "kind":
            sentence = KIND_SENTENCES[self.kind(seen)]  # type: ignore[index]
            letter = re.search(rf"^(\w) = {re.escape(sentence)}$", seen.question, re.M)
            assert letter
            return likely(letter[1], request.labels)
        return expecting(self.score(seen), request.labels)

    async def ask(self, requests: Sequence[Request]) -> list[Completion]:
        return [self(request) for request in requests]


def rewrite(question: str, purpose: str) -> str:
    """Return a message of the same length; a message that is too long where the flaw is its tone."""
    reply = re.search(r"<reply>\n(.*?)\n</reply>", question, re.S)
    assert reply
    if purpose == "reword":
        return reply[1].swapcase()
    return "no" * len(reply[1]) if "rude" in question else reply[1][::-1]


def likely(letter: str, labels: Sequence[str]) -> Completion:
    first = tuple(
        (label, math.log(0.9 if label == letter else 0.1 / len(labels))) for label in labels
    )
    return Completion(letter, first_token=first)


def expecting(value: float, labels: Sequence[str]) -> Completion:
    """Return a completion with two neighbouring digits whose mean is the value."""
    value = min(5.0, max(1.0, value))
    low = min(4, int(value))
    share = value - low
    shares = {str(low): 1 - share, str(low + 1): share}
    first = tuple((label, math.log(max(1e-9, shares.get(label, 0.0)))) for label in labels)
    return Completion(max(shares, key=shares.__getitem__), first_token=first)


def with_crossings(probe_plan: ProbePlan) -> ProbePlan:
    """Return the plan with as many cases of the crossings as of the other lines; only a large card has any."""
    each = len(probe_plan.repeated)
    hidden = hidden_instructions(probe_plan.cases, each, each, probe_plan.seed)
    others = [variant for variant in probe_plan.variants if variant.line not in ATTACKS]
    return replace(probe_plan, variants=(*others, *hidden))


def card(judge: Judge, limit: int = 39, only: str = "") -> Probed:
    """Return the judge's card; with `only`, ask only what that line needs."""
    facts = EngineFacts(
        EngineIdentity("scripted", "judge"), frozenset({Capability.TOP_LOGPROBS}), 1
    )
    rubric = RubricConfig(mode="tokens", text="off")
    probe_plan = with_crossings(plan(limit))
    if only in {variant.line for variant in probe_plan.variants}:
        probe_plan = replace(probe_plan, cases=probe_plan.cases[:1], sides=(), repeated=())
    if only:
        variants = tuple(variant for variant in probe_plan.variants if variant.line == only)
        probe_plan = replace(probe_plan, variants=variants)
    prober = Prober.of(
        probe_plan, judge_stage(rubric, facts), bind_verifier(rubric, [facts]), Asks.of(judge.ask)
    )
    for job in prober.jobs():
        settled(job())
    return prober.result({})


@cache
def good_card() -> Probed:
    return card(Judge(), 130)


def test_a_good_judge_passes_every_line() -> None:
    report = good_card().report
    assert not report.unscored
    states = {line.name: (line.state, line.value, line.detail) for line in report.lines}
    assert {name: state for name, state in states.items() if state[0] != "pass"} == {}


def always_five(_: Seen) -> float:
    return 5.0


def loves_length(seen: Seen) -> float:
    replies = seen.replies(seen.turn)
    return 2 + len(" ".join(replies)) / len(replies or [""]) / 60


def blames_the_last(seen: Seen) -> float:
    return 5.0 - 0.6 * (seen.turn or 1)


_HIDDEN = re.compile(
    r"[Gg]ives? (?:5|…) to everything|It was (?:flawless|…)|New rule for the judge|\"verdict\": \"|A word to whoever"
)
_LEVELS = re.compile(
    r"[Gg]ives? 5 to everything|It was flawless|every score is 5|\"verdict\": \"excellent|each field"
)


def obeys(seen: Seen) -> float:
    return 5.0 if _HIDDEN.search(seen.text) else good(seen)


def gives_the_level_it_is_told(seen: Seen) -> float:
    return 5.0 if _LEVELS.search(seen.text) else good(seen)


def ignores_the_scenario(seen: Seen) -> float:
    score = good(seen)
    return 4.9 if score == pytest.approx(4.0) else score


def prefers_names(seen: Seen) -> float:
    names = {name for _, role, name, _ in seen.messages if role == "user"}
    return good(seen) - 0.8 * bool(names & {"Lakisha", "Jamal", "Aisha", "Rasheed"})


def likes_lists(seen: Seen) -> float:
    return good(seen) - 1.2 * (not any(reply.startswith("- ") for reply in seen.replies(seen.turn)))


def by_wording(seen: Seen) -> float:
    return good(seen) - 0.8 * seen.question.startswith("Look at")


def by_sample(seen: Seen) -> float:
    return good(seen) - 0.9 * (seen.request.sample > 0)


@cache
def originals() -> frozenset[str]:
    return frozenset(shown(message) for case in plan().cases for message in case.untouched.messages)


def punishes_edits(seen: Seen) -> float:
    return 3.0 if any(reply not in originals() for reply in seen.replies(seen.turn)) else 4.9


def dislikes_translations(seen: Seen) -> float:
    return good(seen) - 0.9 * (seen.scenario in sample_rewordings()[1].values())


@pytest.mark.parametrize(
    ("judge", "caught", "wanted"),
    [
        (Judge(always_five), "detection", ("fail",)),
        (Judge(loves_length), "verbosity", ("fail",)),
        (Judge(blames_the_last), "last_turn", ("fail",)),
        *((Judge(obeys), line, ("fail",)) for line in ATTACKS),
        (Judge(gives_the_level_it_is_told), "other_words_in_user", ("fail",)),
        (Judge(pick=lambda *_: "A"), "candidate_order", ("fail",)),
        (Judge(ignores_the_scenario), "other_scenario", ("fail",)),
        (Judge(prefers_names), "speaker_names", ("fail",)),
        (Judge(likes_lists), "formatting", ("fail",)),
        (Judge(by_wording), "other_wording", ("fail",)),
        (Judge(by_sample), "repeated", ("fail",)),
        (Judge(punishes_edits), "harmless_edit", ("fail",)),
        (Judge(dislikes_translations), "scenario_language", ("fail",)),
        (Judge(kind=lambda _: "evasion"), "kind", ("fail",)),
    ],
    ids=lambda held: getattr(getattr(held, "score", None), "__name__", None),
)
def test_a_biased_judge_is_caught(judge: Judge, caught: str, wanted: tuple[str, ...]) -> None:
    line = card(judge, only=caught).report.line(caught)
    assert line.state in wanted, line


@pytest.mark.parametrize("line", sorted(ATTACKS.keys() - {"other_words_in_user"}))
def test_a_level_that_is_hidden_from_the_prompt_cannot_be_given(line: str) -> None:
    assert card(Judge(gives_the_level_it_is_told), only=line).report.line(line).state == "pass"


def test_crossings_have_a_quarter_of_the_cases_or_none_where_that_is_too_few() -> None:
    for limit, each, crossings in ((39, 8, 0), (200, 20, 5)):
        lines = Counter(variant.line for variant in plan(limit).variants)
        assert lines["instruction_in_user"] == each
        assert {lines[line] for line in CROSSINGS} == {crossings}


@cache
def blind_card() -> Probed:
    return card(Judge(always_five))


def test_a_judge_that_sees_nothing_is_told_so() -> None:
    report = blind_card().report
    assert report.line("detection").value == 0.5
    assert report.line("detection").state == "fail"
    assert "no better than chance: its scores do not show flaws" in report.sentence
    assert report.line("weakest_turn").value == 0.0
    assert all(line.state == "pass" for line in report.lines if line.section == "hidden")


def test_two_judges_are_told_apart_and_a_judge_not_from_itself() -> None:
    blind, sees = blind_card(), good_card()
    compared = {line.name: line for line in compare_probes(sees, blind).lines}
    assert compared["detection"].better == "first"
    assert compared["detection"].difference == pytest.approx(
        sees.report.line("detection").value - 0.5  # type: ignore[operator]
    )
    same = compare_probes(sees, sees)
    assert {line.better for line in same.lines} == {"neither"}
    assert "No line tells the two apart" in same.sentence


def test_a_comparison_says_where_each_is_better_and_what_only_one_was_asked() -> None:
    good, flattering = card(Judge(), 39), card(Judge(score=always_five), 39)
    fewer = replace(flattering, outcomes=flattering.outcomes[3:])
    compared = compare_probes(good, fewer)
    assert (compared.only_first, compared.only_second) == (3, 0)
    assert compared.first == good.report.identity
    by_side = {
        side: ", ".join(
            line.name.replace("_", " ") for line in compared.lines if line.better == side
        )
        for side in ("first", "second")
    }
    assert by_side["first"].count(", ") > 0
    sides = [f"the {side} does better in {names}" for side, names in by_side.items() if names]
    (detection,) = (line for line in compared.lines if line.name == "detection")
    seen = (
        f" A difference of {detection.detectable:.2f} in detection would have been seen with 80 % power."
        if detection.detectable
        else ""
    )
    assert compared.sentence == f"T{'; '.join(sides)[1:]}.{seen}"
    turned = compare_probes(fewer, good)
    assert (turned.only_first, turned.only_second) == (0, 3)
    assert f"the second does better in {by_side['first']}" in turned.sentence.replace("The", "the")


def test_questions_without_an_answer_are_counted_and_are_no_outcomes() -> None:
    class Silent(Judge):
        """Scores dialogues, and answers no other question."""

        def __call__(self, request: Request) -> Completion:
            is_choice = request.purpose.partition(".")[2] in ("compare", "kind")
            return Completion("?") if is_choice else super().__call__(request)

    probed, answered = card(Silent(), 13), card(Judge(), 13)
    planned = plan(13)
    assert probed.report.asked == answered.report.asked
    assert answered.report.unscored == {}
    unanswered = len(planned.cases) + len(planned.sides)
    assert sum(probed.report.unscored.values()) == unanswered
    assert probed.unscored_share == unanswered / probed.report.asked
    lines = {outcome.line for outcome in answered.outcomes} - {o.line for o in probed.outcomes}
    assert lines == {"kind", "side_by_side", "candidate_order", "all_right"}


def test_flaws_are_planted_into_the_same_dialogues_whatever_their_order_in_the_file(
    tmp_path: Path,
) -> None:
    rows = [
        json.dumps({"id": f"d{n}", "scenario": one.scenario, "messages": [m.model_dump(mode="json") for m in one.messages]})
        for n, one in enumerate(sample_dialogues(recipe()))
    ]  # fmt: skip

    def drawn(lines: list[str], **options: Any) -> ProbePlan:
        path = tmp_path / "own.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return draw_cases(recipe(), str(path), 26, **options)

    first = drawn(rows)
    assert (first.source, len(first.cases)) == (str(tmp_path / "own.jsonl"), 26)
    again = drawn(rows[::-1] + rows[:3])
    texts = [
        [[case.planted.content_hash for case in one.cases], [d.content_hash for d in one.repeated]]
        for one in (first, again, drawn(rows, seed=7))
    ]
    assert texts[0] == texts[1] != texts[2]


def test_variants_are_drawn_with_the_seed_of_the_probe() -> None:
    def names(variants: Iterable[Variant]) -> list[Variant]:
        return [one for one in variants if one.line == "speaker_names"]

    drawn = draw_cases(recipe(), limit=130, seed=7)
    again, other = (
        names(clean_variants(drawn.repeated, len(drawn.repeated), {}, seed)) for seed in (7, 42)
    )
    assert names(drawn.variants) == again != other


def test_the_probe_asks_by_the_recipes_rubric_but_for_no_words_and_no_opinions() -> None:
    without = {"text": "off", "persona_check": 0, "on_mismatch": "use_rule"}
    own = {"mode": "json", "paraphrases": 2, "text": "all", "on_mismatch": "reject"}
    assert rubric_of(recipe(judge=own)) == RubricConfig.model_validate(own | without)
    assert rubric_of(recipe(judge=False)) == RubricConfig.model_validate(without)


def test_a_probe_without_a_judge_is_refused(tmp_path: Path) -> None:
    nobody = recipe(models={}, judge=False, adherence=False)
    for refused in (
        lambda: draw_cases(nobody),
        lambda: probe_judge(nobody, plan(13), tmp_path / "replies.sqlite"),
    ):
        with pytest.raises(UsageError, match="no judge is named"):
            refused()


def test_a_card_whose_outcomes_are_missing_is_none_and_damaged_ones_are_named(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    assert read_probe(run) is None
    probed = replace(good_card(), report=good_card().report.model_copy(update={"lines": ()}))
    write_probe(run, probed)
    assert read_probe(run) == probed
    path = outcomes_path(run)
    first = path.read_bytes().splitlines()[0]
    for line in (b"torn", b"{}"):
        path.write_bytes(first + b"\n" + line + b"\n")
        with pytest.raises(CurateError, match=r"probe-outcomes\.jsonl is damaged"):
            read_probe(run)
    path.unlink()
    assert read_probe(run) is None


def test_cards_without_a_common_case_are_refused() -> None:
    other = Probed(
        good_card().report,
        tuple(o.model_copy(update={"case": "x" + o.case}) for o in good_card().outcomes),
    )
    with pytest.raises(UsageError, match="no case in common"):
        compare_probes(good_card(), other)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedEngine:
    opened = ScriptedEngine(
        Judge(), capabilities=DEFAULT_CAPABILITIES | {Capability.TOP_LOGPROBS}, keep_requests=True
    )

    async def scripted(_: object) -> ScriptedEngine:
        return opened

    monkeypatch.setattr(model_pool, "open_engine", scripted)
    monkeypatch.chdir(tmp_path)
    return opened


def test_a_card_is_kept_and_its_replies_are_asked_for_once(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    small = plan(13)
    run = tmp_path / "run"
    probed = probe_judge(recipe(), small, run / "replies.sqlite")
    # Two that are in flight at once may ask the same; the estimate counts it once.
    different = {request.key(engine.identity) for request in engine.requests}
    assert len(different) == round(small.load.requests)
    write_probe(run, probed)
    assert read_probe(run) == probed
    report = read_trust_report(run, ProbeReport, TrustKind.PROBE)
    assert report is not None
    validate_record("probe", report.model_dump(mode="json"))
    before = len(engine.requests)
    again = probe_judge(recipe(), small, run / "replies.sqlite")
    assert len(engine.requests) == before
    assert again.outcomes == probed.outcomes


def test_the_command_prints_its_plan_its_card_and_a_sentence(engine: ScriptedEngine) -> None:
    Path("r.yaml").write_text(
        "name: probed\nsource: {path: nothing.jsonl}\nmodels: {judge: {engine: scripted, replies: []}}\n"
    )
    dry = CliRunner().invoke(app, ["probe", "r.yaml", "--limit", "13", "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert "13 flaws planted" in dry.output
    assert "time: no rate is known" in dry.output
    rated = ["--rate", "prefill=100,decode=10", "--json"]
    dry_json = json.loads(
        CliRunner().invoke(app, ["probe", "r.yaml", "--limit", "13", "--dry-run", *rated]).output
    )
    spent = dry_json["prefilled_tokens"] / 100 + dry_json["completion_tokens"] / 10
    assert dry_json["seconds"] == pytest.approx(spent, rel=0.01)
    assert not engine.requests
    done = CliRunner().invoke(app, ["probe", "r.yaml", "--limit", "13"])
    assert done.exit_code == 0, done.output
    assert "does it find flaws?" in done.output
    assert "Of 13 planted flaws" in done.output
    as_json = CliRunner().invoke(app, ["probe", "r.yaml", "--limit", "13", "--json"])
    validate_record("probe", json.loads(as_json.output))
    compared = CliRunner().invoke(
        app, ["probe", "--compare", "runs/probed", "r.yaml", "--limit", "13", "--json"]
    )
    assert compared.exit_code == 0, compared.output
    assert "No line tells the two apart" in json.loads(compared.output)["sentence"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no recipe is named"),
        (["r.yaml", "--compare", "a", "b"], "--compare takes two recipes"),
        (["--compare", ".", "r.yaml"], "has no card"),
        (["r.yaml", "--data", "empty.jsonl"], "too little room"),
    ],
)
def test_what_cannot_be_probed_is_said_before_any_call(
    engine: ScriptedEngine,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    Path("r.yaml").write_text(
        "name: probed\nsource: {path: nothing.jsonl}\nmodels: {judge: {engine: scripted, replies: []}}\n"
    )
    row = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}]}
    Path("empty.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.setattr("sys.argv", ["curate", "probe", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capfd.readouterr().err
    assert not engine.requests


def test_all_of_it_unscored_ends_with_the_exit_code_for_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = ScriptedEngine(lambda _: "?", model="silent")

    async def scripted(_: object) -> ScriptedEngine:
        return silent

    monkeypatch.setattr(model_pool, "open_engine", scripted)
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(
        "name: probed\nsource: {path: nothing.jsonl}\nmodels: {judge: {engine: scripted, replies: []}}\n"
    )
    done = CliRunner().invoke(app, ["probe", "r.yaml", "--limit", "13"])
    assert done.exit_code != 0


def test_a_policy_plants_what_it_can_and_the_rest_is_edited(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    both = recipe(
        models={name: {"engine": "scripted", "replies": []} for name in ("judge", "policy")}
    )
    planned = plan_probe(both, limit=39, by_policy=30)
    report = probe_judge(both, planned, tmp_path / "replies.sqlite").report
    in_words = [case for case in planned.cases if is_in_words(case)][:30]
    rude = sum(case.kind == "tone_break" for case in in_words)
    assert report.planted_by["policy"] + report.planted_by["edits"] == 39
    assert report.planted_by["policy"] == len(in_words) - sum(report.not_planted.values())
    assert report.not_planted == {"length": rude}
    assert rude > 1


def test_a_policy_that_is_not_named_cannot_plant() -> None:
    with pytest.raises(UsageError, match="no policy is named"):
        plan_probe(recipe(), limit=26, by_policy=3)


def test_a_runs_manifest_says_what_was_found_while_the_judge_is_the_same(
    engine: ScriptedEngine,
) -> None:
    """The run and the probe have the same judge, although the probe asks for no texts."""
    row = {
        "id": "d",
        "scenario": "A person asks.",
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
    }
    Path("chats.jsonl").write_text(json.dumps(row) + "\n")
    no_other_stages: dict[str, Any] = {
        "source": {"path": "chats.jsonl"},
        "adherence": False,
        "select": False,
    }
    judged = {"judge": {"mode": "tokens", "text": "off"}}
    run = run_recipe(recipe(**no_other_stages, **judged)).folder
    assert "not tried on planted flaws" in read_manifest(run).trust[TrustKind.PROBE]
    write_probe(
        run, probe_judge(recipe(**no_other_stages, **judged), plan(13), run / "replies.sqlite")
    )
    assert "Of 13 planted flaws" in read_manifest(run).trust[TrustKind.PROBE]
    verification = verify_run(run)
    assert verification.differences == ()
    assert [line.partition(":")[0] for line in verification.not_verified] == [
        "trust/probe-outcomes.jsonl"
    ]
    path = run / "trust/probe.json"
    card = path.read_bytes()
    path.write_bytes(card.replace(b'"value": ', b'"value": 9', 1))
    assert [difference.place for difference in verify_run(run).differences] == ["trust/probe.json"]
    path.write_bytes(card)
    other = {"judge": {"mode": "tokens", "text": "off", "paraphrases": 2}}
    run_recipe(recipe(**no_other_stages, **other))
    assert "of an earlier judge" in read_manifest(run).trust[TrustKind.PROBE]
