"""500 e-mail addresses, telephone numbers, cards and national ids as people write them in 22 countries, and 360 look-alikes.

`python -m tests.engines.personal_corpus` prints what is found of them. Numbers of telephones come from the numbering plans,
varied and spelled here; ids are published examples of their issuers, so that a check digit that is computed wrongly is seen.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from typing import NamedTuple

import phonenumbers
from phonenumbers import PhoneNumberFormat, PhoneNumberType

from curate.engines.personal_data import PersonalData, replace_personal_data

COUNTRIES = {
    "US": "en",
    "GB": "en",
    "DE": "de",
    "FR": "fr",
    "NL": "nl",
    "AU": "en",
    "IN": "en",
    "JP": "ja",
    "ES": "es",
    "IT": "it",
    "BE": "nl",
    "PL": "pl",
    "SE": "sv",
    "DK": "da",
    "NO": "da",
    "FI": "fi",
    "CH": "de",
    "BR": "pt",
    "CL": "es",
    "MX": "es",
    "CN": "zh",
    "CA": "en",
}
SENTENCES = {
    "en": ("You can reach me: {}, thanks", "It is {}.", "order 5512 of 2024-05-20, mine is {}"),
    "de": ("Das ist meine: {}, danke.", "Bitte an {} am 12.03.2024", "Ja, {}!"),
    "fr": ("Voici : {}, merci", "C'est {}.", "le 12/03/2024, {} svp"),
    "nl": ("Dit is het: {}, bedankt", "Het is {}."),
    "es": ("Es este: {}, gracias", "Mi dato es {}."),
    "it": ("Eccolo: {}, grazie", "È {}."),
    "pl": ("Oto: {}, dziękuję", "To {}."),
    "sv": ("Här är det: {}, tack", "Det är {}."),
    "da": ("Her er det: {}, tak", "Det er {}."),
    "fi": ("Tässä: {}, kiitos", "Se on {}."),
    "pt": ("É este: {}, obrigado", "Meu dado é {}."),
    "ja": ("こちらです: {} です", "{} です。"),
    "zh": ("这是我的: {} 谢谢", "是 {}。"),
}
NAMES = {
    "en": ("ann.lee", "o'neill", "j_smith", "mary-jane", "bob99"),
    "de": ("jürgen.müller", "anna.schmidt", "k.weiß"),
    "fr": ("rené.dupont", "marie-claire", "j.lefevre"),
    "es": ("jose.garcia", "maría.núñez", "lopez+shop"),
    "ja": ("tanaka.ken", "yuki_sato"),
    "zh": ("wang.wei", "li88"),
}
CARDS = (
    "4",
    "51",
    "55",
    "2221",
    "2720",
    "34",
    "37",
    "36",
    "6011",
    "65",
    "3530",
    "62",
    "6759",
    "2200",
)
IDS = {
    "US": ("078-05-1120", "SSN 219 09 9999", "social security number: 457555462"),
    "GB": ("AB123456C", "JG 10 37 59 A", "NHS number 943 476 5919", "NHS 4010232137"),
    "DE": ("86095742719", "47 036 892 816", "65929970489", "DE89 3704 0044 0532 0130 00"),
    "FR": ("2 69 05 49 588 157 80", "255081416802538", "FR14 2004 1010 0505 0001 3M02 606"),
    "NL": ("BSN 111222333", "burgerservicenummer: 1234.56.782", "NL91 ABNA 0417 1643 00"),
    "ES": ("12345678Z", "X-1234567-L", "54362315K", "ES91 2100 0418 4502 0005 1332"),
    "IT": ("RSSMRA85T10A562S", "MRT MTT 91D08 F205J", "IT60 X054 2811 1010 0000 0123 456"),
    "BE": ("85.07.30-033.28", "17073003384", "BE68 5390 0754 7034"),
    "PL": ("44051401359", "02070803628", "PL61 1090 1014 0000 0712 1981 2874"),
    "SE": ("811218-9876", "19811218-9876", "SE45 5000 0000 0583 9825 7466"),
    "DK": ("CPR 211062-5629", "cpr-nummer: 2110625629", "DK50 0040 0440 1162 43"),
    "NO": ("15108695088", "151086 95088", "NO93 8601 1117 947"),
    "FI": ("131052-308T", "131052A308T", "FI21 1234 5600 0007 85"),
    "CH": ("756.9217.0769.85", "7569217076985", "CH93 0076 2011 6238 5295 7"),
    "BR": ("529.982.247-25", "CPF 52998224725", "390.533.447-05"),
    "CL": ("12.531.909-2", "RUT 12531909-2", "9.868.503-0"),
    "MX": ("HEGG560427MVZRRL04", "BOXW310820HNERXN09"),
    "IN": ("2341 2341 2346", "Aadhaar 234123412346"),
    "CN": ("11010519491231002X", "53010219200508011x"),
    "CA": ("SIN 130 692 544", "social insurance number 130-692-544"),
}
HARD: tuple[tuple[PersonalData, str, str], ...] = (
    ("email", "ann [at] shop [dot] org", "it is {}"),
    ("email", "ann(at)shop.org", "it is {}, ok"),
    ("email", "ann@shop.museum", "<{}>"),
    ("email", "ann@mail.shop.co.uk", "<mailto:{}>"),
    ("email", '"ann"@shop.org', "{}"),
    ("email", "ann@münchen.de", "{}."),
    ("email", "ann＠shop.org", "{}です"),
    ("email", "ann%40shop.org", "https://shop.org/?to={}&lang=en"),
    ("email", "ann(@)shop.org", "it is {}, ok"),
    ("email", "ann [@] shop.org", "it is {}, ok"),
    ("email", "ann AT shop DOT org", "write to {} please"),
    ("email", "ann.lee [dot] b [at] shop [dot] org", "it is {}"),
    ("email", "ann&#64;shop.org", "<p>{}</p>"),
    ("email", "ann at shop dot org", "write to {} please"),
    ("email", "ann@192.168.10.12", "{}"),
    ("phone", "0171/5512345", "Tel. {}"),
    ("phone", "06.12.34.56.78", "{}."),
    ("phone", "+44(0)20 7946 0958", "{}"),
    ("phone", "+1-708-340-0190", "tel:{}"),
    ("phone", "708.340.0190", "{} ext. 12"),
    ("phone", "０９０-１２３４-５６７８", "{}"),
    ("phone", "612 345 678", "Mi móvil: {}, gracias"),
    ("phone", "91 234 56 78", "Llame al {}."),
    ("phone", "98765 43210", "my number is {}"),
    ("phone", "98765-43210", "{}"),
    ("phone", "131 2345 6789", "我的手机 {}"),
    ("phone", "333 1234567", "Il mio numero è {}."),
    ("phone", "40 61 70 60", "Ring {}"),
    ("phone", "five five five, 340-0190", "{}"),
    ("card", "4111 1111 1111 1111", "{} exp 12/27 cvv 123"),
    ("card", "4111 1111 1111 1111", "{}cvv123"),
    ("card", "4111111111111111", "{}CVC123"),
    ("card", "4111_1111_1111_1111", "{}"),
    ("card", "4111/1111/1111/1111", "{}"),
    ("id", "123-45-6789", "my number {}"),
    ("id", "DE 89 3704 0044 0532 0130 00", "{}"),
    ("id", "850730-033-28", "{}, merci"),
    ("id", "85 07 30 033 28", "Mijn nummer: {}"),
)
"""What people write to be clever, or programs do not expect; each told by itself."""


class Case(NamedTuple):
    """Something personal, the sentence it stands in with `{}` for it, and where it is written so."""

    kind: PersonalData
    country: str
    text: str
    sentence: str


def hard_cases() -> list[Case]:
    """Those of `HARD`, of no country."""
    return [Case(kind, "hard", text, sentence) for kind, text, sentence in HARD]


def cases(seed: int = 0) -> list[Case]:
    """125 of each kind; the hard ones are not among them."""
    draw = random.Random(seed)
    makers = {"email": _emails, "phone": _phones, "card": _cards, "id": _ids}
    made = []
    for kind, maker in makers.items():
        countries = [country for country in COUNTRIES if kind != "id" or country in IDS]
        for number in range(125):
            country = countries[number % len(countries)]
            sentence = draw.choice(SENTENCES[COUNTRIES[country]])
            made.append(
                Case(kind, country, maker(country, number // len(countries), draw), sentence)
            )  # type: ignore[arg-type]
    return made


def _emails(country: str, _: int, draw: random.Random) -> str:
    names = NAMES.get(COUNTRIES[country], NAMES["en"])
    domain = draw.choice(("mail", "post-office", "shop24", "web.shop", "info"))
    end = {"US": "com", "GB": "co.uk", "AU": "com.au", "JP": "co.jp", "BR": "com.br"}.get(country)
    address = f"{draw.choice(names)}{draw.choice(('', '', '.1990', '+news'))}@{domain}.{end or country.lower()}"
    return draw.choice(("{}", "{}", "<{}>", "mailto:{}")).format(address)


def _phones(country: str, number: int, draw: random.Random) -> str:
    kind = (PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE)[draw.randrange(2)]
    example = phonenumbers.example_number_for_type(country, kind)
    while True:
        digits = str(example.national_number)
        digits = digits[:-4] + "".join(draw.choices(string.digits, k=4))
        varied = phonenumbers.PhoneNumber(
            country_code=example.country_code,
            national_number=int(digits),
            italian_leading_zero=example.italian_leading_zero,
        )
        if phonenumbers.is_valid_number_for_region(varied, country):
            break
    forms = (PhoneNumberFormat.NATIONAL, PhoneNumberFormat.INTERNATIONAL, PhoneNumberFormat.E164)
    written: str = phonenumbers.format_number(varied, forms[number % 3])
    spelling = draw.randrange(5)
    if spelling == 0:
        written = written.replace(" ", "-")
    elif spelling == 1:
        written = written.replace(" ", ".")
    elif spelling == 2 and written.startswith("+"):
        written = "00" + written[1:]
    return written


def _cards(_: str, __: int, draw: random.Random) -> str:
    prefix = draw.choice(CARDS)
    length = {"34": 15, "37": 15, "36": 14}.get(prefix, 16)
    body = prefix + "".join(draw.choices(string.digits, k=length - len(prefix) - 1))
    # ISO/IEC 7812-1, annex B
    doubled = [int(digit) * (2 - at % 2) for at, digit in enumerate(reversed(body))]
    digits = body + str(-sum(value // 10 + value % 10 for value in doubled) % 10)
    parts = (4, 6, 5) if length == 15 else (4, 6, 4) if length == 14 else (4, 4, 4, 4)
    groups, at = [], 0
    for part in parts:
        groups.append(digits[at : at + part])
        at += part
    return draw.choice((" ", " ", "-", "", ".", "\u00a0")).join(groups)


def _ids(country: str, number: int, _: random.Random) -> str:
    return IDS[country][number % len(IDS[country])]


def look_alikes(seed: int = 0) -> Iterator[str]:
    """Sentences with numbers and signs that are nobody's data: 360 of 24 sorts."""
    draw = random.Random(seed)

    def digits(count: int) -> str:
        return str(draw.randrange(1, 10)) + "".join(draw.choices(string.digits, k=count - 1))

    for _ in range(15):
        day, month, year = draw.randrange(1, 29), draw.randrange(1, 13), draw.randrange(1990, 2030)
        yield f"order {digits(8)} and order #{digits(10)}"
        yield f"order number {digits(12)}, tracking {digits(14)}"
        yield f"invoice INV-{year}-{digits(6)}, ticket {digits(3)}-{digits(7)}"
        yield f"on {year}-{month:02d}-{day:02d} at {draw.randrange(24):02d}:{draw.randrange(60):02d}"
        yield f"between {day:02d}.{month:02d}.{year} and {day:02d}/{month:02d}/{year + 1}"
        yield f"version {draw.randrange(20)}.{draw.randrange(200)}.{digits(4)}, build {digits(9)}"
        yield f"server {'.'.join(str(draw.randrange(256)) for _ in range(4))}:8080"
        yield f"ISBN 978-3-{digits(2)}-{digits(6)}-{digits(1)}"
        yield f"EAN 40{digits(11)}, article {digits(3)}.{digits(3)}.{digits(2)}"
        yield f"a price of {digits(2)},{digits(3)}.{digits(2)} EUR or {digits(3)} {digits(3)} JPY"
        yield f"hash {''.join(draw.choices('0123456789abcdef', k=40))}"
        yield f"id {draw.getrandbits(128):032x}"[:20] + f"-{draw.getrandbits(48):012x}"
        yield f"at {draw.uniform(-90, 90):.7f}, {draw.uniform(-180, 180):.7f}"
        yield f"timestamp 17{digits(8)}, {digits(13)} ms"
        yield f"flight LH{digits(4)}, seat {digits(2)}A, booking {''.join(draw.choices(string.ascii_uppercase, k=6))}"
        yield f"tracking 1Z{digits(3)}AA1{digits(10)}, parcel RR{digits(9)}DE"
        yield f"they won {draw.randrange(7)}-{draw.randrange(7)} 6-4 7-5, page {digits(3)}-{digits(3)}"
        yield f"part {digits(4)}-{digits(4)}, SKU {digits(5)}-{digits(3)}, lot {digits(6)}"
        yield f"size {digits(4)} x {digits(4)}, {digits(7)} bytes, 1 of {digits(5)}"
        yield f"see §{day}.{month}.{digits(2)} and @app.route, user@host, a@b"
    for _ in range(15):
        three = [digits(3) for _ in range(5)]
        yield f"a total of {' '.join(three[:3])} EUR, {' '.join(three)} bytes, €{' '.join(three[:3])}, {' '.join(three[2:])}.50"
        yield f"column {' '.join(digits(5) for _ in range(3))}, lot {digits(5)}-{digits(5)}-{digits(2)}"
        yield f"npm i %40angular/core.js, {digits(2)}%40, LOOK AT AMAZON DOT COM, met AT NOON, a (@) b, a@b%40c"
        yield f"commit 4111111111111111abc{digits(3)}, batch {digits(6)}-{digits(3)}-00, {digits(6)} {digits(3)} 00"


