"""What `check` finds without any trainer: each planted defect, in any kind of file, and what the command says."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from curate.cli import app, main
from curate.errors import SourceError, UsageError
from curate.export.trainers import Trainer
from curate.trainer_check.check import STAGES, TRAINERS, check_path
from curate.trainer_check.data_files import _json_rows
from curate.trainer_check.findings import ADVICE, EFFECTS, FileReport
from tests.growth import lines_run
from tests.trainer_check import planted as p
from tests.trainer_check.asking import PLAIN, tokenizer_folder, write_rows
from tests.trainer_check.planted import Planted, Row, message

CASES: list[tuple[Trainer, str, Row, Row | None, Planted]] = [
    *(("trl", "dpo", p.TRL_DPO, None, case) for case in p.TRL_DPO_PLANTED),
    *(("trl", "reward", p.TRL_DPO, None, case) for case in p.TRL_REWARD_PLANTED),
    *(("trl", "sft", p.TRL_SFT, None, case) for case in p.TRL_SFT_PLANTED),
    *(("trl", "sft", p.TRL_COMPLETION, None, case) for case in p.TRL_COMPLETION_PLANTED),
    *(("trl", "kto", p.TRL_KTO, None, case) for case in p.TRL_KTO_PLANTED),
    *(("axolotl", "dpo", p.AXOLOTL_DPO, None, case) for case in p.AXOLOTL_DPO_PLANTED),
    *(("axolotl", "sft", p.AXOLOTL_SFT, None, case) for case in p.AXOLOTL_SFT_PLANTED),
    *(
        ("llamafactory", "dpo", p.LLAMAFACTORY_DPO, p.LLAMAFACTORY_INFO, case)
        for case in p.LLAMAFACTORY_DPO_PLANTED
    ),
    *(
        ("llamafactory", "sft", p.LLAMAFACTORY_SFT, p.LLAMAFACTORY_SFT_INFO, case)
        for case in p.LLAMAFACTORY_SFT_PLANTED
    ),
    *(("swift", "dpo", p.SWIFT_DPO, None, case) for case in p.SWIFT_DPO_PLANTED),
    *(("swift", "dpo", p.SWIFT_RESPONSE, None, case) for case in p.SWIFT_RESPONSE_PLANTED),
    *(("swift", "sft", p.SWIFT_SFT, None, case) for case in p.SWIFT_SFT_PLANTED),
    *(("openrlhf", "dpo", p.OPENRLHF_DPO, None, case) for case in p.OPENRLHF_DPO_PLANTED),
    *(("openrlhf", "dpo", p.OPENRLHF_WHOLE, None, case) for case in p.OPENRLHF_WHOLE_PLANTED),
    *(("openrlhf", "sft", p.OPENRLHF_SFT, None, case) for case in p.OPENRLHF_SFT_PLANTED),
    *(("openai", "dpo", p.OPENAI_DPO, None, case) for case in p.OPENAI_DPO_PLANTED),
    *(("openai", "sft", p.OPENAI_SFT, None, case) for case in p.OPENAI_SFT_PLANTED),
]
NEEDS_TOKENIZER = {"prompt_too_long", "too_long", "template_fails"}
REPLAYED = {"answer_changed"}
"""Codes that only the trainer's own code shows; `make test-trainers` runs it."""
STATED = [case for case in CASES if case[-1].code not in REPLAYED]


def only(path: Path, trainer: Trainer, **options: Any) -> FileReport:
    [report] = check_path(path, trainer, **options).files
    return report


