"""The files that `curate calibrate` and `curate certify` write: read where a recipe names them, and held against the judge of a run.

They are read when the config is made, so that their content is part of the run's fingerprint and travels to
workers on other machines. What was fitted to one judge says nothing about another, nor about the same judge asked
in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson
from pydantic import ValidationError

from curate.errors import UsageError
from curate.records import (
    Calibration,
    CascadeFit,
    Certificate,
    JudgeCalibration,
    JudgeIdentity,
    PairCurve,
)

R = TypeVar("R")


_ABOUT = {"identity": "the rubric judge", "adherence": "role adherence", "metrics": "metrics"}


def read_calibration(
    value: Any, key: str, part: Literal["identity", "adherence", "metrics"] | None = None
) -> Calibration | None:
    """The calibration that a recipe's key names.

    Args:
        value: a path, or the content of such a file; one of role adherence alone serves as well.
        key: of the recipe, for the error.
        part: that it must hold: `identity` is there with levels of the rubric.

    Raises:
        UsageError: the file cannot be read, is none that `curate calibrate` wrote, or lacks the part.
    """
    if value is None:
        return None
    read = _calibration(value, key)
    if part is not None and getattr(read, part) is None:
        others = [said for name, said in _ABOUT.items() if getattr(read, name) is not None]
        raise UsageError(
            f"{key} holds nothing about {_ABOUT[part]}",
            got=value if isinstance(value, str | Path) else f"a calibration of {', '.join(others)}",
            expected=f"a file that `curate calibrate RUN GOLD` wrote, of labels of {_ABOUT[part]}",
            fix="name it where its part is read (judge.calibration, adherence.calibration, metrics.calibration), or "
            "calibrate again",
        )
    return read


def _calibration(value: Any, key: str) -> Calibration:
    if isinstance(value, Calibration):
        return value
    if isinstance(value, JudgeCalibration):
        return Calibration(kind="calibration", adherence=value)

    def parse(content: Any) -> Calibration:
        if isinstance(content, dict) and "kind" not in content:
            adherence = JudgeCalibration.model_validate(content)
            return Calibration(kind="calibration", adherence=adherence)
        return Calibration.model_validate(content)

    return _read(value, parse, key, "a file that `curate calibrate` wrote")


def read_curve(value: Any) -> PairCurve | None:
    """The curve that a recipe's key `curve` names: a path, or the content of such a file.

    Raises:
        UsageError: the file cannot be read, or holds no curve.
    """
    if value is None or isinstance(value, PairCurve):
        return value
    key = "the curve of a judge's comparisons"
    expected = "a file that `curate calibrate` wrote with --twins or --pairs"
    return _read(value, PairCurve.model_validate, key, expected)


def read_certificate(value: Any) -> Certificate | None:
    """The certificate that a recipe's key `certificate` names: a path, or the content of such a file.

    Raises:
        UsageError: the file cannot be read, holds no certificate, or says that there is none.
    """
    if value is None or isinstance(value, Certificate):
        return value
    key, expected = "the certificate", "a file that `curate certify` wrote"
    certificate = _read(value, Certificate.model_validate, key, expected)
    if not certificate.issued:
        raise UsageError(
            "the labels did not show it: there is no certificate",
            got=certificate.sentence,
            expected=expected,
        )
    return certificate


def read_cascade_fit(value: Any) -> CascadeFit | None:
    """The fit that `models.judge.fit` names: a path, or the content of such a file.

    Raises:
        UsageError: the file cannot be read, or holds no fit of a cascade.
    """
    if value is None or isinstance(value, CascadeFit):
        return value
    expected = "a file that `curate calibrate RUN --cascade` wrote"
    return _read(value, CascadeFit.model_validate, "models.judge.fit", expected)


def _read(value: Any, parse: Callable[[Any], R], key: str, expected: str) -> R:
    try:
        content = orjson.loads(Path(value).read_bytes()) if isinstance(value, str | Path) else value
        return parse(content)
    except (OSError, ValidationError, orjson.JSONDecodeError) as error:
        if isinstance(error, ValidationError):
            said = f"{'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}"
        else:
            said = getattr(error, "strerror", None) or str(error)
        named = f"{value}: " if isinstance(value, str | Path) else ""
        raise UsageError(
            f"{key} cannot be used", got=f"{named}{said}", expected=expected
        ) from error


@dataclass(frozen=True, slots=True)
class OtherJudge:
    """In what a judge is not the one something was fitted to, by name: what it was fitted to, what is here."""

    differing: Mapping[str, tuple[str, str]]

    @classmethod
    def between(
        cls,
        fitted: Mapping[str, Any],
        here: Mapping[str, Any],
        names: Collection[str] | None = None,
    ) -> OtherJudge | None:
        """None where both agree in `names`, or in everything.

        Args:
            fitted, here: as `described` gives them, and what else was fitted to.
            names: what is compared; all by default.
        """
        found = {
            name: (_shown(fitted, name), _shown(here, name))
            for name in {**fitted, **here}
            if (names is None or name in names) and fitted.get(name) != here.get(name)
        }
        return cls(found) if found else None

    def __str__(self) -> str:
        return "; ".join(
            f"{name}: {fitted}, here {here}" for name, (fitted, here) in self.differing.items()
        )


def check_same_judge(
    fitted: Mapping[str, Any],
    here: Mapping[str, Any],
    key: str,
    fix: str,
    names: Collection[str] | None = None,
    *,
    made: str = "fitted to",
    scores: str = "",
) -> None:
    """Refuse what `key` names where it was made for another judge than the one here.

    Args:
        fitted, here, names: see `OtherJudge.between`.
        made: how it was made for it, in words.
        scores: which of the judge's scores it is about, where it may be several.

    Raises:
        UsageError: names what differs.
    """
    other = OtherJudge.between(fitted, here, names)
    if other is not None:
        about = f" ({scores})" if scores else ""
        raise UsageError(
            f"{key} was {made} another judge or way of asking{about}",
            got=", ".join(f"{name} {now}" for name, (_, now) in other.differing.items()),
            expected=", ".join(f"{name} {then}" for name, (then, _) in other.differing.items()),
            fix=fix,
        )


def described(identity: JudgeIdentity) -> dict[str, Any]:
    """An identity as one mapping, what `sampling` holds beside the rest; for `OtherJudge.between`."""
    held = identity.model_dump()
    sampling: dict[str, Any] = held.pop("sampling")
    return {**sampling, **held}


def _shown(held: Mapping[str, Any], name: str) -> str:
    text = str(held.get(name, "by default")) or "none"
    return text if len(text) <= 60 else f"{text[:59]}…"
