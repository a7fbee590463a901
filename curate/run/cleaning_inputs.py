"""Inputs of a selection's cleaning: the texts of eval sets, and an embedding model.

They are opened before any model call, so that a missing file or package costs nothing. Selection itself reads
no files: this module passes it what it compares with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.dialogue import Dialogue
from curate.errors import SourceError, UsageError
from curate.records import DropReason, PreferencePair
from curate.selection.config import EvalSet, SelectConfig
from curate.sources.config import SourceConfig
from curate.sources.hub_datasets import hub_rows, is_hub_source
from curate.sources.input_files import list_files
from curate.sources.raw_rows import read_rows

if TYPE_CHECKING:
    from curate.selection.cleaning import Cleaner
    from curate.selection.contamination import EvalIndex, EvalText
    from curate.selection.semantic_duplicates import Embed


@dataclass(frozen=True, slots=True)
class CleaningInputs:
    """A selection's `dedup`, `decontaminate` and `split`, ready for the dialogues."""

    config: SelectConfig
    evals: tuple[EvalIndex, ...]
    embed: Embed | None

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each eval set part that cannot be searched for."""
        return [warning for index in self.evals if (warning := index.warning) is not None]

    def open(
        self, read_dialogues: Callable[[], Iterable[Dialogue]], folder: Path | None = None
    ) -> Cleaner:
        """Read the dialogues once; see `curate.selection.cleaning.Cleaner`."""
        from curate.selection.cleaning import Cleaner

        return Cleaner(self.config, read_dialogues, self.evals, folder, self.embed)

    def contaminations(self, dialogues: Iterable[Dialogue]) -> Iterator[str | None]:
        """Return for each dialogue what it shares with an eval set, in words; None if it shares nothing."""
        from curate.selection.dedup import TextBatch, batches

        for batch in batches(dialogues):
            texts = TextBatch(batch)
            matches: dict[int, str] = {}
            for index in self.evals:
                for place, hit in index.collisions(texts).items():
                    matches.setdefault(place, f"{hit.other}: {hit.text}")
            yield from (matches.get(place) for place in range(len(texts.dialogues)))

    def drop_contaminated(self, pairs: Iterable[PreferencePair]) -> Iterator[PreferencePair]:
        """Yield the pairs; drop (`contaminated`) those of which a side, prompt included, shares text with an eval set.

        A chosen side need not be part of any dialogue, so each pair is compared on its own.
        """
        from curate.selection.dedup import TextBatch

        for pair in pairs:
            if pair.drop_reason is None and self.evals:
                ends = [end for end in (pair.chosen, pair.rejected) if end is not None]
                texts = TextBatch([Dialogue(id="-", messages=(*pair.prompt, end)) for end in ends])
                hits = [hit for index in self.evals for hit in index.collisions(texts).values()]
                if hits:
                    detail = f"{hits[0].other}: {hits[0].text}"
                    pair = pair.model_copy(
                        update={"drop_reason": DropReason.CONTAMINATED, "detail": detail}
                    )
            yield pair


def prepare_cleaning(config: SelectConfig) -> CleaningInputs | None:
    """Read the eval sets and open the embedding model; return None if the selection needs neither.

    Raises:
        UsageError: the extra `scorers` is not installed, or an eval set has no column of the name given.
        SourceError: an eval set cannot be read, or holds no text.
    """
    if not config.needs_cleaning:
        return None
    from curate.selection.contamination import EvalIndex
    from curate.selection.semantic_duplicates import open_embedder

    evals = []
    for eval_set in config.decontaminate:
        index = EvalIndex(eval_set, eval_texts(eval_set))
        if not index.texts:
            raise SourceError(
                f"the eval set {eval_set.label} holds no text",
                got=eval_set.path,
                fix="fix select.decontaminate: its path, or its field",
            )
        evals.append(index)
    embedding = config.dedup.embedding if config.dedup is not None else None
    return CleaningInputs(config, tuple(evals), open_embedder(embedding) if embedding else None)


def eval_texts(config: EvalSet) -> Iterator[EvalText]:
    """Yield the texts of an eval set, one a row (or line of a .txt file), each named by its number.

    Raises:
        UsageError, SourceError: as `prepare_cleaning`.
    """
    from curate.selection.contamination import EvalText

    columns: set[str] = set()
    present_fields: set[str] = set()
    rows = 0
    for name, row in _rows(config):
        rows += 1
        if isinstance(row, Mapping):
            columns.update(row)
        values = [value for field in config.fields if (value := _at(row, field)) is not None]
        present_fields.update(field for field in config.fields if _at(row, field) is not None)
        text = "\n".join(_strings(values if config.fields else row))
        if text.strip():
            yield EvalText(name, text)
    if rows and (missing := [field for field in config.fields if field not in present_fields]):
        raise UsageError(
            f"no row of the eval set {config.label} has the column '{missing[0]}'",
            got=f"columns {', '.join(sorted(columns)) or 'none'}",
            fix="name one of these as `field`, or leave `field` out to take all texts of a row",
        )


def _rows(config: EvalSet) -> Iterator[tuple[str, Any]]:
    """Yield each row with its number, after the file's name if there are several files."""
    source = SourceConfig(
        path=config.path, config=config.config, split=config.split, revision=config.revision
    )
    if config.path.lower().endswith(".txt"):
        yield from _lines(Path(config.path).expanduser())
        return
    if is_hub_source(source):
        for number, row in enumerate(hub_rows(source), start=1):
            yield str(number), row
        return
    files, _ = list_files(source)
    for file in files:
        prefix = f"{file.path.name}:" if len(files) > 1 else ""
        for raw in read_rows(file.path):
            if raw.fault is not None:
                raise SourceError(
                    f"the eval set {config.label} has a row that cannot be read",
                    got=f"row {raw.number} of {file.label}: {raw.detail or raw.fault}",
                    fix="fix or remove the row: what is in it could not be kept out of training",
                )
            yield f"{prefix}{raw.number}", raw.value


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                yield str(number), line
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"the eval set {path} cannot be read", got=error, expected="a text file in UTF-8"
        ) from error


def _at(row: Any, field: str) -> Any:
    """Return a value by its name, or by names joined with dots; None if there is none."""
    if not isinstance(row, Mapping):
        return None
    if field in row:
        return row[field]
    first, _, rest = field.partition(".")
    return _at(row.get(first), rest) if rest else None


def _strings(value: Any) -> Iterator[str]:
    """Yield all texts in a value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)
