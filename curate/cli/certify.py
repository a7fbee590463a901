"""`curate certify`: what people's labels prove of a set of a run, or how many it will take."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, DataDimension, DataLabel, print_json
from curate.cli.printing import number_table
from curate.cli.sample import Of
from curate.errors import UsageError
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from rich.table import Table

    from curate.records import Certificate
    from curate.run.question import Question

RATES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07)
POWERS = (0.8, 0.9)
ANY_SIZE = 20_000
"""Members of a set that is not named, for an audit that may stop."""


def certify(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Run folder; with --plan not needed.")
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Argument(
            metavar="GOLD",
            help="Labels: the file of `curate sample`, filled in, or CSV, JSONL or Parquet with id or content, "
            "value, and where needed dimension, turn, rater; of pairs pair_id and better.",
        ),
    ] = None,
    dimension: DataDimension = None,
    label: DataLabel = "label",
    bad: Annotated[
        str | None,
        typer.Option(
            help="What is bad: a condition over the labels' dimensions, as 'human < 3', or a label, as poor. By "
            "default what reviewers reject (accept, verdict), of pairs those whose rejected side people prefer."
        ),
    ] = None,
    risk: Annotated[float, typer.Option(help="Share of bad ones that may be borne.")] = 0.1,
    confidence: Annotated[
        float, typer.Option(help="How sure the certificate is to be, above 0.5 and below 1.")
    ] = 0.9,
    of: Of = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Find the loosest threshold on this score (mean_score, adherence, overall_score, p_good, any "
            "column of numbers; of pairs evidence, probability, preference, margin)."
        ),
    ] = None,
    anytime: Annotated[
        bool, typer.Option("--anytime", help="The labels were looked at while they came in.")
    ] = False,
    hold_out: Annotated[
        float,
        typer.Option(
            help="The share that `curate agreement --hold-out` left out while prompts were chosen: only these "
            "labelled dialogues certify."
        ),
    ] = 0.0,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say how many labels it will take; no labels needed.")
    ] = False,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="With --plan: a share of bad ones that you expect; repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File of an issued certificate, for select.certificate or fork.certificate."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Certify that at most a share of a set is bad, with a confidence, from labels of a sample; no model calls.

    Certified is the set that the labels were drawn from to certify it, else the SFT set, as it is, or with --column
    the loosest threshold that holds. Exit code 1 where the
    labels cannot show it. The certificate is kept in the run folder, its sentence in manifest, `show` and card.
    """
    from curate.records import TrustKind
    from curate.run.certify import certify_run, keep_certificate
    from curate.run.drawn_labels import given_labels
    from curate.run.question import Question
    from curate.storage.whole_files import write_record

    question = Question(bad, risk, confidence, of, column, anytime, hold_out)
    question.check()
    if plan:
        _plan(run, question, rate, as_json=as_json)
        return
    if rate:
        raise UsageError("--rate is what one expects before there are labels", fix="add --plan")
    if run is None or (gold is None and dimension is None):
        raise UsageError(
            "a certificate rests on labels",
            got="no GOLD" if run else "no RUN and no GOLD",
            expected="curate certify RUN GOLD, --dimension with the data's own labels, or --plan",
            fix="`curate sample RUN -n 200` draws what to label",
        )
    given = given_labels(run, gold, dimension, label)
    certificate = keep_certificate(run, certify_run(run, given, question), given)
    place = None
    if certificate.issued:
        pairs = certificate.kind is TrustKind.PAIR_CERTIFICATE
        place = out or Path("pair-certificate.json" if pairs else "certificate.json")
        write_record(place, certificate)
    if as_json:
        print_json(certificate.model_dump(mode="json"))
    else:
        _show(certificate, place)
    if not certificate.issued:
        raise typer.Exit(exit_codes.FAILED)


def _show(certificate: Certificate, place: Path | None) -> None:
    from curate.records import TrustKind

    held, labels = certificate.certified, certificate.labels
    for reason, number in labels.unused.items():
        OUT.print(
            f"[yellow]not used:[/yellow] {plural(number, 'row')}: {escape(reason)}", soft_wrap=True
        )
    if certificate.steps:
        OUT.print(_steps(certificate))
    origin = f"draw {labels.draw}" if labels.draw else "labels of unknown origin"
    figure = (
        f"e-value {certificate.evidence:.3g}, asked for is {1 / (1 - certificate.confidence):.3g}"
        if certificate.evidence is not None
        else f"p {certificate.p_value:.3g}, asked for is at most {1 - certificate.confidence:.3g}"
    )
    OUT.print(
        f"{certificate.test}, {origin}: {labels.bad} bad of {labels.drawn:,} ({labels.missing} of them without a label); "
        f"{figure}; upper bound {certificate.bound:.3f}",
        soft_wrap=True,
    )
    word = "[green]certified[/green]" if certificate.issued else "[red]no certificate[/red]"
    OUT.print(f"{word}: {escape(certificate.sentence)}", soft_wrap=True)
    if place is not None:
        section = "fork" if certificate.kind is TrustKind.PAIR_CERTIFICATE else "select"
        usable = held.of != "natural_pairs"  # those are certified as they are
        used = (
            f"; a recipe uses it as `{section}: {{certificate: {escape(str(place))}}}`"
            if usable
            else ""
        )
        OUT.print(f"written: {escape(str(place))}{used}", soft_wrap=True)


