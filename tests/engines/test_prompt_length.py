"""The bound of a prompt's length is held to real tokenizers: it must never be below what they count."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.prompt_length import token_bound
from tests.engines.families import FAMILIES, tokenizer_of

SAMPLE = Path(__file__).parents[2] / "recipes/sample/dialogues.jsonl"
SOURCE = Path(__file__).parents[2] / "curate/recipe/recipe.py"


def drawn(letters: str, count: int = 4000) -> str:
    return "".join(random.Random(1).choices(letters, k=count))


def made_up_words() -> str:
    rng = random.Random(2)
    letters = string.ascii_lowercase
    return " ".join("".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(900))


TEXTS: dict[str, Callable[[], str]] = {
    "dialogues": lambda: SAMPLE.read_text()[:30_000],
    "code": SOURCE.read_text,
    "lower": lambda: drawn(string.ascii_lowercase),
    "upper": lambda: drawn(string.ascii_uppercase),
    "mixed case": lambda: drawn(string.ascii_letters),
    "words of no language": made_up_words,
    "single letters": lambda: " ".join(drawn(string.ascii_lowercase)),
    "digits": lambda: drawn(string.digits),
    "hex": lambda: drawn("0123456789abcdef"),
    "words no tokenizer knows": lambda: " ".join(drawn("qxzjvkw" + " " * 2).split()),
    "base64": lambda: base64.b64encode(drawn(string.printable).encode()).decode(),
    "blanks": lambda: "  \n \t\n   x\n" * 300,
    "german": lambda: "Die Überprüfung der Straßenverkehrsordnung größerer Städte. " * 30,
    "russian": lambda: "Съешь ещё этих мягких французских булок, да выпей же чаю. " * 30,
    "chinese": lambda: "我们今天讨论一下如何处理客户的退款请求。" * 30,
    "thai": lambda: "สวัสดีครับผมต้องการสอบถามเรื่องการคืนเงิน" * 30,
    "hindi": lambda: "नमस्ते मुझे अपने आदेश की वापसी के बारे में जानना है।" * 30,
    "emoji": lambda: "😀👩‍👩‍👧‍👧🇩🇪🤷🏽‍♀️" * 60,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_tokenizer_makes_more_of_a_text(family: str, kept_tokenizers: Path) -> None:
    tokenizer = tokenizer_of(family, kept_tokenizers)
    for name, text in TEXTS.items():
        counted = len(tokenizer(text(), add_special_tokens=False)["input_ids"])
        # SentencePiece puts a blank before the first word: one more, of those allowed around a prompt.
        assert counted <= token_bound(text()) + 1, name


def test_english_is_not_taken_for_many_times_its_length() -> None:
    text = SAMPLE.read_text()[:30_000]
    assert token_bound(text) < 0.85 * len(text)  # in truth a token has 3 to 3.6 characters here


@given(st.text(), st.text())
def test_a_text_is_never_longer_than_its_bytes_and_grows(text: str, more: str) -> None:
    assert token_bound(text) <= len(text.encode("utf-8", "surrogatepass"))
    assert token_bound(text + "\n" + more) >= token_bound(text)
