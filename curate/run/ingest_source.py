"""`curate ingest`: read one source into a folder, and write a recipe with a proposed mapping that was accepted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.recipe import load_recipe, parse_source
from curate.records import QuarantinedRow
from curate.run.ingest import QUARANTINE, SourceReport, read_dialogues, read_sources
from curate.sources import open_source
from curate.sources.config import SourceConfig
from curate.sources.proposal import Proposal, UnknownShapeError, mapping_yaml
from curate.storage.line_files import read_lines
from curate.storage.run_folder import MANIFEST

_EXAMPLES = 3
_NO_FILE_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of `curate ingest`."""

    report: SourceReport
    example: Dialogue | None
    quarantine_examples: tuple[QuarantinedRow, ...]
    folder: Path
    accepted: Path | None = None
    """The recipe that was written with the proposed mapping."""


def ingest_source(
    path: str | None = None,
    *,
    shape: str = "auto",
    recipe: Path | None = None,
    limit: int | None = None,
    out: Path | None = None,
    accept: bool = False,
) -> IngestReport:
    """Normalise one source.

    Args:
        path: file, folder, glob or Hub id; the recipe's where it is left out.
        shape: a shape's name, or `auto`.
        recipe: gives mapping, columns and fall-backs; its path is replaced by `path`.
        limit: read only the first rows.
        out: folder to write; `runs/ingest-<source name>` by default.
        accept: where no shape is certain, take the mapping that is proposed and write it as a recipe.

    Raises:
        UnknownShapeError: no shape is certain; holds the proposal, if there is one.
        UsageError, SourceError: as `curate.sources.open_source`; the folder is a run's; the recipe would be
            overwritten.
    """
    settings, fallbacks = _source_settings(path, shape, recipe, limit)
    config = parse_source(settings)
    accepted = None
    try:
        source = open_source(config)
    except UnknownShapeError as unknown:
        if not accept or unknown.proposal is None:
            raise
        accepted = _write_accepted(config, unknown.proposal, recipe)
        config = parse_source(settings | {"mapping": unknown.proposal.settings})
        source = open_source(config)
    folder = out or Path("runs") / f"ingest-{_NO_FILE_NAME.sub('-', config.source_name)}"
    if (folder / MANIFEST).is_file():
        raise UsageError(
            "`curate ingest` does not overwrite a run folder",
            got=folder,
            expected="another folder",
            fix="name one with --out",
        )
    [report] = read_sources([source], folder, **fallbacks)
    put_aside = read_lines(folder / QUARANTINE)
    return IngestReport(
        report,
        next(read_dialogues(folder), None),
        tuple(map(QuarantinedRow.model_validate_json, islice(put_aside, _EXAMPLES))),
        folder,
        accepted,
    )


def _source_settings(
    path: str | None, shape: str, recipe: Path | None, limit: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the source's settings from command line and recipe, and the recipe's role and scenario."""
    if path is None and recipe is None:
        raise UsageError(
            "there is nothing to ingest",
            expected="a file, folder, glob or Hub dataset id, or --recipe with a source",
            fix="curate ingest chats.jsonl",
        )
    settings: dict[str, Any] = {} if path is None else {"path": path}
    settings |= {} if limit is None else {"limit": limit}
    settings |= {} if shape == "auto" else {"shape": shape}
    if recipe is None:
        return settings, {"role": None, "scenario": None}
    loaded = load_recipe(recipe)
    if len(loaded.source) != 1:
        raise UsageError(
            "the recipe has several sources", got=len(loaded.source), expected="one, for ingest"
        )
    fallbacks = {name: getattr(loaded, name) for name in ("role", "scenario", "role_from")}
    return loaded.source[0].model_dump(exclude_unset=True) | settings, fallbacks


def _write_accepted(config: SourceConfig, proposal: Proposal, recipe: Path | None) -> Path:
    """Write a recipe with the proposed mapping into the working directory, named after the source.

    Raises:
        UsageError: there is a file of that name.
    """
    path = new_recipe(Path(recipe_name(config)))
    lines = [
        f"# {proposal.rows_read} of {proposal.rows} sampled rows can be read so: {proposal.description}."
    ]
    lines += [f"# Look at this: {doubt}." for doubt in proposal.doubts]
    lines += [] if recipe is None else [f"extends: {recipe}"]
    settings = config.model_dump(mode="json", exclude_unset=True)
    path.write_text("\n".join([*lines, _source_yaml(settings, proposal), ""]), encoding="utf-8")
    return path


def recipe_name(config: SourceConfig) -> str:
    """Return the name of a recipe's file, after its source."""
    return _NO_FILE_NAME.sub("-", config.source_name) + ".yaml"


def new_recipe(path: Path) -> Path:
    """Return the path of a recipe that is yet to be written.

    Raises:
        UsageError: there is something of that name.
    """
    if os.path.lexists(path):
        raise UsageError(
            "a recipe of that name exists already",
            got=path,
            expected="a name that is free",
            fix="move it away, or give `curate init` another name with --out",
        )
    return path


def _source_yaml(settings: Mapping[str, Any], proposal: Proposal) -> str:
    """Return the `source` of a recipe with the proposed mapping."""
    lines = mapping_yaml({**settings}).splitlines()
    return "\n".join(
        ["source:", *(f"  {line}" for line in lines), "  mapping:"]
        + [f"    {line}" for line in proposal.yaml.splitlines()]
    )
