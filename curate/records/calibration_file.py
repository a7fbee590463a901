"""The file that `curate calibrate` writes, read where a recipe names it.

It is read when the config is made, so that its content is part of the run's fingerprint and travels to
workers on other machines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from curate.errors import UsageError
from curate.records import Calibration, JudgeCalibration


def read_calibration(value: Any, key: str) -> Calibration | None:
    """The calibration that a recipe's key names.

    Args:
        value: a path, or the content of such a file; one of role adherence alone serves as well.
        key: of the recipe, for the error.

    Raises:
        UsageError: the file cannot be read, or is none that `curate calibrate` wrote.
    """
    if value is None or isinstance(value, Calibration):
        return value
    if isinstance(value, JudgeCalibration):
        return Calibration(kind="calibration", adherence=value)
    try:
        content = orjson.loads(Path(value).read_bytes()) if isinstance(value, str | Path) else value
        if isinstance(content, dict) and "kind" not in content:
            adherence = JudgeCalibration.model_validate(content)
            return Calibration(kind="calibration", adherence=adherence)
        return Calibration.model_validate(content)
    except (OSError, ValidationError, orjson.JSONDecodeError) as error:
        if isinstance(error, ValidationError):
            said = f"{'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}"
        else:
            said = getattr(error, "strerror", None) or str(error)
        named = f"{value}: " if isinstance(value, str | Path) else ""
        raise UsageError(
            f"{key} cannot be used",
            got=f"{named}{said}",
            expected="a file that `curate calibrate` wrote",
        ) from error
