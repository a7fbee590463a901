"""Secrets and personal data in what is about to be pushed.

Secrets are found by Kingfisher's rules (each knows the form of one provider's keys) and a few of our own
beside them in `secrets.yml`. No detector of plain entropy: chat prose drowns it (docs/publishing.md has the
figures). Card numbers have an issuer's prefix and a right check digit; telephone numbers are what
libphonenumber calls valid. Every text of a row is read, keys of JSON with it, since `password: …` is known by
its key.

Nothing that was found is ever kept whole: an example is masked the moment it is found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, get_args

import orjson

from curate.engines.redaction import passes_luhn
from curate.errors import UsageError, missing_extra

Kind = Literal["secret", "email", "phone", "card"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_EXAMPLES = 5  # masked examples kept of each rule
_BATCH = 1_000  # rows of a Parquet file held at once

_EMAIL = re.compile(
    r"(?<![\w.+%-])[A-Za-z0-9](?:[\w.+%'-]{0,62}[\w+%-])?@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+"
    r"(?P<top>[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,59})(?![\w-])"
)
# RFC 2606 and RFC 6761: names that belong to nobody, so an address there is nobody's.
_NOBODY = re.compile(r"(?:@|\.)example\.(?:com|net|org|edu)$|\.(?:example|invalid|test|localhost)$")
_CARD = re.compile(
    r"(?<![\w.-])(?:\d{4}([ -]?)\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|\d{4}([ -]?)\d{6}\2\d{4,5}|\d{13,19})(?![\w-]|\.\d)"
)
# Issuers by ISO/IEC 7812 prefix and length: Visa, Mastercard, American Express, Diners, Discover, JCB, UnionPay.
_ISSUED = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}"
)
_MAYBE_PHONE = re.compile(r"\d(?:[^\w\n]{0,3}\d){6}")
_BARE = re.compile(r"\d+\Z")


class Match(NamedTuple):
    """One thing in a text. `rule` says more about a secret: which provider's it is."""

    kind: Kind
    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in one row. `row` counts from 0 in its file; `masked` is all that is kept of the text."""

    kind: Kind
    rule: str
    file: str
    row: int
    row_id: str
    masked: str

    @property
    def name(self) -> str:
        """What `allow` calls it: `email`, or `secret:<rule>`."""
        return f"secret:{self.rule}" if self.kind == "secret" else self.kind


@dataclass(slots=True)
class Findings:
    """What a scan found: counts and a few examples by name; the whole list is in a file."""

    texts: int = 0
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    rows_by_name: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Finding]] = field(default_factory=dict)

    def not_allowed(self, allow: Collection[str]) -> list[str]:
        """Names of what was found and is not allowed; `secret` allows every rule's."""
        return sorted(
            name
            for name in self.counts
            if name not in allow and name.partition(":")[0] not in allow
        )

    def merge(self, other: Findings) -> None:
        """Take in what was found elsewhere."""
        self.texts, self.rows = self.texts + other.texts, self.rows + other.rows
        self.counts += other.counts
        self.rows_by_name += other.rows_by_name
        for name, examples in other.examples.items():
            shown = self.examples.setdefault(name, [])
            shown += examples[: _EXAMPLES - len(shown)]

    def add(self, found: Finding) -> None:
        """Count a finding."""
        self.counts[found.name] += 1
        shown = self.examples.setdefault(found.name, [])
        if len(shown) < _EXAMPLES:
            shown.append(found)


def check_allowed(allow: Iterable[str]) -> None:
    """Raises UsageError for a name that no finding can have."""
    for name in allow:
        kind, _, rule = name.partition(":")
        if kind not in KINDS or (rule and kind != "secret"):
            raise UsageError(
                "no such kind of finding",
                got=name,
                expected=f"{', '.join(KINDS)}, or secret:<rule> for one kind of secret",
            )


