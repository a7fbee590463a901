"""The dataset card: front matter that the Hub takes, and a page that says what the data is and is not.

The page is a template, `card.md`, filled with what the run's own files say. Whether a judge was ever measured
against people stands first, because every other figure depends on it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.metadata import version
from typing import Any, Final

import yaml

from curate.errors import PACKAGE, CurateError, UsageError, installed_from, requirement
from curate.publishing.judgments import BINS, DialogueCounts
from curate.publishing.local_paths import published, shortened
from curate.publishing.measured import MeasuredTrust, first_sentence, measured_parts
from curate.publishing.published_tables import PublishedFile
from curate.publishing.run_funnel import FunnelStep
from curate.publishing.scan import Findings
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    VERDICTS,
    JudgeIdentity,
    Manifest,
    MetricsReport,
)
from curate.report.charts import Panel, curve, distributions
from curate.trust.failure_modes import mode_rows
from curate.trust.judge_checks import described
from curate.untrusted import visible

_SIZES: Final = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
    (10_000_000_000, "1B<n<10B"),
)
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_DESCRIBED: Final = {
    "sft": "dialogues to train on; `messages` (and `tools` where a dialogue has some) are the trainer's columns",
    "dpo": "preference pairs that the judge made and verified; `prompt`, `chosen`, `rejected` (and `tools`) are "
    "the trainer's columns",
    "dpo_natural": "preference pairs that came with the data, in the same columns. `basis` says what holds that "
    "chosen is better: a preference, a rank, a label or a reward of the data",
    "judgments": "the scores of every dialogue of the run, selected or not, without its text; joined by `dialogue_id`. "
    "A score that could not be had is null, and `unscored` says why",
}
SCORE_PLOT: Final = "plots/scores.svg"
ADHERENCE_PLOT: Final = "plots/adherence.svg"
_TRAINED: Final = ("sft", "dpo", "dpo_natural")
"""Configs that TRL loads."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card is made of.

    Attributes:
        repo: owner/name.
        title: the heading, and `pretty_name`.
        manifest: of the run.
        files: what is pushed.
        columns: the trainer's columns of each config.
        funnel: steps that add up.
        tally: counts of the judgments.
        licences: identifiers of the Hub, at least one; see `check_licences`.
        languages: ISO 639 codes; may be empty.
        findings: what the scan of the tables found; all of it was allowed, or the push stops.
        measured: what was measured of the judge on this run.
        plots: the pictures' paths in the repository.
        report: that of the report, where it is pushed.
        redacted: rows in which something was replaced, by kind of finding.
    """

    repo: str
    title: str
    manifest: Manifest
    files: Sequence[PublishedFile]
    columns: Mapping[str, Sequence[str]]
    funnel: Sequence[FunnelStep]
    tally: DialogueCounts
    licences: Sequence[str]
    languages: Sequence[str]
    findings: Findings
    measured: MeasuredTrust = field(default_factory=MeasuredTrust)
    plots: Collection[str] = ()
    report: str = ""
    redacted: Mapping[str, int] = field(default_factory=dict)


def make_card(facts: CardFacts) -> str:
    """The whole of README.md, its front matter checked.

    Raises:
        CurateError: the front matter is not what the Hub takes.
    """
    manifest = facts.manifest
    page = _template().render(
        title=facts.title,
        version=version(PACKAGE),
        install=_install(),
        manifest=manifest,
        measured=first_sentence(manifest, facts.measured.agreement),
        parts=list(measured_parts(manifest, facts.measured)),
        plots=facts.plots,
        report=facts.report,
        names=_names(facts.files),
        described=_DESCRIBED,
        configs=_configs(facts.files),
        repo=facts.repo,
        loaded=_loaded(facts.files),
        columns={name: json.dumps(list(columns)) for name, columns in facts.columns.items()},
        funnel=[(step.name, f"{step.whole:,}", step.sum) for step in facts.funnel],
        scores=[*_scores(facts.tally), *_metrics(manifest.metrics)],
        judges=_judges(manifest),
        decisions=_decisions(manifest),
        judge_checks=_judge_checks(manifest),
        failure_modes=mode_rows(checks.failure_modes) if (checks := manifest.judge_checks) else [],
        sources=_sources(facts),
        recipe=yaml.safe_dump(published(manifest.recipe), sort_keys=False, allow_unicode=True),
        redacted=[f"{name} ({count:,})" for name, count in sorted(facts.redacted.items())],
        findings=[f"{name} ({count:,})" for name, count in sorted(facts.findings.counts.items())],
    )
    card = visible(f"---\n{front_matter(facts)}---\n\n{page}")
    check_card(card)
    return card


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"cell": _cell, "shortened": shortened}
    return environment.from_string(
        (resources.files(__package__) / "card.md").read_text(encoding="utf-8")
    )


def front_matter(facts: CardFacts) -> str:
    """The YAML at the head of the card, without its fences."""
    licences = list(facts.licences)
    configs: list[dict[str, Any]] = []
    for name in _names(facts.files):
        splits = dict.fromkeys(file.split for file in facts.files if file.config == name)
        paths = [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in splits]
        configs.append({"config_name": name, "data_files": paths})
    configs[0]["default"] = True
    pairs = ["dpo", "preference"] if {"dpo", "dpo_natural"} & {*_names(facts.files)} else []
    data: dict[str, Any] = {
        "license": licences[0] if len(licences) == 1 else licences,
        **({"language": list(facts.languages)} if facts.languages else {}),
        "pretty_name": facts.title,
        "size_categories": [_size(sum(file.rows for file in facts.files))],
        "task_categories": ["text-generation"],
        "tags": ["curate", "conversational", "llm-as-a-judge", *pairs, "trl"],
        "configs": configs,
    }
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def check_card(card: str) -> None:
    """Raises CurateError for front matter that the Hub or `datasets` would not take, as far as that can be
    known without asking them."""
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard

    try:
        data: Any = DatasetCard(card).data
        read = MetadataConfigs.from_dataset_card_data(data)
        read.get_default_config_name()
    except (ValueError, TypeError) as error:
        raise CurateError(
            "the card's front matter is not valid",
            got=error,
            fix="check --title, --license and --language",
        ) from error
    if not read or not data.license or not data.size_categories:
        raise CurateError(
            "the card's front matter is not whole",
            got=", ".join(data.to_dict()),
            expected="configs, license and size_categories",
        )


def known_licences() -> list[str]:
    """The identifiers the Hub knows."""
    return (resources.files(__package__) / "licences.txt").read_text().split()


def check_licences(given: Sequence[str], sources: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The licences of what is pushed, each once.

    Args:
        given: on the command line; they stand for all sources.
        sources: the recipe's sources, as the manifest has them.

    Raises:
        UsageError: a source has none, or one has another name on the Hub.
    """
    known = known_licences()
    found = list(given) or [str(source.get("license") or "") for source in sources]
    if not all(found):
        without = [
            shortened(str(source.get("name") or source.get("path")))
            for source in sources
            if not source.get("license")
        ]
        raise UsageError(
            "nothing is pushed without the licence of its source",
            got=f"no licence of {', '.join(without)}",
            expected="the identifier the Hub uses: apache-2.0, mit, cc-by-4.0, cc-by-nc-4.0, other, …",
            fix="write it as source.license in the recipe and run it again (no model calls), or give "
            "--license to this command",
        )
    for licence in found:
        if licence not in known:
            close = difflib.get_close_matches(licence.lower().replace(" ", "-"), known, n=3)
            raise UsageError(
                "the Hub knows no licence of that name",
                got=licence,
                expected=", ".join(close) or "apache-2.0, mit, cc-by-4.0, …, or other",
            )
    return tuple(dict.fromkeys(found))


