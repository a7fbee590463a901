"""What is found in a text, what is not, and at what cost."""

from __future__ import annotations

import itertools
import string
from typing import get_args

import pytest

from curate.engines.national_ids import passes_luhn
from curate.engines.personal_data import PersonalData, Span, find_personal_data
from tests.engines.personal_corpus import IDS
from tests.growth import growth

EVERY_KIND = get_args(PersonalData)
FOUND = {
    "email": [
        "ana.ruiz+shop@example.co.uk",
        "jürgen@müller.de",
        "o'neill@b.org",
        f"{'a' * 100}@b.org",
        r"ann\u0040b.org",
        "ann＠b.org",
        "ａｎｎ＠ｂ．ｏｒｇ",
        "ann%40b.org",
        "ann&#64;b.org",
        "ann(@)b.org",
        "ann [@] b [dot] org",
        "ann {at} b {dot} org",
        "ann [dot] lee (At) b.org",
        "ann AT shop DOT org",
        "ann DOT lee AT shop DOT co DOT uk",
    ],
    "card": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111\u00a01111\u00a01111\u00a01111",
        "4111\u202f1111\u202f1111\u202f1111",
        "4111.1111.1111.1111",
        "4111-1111-1111-1111",
        "4111\u20111111\u20111111\u20111111",
        "4111  1111  1111  1111",
        "4111 - 1111 - 1111 - 1111",
        r"4111\u00a01111\u00a01111\u00a01111",
        "3782 822463 10005",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ],
    "phone": [
        "0171-5512345",
        "020 7946 0958",
        "00491715512345",
        "+491715512345",
        "+49 (0)171 5512345",
        "+1 708-340-0190",
        "(030) 123 4567",
        "030/1234567",
        "708-340-0190",
        "(708) 340-0190",
        "1-800-340-0190",
        "06-12345678",
        "01 42 68 53 00",
        "+33 1 42 68 53 00",
        "612 345 678",
        "912\u00a0345\u00a0678",
        "91 234 56 78",
        "98765 43210",
        "98765-43210",
        "131 2345 6789",
        "333 1234567",
    ],
}
AROUND = [
    "{}",
    "So it is {}.",
    "It is {}, thanks",
    "nr:{};",
    "\t{}\n",
    r'{{"text": "a\t{}\n"}}',
    "order 55 of 2024-05-20, {}",
]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in FOUND for text in FOUND[kind]])
def test_it_is_found_whole_whatever_stands_around_it(kind: str, text: str, around: str) -> None:
    whole = around.format(text)
    found = find_personal_data(whole)
    assert [one.kind for one in found] == [kind]
    left = whole[: found[0].start] + whole[found[0].end :]
    assert sum(sign.isdigit() for sign in left) == sum(sign.isdigit() for sign in around.format(""))
    assert "@" not in left


@pytest.mark.parametrize(
    "after",
    [" 12/27", " 1227", " 12/27 123", "12/27".rjust(8), "  12 / 27", " 123", ", exp. 12/27"],
)
def test_an_expiry_date_does_not_hide_a_card(after: str) -> None:
    (found,) = find_personal_data("4111 1111 1111 1111" + after, ["card"])
    assert (found.start, found.end) == (0, 19)
    (found,) = find_personal_data("4111111111111111" + after, ["card"])
    assert (found.start, found.end) == (0, 16)


@pytest.mark.parametrize("after", ["cvv123", "CVC123", "cvv2123", "exp1227", "cid1234"])
def test_a_label_without_a_blank_does_not_hide_a_card(after: str) -> None:
    for card in ("4111 1111 1111 1111", "4111111111111111"):
        (found,) = find_personal_data(card + after)
        assert (found.start, found.end, found.kind) == (0, len(card), "card")
    assert find_personal_data("4111111111111111abc123, 4111111111111111cvvv123") == []


def test_a_number_before_a_card_does_not_hide_it() -> None:
    (found,) = find_personal_data("55 4111 1111 1111 1111")
    assert (found.start, found.kind) == (3, "card")


@pytest.mark.parametrize(
    "text",
    [
        "Order 4421-987 of 2024-05-20, 1,250.00 EUR, flight HAT136",
        "Order 1234567890123456 is no card",
        "order 01715512345",
        "2024-05-20 08:30:00, 2024-05-20T08:30:00.123456Z, 01.02.2024 12:30, 02/03/2024 1000 20240520083000",
        "550e8400-e29b-41d4-a716-446655440000 11111111-2222-3333-4444-555555555555",
        "0.4111111111111111 and 3.5 .516 7.5 .414 2.8 .725 5",
        "0.9235687435 1,029 2 13 18 4 0 2 4 6 8 10 12 14",
        "2 3 4 5 6 7 8 9 10 11 12 13",
        "821091117+4908374100427",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "192.168.0.1, 10.0.17.255, v01.02.03",
        "@app.route and a@b",
        "EUR 12 345 678.90, 1 000 000, 12-345-678",
        "612 345 678 EUR, 612 345 678€, $ 612 345 678, Rs. 612 345 678, 612 345 678,50, 612 345 678.5",
        "512 345 678 bytes, 612 345 678 people, 512 345 678 901, 12 512 345 678",
        "98765 43210 12345, 12345 98765 43210, 98765 / 43210, 98765.43210, 333-1234567, 612-345-678",
        "LOOK AT AMAZON DOT COM, met AT noon, at shop dot org, a AT b",
        "npm i %40angular/core.js, 50%40.5, a%40b, x (@) y, &#64;media.print",
    ],
)
def test_what_is_none_is_left_alone(text: str) -> None:
    assert find_personal_data(text) == []