class Detector:
    """Finds secrets and personal data in texts.

    Args:
        regions: countries (ISO 3166 alpha-2) whose telephone numbers are known without their country code.
            Numbers with one are always known.

    Raises:
        UsageError: a package of the extra `push` is missing, or there is no such region.
    """

    def __init__(self, regions: Iterable[str] = ("US",)) -> None:
        try:
            import phonenumbers
        except ImportError:
            raise missing_extra("phonenumbers", "push") from None
        self._secrets = _secret_scanner()
        self._phones = phonenumbers
        self._regions = tuple(regions)
        for region in self._regions:
            if region not in phonenumbers.SUPPORTED_REGIONS:
                raise UsageError(
                    "no such region of telephone numbers",
                    got=region,
                    expected="two letters, such as US, GB or DE",
                )

    def find(self, text: str) -> Iterator[Match]:
        """Everything in a text, repetitions too."""
        # A lone surrogate cannot be encoded; it is no part of a secret.
        for found in self._secrets.scan(text.encode("utf-8", "replace")):
            if found.visible:
                yield Match("secret", found.rule_id, found.secret)
        if "@" in text:
            for address in _EMAIL.finditer(text):
                if not _NOBODY.search(address[0].lower()):
                    yield Match("email", "email", address[0])
        for number in _CARD.finditer(text):
            digits = re.sub(r"\D", "", number[0])
            if _ISSUED.fullmatch(digits) and passes_luhn(digits):
                yield Match("card", "card", number[0])
        if _MAYBE_PHONE.search(text):
            yield from self._telephones(text)

    def _telephones(self, text: str) -> Iterator[Match]:
        """International numbers, and national ones of the regions in a written form: a bare run of digits
        may be an order number."""
        matcher, leniency = self._phones.PhoneNumberMatcher, self._phones.Leniency
        for number in matcher(text, None, leniency=leniency.VALID):
            yield Match("phone", "phone", number.raw_string)
        for region in self._regions:
            for number in matcher(text, region, leniency=leniency.STRICT_GROUPING):
                if "+" not in number.raw_string and not _BARE.match(number.raw_string):
                    yield Match("phone", "phone", number.raw_string)

    def find_in_row(self, row: Mapping[str, Any]) -> tuple[int, list[Match]]:
        """How many texts a row has, and what is in them, each thing once."""
        found: dict[Match, None] = {}
        number = 0
        for text in texts(row):
            number += 1
            found.update(dict.fromkeys(self.find(text)))
        return number, list(found)


@cache
def _secret_scanner() -> Any:
    """Compiling some five hundred rules takes a second (ten the first time on a machine: they are kept in the
    user's cache), so it is done once a process."""
    try:
        import kingfisher_sdk
    except ImportError:
        raise missing_extra("kingfisher-secret-scanner", "push") from None
    with resources.as_file(resources.files(__package__) / "secrets.yml") as own:
        return kingfisher_sdk.Scanner(kingfisher_sdk.Rules([str(own)]))


def texts(value: Any, key: str = "") -> Iterator[str]:
    """All texts within a value, each behind its key; JSON within a text is looked into too."""
    if isinstance(value, str):
        if value:
            yield f"{key}: {value}" if key else value
        if value[:1] in ("{", "["):
            try:
                inner = orjson.loads(value)
            except ValueError:
                return
            yield from texts(inner)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts(item, str(name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item, key)
    elif isinstance(value, int) and abs(value) >= 10**11:
        yield f"{key}: {value}"


def scan_files(
    files: Mapping[str, Path], detector: Detector, out: IO[bytes], *, row_ids: Collection[str]
) -> Findings:
    """Scan every row of Parquet files and every line of text files.

    Args:
        files: path in the repository to the file on disk.
        detector: what finds.
        out: gets a JSON line a finding, masked.
        row_ids: columns that identify a row, the first that a row has counts.
    """
    findings = Findings()
    for name, path in files.items():
        rows = _parquet_rows(path) if path.suffix == ".parquet" else _lines(path)
        for at, row in enumerate(rows):
            number, matches = detector.find_in_row(row)
            findings.texts += number
            findings.rows += 1
            row_id = next((str(row[key]) for key in row_ids if row.get(key)), "")
            names = set()
            for kind, rule, text in matches:
                found = Finding(kind, rule, name, at, row_id, mask(kind, text))
                findings.add(found)
                names.add(found.name)
                out.write(orjson.dumps({"name": found.name, **_said(found)}) + b"\n")
            findings.rows_by_name.update(names)
    return findings


def mask(kind: Kind, text: str) -> str:
    """What may be shown of a finding: enough to find it again in its row, too little to use it."""
    flat = " ".join(text.split())
    if kind == "email":
        name, _, domain = flat.partition("@")
        return f"{name[0]}…@{domain[0]}….{domain.rsplit('.', 1)[-1]}"
    if kind in ("phone", "card"):
        return re.sub(r"\d", "•", flat[:-2]) + flat[-2:]
    return f"{flat[:4]}… ({len(text)} characters)"


def _said(found: Finding) -> dict[str, object]:
    names = ("kind", "rule", "file", "row", "row_id", "masked")
    return {name: getattr(found, name) for name in names}


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH):
            yield from batch.to_pylist()


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    # Whole paragraphs: a key in PEM form goes over several lines.
    for part in path.read_text(encoding="utf-8").split("\n\n"):
        yield {"": part}
