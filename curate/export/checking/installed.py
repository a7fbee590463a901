"""The installed trainers' own reading of a file: their loaders, run as they are, on the file as it is.

A trainer wants a model beside the data; it gets the smallest there is, of random weights, whose vocabulary is
the tokenizer's. Nothing is trained and nothing is written outside a temporary folder. What a loader raises is
its answer to the file and goes into the report as such.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from curate.errors import UsageError
from curate.export.checking.findings import Replay
from curate.export.checking.lengths import ChatTokenizer
from curate.export.checking.reading import DataFile, shown

PACKAGES: Final = {
    "trl": "trl",
    "unsloth": "trl",
    "axolotl": "axolotl",
    "llamafactory": "llamafactory",
    "swift": "ms-swift",
}
"""The package whose loader is run, by trainer; the others have none that runs without a GPU's libraries."""

_MODULES: Final = {"ms-swift": "swift"}
_ROW: Final = "__row__"


def is_installed(trainer: str) -> bool:
    """Whether the trainer's own loader can be run here."""
    package = PACKAGES.get(trainer)
    if package is None or importlib.util.find_spec(_MODULES.get(package, package)) is None:
        return False
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(package))
    return False


def require(trainer: str) -> None:
    """Say what is missing where the trainer's own loader cannot be run.

    Raises:
        UsageError: it is not installed, or there is none that could be.
    """
    package = PACKAGES.get(trainer)
    if package is None:
        raise UsageError(
            f"{trainer} has no loader that could be run here",
            expected=", ".join(sorted(set(PACKAGES))),
            fix="leave --through out",
        )
    if not is_installed(trainer):
        raise UsageError(
            f"the package '{package}' is not installed",
            fix=f"run curate where {package} is installed, or leave --through out",
        )


def replay(
    file: DataFile, trainer: str, stage: str, tokenizer: ChatTokenizer, limit: int | None
) -> Replay:
    """What the installed trainer makes of a file.

    Args:
        file: JSON Lines, JSON or Parquet.
        trainer: a key of `PACKAGES` that `is_installed`.
        stage: one of the trainer's stages.
        tokenizer: with a chat template.
        limit: the trainer's limit in tokens, or None for no limit.
    """
    package = PACKAGES[trainer]
    through = f"{package} {importlib.metadata.version(package)}"
    asked = (file, stage, copy.deepcopy(tokenizer.tokenizer), limit)
    with tempfile.TemporaryDirectory() as folder, _quiet(folder):
        try:
            match package:
                case "trl":
                    rows, kept, lengths = _trl(*asked, Path(folder))
                case "axolotl":
                    rows, kept, lengths = _axolotl(*asked, Path(folder))
                case "llamafactory":
                    rows, kept, lengths = _llamafactory(*asked, Path(folder))
                case _:
                    rows, kept, lengths = _swift(*asked, Path(folder))
        # What a trainer raises at a file has no end of types, and each is its verdict on the file.
        except Exception as error:
            return Replay(through, 0, 0, error=shown(f"{type(error).__name__}: {error}", 200))
    if isinstance(kept, int):
        return Replay(through, rows, kept, lengths=lengths)
    dropped = tuple(sorted(set(range(rows)) - set(kept)))
    return Replay(through, rows, rows - len(dropped), dropped, lengths)


Made = tuple[int, "int | list[int]", "tuple[int, ...] | None"]
"""Rows read; rows kept, as their numbers or how many; tokens of each kept row."""


def _trl(file: DataFile, stage: str, tokenizer: Any, limit: int | None, folder: Path) -> Made:
    trl: Any = importlib.import_module("trl")
    rows = _loaded(file, folder)
    count = len(rows)
    rows = rows.add_column(_ROW, list(range(count)))
    options: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "max_length": limit,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "disable_tqdm": True,
    }
    kinds: dict[str, tuple[Any, Any]] = {
        "sft": (trl.SFTTrainer, trl.SFTConfig),
        "dpo": (trl.DPOTrainer, trl.DPOConfig),
        "kto": (trl.KTOTrainer, trl.KTOConfig),
        "reward": (trl.RewardTrainer, trl.RewardConfig),
    }
    trainer_class, config_class = kinds[stage]
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = _smallest_model(tokenizer, classifies=stage == "reward")
    # By itself a trainer looks for its reference where the model came from, and this one is from nowhere.
    reference = {"ref_model": copy.deepcopy(model)} if stage in ("dpo", "kto") else {}
    prepared = trainer_class(
        model=model,
        **reference,
        args=config_class(**options),
        train_dataset=rows,
        processing_class=tokenizer,
    ).train_dataset
    kept = sorted(set(prepared[_ROW]))
    return count, kept, tuple(_prepared_length(row) for row in prepared)


def _prepared_length(row: dict[str, Any]) -> int:
    """Tokens of a row that TRL prepared, its longer side's where it has two."""
    if "input_ids" in row:
        return len(row["input_ids"])
    prompt = len(row.get("prompt_ids", ()))
    sides = [row[name] for name in ("chosen_ids", "rejected_ids", "completion_ids") if name in row]
    return prompt + max(map(len, sides))


