"""What may not go out is found in every text of a row, masked, and counted; ordinary chat is left alone."""

from __future__ import annotations

import base64
import io
import json
import random
import string
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Request
from curate.engines.layout import Chat
from curate.engines.personal_data import KINDS as PERSONAL
from curate.engines.redaction import redact_request, redactor
from curate.errors import UsageError
from curate.publishing.row_cleaning import RowCleaner
from curate.publishing.scan import Detector, Findings, check_allowed, mask, scan_files, texts

LETTERS = string.ascii_letters + string.digits
RANDOM = random.Random(7)


def some(length: int, alphabet: str = LETTERS) -> str:
    return "".join(RANDOM.choice(alphabet) for _ in range(length))


def secrets() -> dict[str, str]:
    """Made up, each in the form of its provider."""
    upper, lower_hex = string.ascii_uppercase + "234567", "0123456789abcdef"
    key_bytes = bytes(RANDOM.randrange(256) for _ in range(64))
    pem = "\n".join(some(64) for _ in range(12))
    return {
        "openai": f"sk-proj-{some(74)}T3BlbkFJ{some(74)}",
        "anthropic": f"sk-ant-api03-{some(93)}AA",
        "hugging face": f"hf_{some(34, string.ascii_letters)}",
        "aws": f"AKIA{some(16, upper)}",
        "github": f"ghp_{some(36)}",
        "gitlab": f"glpat-{some(20)}",
        "slack": f"xoxb-{some(12, '123456789')}-{some(12, '123456789')}-{some(24)}",
        "stripe": f"sk_live_{some(24)}",
        "google": f"AIza{some(35)}",
        "npm": f"npm_{some(36)}",
        "sendgrid": f"SG.{some(22)}.{some(43)}",
        "telegram": f"{some(10, '123456789')}:AA{some(33)}",
        "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{pem}\n-----END RSA PRIVATE KEY-----",
        "database": f"postgres://admin:{some(16)}@db.acme-internal.net:5432/prod",
        "azure": f"AccountKey={base64.b64encode(key_bytes).decode()}",
        "by its name": f'api_key: "{some(40, lower_hex)}"',
    }


SECRETS = secrets()


@cache
def shared_detector() -> Detector:
    return Detector()


@pytest.fixture
def detector() -> Detector:
    return shared_detector()


def kinds(detector: Detector, text: str) -> Counter[str]:
    return Counter(match.kind for match in detector.find(text))


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_in_prose_is_found(detector: Detector, secret: str) -> None:
    found = kinds(detector, f"Sure, here is mine:\n{secret}\nand it still fails for me.")
    assert found["secret"] >= 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Write to ada.l+shop@mail.kuehne-nagel.co.uk today", "email"),
        ("mailto:o'neil@dublin.ie", "email"),
        ("call +44 20 7946 0958", "phone"),
        ("call +49 (30) 901820", "phone"),
        ("(212) 736-5000 is ours", "phone"),
        ("4111 1111 1111 1111 until May", "card"),
        ("5500-0055-5555-5559", "card"),
        ("Amex 378282246310005.", "card"),
        ("3782 822463 10005", "card"),
    ],
)
def test_personal_data_is_found_once(detector: Detector, text: str, kind: str) -> None:
    assert kinds(detector, text) == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "alice@example.com and bob@shop.example belong to nobody",
        "that is user@localhost, and @mentions, and 3 @ 5 EUR",
        "order 1234567890123456 and 4111111111111112",  # no issuer, wrong check digit
        "id 7f3e4111-1111-4111-8111-111111111111",
        "on 2024-05-12 at 10:30:45 we sold 1,234,567.89 of 12 345 678",
        "tracking 9400110200881234567890, room 415 555, 555-1234",
        "version 10.0.19041.1, ISBN 978-3-16-148410-0",
        "x = 3.14159265358979 and 2718281828459045235",
        "The password is wrong, and my API key does not work.",
        "password = 'your_password_here'",
        "A" * 400,
        "abcdefghijklmnopqrstuvwxyz0123456789",
    ],
)
def test_ordinary_text_is_left_alone(detector: Detector, text: str) -> None:
    assert kinds(detector, text) == {}


