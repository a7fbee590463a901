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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MOST_RUNS = 60
"""Maximum number of runs of a loader on parts of a file, to find the rows that it stops at or drops."""

Made = dict[str, Any]
"""A prepared row: `length` in tokens, `seen` as text, `trained` as texts, one per side; null if not known."""

Load = Callable[[Any, "dict[str, Any]", Any, Path], "list[Made | None]"]
"""A loader: from rows as a data set, the job, a tokenizer and a folder to the prepared rows, in order, None for those that
did not come through; or, if it is not known which those are, only the others."""


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
            answer = _Job(job, LOADERS[package], load_tokenizer(tokenizer), Path(folder)).answer()
        yield {"package": package, "version": version, **answer}


class _Job:
    """One file, and the runs of the loader on it."""

    def __init__(self, job: dict[str, Any], load: Load, tokenizer: Any, folder: Path) -> None:
        self.job = job
        self.load = load
        self.tokenizer = tokenizer
        self.folder = folder
        self.runs = 0
        self.made: dict[int, Made] = {}
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
        if error is None and self.load is _trl and self.job["stage"] == "sft":
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
        made = self.load(rows, job, copy.deepcopy(self.tokenizer), folder)
        drops = {*self.job["drops"]}
        if len(made) == len(numbers) - len(drops.intersection(numbers)):  # as expected
            self.dropped.extend(at for at in numbers if at in drops)
            numbers = [at for at in numbers if at not in drops]
        if len(made) == len(numbers):
            self.dropped.extend(at for at, each in zip(numbers, made, strict=True) if each is None)
            self.made.update((at, each) for at, each in zip(numbers, made, strict=True) if each)
        return sum(each is not None for each in made)

    def _examine(self, rows: Any, numbers: list[int]) -> int:
        """Run the loader on rows, and on parts of them if it drops rows without saying which; return how many it keeps."""
        kept = self._load(rows, numbers)
        if not {*numbers} <= {*self.made, *self.dropped}:
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
                file.write(json.dumps(self.made.get(at)) + "\n")


def _words(error: BaseException) -> str:
    """Return an error's message, without the traceback that another process sends along."""
    cause = error.__cause__
    if isinstance(cause, Exception) and type(cause).__name__ != "RemoteTraceback":
        return _words(cause)
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


# -- the loaders


def _trl(rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path) -> list[Made | None]:
    trl: Any = importlib.import_module("trl")
    stage, count = job["stage"], len(rows)
    rows = rows.add_column("__row__", list(range(count)))
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
    prepared = trainer_class(
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
        train_dataset=rows,
        processing_class=tokenizer,
    ).train_dataset
    made: list[Made | None] = [None] * count
    for row in prepared:
        if made[row["__row__"]] is not None:
            continue  # KTO: the pair's other side
        if "input_ids" in row:
            learnt = _learnt(row["labels"]) if "labels" in row else None
            made[row["__row__"]] = _made(tokenizer, row["input_ids"], [(row["input_ids"], learnt)])
            continue
        sides = [
            row[f"{name}_ids"]
            for name in ("chosen", "rejected", "completion")
            if f"{name}_ids" in row
        ]
        prompt = row.get("prompt_ids", [])
        length = len(prompt) + max(map(len, sides))
        trained = [(side, None) for side in sides] if prompt else None
        made[row["__row__"]] = {**_made(tokenizer, prompt + sides[0], trained), "length": length}
    return made


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


def _axolotl(rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path) -> list[Made | None]:
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

        try:
            made = prepare_datasets(config, tokenizer)[0]
            made = process_datasets_for_packing(config, made, None)[0]
        except ValueError as error:
            if "no samples left" not in str(error) or job["whole"]:
                raise
            return []  # it drops every one of these rows, which by itself is no reason to stop
        return [
            _made(tokenizer, row["input_ids"], [(row["input_ids"], _learnt(row["labels"]))])
            for row in made
        ]
    from axolotl.utils.data.rl import prepare_preference_datasets
    from axolotl.utils.schemas.enums import RLType

    config.rl = RLType(stage)
    made = []
    for row in prepare_preference_datasets(config, tokenizer)[0]:
        sides = [row["chosen"], row["rejected"]]
        ids = [
            tokenizer(row["prompt"] + side, add_special_tokens=False)["input_ids"] for side in sides
        ]
        made.append(
            {"length": max(map(len, ids)), "seen": row["prompt"] + sides[0], "trained": sides}
        )
    return made


