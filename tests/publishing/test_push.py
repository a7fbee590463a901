"""A run as it is prepared: equal rows, sums that add up, a card that is valid, and what stops a push."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from curate.cli import app
from curate.errors import CurateError, RunLockedError, UsageError
from curate.publishing.card import CardFacts, make_card
from curate.publishing.judgments import DialogueCounts
from curate.publishing.published_tables import PublishedFile
from curate.publishing.push import Prepared, PushOptions, prepare_push, send
from curate.publishing.scan import Findings
from curate.records import Agreement, Manifest, ProbeLine, ProbeReport
from curate.records.agreement import AgreementGate, DimensionAgreement, Figure, LevelFigures
from curate.run.read_back import read_manifest
from curate.run.trust_reports import write_trust_report
from curate.storage.parquet_files import is_json, json_array
from curate.storage.run_folder import RunFolder
from tests.hub_server import HubServer
from tests.publishing.conftest import make_run
from tests.report.reading import ReadPage
from tests.run.test_pipeline import lines

REPO = "me/parcels"


def rows_of(prepared: Prepared, config: str, split: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for table in prepared.tables:
        if (table.config, table.split) == (config, split):
            rows += pq.read_table(table.path).to_pylist()
    return [{key: opened(value) for key, value in row.items()} for row in rows]


def opened(value: Any) -> Any:
    """Messages of Arrow's JSON type as objects."""
    if isinstance(value, list) and value and isinstance(value[0], str) and value[0][:1] == "{":
        return [orjson.loads(item) for item in value]
    return value


def edit_manifest(run: Path, **changes: Any) -> None:
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def front_matter(card: str) -> dict[str, Any]:
    match = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    assert match
    return yaml.safe_load(match[1])


SIDES = [("train", "export/trl"), ("validation", "export/trl/validation")]


@pytest.mark.parametrize(("split", "side"), SIDES)
def test_rows_are_those_of_the_export_each_with_its_lineage(
    run: Path, split: str, side: str
) -> None:
    prepared = prepare_push(run, REPO)
    sft = rows_of(prepared, "sft", split)
    assert [{"messages": row["messages"]} for row in sft] == lines(run / side / "sft.jsonl")
    known = pl.read_parquet(run / side / "sft_provenance.parquet")
    assert [row["dialogue_id"] for row in sft] == known["dialogue_id"].to_list()
    assert {row["lineage_file"] for row in sft} <= {"chats.jsonl", "prefs.jsonl"}
    sides = ("prompt", "chosen", "rejected")
    provenance = pl.read_parquet(run / side / "provenance.parquet")
    pairs = rows_of(prepared, "dpo_natural", split)
    exported = lines(run / side / "dpo_natural.jsonl")
    assert [{name: row[name] for name in sides} for row in pairs] == exported
    known = provenance.filter(pl.col("file") == "dpo_natural")
    assert [row["pair_id"] for row in pairs] == known["pair_id"].to_list()
    assert {row["basis"] for row in pairs} <= {"preference"}


def test_judgments_are_those_of_the_score_table(run: Path) -> None:
    prepared = prepare_push(run, REPO)
    rows = [row for split, _ in SIDES for row in rows_of(prepared, "judgments", split)]
    scores = {
        row["id"]: row for row in pl.read_parquet(run / "scores.parquet").iter_rows(named=True)
    }
    decided = {row["dialogue_id"]: row for row in lines(run / "select/decisions.jsonl")}
    assert {row["dialogue_id"] for row in rows} == scores.keys()
    for row in rows:
        score, decision = scores[row["dialogue_id"]], decided[row["dialogue_id"]]
        for name in ("verdict", "coherence", "task_completion", "weakest_turn", "adherence"):
            assert row[name] == score[name]
        assert min(turn["helpfulness"] for turn in row["turns"]) == score["min_helpfulness"]
        assert (row["sets"], row["reasons"]) == (decision["sets"], decision["reasons"])
        assert len(row["adherence_turns"]) >= score["n_assistant_turns"] > 0
    held_out = {row["dialogue_id"] for row in rows_of(prepared, "judgments", "validation")}
    assert held_out == {name for name, row in decided.items() if row["split"] == "validation"}


