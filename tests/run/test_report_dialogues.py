"""The pairs and dialogues in the report of a run: pairs as rows of a table, each prompt once."""

from __future__ import annotations

from pathlib import Path

from curate.dialogue import Message
from curate.records import DropReason, PairCheck, PreferencePair
from curate.run.report_dialogues import RunPairs


def test_a_pair_is_shown_in_its_dialogue_without_what_the_dialogue_says(tmp_path: Path) -> None:
    question = Message(role="user", content="Where is it?")
    pair = PreferencePair(
        pair_id="p", dialogue_id="d", content_hash="h", source="natural", basis="rank", turn=1,
        prompt=(question,), tools=({"name": "find"},), lineage=None, confidence=None,
        chosen=Message(role="assistant", content="Here."),
        rejected=Message(role="assistant", content="No."),
        check=PairCheck(preference=0.5, margin=0.25, probability=0.75, decided_by="labels"),
    )  # fmt: skip
    other = pair.model_copy(
        update={"pair_id": "q", "dialogue_id": "e", "basis": "judge", "source": "resampled"}
        | {"drop_reason": DropReason.IDENTICAL, "check": None}
    )
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs/natural_pairs.jsonl").write_text(pair.model_dump_json() + "\n")
    (tmp_path / "pairs/dropped_pairs.jsonl").write_text(other.model_dump_json() + "\n")
    with RunPairs.of(tmp_path) as pairs:
        assert pairs.rows == [
            {
                "id": "p", "dialogue": "d", "turn": 1, "kind": "in the data", "basis": "rank",
                "source": "natural", "dropped": None, "decided_by": "labels", "probability": 0.75,
                "preference": 0.5, "margin": 0.25,
            },
            {
                "id": "q", "dialogue": "e", "turn": 1, "kind": "made", "basis": "judge",
                "source": "resampled", "dropped": "identical", "decided_by": None,
                "probability": None, "preference": None, "margin": None,
            },
        ]  # fmt: skip
        (shown,) = pairs.read("d")
        assert shown.keys() == {
            "pair_id", "source", "basis", "turn", "chosen", "rejected", "check",
        }  # fmt: skip
        assert shown["check"]["margin"] == 0.25
        assert pairs.read("d") == [shown]
        assert [row["pair_id"] for row in pairs.read("e")] == ["q"]
        assert pairs.read("elsewhere") == []
