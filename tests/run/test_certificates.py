"""The certificates that a recipe names: every one, and every stage of one, is compared with the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from curate.errors import UsageError
from curate.recipe import parse_recipe
from curate.records import Certificate, JudgeIdentity, StageName, TrustKind
from curate.run.labels.certificates import check_scores, check_stages, settle_certificates
from curate.run.runlog import RunLog
from curate.run.staging import Job
from curate.run.trust_reports import read_trust_report
from curate.storage.run_folder import RunFolder
from tests.run.test_certificate_sentences import certificate


def judged_by(model: str) -> JudgeIdentity:
    return JudgeIdentity(engine="scripted", model=model)


OF_TWO_STAGES = certificate(identities={"judge": judged_by("a"), "adherence": judged_by("b")})
OF_PAIRS = certificate(
    {"of": "pairs", "fingerprint": "g", "rule": "evidence >= 0.5", "apart": 30}, kind=TrustKind.PAIR_CERTIFICATE, identities={"fork": judged_by("c")}
)  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    judge = {"engine": "scripted", "replies": []}
    named = {
        "name": "r",
        "source": {"path": "nothing.jsonl"},
        "models": {"judge": judge, "policy": judge},
        "select": {"certificate": OF_TWO_STAGES.model_dump(mode="json")},
        "fork": {"certificate": OF_PAIRS.model_dump(mode="json")},
    }
    recipe = parse_recipe(named)
    with RunFolder(tmp_path / "run") as folder:
        yield Job(recipe, folder, RunLog(recipe))


def stages(**models: str) -> list[Any]:
    return [
        SimpleNamespace(name=StageName(name), identity=judged_by(model), calibrated=None)
        for name, model in models.items()
    ]


def calibrated(judge: str, model: str) -> Any:
    after = SimpleNamespace(identity=judged_by(model))
    return SimpleNamespace(name=StageName.JUDGE, identity=judged_by(judge), calibrated=after)


def test_a_stage_that_asks_nobody_keeps_none_from_being_compared(job: Job) -> None:
    check_stages(job, stages(judge="a", adherence="b", fork="c"))
    check_stages(job, stages(adherence="b"))
    with pytest.raises(UsageError, match=r"select\.certificate was issued for another judge"):
        check_stages(job, stages(adherence="another"))
    with pytest.raises(UsageError, match=r"fork\.certificate was issued for another judge"):
        check_stages(job, stages(fork="another"))


def test_calibrated_scores_are_compared_as_such(job: Job) -> None:
    check_stages(job, [calibrated("raw", "a")])
    with pytest.raises(UsageError, match=r"select\.certificate was issued for another judge"):
        check_stages(job, [calibrated("a", "another")])


def test_scores_of_all_stages_are_those_of_every_certificate(job: Job) -> None:
    def scored(**models: str) -> None:
        job.log.stages.clear()
        for name, model in models.items():
            job.log.stage(StageName(name)).identity = judged_by(model)

    scored(judge="a", adherence="b", fork="c")
    check_scores(job)
    scored(adherence="another", fork="c")
    with pytest.raises(UsageError, match=r"select\.certificate was issued for another judge"):
        check_scores(job)
    scored(judge="a", adherence="b")
    with pytest.raises(UsageError, match=r"fork\.certificate uses scores") as raised:
        check_scores(job)
    assert raised.value.got == "no fork"
    scored(fork="c")
    with pytest.raises(UsageError, match=r"select\.certificate uses scores") as raised:
        check_scores(job)
    assert raised.value.got == "no adherence, judge"


def test_a_certificate_of_another_set_keeps_none_from_being_settled(job: Job) -> None:
    for name, fingerprint in (("judge", "j"), ("fork", "k"), ("metrics", "m")):
        job.log.stage(StageName(name)).fingerprint = fingerprint

    def settled(**sets: str) -> dict[str, bool]:
        """Whether each is still issued, and that it is of these sets."""
        job.log.sets.clear()
        job.log.sets.update(sets)
        settle_certificates(job)
        select, pairs = (
            read_trust_report(job.path, Certificate, kind)
            for kind in (TrustKind.CERTIFICATE, TrustKind.PAIR_CERTIFICATE)
        )
        assert select is not None
        assert select.fingerprints == {"judge": "j", "select": sets.get("select", "")}
        assert pairs is not None
        assert pairs.fingerprints == {"fork": "k", "pairs": sets.get("pairs", "")}
        return {"select": select.issued, "pairs": pairs.issued}

    assert settled(select="f", pairs="g") == {"select": True, "pairs": True}
    assert not job.log.warnings
    assert settled(select="other", pairs="g") == {"select": False, "pairs": True}
    assert settled(select="f", pairs="other") == {"select": True, "pairs": False}
    assert settled() == {"select": False, "pairs": False}
    assert len(job.log.warnings) == 2
