"""`curate sample`: draws what people are to label, and writes it as a file to fill in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import OUT, print_json
from curate.errors import UsageError

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
        str, typer.Option("--for", help="What for: certify, agreement or calibrate.")
    ] = "certify",
    of: Of = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Column: draw from each fifth of it in proportion, so that none is left out."
        ),
    ] = None,
    dimension: Annotated[
        list[str] | None,
        typer.Option(help="What to ask of each dialogue, as accept, coherence; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 42,
    out: Annotated[Path, typer.Option(help="File to fill in, .csv or .jsonl.")] = Path(
        "labels.csv"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Draw at random what people are to label, and write it as a file to fill in.

    The draw is recorded with the run, so that `curate certify` knows which labels are of it. For a certificate it
    is drawn from the SFT set by default, else from all scored dialogues.
    """
    from curate.run.sample import PURPOSES, sample_run

    if purpose not in PURPOSES:
        raise UsageError("unknown value of --for", got=purpose, expected=", ".join(PURPOSES))
    made = sample_run(
        run,
        labels,
        out=out,
        purpose=purpose,
        of=of,
        by=by,
        seed=seed,
        dimensions=dimension or (),
    )
    if as_json:
        print_json(made.draw.model_dump(mode="json") | {"out": str(out), "rows": made.rows})
        return
    _show(made, run, out)


def _show(made: Sampled, run: Path, out: Path) -> None:
    draw = made.draw
    drawn = sum(stratum.drawn for stratum in draw.strata)
    OUT.print(
        f"draw {draw.id}: {drawn:,} of {made.size:,} {escape(made.named)}, seed {draw.seed}",
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
    column = "better (a, b or tie)" if draw.of in ("pairs", "natural_pairs") else "value"
    OUT.print(
        f"written: {escape(str(out))}, {made.rows:,} rows. Fill in the column {column} of each row, from the top; then "
        f"`curate {draw.purpose} {escape(str(run))} {escape(str(out))}`"
        + (", where a row left empty counts as bad." if draw.purpose == "certify" else "."),
        soft_wrap=True,
    )
