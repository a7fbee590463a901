"""The rows of a stage that are still missing when a run is resumed, and why rows of another run cannot be reused."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import polars as pl
import pytest

from curate.errors import UsageError
from curate.planning.estimate import FORK_SHARE, PAIR_SHARE, AssumedShare, Owed
from curate.recipe import Recipe, parse_recipe
from curate.records import Estimate, JudgeIdentity, Manifest, PreferencePair, StageName, Unscored
from curate.run.ingest import read_index, read_sources
from curate.run.rows_left import (
    KeptRows,
    Reused,
    gap_warnings,
    last_fork_share,
    last_pair_share,
    reuse_gaps,
    taken_over_gaps,
)
from curate.run.staging import scored_rows, verified_rows
from curate.selection.table import score_table
from curate.sources import SourceConfig, open_rows


def test_a_fork_is_owed_of_what_is_judged_and_of_the_rest_by_its_share(tmp_path: Path) -> None:
    """There are five dialogues: three are scored, two of these by this judge, and one of the two has its row."""
    share = AssumedShare(0.25, "assumed")
    recipe = parse_recipe({"name": "r", "source": {"path": "x"}})
    kept = KeptRows(
        recipe,
        tmp_path,
        pl.DataFrame({"id": list("abcde"), "content_hash": list("ABCDE")}),
        share,
        share,
        _done={
            (StageName.FORK, "f"): pl.Series(["A"]),
            (StageName.JUDGE, "j"): pl.Series(["A", "B", "D"]),
        },
        _forks=(pl.Series(["A", "B", "C"]), pl.Series(["A", "B", "C"])),
    )
    judge = kept.owed(StageName.JUDGE, "j")
    assert (judge.count, sorted(judge.missing)) == (2, ["C", "E"])
    fork = kept.owed(StageName.FORK, "f")
    assert (fork.count, len(fork.missing)) == (1 + 0.25 * 3, 0)


def test_rows_of_another_way_of_asking_say_what_differs(tmp_path: Path) -> None:
    identity = JudgeIdentity(engine="openai", model="one", prompt_version="3")

    def differences(name: StageName, there: dict[str, Any], here: dict[str, Any], **ours: str) -> list[str]:  # fmt: skip
        manifest = Manifest.model_validate(
            {"name": "r", "status": "done", "started": "", "recipe": {name: there}}
            | {"identities": {name: identity}, "versions": {"curate-dialogues": "0.9"}}
        )
        stage: Any = SimpleNamespace(name=name, identity=identity.model_copy(update=ours))
        return list(Reused(tmp_path, manifest, None)._differences(stage, here))

    chosen = {"mode": "auto", "output_mode": "auto", "reference": None, "jury": None}
    other = {"mode": "json", "output_mode": "binary", "reference": "nli", "jury": "median"}
    code = "the code of the stage differs (that run: curate 0.9)"
    assert differences(StageName.JUDGE, chosen, other) == [code]
    adherence = differences(StageName.ADHERENCE, chosen, other)
    assert adherence == ["config adherence.jury is null there, median here"]
    long = {"words": "x" * 99}
    assert differences(StageName.JUDGE, long, {}, model="two", prompt_version="4") == [
        "judge model is one there, two here",
        "prompts is 3 there, 4 here",
        "config judge.words differs",
    ]


# --- what a folder has, without a run


def recipe(**sections: Any) -> Recipe:
    return parse_recipe({"name": "r", "source": {"path": "x"}, "adherence": False} | sections)


def write_manifest(run: Path, **fields: Any) -> None:
    given = {"name": "r", "status": "done", "started": "", "recipe": {}} | fields
    (run / "manifest.json").write_text(Manifest.model_validate(given).model_dump_json())


def write_rows(run: Path, stage: StageName, fingerprint: str, *keys: str) -> None:
    rows = scored_rows(run, stage, fingerprint)
    for key in keys:
        unscored = {"dialogue_id": key, "content_hash": key, "stage": stage, "reason": "skipped"}
        rows.append(key, Unscored.model_validate(unscored))
    rows.close()


def write_verified(run: Path, *keys: str) -> None:
    rows = verified_rows(run, "n")
    pair: dict[str, Any]
    for key in keys:
        reply = {"role": "assistant", "content": "Yes."}
        pair = {
            "pair_id": key,
            "dialogue_id": "d",
            "content_hash": "h",
            "source": "natural",
            "basis": "label",
        }
        pair |= {"prompt": (), "chosen": reply, "rejected": reply, "drop_reason": "cosmetic"}
        rows.append(key, PreferencePair.model_validate(pair))
    rows.close()


def pairs(folder: Path, number: int) -> pl.DataFrame:
    """Write the dialogues of this many natural pairs; return their ids and content hashes."""
    rows = [
        {"prompt": f"Question {n}?", "chosen": f"A good answer, {n}.", "rejected": f"Bad, {n}."}
        for n in range(number)
    ]
    source = open_rows(rows, SourceConfig(path="rows"))
    read_sources([source], folder, role="R.", scenario="S.")
    return read_index(folder, "id", "content_hash")


def as_scores(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with all columns of a score table."""
    return pl.concat([score_table([]), table], how="diagonal_relaxed")


