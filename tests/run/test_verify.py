"""`curate verify`: a run is what its kept replies give, and any single change of it is found."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from aiohttp import web
from typer.testing import CliRunner

from curate.cli import app
from curate.errors import CurateError, UsageError
from curate.recipe import Recipe
from curate.run.file_differences import Difference
from curate.run.labels.sample import sample
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_manifest
from curate.run.verify import Verification, verify_run
from curate.storage.stage_rows import StageRows
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.servers import Body, CountingServer, answer_by_hash


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server() as running:
        yield running


def preference(number: int) -> dict[str, Any]:
    start = [{"role": "user", "content": f"What is chat {number} about?"}]
    sides = {
        name: [*start, {"role": "assistant", "content": f"It is {name} number {number}."}]
        for name in ("chosen", "rejected")
    }
    return {"id": f"pref-{number}", **sides}


def every_stage(server: CountingServer, folder: Path, chats: int = 8, **sections: Any) -> Recipe:
    """A recipe that has all stages, on data with dialogues, a row that is none, and natural pairs."""
    rows = [*(chat(n, turns=1 + n % 3) for n in range(chats)), {"id": "broken", "messages": []}]
    dialogues = write_rows(folder / "chats.jsonl", rows)
    pairs = write_rows(folder / "pairs.jsonl", [preference(n) for n in range(4)])
    return recipe(
        server,
        dialogues,
        source=[{"path": str(dialogues)}, {"path": str(pairs)}],
        metrics={},
        factuality={},
        fork={"resamples": 1, "where": "1 = 1"},
        natural={"verify": True},
        select={"where": {"any": "1 = 1"}, "split": {"validation": 0.2}},
        export={"trainers": ["trl"]},
        **sections,
    )


@pytest.fixture(scope="module")
def finished(server: CountingServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every stage, with a draw, a certificate, agreement and an audit."""
    folder = tmp_path_factory.mktemp("verified")
    run = folder / "run"
    result = run_recipe(every_stage(server, folder), out=run)
    assert result.exit_code == 0
    ids = pl.read_parquet(run / "scores.parquet")["id"].to_list()
    gold, verdicts = folder / "gold.csv", folder / "verdicts.csv"
    gold.write_text("id,value\n" + "".join(f"{one},4\n" for one in ids))
    words = ("poor", "borderline", "good", "excellent")
    labels = [f"{one},verdict,{words[n % 4]}\n" for n, one in enumerate(ids)]
    verdicts.write_text("id,dimension,value\n" + "".join(labels))
    draw = [
        "--for",
        "agreement",
        "--of",
        "all",
        "--by",
        "characters",
        "--out",
        str(folder / "draw.csv"),
    ]
    question = ["--bad", "human < 3", "--risk", "0.3", "--confidence", "0.7"]
    for arguments in (
        ["sample", str(run), "-n", "6", *draw],
        ["certify", str(run), str(gold), *question, "--out", str(folder / "c.json")],
        ["agreement", str(run), str(verdicts)],
        ["audit", str(run)],
    ):
        ended = CliRunner().invoke(app, arguments)
        assert ended.exit_code == 0, ended.output
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def places(verification: Verification) -> set[str]:
    return {difference.place for difference in verification.differences}


def test_a_run_is_what_its_kept_replies_give(run: Path, server: CountingServer) -> None:
    before, requests = contents(run), len(server.requests)
    verification = verify_run(run)
    assert verification.differences == ()
    assert verification.rows.keys() == {
        "judge",
        "adherence",
        "metrics",
        "factuality",
        "fork",
        "natural",
    }
    assert verification.rows["judge"] == 16
    assert verification.certificates == 1
    assert not verification.no_reply
    assert "no model was asked" in verification.sentence
    assert len(server.requests) == requests
    assert contents(run) == before


