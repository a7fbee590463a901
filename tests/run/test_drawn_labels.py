"""Labels joined with a run: who is bad by them, of which draw they are, and which of them are not fitted to."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from curate.errors import CurateError, UsageError
from curate.records import Draw, TrustKind
from curate.run.labels.drawn_labels import DrawnLabels, one_a_group, read_labels
from curate.run.labels.given_labels import given_labels, keep_labels, labels_path, read_kept_labels
from curate.run.labels.hold_out import check_hold_out, is_held_out, without_kept
from curate.run.labels.populations import read_drawn, read_members
from curate.run.labels.sample import sample
from curate.trust.label_rows import GivenLabels, GoldRow
from tests.run.test_populations import run as run  # a fixture


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture(scope="module")
def unit_of(run: Path) -> dict[str, str]:
    """The content hash of each dialogue by its id, of equal ones by the first."""
    return dict(read_members(run, "all").select("id", "unit").iter_rows())


def of_rows(*rows: dict[str, Any]) -> GivenLabels:
    return GivenLabels("gold.csv", [(f"gold.csv:{n}", row) for n, row in enumerate(rows, 1)])


def accept(name: str, value: str | None, **more: Any) -> dict[str, Any]:
    return {"id": name, "dimension": "accept", "value": value} | more


def bad(labels: DrawnLabels, units: Mapping[str, str]) -> dict[str, bool]:
    """Who is bad, by the ids of the dialogues."""
    names = {unit: name for name, unit in units.items()}
    return {names.get(unit, unit): is_bad for unit, is_bad in labels.bad.items()}


# ---- of dialogues


def test_each_row_is_an_answer_or_is_counted_with_its_place(
    run: Path, unit_of: dict[str, str]
) -> None:
    labels = read_labels(
        run,
        of_rows(
            accept("c0", "reject"),
            {"content": unit_of["c1"], "dimension": "accept", "value": "accept"},
            accept("c2", " "),
            accept("c2", None),
            accept("c9", "accept"),
            accept("c2", "so so", dimension="note"),
            accept("c2", 1, dimension="weakest_turn"),
            {"pair_id": "p0", "better": "a"},
            {"pair_id": "p1", "better": "b"},
        ),
        None,
        None,
    )
    assert bad(labels, unit_of) == {"c0": True, "c1": False}
    assert (labels.rule, labels.draw, labels.drawn, labels.pairs) == (
        "reviewers reject it",
        None,
        None,
        False,
    )
    assert labels.unused.counts == {
        "it is about a pair": 2,
        "no value": 2,
        "no dialogue of the run has that id": 1,
        "note is no label of a dialogue": 1,
        "weakest_turn is no label of a dialogue": 1,
    }
    assert labels.unused.first == {
        "it is about a pair": "gold.csv",
        "no value": "gold.csv:3",
        "no dialogue of the run has that id": "gold.csv:5",
        "note is no label of a dialogue": "gold.csv:6",
        "weakest_turn is no label of a dialogue": "gold.csv:7",
    }


def test_a_value_without_a_dimension_is_what_a_rule_calls_human(
    run: Path, unit_of: dict[str, str]
) -> None:
    given = of_rows({"id": "c0", "value": 1}, {"id": "c1", "value": 4})
    labels = read_labels(run, given, "human < 3", None)
    assert bad(labels, unit_of) == {"c0": True, "c1": False}
    assert labels.rule == "human < 3"


def test_the_last_of_answers_with_a_time_counts_and_all_of_those_without(
    run: Path, unit_of: dict[str, str]
) -> None:
    def answer(value: str, time: str | None = None, rater: str = "ann") -> dict[str, Any]:
        return accept("c0", value, rater=rater, time=time)

    late, early = answer("accept", "2026-02"), answer("reject", "2026-01")
    for rows in ((late, early), (early, late)):
        assert bad(read_labels(run, of_rows(*rows), None, None), unit_of) == {"c0": False}
    votes = answer("reject", "2026-01", "bob"), answer("reject", "2026-01", "eve")
    assert bad(read_labels(run, of_rows(late, *votes), None, None), unit_of) == {"c0": True}
    with pytest.raises(UsageError, match="one rater gives one dialogue two labels"):
        read_labels(run, of_rows(answer("accept"), answer("reject")), None, None)


# ---- of pairs


def test_answers_about_pairs_are_of_the_chosen_side_whichever_was_shown_first(copy: Path) -> None:
    draw = sample(copy, 3, out=copy / "a.csv", of="natural_pairs", seed=1).draw
    swapped = dict(read_drawn(copy, draw).select("unit", "swapped").iter_rows())
    assert {*swapped.values()} == {True, False}
    chosen = {unit: "b" if is_swapped else "a" for unit, is_swapped in swapped.items()}
    rows = [
        {"pair_id": unit, "better": side.upper(), "draw": draw.id} for unit, side in chosen.items()
    ]
    labels = read_labels(copy, of_rows(*rows), None, None)
    assert labels.bad == dict.fromkeys(chosen, False)
    assert (labels.draw, labels.pairs, labels.rule) == (draw, True, "better = 'rejected'")
    turned = [row | {"better": "b" if chosen[row["pair_id"]] == "a" else "a"} for row in rows]
    assert read_labels(copy, of_rows(*turned), None, None).bad == dict.fromkeys(chosen, True)
    words = [
        {"pair_id": unit, "better": better}
        for unit, better in zip(chosen, ("chosen", "rejected", "tie"), strict=True)
    ]
    assert [*read_labels(copy, of_rows(*words), None, None).bad.values()] == [False, True, False]


def test_a_row_about_a_pair_is_an_answer_or_is_counted_with_its_place(run: Path) -> None:
    labels = read_labels(
        run,
        of_rows(
            {"pair_id": "p0", "better": "chosen", "rater": " "},
            {"pair_id": " p1 ", "better": " Rejected "},
            {"pair_id": "p2", "better": None},
            {"pair_id": "p2", "better": "neither of the two, which are both as bad as it gets"},
            {"pair_id": "p9", "better": "a"},
            {"pair_id": None, "better": "a"},
        ),
        None,
        "natural_pairs",
    )
    assert labels.bad == {"p0": False, "p1": True}
    assert labels.unused.first == {
        "no value": "gold.csv:3",
        "better is neither a, b, chosen, rejected nor tie: 'neither of the two, which are both as ba'": "gold.csv:4",
        "the run has no pair of that id": "gold.csv:5",
    }
    assert labels.unused.counts["the run has no pair of that id"] == 2


@pytest.mark.parametrize(
    ("rows", "of", "problem"),
    [
        ([], None, "gold.csv has no labels"),
        ([{"id": "c0"}], None, "gold.csv is not a file of labels"),
        ([{"value": "accept"}], None, "gold.csv is not a file of labels"),
        ([{"id": "c0", "value": "accept"}], "pairs", "gold.csv does not say which side is better"),
        ([{"pair_id": "p0"}], None, "gold.csv does not say which side is better"),
        ([accept("c9", "accept")], None, "no label is about a dialogue of this run"),
        ([accept("c0", "")], None, "no label has a value"),
        ([{"pair_id": "p9", "better": "a"}], None, "no label is about a pair of this run"),
        ([{"pair_id": "p0", "better": ""}], None, "no label has a value"),
        ([accept("c0", "reject", draw="x"), accept("c1", "reject", draw="y")], None, "the labels are of several draws"),
        ([accept("c0", "reject", draw="x")], None, "the file names a draw that is not recorded with the run"),
    ],
)  # fmt: skip
def test_what_are_no_labels_of_the_run_are_refused(
    run: Path, rows: list[dict[str, Any]], of: str | None, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_labels(run, of_rows(*rows), None, of)
    assert caught.value.problem == problem


# ---- the draw that they are of


def test_labels_are_of_the_draw_they_name_else_of_the_newest_that_has_them_all(
    copy: Path, unit_of: dict[str, str]
) -> None:
    def drawn(of: str, seed: int, n: int = 4) -> Draw:
        return sample(copy, n, out=copy / f"{of}{seed}.csv", of=of, seed=seed).draw

    few, whole = drawn("sft", 1, 1), drawn("all", 2)
    drawn("natural_pairs", 1)

    def draw_of(*rows: dict[str, Any]) -> Draw | None:
        labels = read_labels(copy, of_rows(*rows), None, None)
        assert (labels.draw is None) == (labels.drawn is None)
        if labels.draw is not None and labels.drawn is not None:
            assert labels.drawn.equals(read_drawn(copy, labels.draw))
        return labels.draw

    everyone = [accept(name, "accept") for name in unit_of]
    assert draw_of(*everyone) == whole
    assert draw_of(*everyone, accept("c0", "accept", draw=f" {few.id} ")) == few
    [one] = read_drawn(copy, few).filter("drawn")["unit"]
    name = next(name for name, unit in unit_of.items() if unit == one)
    newest = max((few, whole), key=lambda draw: (draw.made, draw.id))
    assert draw_of(accept(name, "accept")) == newest
    other = next(name for name, unit in unit_of.items() if unit != one)
    (copy / "trust" / "draws" / f"{whole.id}.json").unlink()
    assert draw_of(accept(other, "accept")) is None


def test_labels_of_no_draw_count_once_a_group(run: Path, unit_of: dict[str, str]) -> None:
    members = read_members(run, "all")
    labels = read_labels(run, of_rows(*(accept(n, "reject") for n in unit_of)), None, None)
    single = one_a_group(labels, members)
    least = min(unit_of["c0"], unit_of["c1"])
    assert single.bad.keys() == {least, unit_of["c2"], unit_of["c4"]}
    assert single.unused.counts == {"another dialogue of its group has a label": 1}
    few = read_labels(run, of_rows(accept("c1", "reject"), accept("c4", "accept")), None, None)
    assert one_a_group(few, members).bad == {unit_of["c1"]: True, unit_of["c4"]: False}
    assert few.unused.counts == {}


# ---- kept with a run, and kept from fitting


def test_labels_are_kept_with_a_run_and_read_again(tmp_path: Path) -> None:
    given = of_rows(accept("c0", "reject"), {"id": "c1", "value": 3, "turn": None})
    keep_labels(tmp_path, TrustKind.CERTIFICATE, given)
    path = labels_path(tmp_path, TrustKind.CERTIFICATE)
    assert path == tmp_path / "trust" / "labels" / "certificate.jsonl"
    assert read_kept_labels(path) == given
    keep_labels(tmp_path, TrustKind.CERTIFICATE, of_rows({"id": "c0", "time": date(2026, 1, 2)}))
    assert read_kept_labels(path) == of_rows({"id": "c0", "time": "2026-01-02"})
    path.write_text("")
    assert read_kept_labels(path) == GivenLabels("certificate.jsonl", [])
    path.write_text('["gold.csv", "gold.csv:1"]\n')
    with pytest.raises(CurateError, match=r"certificate\.jsonl"):
        read_kept_labels(path)


def test_labels_come_from_a_file_or_from_the_data(run: Path, tmp_path: Path) -> None:
    (tmp_path / "gold.csv").write_text("id,value\nc0,3\n")
    assert given_labels(run, tmp_path / "gold.csv").rows == [
        ("gold.csv:1", {"id": "c0", "value": "3"})
    ]
    of_data = given_labels(run, None, "coherence", "score")
    assert of_data.origin == "the data's label 'score'"
    assert [
        (place, row["dimension"], row["value"], row["turn"]) for place, row in of_data.rows
    ] == [
        (f"dialogue c{n}", "coherence", score, None) for n, score in enumerate((0.1, 0.5, 0.9, 0.9))
    ]
    for gold, dimension, label, problem in (
        (None, None, "label", "labels are needed from exactly one place"),
        (tmp_path / "gold.csv", "coherence", "label", "labels are needed from exactly one place"),
        (None, "coherence", "label", "no dialogue has that label"),
        (None, "charm", "score", "no such dimension"),
    ):
        with pytest.raises(UsageError) as caught:
            given_labels(run, gold, dimension, label)
        assert caught.value.problem == problem


def test_labels_drawn_to_certify_or_held_out_are_not_fitted_to(
    copy: Path, unit_of: dict[str, str]
) -> None:
    rows = [GoldRow(f"gold:{name}", "accept", "accept", dialogue_id=name) for name in unit_of]
    rows.append(GoldRow("gold:c9", "accept", "accept", dialogue_id="c9"))
    usable, kept_rows = without_kept(copy, rows, 0)
    assert (usable, kept_rows.counts) == (rows, {})
    sample(copy, 2, out=copy / "fit.csv", of="all", purpose="calibrate")
    assert without_kept(copy, rows, 0)[0] == rows
    draw = sample(copy, 1, out=copy / "a.csv").draw
    sample(copy, 3, out=copy / "pairs.csv", of="natural_pairs")
    drawn = {*read_drawn(copy, draw).filter("drawn")["unit"]}
    out = {unit for unit in unit_of.values() if is_held_out(unit, 0.5)} - drawn
    usable, kept_rows = without_kept(copy, rows, 0.5)
    assert [row.dialogue_id for row in usable] == [
        *(name for name, unit in unit_of.items() if unit not in drawn | out), "c9",
    ]  # fmt: skip
    held = {"held out for a certificate": len(out)} if out else {}
    assert kept_rows.counts == {"drawn to certify, and kept for that": 1} | held
    reserved = [row for row in rows if unit_of.get(row.dialogue_id or "") in drawn]
    with pytest.raises(UsageError, match=r"all labels are .* for a certificate"):
        without_kept(copy, reserved, 0)
    assert without_kept(copy, [], 0)[0] == []


def test_the_same_share_of_dialogues_is_held_out_each_time() -> None:
    hashes = [f"{number:032x}" for number in range(2000)]
    assert [is_held_out(name, 0.5) for name in hashes[:8]] == [
        is_held_out(name, 0.5) for name in hashes[:8]
    ]
    for share in (0.0, 0.25, 0.75):
        held = {name for name in hashes if is_held_out(name, share)}
        assert len(held) / len(hashes) == pytest.approx(share, abs=0.03)
        assert held <= {name for name in hashes if is_held_out(name, share + 0.1)}
        check_hold_out(share)
    for share in (-0.01, 1.0):
        with pytest.raises(UsageError, match="--hold-out"):
            check_hold_out(share)