def counts(owed: Owed) -> tuple[float, list[str]]:
    return owed.count, sorted(owed.missing)


def test_natural_pairs_are_owed_by_their_number_where_the_folder_has_the_dialogues(
    tmp_path: Path,
) -> None:
    dialogues = pairs(tmp_path, 3)

    def owed(dialogues: pl.DataFrame, **known: Any) -> tuple[float, list[str]]:
        return counts(KeptRows.of(recipe(), tmp_path, dialogues, **known).owed(StageName.NATURAL, "n"))  # fmt: skip

    assert owed(dialogues) == (3, [])
    # Other dialogues than those of the folder, or none that can be read: the share tells.
    assert owed(dialogues.reverse()) == (6 * PAIR_SHARE.value, [])
    assert owed(dialogues, natural=pl.Series(["p", "q", "p"])) == (2, [])
    # What is done already is not owed, and never less than nothing.
    write_verified(tmp_path, "p", "r", "s", "t")
    assert owed(dialogues, natural=pl.Series(["p", "q", "p"])) == (1, [])
    assert owed(dialogues.reverse()) == (0, [])
    assert owed(pl.concat([dialogues, dialogues]).reverse()) == (12 * PAIR_SHARE.value - 4, [])
    shutil.rmtree(tmp_path / "natural")
    write_manifest(tmp_path, dialogues=4, stages={"natural": {"rows": 3, "reused": 0}})
    assert owed(dialogues.head(2)) == (2 * 3 / 4, [])
    (tmp_path / "dialogues.parquet").write_bytes(b"PAR1 torn")
    assert owed(dialogues) == (6 * 3 / 4, [])


def test_a_pair_that_is_contaminated_is_not_owed(tmp_path: Path) -> None:
    dialogues = pairs(tmp_path, 3)
    (tmp_path / "evals.txt").write_text("A good answer, 1.\n")
    select = {"decontaminate": {"path": str(tmp_path / "evals.txt"), "ngram": 4}}
    kept = KeptRows.of(recipe(select=select), tmp_path, dialogues)
    assert counts(kept.owed(StageName.NATURAL, "n")) == (2, [])


def test_forks_are_owed_by_the_last_scores_without_what_eval_sets_have(tmp_path: Path) -> None:
    names = list("ABCDE")
    table = as_scores(pl.DataFrame(
        {"content_hash": names, "verdict": ["good", "bad", None, "good", "good"], "n_turns": [1, 1, 1, 9, 1]}
    ))  # fmt: skip
    forking = recipe(fork={"where": "n_turns < 3"})
    assert last_fork_share(recipe(fork=False), tmp_path) is FORK_SHARE
    assert last_fork_share(forking, tmp_path) is FORK_SHARE
    scores = tmp_path / "scores.parquet"
    table.write_parquet(scores)
    assert last_fork_share(recipe(fork=False), tmp_path) is FORK_SHARE
    share = last_fork_share(forking, tmp_path)
    assert (round(share.value * 5), share.source) == (4, f"as in the last scores of {tmp_path}")
    dropped = tmp_path / "pairs/dropped_pairs.jsonl"
    dropped.parent.mkdir()
    lines: list[Any] = [
        {"drop_reason": "contaminated", "content_hash": "B"},
        {"drop_reason": "cosmetic", "content_hash": "A"},
        {"drop_reason": "unscored", "content_hash": "E"},
        {"drop_reason": "contaminated"},
        3,
    ]
    dropped.write_bytes(b"torn\n" + b"\n".join(map(orjson.dumps, lines)) + b"\n")
    dialogues = pl.DataFrame({"id": [*names, "f"], "content_hash": [*names, "F"]})
    write_rows(tmp_path, StageName.JUDGE, "j", *names)

    def owed(of: Recipe) -> float:
        kept = KeptRows.of(of, tmp_path, dialogues)
        kept.fork_share = AssumedShare(0.5, "assumed")
        assert counts(kept.owed(StageName.JUDGE, "j")) == (1, ["F"])
        return kept.owed(StageName.FORK, "f").count

    # A and E may be forked: B is contaminated, C has no verdict, D is too long; F is not judged.
    assert owed(forking) == 2 + 0.5
    assert owed(recipe(fork={"where": "n_turns > 3"})) == 1 + 0.5
    dropped.unlink()
    assert owed(forking) == 3 + 0.5
    table.clear().write_parquet(scores)
    assert last_fork_share(forking, tmp_path) is FORK_SHARE
    assert owed(forking) == 6 * 0.5
    table.with_columns(verdict=None).write_parquet(scores)
    assert owed(forking) == 0.5
    scores.write_bytes(b"PAR1 torn")
    assert last_fork_share(forking, tmp_path) == AssumedShare(
        FORK_SHARE.value, f"assumed; {scores} is damaged; a run rebuilds it"
    )
    assert owed(forking) == 6 * 0.5