def test_national_numbers_are_those_of_the_regions() -> None:
    assert [one.kind for one in find_personal_data("691 234 5678", regions=["GR"])] == ["phone"]
    assert find_personal_data("691 234 5678") == []
    assert find_personal_data("0171-5512345", regions=["US"]) == []
    with pytest.raises(ValueError, match="XX"):
        find_personal_data("0171-5512345", regions=["XX"])


@pytest.mark.parametrize(
    ("country", "text"), [(country, text) for country, texts in IDS.items() for text in texts]
)
def test_a_published_id_is_found_and_none_with_another_check_digit(country: str, text: str) -> None:
    (found,) = find_personal_data(f"It is {text}, please.", ["id"])
    assert text.endswith(f"It is {text}, please."[found.start : found.end])
    if country in ("US", "DK"):  # their numbers have no check digit
        return
    if country == "CN":
        other = text[:-1] + ("1" if text[-1] in "xX" else "X")
    else:
        at = max(place for place, sign in enumerate(text) if sign.isdigit())
        other = f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}"
    if country != "GB" or "NHS" in text:  # a National Insurance number has none
        assert find_personal_data(f"It is {other}, please.", ["id"]) == []


@pytest.mark.parametrize(
    "text",
    ["850730-033-28", "850730 033 28", "85-07-30-033.28", "85 07 30 033 28", "850730-033.28"],
)
def test_a_belgian_number_is_found_in_its_common_spellings(text: str) -> None:
    (found,) = find_personal_data(f"It is {text}.", ["id"])
    assert (found.start, found.end) == (6, 6 + len(text))
    for other in (f"{text[:-1]}9", f"8513{text[4:]}"):
        assert find_personal_data(f"It is {other}.", ["id"]) == []


def test_ids_and_names_are_looked_for_where_they_are_asked_for() -> None:
    text = "My name is Mei Davis, 123-45-6789."
    assert find_personal_data(text) == []
    assert [one.kind for one in find_personal_data(text, ["id", "name"])] == ["name", "id"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Hi, my name is Mei Davis. It is Mei, really.", ["Mei Davis", "Mei"]),
        ("Dear Mr. van der Berg, thanks", ["Berg"]),
        ("Ich heiße Jürgen Müller-Lüdenscheidt und warte", ["Jürgen Müller-Lüdenscheidt"]),
        ('{"first_name": "Ivan", "tool_name": "search"}', ["Ivan"]),
        ("Best regards,\nAna Ruiz", ["Ana Ruiz"]),
        ("My name is Mei. Ask for me. Ask J. Lee.", ["Mei"]),
        ("My name is J. Lee, Lee", ["Lee", "Lee"]),
        ("I am Dr. Ann Lee. Thanks", ["Ann Lee"]),
        ("Dear Customer, the name is required. I am sorry. Miss it not.", []),
        ("The file name: report.txt, host name = db", []),
    ],
)
def test_a_name_is_found_where_the_text_says_that_it_is_one(text: str, names: list[str]) -> None:
    assert [text[one.start : one.end] for one in find_personal_data(text, ["name"])] == names


def test_a_name_of_several_parts_is_found_whole_and_in_other_forms() -> None:
    text = "Mr. Jean-Luc Picard writes. Jean-Luc's ship, Jean's, O'Picard, Picards, Jean-Luc van Picard-Luc"
    found = [text[one.start : one.end] for one in find_personal_data(text, ["name"])]
    assert found == ["Jean-Luc Picard", "Jean-Luc", "Picard", "Jean-Luc van Picard"]
    assert find_personal_data("My name is Dr. Ann, the Dr. said", ["name"]) == [(15, 18, "name")]


def test_many_names_cost_no_more_than_few() -> None:
    """Each word of a text is looked up once, not held against each name that the text marks."""
    letters = (string.ascii_lowercase,) * 5
    names = [
        "".join(name).capitalize() for name in itertools.islice(itertools.product(*letters), 4_000)
    ]

    def search(count: int) -> list[Span]:
        marked = "".join(f"name: {name}\n" for name in names[:count])
        return find_personal_data(marked + "Aabb " * 20_000, ["name"])

    assert len(search(4_000)) == 4_000
    assert growth(search, 500) < 5  # 8 where each is held against each


def test_the_check_digit() -> None:
    assert passes_luhn("4111111111111111")
    assert not passes_luhn("4111111111111112")


@pytest.mark.parametrize(
    "worst",
    [
        "0123456789abcdef",
        "e",
        "1",
        "4 ",
        "2 ",
        "01 ",
        "0171-5512345 ",
        "4111 1111 1111 1111 ",
        "+49 ",
        "a@",
        "@a.",
        "a@a.",
        "a.",
        "(",
        " ",
        ". ",
        "2024-05-20 ",
        "11111111-2222-3333-4444-",
        r"\t",
        r"\u0040",
        "DE89 ",
        "My name is ",
        "Ann van der ",
        "a [at] ",
        "a AT ",
        "a AT b DOT ",
        " DOT a AT b DOT org",
        "ann [dot] ",
        "%40",
        "%40a.",
        "612 345 678 ",
        "98765 43210 ",
        "612 345 678 / ",
        "A",
    ],
)
def test_any_text_is_searched_in_linear_time(worst: str) -> None:
    assert (
        growth(lambda size: find_personal_data(worst * (size // len(worst)), EVERY_KIND), 8_000)
        < 30
    )