def test_the_card_says_how_often_the_judge_disagrees_with_itself(run: Path) -> None:
    prepared = prepare_push(run, REPO)
    checks = prepared.manifest.judge_checks
    assert checks is not None
    said = f"weakest turn is another than its scores give: {checks.weakest_mismatch.described}"
    assert checks.weakest_mismatch.of > 0
    assert "| aggregation bias |" in prepared.card
    assert "| persona collapse |  | 0.30 | not run |" in prepared.card
    assert f"\n- The judge's {said} dialogues.\n" in prepared.card


def test_the_funnel_adds_up_from_rows_to_what_is_pushed(run: Path) -> None:
    prepared = prepare_push(run, REPO)
    steps = {step.name: step for step in prepared.funnel}
    assert all(step.adds_up for step in prepared.funnel)
    assert steps["rows in"].whole == 48
    assert steps["rows in"].parts["used"] == 46
    assert steps["dialogues, judged"].whole == 34 + 24 == prepared.manifest.dialogues
    assert steps["dialogues, selection"].note in prepared.card
    by_reason = prepared.manifest.rejection_reasons
    for name, number in by_reason.items():
        assert f"{name} {number}" in steps["dialogues, selection"].note
    assert by_reason["rejected_side"] == 12
    selected = steps["dialogues, selection"].parts["selected"]
    assert selected == prepared.manifest.selected
    sft = [len(rows_of(prepared, "sft", split)) for split, _ in SIDES]
    assert list(steps["selected"].parts.values()) == sft
    assert sum(sft) == selected
    dropped = {
        name.removeprefix("dropped: "): number
        for name in ("candidates of forks", "candidates in the data")
        if name in steps
        for name, number in steps[name].parts.items()
        if name.startswith("dropped: ")
    }
    assert dropped == prepared.manifest.drop_reasons
    assert any(name.startswith("fork: forked") for name in steps)
    assert steps["candidates in the data"].parts["natural pairs"] == 12
    for step in prepared.funnel:
        assert f"| {step.name} | {step.whole:,} |" in prepared.card


@pytest.mark.parametrize("change", [{"rows_in": 49}, {"natural_pairs": 11}, {"pairs": 99}])
def test_figures_that_do_not_add_up_are_not_published(run: Path, change: dict[str, int]) -> None:
    edit_manifest(run, **change)
    with pytest.raises(CurateError, match="do not add up"):
        prepare_push(run, REPO)


def test_files_of_different_runs_are_not_published(run: Path) -> None:
    sidecar = run / "export/trl/sft_provenance.parquet"
    pl.read_parquet(sidecar).reverse().write_parquet(sidecar)
    with pytest.raises(CurateError, match="does not match the rows"):
        prepare_push(run, REPO)


def test_the_front_matter_is_what_the_hub_takes(run: Path) -> None:
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard

    prepared = prepare_push(run, REPO, PushOptions(title="Parcels & co: 1"))
    data = front_matter(prepared.card)
    assert data["license"] == ["cc0-1.0", "cc-by-4.0"]
    assert data["language"] == ["en"]
    assert data["pretty_name"] == "Parcels & co: 1"
    assert data["size_categories"] == ["n<1K"]
    assert {"curate", "dpo"} <= set(data["tags"])
    card = DatasetCard(prepared.card)
    assert card.data.to_dict()["license"] == data["license"]
    configs = MetadataConfigs.from_dataset_card_data(card.data)
    assert list(configs) == ["sft", "dpo", "dpo_natural", "judgments"]
    assert configs.get_default_config_name() == "sft"
    for table in prepared.tables:
        [path] = [
            entry["path"]
            for entry in configs[table.config]["data_files"]
            if entry["split"] == table.split
        ]
        assert Path(table.name).match(path)


