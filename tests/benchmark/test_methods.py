from __future__ import annotations

import pytest

from curate.adherence.config import AdherenceConfig
from curate.benchmark.methods import MethodScores, parse_methods
from curate.errors import UsageError

BASE = AdherenceConfig()


def test_variants_side_by_side() -> None:
    found = parse_methods(
        "cosine, knn[k=3,pool=turn],mahalanobis[scale=none],llm_judge[output_mode=continuous]", BASE
    )
    assert [method.name for method in found] == [
        "cosine",
        "knn[k=3,pool=turn]",
        "mahalanobis[scale=none]",
        "llm_judge[output_mode=continuous]",
    ]
    assert (found[1].config.reference.k, found[1].config.reference.pool) == (3, "turn")
    assert found[2].config.reference.scale == "none"
    assert found[2].config.scoring_method == "mahalanobis"
    assert found[3].is_judge
    assert found[3].config.output_mode == "continuous"
    assert BASE.output_mode == "auto"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cosin", "no such method"),
        ("cosine,,kl", "nothing between two commas"),
        ("", "nothing between"),
        ("knn[kk=2]", "has no parameter 'kk'"),
        ("knn[k]", "has no value"),
        ("knn[k=0]", "k = 0"),
        ("knn[pool=all]", "pool = 'all'"),
        ("llm_judge[k=2]", "has no parameter 'k'"),
        ("knn[k=2", "no such method"),
        ("knn[pool={]", "value of pool cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_methods(text, BASE)
    assert said in str(raised.value)


def test_reasons_go_with_the_scores() -> None:
    scores = MethodScores("m", (0.1, None, None), "run here", reasons=(None, "no_text", "no_text"))
    assert scores.unscored == {"no_text": 2}
    assert scores.first(2).unscored == {"no_text": 1}
    assert scores.first(2).scores == (0.1, None)
