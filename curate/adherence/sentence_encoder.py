"""Sentence vectors: any encoder sentence-transformers can open, each unique text embedded once.

Pooling, normalisation and prompts are the encoder's own business, which is why sentence-transformers runs it.
Texts go through in batches of like length, and their vectors are kept on disk, so a changed parameter
or a resumed run embeds only what is new.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from curate.adherence.reference_config import ReferenceConfig
from curate.errors import EngineError, missing_extra
from curate.storage.store import Store, key_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[Any]

_TOGETHER = 2048
_BATCH = 16
"""Small batches stay in the processor's cache; larger ones were slower on CPU and pad more."""


class Encoder(Protocol):
    """Texts in, one vector a text out."""

    @property
    def identity(self) -> dict[str, Any]:
        """What determines a vector: model, revision, precision."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of length 1 in the order of the texts, float32, shape (texts, dimensions)."""
        ...

    @property
    def cut(self) -> int:
        """Texts so far that were longer than the encoder reads."""
        ...


class SentenceEncoder:
    """An encoder by Hub id or folder. It is loaded when first needed."""

    def __init__(self, config: ReferenceConfig) -> None:
        self._config = config
        self.cut = 0

    @cached_property
    def _model(self) -> Any:
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise missing_extra("sentence-transformers", "scorers") from error
        config = self._config
        with opening(config.encoder):
            return SentenceTransformer(
                config.encoder,
                revision=config.revision,
                trust_remote_code=False,
                device=config.device,
                model_kwargs={"dtype": getattr(torch, config.precision)},
            )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Model, revision and precision. Of a folder it is known without loading the model."""
        name = self._config.encoder
        config = None if Path(name).is_dir() else getattr(self._model[0], "auto_model", None)
        return {
            "encoder": model_name(name),
            "revision": revision_of(name, getattr(config, "config", None)),
            "precision": self._config.precision,
        }

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return vectors as in `Encoder`; a text longer than the encoder reads is cut there, and counted."""
        model = self._model
        limit = model.max_seq_length
        if limit:
            tokens = model.tokenizer(list(texts), truncation=True, max_length=limit + 1)
            self.cut += sum(len(ids) > limit for ids in tokens["input_ids"])
        vectors: Vectors = model.encode(
            list(texts),
            batch_size=_BATCH,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return vectors.astype("float32")


class Embedder:
    """An encoder behind a store: each unique text goes through the encoder once.

    Attributes:
        embedded: texts that went through the encoder.
    """

    def __init__(self, encoder: Encoder, store: Store) -> None:
        self.encoder, self._store = encoder, store
        self.embedded = 0

    @cached_property
    def _name(self) -> str:
        return repr(sorted(self.encoder.identity.items()))

    def warm(self, texts: Iterable[str]) -> None:
        """Embed those of the texts that are not in the store."""
        unique = iter(dict.fromkeys(texts))
        while part := list(islice(unique, _TOGETHER)):
            keys = {key_of(self._name, text): text for text in part}
            missing = self._store.missing(keys)
            new = [(key, text) for key, text in keys.items() if key in missing]
            if new:
                vectors = self.encoder.encode([text for _, text in new])
                self.embedded += len(new)
                rows = zip(new, vectors, strict=True)
                self._store.put((key, row.tobytes()) for (key, _), row in rows)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of the texts, in order, shape (texts, dimensions), float64; embeds what is missing."""
        import numpy as np

        keys = [key_of(self._name, text) for text in texts]
        stored = self._store.get(list(dict.fromkeys(keys)))
        if any(key not in stored for key in keys):
            self.warm(texts)
            stored = self._store.get(list(dict.fromkeys(keys)))
        rows = np.frombuffer(b"".join(stored[key] for key in keys), dtype=np.float32)
        return rows.reshape(len(texts), -1).astype(np.float64)


@contextmanager
def opening(model: str) -> Iterator[None]:
    """Turn what the model libraries raise on opening into an EngineError that names the model."""
    try:
        yield
    # transformers, torch, safetensors and the Hub client raise types from half a dozen libraries here.
    except Exception as error:
        raise EngineError(
            f"the model '{model}' cannot be opened",
            got=(str(error).strip() or type(error).__name__).splitlines()[0],
            expected="a Hub id that can be reached, or a folder with config.json and weights",
        ) from error


def load_model(auto: str, name: str, config: ReferenceConfig) -> tuple[Any, Any]:
    """Load a model by one of transformers' `Auto` classes, and its tokenizer.

    Raises:
        UsageError: transformers is missing.
        EngineError: the model cannot be opened.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise missing_extra("transformers", "scorers") from error
    library: Any = transformers
    with opening(name):
        tokenizer = library.AutoTokenizer.from_pretrained(
            name, revision=config.revision, trust_remote_code=False
        )
        model = getattr(library, auto).from_pretrained(
            name,
            revision=config.revision,
            trust_remote_code=False,
            dtype=getattr(torch, config.precision),
        )
    return tokenizer, model.eval()


def device_of(config: ReferenceConfig) -> str:
    """Return the device that the config names, or the best there is."""
    import torch

    return config.device or ("cuda" if torch.cuda.is_available() else "cpu")


def token_limit(tokenizer: Any, model: Any) -> int:
    """Return how many tokens a transformers model reads, special ones included."""
    limit = int(tokenizer.model_max_length)
    # A tokenizer that does not know says 10^30; position tables hold up to two reserved rows.
    return limit if limit < 10**6 else int(model.config.max_position_embeddings) - 2


def model_name(model: str) -> str:
    """Return a Hub id as it is; of a folder its last name, so that a score does not depend on where it lies."""
    return Path(model).resolve().name if Path(model).is_dir() else model


def revision_of(model: str, config: Any) -> str:
    """Return the Hub commit a model was loaded from; of a folder, a hash of its files."""
    folder = Path(model)
    if not folder.is_dir():
        return str(getattr(config, "_commit_hash", None) or "")
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".json", ".safetensors", ".bin", ".txt", ".model"}:
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0")
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()