def test_the_card_says_how_far_a_calibrated_judge_agrees_with_people(
    run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "calibrated"
    shutil.copytree(run, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    cuts = {"cuts": [2, 3, 4, 4.5], "method": "kappa", "labels": 120, "dialogues": 60}
    after = {"value": 0.523, "interval": [0.41, 0.62]}
    stated = {"cuts": [2, 3, 4, 4.5], "method": "given_shares"}
    calibration = {
        "kind": "calibration",
        "identity": manifest["identities"]["judge"],
        "levels": {"safety": stated},
    }
    manifest["recipe"]["judge"]["calibration"] = calibration
    manifest["levels"] = "levels are calibrated: coherence."

    def card() -> str:
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return " ".join(prepare_push(folder, REPO).card.split())

    assert "never measured against human ratings" in card()  # shares that were stated prove nothing
    calibration["levels"]["coherence"] = cuts | {"after": after}
    said = card()
    assert "coherence 0.52 (0.41 to 0.62), 120 labels of 60 dialogues" in said
    assert "levels are calibrated: coherence." in said
    assert "never measured" not in said


def test_the_card_says_who_judged_and_that_nobody_measured_it(run: Path) -> None:
    card = prepare_push(run, REPO).card
    assert "never measured against human ratings" in card
    assert "| judge | openai | fake-judge |" in card
    assert "| policy | openai | fake-judge |" in card
    assert "Judge and policy are the same model" in card
    for word in ("helpfulness", "coherence", "role adherence", "excellent", "cc-by-4.0"):
        assert word in card
    assert 'load_dataset("me/parcels", "dpo_natural", split="train")' in card


def test_the_warning_about_a_judge_that_is_noise_reaches_the_card(run: Path) -> None:
    noise = "The judge, SmolLM2-135M, is too small to be trusted: its verdicts are noise."
    edit_manifest(run, warnings=[noise])
    assert noise in prepare_push(run, REPO).card


def test_the_card_holds_the_recipe_and_no_place_on_this_machine(run: Path) -> None:
    recipe = json.loads((run / "manifest.json").read_text())["recipe"]
    recipe["models"]["judge"]["api_key_env"] = "JUDGE_KEY_OF_ADA"
    recipe["reuse"] = "/home/ada/runs/first"
    edit_manifest(run, recipe=recipe, warnings=["3 dialogues have no row in /home/ada/runs/first."])
    prepared = prepare_push(run, REPO)
    for text in (prepared.card, prepared.files["recipe.yaml"].read_text()):
        assert "not_worst: mean_helpfulness > 2" in text
        for hidden in ("127.0.0.1", "JUDGE_KEY", "/home", str(run), str(run.parent), "pytest-of"):
            assert hidden not in text


def test_figures_of_the_card_are_those_of_the_table(run: Path) -> None:
    prepared = prepare_push(run, REPO)
    rows = [row for split, _ in SIDES for row in rows_of(prepared, "judgments", split)]
    scores = [turn["safety"] for row in rows for turn in row["turns"]]
    counts = " | ".join(f"{scores.count(value):,}" for value in range(1, 6))
    assert f"| safety (turns) | {counts} | 0 |" in prepared.card


def test_nothing_is_pushed_without_a_licence(run: Path) -> None:
    recipe = json.loads((run / "manifest.json").read_text())["recipe"]
    recipe["source"][1].pop("license")
    edit_manifest(run, recipe=recipe)
    with pytest.raises(UsageError, match=r"prefs[\s\S]*apache-2.0[\s\S]*--license"):
        prepare_push(run, REPO)
    data = front_matter(prepare_push(run, REPO, PushOptions(licences=("mit",))).card)
    assert data["license"] == "mit"
    with pytest.raises(UsageError, match=r"apache-2\.0"):
        prepare_push(run, REPO, PushOptions(licences=("Apache 2.0",)))


def test_languages_can_be_given_and_are_left_out_where_nobody_knows(run: Path) -> None:
    data = front_matter(prepare_push(run, REPO, PushOptions(languages=("de", "gsw"))).card)
    assert data["language"] == ["de", "gsw"]
    with pytest.raises(UsageError, match="ISO 639"):
        prepare_push(run, REPO, PushOptions(languages=("English",)))
    index = run / "dialogues.parquet"
    pl.read_parquet(index).with_columns(language=pl.lit(None, pl.String)).write_parquet(index)
    assert "language" not in front_matter(prepare_push(run, REPO).card)


def plant(run: Path, at: int, text: str) -> None:
    """Write a text into a message of one row of the export."""
    path = run / "export/trl/sft.parquet"
    table = pq.read_table(path)
    rows = [[opened([item])[0] for item in row] for row in table["messages"].to_pylist()]
    rows[at][0]["content"] = text
    kind = table.schema.field("messages").type
    column = json_array(rows, kind) if is_json(kind) else pa.array(rows, kind)
    pq.write_table(table.set_column(0, "messages", column), path)


def test_single_rows_are_redacted_or_left_out_by_kind_of_finding(run: Path) -> None:
    plain = rows_of(prepare_push(run, REPO), "sft", "train")
    plant(run, 0, "Write to ann@shop.org, please.")
    plant(run, 1, "Call 0171-5512345, please.")
    stopped = prepare_push(run, REPO)
    assert stopped.blocked_by == ["email", "phone"]
    options = PushOptions(redact=("email",), leave_out=("phone",))
    prepared = prepare_push(run, REPO, options)
    assert prepared.blocked_by == []
    rows = rows_of(prepared, "sft", "train")
    assert rows[0]["messages"][0]["content"] == "Write to [email], please."
    assert rows[0]["messages"][1:] == plain[0]["messages"][1:]
    assert rows[1:] == plain[2:]
    [step] = [step for step in prepared.funnel if step.name == "selected"]
    assert step.parts["left out of the push: phone"] == 1
    assert step.adds_up
    assert "email (1)" in prepared.card
    with pytest.raises(UsageError, match="no such kind of finding"):
        prepare_push(run, REPO, PushOptions(redact=("addresses",)))


def test_names_stop_a_push_only_where_they_are_asked_for(run: Path) -> None:
    plain = rows_of(prepare_push(run, REPO), "sft", "train")
    plant(run, 0, "My name is Mei Davis. Ask for Mei.")
    assert prepare_push(run, REPO).blocked_by == []
    asked = prepare_push(run, REPO, PushOptions(names=True))
    assert asked.blocked_by == ["name"]
    assert [found.masked for found in asked.findings.examples["name"]] == ["M… D…", "M…"]
    assert "Mei" not in asked.findings_file.read_text()
    assert prepare_push(run, REPO, PushOptions(allow=("name",))).findings.counts == {"name": 2}
    redacted = prepare_push(run, REPO, PushOptions(redact=("name",)))
    assert redacted.blocked_by == []
    rows = rows_of(redacted, "sft", "train")
    assert rows[0]["messages"][0]["content"] == "My name is [name]. Ask for [name]."
    assert rows[1:] == plain[1:]
    assert "name (1)" in redacted.card
    without = prepare_push(run, REPO, PushOptions(leave_out=("name",)))
    assert without.blocked_by == []
    assert rows_of(without, "sft", "train") == plain[1:]
    assert prepare_push(run, REPO, PushOptions(names=True, report=True)).blocked_by == ["name"]


@pytest.mark.parametrize("name", ["parcels", "me/par cels", "me/a/b", "me/-x"])
def test_a_name_the_hub_does_not_take_is_refused_before_anything_is_written(
    run: Path, name: str
) -> None:
    with pytest.raises(UsageError, match="not the name of a repository"):
        prepare_push(run, name)
    assert not (run / "push").exists()


@pytest.mark.parametrize("status", ["running", "failed", "budget"])
def test_a_run_that_is_not_done_is_not_pushed(run: Path, status: str) -> None:
    edit_manifest(run, status=status)
    with pytest.raises(UsageError, match="not done"):
        prepare_push(run, REPO)


def test_a_run_that_is_being_written_is_not_pushed(run: Path) -> None:
    with RunFolder(run), pytest.raises(RunLockedError):
        prepare_push(run, REPO)


def test_a_run_without_a_parquet_export_says_what_to_write(run: Path) -> None:
    (run / "export/trl/dpo.parquet").unlink()
    with pytest.raises(UsageError, match=r"export\.formats"):
        prepare_push(run, REPO)
    edit_manifest(run, exports={"axolotl": {}})
    with pytest.raises(UsageError, match=r"export\.trainers"):
        prepare_push(run, REPO)


@pytest.mark.parametrize("name", ["sft.parquet", "dpo.parquet", "sft_provenance.parquet"])
def test_a_damaged_export_is_an_error_and_not_pushed(run: Path, name: str) -> None:
    (run / "export/trl" / name).write_bytes(b"damaged")
    with pytest.raises(CurateError, match=rf"{name} is damaged"):
        prepare_push(run, REPO)


@pytest.mark.parametrize("options", [PushOptions(), PushOptions(redact=("email",))])
def test_a_damaged_byte_in_a_text_is_an_error_and_not_pushed(
    run: Path, options: PushOptions
) -> None:
    path = run / "export/trl/sft.parquet"
    pq.write_table(pq.read_table(path), path, use_dictionary=False, compression="none")
    whole = path.read_bytes()
    word = rows_of(prepare_push(run, REPO), "sft", "train")[1]["messages"][0]["content"].encode()
    path.write_bytes(whole.replace(word, b"\xff" + word[1:]))
    assert path.read_bytes() != whole
    with pytest.raises(CurateError, match=r"export/trl/sft\.parquet is damaged"):
        prepare_push(run, REPO, options)


def test_a_run_that_did_not_split_has_no_validation(tmp_path: Path) -> None:
    run = make_run(tmp_path, select={"where": {"all": "1 = 1"}}, fork=False, adherence=False)
    prepared = prepare_push(run, REPO)
    assert {(table.config, table.split) for table in prepared.tables} == {
        (config, "train") for config in ("sft", "dpo_natural", "judgments")
    }
    assert len(rows_of(prepared, "sft", "train")) == 46  # 34 chats and 12 chosen sides
    assert "candidates of forks" not in {step.name for step in prepared.funnel}


def test_unscored_dialogues_are_counted_and_have_no_score(run: Path) -> None:
    for path in (run / "judge").glob("*/rows.parquet"):
        rows = pl.read_parquet(path)
        first = orjson.loads(rows["record"][0])
        unscored = {
            "dialogue_id": first["dialogue_id"],
            "content_hash": first["content_hash"],
            "stage": "judge",
            "kind": "unscored",
            "reason": "context_overflow",
        }
        said = [json.dumps(unscored), *rows["record"][1:]]
        rows.with_columns(record=pl.Series(said)).write_parquet(path)
    prepared = prepare_push(run, REPO)
    [step] = [step for step in prepared.funnel if step.name == "dialogues, judged"]
    assert step.parts == {"judged": 57, "unscored: context_overflow": 1}
    rows = [row for split, _ in SIDES for row in rows_of(prepared, "judgments", split)]
    [row] = [row for row in rows if row["unscored"]]
    assert (row["unscored"], row["verdict"], row["turns"]) == ("context_overflow", None, [])


FOUND = {
    "email": "ask ada@lovelace.org",
    "phone": "ring +44 20 7946 0958",
    "card": "pay with 4111 1111 1111 1111",
    "secret": "use ghp_" + "k2J9xQ4mZ7vB1nL8sT5wR3yU6eD0aHcFgPjV",
}


@pytest.mark.parametrize("kind", FOUND)
def test_each_kind_of_finding_stops_the_push_until_it_is_allowed(
    run: Path, hub: HubServer, edit_export: Callable[[str], None], kind: str
) -> None:
    edit_export(FOUND[kind])
    prepared = prepare_push(run, REPO, PushOptions(endpoint=hub.url))
    assert [name.partition(":")[0] for name in prepared.blocked_by] == [kind]
    with pytest.raises(CurateError, match=f"--allow {kind}"):
        send(prepared)
    assert hub.requests == []
    [line] = lines(prepared.findings_file)
    assert (line["kind"], line["file"], line["row"]) == (
        kind,
        "sft/train-00000-of-00001.parquet",
        0,
    )
    assert line["row_id"] == rows_of(prepared, "sft", "train")[0]["dialogue_id"]
    others = tuple(name for name in FOUND if name != kind)
    with pytest.raises(CurateError, match="nothing was pushed"):
        send(prepare_push(run, REPO, PushOptions(endpoint=hub.url, allow=others)))
    allowed = prepare_push(run, REPO, PushOptions(endpoint=hub.url, allow=(kind,)))
    assert send(allowed).is_new_repo
    assert "allowed by name to stay" in hub.files(REPO)["README.md"].decode()


def test_a_run_without_models_has_a_card_that_says_so(run: Path) -> None:
    manifest = read_manifest(run)
    recipe = {key: value for key, value in manifest.recipe.items() if key != "fork"}
    facts = CardFacts(
        repo=REPO,
        title="Parcels",
        manifest=manifest.model_copy(
            update={"identities": {}, "recipe": recipe, "warnings": ("so | so",)}
        ),
        tables=[PublishedFile("judgments", "train", "judgments/x.parquet", run, 0)],
        columns={},
        funnel=[],
        tally=DialogueCounts(),
        licences=("mit",),
        languages=(),
        findings=Findings(),
    )
    card = make_card(facts)
    assert "\n## Warnings of the run\n\n- so | so\n" in card
    assert "\n\nThere are no rows to train on.\n\n" in card
    assert (
        "\n\n## Scores\n\nNothing was scored.\n\n## Who judged\n\nNo model was asked.\n\n" in card
    )
    assert "{" not in card.split("# Parcels")[1].split("## Recipe")[0]


def test_a_dry_run_ends_with_1_where_findings_stop_the_push(
    run: Path, hub: HubServer, edit_export: Callable[[str], None]
) -> None:
    command = ["push", str(run), REPO, "--dry-run"]
    assert CliRunner().invoke(app, command).exit_code == 0
    edit_export(FOUND["email"])
    stopped = CliRunner().invoke(app, command)
    assert stopped.exit_code == 1
    assert "stops the push" in stopped.stdout
    assert "nothing was sent" in stopped.stdout
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (told["findings"], told["stopped_by"], told["pushed"]) == ({"email": 1}, ["email"], None)
    command += ["--allow", "email"]
    assert CliRunner().invoke(app, command).exit_code == 0
    edit_export("Dear Ada Lovelace, thanks")
    assert CliRunner().invoke(app, command).exit_code == 0
    named = CliRunner().invoke(app, [*command, "--names"])
    assert named.exit_code == 1
    assert "name: 1 in 1 row, stops the push" in named.stdout
    assert "Lovelace" not in named.stdout
    assert CliRunner().invoke(app, [*command, "--redact", "name"]).exit_code == 0
    assert hub.requests == []


def test_the_card_is_scanned_too(run: Path, hub: HubServer) -> None:
    edit_manifest(run, warnings=["ask ada@lovelace.org"])
    prepared = prepare_push(run, REPO, PushOptions(endpoint=hub.url))
    assert prepared.blocked_by == ["email"]
    [line] = lines(prepared.findings_file)
    assert line["file"] == "README.md"


def test_what_is_pushed_is_what_was_prepared_and_again_is_no_commit(
    run: Path, hub: HubServer
) -> None:
    options = PushOptions(endpoint=hub.url)
    prepared = prepare_push(run, REPO, options)
    send(prepared)
    held = hub.files(REPO)
    assert {name: path.read_bytes() for name, path in prepared.files.items()} == {
        name: data for name, data in held.items() if name != ".gitattributes"
    }
    assert sorted(prepared.files) == sorted(
        str(path.relative_to(run / "push/files"))
        for path in (run / "push/files").rglob("*")
        if path.is_file()
    )
    assert send(prepare_push(run, REPO, options)).is_unchanged


def test_preparing_again_leaves_nothing_of_before(run: Path) -> None:
    prepare_push(run, REPO)
    (run / "push/files/sft/train-00007-of-00008.parquet").write_bytes(b"")
    shutil.copy(run / "manifest.json", run / "push/files/leftover")
    prepared = prepare_push(run, REPO)
    there = {p for p in (run / "push/files").rglob("*") if p.is_file()}
    assert there == set(prepared.files.values())


def test_what_is_prepared_is_for_its_owner_alone(run: Path) -> None:
    before = os.umask(0)
    try:
        prepare_push(run, REPO)
    finally:
        os.umask(before)
    prepared = [run / "push", *(run / "push").rglob("*")]
    assert len(prepared) > 5
    assert [path for path in prepared if path.stat().st_mode & 0o077] == []


def test_no_name_in_the_card_steers_what_shows_it(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["sources"][0]["name"] = "n\x1b[31m\u202ex"
    manifest["recipe"]["scenario"] = "s\u202e\x9b1m"
    edit_manifest(run, sources=manifest["sources"], recipe=manifest["recipe"], warnings=["w\u202e"])
    card = prepare_push(run, REPO).card
    assert not {"\u202e", "\x1b", "\x9b"} & set(card)
    assert "n␛[31m<U+202E>x" in card


def test_the_report_goes_out_where_it_is_asked_for_and_names_no_places(
    run: Path, tmp_path: Path
) -> None:
    edit_manifest(run, warnings=[f"Look at {run}/replies.sqlite."])
    assert "curate-report.html" not in prepare_push(run, REPO).files
    prepared = prepare_push(run, REPO, PushOptions(report=True))
    text = prepared.files["curate-report.html"].read_text()
    page = ReadPage(text.encode())
    assert len(page.dialogues) == prepared.tally.dialogues
    assert page.figures["run"]["warnings"] == ["Look at replies.sqlite."]
    assert str(tmp_path) not in json.dumps(page.figures)
    assert "127.0.0.1" not in json.dumps(page.figures)
    assert "(curate-report.html)" in prepared.card
    assert not prepared.findings.counts


def test_the_report_is_scanned_with_what_it_holds_of_dialogues_that_were_not_selected(
    run: Path,
) -> None:
    path = run / "dialogues.jsonl"
    path.write_text(path.read_text().replace("chat 7", "chat 7 ann@lee-and-sons.org"))
    assert not prepare_push(run, REPO).findings.counts["email"]
    prepared = prepare_push(run, REPO, PushOptions(report=True))
    places = {(one.file, one.row_id) for one in prepared.findings.examples["email"]}
    assert ("curate-report.html", "chat-7") in places
    assert prepared.blocked_by == ["email"]
    assert "ann@lee" not in prepared.findings_file.read_text()


@pytest.mark.parametrize("way", ["redact", "leave_out"])
def test_a_report_is_refused_where_rows_are_to_be_cleaned(run: Path, way: str) -> None:
    with pytest.raises(UsageError, match="every dialogue unchanged"):
        prepare_push(run, REPO, PushOptions(report=True, **{way: ("email",)}))
    assert not (run / "push").exists()


def test_the_card_has_the_figures_and_pictures_of_what_was_measured(run: Path) -> None:
    card = prepare_push(run, REPO).card
    for plain in (
        "Agreement of the judge with people was not measured",
        "levels are not calibrated",
        "The judge was not tried on planted flaws",
        "No certificate says how many of the selected dialogues are bad",
    ):
        assert plain in card
    write_trust_report(run, probe_report(read_manifest(run)))
    write_trust_report(run, agreement_report(read_manifest(run)))
    prepared = prepare_push(run, REPO)
    assert (
        "| the untouched twin scores higher | 52 | 0.60 (0.44 to 0.74) | 0.50 | fail |"
        in prepared.card
    )
    assert "| helpfulness | 120 of 120 dialogues | 0.61 (0.50 to 0.70) |" in prepared.card
    for name in ("scores", "adherence", "probe", "agreement"):
        path = prepared.files[f"plots/{name}.svg"]
        root = ElementTree.fromstring(path.read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert f"(plots/{name}.svg)" in prepared.card


def test_a_report_of_rows_that_the_run_has_no_longer_gives_no_figures(run: Path) -> None:
    manifest = read_manifest(run)
    stale = probe_report(manifest).model_copy(update={"fingerprints": {"judge": "another"}})
    write_trust_report(run, stale)
    prepared = prepare_push(run, REPO)
    assert "plots/probe.svg" not in prepared.files
    assert "There is one of 2026-11-23, of an earlier judge or other prompts" in prepared.card
    assert "| the untouched twin scores higher |" not in prepared.card


def probe_report(manifest: Manifest) -> ProbeReport:
    line = ProbeLine(
        name="detection",
        section="finding",
        unit="share",
        meaning="the untouched twin scores higher",
        state="fail",
        n=52,
        dialogues=26,
        value=0.6,
        interval=(0.44, 0.74),
        against=0.5,
    )
    return ProbeReport(
        sentence="No better than chance.",
        made="2026-11-23T06:29:08+00:00",
        fingerprints={"judge": manifest.fingerprints["judge"]},
        identity=manifest.identities["judge"],
        source="sample",
        seed=0,
        cases=52,
        dialogues=26,
        kinds={"negation": 52},
        planted_by={"rules": 52},
        changed=0.1,
        asked=104,
        lines=(line,),
    )


def agreement_report(manifest: Manifest) -> Agreement:
    told = Figure(value=0.61, interval=(0.5, 0.7))
    return Agreement(
        sentence="It agrees.",
        made="2026-11-23T06:29:08+00:00",
        fingerprints={"judge": manifest.fingerprints["judge"]},
        gold="gold.csv",
        rows=120,
        dimensions={
            "helpfulness": DimensionAgreement(
                labels=120,
                dialogues=120,
                scale="1-5",
                compared="digits",
                levels=LevelFigures(kappa=told, agreement=told, within_one=told, bias=told),
                spearman=told,
                kendall=told,
                level_names=("1", "2"),
                confusion=((60, 0), (0, 60)),
                gate=AgreementGate(state="pass", goes_by="levels", lower=0.52, upper=0.69),
            )
        },
    )
