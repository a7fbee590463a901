"""Detection of a CSV file's delimiter."""

from __future__ import annotations

import csv


def csv_delimiter(header: str) -> str:
    """Return the delimiter of a CSV file with this first line: `;` or a tab where `,` gives one column.

    Excel writes semicolons where the decimal sign is a comma, and tabs in its "Unicode text".
    """
    columns = {sign: len(next(csv.reader([header], delimiter=sign), [])) for sign in ",;\t"}
    return "," if columns[","] > 1 else max(columns, key=lambda sign: columns[sign])