@pytest.mark.parametrize(
    ("trainer", "stage", "good", "info", "case"),
    CASES,
    ids=[f"{trainer}-{stage}-{case.name}" for trainer, stage, _, _, case in CASES],
)
def test_a_planted_row_and_no_other_is_found(
    trainer: Trainer, stage: str, good: Row, info: Row | None, case: Planted, tmp_path: Path
) -> None:
    """Without a tokenizer: what shows only when a row is rendered is passed over, and nothing else."""
    path = write_rows(tmp_path, case.rows(good), info)
    report = only(path, trainer, stage=None if trainer == "llamafactory" else stage)
    found = {(f.code, f.effect) for f in report.findings if f.row == 1}
    others = [f for f in report.findings if f.row != 1 and f.effect != "noted"]
    assert [f.code for f in others] in ([], ["too_few_rows"])
    rendered = case.code in {*NEEDS_TOKENIZER, *REPLAYED} or case.name == "calls not carried"
    assert ((case.code, case.effect) in found) is not rendered
    assert report.stage == stage
    assert report.rows == sum(report.effects.values()) == 3


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers", reason="needs the dependency group 'trainers'")
    return tokenizer_folder(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.mark.parametrize(
    ("trainer", "stage", "good", "info", "case"),
    STATED,
    ids=[f"{trainer}-{stage}-{case.name}" for trainer, stage, _, _, case in STATED],
)
def test_a_planted_row_is_found_when_rendered(
    trainer: Trainer,
    stage: str,
    good: Row,
    info: Row | None,
    case: Planted,
    plain: str,
    tmp_path: Path,
) -> None:
    path = write_rows(tmp_path, case.rows(good), info)
    report = only(
        path,
        trainer,
        stage=None if trainer == "llamafactory" else stage,
        tokenizer=plain,
        max_length=case.limit,
        through="restated",
    )
    assert (case.code, case.effect, 1) in {(f.code, f.effect, f.row) for f in report.findings}
    others = [f for f in report.findings if f.row != 1 and f.effect != "noted"]
    assert [f.code for f in others] in ([], ["too_few_rows"])
    assert report.replay is None


EMPTY_USERS: list[tuple[Trainer, Row]] = [
    *((trainer, {"messages": [message("user", " "), p.YES]}) for trainer in TRAINERS),
    ("trl", {**p.TRL_DPO, "prompt": [p.ASK, p.YES, message("user", "")]}),
    ("axolotl", {**p.AXOLOTL_DPO, "messages": [message("user", None)]}),
    ("swift", {**p.SWIFT_DPO, "rejected_messages": [message("user", "\n"), p.NO]}),
    ("openrlhf", {"chosen": [message("user", ""), p.YES], "rejected": [p.ASK, p.NO]}),
    ("openai", {**p.OPENAI_DPO, "input": {"messages": [message("user", "")]}}),
    ("llamafactory", {**p.LLAMAFACTORY_SFT, "conversations": [p.said("human", ""), p.GPT]}),
    ("llamafactory", {"instruction": "", "input": " ", "output": "It left."}),
    (
        "llamafactory",
        {"instruction": "And now?", "input": "", "output": "x", "history": [["", "Hello."]]},
    ),
]


@pytest.mark.parametrize(("trainer", "row"), EMPTY_USERS)
def test_an_empty_user_message_is_found_for_every_trainer(
    trainer: Trainer, row: Row, tmp_path: Path
) -> None:
    info = None
    if trainer == "llamafactory":
        info = p.LLAMAFACTORY_SFT_INFO if "conversations" in row else p.LLAMAFACTORY_INFO
    path = write_rows(tmp_path, [row] * 10, info)
    report = only(path, trainer)
    assert report.codes["empty_user"] == 10
    assert not report.is_clean


def test_an_instruction_without_input_is_no_empty_user(tmp_path: Path) -> None:
    row = {"instruction": "Greet me.", "input": "", "output": "Hello."}
    assert only(write_rows(tmp_path, [row]), "axolotl").codes["empty_user"] == 0


@pytest.mark.parametrize("case", p.VERL_REWARD_PLANTED, ids=[c.name for c in p.VERL_REWARD_PLANTED])
def test_a_planted_row_of_verl(case: Planted, plain: str, tmp_path: Path) -> None:
    path = tmp_path / "rm.parquet"
    pq.write_table(pa.Table.from_pylist(case.rows(p.VERL_REWARD)), path)
    for options in ({}, {"tokenizer": plain, "max_length": case.limit}):
        report = only(path, "verl", **options)
        lost = [(f.code, f.effect, f.row) for f in report.findings if f.effect != "noted"]
        assert (case.code, case.effect, 1) in lost
        assert {row for _, _, row in lost} == {1}


def test_verl_stops_at_a_long_dialogue(plain: str, tmp_path: Path) -> None:
    path = tmp_path / "sft.parquet"
    pq.write_table(pa.Table.from_pylist([p.TRL_SFT]), path)
    assert only(path, "verl", tokenizer=plain).is_clean
    assert only(path, "verl", tokenizer=plain, max_length=8).codes["too_long"] == 1


def test_a_prompt_that_is_held_out_as_well_is_noted(tmp_path: Path) -> None:
    other = p.TRL_DPO | {"prompt": [message("user", "Where is parcel 82?")]}
    write_rows(tmp_path, [p.TRL_DPO, other])
    (tmp_path / "validation").mkdir()
    write_rows(tmp_path / "validation", [other])
    report = only(tmp_path, "trl")
    assert [(f.code, f.row) for f in report.findings] == [("split_leak", 1)]
    assert report.is_clean


def test_openrlhf_drops_a_prompt_that_fills_its_limit(plain: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path, [p.OPENRLHF_DPO])
    for stage, code, effect in (
        ("dpo", "prompt_too_long", "dropped"),
        ("reward", "too_long", "truncated"),
    ):
        report = only(path, "openrlhf", stage=stage, tokenizer=plain, max_length=12)
        assert [(f.code, f.effect) for f in report.findings] == [(code, effect)]


@pytest.mark.parametrize(("trainer", "good", "info"), p.GOOD, ids=[t for t, _, _ in p.GOOD])
def test_a_good_file_is_clean(
    trainer: Trainer, good: Row, info: Row | None, tmp_path: Path
) -> None:
    report = only(write_rows(tmp_path, [good] * 10, info), trainer)
    assert report.is_clean, report.findings
    assert report.duplicate_prompts == 9


@pytest.mark.parametrize("kind", ["jsonl", "list", "parquet", "lines in .json"])
def test_any_kind_of_file_is_read_alike(kind: str, tmp_path: Path) -> None:
    rows = [p.TRL_DPO, p.TRL_DPO | {"rejected": [p.YES]}]
    path = tmp_path / {"jsonl": "a.jsonl", "parquet": "a.parquet"}.get(kind, "a.json")
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "list":
        path.write_bytes(orjson.dumps(rows))
    else:
        path.write_bytes(b"\n".join(map(orjson.dumps, rows)) + b"\n\n")
    report = only(path, "trl")
    assert [(f.code, f.row) for f in report.findings if f.effect != "noted"] == [
        ("identical_sides", 1)
    ]


def test_messages_of_json_type_are_read_from_parquet(tmp_path: Path) -> None:
    """As our own export writes rows with tool calls."""
    messages = [p.ASK, message("assistant", "", tool_calls=[p.CALL])]
    whole = pa.array([orjson.dumps(messages).decode()], pa.json_())
    each = pa.array([orjson.dumps(said).decode() for said in messages], pa.json_())
    for column in (whole, pa.ListArray.from_arrays([0, len(messages)], each)):
        pq.write_table(pa.table({"messages": column}), tmp_path / "a.parquet")
        report = only(tmp_path / "a.parquet", "trl")
        assert report.is_clean, report.findings


def test_lines_that_are_no_rows_are_findings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(orjson.dumps(p.TRL_DPO) + b"\n{broken\n[1]\n\n" + orjson.dumps(p.TRL_DPO))
    report = only(path, "trl")
    assert [(f.code, f.row, f.effect) for f in report.findings if f.effect != "noted"] == [
        ("not_json", 1, "stops"),
        ("not_a_row", 2, "stops"),
    ]
    assert report.rows == 4


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    write_rows(tmp_path, [p.TRL_DPO])
    (tmp_path / "sft.jsonl").write_bytes(orjson.dumps(p.TRL_SFT))
    for name in ("refused.jsonl", "notes.txt", "empty.jsonl"):
        (tmp_path / name).write_text("" if name == "empty.jsonl" else "x")
    (tmp_path / "validation").mkdir()
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "none.parquet")
    report = check_path(tmp_path, "trl")
    assert [(file.file, file.stage) for file in report.files] == [
        ("rows.jsonl", "dpo"),
        ("sft.jsonl", "sft"),
    ]
    passed_over = {"refused.jsonl", "notes.txt", "empty.jsonl", "none.parquet", "validation/"}
    assert {name for name, _ in report.skipped} == passed_over
    said = CliRunner().invoke(app, ["check", str(tmp_path), "--for", "trl"], terminal_width=80)
    assert "not read (empty): empty.jsonl, none.parquet" in said.output


