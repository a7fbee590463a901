"""`curate certify`: certify a set of a run by people's labels, or plan how many labels that takes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, DataDimension, DataLabel, print_json, print_line
from curate.cli.printing import number_table
from curate.cli.sample import Of
from curate.errors import UsageError
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from rich.table import Table

    from curate.records import Certificate
    from curate.run.labels.label_plan import LabelPlan


def certify(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Run folder; optional with --plan.")
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Argument(
            metavar="GOLD",
            help="Labels: the file of `curate sample`, filled in, or CSV, JSONL or Parquet with id or content, "
            "value, and if needed dimension, turn, rater; for pairs pair_id and better.",
        ),
    ] = None,
    dimension: DataDimension = None,
    label: DataLabel = "label",
    bad: Annotated[
        str | None,
        typer.Option(
            help="What is bad: a condition over the labels' dimensions, e.g. 'human < 3', or a label, e.g. poor "
            "(default: what reviewers reject by accept or verdict; pairs whose rejected side people prefer)."
        ),
    ] = None,
    risk: Annotated[float, typer.Option(help="Largest acceptable share of bad ones.")] = 0.1,
    confidence: Annotated[
        float, typer.Option(help="Confidence of the certificate, above 0.5 and below 1.")
    ] = 0.9,
    of: Of = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Find the loosest threshold on this score (mean_score, adherence, overall_score, p_good, any "
            "column of numbers; for pairs evidence, probability, preference, margin)."
        ),
    ] = None,
    anytime: Annotated[
        bool,
        typer.Option(
            "--anytime",
            help="The labels were looked at while they came in: use the test that allows it.",
        ),
    ] = False,
    hold_out: Annotated[
        float,
        typer.Option(
            help="The share given to `curate agreement --hold-out` while prompts were chosen: only the labelled "
            "dialogues that it left out certify."
        ),
    ] = 0.0,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print how many labels it will take; needs none.")
    ] = False,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="With --plan: a share of bad ones that you expect. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write an issued certificate to, for select.certificate or fork.certificate "
            "(default certificate.json, for pairs pair-certificate.json)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Certify that at most a share of a set is bad, with a confidence, from labels of a sample; no model calls.

    The set is the one that the labels were drawn from to certify it, else the SFT set: as it is, or with --column
    above the loosest threshold that holds. Exit code 1 if the labels cannot show it. The certificate is kept in the
    run folder; the manifest, `show` and the card repeat its sentence.
    """
    from curate.records import TrustKind
    from curate.run.labels.certify import certify_run, keep_certificate
    from curate.run.labels.given_labels import given_labels
    from curate.run.labels.label_plan import plan_labels
    from curate.run.labels.question import Question
    from curate.storage.whole_files import write_record

    question = Question(bad, risk, confidence, of, column, anytime, hold_out)
    question.check()
    if plan:
        label_plan = plan_labels(run, question, rate or ())
        if as_json:
            print_json(label_plan.as_dict())
        else:
            _show_plan(label_plan)
            _show_labels_to_draw(label_plan, run)
        return
    if rate:
        raise UsageError("--rate is only for --plan", got=f"--rate {rate[0]:g}", fix="add --plan")
    if run is None or (gold is None and dimension is None):
        raise UsageError(
            "a certificate needs labels",
            got="no GOLD" if run else "no RUN and no GOLD",
            expected="curate certify RUN GOLD, --dimension with the data's own labels, or --plan",
            fix="`curate sample RUN -n 200` draws what to label",
        )
    labels = given_labels(run, gold, dimension, label)
    certificate = keep_certificate(run, certify_run(run, labels, question), labels)
    path = None
    if certificate.issued:
        pairs = certificate.kind is TrustKind.PAIR_CERTIFICATE
        path = out or Path("pair-certificate.json" if pairs else "certificate.json")
        write_record(path, certificate)
    if as_json:
        print_json(certificate)
    else:
        _show(certificate, path)
    if not certificate.issued:
        raise typer.Exit(exit_codes.FAILED)


