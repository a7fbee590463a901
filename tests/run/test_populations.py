"""The sets of a run that labels are about: who is a member, by which score, and by which judges."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.errors import CurateError, UsageError
from curate.recipe import parse_recipe
from curate.records import Draw, Manifest, PreferencePair
from curate.run.labels.populations import (
    check_set,
    draw_folder,
    fitted_files,
    identities_of,
    is_of_pairs,
    named_set,
    promised_members,
    read_drawn,
    read_draws,
    read_members,
    used_to_fit,
)
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_manifest

SCORES = [0.1, 0.5, 0.9, 0.9, None]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five dialogues, of which the third comes twice and the last has no label; three pairs, of which one has all scores."""
    folder = tmp_path_factory.mktemp("populations")
    rows = [
        {
            "id": f"c{i}",
            "messages": [
                {"role": "user", "content": f"Question {2 if i == 3 else i}?"},
                {"role": "assistant", "content": "Well, that is all there is."},
            ],
            "group": "g" if i < 2 else None,
            "labels": {} if score is None else {"score": score, "word": "high" if score > 0.4 else "low"},
        }
        for i, score in enumerate(SCORES)
    ]  # fmt: skip
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "name": "test", "source": {"path": str(folder / "chats.jsonl")}, "judge": False, "adherence": False,
        "select": {"where": {"good": "label_score >= 0.5"}},
    }  # fmt: skip
    run_recipe(parse_recipe(recipe), out=folder / "run")
    pairs = folder / "run" / "pairs"
    pairs.mkdir(exist_ok=True)
    checks = ({"preference": 0.5, "margin": 1.0}, {"preference": -0.5}, None)
    pairs.joinpath("natural_pairs.jsonl").write_text(
        "".join(pair(n, check).model_dump_json() + "\n" for n, check in enumerate(checks))
    )
    return folder / "run"


def pair(number: int, check: dict[str, float] | None) -> PreferencePair:
    return PreferencePair.model_validate(
        {
            "pair_id": f"p{number}", "dialogue_id": f"d{number}", "content_hash": f"{number:032x}", "source": "natural",
            "basis": "rank", "prompt": [], "chosen": {"role": "assistant", "content": "yes"},
            "rejected": {"role": "assistant", "content": "no"}, "check": check,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of", "column", "ids", "scores"),
    [
        ("sft", None, ["c1", "c2"], None),
        ("all", None, ["c0", "c1", "c2", "c4"], None),
        ("scored", None, ["c0", "c1", "c2", "c4"], None),
        ("label_score < 0.9", None, ["c0", "c1"], None),
        ("all", "label_score", ["c0", "c1", "c2"], [0.1, 0.5, 0.9]),
        ("all", "n_turns", ["c0", "c1", "c2", "c4"], [1.0, 1.0, 1.0, 1.0]),
        ("natural_pairs", None, ["d0", "d1", "d2"], None),
        ("natural_pairs", "preference", ["d0", "d1"], [0.5, -0.5]),
        ("natural_pairs", "margin", ["d0"], [1.0]),
    ],
)
def test_who_is_a_member_and_by_which_score(
    run: Path, of: str, column: str | None, ids: list[str], scores: list[float] | None
) -> None:
    members = read_members(run, of, column)
    assert members["id"].to_list() == ids
    assert members.columns == ["unit", "id", "group", *(["score"] if column else [])]
    assert column is None or members["score"].to_list() == scores
    assert [group for group in members["group"] if group] == [
        "g" for name in ids if name in ("c0", "c1")
    ]
    assert is_of_pairs(of) == (of == "natural_pairs")


def test_equal_dialogues_are_one_member_by_content_and_a_pair_is_one_by_its_id(run: Path) -> None:
    assert read_members(run, "natural_pairs")["unit"].to_list() == ["p0", "p1", "p2"]
    units = read_members(run, "all")["unit"].to_list()
    assert all(len(unit) == 32 for unit in units)
    assert len(set(units)) == len(units) == 4


@pytest.mark.parametrize(
    ("column", "scores"),
    [
        ("label_word", ["low", "high", "high", "(none)"]),
        ("label_score", [0.1, 0.5, 0.9]),
        ("repetition_flag", None),
    ],
)
def test_strata_may_be_of_any_column(run: Path, column: str, scores: list[Any] | None) -> None:
    if scores is None:
        with pytest.raises(UsageError, match="--by"):
            read_members(run, "all", column, any_type=True)
        return
    assert read_members(run, "all", column, any_type=True)["score"].to_list() == scores


@pytest.mark.parametrize(
    ("of", "column", "any_type", "words"),
    [
        ("all", "label_word", False, "no threshold can be set on that column"),
        ("all", "nothing", False, "--column"),
        ("nothing > 2", None, False, "--of"),
        ("label_other > 2", None, False, "--of"),
        ("label_score >", None, False, "--of"),
        ("all", "nothing", True, "--by"),
        ("pairs", "mean_score", False, "pairs have no such score"),
        ("natural_pairs", "evidence", False, "no pairs of the data with evidence in"),
        ("pairs", None, False, "no pairs made by forks in"),
        ("label_score > 3", None, False, "no dialogues with label_score > 3 in"),
    ],
)
def test_a_set_without_members_or_score_is_refused(
    run: Path, of: str, column: str | None, any_type: bool, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_members(run, of, column, any_type=any_type)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("sft", "dialogues of the SFT set"),
        ("scored", "scored dialogues"),
        ("all", "dialogues"),
        ("pairs", "pairs made by forks"),
        ("natural_pairs", "pairs of the data"),
        ("n_turns > 2", "dialogues with n_turns > 2"),
    ],
)
def test_a_set_has_a_name_in_words(of: str, words: str) -> None:
    assert named_set(of) == words
    check_set(of, None)
    check_set(of, "preference" if is_of_pairs(of) else "label_anything")