def test_only_described_files_of_a_folder_are_read_for_llamafactory(tmp_path: Path) -> None:
    write_rows(tmp_path, [p.LLAMAFACTORY_DPO], p.LLAMAFACTORY_INFO)
    (tmp_path / "other.jsonl").write_text("{}")
    report = check_path(tmp_path, "llamafactory")
    assert [file.file for file in report.files] == ["rows.jsonl"]
    assert ("other.jsonl", "not named in dataset_info.json") in report.skipped


@pytest.mark.parametrize(
    ("block", "without", "effect", "code"),
    [
        ("columns", "messages", "stops", "partial_columns"),
        ("columns", "rejected", "stops", "partial_columns"),
        ("columns", "system", "corrupted", "partial_columns"),
        ("columns", "tools", "corrupted", "partial_columns"),
        ("tags", "role_tag", "stops", "partial_tags"),
        ("tags", "content_tag", "stops", "partial_tags"),
        ("tags", "user_tag", "noted", "partial_tags"),
    ],
)
def test_a_partial_description_is_found(
    block: str, without: str, effect: str, code: str, tmp_path: Path
) -> None:
    info = copy.deepcopy(p.LLAMAFACTORY_INFO)
    del info[block][without]
    report = only(write_rows(tmp_path, [p.LLAMAFACTORY_DPO], info), "llamafactory")
    assert (code, effect) in {(f.code, f.effect) for f in report.findings}
    assert not report.is_clean
    if block == "tags":
        assert (report.effects["dropped"] == 1) is (without == "user_tag")