def test_the_share_of_natural_pairs_is_that_of_the_last_run(tmp_path: Path) -> None:
    assert last_pair_share(tmp_path) is PAIR_SHARE
    write_manifest(tmp_path, dialogues=8)
    assert last_pair_share(tmp_path) is PAIR_SHARE
    stages = {"natural": {"rows": 6, "reused": 0}}
    write_manifest(tmp_path, dialogues=8, stages=stages)
    assert last_pair_share(tmp_path) == AssumedShare(0.75, f"as in the last run of {tmp_path}")
    write_manifest(tmp_path, dialogues=0, stages=stages)
    assert last_pair_share(tmp_path) is PAIR_SHARE
    (tmp_path / "manifest.json").write_text("torn")
    assert last_pair_share(tmp_path) is PAIR_SHARE


def test_a_persona_check_is_owed_for_as_many_as_it_is_of(tmp_path: Path) -> None:
    dialogues = pl.DataFrame({"id": list("abc"), "content_hash": list("ABC")})
    write_rows(tmp_path, StageName.PERSONA, "p", "A")

    def owed(**sections: Any) -> tuple[float, list[str]]:
        kept = KeptRows.of(recipe(**sections), tmp_path, dialogues)
        return counts(kept.owed(StageName.PERSONA, "p"))

    assert owed(judge={"persona_check": 2}) == (1, [])
    assert owed(judge={"persona_check": 100}) == (2, [])
    assert owed(judge={"persona_check": 0}) == (0, [])
    shutil.rmtree(tmp_path / "persona")
    assert owed(judge=False) == (0, [])


def test_what_is_settled_needs_the_folder_no_more(tmp_path: Path) -> None:
    run, reused = tmp_path / "run", tmp_path / "reused"
    reused.mkdir()
    dialogues = pairs(run, 2)
    hashes = dialogues["content_hash"]
    write_manifest(reused)
    of = recipe(reuse=str(reused), fork={"where": "n_turns < 3"})
    assert KeptRows.of(of, run, dialogues).is_empty
    assert KeptRows.of(of, run, dialogues).replies is None
    write_rows(reused, StageName.JUDGE, "j", *hashes[:1])
    assert not KeptRows.of(of, run, dialogues).is_empty
    (run / "fork").mkdir()
    (run / "fork/notes.txt").touch()  # of somebody else
    write_rows(run, StageName.JUDGE, "j", *hashes[1:2])
    table = dialogues.with_columns(verdict=pl.lit("good"), n_turns=pl.lit(1))
    as_scores(table).write_parquet(run / "scores.parquet")
    (run / "replies.sqlite").touch()
    kept = KeptRows.of(of, run, dialogues)
    assert kept.replies == run / "replies.sqlite"
    settled = kept.settled()
    shutil.rmtree(run)
    shutil.rmtree(reused)
    assert counts(settled.owed(StageName.JUDGE, "j")) == (2, sorted(hashes[2:]))
    assert settled.owed(StageName.FORK, "f").count == 2 + 2 * settled.fork_share.value
    assert counts(settled.owed(StageName.NATURAL, "n")) == (2, [])


