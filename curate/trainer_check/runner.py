"""Runs a trainer's own loader, unchanged, on files.

This module is run by the interpreter that has the trainer (`replay.py`) and may lack `curate`: it imports the standard
library and the trainer's dependencies only. A trainer needs a model beside the data; it gets the smallest possible one
with random weights and the tokenizer's vocabulary. Nothing is trained, nothing is written outside a temporary folder,
and an error of the loader is its answer to the file.

Standard input is one JSON object: `package`, `tokenizer` and `jobs`, a list of `{"path", "kind", "stage", "limit",
"stops", "drops", "texts"}`; `stops` and `drops` are numbers of rows that it is expected to lose. Standard output has one JSON object per job, one
per line (see `findings.Replay`). The prepared form of each row (its length, what the model sees, what it is trained on)
is written to the file `texts`, one JSON value per row: null if the row is not known to have come through.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.metadata
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

MOST_RUNS = 60
"""Maximum number of runs of a loader on parts of a file, to find the rows that it stops at or drops."""

PreparedRow = dict[str, Any]
"""A prepared row: `length` in tokens, `seen` as text, `trained` as texts, one per side; null if not known."""

Loader = Callable[[Any, "dict[str, Any]", Any, Path], "list[PreparedRow | None]"]
"""A loader: from rows as a data set, the job, a tokenizer and a folder to the prepared rows, in order, None for those that
did not come through; or, if it is not known which those are, only the others."""

NO_ROWS_LEFT = {
    "axolotl": "no samples left",
    "llamafactory": "Cannot find valid samples",
}
"""Part of the message of a loader that stops because it dropped every row, by package: in a part of a file that is no
reason to stop. They have no type of error for it; where a release words it otherwise, these rows are stopped at, not dropped."""


def load_tokenizer(name: str) -> Any:
    """Return a tokenizer from a folder, a `tokenizer.json` (with the files beside it), or the Hub by its id.

    Raises:
        ConnectionError: the Hub does not answer, and this machine has no copy.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = Path(name)
    if path.is_dir():
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if not path.is_file():
        return _from_hub(name)
    if (path.parent / "tokenizer_config.json").is_file():
        return AutoTokenizer.from_pretrained(str(path.parent), trust_remote_code=False)
    template = path.parent / "chat_template.jinja"
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_file=str(path),
        chat_template=template.read_text("utf-8") if template.is_file() else None,
    )