def test_regions_say_whose_national_numbers_are_known(detector: Detector) -> None:
    text = "Ring 020 7946 0958"
    assert kinds(detector, text) == {"phone": 1}
    assert kinds(Detector(["US"]), text) == {}
    assert kinds(Detector(["ES"]), "Ring 612 34 56 78") == {"phone": 1}
    with pytest.raises(UsageError, match="no such region"):
        Detector(["ZZ"])


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "+44 20 7946 0958"}]},
        {"messages": [json.dumps({"role": "user", "content": "a\n+44 20 7946 0958"})]},
        {"tools": json.dumps([{"function": {"description": "ask +44 20 7946 0958"}}])},
        {"messages": [json.dumps({"tool_calls": [{"arguments": {"to": "+44 20 7946 0958"}}]})]},
        {"turns": [{"turn": 1, "issues": ["gave +44 20 7946 0958 away"]}]},
        {"lineage_file": "+44 20 7946 0958"},
    ],
)
def test_every_text_of_a_row_is_read(detector: Detector, row: dict[str, Any]) -> None:
    _, found = detector.find_in_row(row)
    assert {match.kind for match in found} == {"phone"}


def test_a_number_can_be_a_card_and_a_key_can_name_a_secret(detector: Detector) -> None:
    _, found = detector.find_in_row({"call": json.dumps({"card": 4111111111111111})})
    assert [match.kind for match in found] == ["card"]
    _, found = detector.find_in_row({"call": json.dumps({"api_key": some(40, "0123456789abcdef")})})
    assert [match.kind for match in found] == ["secret"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(max_value=10**9) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_texts_give_every_text_of_a_value(value: Any) -> None:
    def all_texts(item: Any) -> list[str]:
        if isinstance(item, str):
            return [item] if item else []
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        return [text for part in inner for text in all_texts(part)]

    given_out = list(texts(value))
    for text in all_texts(value):
        assert any(out == text or out.endswith(f": {text}") for out in given_out)


@given(st.text(min_size=8))
def test_text_with_anything_in_it_can_be_scanned(text: str) -> None:
    list(shared_detector().find(text))


def test_a_lone_surrogate_does_not_stop_the_scan(detector: Detector) -> None:
    assert kinds(detector, "\ud800 call +44 20 7946 0958") == {"phone": 1}


CHAT = {
    "messages": [
        {"role": "user", "content": "My name is Mei Davis, and Deborah wrote to me."},
        {"role": "assistant", "content": "Dear Mei Davis, no, Mei: Mei-Ling did, Davis."},
        {"role": "tool", "name": "Search", "content": '{"guest_name": "Ann Lee"}'},
    ],
    "tools": json.dumps([{"name": "Search", "parameters": {}}, {"name": "Davis", "arguments": {}}]),
    "metrics": [{"name": "Safety", "failure_code": None}],
}


def test_names_are_looked_for_on_request_in_all_texts_of_a_row(detector: Detector) -> None:
    assert detector.find_in_row(CHAT)[1] == []
    named = Detector(names=True)
    _, found = named.find_in_row(CHAT)
    assert {match.text for match in found} == {"Mei Davis", "Mei", "Davis", "Ann Lee"}
    assert {match.name for match in found} == {"name"}
    assert mask("name", "Mei Davis") == "M… D…"
    assert named.without_names().find_in_row(CHAT)[1] == []
    check_allowed(["name"])


def test_a_redacted_name_is_gone_from_the_whole_row_and_no_other_word() -> None:
    import pyarrow as pa

    named = Detector(names=True)
    cleaner = RowCleaner(named, redact=("name",))
    rows = [CHAT, {**CHAT, "messages": [{"role": "user", "content": "Mei is a month."}] * 3}]
    rows[1] = rows[1] | {"tools": "[]"}
    clean = cleaner.clean("sft", pa.Table.from_pylist(rows)).to_pylist()
    first, second, third = (message["content"] for message in clean[0]["messages"])
    assert first == "My name is [name], and Deborah wrote to me."
    assert second == "Dear [name], no, [name]: [name]-Ling did, [name]."
    assert json.loads(third) == {"guest_name": "[name]"}
    assert clean[0]["messages"][2]["name"] == "Search"
    assert clean[0]["metrics"] == CHAT["metrics"]
    assert clean[1]["messages"][0]["content"] == "Mei is a month."
    assert cleaner.redacted == {"name": 1}
    assert named.find_in_row({"messages": clean[0]["messages"]})[1] == []


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_findings_are_counted_masked_and_say_where(detector: Detector, tmp_path: Path) -> None:
    rows = [
        {"pair_id": "p0", "text": "nothing"},
        {"pair_id": "p1", "text": "ada@lovelace.org, ada@lovelace.org, bob@lovelace.org"},
        {"pair_id": "p2", "text": f"{SECRETS['github']} of ada@lovelace.org"},
    ]
    table = write_rows(tmp_path / "a.parquet", rows)
    card = tmp_path / "README.md"
    card.write_text("Ask ada@lovelace.org\n\nor nobody")
    out = io.BytesIO()
    files = {"dpo/a.parquet": table, "README.md": card}
    findings = scan_files(files, detector, out, row_ids=("pair_id",))
    assert findings.counts == {"email": 4, "secret:betterleaks.github-pat": 1}
    assert findings.rows_by_name["email"] == 3
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(lines) == 5
    assert [(line["file"], line["row"], line["row_id"]) for line in lines][:3] == [
        ("dpo/a.parquet", 1, "p1"),
        ("dpo/a.parquet", 1, "p1"),
        ("dpo/a.parquet", 2, "p2"),
    ]
    said = out.getvalue().decode()
    assert "lovelace" not in said
    assert SECRETS["github"][6:20] not in said
    assert lines[0]["masked"] == "a…@l….org"


@pytest.mark.parametrize(
    "address",
    ["ada@lovelace.org", "ada%40lovelace.org", "ada＠lovelace．org", "ada [at] lovelace [dot] org",
     "ada AT lovelace DOT org", "ada(@)lovelace.org"],
)  # fmt: skip
def test_an_address_is_masked_and_is_nobodys_however_it_is_spelled(
    detector: Detector, address: str
) -> None:
    (match,) = detector.find(f"Ask {address} today")
    assert (match.kind, match.text) == ("email", address)
    assert mask("email", address) == "a…@l….org"
    assert kinds(detector, f"Ask {address.replace('lovelace', 'example')} today") == {}


@given(st.from_regex(r"[0-9 -]{8,19}[0-9]{2}", fullmatch=True))
def test_a_masked_number_keeps_two_digits(number: str) -> None:
    assert sum(sign.isdigit() for sign in mask("phone", number)) <= 2


def test_each_kind_is_allowed_by_its_name() -> None:
    findings = Findings(counts=Counter({"email": 1, "secret:a": 1, "secret:b": 2, "phone": 3}))
    assert findings.not_allowed(()) == ["email", "phone", "secret:a", "secret:b"]
    assert findings.not_allowed(["email", "secret:a"]) == ["phone", "secret:b"]
    assert findings.not_allowed(["email", "phone", "secret"]) == []
    check_allowed(["email", "secret", "secret:betterleaks.jwt"])
    for name in ("mail", "email:x", ""):
        with pytest.raises(UsageError, match="no such kind"):
            check_allowed([name])


@pytest.mark.parametrize("secret", ["jo.doe@posteo.de", "+44 20 7946 0958", "4111 1111 1111 1111"])
@pytest.mark.parametrize(
    "place",
    [
        lambda secret: {"content": f"Here: {secret}."},
        lambda secret: {"arguments": {secret: {"deep": True}}},
        lambda secret: {"arguments": {secret: None}},
        lambda secret: {"arguments": {secret: 3}},
        lambda secret: {"arguments": {secret: ""}},
        lambda secret: {"content": f' {{"to": ["{secret}"]}}'},
        lambda secret: {"content": json.dumps({"to": {secret: []}})},
        lambda secret: {"content": json.dumps({"to": secret}).replace("@", "\\u0040")},
    ],
)
def test_the_scan_finds_what_redaction_takes_out(place: Any, secret: str) -> None:
    row = place(secret)
    content = row["content"] if "content" in row else json.dumps(row["arguments"])
    redact = redactor(PERSONAL)
    assert redact is not None
    chat = Chat(({"role": "user", "content": content},))
    request = redact_request(Request(chat, max_tokens=10), redact)
    taken_out = {kind for kind in PERSONAL if f"[{kind}]" in str(request.messages[0]["content"])}
    assert len(taken_out) == 1
    _, found = shared_detector().find_in_row(row)
    assert taken_out <= {match.kind for match in found}
