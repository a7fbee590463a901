"""National identity and tax numbers, and bank accounts (IBAN), in a text.

What tells an id from an order number is its check digit, its date, and how it is written. A rule takes as much of these
as the number has; where that is little (nine bare digits with one check digit, or none at all) the number's name must
stand shortly before it. Each search is linear: patterns have no nested repetition, and a name is looked for in a bounded
stretch.

Sources of the check digits: ISO 7064 (MOD 97-10, MOD 11,10, MOD 11-2), ISO/IEC 7812-1 (Luhn), ISO 13616 (IBAN), and the
issuers' own rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import NamedTuple

_NAMED_WITHIN = 40  # characters before a number in which its name may stand
_SEPARATORS = re.compile(r"[\s./+-]")
_SIX_DIGITS = re.compile(r"\d(?:[^\d\n]{0,4}\d){5}")  # each id has as many close together


class _Rule(NamedTuple):
    """One kind of id: it matches `pattern`, and without blanks, dots and dashes it passes `check`.

    `name` must stand before it, unless it matches `grouped`; None where it needs no name.
    """

    pattern: str
    check: Callable[[str], bool]
    name: str | None = None
    grouped: str | None = None


def find_ids(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each id in a text, kind by kind; some may overlap."""
    if not _SIX_DIGITS.search(text):
        return
    yield from _ibans(text)
    for pattern, check, name, grouped in _COMPILED:
        for match in pattern.finditer(text):
            if name is not None and not (grouped is not None and grouped.fullmatch(match[0])):
                before = max(0, match.start() - _NAMED_WITHIN)
                if not name.search(text, before, match.start()):
                    continue
            if check(_SEPARATORS.sub("", match[0]).upper()):
                yield match.span()


# ---- check digits -------------------------------------------------------------------------------


def _weighted(digits: str, weights: Sequence[int]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def passes_luhn(digits: str) -> bool:
    """Tell whether the check digit of ISO/IEC 7812-1 is right, as that of every card number is."""
    doubled = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits))]
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


def _is_date(year: int, month: str, day: str) -> bool:
    try:
        date(year, int(month), int(day))
    except ValueError:
        return False
    return True


def _yymmdd(digits: str) -> bool:
    return _is_date(2000 + int(digits[:2]), digits[2:4], digits[4:6])  # 2000 has a 29 February


def _ddmmyy(digits: str) -> bool:
    return _is_date(2000, digits[2:4], digits[:2])


def _ssn(digits: str) -> bool:
    return (
        digits[:3] not in ("000", "666") and digits[0] != "9" and digits[3:5] != "00" != digits[5:]
    )


def _nino(signs: str) -> bool:
    return signs[:2] not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")


def _nhs(digits: str) -> bool:
    return (11 - _weighted(digits, range(10, 1, -1)) % 11) % 11 == int(digits[9])


def _steuer_id(digits: str) -> bool:
    counts = sorted((digits[:10].count(digit) for digit in set(digits[:10])), reverse=True)
    if digits[0] == "0" or counts[0] not in (2, 3) or counts[1] != 1:
        return False
    product = 10
    for digit in digits[:10]:
        product = (int(digit) + product) % 10 or 10
        product = product * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def _nir(signs: str) -> bool:
    number = signs[:-2].replace("2A", "19").replace("2B", "18")
    return 97 - int(number) % 97 == int(signs[-2:])


def _dni(signs: str) -> bool:
    number = signs[:-1].translate({ord("X"): "0", ord("Y"): "1", ord("Z"): "2"})
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == signs[-1]


_ODD = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (
            *(1, 0, 5, 7, 9, 13, 15, 17, 19, 21) * 2,
            *(2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
        ),
        strict=True,
    )
)


def _codice_fiscale(signs: str) -> bool:
    odd = sum(_ODD[sign] for sign in signs[:15:2])
    even = sum(int(sign) if sign.isdigit() else ord(sign) - 65 for sign in signs[1:15:2])
    return chr((odd + even) % 26 + 65) == signs[15]