def contents(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def is_accounted_for(run: Path) -> bool:
    """Every row that came in is used or in quarantine; in each stage every dialogue, or natural pair, has its row; all are decided."""
    manifest = read_manifest(run)
    index = pl.read_parquet(run / "dialogues.parquet")
    units = dict.fromkeys(manifest.stages, index["content_hash"].to_list())
    if "natural" in units:
        lines = (run / "natural/candidates.jsonl").read_text().splitlines()
        pairs = [line["pair"] for line in map(json.loads, lines)]
        units["natural"] = [pair["pair_id"] for pair in pairs if pair["drop_reason"] is None]
    decisions = [json.loads(line) for line in (run / "select/decisions.jsonl").open()]
    return (
        manifest.rows_in == manifest.rows_used + manifest.quarantined
        and manifest.dialogues == index.height
        and all(manifest.stages[stage].rows == len(keys) for stage, keys in units.items())
        and all(keys_of_rows(run, stage) >= {*keys} for stage, keys in units.items())
        and [decision["dialogue_id"] for decision in decisions] == index["id"].to_list()
        and all(decision["sets"] for decision in decisions)
    )


def keys_of_rows(run: Path, stage: str) -> set[str]:
    folder = run / stage / read_manifest(run).fingerprints[stage]
    return {*StageRows(folder, dump=orjson.dumps, load=orjson.loads).done()}


def test_what_has_lost_a_row_is_not_accounted_for(run: Path) -> None:
    """Of the check that other tests hold against runs that were disturbed."""
    assert is_accounted_for(run)
    for stage in read_manifest(run).stages:
        [table] = (run / stage).glob("*/rows.parquet")
        whole = pl.read_parquet(table)
        whole[1:].write_parquet(table)
        assert not is_accounted_for(run), stage
        whole.write_parquet(table)
        assert is_accounted_for(run)
    drop_line("select/decisions.jsonl")(run)
    assert not is_accounted_for(run)


def change_row(stage: str, change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Return a function that changes one row of a stage, as somebody who knows the format would."""

    def plant(run: Path) -> None:
        [table] = run.glob(f"{stage}/*/rows.parquet")
        rows = StageRows(table.parent, dump=orjson.dumps, load=orjson.loads)
        records = dict(rows.read())
        key = next(iter(records))
        change(records[key])
        rows.append(key, records[key])
        rows.compact(list(records))
        rows.close()

    return plant


A_SCORE = """SELECT number FROM kept WHERE CAST(value AS TEXT) LIKE '{"text":" 1"%' ORDER BY number LIMIT 1"""
"""Query for a reply that a score of the judge is read from: the judge is asked first, and digits are scores."""


def change_reply(run: Path) -> None:
    """Change a score's probability in one reply of the judge, and the checksum with it."""
    with sqlite3.connect(run / "replies.sqlite") as base:
        query = f"SELECT key, value FROM kept WHERE number = ({A_SCORE})"
        [(key, value)] = base.execute(query).fetchall()
        reply = orjson.loads(value)
        reply["first_token"][0][1] -= 0.5
        changed = orjson.dumps(reply)
        row = (changed, zlib.crc32(changed, zlib.crc32(key)), key)
        base.execute("UPDATE kept SET value = ?, checksum = ? WHERE key = ?", row)


def damage_reply(run: Path) -> None:
    """Change a byte of a reply, as a disk would: the checksum no longer fits."""
    with sqlite3.connect(run / "replies.sqlite") as base:
        base.execute(f"UPDATE kept SET value = value || ' ' WHERE number = ({A_SCORE})")


def lose_reply(run: Path) -> None:
    with sqlite3.connect(run / "replies.sqlite") as base:
        base.execute(f"DELETE FROM kept WHERE number = ({A_SCORE})")


def change_score_table(run: Path) -> None:
    path = run / "scores.parquet"
    table = pl.read_parquet(path)
    first = pl.int_range(pl.len()) == 0
    table.with_columns(mean_score=pl.when(first).then(4.99).otherwise("mean_score")).write_parquet(
        path
    )


def change_line(name: str, old: str, new: str) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        path = run / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return plant


def drop_line(name: str) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        lines = (run / name).read_text().splitlines(keepends=True)
        (run / name).write_text("".join(lines[1:]))

    return plant


def raise_margin(run: Path) -> None:
    path = run / "pairs/natural_pairs.jsonl"
    first, *others = path.read_bytes().splitlines(keepends=True)
    pair = orjson.loads(first)
    pair["check"]["margin"] = 3.25
    path.write_bytes(orjson.dumps(pair) + b"\n" + b"".join(others))


def add_file(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_text("{}\n") and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


def draw_another(run: Path) -> None:
    """Say of a member of the draw that it was drawn, though it was not."""
    [path] = (run / "trust/draws").glob("*.parquet")
    table = pl.read_parquet(path)
    other = pl.int_range(pl.len()) == table["drawn"].arg_min()
    table.with_columns(drawn=pl.when(other).then(pl.lit(True)).otherwise("drawn")).write_parquet(
        path
    )


def another_seed(run: Path) -> None:
    [path] = (run / "trust/draws").glob("*.json")
    path.write_text(path.read_text().replace('"seed": 42', '"seed": 43'))


def accept(run: Path) -> None:
    first = json.loads((run / "dialogues.jsonl").read_text().splitlines()[0])
    rows = {row["id"]: row for row in pl.read_parquet(run / "scores.parquet").iter_rows(named=True)}
    answer = {
        "kind": "review_answer",
        "id": first["id"],
        "content": rows[first["id"]]["content_hash"],
        "dimension": "accept",
        "value": "reject",
        "rater": "ann",
        "time": "2026-01-01T00:00:00Z",
    }
    (run / "review").mkdir(exist_ok=True)
    (run / "review" / "answers.jsonl").write_text(json.dumps(answer) + "\n")


def set_verdict(row: dict[str, Any]) -> None:
    row["verdict"] = "excellent" if row["verdict"] != "excellent" else "poor"


def set_first_score(row: dict[str, Any]) -> None:
    scores = row["per_turn"][0]
    scores["score"] = 1 - (scores["score"] or 0)


A_FIGURE = '"agreement": {\n          "value": 0.'
"""Start of a figure that nothing outside the report of agreement shows."""
IN_WHAT_WAS_MADE = {
    "judge": change_row("judge", set_verdict),
    "adherence": change_row("adherence", set_first_score),
    "metrics": change_row("metrics", lambda row: row.update(overall_score=1.5)),
    "scores.parquet": change_score_table,
    "pairs/natural_pairs.jsonl": raise_margin,
    "select/sft.jsonl": drop_line("select/sft.jsonl"),
    "export/trl/sft.jsonl": change_line("export/trl/sft.jsonl", "Answer 1", "Answer 7"),
    "manifest.json": change_line("manifest.json", '"selected": ', '"selected": 1'),
    "quarantine.jsonl": change_line("quarantine.jsonl", "broken", "broker"),
    "natural/candidates.jsonl": change_line(
        "natural/candidates.jsonl", "chosen number 1", "selected number 1"
    ),
    "export/trl/more.jsonl": add_file("export/trl/more.jsonl"),
    "export/notes.txt": add_file("export/notes.txt"),
    "trust/certificate.json": change_line(
        "trust/labels/certificate.jsonl", '"value":"4"', '"value":"1"'
    ),
    "trust/agreement.json": change_line("trust/agreement.json", A_FIGURE, A_FIGURE + "9"),
    "trust/audit.json": change_line("trust/audit.json", '"status": "pass"', '"status": "warn"'),
    "trust/questions.jsonl": change_line("trust/questions.jsonl", '"of":"sft"', '"of":"all"'),
    "trust/draws": draw_another,
}


def folder_of_draws(place: str) -> str:
    """A place; of a file of a draw, which is named by a hash, its folder."""
    return "trust/draws" if place.startswith("trust/draws/") else place


def test_each_planted_change_of_what_was_made_is_found(run: Path) -> None:
    for plant in IN_WHAT_WAS_MADE.values():
        plant(run)
    verification = verify_run(run)
    by_place = {folder_of_draws(one.place): one for one in verification.differences}
    assert by_place.keys() == IN_WHAT_WAS_MADE.keys()
    assert by_place["judge"].units == ("chat-0",)
    assert by_place["judge"].fields == ("verdict",)
    assert by_place["scores.parquet"].fields == ("mean_score",)
    assert by_place["pairs/natural_pairs.jsonl"].fields == ("check.margin",)
    assert by_place["manifest.json"].fields == ("selected",)
    assert "labels.bad" in by_place["trust/certificate.json"].fields
    assert by_place["judge"].rows == by_place["export/trl/sft.jsonl"].rows == 1
    assert by_place["trust/agreement.json"].fields == ("dimensions.verdict.levels.agreement.value",)
    assert by_place["trust/draws"].rows == 1


@pytest.mark.parametrize(
    ("plant", "place"),
    [
        pytest.param(change_reply, "judge", id="a reply"),
        pytest.param(lose_reply, "judge", id="a lost reply"),
        pytest.param(
            change_line("dialogues.jsonl", "Answer 1", "Answer 7"),
            "dialogues.parquet",
            id="a dialogue",
        ),
        pytest.param(accept, "select/decisions.jsonl", id="an answer of a reviewer"),
        pytest.param(
            change_line("dialogues.jsonl", '"source":"chats"', '"source":"cards"'),
            "dialogues.jsonl",
            id="what no judge is shown",
        ),
        pytest.param(
            change_line("trust/labels/agreement.jsonl", '"poor"', '"good"'),
            "trust/agreement.json",
            id="a label of agreement",
        ),
        pytest.param(another_seed, "trust/draws", id="a draw's seed"),
        pytest.param(remove("not_sampled.jsonl"), "not_sampled.jsonl", id="a file of ingest"),
        pytest.param(remove("trust/questions.jsonl"), "trust/questions.jsonl", id="questions"),
        pytest.param(remove("trust/audit.json"), "manifest.json", id="a report"),
        pytest.param(
            change_line("manifest.json", '"status": "done"', '"status": "unscored"'),
            "manifest.json",
            id="how the run ended",
        ),
    ],
)
def test_a_planted_change_of_what_it_is_made_from_is_found(
    plant: Callable[[Path], None], place: str, run: Path
) -> None:
    plant(run)
    verification = verify_run(run)
    assert place in map(folder_of_draws, places(verification)), verification.differences
    assert place in verification.sentence


def test_replies_that_a_disk_has_damaged_are_counted_first(run: Path) -> None:
    damage_reply(run)
    verification = verify_run(run)
    assert verification.differences[0] == Difference(
        place="replies.sqlite", problem="kept replies do not fit their checksums", rows=1
    )
    assert {"judge", "scores.parquet"} <= places(verification)


def test_a_report_whose_labels_say_nothing_any_more_is_named_with_the_reason(run: Path) -> None:
    (run / "trust/labels/agreement.jsonl").write_text("")
    [difference] = verify_run(run).differences
    assert difference == Difference(
        place="trust/agreement.json",
        problem="cannot be made again: agreement.jsonl is not a file of labels",
    )


def test_a_certificate_is_not_held_against_a_draw_made_after_it(run: Path, tmp_path: Path) -> None:
    sampled = sample(run, 1000, out=tmp_path / "all.csv", purpose="agreement", of="all", seed=7)
    change_line(
        f"trust/draws/{sampled.draw.id}.json", sampled.draw.made, "2100-01-01T00:00:00+00:00"
    )(run)
    verification = verify_run(run)
    assert verification.differences == ()
    assert verification.not_verified == (
        "trust/certificate.json: a draw made later has all of its labels",
    )


def test_a_certificate_is_not_held_against_labels_that_its_draw_asked_for_later(
    run: Path, tmp_path: Path
) -> None:
    labels, more = tmp_path / "labels.csv", tmp_path / "more.csv"
    sample(run, 6, out=labels, of="all")
    pl.read_csv(labels).with_columns(value=pl.lit("accept")).write_csv(labels)
    certify = ["certify", str(run), str(labels), "--risk", "0.5", "--confidence", "0.6"]
    certified = CliRunner().invoke(app, [*certify, "--out", str(tmp_path / "c.json")])
    assert certified.exit_code == 0, certified.output
    assert verify_run(run).certificates == 1
    sample(run, 8, out=more, of="all")
    verification = verify_run(run)
    assert verification.differences == ()
    assert "trust/certificate.json: its draw was enlarged after it" in verification.not_verified


def test_what_cannot_be_made_again_is_named(run: Path) -> None:
    """Files whose inputs are not there are neither right nor wrong."""
    for name in ("certificate", "agreement"):
        (run / f"trust/labels/{name}.jsonl").unlink()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["hashes"] = {}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "calibration.json").write_text("{}")
    (run / "trust/notes.txt").write_text("Looked at by Ann.")
    verification = verify_run(run)
    assert verification.differences == ()
    reasons = dict(line.split(": ", 1) for line in verification.not_verified)
    assert reasons == {
        **dict.fromkeys(
            ("dialogues.jsonl", "quarantine.jsonl", "not_sampled.jsonl"),
            "the run has not recorded its hash",
        ),
        **dict.fromkeys(
            ("trust/certificate.json", "trust/agreement.json"),
            "its labels are not kept with this run",
        ),
        "trust/questions.jsonl": "certificates that answered other questions (1) are not kept",
        "trust/notes.txt": "the run keeps nothing to make it from",
        "calibration.json": "the run does not make it",
    }


def test_a_row_whose_call_failed_stands_without_a_reply(tmp_path: Path) -> None:
    """A call that failed leaves no reply: its row claims none, and is taken as it is."""

    def answer(body: Body) -> Any:
        if "chat 2" in str(body["messages"]):
            reply = {"error": {"message": "this model's maximum context length is 10 tokens"}}
            return web.json_response(reply, status=400)
        if "chat 3" in str(body["messages"]):
            return web.json_response({"error": {"message": "no such thing"}}, status=400)
        return answer_by_hash(body)

    data = write_rows(tmp_path / "chats.jsonl", [chat(n, turns=3) for n in range(5)])
    with live_server(answer=answer) as server:
        run_recipe(recipe(server, data), out=tmp_path / "run")
    verification = verify_run(tmp_path / "run")
    assert verification.differences == ()
    assert verification.no_reply == {"judge": 2, "adherence": 2}


def test_a_failed_call_is_made_again_with_the_kind_of_fault_that_it_had(tmp_path: Path) -> None:
    """A prompt that does not fit makes a judge ask in parts, one that is refused costs a turn; either leaves no reply."""

    def refuse(message: str) -> Any:
        return web.json_response({"error": {"message": message}}, status=400)

    def answer(body: Body) -> Any:
        text = str(body["messages"])
        first, second, third = (f"Question {turn} of" in text for turn in (1, 2, 3))
        if "chat 2" in text and first and third:
            return refuse("this model's maximum context length is 10 tokens")
        if "chat 3" in text and second and not third:
            return refuse("no such thing")
        return answer_by_hash(body)

    run = tmp_path / "run"
    data = write_rows(tmp_path / "chats.jsonl", [chat(n, turns=3) for n in range(4)])
    with live_server(answer=answer) as server:
        judge = {"min_scored_share": 0.5}
        run_recipe(recipe(server, data, judge=judge, adherence=False), out=run)
    assert pl.read_parquet(run / "scores.parquet")["verdict"].null_count() == 0
    verified = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["verify", str(run)])
    said, sentence = verified.stdout.splitlines()
    assert said == "judge: 2 rows of failed calls: no reply to make them again from"
    assert sentence.startswith("The run is what its kept replies give: rows (4 judge), files (")
    assert verified.exit_code == 0


def test_the_command_says_what_differs(run: Path) -> None:
    same = CliRunner().invoke(app, ["verify", str(run), "--json"])
    assert same.exit_code == 0
    assert Verification.model_validate_json(same.stdout).differences == ()
    change_row("judge", set_verdict)(run)
    other = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["verify", str(run)])
    assert other.exit_code == 1
    assert "judge differs" in other.stdout
    assert "chat-0: verdict" in other.stdout
    assert other.stdout.splitlines()[-1] == "The run is not what its kept replies give: judge."


def test_a_stage_without_rows_verifies(server: CountingServer, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "chats.jsonl", [chat(0)])
    planned = recipe(server, data, fork={"resamples": 1, "where": "1 = 0"})
    run_recipe(planned, out=tmp_path / "run")
    assert verify_run(tmp_path / "run").differences == ()


def test_a_run_that_cannot_be_verified_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        verify_run(tmp_path)
    manifest = run / "manifest.json"
    ended = manifest.read_text()
    manifest.write_text(json.dumps(json.loads(ended) | {"status": "running"}))
    with pytest.raises(UsageError, match="the run has not ended"):
        verify_run(run)
    manifest.write_text(ended)
    path = run / "dialogues.jsonl"
    first, second, rest = path.read_text().split("\n", 2)
    path.write_text("\n".join([first, second[:-9], rest]))
    with pytest.raises(CurateError) as damaged:
        verify_run(run)
    assert damaged.value.problem == f"{path}:2 is damaged"
    assert str(damaged.value.got).startswith("Invalid JSON: ")
    (run / "replies.sqlite").unlink()
    with pytest.raises(UsageError, match="scores cannot be recomputed"):
        verify_run(run)
    assert not (run / "replies.sqlite").exists()