def test_a_prompt_column_beside_messages_stops_sft(tmp_path: Path) -> None:
    """ultrachat_200k has both, and TRL then looks for completions."""
    report = only(write_rows(tmp_path, [p.TRL_SFT | {"prompt": "Where?"}]), "trl")
    assert ("unknown_columns", "stops") in {(f.code, f.effect) for f in report.findings}


def test_sharegpt_roles_are_not_mapped_by_trl(tmp_path: Path) -> None:
    rows = [{"conversations": [p.HUMAN, p.GPT]}]
    report = only(write_rows(tmp_path, rows), "trl")
    assert {f.code for f in report.findings} >= {"unknown_role"}


def test_hh_rows_without_a_prompt_are_split_as_trl_does(tmp_path: Path) -> None:
    asks = "\n\nHuman: Where is it?\n\nAssistant:"
    rows = [
        {"chosen": asks + " Here.", "rejected": asks + " There."},
        {"chosen": asks + " Here.", "rejected": asks + " Here."},
    ]
    report = only(write_rows(tmp_path, rows), "trl")
    assert [(f.code, f.row) for f in report.findings if f.effect != "noted"] == [
        ("identical_sides", 1)
    ]


def test_verl_reads_parquet_alone(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "chosen": "b", "rejected": "c"}]
    report = only(write_rows(tmp_path, rows), "verl")
    assert report.codes["not_read"] == 1
    assert report.stage == "reward"


