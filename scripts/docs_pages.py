"""The pages of the site that are made, not written: the front page of README, and the reference of the CLI and the models.

A hook of mkdocs (`mkdocs.yml`): nothing is copied into `docs/`, so nothing there can go stale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    files.append(
        File.generated(config, "quickstart.svg", abs_src_path=str(ROOT / "docs/quickstart.svg"))
    )
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files of the repository that are no pages by their text."""
    return re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)


def pages() -> dict[str, str]:
    """Return the text of each page by its path."""
    return {
        "index.md": front_page(),
        "changes.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "reference/commands.md": commands_page(),
        "reference/recipe.md": recipe_page(),
        "reference/records.md": records_page(),
        "reference/reasons.md": reasons_page(),
        "reference/python.md": python_page(),
    }


def front_page() -> str:
    """Return README; its links into `docs/` stay, others become their text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    here = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*")}

    def linked(match: re.Match[str]) -> str:
        place = match[2].partition("#")[0]
        return match[0] if place in here or place.startswith("http") else match[1]

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)]+)\)", linked, text)


def commands_page() -> str:
    """Return every command with its arguments and options, as `--help` shows them."""
    import typer
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from curate.cli import app

    command = get_command(app)
    context = typer.Context(command, info_name="curate")
    text = get_docs_for_click(obj=command, ctx=context, name="curate")
    # Rich markup of help texts is for the terminal.
    return text.replace("# `curate`", "# Commands", 1)


def recipe_page() -> str:
    """Return every key of a recipe."""
    from curate.cli.schema import json_schema

    return "\n".join(
        [
            "# The recipe",
            "",
            "Every key, its type, default and meaning; `curate schema recipe` prints the same as a JSON Schema. "
            "How the sections work together is in [Running recipes](../running.md).",
            "",
            *_model(json_schema("recipe"), "Top level"),
        ]
    )


def records_page() -> str:
    """Return every record that is written to a run folder."""
    from curate.cli.schema import json_schema
    from curate.records.validation import RECORDS

    lines = ["# Records", "", "What stages and commands write; `curate schema NAME` prints each."]
    for name in RECORDS:
        schema = json_schema(name)
        lines += ["", f"## {name}", "", _cell(schema["description"].partition("\n\n")[0])]
        lines += ["", *_table(schema)]
    return "\n".join(lines)


def reasons_page() -> str:
    """Return the codes by which what is left out is counted."""
    from curate.records.reasons import DropReason, QuarantineReason, Reason, UnscoredReason

    tables: dict[str, type[Reason]] = {
        "Quarantined rows": QuarantineReason,
        "Unscored": UnscoredReason,
        "Dropped pairs": DropReason,
    }
    lines = ["# Reasons", "", "Nothing is dropped silently: each row that is left out has one."]
    for heading, reasons in tables.items():
        lines += ["", f"## {heading}", "", "| code | meaning |", "|---|---|"]
        lines += [f"| `{reason.value}` | {_cell(reason.meaning)} |" for reason in reasons]
    return "\n".join(lines)


def python_page() -> str:
    """Return every public name by kind."""
    import curate

    lines = ["# Python API", "", "Every public name of `curate`. `import curate` is enough."]
    kinds: dict[str, list[str]] = {"Functions": [], "Configs, records and errors": []}
    for name in curate.__all__:
        is_class = isinstance(getattr(curate, name), type)
        kinds["Configs, records and errors" if is_class else "Functions"].append(name)
    for heading, names in kinds.items():
        lines += ["", f"## {heading}", ""]
        for name in names:
            home = getattr(curate, name)
            place = (
                f"{home.__module__}.{home.__qualname__}" if hasattr(home, "__module__") else name
            )
            lines += [f"::: {place}", "    options:", "      heading_level: 3", ""]
    return "\n".join(lines)


def _model(schema: Mapping[str, Any], heading: str) -> Iterator[str]:
    """Return a model as a section with a table, then those it refers to."""
    inner = {name: held for name, held in schema["$defs"].items() if "properties" in held}
    for name, held in {heading: schema, **inner}.items():
        yield from ("", f"## {name}", "", _cell(held.get("description", "")), "")
        yield from _table(held, inner)


def _table(schema: Mapping[str, Any], sections: Collection[str] = ()) -> Iterator[str]:
    """Return the keys of a model; types that have a section on the page are links to it."""
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    required = schema.get("required", ())
    for name, held in schema.get("properties", {}).items():
        default = held.get("default", {})
        said = "required" if name in required else f"`{_short(default)}`"
        if isinstance(default, dict) and name not in required:
            said = "its own"
        meaning = _cell(held.get("description", ""))
        yield f"| `{name}` | {_cell(_type(held, sections))} | {_cell(said)} | {meaning} |"


def _type(held: Mapping[str, Any], sections: Collection[str]) -> str:
    if "$ref" in held:
        name = str(held["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in sections else name
    if "const" in held:
        return _short(held["const"])
    if "enum" in held:
        return ", ".join(map(_short, held["enum"]))
    for union in ("anyOf", "oneOf"):
        if union in held:
            return " or ".join(dict.fromkeys(_type(one, sections) for one in held[union]))
    kind = held.get("type", "anything")
    if kind == "array" and "items" in held:
        return f"list of {_type(held['items'], sections)}"
    return str(kind) if isinstance(kind, str) else ", ".join(kind)


def _short(value: Any) -> str:
    """Return a value as YAML, shortened if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) < 60 else text[:57] + "…"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")
