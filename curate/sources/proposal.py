"""A mapping for rows of no known shape: read where it is certain, proposed where it is not.

It is certain where every speaker is called by a name that says a role, nothing was guessed or left out, and nearly all
rows can be read; everything else is the user's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from curate.dialogue import Message
from curate.errors import UsageError
from curate.sources.detect import SAMPLE, Abstention, Detection, as_mapped_row
from curate.sources.fields import ID_KEYS, SCENARIO_KEYS
from curate.sources.formats import NAMES
from curate.sources.mapping import Mapping
from curate.sources.row_layout import laid_out
from curate.sources.structure import candidates, row_selectors
from curate.sources.structure_objects import ProposedMapping
from curate.sources.unit_result import Draft, RawRow, Row, UnreadableError, scalar_id

CERTAIN = 0.95
LEAST = 0.5
_FIRST = 3


@dataclass(frozen=True, slots=True)
class Proposal:
    """A mapping, tried on a sample.

    Attributes:
        mapping: that would read the rows.
        settings: the same as a recipe has it.
        found: what was seen, in words.
        doubts: what the user has to look at.
        rows: of the sample, laid out as the mapping says.
        rows_read: of these, rows that it reads.
        unread: the others, by the reason why not.
        example: the first dialogue it reads.
    """

    mapping: Mapping
    settings: dict[str, Any]
    found: str
    doubts: tuple[str, ...]
    rows: int
    rows_read: int
    unread: dict[str, int]
    example: tuple[Message, ...]

    @property
    def yaml(self) -> str:
        """The mapping as a recipe's `source` holds it."""
        return mapping_yaml(self.settings)

    def as_dict(self) -> dict[str, Any]:
        """Return the proposal as `--json` prints it."""
        return {
            "mapping": self.settings,
            "found": self.found,
            "doubts": list(self.doubts),
            "rows_sampled": self.rows,
            "rows_read": self.rows_read,
            "unread": self.unread,
            "example": [message.model_dump(exclude_defaults=True) for message in self.example],
        }


class UnknownShapeError(UsageError):
    """A source has no known shape; `proposal` is the mapping that would read it, if one was found."""

    def __init__(self, problem: str, got: str, proposal: Proposal | None) -> None:
        self.proposal = proposal
        fix = "set source.shape if it is one of these, or describe it as source.mapping (docs/sources.md)"
        if proposal is not None:
            fix += (
                f"; a mapping that reads {proposal.rows_read} of {proposal.rows} sampled rows was found: "
                "`curate ingest` with the source's path shows it, `--accept` writes it"
            )
        super().__init__(problem, got=got, expected=f"one of: {', '.join(NAMES)}", fix=fix)


def refuse_shape(found: Abstention, label: str, proposal: Proposal | None = None) -> UsageError:
    """The error for a source whose shape cannot be named."""
    if found.ambiguous:
        return UsageError(
            f"the shape of {label} is ambiguous",
            got=found.reason,
            expected="one shape that most rows fit",
            fix=f"set source.shape to one of: {', '.join(found.shares)}",
        )
    if not found.parsed:
        return UsageError(
            f"the shape of {label} is not known",
            got=found.reason,
            expected="rows that can be read, in UTF-8 where nothing else is said",
            fix="fix the file, or name its encoding as source.encoding",
        )
    return UnknownShapeError(f"the shape of {label} is not known", found.reason, proposal)


def detect_structure(values: Sequence[Any], sampled: int) -> Detection | None:
    """The mapping of a file's rows, where it is certain.

    Args:
        values: the rows that could be parsed.
    """
    tried = list(_tried([list(values)]))
    # Two ways that read the same are one: a list of speakers beside a list of texts is found from either.
    certain = [
        one
        for one in tried
        if not one.doubts and one.rows_read >= CERTAIN * one.rows and not one.mapping.rows
    ]
    if not certain or any(other.example != certain[0].example for other in certain):
        return None
    if any(one.mapping.rows and one.rows_read > certain[0].rows_read for one in tried):
        return None  # the file may be one object of many dialogues
    only = certain[0]
    reason = f"{only.found}; {only.rows_read} of {only.rows} sampled rows can be read so"
    return Detection(
        "mapping", only.rows_read / only.rows, sampled, reason=reason, mapping=only.mapping
    )


def propose(files: Sequence[Sequence[Any]]) -> Proposal | None:
    """The mapping that reads most of the rows of files, if one reads half of them."""
    tried = [one for one in _tried(files) if one.rows_read >= LEAST * one.rows]
    return max(tried, key=_worth, default=None)


def _worth(tried: Proposal) -> tuple[float, int, int]:
    share = round(tried.rows_read / tried.rows, 1)
    guesses = sum("in turn" in doubt or "guessed" in doubt for doubt in tried.doubts)
    return share - 0.2 * guesses, -len(tried.doubts), tried.rows_read


