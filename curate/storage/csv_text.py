"""Detection of a CSV file's delimiter."""

from __future__ import annotations

import csv
import io


def csv_delimiter(header: str) -> str:
    """Return the delimiter of a CSV file with this first line: `;` or a tab where `,` gives one column.

    Excel writes semicolons where the decimal sign is a comma, and tabs in its "Unicode text".
    """
    columns = {sign: _column_count(header, sign) for sign in ",;\t"}
    return "," if columns[","] > 1 else max(columns, key=lambda sign: columns[sign])


def _column_count(header: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader(io.StringIO(header, newline=""), delimiter=delimiter), []))
    except csv.Error:  # a name that is longer than a field may be
        return 0