def _bsn(digits: str) -> bool:
    return _weighted(digits, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0 and digits != "000000000"


def _rijksregister(digits: str) -> bool:
    check = int(digits[9:])
    fits = any(97 - int(century + digits[:9]) % 97 == check for century in ("", "2"))
    return fits and _yymmdd(digits)


def _pesel(digits: str) -> bool:
    month = int(digits[2:4]) % 20
    fits = _weighted(digits, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)) % 10 == 0
    return fits and _yymmdd(f"{digits[:2]}{month:02d}{digits[4:]}")


def _personnummer(digits: str) -> bool:
    return passes_luhn(digits[-10:]) and _yymmdd(digits[-10:])


def _fodselsnummer(digits: str) -> bool:
    first = _weighted(digits, (3, 7, 6, 1, 8, 9, 4, 5, 2, 1)) % 11
    second = _weighted(digits, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)) % 11
    return first == second == 0 and _ddmmyy(digits)


def _hetu(signs: str) -> bool:
    digits = signs[:6] + signs[-4:-1]
    return "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(digits) % 31] == signs[-1] and _ddmmyy(digits)


def _ahv(digits: str) -> bool:
    return _weighted(digits, (1, 3) * 6 + (1,)) % 10 == 0


def _cpf(digits: str) -> bool:
    def check(first: str) -> int:
        return _weighted(first, range(len(first) + 1, 1, -1)) * 10 % 11 % 10

    return (
        len(set(digits)) > 1
        and check(digits[:9]) == int(digits[9])
        and check(digits[:10]) == int(digits[10])
    )


def _rut(signs: str) -> bool:
    rest = 11 - _weighted(signs[-2::-1], (2, 3, 4, 5, 6, 7, 2, 3)) % 11
    return signs[-1] == {10: "K", 11: "0"}.get(rest, str(rest))


def _curp(signs: str) -> bool:
    values = "0123456789ABCDEFGHIJKLMNÑOPQRSTUVWXYZ"
    total = sum(values.index(sign) * (18 - at) for at, sign in enumerate(signs[:17]))
    return (10 - total % 10) % 10 == int(signs[17]) and _yymmdd(signs[4:10])


_PERMUTATIONS = ["0123456789", "1576283094", "5803796142", "8916043527"]
_PERMUTATIONS += ["9453126870", "4286573901", "2793806415", "7046913258"]
_PRODUCTS = ["0123456789", "1234067895", "2340178956", "3401289567", "4012395678"]
_PRODUCTS += ["5987604321", "6598710432", "7659821043", "8765932104", "9876543210"]


def _verhoeff(digits: str) -> bool:
    checksum = 0
    for at, digit in enumerate(reversed(digits)):
        checksum = int(_PRODUCTS[checksum][int(_PERMUTATIONS[at % 8][int(digit)])])
    return checksum == 0


def _chinese(signs: str) -> bool:
    weights = [2 ** (17 - at) % 11 for at in range(17)]
    fits = "10X98765432"[_weighted(signs, weights) % 11] == signs[17]
    return fits and _is_date(int(signs[6:10]), signs[10:12], signs[12:14])


_IBAN_LENGTHS = {
    "NO": 15,
    "BE": 16,
    **dict.fromkeys(("DK", "FI", "NL"), 18),
    **dict.fromkeys(("AT", "EE", "LT", "LU"), 20),
    **dict.fromkeys(("CH", "HR", "LI", "LV"), 21),
    **dict.fromkeys(("BG", "DE", "GB", "IE", "RS", "BH", "GE"), 22),
    **dict.fromkeys(("AE", "IL"), 23),
    **dict.fromkeys(("AD", "CZ", "ES", "MD", "PK", "RO", "SA", "SE", "SK", "TN"), 24),
    "PT": 25,
    **dict.fromkeys(("IS", "TR"), 26),
    **dict.fromkeys(("FR", "GR", "IT", "MC", "SM"), 27),
    **dict.fromkeys(("CY", "HU", "LB", "PL"), 28),
    **dict.fromkeys(("BR", "QA", "UA"), 29),
    "MT": 31,
}
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2} ?\d\d(?:[ -]?[A-Z0-9]){11,27}")


def _ibans(text: str) -> Iterator[tuple[int, int]]:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2], 99)
        places = [at for at in range(*match.span()) if text[at].isalnum()][:length]
        end, signs = places[-1] + 1, "".join(text[at] for at in places)
        is_whole = len(signs) == length and not text[end : end + 1].isalnum()
        if is_whole and int(_as_number(signs)) % 97 == 1:
            yield match.start(), end