def _tried(files: Sequence[Sequence[Any]]) -> Iterator[Proposal]:
    """Every candidate, tried on the rows as they came and laid out otherwise.

    A file that is one row may be one object of many, and a file of objects one dialogue; rows of several dialogues
    each are looked for where nothing else reads half of the rows.
    """
    found = False
    singles = [values[0] for values in files if len(values) == 1]
    selectors = dict.fromkeys(selector for value in singles for selector in row_selectors(value))
    if all(len(values) > 1 and all(isinstance(one, dict) for one in values) for values in files):
        selectors["."] = None
    plain = [as_mapped_row(value) for values in files for value in values]
    for selector, rows in ((None, plain), *_laid(files, selectors)):
        for tried in _tried_on(rows, selector):
            found |= tried.rows_read >= LEAST * tried.rows
            yield tried
    if not found:
        several = [value for values in files for value in values[:_FIRST] if len(values) > 1]
        within = dict.fromkeys(name for value in several for name in row_selectors(value))
        within.pop("*", None)
        for selector, rows in _laid(files, within):
            yield from _tried_on(rows, selector)


def _tried_on(rows: Sequence[Row | None], selector: str | None) -> Iterator[Proposal]:
    for candidate in candidates([row for row in rows if row is not None][:SAMPLE]):
        tried = _try(candidate, rows, selector)
        if tried is not None and tried.rows_read:
            yield tried


def _laid(
    files: Sequence[Sequence[Any]], selectors: Iterable[str]
) -> Iterator[tuple[str, list[Row | None]]]:
    """The rows of files as each selector lays them out, where it finds any."""
    for selector in selectors:
        laid = [
            as_mapped_row(raw.value)
            for values in files
            for raw in laid_out((RawRow(at, value) for at, value in enumerate(values, 1)), selector)
            if raw.fault is None
        ]
        if laid:
            yield selector, laid


def _try(
    candidate: ProposedMapping, rows: Sequence[Row | None], selector: str | None
) -> Proposal | None:
    known = [row for row in rows if row is not None]
    settings = (
        ({"rows": selector} if selector else {}) | candidate.mapping | _beside(known, candidate)
    )
    try:
        mapping = Mapping.model_validate(settings)
    except ValidationError:
        return None
    unread: Counter[str] = Counter()
    example: tuple[Message, ...] = ()
    for row in rows:
        draft = _read(mapping, row)
        if isinstance(draft, str):
            unread[draft] += 1
        else:
            example = example or draft.messages
    read = len(rows) - unread.total()
    found, doubts = candidate.found, candidate.doubts
    return Proposal(mapping, settings, found, doubts, len(rows), read, dict(unread), example)


def _read(mapping: Mapping, row: Row | None) -> Draft | str:
    """The first dialogue that a mapping reads in a row, or the reason why there is none."""
    if row is None:
        return "not_an_object"
    try:
        return mapping.read(row).drafts[0]
    except UnreadableError as fault:
        return fault.reason
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        return "unreadable"


def share_read(mapping: Mapping | None, values: Sequence[Any]) -> float:
    """The share of rows, as they came, that a mapping reads; 0 without one, or without rows."""
    if mapping is None or not values:
        return 0.0
    rows = map(as_mapped_row, values)
    return sum(isinstance(_read(mapping, row), Draft) for row in rows) / len(values)


def _beside(rows: Sequence[Row], candidate: ProposedMapping) -> dict[str, Any]:
    """Propose, by known names, fields beside the messages: the id, the scenario."""
    folded = {
        key.lower(): key
        for row in rows[:20]
        for key in row
        if key not in str(candidate.mapping["each"])
    }
    compact = {name.replace("_", ""): key for name, key in folded.items()}
    beside: dict[str, Any] = {}
    for name in (*ID_KEYS, "dialogueid", "conversationid", "convo_id"):
        key = folded.get(name) or compact.get(name)
        ids = [scalar_id(row.get(key)) for row in rows] if key else []
        if key and all(ids) and len(set(ids)) == len(ids):
            beside["id"] = key
            break
    scenario = next((folded[name] for name in SCENARIO_KEYS if name in folded), None)
    if scenario and all(isinstance(row.get(scenario), str | None) for row in rows):
        beside["scenario"] = scenario
    return beside


def mapping_yaml(settings: dict[str, Any]) -> str:
    """A mapping as YAML: a line a key, a message in one line."""
    lines = []
    for key, value in settings.items():
        if key == "messages":
            lines += ["messages:", *(f"  - {flow(message)}" for message in value)]
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines)


def flow(value: Any) -> str:
    """A value as YAML in one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text.strip().removesuffix("...").strip()
