"""A thought before a label: what is asked, what is read of the reply, where it stands in the prompt."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curate.engines.base import Completion, EngineIdentity, Fault, Request
from curate.engines.chat_completions import read_chat
from curate.engines.layout import Trunk
from curate.engines.replies import completion_from_json, completion_to_json
from curate.engines.thinking import Thought, ask_with_thoughts, read_thought

READ = Request(
    Trunk("Rubric.\n<dialogue>\n[1.user]\nno\n</dialogue>\n"),
    "Good?\n",
    max_tokens=1,
    prefill="(",
    labels=("1", "2"),
    purpose="judge.turns",
    turns=(3,),
    sample=2,
)
CUT = "length"


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        (Completion(text="<think>\nSo so.\n</think>\n\n2"), Thought("So so.", False)),
        (Completion(text="So so.\n</think>\n\n2"), Thought("So so.", False)),
        (Completion(text="<think>\nSo so, bec", finish=CUT), Thought("So so, bec", True)),
        (Completion(text="So so, bec", finish=CUT), Thought("So so, bec", True)),
        (Completion(text="<think>\nSo\n</think>\n\nIt is", finish=CUT), Thought("So", False)),
        (Completion(text="2", thought="\nSo so.\n"), Thought("So so.", False)),
        (Completion(text="", thought="So so, bec", finish=CUT), Thought("So so, bec", True)),
        (Completion(text="Two."), Thought("Two.", False)),
        (Completion(text=""), Thought("", False)),
    ],
)
def test_what_was_thought_is_read_in_every_form(reply: Any, thought: Thought) -> None:
    assert read_thought(reply) == thought


class Asked:
    """Answers by purpose and records the calls."""

    def __init__(self, *thoughts: Completion) -> None:
        self.thoughts = thoughts
        self.calls: list[list[Request]] = []

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        self.calls.append([*requests])
        if requests[0].purpose.endswith(".thought"):
            return [*self.thoughts]
        return [Completion(text="1", first_token=(("1", -0.1),)) for _ in requests]


async def test_a_label_is_read_behind_the_thought_about_its_question() -> None:
    ask = Asked(Completion(text="<think>A.</think>"), Completion(text="<think>B", finish=CUT))
    other = replace(READ, question="Bad?\n")
    replies, counts = await ask_with_thoughts(ask, [READ, other], 50)
    assert counts == {"thoughts_cut": 1, "thoughts_missing": 0}
    assert [reply.text for reply in replies] == ["1", "1"]
    thinking, reading = ask.calls
    about = replace(READ, labels=(), prefill="", max_tokens=50, purpose="judge.thought")
    assert thinking == [about, replace(about, question="Bad?\n")]
    assert reading == [replace(READ, thought="A."), replace(other, thought="B")]


@pytest.mark.parametrize("said", ["2", "(2)", " 2.\n", "<think>\n</think>\n\n2"])
async def test_a_model_that_answers_at_once_is_read_plainly_and_counted(said: str) -> None:
    ask = Asked(Completion(text=said))
    _, counts = await ask_with_thoughts(ask, [READ], 50)
    assert ask.calls[1] == [READ]
    assert counts == {"thoughts_cut": 0, "thoughts_missing": 1}


async def test_a_fault_while_thinking_is_the_answer_and_costs_no_other() -> None:
    fault = Completion(finish="error", fault=Fault("context_overflow", "too long"))
    ask = Asked(fault, Completion(text="<think>B</think>"))
    replies, _ = await ask_with_thoughts(ask, [READ, replace(READ, question="Bad?\n")], 50)
    assert replies[0] == fault
    assert replies[1].text == "1"
    assert [len(call) for call in ask.calls] == [2, 1]


async def test_a_reply_in_words_has_room_for_a_thought() -> None:
    ask = Asked()
    words = replace(READ, labels=(), max_tokens=100)
    await ask_with_thoughts(ask, [words], 50)
    assert ask.calls == [[replace(words, max_tokens=150)]]


def test_a_thought_is_part_of_the_key_and_none_leaves_the_key_as_it_was() -> None:
    identity = EngineIdentity("x", "m")
    keys = {replace(READ, thought=thought).key(identity) for thought in ("", "A.", "B.")}
    assert len(keys) == 3
    assert READ.key(identity) == "48788a52c3d2adc6763bc63e3b3c21c5"


def test_what_a_server_parsed_off_as_thinking_is_kept_with_the_reply() -> None:
    message = {"content": "4", "reasoning_content": "So so."}
    reply = {"choices": [{"message": message, "finish_reason": "stop"}]}
    completion = read_chat(reply, replace(READ, labels=()))
    assert (completion.text, completion.thought) == ("4", "So so.")
    assert completion_from_json(completion_to_json(completion)) == completion


transformers = pytest.importorskip("transformers", reason="needs the extra [transformers]")
pytest.importorskip("jinja2", reason="needs the extra [transformers]")

from curate.engines.tokens import PromptTokens  # noqa: E402
from tests.engines.families import PLAIN, small_tokenizer  # noqa: E402

OPENS = f"{PLAIN}{{% if add_generation_prompt %}}{{{{ '<think>\\n' }}}}{{% endif %}}"


def test_a_thought_stands_in_its_marks_and_is_closed() -> None:
    plain, opens = PromptTokens(small_tokenizer()), PromptTokens(small_tokenizer(OPENS))
    request = replace(READ, thought="yes <|end|> no")
    bare = plain.prompt_text(replace(READ, prefill="", labels=()))
    thought = "<think>\nyes < |end|> no\n</think>\n\n("
    assert plain.prompt_text(request) == bare + thought
    assert opens.prompt_text(request) == bare + thought
    for prompts in (plain, opens):
        text = prompts.prompt_text(request)
        whole = prompts.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert prompts.prompt_ids(request) == whole


def test_a_label_is_never_read_inside_a_thought_that_the_template_opened() -> None:
    plain, opens = PromptTokens(small_tokenizer()), PromptTokens(small_tokenizer(OPENS))
    assert (plain.opens_thought, opens.opens_thought) == (False, True)
    for forced in (READ, replace(READ, labels=(), schema={"type": "object"})):
        assert "<think>" not in plain.prompt_text(forced)
        start = "" if forced.schema else "("
        assert opens.prompt_text(forced).endswith(f"<think>\n\n</think>\n\n{start}")
    words = replace(READ, labels=(), prefill="")
    assert opens.prompt_text(words).endswith("<think>\n")
    assert opens.identity_detail != plain.identity_detail


def test_the_distribution_is_that_of_the_prompt_with_the_thought_written_out(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra [transformers]")
    pytest.importorskip("llguidance", reason="needs the extra [transformers]")
    from curate.engines.config import TransformersConfig
    from curate.engines.open import open_engine
    from tests.engines.test_transformers import save_tiny

    folder = save_tiny(tmp_path / "model", template=OPENS)

    async def ask() -> tuple[list[Completion], Counter[str]]:
        engine = await open_engine(TransformersConfig(model=str(folder)))
        other = replace(READ, question="yes or no?\n")
        found = await ask_with_thoughts(engine.complete, [READ, other], 12)
        await engine.close()
        return found

    replies, _ = asyncio.run(ask())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    for reply, question in zip(replies, ("Good?\n", "yes or no?\n"), strict=True):
        chat = [{"role": "user", "content": READ.trunk.text + question}]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            made = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
        thought = tokenizer.decode(made, skip_special_tokens=True).strip()
        assert thought
        text = f"{prompt}{thought}\n</think>\n\n("
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            expected = model(ids).logits[0, -1].float().log_softmax(-1)
        got = dict(reply.first_token)
        for label in ("1", "2"):
            [index] = tokenizer(label, add_special_tokens=False)["input_ids"]
            assert got[label] == pytest.approx(float(expected[index]), abs=1e-3)