def test_scored_is_what_each_stage_scored_and_no_worse_side_of_a_pair(
    run: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    table = pl.read_parquet(copy / "scores.parquet")
    adherence = pl.when(pl.col("id") != "c1").then(0.5)
    table = table.with_columns(
        adherence=adherence.cast(table.schema["adherence"]),
        rejected_as=pl.when(pl.col("id") == "c4").then(pl.lit("a reply of the data")),
        label_score=pl.when(pl.col("id") == "c0").then(float("nan")).otherwise("label_score"),
    )
    table.write_parquet(copy / "scores.parquet")
    assert read_members(copy, "scored")["id"].to_list() == ["c0", "c2"]
    assert read_members(copy, "all")["id"].to_list() == ["c0", "c1", "c2", "c4"]
    assert read_members(copy, "all", "label_score")["id"].to_list() == ["c1", "c2"]
    assert read_members(copy, "all", "adherence")["id"].to_list() == ["c0", "c2", "c4"]


def test_a_run_that_selects_nothing_has_no_sft_set(run: Path, tmp_path: Path) -> None:
    source = read_manifest(run).recipe["source"]
    recipe = {"name": "none", "source": source, "judge": False, "adherence": False, "select": False}
    out = run_recipe(parse_recipe(recipe), out=tmp_path / "none").folder
    assert read_members(out, "all").height == 4
    with pytest.raises(UsageError, match="the run selected nothing"):
        read_members(out, "sft")


# ---- the judges and the fitted files behind a set

IDENTITY = {"engine": "e", "model": "m"}
CURVE, CALIBRATION = {"labelled": ["p1"]}, {"labelled": ["u1", "u2"]}


def manifest(run: Path, **recipe: Any) -> Manifest:
    stages = dict.fromkeys(("judge", "adherence", "metrics"), IDENTITY)
    update = {"identities": stages, "recipe": recipe}
    return Manifest.model_validate(read_manifest(run).model_dump(mode="json") | update)


@pytest.mark.parametrize(
    ("of", "column", "stages"),
    [
        ("sft", None, {"judge", "adherence", "metrics"}),
        ("scored", "adherence", {"judge", "adherence", "metrics"}),
        ("natural_pairs", "preference", {"judge", "adherence", "metrics"}),
        ("all", None, set()),
        ("all", "mean_score", {"judge"}),
        ("n_turns > 2", None, set()),
        ("adherence > 0.5", "metric_tool_use", {"adherence", "metrics"}),
        ("mean_score > 3 AND adherent", None, {"judge", "adherence"}),
    ],
)
def test_a_set_depends_on_the_judges_whose_scores_it_reads(
    run: Path, of: str, column: str | None, stages: set[str]
) -> None:
    assert identities_of(manifest(run), column, of).keys() == stages


@pytest.mark.parametrize(
    ("recipe", "name", "of_pairs"),
    [
        ({"judge": {"calibration": CALIBRATION}}, "judge.calibration", False),
        ({"adherence": {"calibration": CALIBRATION}}, "adherence.calibration", False),
        ({"metrics": {"calibration": CALIBRATION}}, "metrics.calibration", False),
        ({"models": {"judge": {"fit": CALIBRATION}}}, "models.judge.fit", False),
        ({"fork": {"curve": CURVE}}, "fork.curve", True),
        ({"natural": {"verify": {"curve": CURVE}}}, "natural.verify.curve", True),
    ],
)
def test_labels_that_fitted_a_file_of_the_recipe_are_known(
    run: Path, recipe: dict[str, Any], name: str, of_pairs: bool
) -> None:
    of_recipe = manifest(run, **recipe)
    file = CURVE if of_pairs else CALIBRATION
    assert fitted_files(of_recipe) == {name: file}
    assert used_to_fit(of_recipe, of_pairs) == {*file["labelled"]}
    assert used_to_fit(of_recipe, not of_pairs) == frozenset()


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"judge": False, "fork": None, "natural": {"verify": False}, "models": {"judge": "small"}},
        {"judge": {"calibration": "c.json"}, "metrics": {"calibration": {"levels": {}}}},
    ],
)
def test_a_recipe_without_labels_in_its_files_used_none(run: Path, recipe: dict[str, Any]) -> None:
    of_recipe = manifest(run, **recipe)
    assert used_to_fit(of_recipe, False) == used_to_fit(of_recipe, True) == frozenset()


