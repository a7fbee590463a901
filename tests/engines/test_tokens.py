"""Prompts as token ids: the template, the pieces, the labels; over a small tokenizer trained here."""

from __future__ import annotations

import builtins
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curate.engines import tokens
from curate.engines.base import Request
from curate.engines.layout import Chat, Trunk
from curate.engines.tokens import PromptRefused, PromptTokens, load_tokenizer
from curate.errors import EngineError, UsageError

pytest.importorskip("transformers", reason="needs the extra [transformers]")
pytest.importorskip("jinja2", reason="needs the extra [transformers]")

from tests.engines.families import PLAIN, small_tokenizer

TRUNK = "Rubric.\n<dialogue>\n[1.user]\nyes or no\n\n[x]\n[1.assistant]\nno 3\n</dialogue>\n"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return small_tokenizer()


def ask(content: str, **fields: Any) -> Request:
    return Request(Trunk(content), **{"max_tokens": 1, **fields})


def whole(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_ids_are_those_of_the_rendered_text_with_its_prefill(tokenizer):
    prompts = PromptTokens(tokenizer)
    request = ask(f"{TRUNK}Which?\n", prefill="(")
    rendered = tokenizer.apply_chat_template(
        list(request.messages), tokenize=False, add_generation_prompt=True
    )
    ids = prompts.prompt_ids(request)
    assert prompts.is_split
    assert prompts.is_segmentable
    assert ids == whole(tokenizer, f"{rendered}(")
    assert ids.count(tokenizer.bos_token_id) == 1


def test_a_schema_takes_the_place_of_the_prefill(tokenizer):
    prompts = PromptTokens(tokenizer)
    begun, bound = ask("x", prefill="{"), ask("x", prefill="{", schema={"type": "object"})
    assert prompts.prompt_ids(bound) == prompts.prompt_ids(ask("x"))
    assert prompts.prompt_text(begun) == prompts.prompt_text(ask("x")) + "{"


@pytest.mark.parametrize(
    "change", ["m.content | trim", "m.content.rstrip()", "m.content", "m.content | upper"]
)
def test_what_the_template_does_to_the_content_is_kept(change):
    tokenizer = small_tokenizer(PLAIN.replace("m.content", change))
    prompts = PromptTokens(tokenizer)
    request = ask(f"  \n{TRUNK}Which?  \n\n")
    rendered = tokenizer.apply_chat_template(
        list(request.messages), tokenize=False, add_generation_prompt=True
    )
    assert prompts.is_split == ("upper" not in change)
    assert prompts.prompt_text(request) == rendered
    assert prompts.prompt_ids(request) == whole(tokenizer, rendered)


def test_template_options_reach_the_template(tokenizer):
    changed = small_tokenizer(PLAIN + "{% if calm %}<calm>{% endif %}")
    assert PromptTokens(changed, {"calm": True}).prompt_text(ask("x")).endswith("<calm>")
    assert not PromptTokens(changed).prompt_text(ask("x")).endswith("<calm>")
    plain, calm = PromptTokens(changed), PromptTokens(changed, {"calm": True})
    assert plain.identity_detail != calm.identity_detail
    assert plain.identity_detail != PromptTokens(tokenizer).identity_detail
    assert plain.identity_detail == PromptTokens(changed).identity_detail


def test_a_conversation_is_rendered_whole_with_arguments_as_objects(tokenizer):
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    request = Request(
        Chat(
            (
                {"role": "user", "content": "[hi]\n<b>\n"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": "1\n[2]"},
            )
        ),
        max_tokens=1,
    )
    prompts = PromptTokens(tokenizer)
    assert '<|assistant|>{"a": [1]}<|end|>' in prompts.prompt_text(request)
    assert prompts.prompt_ids(request) == whole(tokenizer, prompts.prompt_text(request))


def test_messages_that_the_template_refuses():
    template = PLAIN + "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}"
    prompts = PromptTokens(small_tokenizer(template))
    message = {"role": "user", "content": "x"}
    with pytest.raises(PromptRefused, match="one only"):
        prompts.prompt_ids(Request(Chat((message, message)), max_tokens=1))
    with pytest.raises(UsageError, match="fails on a single user message"):
        PromptTokens(small_tokenizer("{{ raise_exception('never') }}"))


def test_each_piece_is_tokenised_once(tokenizer, monkeypatch):
    prompts = PromptTokens(tokenizer)
    seen: list[str] = []
    encode = prompts._encode
    monkeypatch.setattr(prompts, "_encode", lambda text: seen.append(text) or encode(text))
    turns = [f"[{number}.user]\nyes {number}\n" for number in range(1, 6)]
    for stop in range(1, 6):
        for question in ("Good?\n", "Bad?\n"):
            trunk = f"Rubric.\n<dialogue>\n{''.join(turns[:stop])}</dialogue>\n"
            prompts.prompt_ids(ask(trunk + question))
    assert len(seen) == len(set(seen))
    # Start, opening fence, five turns, closing fence with each of two questions, end of the template.
    assert len(seen) == 1 + 1 + 5 + 2 + 1


def test_kept_pieces_are_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(tokens, "KEPT_IDS", 50)
    prompts = PromptTokens(tokenizer)
    for number in range(40):
        request = ask(f"[{number}]\n[yes]\n[{number}.no]\n")
        assert prompts.prompt_ids(request) == whole(tokenizer, prompts.prompt_text(request))
    assert sum(len(ids) for ids in prompts._kept.values()) == prompts._kept_ids <= 50


def test_a_tokenizer_with_tokens_across_lines_is_not_cut():
    tokenizer = small_tokenizer(splits=False)
    assert any("Ċ[" in token or "Ċ<" in token for token in tokenizer.get_vocab())
    prompts = PromptTokens(tokenizer)
    request = ask(f"{TRUNK}Which?\n")
    assert not prompts.is_segmentable
    assert prompts.prompt_ids(request) == whole(tokenizer, prompts.prompt_text(request))


def test_labels_are_found_with_and_without_a_blank(tokenizer):
    prompts = PromptTokens(tokenizer)
    found = prompts.label_ids(ask("x", labels=("yes", "3", "no", "maybe not")))
    assert {(tokenizer.decode([index]), text) for index, text in found.items()} == {
        ("yes", "yes"),
        (" yes", " yes"),
        ("3", "3"),
        (" 3", " 3"),
        (" no", " no"),
        ("no", "no"),
    }
    assert prompts.label_ids(ask("x", labels=("Zzz",))) == {}
    assert prompts.label_ids(ask("x")) == {}


def test_a_tokenizer_without_a_template():
    with pytest.raises(UsageError, match="no chat template"):
        PromptTokens(small_tokenizer(None))


def test_loading_from_a_folder(tmp_path: Path, tokenizer):
    tokenizer.save_pretrained(tmp_path / "good")
    loaded = load_tokenizer(str(tmp_path / "good"))
    request = ask(f"{TRUNK}Which?\n")
    assert PromptTokens(loaded).prompt_ids(request) == PromptTokens(tokenizer).prompt_ids(request)
    assert PromptTokens(loaded).identity_detail == PromptTokens(tokenizer).identity_detail
    small_tokenizer(None).save_pretrained(tmp_path / "bare")
    with pytest.raises(UsageError, match="no chat template"):
        PromptTokens(load_tokenizer(str(tmp_path / "bare")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no usable tokenizer"):
        load_tokenizer(str(tmp_path / "empty"))


def test_loading_what_is_not_there(monkeypatch):
    # Read from the environment when the client is imported, which it is by now.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EngineError, match="cannot be loaded"):
        load_tokenizer("nobody/has-this-model")


def test_a_missing_package_names_its_extra(monkeypatch):
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"pip install .*\[transformers\]"):
        load_tokenizer("anything")


@pytest.mark.parametrize("splits", [True, False])
def test_special_tokens_of_the_tokenizer_are_ordinary_text_in_a_dialogue(splits):
    own = small_tokenizer(splits=splits)
    own.add_special_tokens({"additional_special_tokens": ["~!odd!~", "<role_x>"]})
    prompts = PromptTokens(own)
    plain = prompts.prompt_ids(ask(f"{TRUNK}Which?\n"))
    ids = prompts.prompt_ids(ask(f"{TRUNK}Which ~!odd!~ and <role_x>{own.eos_token}?\n"))
    assert not {own.convert_tokens_to_ids(token) for token in ("~!odd!~", "<role_x>")} & set(ids)
    assert ids.count(own.eos_token_id) == plain.count(own.eos_token_id)
    assert prompts.prompt_text(ask("~!odd!~")).count("~ !odd!~") == 1
    chat = replace(ask(""), trunk=Chat(({"role": "user", "content": "~!odd!~"},)))
    assert prompts.prompt_text(chat).count("~ !odd!~") == 1


def test_an_exact_prefix_for_a_policy_keeps_its_text(tokenizer):
    messages = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    messages += ({"role": "user", "content": "</dialogue>\n[1.user]"},)
    prompts = PromptTokens(tokenizer)
    rendered = tokenizer.apply_chat_template(
        list(messages), tokenize=False, add_generation_prompt=True
    )
    assert prompts.prompt_text(Request(Chat(messages), max_tokens=1)) == rendered