def _from_hub(name: str) -> Any:
    """Return a tokenizer by its Hub id; if the Hub does not answer, a local copy, without a minute of retries."""
    from huggingface_hub import constants, get_session
    from transformers import AutoTokenizer

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    # Each release of the client has the errors of another library; offline mode is one of them.
    except Exception:
        try:
            return AutoTokenizer.from_pretrained(
                name, local_files_only=True, trust_remote_code=False
            )
        except OSError:
            problem = f"{constants.ENDPOINT} does not answer, and there is no local copy of {name}"
            raise ConnectionError(problem) from None
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def run(package: str, tokenizer: str, jobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Run a trainer's loader on files; yield its answer to each, in order."""
    version = importlib.metadata.version(package)
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            answer = _Job(job, package, load_tokenizer(tokenizer), Path(folder)).answer()
        yield {"package": package, "version": version, **answer}


class _Job:
    """One file, and the runs of the loader on it."""

    def __init__(self, job: dict[str, Any], package: str, tokenizer: Any, folder: Path) -> None:
        self.job = job
        self.package = package
        self.tokenizer = tokenizer
        self.folder = folder
        self.runs = 0
        self.prepared: dict[int, PreparedRow] = {}
        self.dropped: list[int] = []
        self.stopped: dict[int, str] = {}

    def answer(self) -> dict[str, Any]:
        path, kind = self.job["path"], self.job["kind"]
        error, kept, count = None, 0, 0
        try:
            from datasets import load_dataset

            cache = str(self.folder / "datasets")
            rows = load_dataset(kind, data_files=path, split="train", cache_dir=cache)
            count = len(rows)
            kept = self._examine(rows, list(range(count)))
        # A trainer may raise any type of error, and each is its answer to the file.
        except Exception as raised:
            error = _words(raised)
            if count and not self._explained(rows, error):
                self._search(rows, list(range(count)), error)
        self._write_texts(count)
        extra = {}
        if error is None and self.package == "trl" and self.job["stage"] == "sft":
            extra["marks_answers"] = _marks_answers(self.tokenizer)
        return {
            "rows_in": count,
            "rows_kept": kept,
            "dropped": sorted(self.dropped),
            "stopped": self.stopped,
            "error": error,
            **extra,
        }

    def _explained(self, rows: Any, error: str) -> bool:
        """Return True if all other rows come through without the rows that the loader is expected to lose."""
        stops, drops = self.job["stops"], self.job["drops"]
        others = sorted({*range(len(rows))} - {*stops, *drops})
        if not stops or not others:
            return False
        try:
            if self._load(rows.select(others), others) < len(others):
                return False
        except Exception:
            return False
        self.stopped.update(dict.fromkeys(stops, error))
        self.dropped.extend(drops)
        return True

    def _load(self, rows: Any, numbers: list[int]) -> int:
        """Run the loader on rows with these numbers; return how many it keeps."""
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        job = {**self.job, "whole": self.runs == 1}
        try:
            loaded = LOADERS[self.package](rows, job, copy.deepcopy(self.tokenizer), folder)
        except Exception as error:
            message = NO_ROWS_LEFT.get(self.package)
            if job["whole"] or message is None or message not in str(error):
                raise
            loaded = []
        drops = {*self.job["drops"]}
        if len(loaded) == len(numbers) - len(drops.intersection(numbers)):  # as expected
            self.dropped.extend(at for at in numbers if at in drops)
            numbers = [at for at in numbers if at not in drops]
        if len(loaded) == len(numbers):
            for at, row in zip(numbers, loaded, strict=True):
                if row is None:
                    self.dropped.append(at)
                else:
                    self.prepared[at] = row
        return sum(row is not None for row in loaded)

    def _examine(self, rows: Any, numbers: list[int]) -> int:
        """Run the loader on rows, and on parts of them if it drops rows without saying which; return how many it keeps."""
        kept = self._load(rows, numbers)
        if not {*numbers} <= {*self.prepared, *self.dropped}:
            if len(numbers) == 1:
                self.dropped.extend(numbers)
            else:
                self._search(rows, numbers)
        return kept

    def _search(self, rows: Any, numbers: list[int], error: str = "") -> None:
        """Run the loader on each half, down to the single rows that it stops at or drops."""
        if len(numbers) == 1:
            self.stopped[numbers[0]] = error
            return
        half = len(numbers) // 2
        for start, stop in ((0, half), (half, len(numbers))):
            if self.runs > MOST_RUNS:
                return
            part = rows.select(range(start, stop))
            try:
                self._examine(part, numbers[start:stop])
            except Exception as raised:
                self._search(part, numbers[start:stop], _words(raised))

    def _write_texts(self, count: int) -> None:
        with Path(self.job["texts"]).open("w", encoding="utf-8") as file:
            for at in range(count):
                file.write(json.dumps(self.prepared.get(at)) + "\n")


def _words(error: BaseException) -> str:
    """Return an error's message, without the traceback that another process sends along."""
    cause = error.__cause__
    if isinstance(cause, Exception) and type(cause).__name__ != "RemoteTraceback":
        return _words(cause)
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


# -- the loaders


def _trl(rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path) -> list[PreparedRow | None]:
    trl: Any = importlib.import_module("trl")
    stage = job["stage"]
    numbered = rows.add_column("__row__", list(range(len(rows))))
    kinds = {
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
    dataset = trainer_class(
        model=model,
        **reference,
        args=config_class(
            output_dir=str(folder / "out"),
            max_length=job["limit"],
            use_cpu=True,
            bf16=False,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=numbered,
        processing_class=tokenizer,
    ).train_dataset
    prepared: list[PreparedRow | None] = [None] * len(rows)
    for row in dataset:
        at = row["__row__"]
        if prepared[at] is not None:
            continue  # KTO: the pair's other side
        if "input_ids" in row:
            ids, learnt = row["input_ids"], _learnt(row["labels"]) if "labels" in row else None
            prepared[at] = _prepared(tokenizer, [ids], [(ids, learnt)])
            continue
        names = [f"{side}_ids" for side in ("chosen", "rejected", "completion")]
        sides = [row[name] for name in names if name in row]
        prompt = row.get("prompt_ids", [])
        trained = [(side, None) for side in sides] if prompt else None
        prepared[at] = _prepared(tokenizer, [prompt + side for side in sides], trained)
    return prepared


def _marks_answers(tokenizer: Any) -> bool | None:
    """Return True if TRL can train on the assistant's tokens alone with this chat template; None if that cannot be known."""
    try:
        from trl.chat_template_utils import get_training_chat_template
    except ImportError:
        return None
    try:
        get_training_chat_template(tokenizer)
    except ValueError:
        return False
    return True


def _axolotl(
    rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path
) -> list[PreparedRow | None]:
    from axolotl.utils.dict import DictDefault

    model, stage = _saved_model(tokenizer, folder), job["stage"]
    path, kind = _file_of(rows, job, folder)
    config = DictDefault(
        {
            "base_model": model,
            "base_model_config": model,
            "tokenizer_config": model,
            "chat_template": "tokenizer_default",
            "datasets": [
                {
                    "path": path,
                    "ds_type": kind,
                    "type": "chat_template" if stage == "sft" else "chat_template.default",
                }
            ],
            "dataset_prepared_path": str(folder / "prepared"),
            "output_dir": str(folder / "out"),
            "sequence_len": job["limit"] or 1 << 20,
            "rl": None if stage == "sft" else stage,
            "val_set_size": 0.0,
            "seed": 1,
            "num_epochs": 1,
            "micro_batch_size": 1,
            "batch_size": 1,
            "gradient_accumulation_steps": 1,
        }
    )
    if stage == "sft":
        from axolotl.utils.data.sft import prepare_datasets
        from axolotl.utils.trainer import process_datasets_for_packing

        dataset = prepare_datasets(config, tokenizer)[0]
        dataset = process_datasets_for_packing(config, dataset, None)[0]
        return [_labelled(tokenizer, row) for row in dataset]
    from axolotl.utils.data.rl import prepare_preference_datasets
    from axolotl.utils.schemas.enums import RLType

    config.rl = RLType(stage)
    prepared: list[PreparedRow | None] = []
    for row in prepare_preference_datasets(config, tokenizer)[0]:
        sides = [row["chosen"], row["rejected"]]
        wholes = [row["prompt"] + side for side in sides]
        ids = tokenizer(wholes, add_special_tokens=False)["input_ids"]
        prepared.append({"length": max(map(len, ids)), "seen": wholes[0], "trained": sides})
    return prepared


def _llamafactory(
    rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path
) -> list[PreparedRow | None]:
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments, ModelArguments
    from transformers import Seq2SeqTrainingArguments

    whole = Path(job["path"])
    entries = json.loads((whole.parent / "dataset_info.json").read_bytes())
    name = next(name for name, each in entries.items() if each.get("file_name") == whole.name)
    path = Path(_file_of(rows, job, folder)[0])
    if not job["whole"]:
        entry = {**entries[name], "file_name": path.name}
        (folder / "dataset_info.json").write_text(json.dumps({name: entry}))
    data = DataArguments(
        dataset=name,
        dataset_dir=str(path.parent),
        cutoff_len=job["limit"] or 1 << 20,
        overwrite_cache=True,
    )
    template = get_template_and_fix_tokenizer(tokenizer, data)
    dataset = get_dataset(
        template,
        ModelArguments(
            model_name_or_path=_saved_model(tokenizer, folder), cache_dir=str(folder / "cache")
        ),
        data,
        Seq2SeqTrainingArguments(
            output_dir=str(folder / "out"),
            report_to=[],
            use_cpu=True,
            remove_unused_columns=False,
        ),
        stage="rm" if job["stage"] == "dpo" else job["stage"],
        tokenizer=tokenizer,
    )["train_dataset"]
    return [_labelled(tokenizer, row) for row in dataset]


def _swift(
    rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path
) -> list[PreparedRow | None]:
    from swift.dataset import load_dataset
    from swift.model import get_processor
    from swift.template import get_template

    processor = get_processor(_saved_model(tokenizer, folder), model_type="llama")
    # The user's is not known here. Without a way to write calls ms-swift skips every row that has one.
    template = get_template(
        processor, template_type="chatml", agent_template="hermes", max_length=job["limit"]
    )
    template.set_mode({"sft": "train", "dpo": "rlhf", "kto": "kto"}[job["stage"]])
    path = _file_of(rows, job, folder)[0]
    try:
        loaded = load_dataset([path], num_proc=1, load_from_cache_file=False)[0]
    except Exception:  # it has no message of its own for a file that it drops every row of
        if job["whole"]:
            raise
        return []
    prepared: list[PreparedRow | None] = []
    for row in loaded:
        # As its lazy data set does: a row that cannot be encoded is passed over, whatever the reason.
        encoded = None
        with contextlib.suppress(Exception):
            encoded = template.encode(dict(row), return_length=True)
        if encoded is None:
            prepared.append(None)
        else:
            length = max(encoded["lengths"])
            prepared.append({**_labelled(tokenizer, encoded), "length": length})
    # Rows that it deleted are not among the loaded ones, and only the number of those left is known.
    return prepared if len(prepared) == len(rows) else list(filter(None, prepared))


def _openrlhf(
    rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path
) -> list[PreparedRow | None]:
    from types import SimpleNamespace

    from openrlhf.datasets import RewardDataset, SFTDataset

    del folder
    columns, limit = rows.column_names, job["limit"] or 1 << 20
    keys: dict[str, Any] = {"apply_chat_template": True}
    if job["stage"] == "sft":
        whole = "messages" in columns
        keys |= {
            "input_key": "messages" if whole else "input",
            "output_key": None if whole else "output",
        }
    else:
        prompt_key = "prompt" if "prompt" in columns else None
        keys |= {"prompt_key": prompt_key, "chosen_key": "chosen", "rejected_key": "rejected"}
    strategy = SimpleNamespace(args=SimpleNamespace(data=SimpleNamespace(**keys)))
    common = {"dataset": rows, "tokenizer": tokenizer, "max_length": limit, "strategy": strategy}
    prepared: list[PreparedRow | None] = []
    if job["stage"] == "sft":
        dataset = SFTDataset(**common, multiturn=whole, num_processors=1)
        for tokens, _, mask in (dataset[at] for at in range(len(dataset))):
            ids = tokens[0].tolist()
            # The mask is of the token before each that is learnt.
            learnt = [False, *map(bool, mask[0][:-1])]
            prepared.append(_prepared(tokenizer, [ids], [(ids, learnt)]))
        return prepared
    is_dpo = job["stage"] == "dpo"
    dataset = RewardDataset(**common, is_dpo=is_dpo, num_processors=1)
    for chosen, _, rejected, _, start in (dataset[at] for at in range(len(dataset))):
        sides = [chosen[0].tolist(), rejected[0].tolist()]
        trained = [(side[start:], None) for side in sides] if is_dpo else None
        prepared.append(_prepared(tokenizer, sides, trained))
    return prepared


def _verl(rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path) -> list[PreparedRow | None]:
    limit = job["limit"] or 1 << 20
    path = _file_of(rows, job, folder)[0]
    if job["stage"] == "sft":
        from omegaconf import OmegaConf
        from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

        config = OmegaConf.create({"max_length": limit, "pad_mode": "no_padding"})
        dataset: Any = MultiTurnSFTDataset(path, tokenizer, config)
    else:
        from verl.utils.dataset.rm_dataset import RMDataset

        dataset = RMDataset(path, tokenizer, max_length=limit, cache_dir=str(folder))
    prepared: list[PreparedRow | None] = []
    for at in range(len(rows)):
        row = dataset[at]
        if job["stage"] == "sft":
            ids, mask = row["input_ids"].tolist(), row["loss_mask"].tolist()
            prepared.append(_prepared(tokenizer, [ids], [(ids, list(map(bool, mask)))]))
        else:
            sides = [
                ids[mask.bool()].tolist()
                for ids, mask in zip(row["input_ids"], row["attention_mask"], strict=True)
            ]
            prepared.append(_prepared(tokenizer, sides, None))
    return prepared


LOADERS: dict[str, Loader] = {
    "trl": _trl,
    "axolotl": _axolotl,
    "llamafactory": _llamafactory,
    "ms-swift": _swift,
    "openrlhf": _openrlhf,
    "verl": _verl,
}
"""Loaders by the package's name for pip."""


# -- what they share


def _file_of(rows: Any, job: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Return path and kind of the file, or for a part of it those of a new file with the same columns (a null stays null)."""
    if job["whole"]:
        return job["path"], job["kind"]
    path = folder / "part.parquet"
    rows.to_parquet(str(path))
    return str(path), "parquet"


def _prepared(
    tokenizer: Any,
    sides: list[list[int]],
    trained: Sequence[tuple[list[int], list[bool] | None]] | None,
) -> PreparedRow:
    """Return a prepared row.

    Args:
        tokenizer: to write tokens as text.
        sides: all tokens the model sees with each side.
        trained: of each side its tokens and which of them are learnt, None for all; None if it is not known.
    """
    texts = None
    if trained is not None:
        texts = [
            tokenizer.decode(side if learnt is None else list(compress(side, learnt)))
            for side, learnt in trained
        ]
    length = max(map(len, sides))
    return {"length": length, "seen": tokenizer.decode(sides[0]), "trained": texts}


def _labelled(tokenizer: Any, row: Any) -> PreparedRow:
    """Return a prepared row with `input_ids` and `labels`, or with those of two sides."""
    sides = [
        (row[f"{prefix}input_ids"], _learnt(row[f"{prefix}labels"]))
        for prefix in ("", "chosen_", "rejected_")
        if row.get(f"{prefix}input_ids") is not None
    ]
    return _prepared(tokenizer, [ids for ids, _ in sides], sides)


def _learnt(labels: list[int]) -> list[bool]:
    return [label != -100 for label in labels]


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
    """Return a folder that passes for a model where only its configuration and tokenizer are read."""
    place = folder / "model"
    _smallest_config(tokenizer).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return str(place)


def main() -> None:
    """Answer the jobs on standard input; trainers' own output goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    order = json.loads(sys.stdin.read())
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            MODELSCOPE_CACHE=folder,
            AXOLOTL_DO_NOT_TRACK="1",
            WANDB_DISABLED="true",
            DISABLE_VERSION_CHECK="1",
        )
        try:
            for answer in run(order["package"], order["tokenizer"], order["jobs"]):
                print(json.dumps(answer), file=out, flush=True)
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None


if __name__ == "__main__":
    main()
