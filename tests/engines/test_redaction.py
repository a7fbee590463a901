"""What is taken out before a hosted model sees it, and what is not: read where a server receives it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Request
from curate.engines.client import Accounting, Client
from curate.engines.config import OpenAIConfig
from curate.engines.layout import Chat, Trunk
from curate.engines.open import open_engine
from curate.engines.redaction import redact_request, redactor
from curate.recipe import parse_recipe
from curate.run.pipeline import run_recipe
from tests.engines.personal_corpus import ALL as CORPUS_KINDS
from tests.engines.personal_corpus import cases, hard_cases, is_found, look_alikes
from tests.live import live_server
from tests.servers import Body, answer_by_hash

ALL = ("email", "phone", "card")
SECRETS = {
    f"{name}{index}": value
    for name, values in {
        "email": ["ann{}@shop.org"],
        "card": ["4111 1111 1111 1111 12/27", "5500\u00a00000\u00a00000\u00a00004"],
        "phone": ["0171-5512345", "020 7946 0958", "00491715512345", "708-340-0190"],
    }.items()
    for index, value in enumerate(values)
}
LEAKS = ("@shop", "4111", "5500", "5512345", "7946", "340-0190")


def leaks(body: Body) -> list[str]:
    told = json.dumps(body, ensure_ascii=False)
    return [leak for leak in LEAKS if leak in told]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to ana.ruiz+shop@example.co.uk, please.", "Write to [email], please."),
        ("Call +1 708-340-0190 or (030) 123 4567.", "Call [phone] or [phone]."),
        ("My phone is 708-340-0190.", "My phone is [phone]."),
        ("Card 4111 1111 1111 1111, thanks", "Card [card], thanks"),
        ("Card 4111 1111 1111 1111 12/27", "Card [card] 12/27"),
        ("Order 4421-987 of 2024-05-20, 1,250.00 EUR, flight HAT136", None),
        ("Order 1234567890123456 is no card", None),
    ],
)
def test_personal_data_is_replaced_by_its_kind(text: str, expected: str | None) -> None:
    redact = redactor(ALL)
    assert redact is not None
    assert redact(text) == (expected or text)


def test_only_the_kinds_asked_for() -> None:
    redact = redactor(("email",))
    assert redact is not None
    assert redact("a@b.org 708-340-0190") == "[email] 708-340-0190"
    assert redactor(()) is None


@given(st.text(alphabet=st.sampled_from("0123456789 +-.()@ab4[]\\t\u00a0"), max_size=60))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redact = redactor(ALL)
    assert redact is not None
    assert redact(redact(text)) == redact(text)


async def test_of_what_people_write_in_many_countries_a_server_receives_next_to_nothing() -> None:
    """The figures are those of docs/reliability.md: `python -m tests.engines.personal_corpus`."""
    made, alike = [*cases(), *hard_cases()], [*look_alikes()]
    lines = [*(case.sentence.format(case.text) for case in made), *alike]
    with live_server() as server:
        config = OpenAIConfig(model="fake-judge", base_url=server.base_url)
        engine = await open_engine(config)
        before = len(server.requests)
        try:
            ask = Client(engine, None, accounting=Accounting(), redact=redactor(CORPUS_KINDS))
            await ask([Request(Trunk("\n".join(lines)), max_tokens=1)])
        finally:
            await engine.close()
        (body,) = server.requests[before:]
    received = body["messages"][0]["content"].split("\n")
    assert len(received) == len(lines)
    found = Counter(
        case.kind if case.country != "hard" else "hard"
        for case, line in zip(made, received, strict=False)
        if is_found(case, line)
    )
    assert found == {"email": 125, "card": 125, "phone": 119, "id": 125, "hard": 32}
    assert received[len(made) :] == alike


def every_string() -> Request:
    """A request with personal data in each of its strings."""
    phone, card, email = "0171-5512345", "4111 1111 1111 1111", "ann@shop.org"
    arguments = {"to": f"a\t{phone}", "card": 4111111111111111, email: [{"deep": f"{card} 12/27"}]}
    call = {
        "id": f"call-{phone}",
        "type": "function",
        "function": {"name": f"mail {email}", "arguments": json.dumps(arguments)},
    }
    parameters = {
        "type": "object",
        "description": f"of {email}",
        "properties": {
            phone: {"type": "string", "enum": [phone, card], "default": email},
            "n": {"type": "integer", "default": 4111111111111111},
        },
    }
    function = {"name": f"mail {email}", "description": f"rings {phone}", "parameters": parameters}
    return Request(
        Chat(
            (
                {"role": "system", "content": f"You serve {email}."},
                {
                    "role": "user",
                    "name": email,
                    "content": [{"type": "text", "text": f"I am {phone}"}],
                },
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {
                    "role": "tool",
                    "name": f"mail {email}",
                    "tool_call_id": f"call-{phone}",
                    "content": json.dumps({"x": f"a\t{phone}", "y": "ann@shop.org"}).replace(
                        "@", "\\u0040"
                    ),
                },
            )
        ),
        max_tokens=1,
        prefill=f"Dear {email}",
        schema={"type": "object", "properties": {"a": {"enum": [phone]}}},
        tools=({"type": "function", "function": function},),
    )


async def test_a_server_receives_no_personal_data_in_any_string() -> None:
    with live_server() as server:
        config = OpenAIConfig(model="fake-judge", base_url=server.base_url)
        engine = await open_engine(config)
        before = len(server.requests)
        try:
            ask = Client(engine, None, accounting=Accounting(), redact=redactor(ALL))
            await ask([every_string()])
        finally:
            await engine.close()
        (body,) = server.requests[before:]
    assert leaks(body) == []
    assert "4111111111111111" not in json.dumps(body)
    assert "ann" not in json.dumps(body)
    call = body["messages"][2]["tool_calls"][0]
    assert call["id"] == body["messages"][3]["tool_call_id"] == "call_1"
    assert call["function"]["name"] == body["tools"][0]["function"]["name"] == "mailemail"
    assert json.loads(call["function"]["arguments"]) == {
        "to": "a\t[phone]",
        "card": "[card]",
        "[email]": [{"deep": "[card] 12/27"}],
    }
    assert json.loads(body["messages"][3]["content"]) == {"x": "a\t[phone]", "y": "[email]"}


def test_a_trunk_is_redacted_once_for_all_its_questions() -> None:
    asked: list[str] = []

    def redact(text: str) -> str:
        asked.append(text)
        return text.replace("Ann", "[name]")

    trunk = Trunk("Ann says hi.\n", 2)
    for question in ("Is Ann kind?", "Is she polite?"):
        request = redact_request(Request(trunk, question, max_tokens=1), redact)
        assert request.trunk == Trunk("[name] says hi.\n", 2)
        assert request.question == question.replace("Ann", "[name]")
    assert asked.count(trunk.text) == 1


def test_a_request_without_personal_data_stays_as_it_is() -> None:
    redact = redactor(ALL)
    assert redact is not None
    arguments = '{ "n":1.50,  "when": "2024-05-20",  "é": "\\u00e9" }'
    call = {"id": "call_8f", "type": "function", "function": {"name": "f", "arguments": arguments}}
    request = Request(
        Chat(
            (
                {"role": "user", "content": '{"a":  1}'},
                {"role": "assistant", "content": None, "tool_calls": [call]},
            )
        ),
        max_tokens=1,
        tools=({"type": "function", "function": {"name": "f", "parameters": {"default": 3}}},),
        schema={"type": "object"},
    )
    assert redact_request(request, redact) == request


def test_a_run_sends_no_personal_data_of_a_dialogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenAIConfig, "is_hosted", True)
    told = " ; ".join(SECRETS.values()).format(1)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "look_up", "arguments": json.dumps({"text": f"a\t{told}"})},
    }
    tool: dict[str, Any] = {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": told,
            "parameters": {"type": "object", "properties": {"text": {"enum": [told]}}},
        },
    }
    row = {
        "id": "chat-1",
        "scenario": f"scenario {told}",
        "evidence": [f"evidence {told}"],
        "expected_outcomes": [f"outcome {told}"],
        "emphasis": f"emphasis {told}",
        "metadata": {"about": told},
        "tools": [tool],
        "messages": [
            {"role": "system", "content": f"role {told}"},
            {"role": "user", "name": "ann1@shop.org", "content": f"user {told}"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"found": told})},
            {"role": "assistant", "content": f"assistant {told}"},
            {"role": "user", "content": f"more {told}"},
            {"role": "assistant", "content": f"again {told}"},
        ],
    }
    data = tmp_path / "chats.jsonl"
    data.write_text(json.dumps(row) + "\n")

    def answer(body: Body) -> Body | str:
        said = answer_by_hash(body)
        return f"{said} {told}" if isinstance(said, str) and "tools" in body else said

    with live_server(answer=answer) as server:
        model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        recipe = {
            "name": "n",
            "source": {"path": str(data)},
            "models": {"judge": model, "policy": model},
            "redact": list(ALL),
            "judge": {"mode": "json"},
            "fork": {"where": "true", "resamples": 2},
            "max_unscored": 1.0,
        }
        run_recipe(parse_recipe(recipe), out=tmp_path / "run")
        asked = [body for body in server.requests if "user " in json.dumps(body["messages"])]
    assert len(asked) > 3
    assert any("[phone]" in json.dumps(body) for body in asked)
    assert [leaks(body) for body in asked if leaks(body)] == []
    kept = (tmp_path / "run/dialogues.jsonl").read_text()
    assert "020 7946 0958" in kept, "records keep the text"
