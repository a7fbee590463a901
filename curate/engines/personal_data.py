"""Personal data in a text: one finder for redaction and for the push scan.

- An **e-mail address** is searched from its `@` outwards: `email_addresses`.
- A **card number** has the prefix and length of an issuer and a right check digit, in any groups of digits that
  stand together, whatever blanks, dots or dashes are between them. What comes before or after it (a number, an
  expiry date) does not hide it.
- A **telephone number** is one that exists by the numbering plans of libphonenumber: with `+` or `00` and a country
  code in any spelling; without a country code in groups, of some countries: behind a leading 0 in any groups, else
  in the groups that the country writes. A bare run of digits without a country code may be an order number, a date
  is none.
- **National ids** and **names** are found where their kinds are named: `national_ids`, `personal_names`.

Each is linear in the text: groups of digits are found once, and only a bounded number of them is put together.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

from curate.engines.email_addresses import LINE_ESCAPE, find_emails
from curate.engines.national_ids import find_ids, passes_luhn
from curate.engines.personal_names import find_names

PersonalData = Literal["email", "phone", "card", "id", "name"]
KINDS: tuple[PersonalData, ...] = ("email", "phone", "card")
"""The kinds that are found unless others are named."""
REGIONS = (
    *("US", "GB", "DE", "FR", "NL", "AU", "IN", "JP", "ES", "IT", "BE"),
    *("PL", "SE", "DK", "NO", "FI", "CH", "BR", "CL", "MX", "CN", "CA"),
)
"""Countries whose telephone numbers are known without a country code, unless others are named."""


class Span(NamedTuple):
    """Start and end of personal data in a text, and its kind."""

    start: int
    end: int
    kind: PersonalData


def find_personal_data(
    text: str,
    kinds: Collection[PersonalData] = KINDS,
    regions: Sequence[str] = REGIONS,
    names: Collection[str] | None = None,
) -> list[Span]:
    """Find personal data, in the order of the text; nothing overlaps.

    Args:
        text: any text, also JSON that is not decoded.
        kinds: the kinds to find.
        regions: countries (ISO 3166 alpha-2) whose telephone numbers are known without a country code.
        names: words that are names, where names are looked for; None for those that the text itself marks.

    Raises:
        ValueError: there is no such region.
    """
    spans: list[Span] = []
    if "email" in kinds:
        spans += (Span(*place, "email") for place in find_emails(text))
    if "id" in kinds:
        spans += (Span(*place, "id") for place in find_ids(text))
    if "name" in kinds:
        spans += (Span(*place, "name") for place in find_names(text, names))
    if "card" in kinds or "phone" in kinds:
        chains = list(_without(_chains(text), _UUID.finditer(text)))
        # Cards before telephones: a card number holds what looks like one.
        cards = [card for chain in chains for card in _cards(text, chain)]
        spans += cards if "card" in kinds else []
        if "phone" in kinds and chains:
            card_starts = {card.start for card in cards}
            phones = _telephones(tuple(regions))
            for chain in _without(chains, _DATE.finditer(text)):
                spans += phones.find(text, chain, card_starts)
    return _without_overlaps(spans)


def replace_personal_data(text: str, kinds: Collection[PersonalData]) -> str:
    """Return the text with personal data replaced by its kind: `[phone]`."""
    parts, at = [], 0
    for start, end, kind in find_personal_data(text, kinds):
        parts += [text[at:start], f"[{kind}]"]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def _without_overlaps(spans: list[Span]) -> list[Span]:
    """Return the spans in order; of those that overlap the first, and of equal starts the longest."""
    order = {kind: at for at, kind in enumerate(("email", "id", "card", "phone", "name"))}
    separate: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end, order[span.kind])):
        if not separate or span.start >= separate[-1].end:
            separate.append(span)
    return separate


# ---- groups of digits ---------------------------------------------------------------------------

_BLANK = r"[^\S\r\n]|\\t|\\u00[aA]0|\\u20[02][0-9a-fA-F]"
_DASH = r"[-.\u00ad\u2010-\u2015\u2212\u00b7\u2022\uff0d]"
_GROUP = re.compile(r"\\u[0-9a-fA-F]{4}|(?P<digits>[0-9\uff10-\uff19]+)")
_CARD_GAP = re.compile(rf"(?:{_BLANK}|{_DASH}){{1,3}}")
_PHONE_GAP = re.compile(rf"(?:{_BLANK}|{_DASH}|[/()]){{1,4}}")
_LONGEST_GAP = 24  # of four blanks written as `\u00a0`
_WIDE = {0xFF10 + digit: str(digit) for digit in range(10)}


class _Group(NamedTuple):
    start: int
    end: int
    digits: str


def _chains(text: str) -> list[list[_Group]]:
    """Return chains of at least seven digits: groups with nothing but blanks and signs between them."""
    chains: list[list[_Group]] = []
    for match in _GROUP.finditer(text):
        digits = match["digits"]
        if digits is None:
            continue  # digits of an escape, such as `\u00a0`, are none of the text
        group = _Group(match.start(), match.end(), digits.translate(_WIDE))
        last = chains[-1][-1].end if chains else -_LONGEST_GAP
        is_near = group.start - last <= _LONGEST_GAP
        if chains and is_near and _PHONE_GAP.fullmatch(text, last, group.start):
            chains[-1].append(group)
        else:
            chains.append([group])
    return [chain for chain in chains if sum(len(group.digits) for group in chain) >= 7]


def _is_within_a_word(text: str, start: int, end: int) -> bool:
    """Tell whether digits are part of a code with letters and further digits, such as a hash."""
    before, at = start, start
    while at > max(0, start - 12) and (text[at - 1].isalpha() or text[at - 1] == "_"):
        at -= 1
    if at < before and text[at - 1 : at].isdigit() and not LINE_ESCAPE.match(text, before - 2):
        return True
    after = end
    while after < min(len(text), end + 12) and (text[after].isalpha() or text[after] == "_"):
        after += 1
    return after > end and text[after : after + 1].isdigit()


# ---- cards --------------------------------------------------------------------------------------

# Issuers by ISO/IEC 7812 prefix and length: Visa, Mastercard, American Express, Diners, Discover, JCB, UnionPay,
# Maestro, Mir.
_ISSUED = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}"
    r"|(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{9,15}|220[0-4]\d{12,15}"
)
_SHORTEST_CARD, _LONGEST_CARD = 13, 19
_CARD_LABEL = re.compile(r"(?i:cv[vcn]2?|csc|cid|exp|valid|pin)(?![^\W\d_])")
"""Labels that may follow a card without a blank, with digits after them: `cvv123`."""


def _cards(text: str, chain: Sequence[_Group]) -> Iterator[Span]:
    at = 0
    while at < len(chain):
        last = _card_from(text, chain, at)
        if last is None:
            at += 1
        else:
            yield Span(chain[at].start, chain[last].end, "card")
            at = last + 1


def _card_from(text: str, chain: Sequence[_Group], first: int) -> int | None:
    """Return the index of the last group of the longest card that begins with this group; None for no card."""
    group = chain[first].digits
    if group[0] not in "23456" or (len(group) == 1 and first and len(chain[first - 1].digits) == 1):
        return None  # sign by sign, a card begins where the row of single digits does
    digits, best = "", None
    for last in range(first, min(first + _LONGEST_CARD, len(chain))):
        digits += chain[last].digits
        if len(digits) > _LONGEST_CARD:
            break
        is_card = (
            len(digits) >= _SHORTEST_CARD
            and _ISSUED.fullmatch(digits)
            and passes_luhn(digits)
            and _is_written_as_card(text, chain[first : last + 1])
        )
        best = last if is_card else best
    if best is None:
        return None
    end = chain[best].end
    if _is_within_a_word(text, chain[first].start, end) and not _CARD_LABEL.match(text, end):
        return None
    return None if best == first and _is_fraction(text, chain[first].start) else best


def _is_written_as_card(text: str, groups: Sequence[_Group]) -> bool:
    """Tell whether groups are separated by one kind of sign, and large or equal: a row of figures is no card."""
    gaps = [text[one.end : other.start] for one, other in itertools.pairwise(groups)]
    if len({kind for gap in gaps for kind in _kinds_of(gap)}) > 1:
        return False
    if not all(_CARD_GAP.fullmatch(gap) for gap in gaps):
        return False
    lengths = {len(group.digits) for group in groups[:-1]}
    return min(lengths, default=4) >= 3 or lengths == {len(groups[-1].digits)}


def _kinds_of(gap: str) -> set[str]:
    """Return the signs between two groups; blanks of any kind are one, and dots and dashes may stand among them."""
    signs = {
        "-" if sign.isprintable() and sign not in ".\u00b7\u2022" else "."
        for sign in _BLANKS.sub("", gap)
    }
    return signs or {" "}


_BLANKS = re.compile(_BLANK)


def _is_fraction(text: str, start: int) -> bool:
    """Tell whether digits from `start` follow the point or comma of a number."""
    return text[start - 1 : start] in (".", ",") and text[max(0, start - 2) : start - 1].isdigit()


# ---- telephones ---------------------------------------------------------------------------------

_YEAR = r"(?:19|20)\d\d"
_DATE = re.compile(
    rf"(?<!\d)(?:\d{{1,2}}([./-])\d{{1,2}}\1{_YEAR}|{_YEAR}([./-])\d{{1,2}}\2\d{{1,2}})(?!\d)"
)
_UUID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLUS = re.compile(r"(?<!\d)[+\uff0b]\(?\Z")
_LONGEST_PHONE = 17  # digits: `011`, and fifteen by ITU-T E.164
_SHORTEST_NATIONAL = 9
_MOST_GROUPS = 8
_MOST_WRITTEN = 5  # groups of a number as its country writes it
_TYPES = (
    "fixed_line",
    "mobile",
    "toll_free",
    "premium_rate",
    "shared_cost",
    "personal_number",
    "voip",
    "pager",
    "uan",
    "voicemail",
)


def _without(
    chains: Iterable[list[_Group]], others: Iterator[re.Match[str]]
) -> Iterator[list[_Group]]:
    """Yield the chains, cut where something else, a date or a UUID, stands in them."""
    other = next(others, None)
    for chain in chains:
        part: list[_Group] = []
        for group in chain:
            while other is not None and other.end() <= group.start:
                other = next(others, None)
            if other is not None and other.start() < group.end:
                yield part
                part = []
            else:
                part.append(group)
        yield part


# Spellings that are common beside the country's own (libphonenumber's "alternate formats", and mobile numbers without
# a leading 0): the region, the type of number, the lengths of its groups, and what keeps them apart.
_ALSO_WRITTEN = (
    ("CN", "mobile", (3, 4, 4), " -"),
    ("ES", "mobile", (3, 3, 3), " "),
    ("ES", "fixed_line", (3, 3, 3), " "),
    ("ES", "fixed_line", (2, 3, 2, 2), " "),
    ("IN", "mobile", (5, 5), " -"),
    ("IT", "mobile", (3, 7), " "),
)
_MONEY = r"[$€£¥₹%]|\b(?:EUR|USD|GBP|JPY|INR|CHF|PLN|SEK|NOK|DKK|CZK|BRL|MXN|CLP|CNY|CAD|AUD|Rs\.?)"
_MONEY_BEFORE = re.compile(rf"(?:{_MONEY})[ \u00a0]?\Z")
_AMOUNT_AFTER = re.compile(
    rf"[.,]\d|[ \u00a0]?(?:{_MONEY}|(?i:\b(?:euros?|dollars?|pounds?|rupees|yen|zł|kr|[kmg]?b|bytes|tokens|rows|"
    r"people|inhabitants|users|km|kg|m)\b))"
)


class _Plan(NamedTuple):
    """The numbers of a country, and the prefix that may stand before them."""

    region: str
    prefix: str
    numbers: re.Pattern[str]

    def writes(self, digits: str, groups: Sequence[_Group]) -> bool:
        """Tell whether digits are a number of the country, in the groups in which it writes it."""
        if self.prefix and groups[0].digits == self.prefix:
            digits, groups = digits.removeprefix(self.prefix), groups[1:]
        if len(groups) > _MOST_WRITTEN or not self.numbers.fullmatch(digits):
            return False
        return [len(group.digits) for group in groups] == _written(self.region, digits)


class _Telephones:
    """Finds numbers that exist, by the numbering plans of some countries."""

    def __init__(self, regions: tuple[str, ...]) -> None:
        import phonenumbers

        with_zero: list[str] = []
        also: dict[tuple[tuple[int, ...], str], list[str]] = {}
        self._others: list[_Plan] = []
        for region in regions:
            plan = phonenumbers.PhoneMetadata.metadata_for_region(region)
            if plan is None:
                raise ValueError(region)
            if plan.national_prefix == "0" and _is_written_with_zero(region):
                with_zero.append(_numbers_of(region))
            else:
                prefix = plan.national_prefix or ""
                self._others.append(_Plan(region, prefix, re.compile(_numbers_of(region))))
            for other, kind, lengths, signs in _ALSO_WRITTEN:
                if other == region:
                    pattern = getattr(plan, kind).national_number_pattern
                    also.setdefault((lengths, signs), []).append(pattern)
        self._also = {key: re.compile("|".join(patterns)) for key, patterns in also.items()}
        self._with_zero = re.compile("0(?:" + "|".join(with_zero) + ")") if with_zero else None

    def find(
        self, text: str, chain: Sequence[_Group], card_starts: Collection[int]
    ) -> Iterator[Span]:
        """Yield the numbers among the groups of a chain, none of which reaches into a card."""
        at = 0
        while at < len(chain):
            last = self._last_group(text, chain, at, card_starts)
            if last is None:
                at += 1
                continue
            start = chain[at].start
            while start > 0 and text[start - 1] in "(+" and start > chain[at].start - 3:
                start -= 1
            yield Span(start, chain[last].end, "phone")
            at = last + 1

    def _last_group(
        self, text: str, chain: Sequence[_Group], first: int, card_starts: Collection[int]
    ) -> int | None:
        start = chain[first].start
        is_international = _PLUS.search(text[max(0, start - 3) : start]) is not None
        digits, best = "", None
        for last in range(first, min(first + _MOST_GROUPS, len(chain))):
            digits += chain[last].digits
            if len(digits) > _LONGEST_PHONE or chain[last].start in card_starts:
                break
            if len(digits) < 7:
                continue
            if is_international:
                is_number = _exists(digits)
            else:
                is_number = self._is_number(text, digits, chain, first, last - first + 1)
            best = last if is_number else best
        if best is None or _is_within_a_word(text, start, chain[best].end):
            return None
        if not is_international and _is_fraction(text, start):
            return None
        return best

    def _is_number(
        self, text: str, digits: str, chain: Sequence[_Group], first: int, count: int
    ) -> bool:
        for dialled in ("00", "011"):  # before a country code
            if digits.startswith(dialled) and _exists(digits.removeprefix(dialled)):
                return True
        if count < 2 or len(digits) < _SHORTEST_NATIONAL:
            return False
        groups = chain[first : first + count]
        if digits[0] == "0" and self._with_zero is not None and self._with_zero.fullmatch(digits):
            return min(len(group.digits) for group in groups) > 1
        if _is_amount(text, chain, first, count):
            return False
        return self._is_also_written(text, digits, chain, first, count) or any(
            plan.writes(digits, groups) for plan in self._others
        )

    def _is_also_written(
        self, text: str, digits: str, chain: Sequence[_Group], first: int, count: int
    ) -> bool:
        """Tell whether groups are written as in `_ALSO_WRITTEN`, and not among others with the same sign between."""
        lengths = tuple(len(group.digits) for group in chain[first : first + count])
        patterns = [(signs, one) for (key, signs), one in self._also.items() if key == lengths]
        if not patterns:
            return False
        around = chain[max(0, first - 1) : first + count + 1]
        gaps = [text[one.end : other.start] for one, other in itertools.pairwise(around)]
        gap = text[chain[first].end : chain[first + 1].start]
        sign = " " if _BLANKS.fullmatch(gap) else gap
        return gaps.count(gap) == count - 1 and any(
            sign in signs and pattern.fullmatch(digits) for signs, pattern in patterns
        )


def _is_amount(text: str, chain: Sequence[_Group], first: int, count: int) -> bool:
    """Tell whether groups are of three digits, with more of them, money, a unit or decimals beside: `512 345 678 EUR`."""
    groups = chain[first : first + count]
    if any(len(group.digits) != 3 for group in groups[1:]):
        return False
    start, end = groups[0].start, groups[-1].end
    gap = text[groups[0].end : groups[1].start]
    beside = [*chain[max(0, first - 1) : first], *groups, *chain[first + count : first + count + 1]]
    gaps = [text[one.end : other.start] for one, other in itertools.pairwise(beside)]
    before = text[max(0, start - 6) : start]
    return gaps.count(gap) >= count or bool(
        _MONEY_BEFORE.search(before) or _AMOUNT_AFTER.match(text, end)
    )


def _is_written_with_zero(region: str) -> bool:
    import phonenumbers

    example: Any = phonenumbers.example_number(region)
    shown = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.NATIONAL)
    return shown.lstrip("(").startswith("0")


@lru_cache(maxsize=4096)
def _written(region: str, digits: str) -> list[int]:
    """Return the lengths of the groups in which a country writes a number."""
    import phonenumbers

    number = phonenumbers.parse(digits, region)
    shown = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
    return [len(group) for group in re.findall(r"\d+", shown)]


@cache
def _telephones(regions: tuple[str, ...]) -> _Telephones:
    return _Telephones(regions)


def _exists(digits: str) -> bool:
    """Tell whether digits are a country code and a number of that country, with or without the 0 of `+49 (0)171`."""
    import phonenumbers

    for length in (1, 2, 3):
        code = int(digits[:length] or "0")
        if code and code in phonenumbers.COUNTRY_CODE_TO_REGION_CODE:
            number = digits[length:]
            numbers = _numbers_behind(code)
            return bool(numbers.fullmatch(number) or numbers.fullmatch(number.removeprefix("0")))
    return False


@cache
def _numbers_behind(code: int) -> re.Pattern[str]:
    """Return the pattern of the numbers behind a country code."""
    import phonenumbers

    regions = phonenumbers.COUNTRY_CODE_TO_REGION_CODE[code]
    if regions == ("001",):
        plan: Any = phonenumbers.PhoneMetadata.metadata_for_nongeo_region(code)
        return re.compile(plan.general_desc.national_number_pattern)
    return re.compile("|".join(_numbers_of(region) for region in regions))


@cache
def _numbers_of(region: str) -> str:
    import phonenumbers

    plan = phonenumbers.PhoneMetadata.metadata_for_region(region)
    kinds = [getattr(plan, kind) for kind in _TYPES]
    patterns = [kind.national_number_pattern for kind in kinds if kind is not None]
    return "|".join(f"(?:{pattern})" for pattern in patterns if pattern)