def test_openai_refuses_a_short_file_and_unknown_keys(tmp_path: Path) -> None:
    report = only(write_rows(tmp_path, [p.OPENAI_SFT | {"id": 1}]), "openai")
    assert report.codes["extra_columns"] == 1
    assert report.codes["too_few_rows"] == 1


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                [*p.TRL_DPO, *p.OPENAI_DPO, *p.SWIFT_DPO, *p.TRL_KTO, "conversations", "tools"]
            ),
            st.recursive(
                st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=3),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(
                            ["role", "content", "from", "value", "tool_calls", "messages"]
                        ),
                        inner,
                        max_size=3,
                    )
                ),
                max_leaves=8,
            ),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([(t, s) for t in TRAINERS for s in (None, *STAGES[t])]),
)
def test_no_row_is_too_odd(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Row],
    asked: tuple[Trainer, str | None],
) -> None:
    """Whatever stands in a file, every row is counted once and every finding has its advice."""
    path = write_rows(tmp_path_factory.mktemp("odd"), rows)
    report = only(path, asked[0], stage=asked[1])
    assert report.rows == len(rows) == sum(report.effects.values())
    for finding in report.findings:
        assert finding.effect in EFFECTS
        assert finding.do == ADVICE[finding.code]
        assert finding.does


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *arguments], terminal_width=80)
    return result.exit_code, result.stdout


def test_the_command_says_what_is_lost_within_80_columns(tmp_path: Path) -> None:
    rows = [p.TRL_DPO] + [case.rows(p.TRL_DPO)[1] for case in p.TRL_DPO_PLANTED]
    code, text = run(str(write_rows(tmp_path, rows)), "--for", "trl")
    assert code == 1
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "identical_sides: row 1" in text
    assert "lengths and templates were not checked" in text
    assert "not clean" in text


def test_the_command_is_silent_about_a_clean_file_but_for_its_counts(tmp_path: Path) -> None:
    code, text = run(str(write_rows(tmp_path, [p.TRL_DPO])), "--for", "trl")
    assert code == 0
    assert "1 row: 1 intact" in text
    assert "clean" in text


def test_json_is_one_object(tmp_path: Path) -> None:
    path = write_rows(tmp_path, p.TRL_DPO_PLANTED[0].rows(p.TRL_DPO))
    code, text = run(str(path), "--for", "trl", "--json")
    report = orjson.loads(text)
    assert code == 1
    assert report["clean"] is False
    assert report["rows"] == sum(report["effects"].values()) == 3
    [file] = report["files"]
    assert file["lengths"] is None
    [finding] = [each for each in file["findings"] if each["code"] == "identical_sides"]
    assert set(finding) == {
        "code",
        "row",
        "effect",
        "does",
        "do",
        "detail",
        "file",
        "basis",
        "version",
    }
    assert (finding["basis"], finding["version"]) == ("stated", file["stated"])
    assert "pip install trl" in report["not_replayed"]


def test_bad_usage_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write_rows(tmp_path, [p.TRL_DPO]))
    for wrong in (
        [path, "--for", "nobody"],
        [path, "--for", "verl", "--stage", "kto"],
        [path, "--for", "trl", "--through", "magic"],
        [str(tmp_path / "none.jsonl"), "--for", "trl"],
        [path, "--for", "openai", "--through", "installed"],
        [path, "--for", "trl", "--python", sys.executable],
    ):
        monkeypatch.setattr(sys, "argv", ["curate", "check", *wrong])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(SourceError, match="unknown kind"):
        check_path(tmp_path / "a.csv", "trl")
    (tmp_path / "a.parquet").write_text("no table")
    with pytest.raises(SourceError, match="not a Parquet file"):
        check_path(tmp_path / "a.parquet", "trl")


