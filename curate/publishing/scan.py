"""Secrets and personal data in what is about to be pushed.

Secrets are found by Kingfisher's rules (each knows the form of one provider's keys) and a few rules of curate in
`secrets.yml`. There is no entropy detector: it has too many false alarms in chat text (docs/publishing.md has the
figures). Personal data is found as redaction finds it (`curate.engines.personal_data`). Every text of a row is read
together with its JSON key, since `password: …` is known by its key.

No finding is kept in full: an example is masked as soon as it is found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import orjson

from curate.engines.email_addresses import plain_address
from curate.engines.personal_data import REGIONS, PersonalData, find_personal_data
from curate.engines.personal_names import marked_words
from curate.errors import UsageError, missing_extra
from curate.report.page import unpacked_rows
from curate.storage.parquet_files import readable
from curate.wording import plural

FindingKind = Literal["secret"] | PersonalData
_PERSONAL: tuple[PersonalData, ...] = ("email", "phone", "card", "id")
KINDS: tuple[FindingKind, ...] = ("secret", *_PERSONAL, "name")
"""Kinds that options may name; names are looked for on request only."""

_EXAMPLES = 5  # masked examples kept of each rule
_BATCH = 1_000  # rows of a Parquet file held at once

# RFC 2606 and RFC 6761: reserved domains, so an address there is nobody's.
_NOBODY = re.compile(r"(?:@|\.)example\.(?:com|net|org|edu)$|\.(?:example|invalid|test|localhost)$")

_MAY_BE_PERSONAL = re.compile(r"[@\uff20]|%40|&#64;|(?i:\bat\b)|(?:\d\D{0,4}){7}")

_THINGS_KEYS = frozenset(("arguments", "parameters", "failure_code"))
"""Keys beside the name of a tool, a call of one, or a metric."""


class Match(NamedTuple):
    """A finding in a text; `rule` names the provider of a secret."""

    kind: FindingKind
    rule: str
    text: str

    @property
    def name(self) -> str:
        """The name in options: `email`, or `secret:<rule>`."""
        return f"secret:{self.rule}" if self.kind == "secret" else self.kind


def is_among(name: str, names: Collection[str]) -> bool:
    """Return True if the names of findings include this one; `secret` includes every rule's."""
    return name in names or name.partition(":")[0] in names


@dataclass(frozen=True, slots=True)
class ScanFinding:
    """A finding in a row.

    Attributes:
        name: the name in options, as that of `Match`.
        row: number of the row in its file, from 0.
        masked: all that is kept of the text.
    """

    name: str
    kind: FindingKind
    rule: str
    file: str
    row: int
    row_id: str
    masked: str


@dataclass(slots=True)
class Findings:
    """Findings of a scan: counts and a few examples by name; the complete list is in a file."""

    texts: int = 0
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    rows_by_name: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[ScanFinding]] = field(default_factory=dict)

    def not_allowed(self, allow: Collection[str]) -> list[str]:
        """Return the names of findings that are not allowed; `secret` allows every rule's."""
        return sorted(name for name in self.counts if not is_among(name, allow))

    def merge(self, other: Findings) -> None:
        """Add the findings of another scan."""
        self.texts, self.rows = self.texts + other.texts, self.rows + other.rows
        self.counts += other.counts
        self.rows_by_name += other.rows_by_name
        for name, examples in other.examples.items():
            mine = self.examples.setdefault(name, [])
            mine += examples[: _EXAMPLES - len(mine)]

    def add(self, finding: ScanFinding) -> None:
        """Count a finding."""
        self.counts[finding.name] += 1
        examples = self.examples.setdefault(finding.name, [])
        if len(examples) < _EXAMPLES:
            examples.append(finding)


def check_allowed(allow: Iterable[str]) -> None:
    """Raise UsageError for a name that no finding can have."""
    for name in allow:
        kind, _, rule = name.partition(":")
        if kind not in KINDS or (rule and kind != "secret"):
            raise UsageError(
                "no such kind of finding",
                got=name,
                expected=f"{', '.join(KINDS)}, or secret:<rule> for one kind of secret",
            )


