"""The NLI classifier on a small model with random weights: batching and labels, not what it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.adherence.reference.entailment import PairClassifier
from curate.adherence.reference_config import ReferenceConfig
from curate.errors import UsageError

PAIRS = [
    ("Your card is blocked.", "I did not block it."),
    ("Yes.", "No."),
    ("The refund takes three to five working days and goes to the card that was charged.", "Soon."),
    ("It rains.", "The sun is out, and it will stay so for the whole of the afternoon, they say."),
    *((f"Reply {number} of many.", "word " * number) for number in range(1, 20)),
]


def save_model(folder: Path, minilm: str, labels: tuple[str, ...]) -> str:
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=1.0,
        id2label=dict(enumerate(labels)),
        label2id={label: at for at, label in enumerate(labels)},
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    return str(folder)


def test_a_batch_finds_what_each_pair_alone_does(tmp_path: Path, minilm: str) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = save_model(tmp_path, minilm, ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"))
    classifier = PairClassifier(ReferenceConfig(nli_model=folder, device="cpu"))
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    alone = []
    for first, second in PAIRS:
        with torch.inference_mode():
            logits = model(**tokenizer(first, second, return_tensors="pt")).logits
        alone.append(int(logits.argmax()) == 0)
    assert classifier.contradictions(PAIRS) == alone
    assert classifier.classified == len(PAIRS)
    assert len(set(alone)) == 2


def test_a_classifier_without_a_contradiction_label_is_refused(tmp_path: Path, minilm: str) -> None:
    folder = save_model(tmp_path, minilm, ("negative", "positive"))
    with pytest.raises(UsageError, match="not an NLI classifier"):
        PairClassifier(ReferenceConfig(nli_model=folder)).contradictions(PAIRS)


def test_pairs_longer_than_the_model_reads_are_counted(tmp_path: Path, minilm: str) -> None:
    folder = save_model(tmp_path, minilm, ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"))
    classifier = PairClassifier(ReferenceConfig(nli_model=folder, device="cpu"))
    longest = 512 - 4  # beside "word" and the three special tokens
    pairs = [("word " * words, "word") for words in (longest, longest + 1, longest + 100, 1)]
    assert len(classifier.contradictions(pairs)) == 4
    assert classifier.cut == 2
