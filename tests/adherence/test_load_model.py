"""Loading a model of the Hub and its tokenizer, on tiny models made on the spot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from curate.adherence.reference_config import ReferenceConfig
from curate.adherence.sentence_encoder import load_model
from curate.errors import EngineError, UsageError

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "yes", "no")


def save_model(folder: Path, *words: str) -> Path:
    """A folder with a classifier of random weights, and a tokenizer that knows a few words."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers import BertConfig, BertForSequenceClassification

    vocabulary = (*WORDS, *words)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("auto", ["AutoModel", "AutoModelForSequenceClassification"])
def test_a_model_is_loaded_to_be_asked_with_its_tokenizer(
    auto: str, precision: str, tmp_path: Path
) -> None:
    import transformers

    folder = str(save_model(tmp_path))
    tokenizer, model = load_model(auto, folder, ReferenceConfig(precision=precision))
    assert tokenizer("yes no maybe")["input_ids"] == [2, 5, 6, 1, 3]
    assert isinstance(model, getattr(transformers, auto).from_pretrained(folder).__class__)
    assert str(model.dtype) == f"torch.{precision}"
    assert not model.training


def test_code_that_a_model_names_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "taken"
    folder = save_model(tmp_path / "model")
    (folder / "odd.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    for file, named in (
        ("config.json", {"AutoModel": "odd.Model"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["odd.Tokenizer", None]}),
    ):
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | {"auto_map": named}))
    tokenizer, model = load_model("AutoModel", str(folder), ReferenceConfig())
    assert (type(tokenizer).__name__, type(model).__name__) == ("BertTokenizer", "BertModel")
    assert not mark.exists()


def test_a_model_whose_weights_are_torn_is_named(tmp_path: Path) -> None:
    save_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError) as raised:
        load_model("AutoModel", str(tmp_path), ReferenceConfig())
    assert raised.value.problem == f"the model '{tmp_path}' cannot be opened"


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError) as raised:
        load_model("AutoModel", "org/model", ReferenceConfig())
    assert "transformers" in raised.value.problem
    assert "scorers" in str(raised.value.fix)


def test_weights_and_tokenizer_are_of_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None
) -> None:
    cache = tmp_path / "models--org--tiny"
    for commit, words in (("a" * 40, ()), ("b" * 40, ("maybe",))):
        save_model(cache / "snapshots" / commit, *words)
    (cache / "refs").mkdir()
    for name, commit in (("main", "a" * 40), ("v2", "b" * 40)):
        (cache / "refs" / name).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for revision, size in ((None, 7), ("v2", 8)):
        tokenizer, model = load_model("AutoModel", "org/tiny", ReferenceConfig(revision=revision))
        assert (len(tokenizer), model.config.vocab_size) == (size, size)
