"""The command line as a user meets it: exit codes, messages without a traceback, nothing lost."""

from __future__ import annotations

import io
import json
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from curate.cli.progress import RunProgress
from curate.errors import requirement
from tests.live import live_server
from tests.processes import curate, start
from tests.run.test_pipeline import chat, lines, write_rows
from tests.servers import Body, CountingServer, answer_by_hash

ROOT = Path(__file__).parents[2]
CURATE = [sys.executable, "-c", "from curate.cli import main; main()"]


def fails(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    said = " ".join((result.stdout + result.stderr).split())
    assert result.returncode == code, said
    assert "Traceback" not in said
    for word in words:
        assert word in said


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "chats.jsonl", [chat(n) for n in range(3)])


def recipe_file(folder: Path, data: Path, base_url: str, more: str = "") -> Path:
    path = folder / "mine.yaml"
    path.write_text(
        f"source: {{path: {data}}}\nscenario: A person asks for help.\nrole: A clerk.\nmax_unscored: 1.0\n"
        f"models:\n  judge: {{engine: openai, model: fake-judge, base_url: '{base_url}', retries: 0}}\n"
        + more
    )
    return path


def test_version_and_help_are_quick_to_read() -> None:
    cold = subprocess.run([*CURATE, "--version"], capture_output=True, text=True)
    assert cold.stdout.startswith("curate 0.")
    help_text = curate("--help").stdout
    for command in ("ingest", "run", "show", "schema"):
        assert command in help_text


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = (
        "import sys, curate.cli; "
        "print([m for m in ('torch', 'polars', 'datasets', 'xllamacpp', 'aiohttp', 'pydantic', 'jsonschema') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_ingest_says_what_it_found_and_accounts_for_every_row(tmp_path: Path) -> None:
    result = curate("ingest", ROOT / "recipes/sample/bad.jsonl", "--out", tmp_path)
    assert result.returncode == 0
    assert "shape messages" in result.stdout
    assert "rows in 6 = used 1 + quarantined 5; dialogues 1" in result.stdout
    assert len(lines(tmp_path / "quarantine.jsonl")) == 5
    assert len(lines(tmp_path / "dialogues.jsonl")) == 1


def test_ingest_as_json_is_one_object_with_the_promised_keys(tmp_path: Path) -> None:
    result = curate("ingest", ROOT / "recipes/sample/bad.jsonl", "--json", "--out", tmp_path)
    report = json.loads(result.stdout)
    promised = {
        "rows_in",
        "rows_used",
        "dialogues",
        "quarantined",
        "shape",
        "confidence",
        "reasons",
    }
    assert promised <= report.keys()
    assert report["rows_in"] == report["rows_used"] + report["quarantined"]


def test_a_run_shows_its_closing_table_and_show_reads_it_back(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    recipe = recipe_file(tmp_path, data, server.base_url)
    result = curate("run", recipe, "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    for word in (
        "What came in",
        "rows in",
        "What the judge found (fake-judge)",
        "poor",
        "selected",
        "tokens",
    ):
        assert word in result.stdout
    *lines, next_step, ended, folder = result.stdout.splitlines()
    assert next_step.startswith(f"next: curate report {tmp_path / 'run'} ")
    assert ended.startswith("done in ")
    assert folder.strip() == str(tmp_path / "run")
    assert "tokens in" not in result.stdout
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in result.stdout + result.stderr
    listed = curate("show", tmp_path / "run").stdout
    assert all(f"chat-{n}" in listed for n in range(3))
    shown = curate("show", tmp_path / "run", "chat-1").stdout
    for word in ("turn 1", "turn 2", "helpfulness", "verdict", "role adherence"):
        assert word in shown
    card = json.loads(curate("show", tmp_path / "run", "chat-1", "--json").stdout)
    assert list(card) == [
        "per_turn",
        "conversation_level",
        "verdict",
        "decision_basis",
        "weakest_turn",
    ]
    assert [turn["turn"] for turn in card["per_turn"]] == [1, 2]
    assert set(card["per_turn"][0]) == {"turn", "role", "scores", "issues"}
    assert set(card["conversation_level"]["coherence"]) == {"score", "note"}
    everything = json.loads(curate("show", tmp_path / "run", "--json").stdout)
    assert everything["manifest"]["rows_in"] == 3
    assert [row["id"] for row in everything["dialogues"]] == ["chat-0", "chat-1", "chat-2"]
    fails(curate("show", tmp_path / "run", "chat-1", "--sort", "n_turns"), 2, "list of dialogues")
    fails(curate("show", tmp_path / "run", "chat-11"), 2, "no such dialogue", "chat-1")
    fails(curate("show", tmp_path), 2, "not a run folder")


def test_show_filters_and_sorts_by_the_columns_of_the_table(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    recipe = recipe_file(tmp_path, data, server.base_url)
    curate("run", recipe, "--out", run, "--quiet")
    rows = json.loads(curate("show", run, "--json", "--sort", "mean_score").stdout)["dialogues"]
    means = [row["mean_score"] for row in rows]
    assert means == sorted(means, reverse=True)
    middle = f"mean_score < {max(means)}"
    shown = curate("show", run, "--where", middle, "--sort", "-mean_score", "--limit", "1")
    head, first, *_ = shown.stdout.splitlines()
    assert head.split() == ["verdict", "mean", "role", "metrics", "weakest", "dialogue,", "sets"]
    assert first.split()[:2] == [rows[-1]["verdict"], f"{rows[-1]['mean_score']:.2f}"]
    assert first.index(rows[-1]["id"]) == head.index("dialogue")
    assert "1 of 3 dialogues" in shown.stdout
    fails(curate("show", run, "--where", "meanscore > 3"), 2, "--where", "mean_score")
    fails(curate("show", run, "--where", "mean_score"), 2, "--where is not a condition", ">= 3")
    fails(curate("show", run, "--sort", "nturns"), 2, "--sort", "n_turns")


def test_run_says_more_or_less_as_asked(server: CountingServer, data: Path, tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, data, server.base_url)
    more = curate("run", recipe, "--out", tmp_path / "run", "--verbose").stdout
    assert "tokens in" in more
    assert "What came in" in more
    usual = curate("run", recipe, "--out", tmp_path / "run")
    assert "judge: 3 of 3" in usual.stdout + usual.stderr
    quiet = curate("run", recipe, "--out", tmp_path / "run", "-q")
    assert "judge: 3 of 3" not in quiet.stdout + quiet.stderr
    less = quiet.stdout
    assert "What came in" not in less
    assert less.splitlines()[-2].startswith("done in ")
    whole = json.loads(curate("run", recipe, "--out", tmp_path / "run", "--json").stdout)
    assert (whole["status"], whole["requests"]) == ("done", 0)


def test_schemas_are_printed(tmp_path: Path) -> None:
    assert json.loads(curate("schema", "judgment").stdout)["title"] == "judgment"
    fails(curate("schema", "judgement"), 2, "judgment")


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", 2, ["empty"]),
        (b"\n\n", 2, []),
        (b'{"what": 1}\n', 2, ["source.shape"]),
        (b'{"messages": [{"role": "user", "content": "only me"}]}\n', 2, ["assistant"]),
    ],
    ids=["empty", "blank", "unknown shape", "no assistant"],
)
def test_a_source_without_dialogues_is_refused(
    server: CountingServer, tmp_path: Path, content: bytes, code: int, words: list[str]
) -> None:
    data = tmp_path / "chats.jsonl"
    data.write_bytes(content)
    result = curate("run", recipe_file(tmp_path, data, server.base_url), "--out", tmp_path / "run")
    fails(result, code, *words)


def test_bad_rows_are_put_aside_and_the_rest_goes_on(
    server: CountingServer, tmp_path: Path
) -> None:
    long = chat(1)
    long["messages"][1]["content"] = "word " * 40_000
    null = {
        "id": "null",
        "messages": [{"role": "user", "content": None}, {"role": "assistant", "content": "Hello?"}],
    }
    role = {"messages": [{"role": "wizard", "content": "x"}, {"role": "assistant", "content": "y"}]}
    rows = [json.dumps(row).encode() for row in (long, null, role, chat(2), chat(2))]
    data = tmp_path / "chats.jsonl"
    data.write_bytes(b"\n".join([*rows, b'{"messages": [', b'{"messages": "\xff\xfe"}']) + b"\n")
    result = curate("run", recipe_file(tmp_path, data, server.base_url), "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (manifest["rows_in"], manifest["rows_used"], manifest["quarantined"]) == (7, 3, 4)
    reasons = {row["row"]: row["reason"] for row in lines(tmp_path / "run/quarantine.jsonl")}
    assert reasons == {
        2: "empty_user",
        3: "unknown_role",
        6: "broken_json",
        7: "bad_encoding",
    }
    ids = [row["id"] for row in lines(tmp_path / "run/dialogues.jsonl")]
    assert len(ids) == len(set(ids)) == 3


def test_a_server_that_is_not_there(data: Path, tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, data, "http://127.0.0.1:9/v1")
    fails(curate("run", recipe, "--out", tmp_path / "run"), 1, "127.0.0.1:9")
    fails(curate("run", recipe, "--dry-run", "--out", tmp_path / "run"), 1, "127.0.0.1:9")


def test_a_wrong_key_is_said_and_never_shown(data: Path, tmp_path: Path) -> None:
    with live_server(key="right") as server:
        recipe = recipe_file(tmp_path, data, server.base_url)
        recipe.write_text(
            recipe.read_text().replace("retries: 0", "retries: 0, api_key_env: MY_KEY")
        )
        result = curate("run", recipe, "--out", tmp_path / "run", env={"MY_KEY": "wrong-secret"})
        fails(result, 1, "MY_KEY")
        kept = b"".join(p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file())
        assert b"wrong-secret" not in kept + (result.stdout + result.stderr).encode()
        missing = curate("run", recipe, "--out", tmp_path / "run", env={"MY_KEY": ""})
        fails(missing, 2, "MY_KEY")


def test_tokens_mode_without_log_probabilities_is_refused_before_anything_is_asked(
    data: Path, tmp_path: Path
) -> None:
    def no_logprobs(body: dict[str, Any]) -> Any:
        return "text"

    with live_server(answer=no_logprobs) as server:
        recipe = recipe_file(tmp_path, data, server.base_url, "judge: {mode: tokens}\n")
        fails(curate("run", recipe, "--out", tmp_path / "run"), 2, "log-probabilities")
        assert not any("chat " in json.dumps(body["messages"]) for body in server.requests)


def test_continuous_adherence_falls_back_loudly(data: Path, tmp_path: Path) -> None:
    from tests.servers import answer_by_hash

    def no_logprobs(body: dict[str, Any]) -> Any:
        return answer_by_hash({key: value for key, value in body.items() if key != "logprobs"})

    with live_server(answer=no_logprobs) as server:
        more = "judge: false\nadherence: {output_mode: continuous}\n"
        result = curate(
            "run", recipe_file(tmp_path, data, server.base_url, more), "--out", tmp_path / "run"
        )
        assert result.stdout.count("falls back") == 1


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (lambda: {"text": "Well", "first_token": [("Well", -0.001), ("4", -8.0)]}, "mostly low_coverage: the model does not begin its replies with a label"),
        (lambda: web.Response(status=400), "next: the same command with --retry unscored"),
    ],
)  # fmt: skip
def test_what_to_do_about_missing_scores_goes_by_why_they_are_missing(
    data: Path, tmp_path: Path, reply: Any, said: str
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return reply() if "chat 1 " in str(body["messages"]) else answer_by_hash(body)

    with live_server(answer=answer) as server:
        recipe = recipe_file(tmp_path, data, server.base_url, "judge: {mode: tokens}\n")
        code = "--set", "max_unscored=0.1"
        fails(curate("run", recipe, "--out", tmp_path / "run", *code), 3, said)


def test_usage_errors(data: Path, tmp_path: Path, server: CountingServer) -> None:
    recipe = recipe_file(tmp_path, data, server.base_url)
    fails(curate("run", tmp_path / "none.yaml"), 2, "no such recipe")
    fails(curate("run", recipe, "--set", "judge.max_trns=3"), 2, "max_turns")
    fails(curate("run", recipe, "--retry", "everything"), 2, "unscored")
    fails(curate("ingest", tmp_path / "nowhere.jsonl"), 2, "nowhere.jsonl")
    fails(curate("run", recipe, "--limit", "0"), 2)


def test_a_recipe_without_a_judge(data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"source: {{path: {data}}}\n")
    fails(curate("run", recipe), 2, "names no judge", "models:")


def test_a_full_disk_is_said_and_the_next_run_goes_on(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    """The file-size limit stands in for a full disk: writes fail in the same place, with an errno."""
    recipe = recipe_file(tmp_path, data, server.base_url)

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))

    full = [*CURATE, "run", recipe, "--out", tmp_path / "run"]
    fails(subprocess.run(full, capture_output=True, text=True, preexec_fn=small_files), 1, "do:")
    assert curate("run", recipe, "--out", tmp_path / "run").returncode == 0


