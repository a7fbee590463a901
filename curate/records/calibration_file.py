"""Reading the files of `curate calibrate` and `curate certify`, and checking that they fit a run's judge.

They are read when the config is made, so that their content is part of the run's fingerprint and travels to
workers on other machines. What was fitted to one judge does not hold for another, nor for the same judge with
other options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from curate.errors import UsageError, first_misfit
from curate.records import (
    Calibration,
    CascadeFit,
    Certificate,
    JudgeCalibration,
    JudgeIdentity,
    PairCurve,
)

R = TypeVar("R", bound=BaseModel)


_ABOUT = {"identity": "the rubric judge", "adherence": "role adherence", "metrics": "metrics"}


def read_calibration(
    value: Any, key: str, part: Literal["identity", "adherence", "metrics"] | None = None
) -> Calibration | None:
    """Return the calibration that a recipe's key names; None for None.

    Args:
        value: a path, or the content of such a file; a calibration of role adherence alone is accepted too.
        key: key of the recipe, for the error.
        part: the part that is needed; `identity` stands for levels of the rubric.

    Raises:
        UsageError: the file cannot be read, was not written by `curate calibrate`, or lacks the part.
    """
    calibration = _calibration(value, key)
    if calibration is not None and part is not None and getattr(calibration, part) is None:
        others = [about for name, about in _ABOUT.items() if getattr(calibration, name) is not None]
        raise UsageError(
            f"{key} has no calibration of {_ABOUT[part]}",
            got=value if isinstance(value, str | Path) else f"a calibration of {', '.join(others)}",
            expected=f"a file written by `curate calibrate RUN GOLD` from labels of {_ABOUT[part]}",
            fix="name the file at the key for its part (judge.calibration, adherence.calibration, metrics.calibration), "
            "or calibrate again",
        )
    return calibration


def _calibration(value: Any, key: str) -> Calibration | None:
    if isinstance(value, JudgeCalibration):
        return Calibration(kind="calibration", adherence=value)

    def parse(content: Any) -> Calibration:
        if isinstance(content, dict) and "kind" not in content:
            adherence = JudgeCalibration.model_validate(content)
            return Calibration(kind="calibration", adherence=adherence)
        return Calibration.model_validate(content)

    return _read(value, Calibration, key, "a file written by `curate calibrate`", parse)


def read_curve(value: Any) -> PairCurve | None:
    """Return the curve that a recipe's key `curve` names: a path, or the content of such a file.

    Raises:
        UsageError: the file cannot be read, or holds no curve.
    """
    expected = "a file written by `curate calibrate` with --twins or --pairs"
    return _read(value, PairCurve, "the curve of a judge's comparisons", expected)


def read_certificate(value: Any) -> Certificate | None:
    """Return the certificate that a recipe's key `certificate` names: a path, or the content of such a file.

    Raises:
        UsageError: the file cannot be read, holds no certificate, or says that none was issued.
    """
    expected = "a file written by `curate certify`"
    certificate = _read(value, Certificate, "the certificate", expected)
    if certificate is not None and certificate is not value and not certificate.issued:
        raise UsageError(
            "the file says that no certificate was issued",
            got=certificate.sentence,
            expected=expected,
        )
    return certificate


def read_cascade_fit(value: Any) -> CascadeFit | None:
    """Return the fit that `models.judge.fit` names: a path, or the content of such a file.

    Raises:
        UsageError: the file cannot be read, or holds no fit of a cascade.
    """
    expected = "a file written by `curate calibrate RUN --cascade`"
    return _read(value, CascadeFit, "models.judge.fit", expected)


def _read(
    value: Any, model: type[R], key: str, expected: str, parse: Callable[[Any], R] | None = None
) -> R | None:
    """Return the record that a value is, or that a file or its content has; None for None."""
    if value is None or isinstance(value, model):
        return value
    is_path = isinstance(value, str | Path)
    try:
        content = orjson.loads(Path(value).read_bytes()) if is_path else value
        return (parse or model.model_validate)(content)
    except (OSError, ValidationError, orjson.JSONDecodeError) as error:
        if isinstance(error, ValidationError):
            problem = first_misfit(error)
        else:
            problem = getattr(error, "strerror", None) or str(error)
        got = f"{value}: {problem}" if is_path else problem
        raise UsageError(f"{key} cannot be used", got=got, expected=expected) from error


@dataclass(frozen=True, slots=True)
class OtherJudge:
    """Differences between the judge that something was fitted to and the judge here: by name, both values."""

    differing: Mapping[str, tuple[str, str]]

    @classmethod
    def between(
        cls,
        fitted: Mapping[str, Any],
        here: Mapping[str, Any],
        names: Collection[str] | None = None,
    ) -> OtherJudge | None:
        """Return the differences, or None where both agree in `names`.

        Args:
            fitted, here: the two judges, as `described` returns them, with any other options that were fitted to.
            names: keys to compare; all by default.
        """
        differing = {
            name: (_shown(fitted, name), _shown(here, name))
            for name in {**fitted, **here}
            if (names is None or name in names) and fitted.get(name) != here.get(name)
        }
        return cls(differing) if differing else None

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
    """Raise UsageError where a file was made for another judge than the one here; it names the differences.

    Args:
        fitted, here, names: see `OtherJudge.between`.
        key: key of the recipe that names the file.
        made: how the file was made for its judge, in words.
        scores: which of the judge's scores the file is about, if there are several.
    """
    other = OtherJudge.between(fitted, here, names)
    if other is not None:
        about = f" ({scores})" if scores else ""
        raise UsageError(
            f"{key} was {made} another judge or other settings of it{about}",
            got=", ".join(f"{name} {now}" for name, (_, now) in other.differing.items()),
            expected=", ".join(f"{name} {then}" for name, (then, _) in other.differing.items()),
            fix=fix,
        )


def identity_fields(identity: JudgeIdentity) -> dict[str, Any]:
    """Return an identity as one mapping, with the keys of `sampling` beside the others; for `OtherJudge.between`."""
    fields = identity.model_dump()
    sampling: dict[str, Any] = fields.pop("sampling")
    return {**sampling, **fields}


def _shown(judge: Mapping[str, Any], name: str) -> str:
    value = judge.get(name, "by default")
    if isinstance(value, list):  # the identities of a jury
        value = " + ".join(" ".join(str(part) for part in one.values() if part) for one in value)
    text = str(value) or "none"
    return text if len(text) <= 60 else f"{text[:59]}…"