def test_rows_to_take_over_that_another_run_does_not_have_are_named(tmp_path: Path) -> None:
    of = recipe(models={}, reuse=str(tmp_path), factuality={})
    dialogues = pl.DataFrame({"id": list("abc"), "content_hash": list("ABC")})
    write_manifest(tmp_path, fingerprints={"judge": "j"})
    write_rows(tmp_path, StageName.JUDGE, "j", "A")
    kept = KeptRows.of(of, tmp_path / "run", dialogues)
    assert taken_over_gaps(of, kept, None) == []
    assert reuse_gaps(of, None, kept, None) == []  # type: ignore[arg-type]
    gaps = taken_over_gaps(of, kept, Reused.of(tmp_path))
    assert gaps == [
        f"reuse: 2 dialogues without a row of stage judge in {tmp_path}",
        f"reuse: {tmp_path} has no factuality rows to take over",
    ]
    assert gap_warnings(of, gaps, None) == gaps
    tokens = {"prompt_tokens": 1, "prefilled_tokens": 1, "completion_tokens": 1}
    loads = {
        name: {"requests": number} | tokens
        for name, number in (("judge", 1_000), ("factuality", 2), ("fork", 9))
    }
    total = {"requests": 1_011} | tokens
    left = Estimate.model_validate({"dialogues": 3, "sampled": 3, "stages": loads, "total": total})
    assert gap_warnings(of, gaps, left) == [*gaps, "reuse: about 1,002 calls follow to judge them"]
    required = recipe(models={}, reuse={"run": str(tmp_path), "required": True})
    for estimate, calls in ((left, " (about 1,002 calls)"), (None, "")):
        with pytest.raises(UsageError) as refused:
            gap_warnings(required, gaps, estimate)
        made = f", and the missing judgments are made{calls}" if calls else ""
        assert refused.value.got == "\n    ".join(gaps)
        assert refused.value.fix == (
            f"use the recipe and the dialogues of that run; or leave out `required: true`{made}"
        )
    assert gap_warnings(of, [], None) == []


def test_why_rows_of_another_run_do_not_fit_is_said_with_an_example(tmp_path: Path) -> None:
    names = list("abcd")
    dialogues = pl.DataFrame({"id": names, "content_hash": list("ABCD")})
    of = recipe(reuse=str(tmp_path))
    write_manifest(tmp_path, fingerprints={"judge": "j"})
    write_rows(tmp_path, StageName.JUDGE, "j", "A")
    kept = KeptRows.of(of, tmp_path / "run", dialogues)
    begin = f"reuse: 3 of 4 dialogues have no judge row in {tmp_path}: "

    def gap(fingerprint: str = "j", name: StageName = StageName.JUDGE) -> str | None:
        stage: Any = SimpleNamespace(name=name, fingerprint=fingerprint)
        return Reused.of(tmp_path).gap(stage, {}, kept)

    # No index there: whether the dialogues are is not known.
    assert gap() == f"{begin}they are not in that run, as 'b'"
    there = pl.DataFrame({"id": ["a", "b", "c"], "content_hash": ["A", "long hash of b", "C2"]})
    there.write_parquet(tmp_path / "dialogues.parquet")
    assert gap() == (
        f"{begin}2 differ in content (messages, role or scenario) from the dialogue of the same id, "
        "as 'b': long has there, B here; 1 are not in that run"
    )
    there.with_columns(id=pl.Series(["x", "y", "z"])).write_parquet(tmp_path / "dialogues.parquet")
    assert gap() == f"{begin}they are not in that run, as 'b'"
    there.with_columns(id=pl.lit("b")).write_parquet(tmp_path / "dialogues.parquet")
    assert (gap() or "").startswith(f"{begin}1 differ in content")  # of equal ids the first
    every = pl.DataFrame({"id": names, "content_hash": list("Axyz")})
    every.write_parquet(tmp_path / "dialogues.parquet")
    assert (gap() or "").endswith("as 'b': x there, B here")
    # A run with a calibration names the calibrated rows, and keeps the judge's own beside them.
    write_manifest(tmp_path, fingerprints={"judge": "calibrated"})
    assert (gap() or "").endswith("as 'b': x there, B here")
    write_manifest(tmp_path, fingerprints={"judge": "other"}, versions={"curate-dialogues": "1"})
    own = f"reuse: 4 of 4 dialogues have no judge row in {tmp_path}: "
    assert gap("new") == f"{own}the code of the stage differs (that run: curate 1)"
    facts = f"reuse: 4 of 4 dialogues have no factuality row in {tmp_path}: "
    assert gap("f", StageName.FACTUALITY) == f"{facts}that run has no such stage"
    write_rows(tmp_path, StageName.JUDGE, "j", "B", "C", "D")
    kept = KeptRows.of(of, tmp_path / "run", dialogues)
    assert gap() is None