@pytest.mark.parametrize("damage", ["a byte of a text", "a byte of JSON", "a date that is none"])
def test_a_table_with_a_cell_that_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.parquet"
    says: dict[str, Any] = {name: pa.array([f"the {name}"] * 3) for name in p.TRL_DPO}
    if damage == "a date that is none":
        says["day"] = pa.array([0, 0, 2**31 - 1], pa.date32())
    elif damage == "a byte of JSON":
        says["meta"] = pa.array(['{"the chosen": 1}'] * 3, pa.json_())
    pq.write_table(pa.table(says), path, use_dictionary=False, compression="none")
    check_path(path, "trl") if "byte" in damage else None  # read as long as it is whole
    if "byte" in damage:
        old, new = {
            "a byte of a text": (b"the chosen", b"the \xff"),
            "a byte of JSON": (b'{"the', b"{}the"),
        }[damage]
        path.write_bytes(path.read_bytes().replace(old, new.ljust(len(old), b"-")))
    with pytest.raises(SourceError, match=r"a\.parquet") as raised:
        check_path(path, "trl")
    assert raised.value.fix


def test_the_docs_list_every_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "checking.md").read_text("utf-8")
    listed = text[text.index("## Codes") :]
    assert [
        line
        for code, advice in ADVICE.items()
        if (line := f"| `{code}` | {advice} |") not in listed
    ] == []


def test_every_code_is_used() -> None:
    folder = Path(__file__).parents[2] / "curate" / "trainer_check"
    source = "".join(
        file.read_text("utf-8")
        for file in [*folder.glob("*.py"), *(folder.parent / "export").glob("*.py")]
        if file.stem != "findings"
    )
    assert [code for code in ADVICE if f'"{code}"' not in source] == []


def test_the_command_says_what_was_not_replayed_and_how_to(tmp_path: Path) -> None:
    _, text = run(str(write_rows(tmp_path, [p.AXOLOTL_DPO])), "--for", "axolotl")
    said = " ".join(text.split())
    assert "not replayed; to run the trainer's own loader give --tokenizer and --python" in said
    assert "pip install axolotl" in said
    _, text = run(str(write_rows(tmp_path, [p.OPENAI_SFT] * 10)), "--for", "openai")
    assert "openai has no loader to run" in text


def test_an_interpreter_without_the_trainer_is_bad_usage(plain: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path, [p.AXOLOTL_DPO])
    with pytest.raises(UsageError, match="axolotl cannot be run by"):
        check_path(path, "axolotl", tokenizer=plain, python=sys.executable)
    with pytest.raises(UsageError, match="the interpreter cannot be run"):
        check_path(path, "axolotl", tokenizer=plain, python=str(tmp_path / "none"))


def test_a_column_of_pictures_is_nothing_for_a_text_model(tmp_path: Path) -> None:
    report = only(write_rows(tmp_path, [p.TRL_DPO | {"images": []}]), "trl")
    assert ("extra_columns", "stops") in {(f.code, f.effect) for f in report.findings}


def test_a_tokenizer_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"\[check\]"):
        check_path(write_rows(tmp_path, [p.TRL_DPO]), "trl", tokenizer="some/model")


def test_a_folder_without_a_tokenizer_is_bad_usage(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "model").mkdir()
    with pytest.raises(UsageError, match="cannot be loaded"):
        check_path(write_rows(tmp_path, [p.TRL_DPO]), "trl", tokenizer=str(tmp_path / "model"))


def test_a_hub_that_does_not_answer_is_said_once_and_nothing_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(UsageError, match="does not answer, and there is no local copy"):
        check_path(write_rows(tmp_path, [p.TRL_DPO]), "trl", tokenizer="nobody/none-such")
    assert "Retrying" not in caplog.text


def test_checking_imports_nothing_heavy() -> None:
    """The base install checks what needs no tokenizer, and starts at once."""
    code = (
        "import sys; import curate.cli.check, curate.trainer_check.check; "
        "print([m for m in ('torch', 'transformers', 'datasets', 'trl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_blanks_before_the_first_row_are_passed_over_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b" \n" * 500_000 + b'[{"text": "a"}]')
    rows: list[object] = []
    assert lines_run(lambda: rows.extend(_json_rows(path))) < 1_000
    assert rows == [{"text": "a"}]