def is_found(case: Case, line: str) -> bool:
    """Whether nothing of it is left in a line that its sentence became: no digit, no address."""
    around = sum(sign.isdigit() for sign in case.sentence)
    return (
        re.search(r"\[(?:email|phone|card|id)\]", line) is not None
        and case.text not in line
        and "@" not in line
        and sum(sign.isdigit() for sign in line) <= around
    )


ALL: tuple[PersonalData, ...] = ("email", "phone", "card", "id")


def main() -> None:
    """Print recall and false alarms, and each that is missed."""
    made = [*cases(), *hard_cases()]
    groups: dict[str, list[Case]] = {}
    for case in made:
        groups.setdefault("hard" if case.country == "hard" else case.kind, []).append(case)
    for name, group in groups.items():
        shown = [case.sentence.format(case.text) for case in group]
        missed = [
            text
            for case, text in zip(group, shown, strict=True)
            if not is_found(case, replace_personal_data(text, ALL))
        ]
        print(
            f"{name}: {len(group) - len(missed)} of {len(group)} found", *missed, sep="\n  missed: "
        )
    alike = [*look_alikes()]
    alarms = [text for text in alike if replace_personal_data(text, ALL) != text]
    print(f"look-alikes: {len(alarms)} false alarms in {len(alike)}", *alarms, sep="\n  ")


if __name__ == "__main__":
    main()