def _as_number(iban: str) -> str:
    return "".join(str(int(sign, 36)) for sign in iban[4:] + iban[:4])


# ---- kinds --------------------------------------------------------------------------------------

_RULES = (
    # US
    _Rule(r"\d{3}-\d\d-\d{4}", _ssn),
    _Rule(r"\d{3} ?\d\d ?\d{4}", _ssn, r"(?i)\bssn\b|social security"),
    # GB
    _Rule(r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]", _nino),
    _Rule(r"\d{3}[ -]?\d{3}[ -]?\d{4}", _nhs, r"\bNHS\b"),
    # DE
    _Rule(r"\d\d ?\d{3} ?\d{3} ?\d{3}", _steuer_id),
    # FR
    _Rule(r"[12] ?\d\d ?(?:0[1-9]|1[0-2]|[2-9]\d) ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d", _nir),
    # ES
    _Rule(r"(?:\d{8}|\d\d\.\d{3}\.\d{3}|[XYZ]-?\d{7})[ -]?[A-HJ-NP-TV-Z]", _dni),
    # IT
    _Rule(
        r"[A-Z]{6} ?\d\d[A-EHLMPRST]\d\d ?[A-Z]\d{3}[A-Z]|[A-Z]{3} [A-Z]{3} \d\d[A-EHLMPRST]\d\d [A-Z]\d{3}[A-Z]",
        _codice_fiscale,
    ),
    # NL
    _Rule(
        r"\d{9}|\d{4}[. ]\d\d[. ]\d{3}|\d{3}[. ]\d{3}[. ]\d{3}",
        _bsn,
        r"(?i)\bbsn\b|burgerservicenummer|sofinummer",
    ),
    # BE
    _Rule(
        r"\d\d\.\d\d\.\d\d[ -]\d{3}[.-]\d\d|\d{6}[ -]\d{3}[. -]\d\d|\d\d[ -]\d\d[ -]\d\d[ -]\d{3}[. -]\d\d|\d{11}",
        _rijksregister,
    ),
    # PL
    _Rule(r"\d{11}", _pesel),
    # SE
    _Rule(r"(?:\d\d)?\d{6}[-+]\d{4}|(?:19|20)\d{10}", _personnummer),
    # DK
    _Rule(r"\d{6}[- ]?\d{4}", _ddmmyy, r"(?i)\bcpr\b|personnummer"),
    # NO
    _Rule(r"\d{6} ?\d{5}", _fodselsnummer),
    # FI
    _Rule(r"\d{6}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]", _hetu),
    # CH
    _Rule(r"756[. ]?\d{4}[. ]?\d{4}[. ]?\d\d", _ahv),
    # BR
    _Rule(r"\d{3}\.\d{3}\.\d{3}-\d\d|\d{9}-?\d\d", _cpf, r"\bCPF\b", r"\d{3}\.\d{3}\.\d{3}-\d\d"),
    # CL
    _Rule(
        r"\d{1,2}\.\d{3}\.\d{3}-[\dkK]|\d{7,8}-[\dkK]", _rut, r"\bRU[TN]\b", r"[\d.]{9,10}-[\dkK]"
    ),
    # MX
    _Rule(r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d", _curp),
    # IN
    _Rule(r"[2-9]\d{3}[ -]?\d{4}[ -]?\d{4}", _verhoeff, r"(?i)aadha+r", r"\d{4}[ -]\d{4}[ -]\d{4}"),
    # CN
    _Rule(r"[1-9]\d{5}(?:19|20)\d{9}[\dXx]", _chinese),
    # CA
    _Rule(
        r"[1-79]\d{2}[ -]?\d{3}[ -]?\d{3}",
        passes_luhn,
        r"(?i)\bsin\b|social insurance|assurance sociale",
    ),
)
_COMPILED = [
    (
        re.compile(rf"(?<![\w.-])(?:{rule.pattern})(?![\w-]|\.\d)"),
        rule.check,
        None if rule.name is None else re.compile(rule.name),
        None if rule.grouped is None else re.compile(rule.grouped),
    )
    for rule in _RULES
]
