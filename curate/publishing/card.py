"""The dataset card: front matter for the Hub, and a page on what the data is and is not.

The page is the template `card.md`, filled from the run's files. Its first sentence is how far the judge agrees with
people, because every other figure depends on it.
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
from curate.publishing.local_paths import published, without_folders
from curate.publishing.measured import MeasuredTrust, first_sentence, measured_parts
from curate.publishing.published_tables import EXPORTED, PublishedFile
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
from curate.trust.judge_checks import checks_in_words
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
    "A score that could not be obtained is null, and `unscored` says why",
}
SCORE_PLOT: Final = "plots/scores.svg"
ADHERENCE_PLOT: Final = "plots/adherence.svg"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """The facts a card is made of.

    Attributes:
        repo: owner/name.
        title: the heading, and `pretty_name`.
        manifest: the run's manifest.
        tables: the pushed tables.
        columns: the trainer's columns of each config.
        funnel: counts of rows at each step.
        tally: counts of the judgments.
        licences: the Hub's identifiers, at least one; see `check_licences`.
        languages: ISO 639 codes; may be empty.
        findings: findings of the scan of the tables; all are allowed, or the push stops.
        measured: reports on the judge of this run.
        plots: the pictures' paths in the repository.
        report: path of the report in the repository; empty if it is not pushed.
        redacted: number of rows with a replacement, by kind of finding.
    """

    repo: str
    title: str
    manifest: Manifest
    tables: Sequence[PublishedFile]
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
    """Return the text of README.md, with its front matter checked.

    Raises:
        CurateError: the Hub would not accept the front matter.
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
        names=_names(facts.tables),
        described=_DESCRIBED,
        configs=_configs(facts.tables),
        repo=facts.repo,
        loaded=_loaded(facts.tables),
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
    environment.filters |= {"cell": _cell, "without_folders": without_folders}
    return environment.from_string(
        (resources.files(__package__) / "card.md").read_text(encoding="utf-8")
    )


def front_matter(facts: CardFacts) -> str:
    """Return the YAML at the head of the card, without its fences."""
    licences = list(facts.licences)
    configs: list[dict[str, Any]] = []
    for name in _names(facts.tables):
        splits = dict.fromkeys(file.split for file in facts.tables if file.config == name)
        paths = [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in splits]
        configs.append({"config_name": name, "data_files": paths})
    configs[0]["default"] = True
    pairs = ["dpo", "preference"] if {"dpo", "dpo_natural"} & {*_names(facts.tables)} else []
    data: dict[str, Any] = {
        "license": licences[0] if len(licences) == 1 else licences,
        **({"language": list(facts.languages)} if facts.languages else {}),
        "pretty_name": facts.title,
        "size_categories": [_size(sum(file.rows for file in facts.tables))],
        "task_categories": ["text-generation"],
        "tags": ["curate", "conversational", "llm-as-a-judge", *pairs, "trl"],
        "configs": configs,
    }
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def check_card(card: str) -> None:
    """Raise CurateError for front matter that the Hub or `datasets` would not accept, as far as that can be checked
    offline."""
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard

    try:
        data: Any = DatasetCard(card).data
        configs = MetadataConfigs.from_dataset_card_data(data)
        configs.get_default_config_name()
    except (ValueError, TypeError) as error:
        raise CurateError(
            "the card's front matter is not valid",
            got=error,
            fix="check --title, --license and --language",
        ) from error
    if not configs or not data.license or not data.size_categories:
        raise CurateError(
            "the card's front matter is incomplete",
            got=", ".join(data.to_dict()),
            expected="configs, license and size_categories",
        )


def known_licences() -> list[str]:
    """Return the licence identifiers that the Hub knows."""
    return (resources.files(__package__) / "licences.txt").read_text().split()