def _llamafactory(
    rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path
) -> list[Made | None]:
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments, ModelArguments
    from transformers import Seq2SeqTrainingArguments

    beside = Path(job["path"])
    described = json.loads((beside.parent / "dataset_info.json").read_bytes())
    entry = next(each for each in described.values() if each.get("file_name") == beside.name)
    path = Path(_file_of(rows, job, folder)[0])
    if not job["whole"]:
        (folder / "dataset_info.json").write_text(
            json.dumps({"part": {**entry, "file_name": path.name}})
        )
    name = next(n for n, each in described.items() if each is entry) if job["whole"] else "part"
    data = DataArguments(
        dataset=name,
        dataset_dir=str(path.parent),
        cutoff_len=job["limit"] or 1 << 20,
        overwrite_cache=True,
    )
    template = get_template_and_fix_tokenizer(tokenizer, data)
    try:
        made = get_dataset(
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
    except RuntimeError as error:
        if "Cannot find valid samples" not in str(error) or job["whole"]:
            raise
        return []  # it drops every one of these rows, which by itself is no reason to stop
    return [_labelled(tokenizer, row, ("", "chosen_", "rejected_")) for row in made]


def _swift(rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path) -> list[Made | None]:
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
    except Exception:
        if job["whole"]:
            raise
        return []
    made: list[Made | None] = []
    for row in loaded:
        # As its lazy data set does: a row that cannot be encoded is passed over, whatever the reason.
        encoded = None
        with contextlib.suppress(Exception):
            encoded = template.encode(dict(row), return_length=True)
        if encoded is None:
            made.append(None)
            continue
        each = _labelled(tokenizer, encoded, ("", "chosen_", "rejected_"))
        made.append({**each, "length": max(encoded["lengths"])})
    # Rows that it deleted are not among the loaded ones, and only the number of those left is known.
    return made if len(made) == len(rows) else [each for each in made if each is not None]


def _openrlhf(rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path) -> list[Made | None]:
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
    made: list[Made | None] = []
    if job["stage"] == "sft":
        read = SFTDataset(**common, multiturn=whole, num_processors=1)
        for ids, _, mask in (read[at] for at in range(len(read))):
            # The mask is of the token before each that is learnt.
            learnt = [False, *(bool(each) for each in mask[0][:-1])]
            made.append(_made(tokenizer, ids[0].tolist(), [(ids[0].tolist(), learnt)]))
        return made
    is_dpo = job["stage"] == "dpo"
    read = RewardDataset(**common, is_dpo=is_dpo, num_processors=1)
    for chosen, _, rejected, _, start in (read[at] for at in range(len(read))):
        sides = [chosen[0].tolist(), rejected[0].tolist()]
        trained = [(side[start:], None) for side in sides] if is_dpo else None
        made.append({**_made(tokenizer, sides[0], trained), "length": max(map(len, sides))})
    return made


def _verl(rows: Any, job: dict[str, Any], tokenizer: Any, folder: Path) -> list[Made | None]:
    limit = job["limit"] or 1 << 20
    path = _file_of(rows, job, folder)[0]
    if job["stage"] == "sft":
        from omegaconf import OmegaConf
        from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

        config = OmegaConf.create({"max_length": limit, "pad_mode": "no_padding"})
        read: Any = MultiTurnSFTDataset(path, tokenizer, config)
    else:
        from verl.utils.dataset.rm_dataset import RMDataset

        read = RMDataset(path, tokenizer, max_length=limit, cache_dir=str(folder))
    made: list[Made | None] = []
    for at in range(len(rows)):
        row = read[at]
        if job["stage"] == "sft":
            ids, mask = row["input_ids"].tolist(), row["loss_mask"].tolist()
            made.append(_made(tokenizer, ids, [(ids, list(map(bool, mask)))]))
        else:
            sides = [
                ids[mask.bool()].tolist()
                for ids, mask in zip(row["input_ids"], row["attention_mask"], strict=True)
            ]
            made.append({**_made(tokenizer, sides[0], None), "length": max(map(len, sides))})
    return made


LOADERS: dict[str, Any] = {
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


def _made(tokenizer: Any, ids: list[int], trained: Any) -> Made:
    """Return a prepared row.

    Args:
        tokenizer: to write tokens as text.
        ids: all the model sees, with the first side.
        trained: of each side its tokens and which of them are learnt; None for all.
    """
    texts = None
    if trained is not None:
        texts = [
            tokenizer.decode(
                [token for at, token in enumerate(side) if learnt is None or learnt[at]]
            )
            for side, learnt in trained
        ]
    return {"length": len(ids), "seen": tokenizer.decode(ids), "trained": texts}


def _labelled(tokenizer: Any, row: Any, prefixes: tuple[str, ...]) -> Made:
    """Return a prepared row with `input_ids` and `labels`, or with those of two sides."""
    sides = [
        (row[f"{prefix}input_ids"], _learnt(row[f"{prefix}labels"]))
        for prefix in prefixes
        if row.get(f"{prefix}input_ids") is not None
    ]
    made = _made(tokenizer, sides[0][0], sides)
    return {**made, "length": max(len(ids) for ids, _ in sides)}


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
    asked = json.loads(sys.stdin.read())
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            MODELSCOPE_CACHE=folder,
            AXOLOTL_DO_NOT_TRACK="1",
            WANDB_DISABLED="true",
            DISABLE_VERSION_CHECK="1",
        )
        try:
            for answer in run(asked["package"], asked["tokenizer"], asked["jobs"]):
                print(json.dumps(answer), file=out, flush=True)
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None


if __name__ == "__main__":
    main()