def check_languages(given: Iterable[str]) -> tuple[str, ...]:
    """Languages given by the user; raises UsageError for what is no ISO 639 code."""
    languages = tuple(given)
    for language in languages:
        if not is_language(language):
            raise UsageError(
                "not a code of a language",
                got=language,
                expected="an ISO 639 code in small letters, such as en, de or zh",
            )
    return languages


def is_language(code: str) -> bool:
    """True for what looks like an ISO 639-1, -2 or -3 code."""
    return _LANGUAGE.fullmatch(code) is not None


def _install() -> str:
    """Where to get curate, as far as this installation tells; the place of a clone on this machine is not told."""
    if installed_from()[1]:
        return "`pip install -e .` in a clone of its repository"
    return f"`pip install '{requirement()}'`"


def _names(files: Iterable[PublishedFile]) -> list[str]:
    return list(dict.fromkeys(file.config for file in files))


def _configs(files: Sequence[PublishedFile]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in _names(files):
        of = [file for file in files if file.config == name]
        splits = dict.fromkeys(file.split for file in of)
        said = [f"{sum(f.rows for f in of if f.split == split):,} {split}" for split in splits]
        rows.append((f"`{name}`", ", ".join(said), str(len(of))))
    return rows


def _loaded(files: Iterable[PublishedFile]) -> list[str]:
    """The configs with rows to train on."""
    with_rows = {file.config: None for file in files if file.split == "train" and file.rows}
    return [name for name in with_rows if name in _TRAINED]


def _scores(tally: DialogueCounts) -> list[dict[str, Any]]:
    """Tables, each with a sentence before it."""
    parts = []
    groups = [name for name in ("all", "sft") if name in tally.scores or name in tally.adherence]
    for group in groups:
        of = "All dialogues that were scored" if group == "all" else "Those in `sft`"
        if group in tally.verdicts:
            verdicts = tally.verdicts[group]
            counts = ", ".join(f"{name} {verdicts[name]:,}" for name in reversed(VERDICTS))
            said = f"**{of}.** Verdicts: {counts}."
            parts.append({"said": said} | _dimensions(tally.scores[group]))
        if group in tally.adherence:
            tenths = tally.adherence[group]
            heads = [f"{at / BINS:.1f}" for at in range(BINS)]
            rows = [[f"{tenths[at]:,}" for at in range(BINS)]]
            said = f"{of}: role adherence, by the tenth it begins with."
            parts.append({"said": said, "heads": heads, "rows": rows})
    return parts


def score_plots(manifest: Manifest, tally: DialogueCounts) -> dict[str, str]:
    """Pictures of how scores are distributed and of role adherence by reply, by path in the repository."""
    plots = {}
    levels = ("1", "2", "3", "4", "5")
    scores = tally.scores.get("all", {})
    panels = [
        Panel(
            f"{name.replace('_', ' ')} ({'turns' if name in TURN_DIMENSIONS else 'dialogues'})",
            levels,
            [scores[name][level] for level in levels],
            [tally.scores.get("sft", {}).get(name, Counter())[level] for level in levels],
        )
        for name in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)
        if name in scores
    ]
    if "all" in tally.adherence:
        selected = tally.adherence.get("sft", Counter())
        panels.append(
            Panel(
                "role adherence (dialogues)",
                [f".{at}" for at in range(BINS)],
                [tally.adherence["all"][at] for at in range(BINS)],
                [selected[at] for at in range(BINS)],
            )
        )
    if panels:
        plots[SCORE_PLOT] = distributions(
            "Scores", panels, ("all that were scored", "those in sft")
        )
    positions = manifest.adherence.positions if manifest.adherence else ()
    points = [(one.position, one.mean, one.interval) for one in positions if one.mean is not None]
    if len(points) > 1:
        title = "Role adherence by reply, mean and 95 %"
        plots[ADHERENCE_PLOT] = curve(title, points, "n-th reply")
    return plots


