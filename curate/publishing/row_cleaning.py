"""Redaction of findings in single rows, and rows that are left out of a push because of their findings.

Cleaned rows are scanned like everything that is pushed, so a finding that could not be replaced still stops the push.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from curate.publishing.scan import Detector, is_among, label, read_json
from curate.storage.parquet_files import is_json, json_array


@dataclass(slots=True)
class RowCleaner:
    """Clean batches of rows, and count.

    Attributes:
        detector: finds secrets and personal data.
        redact: names of findings (`email`, `name`, `secret`, `secret:<rule>`) to replace by their kind in brackets.
        leave_out: names of findings whose rows are left out.
        redacted: number of rows with a replacement, by name.
        left_out: number of rows left out, by config, each under the first of its findings.
    """

    detector: Detector
    redact: Collection[str] = ()
    leave_out: Collection[str] = ()
    redacted: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def clean(self, config: str, table: Any) -> Any:
        """Return the rows of an Arrow table that are pushed, redacted."""
        import pyarrow as pa

        if not self.redact and not self.leave_out:
            return table
        rows = table.to_pylist()
        stays, redacted = [], []
        for at, row in enumerate(rows):
            names = sorted({match.name for match in self.detector.find_in_row(row)[1]})
            out = [name for name in names if is_among(name, self.leave_out)]
            stays.append(not out)
            if out:
                self.left_out[config][out[0]] += 1
            elif replaced := [name for name in names if is_among(name, self.redact)]:
                self.redacted.update(replaced)
                redacted.append((at, self.detector.names_in_row(row)))
        for number, column in enumerate(table.schema if redacted else ()):
            values = table.column(number).to_pylist()
            for at, people in redacted:
                values[at] = self._redacted(values[at], people)
            if is_json(column.type):
                values = [[orjson.loads(item) for item in row] for row in values]
            to_array = json_array if is_json(column.type) else pa.array
            table = table.set_column(number, column, to_array(values, column.type))
        return table.filter(pa.array(stays))

    def _redacted(self, value: Any, people: Collection[str], key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {
                name: self._redacted(item, people, label(str(name), value))
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._redacted(item, people, key) for item in value]
        if not isinstance(value, str):
            return value
        if (inner := read_json(value)) is not None:
            redacted = self._redacted(inner, people)
            return value if redacted == inner else orjson.dumps(redacted).decode()
        return self._redacted_text(value, people, key)

    def _redacted_text(self, text: str, people: Collection[str], key: str) -> str:
        matches = set(self.detector.find(f"{key}: {text}" if key else text, people))
        # The longest first, so that `Ann` does not take `Ann Lee` apart.
        for match in sorted(matches, key=lambda match: (-len(match.text), match)):
            if is_among(match.name, self.redact):
                part = re.escape(match.text)
                pattern = rf"(?<!\w){part}(?!\w)" if match.kind == "name" else part
                text = re.sub(pattern, f"[{match.kind}]", text)
        return text
