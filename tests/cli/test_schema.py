"""The published schemas say what the models say, and what is read back is held against them."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

import curate
from curate.cli.schema import json_schema, schema_names
from curate.dialogue import Dialogue, Lineage, Message, ToolCall
from curate.errors import CurateError, UsageError
from curate.records import (
    AdherenceScore,
    AdherenceTurn,
    Agreement,
    AuditCheck,
    AuditReport,
    Calibration,
    CallComparison,
    CallMatch,
    CascadeFit,
    Certificate,
    CertifiedSet,
    ConversationLevel,
    ConversationScore,
    CutPoints,
    Decision,
    DimensionAgreement,
    Draw,
    DrawStratum,
    FactualClaim,
    FactualityScore,
    Figure,
    GoodModel,
    JudgeIdentity,
    Judgment,
    KindFigures,
    LabelCounts,
    LabelReading,
    Manifest,
    MetricScore,
    MetricsScore,
    PairCheck,
    PreferencePair,
    ProbeLine,
    ProbeOutcome,
    ProbeReport,
    QuarantinedRow,
    ReviewAnswer,
    RubricScores,
    StageCounts,
    ThresholdStep,
    TurnClaims,
    TurnScores,
    Unscored,
    UnscoredTurn,
)
from curate.records.agreement import AgreementGate, CorrectedShare, LevelFigures
from curate.records.validation import RECORDS, load_record, validate_record
from tests.pairs.scripted import PAIR_CURVE

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_schemas.py"

IDENTITY = JudgeIdentity(engine="scripted", model="m", sampling={"temperature": 0.0})
USER = Message(role="user", content="Hi")
SAID = Message(role="assistant", content="Hello", reasoning="greet", name="desk")
CALLED = Message(
    role="assistant",
    tool_calls=(
        ToolCall(name="f", arguments={"x": [1, None]}, id="1"),
        ToolCall(name="g", arguments="{"),
    ),
)
LINEAGE = Lineage(source="s", file="f", rows=(1, 2), part="chosen")
READING = LabelReading(mean=3.5, spread=0.5, coverage=0.9, probabilities={"3": 0.5, "4": 0.5})

EXAMPLES: dict[str, BaseModel] = {
    "review-answer": ReviewAnswer(
        id="a",
        content="0" * 32,
        dimension="accept",
        value="reject",
        rater="ann",
        time="2026-11-20T10:00:00Z",
    ),
    "probe": ProbeReport(
        sentence="The judge sees planted flaws.",
        made="2026-11-20T10:00:00+00:00",
        fingerprints={"judge": "f1"},
        identity=IDENTITY,
        source="the sample",
        seed=42,
        cases=312,
        dialogues=32,
        kinds={"evasion": 24},
        planted_by={"edit": 312},
        changed=0.5,
        asked=900,
        lines=(
            ProbeLine(
                name="detection",
                section="finding",
                unit="share",
                meaning="the untouched twin has the higher score",
                state="pass",
                n=312,
                value=0.8,
                interval=(0.7, 0.9),
                against=0.5,
            ),
        ),
    ),
    "probe-outcome": ProbeOutcome(line="detection", case="c", group="0", value=1.0, against=0.5),
    "dialogue": Dialogue(
        id="a",
        messages=(USER, CALLED, Message(role="tool", content="1", tool_call_id="1"), SAID),
        tools=({"type": "function", "function": {"name": "f"}},),
        references=(("Hello there",), ()),
        reward=0.5,
        labels={"k": [1, {}]},
        lineage=LINEAGE,
    ),
    "judgment": Judgment(
        dialogue_id="a",
        content_hash="0",
        identity=IDENTITY,
        per_turn=(
            TurnScores(
                turn=1,
                scores=RubricScores(context_use=5, helpfulness=1, safety=5),
                issues=("curt",),
                readings={"safety": READING},
            ),
        ),
        conversation_level=ConversationLevel(
            coherence=ConversationScore(score=4, note="fine", reading=READING),
            task_completion=ConversationScore(score="n/a"),
            repair_handling=ConversationScore(score=1),
        ),
        verdict="poor",
        weakest_turn=None,
        unscored_turns=(UnscoredTurn(turn=2, reason="bad_reply"),),
    ),
    "adherence": AdherenceScore(
        dialogue_id="a",
        content_hash="0",
        identity=IDENTITY,
        scoring_method="llm_judge",
        output_mode="continuous",
        evaluation_granularity="turn",
        definition="constructive",
        per_turn=(AdherenceTurn(turn=0, score=0.5), AdherenceTurn(turn=1, unscored="low_coverage")),
        session_score=0.5,
        interval=(0.1, 0.9),
        interval_method="wilson",
        adherent=True,
    ),
    "calibration": Calibration(
        kind="calibration",
        identity=IDENTITY,
        levels={"coherence": CutPoints(cuts=(1.0, 3.5, 3.5, 6.0), method="kappa", na_cut=0.4)},
        good=GoodModel(
            features=("coherence",),
            means=(4.0,),
            scales=(0.5,),
            weights=(1.0,),
            intercept=0.1,
            labels=20,
            good=10,
            brier=0.2,
            brier_without=0.25,
        ),
    ),
    "pair-curve": PAIR_CURVE.model_copy(
        update={"kinds": {"evasion": KindFigures(pairs=6, accepted=5, accepted_wrong=0)}}
    ),
    "metrics": MetricsScore(
        dialogue_id="a",
        content_hash="0",
        identity=IDENTITY,
        metrics=(
            MetricScore(
                name="tool_routing",
                tier="execution",
                scale="scored",
                weight=0.6,
                share=1.0,
                score=2,
                failure_code="wrong_tool",
                turns=(1,),
                reading=READING,
            ),
            MetricScore(
                name="task_completion",
                tier="execution",
                scale="binary",
                weight=0.4,
                share=0.0,
                score=None,
                na="judge",
                flags=("turns_dropped",),
            ),
        ),
        overall_score=40.0,
        pass_threshold=75.0,
        passed=False,
        weights_key="0",
        overall_range=(40.0, 40.0),
        calls=CallComparison(
            expected=1,
            made=1,
            matches=(CallMatch(name="f", expected=1, made=1, turn=1, different=("id",)),),
            in_order=True,
        ),
    ),
    "factuality": FactualityScore(
        dialogue_id="a",
        content_hash="0",
        identity=IDENTITY,
        per_turn=(
            TurnClaims(
                turn=1,
                claims=(
                    FactualClaim(words="in Bonn", label="true", evidence="document"),
                    FactualClaim(words="lovely", label="not_factual"),
                ),
                precision=1.0,
            ),
        ),
        precision=1.0,
    ),
    "audit": AuditReport(
        sentence="The audit found nothing.",
        made="2026-11-20T10:00:00+00:00",
        fingerprints={"judge": "f1"},
        checks=(
            AuditCheck(
                part="weakest turns",
                name="last",
                status="warn",
                figure=0.4,
                interval=(0.3, 0.5),
                threshold=0.15,
                n=40,
                detail="the weakest turn is the last",
                behind=1,
                ids=("a",),
            ),
        ),
        weakest_fifths=(0.1, 0.1, 0.1, 0.1, 0.6),
    ),
    "certificate": Certificate(
        kind="certificate",
        sentence="With 90 % confidence at most 10 % are bad.",
        made="2026-01-01T00:00:00+00:00",
        fingerprints={"judge": "0"},
        issued=True,
        run="r",
        test="threshold",
        bad="human < 3",
        risk=0.1,
        confidence=0.9,
        certified=CertifiedSet(
            of="scored",
            rule="mean_score >= 3.5",
            column="mean_score",
            threshold=3.5,
            size=9,
            fingerprint="0",
        ),
        labels=LabelCounts(origin="draw", draw="d", drawn=60, labelled=60, bad=1),
        p_value=0.01,
        bound=0.06,
        steps=(
            ThresholdStep(threshold=3.5, kept=9, labelled=60, bad=1, p_value=0.01, passed=True),
        ),
        identities={"judge": IDENTITY},
        source="0",
    ),
    "draw": Draw(
        id="d",
        made="2026-01-01T00:00:00+00:00",
        run="r",
        purpose="certify",
        of="sft",
        seed=42,
        strata=(DrawStratum(name="all", size=9, drawn=3),),
        sizes=(3,),
    ),
    "decision": Decision(dialogue_id="a", content_hash="0", sets=("sft",), reasons=("short",)),
    "preference-pair": PreferencePair(
        pair_id="p",
        dialogue_id="a",
        content_hash="0",
        source="natural",
        basis="rank",
        prompt=(USER,),
        chosen=None,
        rejected=SAID,
        check=PairCheck(margin=1.0),
        lineage=LINEAGE,
    ),
    "cascade-fit": CascadeFit(
        made="2026-01-01T00:00:00+00:00",
        judges=(IDENTITY, IDENTITY),
        doubt="spread",
        threshold=0.3,
        truth="second judge",
        risk=0.1,
        confidence=0.9,
        dialogues=100,
        kept=60,
        lost=2,
        lost_at_most=0.06,
        labelled=("0",),
        sentence="Up to a doubt of 0.30 the first judge decides.",
    ),
    "unscored": Unscored(dialogue_id="a", content_hash="0", stage="judge", reason="bad_reply"),
    "quarantine": QuarantinedRow(source="s", file="f", row=1, reason="broken_json", raw='{"'),
    "manifest": Manifest(
        name="r",
        status="done",
        started="2026-01-01T00:00:00+00:00",
        identities={"judge": IDENTITY},
        stages={"judge": StageCounts(rows=1)},
    ),
    "agreement": Agreement(
        sentence="The judge is shown to agree with people on coherence.",
        made="2026-01-01T00:00:00+00:00",
        fingerprints={"judge": "f"},
        gold="gold.csv",
        rows=120,
        dimensions={
            "coherence": DimensionAgreement(
                labels=120,
                dialogues=110,
                scale="1-5",
                compared="digits",
                levels=LevelFigures(
                    kappa=Figure(value=0.7, interval=(0.6, 0.8)),
                    agreement=Figure(value=0.5),
                    within_one=Figure(),
                    bias=Figure(value=-0.25),
                ),
                spearman=Figure(value=0.7),
                kendall=Figure(value=0.6),
                level_names=("no", "yes"),
                confusion=((50, 10), (20, 40)),
                gate=AgreementGate(state="pass", lower=0.62, upper=0.78, goes_by="levels"),
            )
        },
        shares=(
            CorrectedShare(
                name="good dialogues",
                reported=0.8,
                of=100,
                people_yes=20,
                people_no=0,
                people_share=1.0,
                people_interval=(0.8, 1.0),
                refused="why",
            ),
        ),
    ),
}


OPEN = frozenset({"review-answer"})
"""Records that people's files hold, whose further columns are left alone."""