def _metrics(report: MetricsReport | None) -> list[dict[str, Any]]:
    """The weighted metrics as one table, where the run has them. Failure codes are a judge's words and stay out."""
    if report is None or not report.dialogues:
        return []
    said = (
        f"Weighted metrics: {report.overall_mean:.1f} of 100 on average, {report.passed:,} of {report.dialogues:,} "
        f"dialogues pass; weights changed by up to 20 % would turn {report.flippable:,} of them round."
    )
    rows = [
        (
            name,
            f"{held.weight:.3f}",
            "-" if held.mean is None else f"{held.mean:.2f}",
            *(f"{number:,}" for number in (held.scored, held.na, held.poor)),
        )
        for name, held in report.metrics.items()
    ]
    heads = ("metric", "weight", "mean", "scored", "n/a", "poor")
    return [{"said": said, "heads": heads, "rows": rows}]


def _dimensions(scores: Mapping[str, Counter[str]]) -> dict[str, Any]:
    heads = ("dimension", "1", "2", "3", "4", "5", "n/a")
    names = [name for name in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS) if name in scores]
    rows = [
        (
            f"{name} ({'turns' if name in TURN_DIMENSIONS else 'dialogues'})",
            *(f"{scores[name][value]:,}" for value in heads[1:]),
        )
        for name in names
    ]
    return {"heads": heads, "rows": rows}


