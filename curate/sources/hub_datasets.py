"""Rows of a Hub dataset, or of a local folder that `datasets` can load.

`datasets` is imported here and only when needed; a base install reads files without it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import polars as pl

from curate.errors import SourceError
from curate.sources.config import DATA_SUFFIXES, SourceConfig
from curate.sources.tabular import plain_row

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
STREAM_OVER = 1_000_000_000  # bytes to download


def is_hub_source(config: SourceConfig) -> bool:
    """Return whether a source is read by `datasets`: it has a Hub setting, or its path is a dataset id.

    A path whose first folder exists, or that ends like a data file, counts as a missing file instead.
    """
    if config.on_hub:
        return True
    if len(config.paths) != 1:
        return False
    path = config.paths[0]
    if Path(path).expanduser().exists() or HUB_ID.fullmatch(path) is None:
        return False
    is_file_name = path.lower().endswith((*DATA_SUFFIXES, ".gz", ".zst"))
    return not is_file_name and not Path(path.split("/")[0]).is_dir()


def hub_rows(config: SourceConfig) -> Iterable[dict[str, Any]]:
    """Return the rows of the dataset's split, as an iterable that can be read more than once.

    Raises:
        UsageError: the dataset has several splits and none is named.
        SourceError: the dataset cannot be loaded.
    """
    import datasets

    path = config.paths[0]
    try:
        streaming = config.streaming
        if streaming is None:
            builder = datasets.load_dataset_builder(
                path, name=config.config, revision=config.revision
            )
            size = builder.info.download_size
            streaming = size is None or size > STREAM_OVER
        dataset = datasets.load_dataset(
            path,
            name=config.config,
            split=config.split,
            revision=config.revision,
            streaming=streaming,
        )
    except Exception as problem:  # `datasets` passes on the errors of its many back ends
        raise SourceError(
            f"the dataset {path} cannot be loaded",
            got=f"{type(problem).__name__}: {problem}",
            expected="a local path, or a Hub dataset id that you may read",
            fix="check source.path, config, split and revision, and that you are logged in if it is gated",
        ) from problem
    if isinstance(dataset, dict):
        if len(dataset) != 1:
            raise SourceError(
                f"the dataset {path} has several splits",
                got=", ".join(dataset),
                fix="name one as source.split",
            )
        dataset = next(iter(dataset.values()))
    return PlainRows(dataset)


class PlainRows:
    """Rows of a dataset, a frame or a list as plain values; each iteration starts at the first row."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rows = self._rows
        if isinstance(rows, pl.LazyFrame):
            rows = rows.collect()
        if isinstance(rows, pl.DataFrame):
            rows = rows.iter_rows(named=True)
        elif is_pandas(rows):
            # a missing cell is NaN, NaT or NA by the column's type; all become null
            rows = rows.astype(object).where(rows.notna(), None).to_dict("records")
        for row in rows:
            yield plain_row(row) if isinstance(row, Mapping) else row


def is_pandas(rows: object) -> TypeGuard[Any]:
    """Return whether rows are a pandas frame, without importing pandas."""
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)
