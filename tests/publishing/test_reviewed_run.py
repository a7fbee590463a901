"""A run that people reviewed goes out with what they decided: the card says it, and its figures add up."""

from __future__ import annotations

import json
from pathlib import Path

from curate.publishing.push import PushOptions, prepare_push
from curate.run.review import review_run


def test_the_card_says_what_people_decided_and_where_their_pairs_went(
    run: Path, tmp_path: Path
) -> None:
    lines = (run / "pairs" / "natural_pairs.jsonl").read_text().splitlines()
    pair = json.loads(lines[0])
    both = {
        "id": pair["dialogue_id"],
        "content": pair["content_hash"],
        "rater": "a",
        "time": "2026",
    }
    turned = {"dimension": "better", "value": "rejected", "pair_id": pair["pair_id"]}
    answers = [both | turned, both | {"dimension": "accept", "value": "reject"}]
    file = tmp_path / "r.jsonl"
    file.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    said = review_run(run, file).report.described
    prepared = prepare_push(run, "me/parcels", PushOptions(licences=("cc0-1.0",)))
    assert said in (run / "push" / "files" / "README.md").read_text()
    (step,) = (one for one in prepared.funnel if one.name == "pairs and natural pairs")
    assert step.parts["not carried: reviewed"] == 1
