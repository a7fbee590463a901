"""BERTScore against figures of the bert-score package (0.3.13) on the same encoder, all-MiniLM-L6-v2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.adherence.reference.bertscore import BertScore, TokenEncoder
from curate.adherence.reference.cases import Case
from curate.adherence.reference_config import ReferenceConfig
from curate.errors import UsageError
from curate.storage.store import Store

PAIRS = (
    ("I can block your card right away.", "I will freeze the card for you now."),
    ("Your balance is $20.", "The balance of your account is $20."),
    ("No idea, ask somebody else!", "I am sorry to hear that. Let me look into it."),
    (
        "I have applied the payment; is there anything else that I can help you with today, or shall I "
        "send you a summary of the last three transactions?",
        "The payment was applied.",
    ),
)
PACKAGE = {
    (6, False): (
        (0.556879, 0.52769, 0.541892),
        (0.923512, 0.830637, 0.874616),
        (0.181609, 0.166903, 0.173946),
        (0.359627, 0.664364, 0.466651),
    ),
    (6, True): (
        (0.43928, 0.470562, 0.454383),
        (0.92884, 0.828256, 0.875669),
        (0.181609, 0.141568, 0.159108),
        (0.308132, 0.71499, 0.430665),
    ),
    (3, False): (
        (0.660786, 0.651552, 0.656137),
        (0.936091, 0.790526, 0.857172),
        (0.402846, 0.386174, 0.394334),
        (0.315883, 0.689791, 0.433328),
    ),
    (3, True): (
        (0.54367, 0.596867, 0.569028),
        (0.932378, 0.799242, 0.860692),
        (0.402846, 0.324447, 0.359421),
        (0.275799, 0.73476, 0.401057),
    ),
}
"""Layer and idf to precision, recall and F1 of each pair."""

CASES = [Case(1, candidate, (reference,), "role") for candidate, reference in PAIRS]


def method(minilm: str, store: Store | None = None, **config: Any) -> BertScore:
    made = ReferenceConfig(**{"bertscore_model": minilm, "layer": 6, "device": "cpu", **config})
    return BertScore(TokenEncoder(made), store or Store(), made)


@pytest.mark.parametrize(("layer", "idf"), PACKAGE)
def test_precision_recall_and_f1_are_those_of_the_package(
    minilm: str, layer: int, idf: bool
) -> None:
    ours = method(minilm, layer=layer, idf=idf)
    for part in (CASES[:1], CASES[1:]):  # the counts of all parts are added up
        ours.learn(part)
    found = ours.pairs(PAIRS)
    for pair, expected in zip(found, PACKAGE[layer, idf], strict=True):
        assert pair == pytest.approx(expected, abs=2e-6)


def test_of_several_references_the_best_score_counts(minilm: str) -> None:
    candidate, reference = PAIRS[0]
    found = method(minilm).score(Case(1, candidate, (PAIRS[1][1], reference), "role"))
    assert found.score == pytest.approx(PACKAGE[6, False][0][2], abs=2e-6)


def test_rescaling_with_a_baseline_table(minilm: str, tmp_path: Path) -> None:
    table = tmp_path / "table.tsv"
    table.write_text("LAYER,P,R,F\n5,0.1,0.1,0.1\n6,0.2,0.3,0.4\n", encoding="utf-8")
    found = method(minilm, baseline=table).score(CASES[1])
    assert found.score == pytest.approx((PACKAGE[6, False][1][2] - 0.4) / 0.6, abs=4e-6)
    with pytest.raises(UsageError, match="layer 3"):
        method(minilm, layer=3, baseline=table)


def test_a_text_goes_through_the_model_once_and_a_pair_is_kept(minilm: str, tmp_path: Path) -> None:
    path = tmp_path / "embeddings.sqlite"
    shared = [*CASES, Case(1, PAIRS[0][0], (PAIRS[1][1], PAIRS[2][1]), "role")]
    for run, expected in (("first", 8), ("second", 0)):
        store = Store(path)
        ours = method(minilm, store)
        for part in (shared[:2], shared[2:]):  # texts of an earlier chunk are remembered
            ours.settle(part)
        for case in shared:
            ours.score(case)
        assert ours.encoder.embedded == expected, run
        store.close()


def test_layer_idf_and_precision_are_part_of_the_identity(minilm: str) -> None:
    def described(**config: Any) -> Any:
        ours = method(minilm, **config)
        ours.learn(CASES)
        return ours.describe()

    assert described()["layer"] == 6
    assert described()["idf"] is False
    table = described(idf=True)["idf"]
    assert table == described(idf=True)["idf"] != ""
    fewer = method(minilm, idf=True)
    fewer.learn(CASES[1:])
    assert fewer.describe()["idf"] not in (table, "", False)
    for other in ({"layer": 3}, {"idf": True}, {"precision": "bfloat16"}):
        assert described(**other) != described()


def test_a_layer_the_model_does_not_have_is_refused(minilm: str) -> None:
    with pytest.raises(UsageError, match="1 to 6"):
        method(minilm, layer=7).pairs(PAIRS)


def test_a_text_longer_than_the_model_reads_is_counted(minilm: str) -> None:
    ours = method(minilm)
    ours.score(Case(1, "word " * 600, ("word",), "role"))
    assert ours.cut == 1
