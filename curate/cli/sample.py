"""`curate sample`: draws what people are to label, and writes it for them to answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, print_json
from curate.errors import UsageError
from curate.wording import plural

if TYPE_CHECKING:
    from curate.run.sample import Sampled

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
        Literal["certify", "agreement", "calibrate"], typer.Option("--for", help="What for.")
    ] = "certify",
    of: Of = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Column: draw from each fifth of it in proportion, of words from each word, so that none is left out."
        ),
    ] = None,
    dimension: Annotated[
        list[str] | None,
        typer.Option(
            help="What to ask of each dialogue, as accept, coherence, metric_<name>; repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 42,
    tool: Annotated[
        str | None,
        typer.Option(help="Write what label-studio or argilla imports, into the folder --out."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to fill in, .csv or .jsonl (default labels.csv), or a page to answer in, .html; with --tool a folder."
        ),
    ] = None,
    risk: Annotated[
        float, typer.Option(help="Of the certificate: the share of bad ones that may be borne.")
    ] = 0.1,
    confidence: Annotated[
        float, typer.Option(help="Of the certificate; a page counts the answers towards both.")
    ] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Draw at random what people are to label, and write it for them to answer.

    The draw is recorded with the run, so that `curate certify` knows which labels are of it. For a certificate it
    is drawn from the SFT set by default, else from all scored dialogues.
    """
    from curate.run.sample import sample as sample_run
    from curate.trust.gold import GOOD

    asked = _asked(purpose, risk, confidence)
    if purpose == "certify" and dimension and not {*dimension} & {*GOOD}:
        asked += f' --bad "{dimension[0]} < 3"'
    out = out or Path("labels.csv" if tool is None else f"labels-{tool}")
    made = sample_run(
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
        print_json(made.draw.model_dump(mode="json") | {"out": str(out), "rows": made.rows})
        return
    _show(made)
    OUT.print(_next_step(made, run, out, tool, asked), soft_wrap=True)


def _show(made: Sampled) -> None:
    draw = made.draw
    drawn = sum(stratum.drawn for stratum in draw.strata)
    OUT.print(
        f"draw {draw.id}: {drawn:,} of {made.size:,} {escape(made.named)}, seed {draw.seed}",
        soft_wrap=True,
    )
    if made.used_to_fit:
        OUT.print(
            f"[yellow]{made.used_to_fit:,} more fitted the judge's calibration[/yellow] and are not drawn: a certificate says "
            "nothing of them.",
            soft_wrap=True,
        )
    if draw.by is not None:
        for stratum in draw.strata:
            chance = stratum.drawn / stratum.size
            OUT.print(
                f"  {escape(draw.by)} {stratum.name}: {stratum.drawn:,} of {stratum.size:,}, each with chance {chance:.3f}"
            )
    if len(draw.sizes) > 1:
        OUT.print(
            f"[yellow]made larger:[/yellow] {' then '.join(map(str, draw.sizes))} labels; only `curate certify "
            "--anytime` holds for such a draw.",
            soft_wrap=True,
        )


def _asked(purpose: str, risk: float, confidence: float) -> str:
    """The options of `curate certify` that differ from its own."""
    given = f" --risk {risk:g}" if risk != 0.1 else ""
    given += f" --confidence {confidence:g}" if confidence != 0.9 else ""
    if given and purpose != "certify":
        raise UsageError(
            "only a certificate has a risk and a confidence",
            got=f"--for {purpose}{given}",
            fix="leave them out",
        )
    return given


def _next_step(made: Sampled, run: Path, out: Path, tool: str | None, asked: str) -> str:
    """What was written, and what to do with it."""
    draw = made.draw
    bad = ", where one left empty counts as bad" if draw.purpose == "certify" else ""

    def then(file: object, more: str = "") -> str:
        return f"`curate {draw.purpose} {escape(f'{run} {file}')}{asked}{more}`{bad}."

    if tool == "label-studio":
        return (
            f"written: {escape(str(out))}, {made.rows:,} tasks. In a new project of Label Studio paste config.xml as the "
            "labelling interface and import tasks.json; export the answers as JSON, then "
            + then("export.json")
        )
    if tool == "argilla":
        return (
            f"written: {escape(str(out))}, {made.rows:,} records. In Python rg.Dataset.from_disk({str(out)!r}) makes the "
            "dataset in Argilla, and its to_disk('answers') exports it; then "
            + then("answers/records.json")
        )
    if out.suffix.lower() == ".html":
        anytime = " --anytime" if draw.purpose == "certify" and draw.by is None else ""
        return (
            f"written: {escape(str(out))}, {made.rows:,} to answer. It holds what was drawn, without the judge's scores. Open it "
            "in a browser, answer from the top, export; then "
            + then(f"labels-{draw.run}.jsonl", anytime)
        )
    column = "better (a, b or tie)" if draw.of in ("pairs", "natural_pairs") else "value"
    return (
        f"written: {escape(str(out))}, {plural(made.rows, 'row')}. Fill in the column {column} of each row, from the top; then "
        + then(out)
    )