def check_licences(options: Sequence[str], sources: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the licences of the pushed data, each once.

    Args:
        options: licences from the command line, which replace those of all sources.
        sources: the recipe's sources, as in the manifest.

    Raises:
        UsageError: a source has no licence, or the Hub does not know one.
    """
    known = known_licences()
    licences = list(options) or [str(source.get("license") or "") for source in sources]
    if not all(licences):
        without = [
            without_folders(str(source.get("name") or source.get("path")))
            for source in sources
            if not source.get("license")
        ]
        raise UsageError(
            "nothing is pushed without the licence of its source",
            got=f"no licence for {', '.join(without)}",
            expected="the identifier the Hub uses: apache-2.0, mit, cc-by-4.0, cc-by-nc-4.0, other, …",
            fix="write it as source.license in the recipe and run it again (no model calls), or give "
            "--license to this command",
        )
    for licence in licences:
        if licence not in known:
            close = difflib.get_close_matches(licence.lower().replace(" ", "-"), known, n=3)
            raise UsageError(
                "the Hub has no licence of that name",
                got=licence,
                expected=", ".join(close) or "apache-2.0, mit, cc-by-4.0, …, or other",
            )
    return tuple(dict.fromkeys(licences))


def check_languages(codes: Iterable[str]) -> tuple[str, ...]:
    """Return the codes; raise UsageError for one that is not an ISO 639 code."""
    languages = tuple(codes)
    for language in languages:
        if not is_language(language):
            raise UsageError(
                "not a language code",
                got=language,
                expected="an ISO 639 code in lower case, such as en, de or zh",
            )
    return languages


def is_language(code: str) -> bool:
    """Return True for the form of an ISO 639-1, -2 or -3 code."""
    return _LANGUAGE.fullmatch(code) is not None


def _install() -> str:
    """Return how to install curate; the path of a local clone is left out."""
    if installed_from()[1]:
        return "`pip install -e .` in a clone of its repository"
    return f"`pip install '{requirement()}'`"


def _names(files: Iterable[PublishedFile]) -> list[str]:
    return list(dict.fromkeys(file.config for file in files))


def _configs(files: Sequence[PublishedFile]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = []
    for name in _names(files):
        rows: Counter[str] = Counter()
        shards = [file for file in files if file.config == name]
        for file in shards:
            rows[file.split] += file.rows
        counts = ", ".join(f"{number:,} {split}" for split, number in rows.items())
        table.append((f"`{name}`", counts, str(len(shards))))
    return table


def _loaded(files: Iterable[PublishedFile]) -> list[str]:
    """Return the configs with rows to train on."""
    with_rows = {file.config: None for file in files if file.split == "train" and file.rows}
    return [name for name in with_rows if name in EXPORTED]


def _scores(tally: DialogueCounts) -> list[dict[str, Any]]:
    """Return tables of scores, each with a sentence before it."""
    parts = []
    groups = [name for name in ("all", "sft") if name in tally.scores or name in tally.adherence]
    for group in groups:
        title = "All dialogues that were scored" if group == "all" else "Those in `sft`"
        if group in tally.verdicts:
            verdicts = tally.verdicts[group]
            counts = ", ".join(f"{name} {verdicts[name]:,}" for name in reversed(VERDICTS))
            sentence = f"**{title}.** Verdicts: {counts}."
            parts.append({"sentence": sentence} | _dimensions(tally.scores[group]))
        if group in tally.adherence:
            tenths = tally.adherence[group]
            heads = [f"{at / BINS:.1f}" for at in range(BINS)]
            rows = [[f"{tenths[at]:,}" for at in range(BINS)]]
            sentence = f"{title}: role adherence, by the tenth it begins with."
            parts.append({"sentence": sentence, "heads": heads, "rows": rows})
    return parts


def score_plots(manifest: Manifest, tally: DialogueCounts) -> dict[str, str]:
    """Return pictures of the score distributions and of role adherence by reply, as SVG by path in the repository."""
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
    """Return the weighted metrics as one table, if the run has them; failure codes are a judge's words and are left out."""
    if report is None or not report.dialogues:
        return []
    sentence = (
        f"Weighted metrics: {report.overall_mean:.1f} of 100 on average, {report.passed:,} of {report.dialogues:,} "
        f"dialogues pass; weights changed by up to 20 % would change the outcome of {report.flippable:,} of them."
    )
    rows = [
        (
            name,
            f"{metric.weight:.3f}",
            "-" if metric.mean is None else f"{metric.mean:.2f}",
            *(f"{number:,}" for number in (metric.scored, metric.na, metric.poor)),
        )
        for name, metric in report.metrics.items()
    ]
    heads = ("metric", "weight", "mean", "scored", "n/a", "poor")
    return [{"sentence": sentence, "heads": heads, "rows": rows}]


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
                    without_folders(judge.model),
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
            model = without_folders(str(config.get("model", "-")))
            rows.append((role, str(config.get("engine", "-")), model, "-", "-", "-", "-"))
    return rows


def _decisions(manifest: Manifest) -> list[str]:
    """Return sentences on what decided the pairs, and on the judge's agreement with labels in the data."""
    names = {"fork": "pairs of `dpo`", "natural": "pairs of `dpo_natural`"}
    sentences = [
        f"What decided about the {names[kind]}: {text}."
        for kind, text in manifest.pair_decisions.items()
    ]
    if manifest.label_agreement is not None:
        sentences.append(_sentence(manifest.label_agreement.described))
    return sentences


def _judge_checks(manifest: Manifest) -> list[str]:
    """Return a sentence each on how several judges agree, and on how often a judge disagrees with itself."""
    lines = checks_in_words(manifest.judge_checks) if manifest.judge_checks is not None else []
    several = [
        f"{name}: {report.sentence}".rstrip(".")
        for name, report in (("jury", manifest.jury), ("cascade", manifest.cascade))
        if report is not None
    ]
    return list(map(_sentence, (*several, *lines)))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


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
                    without_folders(str(item))
                    for item in ([path] if isinstance(path, str) else path)
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
