"""What a user gets wrong, or finds damaged: a message without a traceback, the right exit code, data shown as it is.

Commands are called in this process, which is quick; `test_cli` starts them as processes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from curate.cli import main
from curate.recipe import parse_recipe
from curate.run.pipeline import run_recipe
from tests.cli.test_commands import recipe_file
from tests.live import live_server
from tests.run.test_pipeline import chat, write_rows
from tests.servers import Body, answer_by_hash

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def curate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`curate(arguments…)` gives the exit code and all that was said, blanks made one."""

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["curate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), " ".join((said.out + said.err).split())

    return call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "chats.jsonl", [chat(n) for n in range(3)])


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Path:
    """The folder of a run that asked nobody."""
    sections = {"judge": False, "adherence": False, "select": {"where": {}}}
    run_recipe(
        parse_recipe({"name": "mine", "source": {"path": str(data)}, **sections}),
        out=tmp_path / "run",
    )
    return tmp_path / "run"


def test_a_run_in_the_folder_of_another_recipe_says_so(
    curate: Command, data: Path, run: Path, tmp_path: Path
) -> None:
    text = f"source: {{path: {data}}}\njudge: false\nadherence: false\nselect: {{where: {{}}}}\n"
    for name, said_so in (("mine", False), ("other", True), ("other", False)):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(f"name: {name}\n{text}")
        status, said = curate("run", recipe, "--out", run)
        assert status == 0
        assert ("another recipe, 'mine'" in said) == said_so


@pytest.mark.parametrize("command", [["ingest"], ["calibrate", ".", "--labels"]])
@pytest.mark.parametrize(
    ("options", "word"),
    [([""], "path is empty"), (["x.jsonl", "--shape", "foo"], "'messages'")],
)
def test_a_source_that_cannot_be_is_refused(
    curate: Command, command: list[str], options: list[str], word: str
) -> None:
    code, said = curate(*command, *options)
    assert code == 2
    assert word in said


def test_text_in_another_encoding_is_said_to_be(curate: Command, tmp_path: Path) -> None:
    rows = tmp_path / "latin.jsonl"
    rows.write_text(json.dumps(chat(1, text="café"), ensure_ascii=False) + "\n", encoding="latin-1")
    code, said = curate("ingest", rows, "--out", tmp_path)
    assert code == 2
    assert "source.encoding" in said


