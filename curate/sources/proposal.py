"""Mappings for rows of no known shape: used where they are certain, otherwise proposed to the user.

A mapping is certain where every speaker's name tells the role, nothing was guessed or left out, and nearly all rows can
be read.
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
from curate.sources.unit_result import ODD_ROW, Draft, RawRow, SourceRow, UnreadableError, scalar_id

CERTAIN = 0.95
LEAST = 0.5
_FIRST = 3


@dataclass(frozen=True, slots=True)
class Proposal:
    """A mapping and the result of trying it on a sample.

    Attributes:
        mapping: the mapping.
        settings: the mapping's settings in a recipe.
        description: the structure, in words.
        doubts: points that the user has to check.
        rows: number of rows of the sample, laid out by the mapping.
        rows_read: number of these rows that the mapping reads.
        unread: number of the other rows by reason.
        example: messages of the first dialogue read.
    """

    mapping: Mapping
    settings: dict[str, Any]
    description: str
    doubts: tuple[str, ...]
    rows: int
    rows_read: int
    unread: dict[str, int]
    example: tuple[Message, ...]

    @property
    def yaml(self) -> str:
        """Return the mapping as YAML for a recipe's `source.mapping`."""
        return mapping_yaml(self.settings)

    def as_dict(self) -> dict[str, Any]:
        """Return the proposal as `--json` prints it."""
        return {
            "mapping": self.settings,
            "found": self.description,
            "doubts": list(self.doubts),
            "rows_sampled": self.rows,
            "rows_read": self.rows_read,
            "unread": self.unread,
            "example": [message.model_dump(exclude_defaults=True) for message in self.example],
        }


class UnknownShapeError(UsageError):
    """A source has no known shape; `proposal` is a mapping that would read it, if one was found."""

    def __init__(self, problem: str, got: str, proposal: Proposal | None) -> None:
        self.proposal = proposal
        fix = "set source.shape if it is one of these, or describe it as source.mapping (docs/sources.md)"
        if proposal is not None:
            fix += (
                f"; a mapping that reads {proposal.rows_read} of {proposal.rows} sampled rows was found: "
                "`curate ingest` with the source's path shows it, `--accept` writes it"
            )
        super().__init__(problem, got=got, expected=f"one of: {', '.join(NAMES)}", fix=fix)


def refuse_shape(
    abstention: Abstention, label: str, proposal: Proposal | None = None
) -> UsageError:
    """Return the error for a source whose shape cannot be decided."""
    if abstention.ambiguous:
        return UsageError(
            f"the shape of {label} is ambiguous",
            got=abstention.reason,
            expected="one shape that most rows fit",
            fix=f"set source.shape to one of: {', '.join(abstention.shares)}",
        )
    if not abstention.parsed:
        return UsageError(
            f"the shape of {label} is not known",
            got=abstention.reason,
            expected="rows that can be read, in UTF-8 unless source.encoding names another",
            fix="fix the file, or set source.encoding",
        )
    return UnknownShapeError(f"the shape of {label} is not known", abstention.reason, proposal)


def detect_structure(values: Sequence[Any], sampled: int) -> Detection | None:
    """Return the mapping of a file's rows as a detection; None where none is certain.

    Args:
        values: the rows that could be parsed.
        sampled: number of sampled rows, with those that could not.
    """
    proposals = list(_proposals([list(values)]))
    # several that read the same count as one: a list of speakers beside a list of texts is found from either
    certain = [
        proposal
        for proposal in proposals
        if not proposal.doubts
        and proposal.rows_read >= CERTAIN * proposal.rows
        and not proposal.mapping.rows
    ]
    if not certain or any(other.example != certain[0].example for other in certain):
        return None
    if any(
        proposal.mapping.rows and proposal.rows_read > certain[0].rows_read
        for proposal in proposals
    ):
        return None  # the file may be one object of many dialogues
    best = certain[0]
    reason = f"{best.description}; {best.rows_read} of {best.rows} sampled rows can be read so"
    return Detection(
        "mapping", best.rows_read / best.rows, sampled, reason=reason, mapping=best.mapping
    )


def propose(files: Sequence[Sequence[Any]]) -> Proposal | None:
    """Return the mapping that reads most rows of the files; None where none reads half of them."""
    proposals = [
        proposal for proposal in _proposals(files) if proposal.rows_read >= LEAST * proposal.rows
    ]
    return max(proposals, key=_worth, default=None)