def test_a_folder_that_cannot_be_written(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    recipe = recipe_file(tmp_path, data, server.base_url)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    fails(curate("run", recipe, "--out", blocked / "run"), 1, "--out")


def hold_from(server: CountingServer, number: int) -> None:
    """Let the requests after that one wait: a run that has made it is at work for as long as a test takes."""

    def answer(body: Body) -> Body | str:
        server.is_held = len(server.requests) >= number
        return answer_by_hash(body)

    server.answer = answer


def release(server: CountingServer) -> None:
    server.answer, server.is_held = answer_by_hash, False


def test_ctrl_c_keeps_what_was_done_and_the_next_run_goes_on(data: Path, tmp_path: Path) -> None:
    with live_server() as server:
        hold_from(server, 15)
        recipe = recipe_file(tmp_path, data, server.base_url)
        process = subprocess.Popen(
            [*CURATE, "run", recipe, "--out", tmp_path / "run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(server.requests) < 15:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "interrupted" in said
        assert "Traceback" not in said
        assert json.loads((tmp_path / "run/manifest.json").read_text())["status"] == "failed"
        release(server)
        assert curate("run", recipe, "--out", tmp_path / "run").returncode == 0


@pytest.mark.parametrize(
    ("loop", "is_in_background"), [("uvloop", False), ("uvloop", True), ("asyncio", True)]
)
def test_sigterm_ends_a_run_as_ctrl_c_does_and_the_log_says_so(
    data: Path, tmp_path: Path, loop: str, is_in_background: bool
) -> None:
    """Everything goes to one file, as under a scheduler; a script's `&` has the run ignore Ctrl-C."""
    log, out = tmp_path / "log", tmp_path / "a run"
    program = (
        CURATE[-1]
        if loop == "uvloop"
        else f"import sys; sys.modules['uvloop'] = None; {CURATE[-1]}"
    )
    with live_server() as server:
        hold_from(server, 15)
        recipe = recipe_file(tmp_path, data, server.base_url)
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", program, "run", recipe, "--out", out],
                stdout=file,
                stderr=file,
                preexec_fn=_ignore_ctrl_c if is_in_background else None,
            )
            while len(server.requests) < 15:
                assert process.poll() is None
                time.sleep(0.02)
            assert "judge: 0 of 3 (0%)" in log.read_text()
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 1
        said = log.read_text()
        assert "Traceback" not in said
        assert said.count("interrupted; what was done is kept") == 1
        goes_on = said.rstrip().splitlines()[-1]
        assert goes_on.strip() == f"curate run {recipe} --out '{out}'"
        assert json.loads((out / "manifest.json").read_text())["status"] == "failed"
        assert not (out / "replies.sqlite-wal").exists()
        release(server)
        rest = curate(*shlex.split(goes_on)[1:])
        assert rest.returncode == 0
        stages = json.loads((out / "manifest.json").read_text())["stages"]
        assert stages["judge"]["requests_sent"] < stages["judge"]["requests"]


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_sigterm_is_said_in_each_of_two_logs(data: Path, tmp_path: Path) -> None:
    names = ("out.log", "err.log")
    with live_server() as server:
        server.is_held = True
        recipe = recipe_file(tmp_path, data, server.base_url)
        with (tmp_path / names[0]).open("w") as out, (tmp_path / names[1]).open("w") as err:
            process = subprocess.Popen(
                [*CURATE, "run", recipe, "--out", tmp_path / "run"], stdout=out, stderr=err
            )
            while not server.requests:  # it looks at the server, in its first second
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 1
            server.is_held = False
    for name in names:
        assert "interrupted; what was done is kept" in (tmp_path / name).read_text()
        assert "Traceback" not in (tmp_path / name).read_text()


def test_sigterm_ends_an_estimate(data: Path, tmp_path: Path) -> None:
    with live_server() as server:
        server.is_held = True
        recipe = recipe_file(tmp_path, data, server.base_url)
        process = subprocess.Popen(
            [*CURATE, "estimate", recipe], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while not server.requests:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=120)
        server.is_held = False
        assert (process.returncode, out) == (1, "")
        assert said.split() == [
            "interrupted;",
            "to",
            "start",
            "again:",
            "curate",
            "estimate",
            str(recipe),
        ]


def test_a_log_shows_life_and_a_terminal_bars() -> None:
    def shown(bars: bool, out: bool) -> tuple[str, str]:
        consoles = [
            Console(file=io.StringIO(), force_terminal=is_terminal, width=200)
            for is_terminal in (bars, out)
        ]
        log = next(console.file for console in reversed(consoles) if not console.is_terminal)
        assert isinstance(log, io.StringIO)

        def wait_for_lines(number: int, begin: str) -> None:
            until = time.monotonic() + 60
            while sum(line.startswith(begin) for line in log.getvalue().splitlines()) < number:
                assert time.monotonic() < until
                time.sleep(0.005)

        with RunProgress(*consoles, every=0.01) as progress:
            wait_for_lines(1, "starting for ")  # a model loads
            progress("ingest", 3, 3)
            for done in range(4):
                progress("judge", done, 400)
                wait_for_lines(2, f"judge: {done} of 400 ")  # no row comes, and lines do
        return tuple(console.file.getvalue() for console in consoles)  # type: ignore[attr-defined]

    bars, log = shown(bars=True, out=False)
    assert "judge" in bars
    assert "\x1b[" not in log
    lines = log.splitlines()
    assert re.fullmatch(r"starting for [\d.]+ s", lines[0])
    assert any(line.startswith("ingest: 3 of 3 done in ") for line in lines)
    assert "judge: 0 of 400 (0%)" in lines
    between = re.compile(r"judge: 3 of 400 \(1%\), \S+/s, .+ left")
    assert sum(bool(between.fullmatch(line)) for line in lines) > 1
    assert lines[-1].startswith("judge: 3 of 400 done in ")
    assert len([line for line in lines if line.startswith("judge: 0")]) > 1
    err, out = shown(bars=False, out=True)
    assert "judge: 3 of 400" in err
    assert out == ""
    err, out = shown(bars=False, out=False)
    assert err == ""
    assert "judge: 3 of 400" in out


def test_a_second_writer_is_refused(data: Path, tmp_path: Path) -> None:
    with live_server() as server:
        hold_from(server, 8)  # however long the second takes, the first is still at work
        recipe = recipe_file(tmp_path, data, server.base_url)
        first = start("run", recipe, "--out", tmp_path / "run")
        while len(server.requests) < 8:
            assert first.process.is_alive()
            time.sleep(0.02)
        fails(curate("run", recipe, "--out", tmp_path / "run"), 1, "another process", "--out")
        release(server)
        assert first.wait().returncode == 0


def test_a_missing_extra_names_the_line_that_mends_it(data: Path, tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, data, "http://127.0.0.1:9/v1")
    hidden = "import sys; sys.modules['aiohttp'] = None; from curate.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", hidden, "run", str(recipe), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
    )
    fails(result, 2, f"pip install '{requirement('openai')}'")


# --- what is expected, and what it may cost


def scripted_recipe(folder: Path, data: Path, more: str = "") -> Path:
    """A recipe that asks a scripted judge with prices: 1,000 tokens in, 600 of them cached, 10 out."""
    path = folder / "scripted.yaml"
    replies = folder / "replies.jsonl"
    reply = {"text": "YES", "usage": [1000, 600, 10]}
    replies.write_text("".join(json.dumps(reply) + "\n" for _ in range(40)))
    path.write_text(
        f"source: {{path: {data}}}\nrole: A clerk.\njudge: false\nadherence: {{output_mode: binary}}\n"
        f"select: false\nmodels:\n  judge: {{engine: scripted, replies: {replies},\n"
        "    prices: {input: 1000, output: 5000, cached_input: 100}}\n" + more
    )
    return path


def test_a_budget_of_money_stops_the_run_and_a_larger_one_goes_on(
    data: Path, tmp_path: Path
) -> None:
    """Three dialogues of two turns are six calls, each 0.4 uncached, 0.06 cached and 0.05 out: 0.51."""
    recipe = scripted_recipe(tmp_path, data)
    stopped = curate("run", recipe, "--out", tmp_path / "run", "--set", "budget.money=1.5")
    assert stopped.returncode == 1, stopped.stdout + stopped.stderr
    said = " ".join(stopped.stdout.split())
    for word in ("the budget of money is used up", "1.53 used", "less than 1.5", "goes on"):
        assert word in said
    first = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (first["status"], first["requests"]) == ("budget", 3)
    assert first["cost"] == pytest.approx(1.53)
    rest = curate("run", recipe, "--out", tmp_path / "run", "--set", "budget.money=5")
    assert rest.returncode == 0, rest.stdout + rest.stderr
    second = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (second["status"], second["requests"]) == ("done", 3)
    assert second["cost"] == pytest.approx(1.53)


def test_estimate_says_what_a_run_then_asks(data: Path, tmp_path: Path) -> None:
    recipe = scripted_recipe(tmp_path, data)
    out = ("--out", tmp_path / "run")
    said = curate("estimate", recipe, *out, "--rate", "prefill=1000,decode=10")
    assert said.returncode == 0, said.stderr
    for word in ("requests", "after sharing", "time:", "cost at the recipe's prices", "assumed:"):
        assert word in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 80
    found = json.loads(curate("estimate", recipe, *out, "--json").stdout)["estimate"]
    assert found["total"]["requests"] == 6
    assert found["seconds"] is None
    assert not (tmp_path / "run").exists()

    result = curate("run", recipe, *out, "--verbose")
    assert result.returncode == 0, result.stdout + result.stderr
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["estimate"]["total"] == found["total"]
    for shown in (result.stdout, curate("show", tmp_path / "run").stdout):
        assert "expected" in shown
        assert ["requests", "6", "6"] in [line.split() for line in shown.splitlines()]
    again = json.loads(
        curate("estimate", recipe, *out, "--json", "--rate-from", tmp_path / "run").stdout
    )
    assert again["estimate"]["seconds"] > 0


def test_estimate_refuses_what_it_cannot_use(data: Path, tmp_path: Path) -> None:
    recipe = scripted_recipe(tmp_path, data)
    fails(curate("estimate", recipe, "--rate", "fast"), 2, "prefill=2000,decode=80")
    fails(curate("estimate", recipe, "--measure", "--rate", "prefill=1,decode=1"), 2, "one of")
    fails(curate("estimate", recipe, "--rate-from", tmp_path), 2, "not a run folder")