def _show(certificate: Certificate, path: Path | None) -> None:
    from curate.records import TrustKind

    labels = certificate.labels
    for reason, number in labels.unused.items():
        print_line(f"[yellow]not used:[/yellow] {plural(number, 'row')}: {escape(reason)}")
    if certificate.steps:
        OUT.print(_steps(certificate))
    origin = f"draw {labels.draw}" if labels.draw else "labels of unknown origin"
    figure = (
        f"e-value {certificate.evidence:.3g} (needed: {1 / (1 - certificate.confidence):.3g} or more)"
        if certificate.evidence is not None
        else f"p {certificate.p_value:.3g} (needed: {1 - certificate.confidence:.3g} or less)"
    )
    print_line(
        f"{certificate.test}, {origin}: {labels.bad} bad of {labels.drawn:,} ({labels.missing} of them without a label); "
        f"{figure}; upper bound {certificate.bound:.3f}"
    )
    word = "[green]certified[/green]" if certificate.issued else "[red]no certificate[/red]"
    print_line(f"{word}: {escape(certificate.sentence)}")
    if path is not None:
        section = "fork" if certificate.kind is TrustKind.PAIR_CERTIFICATE else "select"
        # Natural pairs are certified as they are: no recipe applies their certificate.
        usage = (
            ""
            if certificate.certified.of == "natural_pairs"
            else f"; a recipe uses it as `{section}: {{certificate: {escape(str(path))}}}`"
        )
        print_line(f"written: {escape(str(path))}{usage}")


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


def _show_plan(plan: LabelPlan) -> None:
    """Print the claim to certify and with how many bad ones among how many labels it passes."""
    from curate.run.labels.populations import SFT, named_set
    from curate.trust.guarantee import first_labels

    question, size = plan.question, plan.size
    if question.test == "threshold":
        first, first_of_300 = (
            first_labels(labels, question.risk, question.error) for labels in (200, 300)
        )
        print_line(
            f"Thresholds on {escape(question.column or '')} are tried from the strictest down: the first has at least "
            f"{plural(first, 'label')} at or above it, and {first_of_300:,} where 300 are labelled in all. So draw 200 or "
            "more, and more the fewer of the set are good; what follows holds for the labels at or above a threshold."
        )
    whole = f" of the {size:,} {named_set(question.of or SFT)}" if size is not None else ""
    claim = f"At most {100 * question.risk:.3g} %{escape(whole)} bad, with {100 * question.confidence:.3g} % confidence."
    if question.test == "anytime":
        print_line(claim)
        return
    print_line(f"{claim} It passes with this many bad ones among this many labels, or more labels:")
    table = number_table("bad ones", *map(str, plan.least))
    table.add_row("labels", *(f"{labels:,}" for labels in plan.least.values()))
    OUT.print(table)


def _show_labels_to_draw(plan: LabelPlan, run: Path | None) -> None:
    """Print how many labels to draw by true share of bad ones, and the command that draws them."""
    from curate.run.labels.label_plan import POWERS
    from curate.run.labels.populations import SFT

    question = plan.question
    of = question.of or SFT
    print_line(
        "Labels after which it passes, looked at one by one (in 2,000 simulated audits), if this share is truly bad:"
        if question.test == "anytime"
        else "Labels to draw so that it passes, if this share is truly bad:"
    )
    table = number_table("truly bad", *(f"in {power:.0%} of cases" for power in POWERS))
    for rate, counts in plan.needed.items():
        never = "never" if rate >= question.risk else "too many"
        table.add_row(f"{100 * rate:.3g} %", *(never if n is None else f"{n:,}" for n in counts))
    OUT.print(table)
    possible = {rate: counts[-1] for rate, counts in plan.needed.items() if counts[-1] is not None}
    if not possible:
        OUT.print(
            "No number of labels is enough to rely on: the expected share is at or near the risk."
        )
        return
    likely = max(possible)
    print_line(
        f"If {100 * likely:.3g} % are bad, draw {possible[likely]:,}: `curate sample {escape(str(run or 'RUN'))} -n "
        f"{possible[likely]}{'' if of == SFT else f' --of {escape(shlex.quote(of))}'}`."
    )