def _steps(certificate: Certificate) -> Table:
    table = number_table(certificate.certified.column or "", "kept", "labels", "bad", "p", "")
    for step in certificate.steps:
        table.add_row(
            f">= {step.threshold:.4g}",
            f"{step.kept:,}",
            f"{step.labelled:,}",
            str(step.bad),
            f"{step.p_value:.3f}",
            "holds" if step.passed else "stop",
        )
    return table


def _plan(
    run: Path | None, question: Question, rates: list[float] | None, *, as_json: bool
) -> None:
    """How many labels it takes, for the shares of bad ones that one expects."""
    from curate.run.populations import SFT, named_set, promised_members
    from curate.trust.guarantee import anytime_labels, first_labels, labels_for, least_labels

    wrong = [rate for rate in rates or () if not 0 <= rate < 1]
    if wrong:
        raise UsageError("--rate is a share", got=wrong[0], expected="0 or more and below 1")
    risk, error = question.risk, question.error
    of = question.of or SFT
    size = None if run is None else promised_members(run, of, question.column).height
    expected = sorted(set(rates)) if rates else [rate for rate in RATES if rate < risk]
    least = {bad: least_labels(bad, risk, error, size) for bad in (0, 1, 2, 3, 5, 10)}
    if size is not None:
        least = {bad: labels for bad, labels in least.items() if labels < size or not bad}
    if question.test == "anytime":
        needed = {
            rate: anytime_labels(rate, risk, error, POWERS, size or ANY_SIZE) for rate in expected
        }
    else:
        needed = {
            rate: tuple(labels_for(rate, risk, error, power, size) for power in POWERS)
            for rate in expected
        }
    if as_json:
        print_json(
            {
                "risk": risk,
                "confidence": question.confidence,
                "size": size,
                "test": question.test,
                "least_labels": {str(bad): labels for bad, labels in least.items()},
                "labels": {
                    str(rate): {str(p): n for p, n in zip(POWERS, held, strict=True)}
                    for rate, held in needed.items()
                },
            }
        )
        return
    if question.test == "threshold":
        OUT.print(
            f"A threshold on {escape(question.column or '')} is looked for from the strictest on: the first that is tried has "
            f"at least {plural(first_labels(200, risk, error), 'label')} at or above it, and {first_labels(300, risk, error):,} where 300 "
            "are labelled in all. So draw 200 or more, the fewer of the set are good the more; what follows holds for the "
            "labels at or above a threshold.",
            soft_wrap=True,
        )
    whole = f" of the {size:,} {named_set(of)}" if size is not None else ""
    OUT.print(
        f"At most {100 * risk:.3g} %{escape(whole)} bad, with {100 * question.confidence:.3g} % confidence."
        + (
            ""
            if question.test == "anytime"
            else " It passes with so many bad ones among so many labels, or more labels:"
        ),
        soft_wrap=True,
    )
    if question.test != "anytime":
        table = number_table("bad ones", *map(str, least))
        table.add_row("labels", *(f"{labels:,}" for labels in least.values()))
        OUT.print(table)
    OUT.print(
        "Labels after which it has passed, looked at one by one (of 2,000 simulated audits), where this share is bad in truth:"
        if question.test == "anytime"
        else "Labels to draw so that it passes, where this share is bad in truth:",
        soft_wrap=True,
    )
    table = number_table("bad in truth", *(f"in {power:.0%} of cases" for power in POWERS))
    for rate, held in needed.items():
        never = "never" if rate >= risk else "too many"
        table.add_row(f"{100 * rate:.3g} %", *(never if n is None else f"{n:,}" for n in held))
    OUT.print(table)
    shown = {rate: held for rate, held in needed.items() if held[-1] is not None}
    if not shown:
        OUT.print(
            "No number of labels can be counted on: the share expected is at or near the risk."
        )
        return
    likely = max(shown)
    OUT.print(
        f"If {100 * likely:.3g} % are bad, draw {shown[likely][-1]:,}: `curate sample {escape(str(run or 'RUN'))} -n "
        f"{shown[likely][-1]}{'' if of == SFT else f' --of {escape(shlex.quote(of))}'}`.",
        soft_wrap=True,
    )