def test_ingest_takes_the_shape_over_the_recipes(
    curate: Command, data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("source: {path: x, columns: {role: who}}\nrole: A clerk.\nmax_unscored: 1.0")
    given = ("ingest", data, "--recipe", recipe, "--out", tmp_path / "out")
    assert "shape messages" in curate(*given)[1]
    assert "shape sharegpt" in curate(*given, "--shape", "sharegpt")[1]


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_ingest_into_what_is_no_folder(
    curate: Command, data: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    code, said = curate("ingest", data, "--out", tmp_path / place)
    assert code == 1
    assert "do:" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ("no such recipe", "curate init")),
        ("", ("is not a recipe", "got: an empty file")),
        ("[1, 2]", ("is not a recipe", "got: a list")),
        ("just words", ("is not a recipe", "got: a text")),
    ],
)
def test_a_file_that_is_no_recipe_is_named_in_plain_words(
    curate: Command, tmp_path: Path, content: str | None, words: tuple[str, ...]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    if content is not None:
        recipe.write_text(content)
    code, said = curate("run", recipe)
    assert code == 2
    for word in words:
        assert word in said


def test_a_report_is_not_written_over_a_folder(curate: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    code, said = curate("report", run, "--out", tmp_path / "folder")
    assert code == 1
    assert "got: a folder at this path expected: a file" in said


def test_a_folder_that_is_no_run_is_told_from_one(curate: Command, tmp_path: Path) -> None:
    code, said = curate("show", tmp_path)
    assert code == 2
    assert "not a run folder" in said
    assert "do: name the folder that `curate run` wrote" in said


def test_columns_are_not_reported_of_a_file_without_a_row_to_read(
    curate: Command, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    for text, code, has_columns in (
        ("", "no_rows", False),
        ("not json", "not_json", False),
        ("{}", "unknown_columns", True),
    ):
        rows.write_text(text)
        status, said = curate("check", rows, "--for", "trl")
        assert status == 1
        assert code in said
        assert ("unknown_columns" in said) == has_columns


def test_ingest_overwrites_no_run(curate: Command, run: Path, tmp_path: Path) -> None:
    before = (run / "dialogues.jsonl").read_bytes()
    other = write_rows(tmp_path / "other.jsonl", [chat(9)])
    assert curate("ingest", other, "--out", run)[0] == 2
    assert (run / "dialogues.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", ["manifest.json", "scores.parquet", "select/decisions.jsonl"])
def test_show_of_a_damaged_run_names_the_file(curate: Command, run: Path, name: str) -> None:
    (run / name).write_bytes(b"damaged\n")
    code, said = curate("show", run)
    assert code == 1
    assert Path(name).name in said
    assert "do:" in said


def test_what_a_dialogue_holds_is_shown_and_not_obeyed(curate: Command, tmp_path: Path) -> None:
    odd = chat(1)
    odd["messages"][1]["content"] = (
        "\x1b[2Jgone? :warning: [red]not markup[/red] \x9b1m 👩‍👩‍👧 שלום"
    )
    code, said = curate("ingest", write_rows(tmp_path / "odd.jsonl", [odd]), "--out", tmp_path)
    assert code == 0
    assert "assistant: ␛[2Jgone? :warning: [red]not markup[/red] <U+009B>1m 👩‍👩‍👧 שלום" in said


def test_no_id_and_no_name_steers_the_terminal(curate: Command, tmp_path: Path) -> None:
    rows = [chat(1) | {"id": "a\u202egpj"}, {"id": "\x1b[2Jb", "messages": []}]
    data = write_rows(tmp_path / "odd.jsonl", rows)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f'source: {{path: {data}, name: "n\\e[31m\\u202ex"}}\nscenario: s\nrole: r\n'
        "judge: false\nadherence: false\nselect: false\nexport: {salvage: null, kto_turns: null}\n"
    )
    run = tmp_path / "run"
    for command in (
        ("ingest", recipe, "--out", tmp_path / "in"),
        ("run", recipe, "--out", run, "--dry-run"),
        ("run", recipe, "--out", run),
        ("show", run),
        ("show", run, "a\u202egpj"),
        ("show", run, "\x1b[2Jnone"),
    ):
        _, said = curate(*command)
        assert said
        assert not {"\u202e", "\x1b"} & set(said), command


def test_check_of_a_run_says_where_its_export_is(curate: Command, run: Path) -> None:
    code, said = curate("check", run, "--for", "trl")
    assert code == 2
    assert f"curate check {run}/export/trl --for trl" in said


@pytest.mark.parametrize(
    ("out", "word"), [("chats.jsonl", "cannot write"), ("nosuch://x/y", "Protocol not known")]
)
def test_a_dry_run_refuses_what_the_run_would(
    curate: Command, data: Path, tmp_path: Path, out: str, word: str
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"source: {{path: {data}}}\njudge: false\nadherence: false\nselect: false")
    place = out if "://" in out else tmp_path / out
    codes = set()
    for more in ([], ["--dry-run"]):
        code, said = curate("run", recipe, "--out", place, *more)
        assert word in said
        codes.add(code)
    assert codes in ({1}, {2})


def test_a_run_says_what_the_server_said(curate: Command, data: Path, tmp_path: Path) -> None:
    def answer(body: Body) -> Body | str | web.StreamResponse:
        if "chat " not in json.dumps(body["messages"]):
            return answer_by_hash(body)
        return web.json_response({"error": {"message": "the weights [melted]"}}, status=500)

    with live_server(answer=answer) as server:
        recipe = recipe_file(tmp_path, data, server.base_url)
        code, said = curate("run", recipe, "--out", tmp_path / "run")
    assert code == 0, said
    assert (
        "judge of chat-0: 2 of 2 turns unscored: turn 1: server: HTTP 500: the weights [melted]"
        in said
    )
    assert "adherence of chat-0:" in said


def test_a_long_id_is_cut(curate: Command, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "long.jsonl", [chat(1) | {"id": "i" * 5000}])
    assert "i…" in curate("ingest", rows, "--out", tmp_path)[1]


def test_a_limit_of_any_size_is_one(curate: Command, data: Path, tmp_path: Path) -> None:
    assert curate("ingest", data, "--out", tmp_path, "--limit", 10**30)[0] == 0


def test_an_address_of_a_cluster_for_this_process(curate: Command, tmp_path: Path) -> None:
    assert curate("run", "mine.yaml", "--executor", "local", "--address", "auto")[0] == 2


def test_scores_that_are_not_there(curate: Command, tmp_path: Path) -> None:
    code, said = curate("calibrate", tmp_path / "none")
    assert code == 2
    assert "no such file" in said


def test_labels_for_a_folder_that_is_no_run(curate: Command, data: Path, run: Path) -> None:
    code, said = curate("calibrate", run / "select", "--labels", data)
    assert code == 2
    assert "not a run folder" in said


def test_conditions_that_nothing_meets_are_warned_of(
    curate: Command, data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.yaml"
    conditions = "where: {long: n_turns > 9}"
    recipe.write_text(
        f"source: {{path: {data}}}\njudge: false\nadherence: false\nselect: {{{conditions}}}"
    )
    code, said = curate("run", recipe, "--out", tmp_path / "run")
    assert code == 0
    assert "warning: No dialogue is in the SFT set; most of them fail:" in said
    assert "long 3" in said


def test_short_help(curate: Command) -> None:
    assert curate("-h")[0] == curate("run", "-h")[0] == 0


def test_a_file_that_begins_with_a_byte_order_mark_is_checked(
    curate: Command, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": chat(1)["messages"]}), encoding="utf-8-sig")
    code, said = curate("check", rows, "--for", "trl")
    assert code == 0, said
    assert "1 row: 1 intact" in said


def test_a_folder_of_empty_exports_is_said_to_be_empty(curate: Command, tmp_path: Path) -> None:
    (tmp_path / "sft.jsonl").write_text("")
    code, said = curate("check", tmp_path, "--for", "trl")
    assert code == 2
    assert "sft.jsonl (empty)" in said


def test_ctrl_c_ends_any_command_with_1(curate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("curate.planning.doctor.examine_machine", interrupted)
    status, said = curate("doctor")
    assert status == 1
    assert said.split()[:2] == ["interrupted;", "to"]
    assert said.endswith("curate doctor")


def log_rows(tmp_path: Path, count: int) -> Path:
    """Rows of a shape of their own."""
    said = [{"who": "user", "says": "Hi"}, {"who": "assistant", "says": "Hello"}]
    return write_rows(tmp_path / "log.jsonl", [{"key": n, "log": said} for n in range(count)])


@pytest.mark.parametrize(
    ("setting", "fits"),
    [
        ("mapping: {each: 'turns[*]', messages: [{role_from: who, text: says}]}", False),
        ("shape: messages", False),
        ("mapping: {each: 'log[*]', messages: [{role_from: who, text: says}]}", True),
    ],
)
def test_a_setting_that_reads_no_row_is_an_error_with_the_keys_there_are(
    curate: Command, tmp_path: Path, setting: str, fits: bool
) -> None:
    rows = log_rows(tmp_path, 250)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"source: {{path: {rows}, {setting}}}\nrole: A clerk.\njudge: false\nadherence: false\n"
        "select: {where: {}}\n"
    )
    commands = [
        ("ingest", rows, "--recipe", recipe, "--out", tmp_path / "in"),
        ("run", recipe, "--out", tmp_path / "run", "--dry-run"),
        ("estimate", recipe, "--out", tmp_path / "run"),
        ("run", recipe, "--out", tmp_path / "run"),
    ]
    for command in commands:
        code, said = curate(*command)
        assert code == (0 if fits else 2), said
        if not fits:
            key = setting.split(":")[0]
            assert "0 of 250 rows" in said
            assert "key, log[*] (who, says)" in said
            assert f"fix source.{key}" in said
    if not fits:
        assert len((tmp_path / "in/quarantine.jsonl").read_text().splitlines()) == 250


def test_confidence_is_the_share_of_rows_that_a_mapping_reads(
    curate: Command, tmp_path: Path
) -> None:
    rows = log_rows(tmp_path, 3)
    rows.write_text(rows.read_text() + '{"key": 3}\n')
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"source: {{path: {rows}, mapping: {{each: 'log[*]', messages: [{{role_from: who, text: says}}]}}}}\n"
    )
    code, said = curate("ingest", rows, "--recipe", recipe, "--out", tmp_path / "in", "--json")
    assert code == 0
    assert json.loads(said)["confidence"] == 0.75
    assert json.loads(said)["why"] == "source.mapping is set; it fits 3 of 4 sampled rows"