def _worth(proposal: Proposal) -> tuple[float, int, int]:
    share = round(proposal.rows_read / proposal.rows, 1)
    guesses = sum("in turn" in doubt or "guessed" in doubt for doubt in proposal.doubts)
    return share - 0.2 * guesses, -len(proposal.doubts), proposal.rows_read


def _proposals(files: Sequence[Sequence[Any]]) -> Iterator[Proposal]:
    """Try every candidate on the rows unchanged and in other layouts.

    A file of one row may be one object with many dialogues, and a file of objects may be one dialogue. Rows with several
    dialogues each are tried only where nothing else reads half of the rows.
    """
    reads_half = False
    singles = [values[0] for values in files if len(values) == 1]
    selectors = dict.fromkeys(selector for value in singles for selector in row_selectors(value))
    if all(len(values) > 1 and all(isinstance(one, dict) for one in values) for values in files):
        selectors["."] = None
    plain = [as_mapped_row(value) for values in files for value in values]
    for selector, rows in ((None, plain), *_laid(files, selectors)):
        for proposal in _proposals_for(rows, selector):
            reads_half |= proposal.rows_read >= LEAST * proposal.rows
            yield proposal
    if not reads_half:
        several = [value for values in files for value in values[:_FIRST] if len(values) > 1]
        within = dict.fromkeys(name for value in several for name in row_selectors(value))
        within.pop("*", None)
        for selector, rows in _laid(files, within):
            yield from _proposals_for(rows, selector)


def _proposals_for(rows: Sequence[SourceRow | None], selector: str | None) -> Iterator[Proposal]:
    for candidate in candidates([row for row in rows if row is not None][:SAMPLE]):
        proposal = _try(candidate, rows, selector)
        if proposal is not None and proposal.rows_read:
            yield proposal


def _laid(
    files: Sequence[Sequence[Any]], selectors: Iterable[str]
) -> Iterator[tuple[str, list[SourceRow | None]]]:
    """Yield the rows of the files laid out by each selector that finds any."""
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
    candidate: ProposedMapping, rows: Sequence[SourceRow | None], selector: str | None
) -> Proposal | None:
    objects = [row for row in rows if row is not None]
    settings = (
        ({"rows": selector} if selector else {}) | candidate.mapping | _beside(objects, candidate)
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
    rows_read = len(rows) - unread.total()
    description, doubts = candidate.description, candidate.doubts
    return Proposal(
        mapping, settings, description, doubts, len(rows), rows_read, dict(unread), example
    )


def _read(mapping: Mapping, row: SourceRow | None) -> Draft | str:
    """Return the first dialogue that a mapping reads in a row, or the reason code why there is none."""
    if row is None:
        return "not_an_object"
    try:
        return mapping.read(row).drafts[0]
    except UnreadableError as fault:
        return fault.reason
    except ODD_ROW:
        return "unreadable"


def share_read(mapping: Mapping | None, values: Sequence[Any]) -> float:
    """Return the share of rows (0-1) that a mapping reads; 0 without a mapping or rows."""
    if mapping is None or not values:
        return 0.0
    rows = map(as_mapped_row, values)
    return sum(isinstance(_read(mapping, row), Draft) for row in rows) / len(values)


def _beside(rows: Sequence[SourceRow], candidate: ProposedMapping) -> dict[str, Any]:
    """Return settings for fields beside the messages that have known names: the id and the scenario."""
    keys = {
        key.lower(): key
        for row in rows[:20]
        for key in row
        if key not in str(candidate.mapping["each"])
    }
    compact = {name.replace("_", ""): key for name, key in keys.items()}
    beside: dict[str, Any] = {}
    for name in (*ID_KEYS, "dialogueid", "conversationid", "convo_id"):
        key = keys.get(name) or compact.get(name)
        ids = [scalar_id(row.get(key)) for row in rows] if key else []
        if key and all(ids) and len(set(ids)) == len(ids):
            beside["id"] = key
            break
    scenario = next((keys[name] for name in SCENARIO_KEYS if name in keys), None)
    if scenario and all(isinstance(row.get(scenario), str | None) for row in rows):
        beside["scenario"] = scenario
    return beside


def mapping_yaml(settings: dict[str, Any]) -> str:
    """Return a mapping's settings as YAML, with one line for each key and each message."""
    lines = []
    for key, value in settings.items():
        if key == "messages":
            lines += ["messages:", *(f"  - {flow(message)}" for message in value)]
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines)


def flow(value: Any) -> str:
    """Return a value as YAML in one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text.strip().removesuffix("...").strip()
