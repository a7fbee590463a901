"""The recipe of a set on the Hub that `curate push` put there: `hf://owner/name`, with `@revision` where one is meant.

It is pushed as it ran, but for what lies on the machine that ran it: servers' addresses and the folders of files. So what
is missing is said before anything is read or asked, with the option that gives it.
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
    """Tell whether a recipe's path names a set on the Hub."""
    return str(path).startswith("hf:/")


def fetch_pushed(path: str | Path) -> Path:
    """Return the recipe's file, fetched from the Hub or kept from before.

    Raises:
        UsageError: the name is none, there is no such set, or it has no recipe.
        SourceError: the Hub cannot be asked.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    named = _PUSHED.fullmatch(str(path))
    if named is None:
        raise UsageError(
            "not the name of a set on the Hub",
            got=path,
            expected="hf://owner/name, or with @revision",
        )
    repo = named["repo"]
    try:
        return Path(hf_hub_download(repo, RECIPE, repo_type="dataset", revision=named["revision"]))
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"the Hub has no dataset {repo}, or the token may not see it",
            got=first_line(error),
            fix="check the name, and set HF_TOKEN where the set is private",
        ) from error
    except EntryNotFoundError as error:
        raise UsageError(
            f"{repo} holds no recipe",
            expected=f"a set that `curate push` made, which has a {RECIPE}",
            fix="`curate init` starts a recipe for it",
        ) from error
    except Exception as error:  # of the client or its transport, which depends on its version
        raise SourceError(
            f"the recipe of {repo} cannot be fetched",
            got=first_line(error),
            fix="check HF_ENDPOINT, the network and the revision",
        ) from error


def check_servers(data: Mapping[str, Any], path: str | Path) -> None:
    """Refuse a pushed recipe, overrides applied, whose models are on servers that it does not name.

    Raises:
        UsageError: names them, and the options that give their addresses.
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
        UsageError: names them, and the options that give others.
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
    """Servers without an address below a place: where in the recipe, and which model."""
    if isinstance(value, dict) and value.get("engine") == "openai":
        if not value.get("base_url"):
            yield place, str(value.get("model"))
    elif isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inner:
            yield from _unplaced(item, f"{place}.{key}")
