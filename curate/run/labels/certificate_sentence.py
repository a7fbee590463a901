"""The sentence of a certificate: what it promises, or why it promises nothing and what would help."""

from __future__ import annotations

from curate.records import Certificate, TrustKind
from curate.run.labels.drawn_labels import REJECTED_PREFERRED
from curate.run.labels.populations import named_set
from curate.wording import plural

UNKNOWN_ORIGIN = "The labels are of unknown origin: this holds only if they were drawn at random."


def sentence_of(certificate: Certificate) -> str:
    """Return the sentence of a certificate, or why there is none."""
    certified, labels = certificate.certified, certificate.labels
    bad = f"bad ({certificate.bad})"
    if certificate.kind is TrustKind.PAIR_CERTIFICATE and certificate.bad == REJECTED_PREFERRED:
        bad = "the wrong way round (people prefer the rejected side)"
    at = (
        f" with {certified.column} of {certified.threshold:.4g} or more"
        if certified.threshold is not None
        else ""
    )
    promise = f"at most {_percent(certificate.risk)} of the {certified.size:,} {named_set(certified.of)}{at} are {bad}"
    sample = {"draw": f"{labels.drawn:,} drawn at random", "all": f"all {labels.drawn:,}"}.get(
        labels.origin, f"{labels.drawn:,} labelled"
    )
    missing = f", with {labels.missing} that have no label" if labels.missing else ""
    evidence = f"{labels.bad} of {sample} are{missing}"
    confidence = f"{_percent(certificate.confidence)} confidence"
    earlier = plural(certificate.earlier_attempts, "other question")
    if certificate.issued and certificate.earlier_attempts:
        sentence = (
            f"With {_percent(certificate.joint_confidence)} confidence {promise}: {evidence}. (It would be "
            f"{_percent(certificate.confidence)} for this question alone; {earlier} about such bad ones came before it.)"
        )
    elif certificate.issued:
        sentence = f"With {confidence} {promise}: {evidence}."
    elif certificate.is_spent:
        sentence = (
            f"Nothing is promised: {earlier} about such bad ones came before this one, each with a chance of "
            f"{_percent(1 - certificate.confidence)} to be answered wrongly, and with so many one of the answers is likely to "
            "be wrong. Ask with more --confidence, of a new draw."
        )
    else:
        sentence = (
            f"The labels cannot show that {promise}: {evidence}, so with {confidence} no more can be said than at most "
            f"{_percent(certificate.bound)}; {_what_would_help(certificate)}."
        )
    if certified.apart:
        why = "fitted the judge's calibration" + (
            " or chose its prompts" if labels.hold_out else ""
        )
        sentence += f" Nothing is promised of {certified.apart:,} more, whose labels {why}."
    if labels.origin == "unknown":
        sentence += f" {UNKNOWN_ORIGIN}"
    return sentence


def _what_would_help(certificate: Certificate) -> str:
    labels, more = certificate.labels, certificate.more_labels
    if more is not None and certificate.test == "anytime":
        return f"about {plural(more, 'more label')} of this draw would do if bad ones came at that rate"
    if more is not None:
        whole = labels.drawn + more
        draw = (
            "then all of them have one"
            if whole >= certificate.certified.size
            else f"a new draw of {whole:,}, with another --seed"
        )
        return f"it would take about {plural(more, 'more label')} if bad ones came at that rate ({draw})"
    if labels.drawn and labels.bad / labels.drawn >= certificate.risk:
        return "more labels would not help, for that share itself is not below the risk"
    return "no number of labels would do at that rate"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