def _axolotl(file: DataFile, stage: str, tokenizer: Any, limit: int | None, folder: Path) -> Made:
    from axolotl.utils.dict import DictDefault

    model = _saved_model(tokenizer, folder)
    kind = "chat_template" if stage == "sft" else "chat_template.default"
    config = DictDefault(
        {
            "base_model": model,
            "base_model_config": model,
            "tokenizer_config": model,
            "chat_template": "tokenizer_default",
            "datasets": [{"path": str(file.path), "ds_type": file.kind, "type": kind}],
            "dataset_prepared_path": str(folder / "prepared"),
            "output_dir": str(folder / "out"),
            "sequence_len": limit or 1 << 20,
            "rl": None if stage == "sft" else stage,
            "val_set_size": 0.0,
            "seed": 1,
            "num_epochs": 1,
            "micro_batch_size": 1,
            "batch_size": 1,
            "gradient_accumulation_steps": 1,
        }
    )
    count = len(_loaded(file, folder))
    if stage == "sft":
        from axolotl.utils.data.sft import prepare_datasets
        from axolotl.utils.trainer import process_datasets_for_packing

        made = prepare_datasets(config, tokenizer)[0]
        made = process_datasets_for_packing(config, made, None)[0]
        return count, len(made), tuple(len(row["input_ids"]) for row in made)
    from axolotl.utils.data.rl import prepare_preference_datasets
    from axolotl.utils.schemas.enums import RLType

    config.rl = RLType(stage)
    made = prepare_preference_datasets(config, tokenizer)[0]
    lengths = (
        max(
            len(tokenizer(row["prompt"] + row[side], add_special_tokens=False)["input_ids"])
            for side in ("chosen", "rejected")
        )
        for row in made
    )
    return count, len(made), tuple(lengths)


def _llamafactory(
    file: DataFile, stage: str, tokenizer: Any, limit: int | None, folder: Path
) -> Made:
    import orjson
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments, ModelArguments
    from transformers import Seq2SeqTrainingArguments

    described = orjson.loads((file.path.parent / "dataset_info.json").read_bytes())
    name = next(n for n, entry in described.items() if entry.get("file_name") == file.path.name)
    data = DataArguments(
        dataset=name,
        dataset_dir=str(file.path.parent),
        cutoff_len=limit or 1 << 20,
        overwrite_cache=True,
    )
    template = get_template_and_fix_tokenizer(tokenizer, data)
    made = get_dataset(
        template,
        ModelArguments(
            model_name_or_path=_saved_model(tokenizer, folder), cache_dir=str(folder / "cache")
        ),
        data,
        Seq2SeqTrainingArguments(
            output_dir=str(folder / "out"), report_to=[], use_cpu=True, remove_unused_columns=False
        ),
        stage="rm" if stage == "dpo" else stage,
        tokenizer=tokenizer,
    )["train_dataset"]
    columns = [
        name
        for name in ("input_ids", "chosen_input_ids", "rejected_input_ids")
        if name in made.column_names
    ]
    lengths = tuple(max(len(row[name]) for name in columns) for row in made)
    return len(_loaded(file, folder)), len(made), lengths


def _swift(file: DataFile, stage: str, tokenizer: Any, limit: int | None, folder: Path) -> Made:
    from swift.dataset import load_dataset
    from swift.model import get_processor
    from swift.template import get_template

    count = len(_loaded(file, folder))
    processor = get_processor(_saved_model(tokenizer, folder), model_type="llama")
    # The user's is not known here. Without a way to write calls ms-swift skips every row that has one.
    template = get_template(
        processor, template_type="chatml", agent_template="hermes", max_length=limit
    )
    template.set_mode({"sft": "train", "dpo": "rlhf", "kto": "kto"}[stage])
    rows = load_dataset([str(file.path)], num_proc=1, load_from_cache_file=False)[0]
    lengths = []
    for row in rows:
        # As its lazy data set does: a row that cannot be encoded is passed over, whatever the reason.
        with contextlib.suppress(Exception):
            lengths.append(max(template.encode(dict(row), return_length=True)["lengths"]))
    return count, len(lengths), tuple(lengths)


def _loaded(file: DataFile, folder: Path) -> Any:
    """A file through `datasets`, as all of them load it."""
    from datasets import load_dataset

    kind = "parquet" if file.kind == "parquet" else "json"
    return load_dataset(
        kind, data_files=str(file.path), split="train", cache_dir=str(folder / "datasets")
    )


def _smallest_model(tokenizer: Any, *, classifies: bool) -> Any:
    transformers: Any = importlib.import_module("transformers")
    config = _smallest_config(tokenizer)
    if classifies:
        config.num_labels = 1
        return transformers.LlamaForSequenceClassification(config)
    return transformers.LlamaForCausalLM(config)


def _smallest_config(tokenizer: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=1 << 20,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        architectures=["LlamaForCausalLM"],
    )


def _saved_model(tokenizer: Any, folder: Path) -> str:
    """A folder that looks like a model to what only reads its configuration and tokenizer."""
    place = folder / "model"
    _smallest_config(tokenizer).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return str(place)


@contextlib.contextmanager
def _quiet(folder: str) -> Iterator[None]:
    """Caches go to the folder and what trainers print to standard error, which keeps `--json` one object."""
    wanted = {
        "MODELSCOPE_CACHE": folder,
        "AXOLOTL_DO_NOT_TRACK": "1",
        "WANDB_DISABLED": "true",
        "DISABLE_VERSION_CHECK": "1",
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
