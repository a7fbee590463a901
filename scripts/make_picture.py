"""Draw the README's picture: what a finished run prints, as an SVG. `make_picture.py RUN OUT.svg`."""

from __future__ import annotations

import argparse
from io import StringIO
from pathlib import Path

from rich.console import Console

from curate.cli.closing import show_run
from curate.run.read_back import read_manifest
from curate.run.result import RunResult


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    console = Console(record=True, width=80, file=StringIO(), force_terminal=True, highlight=False)
    show_run(console, RunResult(options.run, read_manifest(options.run)))
    options.out.write_text(console.export_svg(title=f"curate run recipes/{options.run.name}.yaml"))


if __name__ == "__main__":
    main()
