"""`curate sample`: draw what people will label, and write it for them to fill in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, print_json, print_line
from curate.errors import UsageError
from curate.wording import plural

if TYPE_CHECKING:
    from curate.run.labels.sample import Sampled

Of = Annotated[
    str | None,
    typer.Option(
        help="The set: sft, scored, all, pairs, natural_pairs, or an SQL condition over the score table."
    ),
]


def sample(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    labels: Annotated[int, typer.Option("-n", min=1, help="Dialogues or pairs to draw.")] = 200,
    purpose: Annotated[
        Literal["certify", "agreement", "calibrate"],
        typer.Option("--for", help="The command that the labels are for."),
    ] = "certify",
    of: Of = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Stratify by this column: draw in proportion from each fifth of its numbers, or from each of its words."
        ),
    ] = None,
    dimension: Annotated[
        list[str] | None,
        typer.Option(
            help="What to ask about each dialogue, e.g. accept, coherence, metric_<name>. Repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 42,
    tool: Annotated[
        str | None,
        typer.Option(help="label-studio or argilla: write what it imports into the folder --out."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to fill in, .csv or .jsonl (default labels.csv), or a page to label in, .html; with --tool a folder."
        ),
    ] = None,
    risk: Annotated[
        float, typer.Option(help="Of the certificate: largest acceptable share of bad ones.")
    ] = 0.1,
    confidence: Annotated[
        float,
        typer.Option(
            help="Confidence of the certificate. A page shows how far the answers are from proving it."
        ),
    ] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Draw at random what people will label, and write it for them to fill in.

    The draw is recorded with the run, so that `curate certify` knows which labels belong to it. By default it is
    from the SFT set for a certificate, else from all scored dialogues.
    """
    from curate.run.labels.sample import sample as sample_run
    from curate.trust.label_rows import GOOD

    options = _certify_options(purpose, risk, confidence)
    if purpose == "certify" and dimension and not {*dimension} & {*GOOD}:
        options += f' --bad "{dimension[0]} < 3"'
    out = out or Path("labels.csv" if tool is None else f"labels-{tool}")
    sampled = sample_run(
        run,
        labels,
        out=out,
        purpose=purpose,
        of=of,
        by=by,
        seed=seed,
        dimensions=dimension or (),
        tool=tool,
        risk=risk,
        confidence=confidence,
    )
    if as_json:
        print_json(sampled.draw.model_dump(mode="json") | {"out": str(out), "rows": sampled.rows})
        return
    _show(sampled)
    print_line(_next_step(sampled, run, out, tool, options))


def _show(sampled: Sampled) -> None:
    draw = sampled.draw
    drawn = sum(stratum.drawn for stratum in draw.strata)
    print_line(
        f"draw {draw.id}: {drawn:,} of {sampled.size:,} {escape(sampled.named)}, seed {draw.seed}"
    )
    if sampled.used_to_fit:
        print_line(
            f"[yellow]{sampled.used_to_fit:,} more were used to fit the judge's calibration[/yellow] and are not drawn: a "
            "certificate does not cover them."
        )
    if draw.by is not None:
        for stratum in draw.strata:
            chance = stratum.drawn / stratum.size
            OUT.print(
                f"  {escape(draw.by)} {stratum.name}: {stratum.drawn:,} of {stratum.size:,}, each with chance {chance:.3f}"
            )
    if len(draw.sizes) > 1:
        print_line(
            f"[yellow]enlarged:[/yellow] {' then '.join(map(str, draw.sizes))} labels; only `curate certify "
            "--anytime` is valid for such a draw."
        )


def _certify_options(purpose: str, risk: float, confidence: float) -> str:
    """Return the options of `curate certify` that are not its defaults.

    Raises:
        UsageError: there are some, and the labels are for another purpose.
    """
    options = f" --risk {risk:g}" if risk != 0.1 else ""
    options += f" --confidence {confidence:g}" if confidence != 0.9 else ""
    if options and purpose != "certify":
        raise UsageError(
            "only a certificate has a risk and a confidence",
            got=f"--for {purpose}{options}",
            fix="leave them out",
        )
    return options


def _next_step(sampled: Sampled, run: Path, out: Path, tool: str | None, options: str) -> str:
    """Return what was written and what to do with it."""
    from curate.run.labels.populations import is_of_pairs

    draw = sampled.draw
    bad = "; a row left empty counts as bad" if draw.purpose == "certify" else ""

    def then(file: object, more: str = "") -> str:
        return f"`curate {draw.purpose} {escape(f'{run} {file}')}{options}{more}`{bad}."

    if tool == "label-studio":
        return (
            f"written: {escape(str(out))}, {sampled.rows:,} tasks. In a new project of Label Studio paste config.xml as the "
            "labelling interface and import tasks.json; export the answers as JSON, then "
            + then("export.json")
        )
    if tool == "argilla":
        return (
            f"written: {escape(str(out))}, {sampled.rows:,} records. In Python rg.Dataset.from_disk({str(out)!r}) makes the "
            "dataset in Argilla, and its to_disk('answers') exports it; then "
            + then("answers/records.json")
        )
    if out.suffix.lower() == ".html":
        anytime = " --anytime" if draw.purpose == "certify" and draw.by is None else ""
        return (
            f"written: {escape(str(out))}, {sampled.rows:,} to label. The page shows what was drawn, without the judge's "
            "scores. Open it in a browser, answer from the top and export; then "
            + then(f"labels-{draw.run}.jsonl", anytime)
        )
    column = "better (a, b or tie)" if is_of_pairs(draw.of) else "value"
    return (
        f"written: {escape(str(out))}, {plural(sampled.rows, 'row')}. Fill in the column {column} of each row, from the top; then "
        + then(out)
    )
