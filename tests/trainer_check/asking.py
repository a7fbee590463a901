"""Asking `check` and a real loader the same about the same rows; for the suite, and for the trainers' own venvs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curate.export.trainers import Trainer
from curate.recipe import parse_recipe
from curate.run.pipeline import run_recipe
from curate.trainer_check.check import check_path
from curate.trainer_check.findings import FileReport
from tests.trainer_check.planted import Planted, Row

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, blind to tools."""

TRIMMING = PLAIN.replace("m.content", "m.content | trim")

WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}\n{{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Rows per source: some real ones, few enough for loaders that take a second a row on a busy machine.
SOURCES = {
    "oasst": ("oasst/oasst2_filtered.jsonl", 120),
    "tau_bench": ("tau_bench/gpt-4o-airline.json", 60),
    "hh_rlhf": ("hh_rlhf/test.jsonl.gz", 40),
}


def tokenizer_folder(folder: Path, template: str) -> str:
    """A byte-level tokenizer of some hundred tokens with a chat template, saved."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(
        ["Where is the parcel? It left the depot at nine. user "] * 9, trainer
    )
    made: Any = PreTrainedTokenizerFast
    made(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<pad>",
        chat_template=template,
    ).save_pretrained(folder)
    return str(folder)


def write_rows(folder: Path, rows: list[Row], info: Row | None = None) -> Path:
    """Rows as JSON Lines, and with `info` the description LLaMA-Factory wants beside them."""
    path = folder / "rows.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    if info is not None:
        entry = {"planted": {"file_name": path.name, **info}}
        (folder / "dataset_info.json").write_bytes(orjson.dumps(entry))
    return path


def asked(
    folder: Path,
    rows: list[Row],
    trainer: str,
    tokenizer: str,
    *,
    stage: str | None = None,
    limit: int = 1024,
    info: Row | None = None,
    python: str | None = None,
) -> FileReport:
    """What `check` finds, with the answer of the trainer's own loader."""
    path = write_rows(folder, rows, info)
    known = next(name for name in get_args(Trainer) if name == trainer)
    report = check_path(
        path,
        known,
        stage=stage,
        tokenizer=tokenizer,
        max_length=limit,
        through="installed",
        python=python,
    )
    return report.files[0]


def asked_together(
    folder: Path,
    good: Row,
    cases: list[Planted],
    trainer: Trainer,
    tokenizer: str,
    *,
    python: str,
    stage: str | None = None,
    info: Row | None = None,
    suffix: str = "jsonl",
) -> dict[str, FileReport]:
    """The same of many planted rows, by their names: a process for each limit, since starting a trainer takes long."""
    reports = {}
    for limit in {case.limit for case in cases}:
        among = folder / str(limit)
        among.mkdir()
        described = {}
        some = [case for case in cases if case.limit == limit]
        for at, case in enumerate(some):
            path = among / f"{at:03d}.{suffix}"
            if suffix == "parquet":
                pq.write_table(pa.Table.from_pylist(case.rows(good)), path)
            else:
                path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in case.rows(good)))
            described[path.stem] = {"file_name": path.name, **(info or {})}
        if info is not None:
            (among / "dataset_info.json").write_bytes(orjson.dumps(described))
        report = check_path(
            among, trainer, stage=stage, tokenizer=tokenizer, max_length=limit, python=python
        )
        reports |= {case.name: file for case, file in zip(some, report.files, strict=True)}
    return reports


def agrees(report: FileReport, planted: Planted) -> None:
    """That the planted row, and no other, has the finding, and that the loader did what it says."""
    lost = [finding for finding in report.findings if finding.effect != "noted"]
    assert {finding.row for finding in lost} <= {1}, lost
    [found] = [
        f for f in report.findings if (f.code, f.effect, f.row) == (planted.code, planted.effect, 1)
    ]
    assert report.replay is not None
    assert report.codes["replay_differs"] == 0
    if planted.effect in ("stops", "dropped"):
        assert found.basis == "replayed"
        assert found.version == report.replay.version
    if planted.effect == "stops":
        assert report.replay.error is not None
        return
    assert report.replay.error is None, report.replay.error
    assert report.replay.rows_in == 3
    assert report.replay.rows_kept == (2 if planted.effect == "dropped" else 3)
    assert report.replay.dropped == ((1,) if planted.effect == "dropped" else ())


def exports(data: Path, out: Path, trainers: list[str]) -> dict[str, Path]:
    """Export folders by source: natural pairs and SFT rows of real data, no model asked."""
    folders = {}
    for source, (path, limit) in SOURCES.items():
        recipe = {
            "name": source,
            "source": {"path": str(data / path), "limit": limit},
            "judge": False,
            "adherence": False,
            "select": {"top": None},
            "export": {"trainers": trainers, "formats": ["jsonl"]},
        }
        folders[source] = run_recipe(parse_recipe(recipe), out=out / source).folder / "export"
    return folders


def stages_loaded_whole(
    folder: Path, trainer: Trainer, tokenizer: str, python: str | None = None
) -> set[str]:
    """The stages of an export's files, each of which the real loader must take whole, as `check` says."""
    reports = check_path(
        folder,
        trainer,
        tokenizer=tokenizer,
        max_length=1 << 20,
        through="installed",
        python=python,
    ).files
    for report in reports:
        assert report.is_clean, (report.file, report.codes, report.replay)
        assert report.replay is not None
        assert report.replay.rows_kept == report.replay.rows_in == report.rows > 0
    return {report.stage for report in reports}