def decoded(record: BaseModel, **options: Any) -> Any:
    return orjson.loads(record.model_dump_json(**options))


def test_every_record_has_an_example_here() -> None:
    assert EXAMPLES.keys() == RECORDS.keys()
    assert {name: type(record) for name, record in EXAMPLES.items()} == RECORDS


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_is_valid_and_says_what_it_is(name: str) -> None:
    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:curate-dialogues:{curate.__version__}:schema:{name}"
    assert schema["title"] == name
    assert schema["description"]
    assert schema.get("additionalProperties") is (None if name in OPEN else False)


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_written_is_read_back_as_the_same_record(name: str) -> None:
    record = EXAMPLES[name]
    assert load_record(RECORDS[name], decoded(record)) == record
    assert load_record(RECORDS[name], decoded(record, exclude_defaults=True)) == record


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in OPEN])
def test_an_unknown_key_is_refused(name: str) -> None:
    with pytest.raises(CurateError, match="surprise"):
        validate_record(name, decoded(EXAMPLES[name]) | {"surprise": 1})


@pytest.mark.parametrize(
    ("name", "change", "place"),
    [
        ("dialogue", {"messages": [{"role": "bot", "content": ""}]}, "messages.0.role"),
        ("dialogue", {"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ("judgment", {"verdict": "superb"}, "verdict"),
        ("adherence", {"session_score": 1.5}, "session_score"),
        ("adherence", {"interval": [0.1]}, "interval"),
        ("metrics", {"overall_score": 101}, "overall_score"),
        ("factuality", {"precision": "high"}, "precision"),
        ("decision", {"sets": ["train"]}, "sets.0"),
        ("preference-pair", {"rejected": None}, "rejected"),
        ("manifest", {"status": "fine"}, "status"),
        ("unscored", {"reason": 3}, "reason"),
    ],
)
def test_the_error_names_the_place(name: str, change: dict[str, Any], place: str) -> None:
    with pytest.raises(CurateError) as caught:
        load_record(RECORDS[name], decoded(EXAMPLES[name]) | change)
    assert f"a stored {name} record does not match its schema" in str(caught.value)
    assert str(caught.value.got).startswith(f"at {place}: ")


def test_a_score_out_of_range_is_refused_where_it_stands() -> None:
    value = decoded(EXAMPLES["judgment"])
    value["per_turn"][0]["scores"]["helpfulness"] = 0
    with pytest.raises(CurateError, match=r"at per_turn\.0\.scores\.helpfulness: "):
        validate_record("judgment", value)


@pytest.mark.parametrize("value", [None, [], "text", 3, {}])
def test_what_is_no_record_at_all_is_refused(value: Any) -> None:
    for name in RECORDS:
        with pytest.raises(CurateError, match="does not match its schema"):
            validate_record(name, value)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="curate schema judgment"):
        json_schema("judgement")
    with pytest.raises(UsageError, match="no such record"):
        validate_record("judgement", {})


def test_the_published_schemas_have_not_drifted() -> None:
    command = [sys.executable, str(SCRIPT), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


def test_drift_is_found_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]

    def make_schemas(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--folder", str(tmp_path), *arguments])
        return int(main())

    assert make_schemas("--check") == 1
    assert make_schemas() == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{n}.schema.json" for n in schema_names()
    }
    assert make_schemas("--check") == 0
    changed = tmp_path / "dialogue.schema.json"
    changed.write_text(changed.read_text().replace('"id"', '"name"', 1))
    (tmp_path / "old.schema.json").write_text("{}")
    capsys.readouterr()
    assert make_schemas("--check") == 1
    printed = capsys.readouterr().out
    assert "dialogue.schema.json" in printed
    assert "old.schema.json" in printed
    make_schemas()
    assert not (tmp_path / "old.schema.json").exists()