def test_members_that_fitted_a_file_are_not_promised(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    units = read_members(copy, "all")["unit"].to_list()
    stored = json.loads((copy / "manifest.json").read_text())
    stored["recipe"]["judge"] = {"calibration": {"labelled": units[:1]}}
    stored["recipe"]["fork"] = {"curve": {"labelled": ["p1"]}}
    (copy / "manifest.json").write_text(json.dumps(stored))
    assert promised_members(copy, "all", "label_score")["id"].to_list() == ["c1", "c2"]
    assert promised_members(copy, "natural_pairs", None)["id"].to_list() == ["d0", "d2"]


# ---- recorded draws


def test_draws_are_read_oldest_first_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert read_draws(tmp_path) == []
    folder = draw_folder(tmp_path)
    folder.mkdir(parents=True)

    def write(name: str, made: str) -> Draw:
        draw = Draw(
            id=name, made=made, run="r", purpose="certify", of="sft", seed=1, strata=(), sizes=(3,)
        )
        (folder / f"{name}.json").write_text(draw.model_dump_json())
        return draw

    late, early, same = write("a", "2026-02"), write("b", "2026-01"), write("c", "2026-01")
    assert read_draws(tmp_path) == [early, same, late]
    with pytest.raises(CurateError, match="it is not there"):
        read_drawn(tmp_path, late)
    (folder / "a.json").write_text("{")
    with pytest.raises(CurateError, match=r"a\.json"):
        read_draws(tmp_path)