def _judges(manifest: Manifest) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for stage, identity in manifest.identities.items():
        several = [JudgeIdentity.model_validate(one) for one in identity.sampling.get("judges", ())]
        for at, judge in enumerate(several or [identity], start=1):
            rows.append(
                (
                    f"{stage}, {identity.engine} {at}" if several else stage,
                    judge.engine,
                    shortened(judge.model),
                    judge.revision or "-",
                    judge.quantisation or "-",
                    judge.mode or "-",
                    judge.prompt_version or "-",
                )
            )
    models = manifest.recipe.get("models") or {}
    for role in ("policy", "reviser"):
        config = models.get(role)
        if config and manifest.recipe.get("fork"):
            model = shortened(str(config.get("model", "-")))
            rows.append((role, str(config.get("engine", "-")), model, "-", "-", "-", "-"))
    return rows


def _decisions(manifest: Manifest) -> list[str]:
    """What decided about the pairs, and how far the judge agrees with the labels that the data has."""
    names = {"fork": "pairs of `dpo`", "natural": "pairs of `dpo_natural`"}
    said = [
        f"What decided about the {names[kind]}: {text}."
        for kind, text in manifest.pair_decisions.items()
    ]
    if manifest.label_agreement is not None:
        text = manifest.label_agreement.described
        said.append(f"{text[0].upper()}{text[1:]}.")
    return said


def _judge_checks(manifest: Manifest) -> list[str]:
    """How several judges divide or agree, and how often the judge disagrees with itself, a sentence each."""
    lines = described(manifest.judge_checks) if manifest.judge_checks is not None else []
    several = [
        f"{name}: {report.sentence}".rstrip(".")
        for name, report in (("jury", manifest.jury), ("cascade", manifest.cascade))
        if report is not None
    ]
    return [f"{line[0].upper()}{line[1:]}." for line in (*several, *lines)]


def _sources(facts: CardFacts) -> list[tuple[str, ...]]:
    configs = facts.manifest.recipe.get("source") or []
    rows: list[tuple[str, ...]] = []
    for at, source in enumerate(facts.manifest.sources):
        config = configs[at] if at < len(configs) else {}
        path: Any = config.get("path") or source.get("path") or ""
        rows.append(
            (
                str(source.get("name")),
                ", ".join(
                    shortened(str(item)) for item in ([path] if isinstance(path, str) else path)
                ),
                " ".join(
                    str(config[key]) for key in ("config", "split", "revision") if config.get(key)
                )
                or "-",
                str(source.get("shape")),
                config.get("license") or ", ".join(facts.licences),
                f"{source.get('rows_in', 0):,}",
                f"{source.get('dialogues', 0):,}",
            )
        )
    return rows


def _size(rows: int) -> str:
    return next((name for limit, name in _SIZES if rows < limit), "n>1T")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
