"""Write `schemas/*.schema.json` from the models, or with `--check` say whether they have drifted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import orjson

from curate.cli.schema import json_schema, schema_names

FOLDER = Path(__file__).resolve().parent.parent / "schemas"


def wanted() -> dict[str, bytes]:
    """Return content by file name."""
    return {
        f"{name}.schema.json": orjson.dumps(
            json_schema(name), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        )
        for name in schema_names()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 on drift")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    files = wanted()
    present = {path.name: path.read_bytes() for path in folder.glob("*.schema.json")}
    drifted = sorted(
        name for name in files.keys() | present.keys() if files.get(name) != present.get(name)
    )
    if arguments.check:
        for name in drifted:
            print(f"{folder / name} is not what the models say; run scripts/make_schemas.py")
        return 1 if drifted else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in drifted:
        if name in files:
            (folder / name).write_bytes(files[name])
        else:
            (folder / name).unlink()
        print(f"{name} {'written' if name in files else 'removed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