class Detector:
    """Find secrets and personal data in texts.

    Args:
        regions: countries (ISO 3166 alpha-2) whose telephone numbers are known without their country code.
            Numbers with one are always known.
        names: look for names, too: those that a text of the row marks as names, in all texts of the row.

    Raises:
        UsageError: a package of the extra `push` is missing, or there is no such region.
    """

    def __init__(self, regions: Iterable[str] = REGIONS, *, names: bool = False) -> None:
        import phonenumbers

        self._kinds = (*_PERSONAL, "name") if names else _PERSONAL
        self._secrets = _secret_scanner()
        self._regions = tuple(regions)
        for region in self._regions:
            if region not in phonenumbers.SUPPORTED_REGIONS:
                raise UsageError(
                    "no such region of phone numbers",
                    got=region,
                    expected="two letters, such as US, GB or DE",
                )

    def without_names(self) -> Detector:
        """Return a detector of the same regions that looks for no names."""
        return Detector(self._regions)

    def find(self, text: str, names: Collection[str] = ()) -> Iterator[Match]:
        """Yield all findings in a text, repeated ones too; `names` are the words that are names in its row."""
        # A lone surrogate cannot be encoded; it is no part of a secret.
        for secret in self._secrets.scan(text.encode("utf-8", "replace")):
            if secret.visible:
                yield Match("secret", secret.rule_id, secret.secret)
        for start, end, kind in find_personal_data(text, self._kinds, self._regions, names):
            part = text[start:end]
            if kind != "email" or not _NOBODY.search(plain_address(part).lower()):
                yield Match(kind, kind, part)

    def names_in_row(self, row: Mapping[str, Any]) -> set[str]:
        """Return the words that a text of the row marks as names; none where names are not looked for."""
        if "name" not in self._kinds:
            return set()
        # JSON only as it is read: a `"name": "Search"` in it may be a tool's.
        return {word for text in texts(row, raw_json=False) for word in marked_words(text)}

    def find_in_row(self, row: Mapping[str, Any]) -> tuple[int, list[Match]]:
        """Return the number of texts in a row, and the findings in them, each once."""
        matches: dict[Match, None] = {}
        number, names = 0, self.names_in_row(row)
        for text in texts(row):
            number += 1
            matches.update(dict.fromkeys(self.find(text, names)))
        return number, list(matches)


@cache
def _secret_scanner() -> Any:
    """Return the scanner, compiled once a process: some five hundred rules take a second (ten the first time on a
    machine; they are kept in the user's cache)."""
    try:
        import kingfisher_sdk
    except ImportError:
        raise missing_extra("kingfisher-secret-scanner", "push") from None
    with resources.as_file(resources.files(__package__) / "secrets.yml") as own:
        return kingfisher_sdk.Scanner(kingfisher_sdk.Rules([str(own)]))


def texts(value: Any, key: str = "", *, raw_json: bool = True) -> Iterator[str]:
    """Yield all texts within a value, each after its key; JSON within a text is read too.

    They include all that redaction would replace in a request. A key without a text is a text itself if it may hold
    personal data.

    Args:
        value: a row, or a part of one.
        key: the word before a text.
        raw_json: yield JSON as it is written, too, besides the texts in it.
    """
    if isinstance(value, str):
        inner = read_json(value)
        if value and (raw_json or inner is None):
            yield f"{key}: {value}" if key else value
        if inner is not None:
            yield from texts(inner, raw_json=raw_json)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if not (isinstance(item, str) and item) and _MAY_BE_PERSONAL.search(str(name)):
                yield str(name)
            yield from texts(item, label(str(name), value), raw_json=raw_json)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item, key, raw_json=raw_json)
    elif isinstance(value, int) and abs(value) >= 10**11:
        yield f"{key}: {value}"


def read_json(text: str) -> Any:
    """Return the object or list that a text holds as JSON; None where it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def label(key: str, within: Mapping[str, Any]) -> str:
    """Return the word that stands before a text: its key, or `tool` for the name of a tool or metric, which is nobody's."""
    is_thing = not _THINGS_KEYS.isdisjoint(within) or within.get("role") == "tool"
    return "tool" if key == "name" and is_thing else key


def scan_files(
    files: Mapping[str, Path], detector: Detector, out: IO[bytes], *, row_ids: Collection[str]
) -> Findings:
    """Scan every row of Parquet files, all that a report holds, and every paragraph of text files.

    Args:
        files: path in the repository to the file on disk.
        detector: finds secrets and personal data.
        out: a JSON line is written to it for each finding, masked.
        row_ids: columns that identify a row; the first that a row has is used.
    """
    findings = Findings()
    for name, path in files.items():
        rows = _READERS.get(path.suffix, _lines)(path)
        for at, row in enumerate(rows):
            number, matches = detector.find_in_row(row)
            findings.texts += number
            findings.rows += 1
            row_id = next((str(row[key]) for key in row_ids if row.get(key)), "")
            names = set()
            for match in matches:
                masked = mask(match.kind, match.text)
                finding = ScanFinding(match.name, match.kind, match.rule, name, at, row_id, masked)
                findings.add(finding)
                names.add(finding.name)
                out.write(orjson.dumps(finding) + b"\n")
            findings.rows_by_name.update(names)
    return findings


def mask(kind: FindingKind, text: str) -> str:
    """Return what may be shown of a finding: enough to find it again in its row, too little to use it."""
    flat = " ".join(text.split())
    if kind == "email":
        name, _, domain = plain_address(flat).partition("@")
        return f"{name[0]}…@{domain[0]}….{domain.rsplit('.', 1)[-1]}"
    if kind == "name":
        return " ".join(f"{word[0]}…" for word in flat.split())
    if kind in ("phone", "card", "id"):
        return re.sub(r"\d", "•", flat[:-2]) + flat[-2:]
    return f"{flat[:4]}… ({plural(len(text), 'character')})"


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with readable(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH):
            yield from batch.to_pylist()


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    # Whole paragraphs: a key in PEM form goes over several lines.
    for part in path.read_text(encoding="utf-8").split("\n\n"):
        yield {"": part}


_READERS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    ".parquet": _parquet_rows,
    ".html": unpacked_rows,
}
