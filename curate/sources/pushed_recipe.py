"""Recipes of sets that `curate push` put on the Hub: `hf://owner/name`, optionally with `@revision`.

A pushed recipe lacks what belongs to the machine that ran it: addresses of servers and folders of files. These checks
name what is missing, with the option that sets it, before any data is read or any model called.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from curate.errors import SourceError, UsageError, first_line
from curate.sources.config import SourceConfig
from curate.sources.hub_datasets import is_hub_source

RECIPE: Final = "recipe.yaml"
"""Its path in the repository."""
_PUSHED = re.compile(
    r"hf:/{1,2}(?:datasets/)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?"
)


def is_pushed(path: str | Path) -> bool:
    """Return whether a recipe's path names a set on the Hub."""
    return str(path).startswith("hf:/")


def fetch_pushed(path: str | Path) -> Path:
    """Return the recipe's file, from the Hub or its local cache.

    Raises:
        UsageError: the name is malformed, there is no such set, or it has no recipe.
        SourceError: the Hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    match = _PUSHED.fullmatch(str(path))
    if match is None:
        raise UsageError(
            "not the name of a dataset on the Hub",
            got=path,
            expected="hf://owner/name or hf://owner/name@revision",
        )
    repo = match["repo"]
    try:
        return Path(hf_hub_download(repo, RECIPE, repo_type="dataset", revision=match["revision"]))
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"the Hub has no dataset {repo}, or the token may not see it",
            got=first_line(error),
            fix="check the name, and set HF_TOKEN if the dataset is private",
        ) from error
    except EntryNotFoundError as error:
        raise UsageError(
            f"{repo} has no recipe",
            expected=f"a dataset that `curate push` wrote, which has a {RECIPE}",
            fix="`curate init` starts a recipe for it",
        ) from error
    except Exception as error:  # errors of the client's transport depend on its version
        raise SourceError(
            f"the recipe of {repo} cannot be fetched",
            got=first_line(error),
            fix="check HF_ENDPOINT, the network and the revision",
        ) from error


def check_servers(data: Mapping[str, Any], path: str | Path) -> None:
    """Refuse a pushed recipe, overrides applied, with models on servers without an address.

    Raises:
        UsageError: models lack addresses; the message names them and the options that set them.
    """
    models = dict(_unplaced(data.get("models"), "models"))
    if models:
        raise UsageError(
            f"{path} does not say where its models are: addresses are not published",
            got=", ".join(f"{place}: {model}" for place, model in models.items()),
            expected="servers of yours, with these models or others",
            fix=" ".join(f"--set {place}.base_url=http://localhost:8000/v1" for place in models),
        )


def check_files(sources: Sequence[SourceConfig], path: str | Path) -> None:
    """Refuse a pushed recipe that reads files which are not on this machine.

    Raises:
        UsageError: files are missing; the message names them and the options that set others.
    """
    missing = {at: source.paths for at, source in enumerate(sources) if not _is_there(source)}
    if missing:
        raise UsageError(
            f"{path} was made of files that were not pushed",
            got=", ".join(name for paths in missing.values() for name in paths),
            expected="the same files, or others, on this machine",
            fix=" ".join(f"--set source.{at}.path=FILE" for at in missing),
        )


def _is_there(source: SourceConfig) -> bool:
    return is_hub_source(source) or all(
        glob.glob(str(Path(path).expanduser()), recursive=True) for path in source.paths
    )


def _unplaced(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the place in the recipe and the model of each server without an address."""
    if isinstance(value, dict) and value.get("engine") == "openai":
        if not value.get("base_url"):
            yield place, str(value.get("model"))
    elif isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inner:
            yield from _unplaced(item, f"{place}.{key}")
