"""A push from a run folder to the Hub: tables, funnel, pictures, scan, card, and then one commit.

Everything but the commit happens in `<run>/push/`, where card and tables can be looked at before anything is sent:
`files/` holds what is pushed, `findings.jsonl` the findings of the scan.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import polars as pl
import yaml

from curate.engines.personal_data import REGIONS
from curate.errors import CurateError, UsageError
from curate.publishing.card import (
    CardFacts,
    check_languages,
    check_licences,
    is_language,
    make_card,
    score_plots,
)
from curate.publishing.hub_commit import REPORT, Pushed, check_name, push_files
from curate.publishing.judgments import DialogueCounts, write_judgments
from curate.publishing.local_paths import published_figures, rerunnable
from curate.publishing.measured import MeasuredTrust, measured_plots
from curate.publishing.published_tables import EXPORTED, TRAINER, PublishedFile, write_exported
from curate.publishing.row_cleaning import RowCleaner
from curate.publishing.run_funnel import make_funnel
from curate.publishing.scan import Detector, Findings, check_allowed, scan_files
from curate.records import Manifest
from curate.run.ingest import INDEX, read_index
from curate.run.read_back import read_manifest
from curate.run.report import write_report
from curate.sources.pushed_recipe import RECIPE
from curate.storage.parquet_files import readable
from curate.storage.run_folder import RunFolder
from curate.storage.whole_files import atomic_file, disk_error, make_folder, write_atomically

SHARD_BYTES = 500_000_000
CARD = "README.md"
_FILES = "push/files"  # in the run folder
_ROW_IDS = ("pair_id", "dialogue_id", "id")
_TRAINERS_COLUMNS = {
    "sft": ("messages", "tools"),
    "dpo": ("prompt", "chosen", "rejected", "tools"),
    "dpo_natural": ("prompt", "chosen", "rejected", "tools"),
}


@dataclass(frozen=True, slots=True)
class PushOptions:
    """Options of a push.

    Attributes:
        public: make a new repository public.
        licences: the data's licences, as the Hub names them; by default those of the recipe's sources.
        languages: ISO 639 codes; by default those in the dialogues' metadata.
        title: title of the card; by default the run's name.
        allow: kinds of findings that may be pushed: `email`, `phone`, `card`, `id`, `name`, `secret`, `secret:<rule>`.
        redact: kinds to replace by their name in brackets, in the rows that have them.
        leave_out: kinds whose rows are left out.
        names: look for names; implied where `allow`, `redact` or `leave_out` holds `name`.
        phone_regions: countries whose telephone numbers are known without country code.
        branch: the branch to push to; main by default.
        message: the commit message.
        shard_bytes: size at which a new Parquet file is begun.
        endpoint: address of the Hub; by default the value of `HF_ENDPOINT`.
        report: push the run's report beside the rows, with the text of every dialogue in it.
    """

    public: bool = False
    licences: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    title: str | None = None
    allow: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    names: bool = False
    phone_regions: tuple[str, ...] = REGIONS
    branch: str | None = None
    message: str | None = None
    shard_bytes: int = SHARD_BYTES
    endpoint: str | None = None
    report: bool = False

    @property
    def finds_names(self) -> bool:
        """True where names are looked for in the rows."""
        return self.names or "name" in (*self.allow, *self.redact, *self.leave_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(CardFacts):
    """A push that is ready to send: the facts of its card, with the findings of the scan in the card too, and its files.

    Attributes:
        run: the run folder.
        options: options of the push.
        pages: the card's pictures, the recipe, and the report where it was asked for: path in the repository to the file.
        card: the text of README.md.
    """

    run: Path
    options: PushOptions
    pages: Mapping[str, Path]
    card: str = ""

    @property
    def files(self) -> dict[str, Path]:
        """All files of the push: path in the repository to the file on disk."""
        card = self.run / _FILES / CARD
        return {CARD: card, **{table.name: table.path for table in self.tables}, **self.pages}

    @property
    def findings_file(self) -> Path:
        """All findings, masked, one JSON line each."""
        return self.run / "push" / "findings.jsonl"

    @property
    def blocked_by(self) -> list[str]:
        """Names of findings that are not allowed and stop the push."""
        return self.findings.not_allowed(self.options.allow)


def prepare_push(run: Path, repo: str, options: PushOptions | None = None) -> Prepared:
    """Write and scan what a push would send, without a network connection.

    Args:
        run: folder of a run that is done.
        repo: owner/name of the dataset repository.
        options: see `PushOptions`.

    Raises:
        UsageError: no run, not done, no licence, nothing to push, an unknown option, or a missing extra.
        RunLockedError: the run is being written.
        CurateError: the folder's files are of different runs, or the disk refuses the tables.
    """
    options = options or PushOptions()
    check_name(repo)
    _check_kinds(options)
    manifest = _finished(run)
    licences = check_licences(options.licences, manifest.recipe.get("source") or manifest.sources)
    languages = check_languages(options.languages) or _languages(run)
    detector = Detector(options.phone_regions, names=options.finds_names)
    cleaner = RowCleaner(detector, options.redact, options.leave_out)
    files = run / _FILES
    with RunFolder(run), _damage_named(files.parent):
        shutil.rmtree(files.parent, ignore_errors=True)
        make_folder(files)
        tables, tally = _tables(run, manifest, files, options.shard_bytes, cleaner)
        funnel = make_funnel(run, manifest, tally, tables, cleaner.left_out)
        measured = MeasuredTrust.of(run, manifest)
        pages = _pages(manifest, files, score_plots(manifest, tally) | measured_plots(measured))
        if options.report:
            pages[REPORT] = files / REPORT
            write_report(run, pages[REPORT], edit=published_figures)
        prepared = Prepared(
            run=run,
            options=options,
            pages=pages,
            repo=repo,
            title=options.title or manifest.name,
            manifest=manifest,
            tables=tables,
            columns=_trainers_columns(tables),
            funnel=funnel,
            tally=tally,
            licences=licences,
            languages=languages,
            findings=Findings(),
            measured=measured,
            plots=pages.keys(),
            report=REPORT if options.report else "",
            redacted=cleaner.redacted,
        )
        with atomic_file(prepared.findings_file) as out:
            return _with_scanned_card(prepared, detector, out)


def _check_kinds(options: PushOptions) -> None:
    check_allowed((*options.allow, *options.redact, *options.leave_out))
    if options.report and (options.redact or options.leave_out):
        raise UsageError(
            "the report holds every dialogue unchanged: nothing is redacted or left out in it",
            got="--report with --redact or --leave-out",
            expected="one or the other, or the kinds allowed by --allow",
        )


def _finished(run: Path) -> Manifest:
    """Return the manifest of a run; raise UsageError if the run is not done."""
    manifest = read_manifest(run)
    if manifest.status not in ("done", "unscored"):
        raise UsageError(
            "the run is not done, so its files are incomplete",
            got=f"status {manifest.status}",
            fix="run the recipe to the end; it resumes where it stopped",
        )
    return manifest


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    """Raise CurateError for a damaged file of the run, and for a disk that refuses a file in the folder."""
    import pyarrow as pa

    try:
        yield
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        pa.ArrowException,
        FileNotFoundError,
    ) as error:
        raise CurateError(
            "a file of the run is damaged or missing",
            got=error,
            fix="run the recipe again: the export is written again, without model calls",
        ) from error
    except OSError as error:
        raise disk_error(folder, error) from error


def _with_scanned_card(prepared: Prepared, detector: Detector, out: IO[bytes]) -> Prepared:
    """Scan tables and pages, write the card with their findings, and scan the card.

    Names are looked for in rows and report only: a `name:` in recipe or card is not a person's.
    """
    unnamed = detector.without_names()
    rows = {table.name: table.path for table in prepared.tables}
    rows |= {name: path for name, path in prepared.pages.items() if name == REPORT}
    findings = scan_files(rows, detector, out, row_ids=_ROW_IDS)
    others = {name: path for name, path in prepared.pages.items() if name != REPORT}
    findings.merge(scan_files(others, unnamed, out, row_ids=()))
    card = make_card(replace(prepared, findings=findings))
    card_file = {CARD: prepared.files[CARD]}
    write_atomically(card_file[CARD], card.encode())
    findings.merge(scan_files(card_file, unnamed, out, row_ids=()))
    return replace(prepared, card=card, findings=findings)


def send(prepared: Prepared) -> Pushed:
    """Send a prepared push in one commit.

    Raises:
        CurateError: a finding of the scan is not allowed, or the Hub refused the push; see `push_files`.
    """
    if blocked := prepared.blocked_by:
        counts = prepared.findings.counts
        raise CurateError(
            "nothing was pushed: the scan has findings that are not allowed",
            got=", ".join(f"{counts[name]} {name}" for name in blocked),
            expected="none, or each kind allowed by name",
            fix=f"look at {prepared.findings_file}, then use --redact or --leave-out for the rows, or give "
            + " ".join(f"--allow {name}" for name in blocked),
        )
    options = prepared.options
    return push_files(
        prepared.repo,
        prepared.files,
        public=options.public,
        message=options.message or f"Push run {prepared.manifest.name} with curate",
        branch=options.branch,
        endpoint=options.endpoint,
    )


def _tables(
    run: Path, manifest: Manifest, folder: Path, shard_bytes: int, cleaner: RowCleaner
) -> tuple[list[PublishedFile], DialogueCounts]:
    exported = manifest.exports.get(TRAINER)
    if exported is None:
        raise UsageError(
            "the run was not exported for TRL, which is what is pushed",
            got=", ".join(manifest.exports) or "no export",
            fix="add `trl` to export.trainers, and run the recipe again: existing rows need no model calls",
        )
    rows = [
        table
        for config in EXPORTED
        for table in write_exported(
            run, folder, config, exported=exported, shard_bytes=shard_bytes, cleaner=cleaner
        )
    ]
    judgments, tally = write_judgments(
        run, manifest, folder, shard_bytes=shard_bytes, cleaner=cleaner
    )
    if not (tables := [*rows, *judgments]):
        raise UsageError(
            "there is nothing to push: the run selected no dialogue, made no pair and scored nothing",
            got=run,
            fix="see why with `curate show`",
        )
    return tables, tally


def _pages(manifest: Manifest, files: Path, plots: Mapping[str, str]) -> dict[str, Path]:
    """Write the card's pictures and the recipe; return path in the repository to the file."""
    pages = {name: files / name for name in plots}
    for name, path in pages.items():
        make_folder(path.parent)
        write_atomically(path, plots[name].encode())
    pages[RECIPE] = files / RECIPE
    # A text in one line, so that the scan, which reads lines, sees it whole.
    text = yaml.safe_dump(
        rerunnable(manifest.recipe), sort_keys=False, allow_unicode=True, width=10**6
    )
    write_atomically(pages[RECIPE], text.encode())
    return pages


def _trainers_columns(tables: list[PublishedFile]) -> Mapping[str, list[str]]:
    import pyarrow.parquet as pq

    columns: dict[str, list[str]] = {}
    for table in tables:
        if table.config in _TRAINERS_COLUMNS and table.config not in columns:
            present: Any = pq.read_schema(table.path).names
            names = _TRAINERS_COLUMNS[table.config]
            columns[table.config] = [name for name in names if name in present]
    return columns


def _languages(run: Path) -> tuple[str, ...]:
    """Return the languages in the dialogues' metadata, those that are codes."""
    with readable(run / INDEX):
        if "language" not in pl.read_parquet_schema(run / INDEX):
            return ()
    values = read_index(run, "language").to_series().unique().drop_nulls()
    codes = {str(value).lower().replace("_", "-").partition("-")[0] for value in values}
    return tuple(sorted(filter(is_language, codes)))


def describe(prepared: Prepared) -> list[tuple[str, int, int | None]]:
    """Return path in the repository, bytes, and rows of a table, for each file of the push."""
    rows = {table.name: table.rows for table in prepared.tables}
    return [(name, path.stat().st_size, rows.get(name)) for name, path in prepared.files.items()]
