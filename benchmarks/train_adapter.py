"""Train a LoRA adapter on what a run exported, and on as many raw rows: held-out loss and pair accuracy before and after.

    python benchmarks/train_adapter.py runs/demo runs/demo-pairs [--seeds 3] [--readings FILE]

SFT and DPO, with TRL, of SmolLM2-135M-Instruct on the CPU. `curated` are the first run's SFT rows, and the second's verified pairs;
`raw` are as many of the dialogues that the first read, and as many of the pairs that the second found, verified or dropped, drawn by
the seed. What is measured on are the sample's last four dialogues, which the demo's recipe leaves out:
replies in the light of the two turns before them. Loss is per token of a reply; a pair is right where a reply is
likelier, per token, than the same with a planted flaw. Intervals are bootstrap over replies, of the mean over seeds.

Needs the groups `trainers` and the package peft.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import curate
from curate.engines.config import LlamaCppConfig
from curate.engines.model_files import find_model
from curate.records import PreferencePair
from curate.sources.shipped_files import recipes_folder
from curate.trust.twins import Twin, plant_twins

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from hf_from_gguf import convert

HELD_OUT = ("library-move", "bike-overhaul", "rail-round-trip", "parcel-damaged")
FLAWED_FROM = {"bike-overhaul": 11}  # its planted flaw: only what stands before is good
LENGTH = 192
EPOCHS = 1
LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": "all-linear"}


def held_out(count: int) -> list[Twin]:
    """Good replies of the held-out dialogues, each after at most two turns, with a flawed copy."""
    path = recipes_folder() / "sample" / "dialogues.jsonl"
    windows = []
    for dialogue in curate.load_dialogues(path).dialogues:
        if dialogue.id not in HELD_OUT:
            continue
        role = [message for message in dialogue.messages if message.role == "system"]
        said = [message for message in dialogue.messages if message.role != "system"]
        for at in range(1, len(said), 2):
            if (at + 1) // 2 >= FLAWED_FROM.get(dialogue.id, len(said)):
                break
            messages = (*role, *said[max(0, at - 5) : at + 1])
            windows.append(
                dialogue.model_copy(update={"id": f"{dialogue.id}-{at}", "messages": messages})
            )
    return plant_twins(windows, count, seed=7)


def sft_rows(run: Path, seed: int | None) -> list[list[dict[str, Any]]]:
    """Messages of the run's SFT rows; or, by a seed, of as many of all dialogues that it read."""
    rows = [
        [bare(message) for message in json.loads(line)["messages"]]
        for line in (run / "export/trl/sft.jsonl").open()
    ]
    if seed is None:
        return rows
    raw = [
        [bare(message) for message in json.loads(line)["messages"]]
        for line in (run / "dialogues.jsonl").open()
    ]
    return random.Random(seed).sample(raw, len(rows))


def pair_rows(run: Path, seed: int | None) -> list[dict[str, Any]]:
    """Prompt, chosen and rejected of the run's verified pairs; or, by a seed, of as many of all that it found."""
    verified = read_pairs(run / "pairs/natural_pairs.jsonl")
    if seed is None:
        return [as_row(pair) for pair in verified]
    dropped = [pair for pair in read_pairs(run / "pairs/dropped_pairs.jsonl") if pair.chosen]
    return [as_row(pair) for pair in random.Random(seed).sample(verified + dropped, len(verified))]


def read_pairs(path: Path) -> list[PreferencePair]:
    return [PreferencePair.model_validate_json(line) for line in path.open()]


def as_row(pair: PreferencePair) -> dict[str, Any]:
    dumped = pair.model_dump(mode="json")
    return {
        "prompt": [bare(message) for message in dumped["prompt"]],
        "chosen": [bare(dumped["chosen"])],
        "rejected": [bare(dumped["rejected"])],
    }


def bare(message: dict[str, Any]) -> dict[str, str]:
    """Role and text: this model's template knows no tools, so a call is shown as its JSON."""
    text = message.get("content") or json.dumps(message.get("tool_calls") or "")
    return {"role": message["role"] if message["role"] != "tool" else "user", "content": text}


def measure(model: Any, tokenizer: Any, twins: Sequence[Twin]) -> dict[str, list[float]]:
    """Of each held-out reply: loss per token, and how much likelier it is, per token, than its flawed copy."""
    import torch

    model.eval()
    losses, margins = [], []
    for twin in twins:
        prompt = [bare(message.model_dump(mode="json")) for message in twin.prompt]
        start = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )["input_ids"]
        each = []
        for side in (twin.original, twin.degraded):
            text = tokenizer(
                side.content + tokenizer.eos_token, return_tensors="pt", add_special_tokens=False
            )
            ids = torch.cat([start, text["input_ids"]], dim=1)
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, start.shape[1] - 1 : -1]
            chosen = logits.log_softmax(-1).gather(1, ids[0, start.shape[1] :, None])
            each.append(-float(chosen.mean()))
        losses.append(each[0])
        margins.append(each[1] - each[0])
    return {"loss": losses, "margin": margins}


def train(kind: str, folder: Path, rows: list[Any], seed: int) -> Any:
    """A LoRA adapter trained on rows, on the small model in `folder`."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as out:
        shared: dict[str, Any] = {
            "output_dir": out,
            "seed": seed,
            "use_cpu": True,
            "bf16": False,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "gradient_checkpointing": False,
            "max_length": LENGTH,
            "num_train_epochs": EPOCHS,
            "learning_rate": 2e-4 if kind == "sft" else 5e-5,
            "lr_scheduler_type": "constant",
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "logging_steps": 1000,
        }
        given: dict[str, Any] = {"processing_class": tokenizer, "peft_config": LoraConfig(**LORA)}
        if kind == "sft":
            data = Dataset.from_list([{"messages": row} for row in rows])
            trainer: Any = SFTTrainer(model, args=SFTConfig(**shared), train_dataset=data, **given)
        else:
            data = Dataset.from_list(rows)
            trainer = DPOTrainer(model, args=DPOConfig(**shared), train_dataset=data, **given)
        trainer.train()
        return trainer.model


def interval(values: np.ndarray, resamples: int = 2000) -> tuple[float, float, float]:
    """Mean, and its 95 % bootstrap interval over replies, of an array of shape (seeds, replies)."""
    each = values.mean(axis=0)
    draw = np.random.default_rng(42).integers(len(each), size=(resamples, len(each)))
    low, high = np.quantile(each[draw].mean(axis=1), [0.025, 0.975])
    return float(each.mean()), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="whose SFT rows are trained on")
    parser.add_argument("pairs", type=Path, help="whose verified pairs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--replies", type=int, default=8)
    parser.add_argument("--model", type=Path, default=Path("runs/smollm2-hf"))
    parser.add_argument("--readings", type=Path, default=Path("runs/train-adapter.json"))
    given = parser.parse_args()

    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = convert(find_model(LlamaCppConfig(model="smollm2")), given.model)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    twins = held_out(given.replies)
    readings: dict[str, dict[str, list[float]]] = {}
    if given.readings.is_file():  # what was measured before is not measured again
        readings = json.loads(given.readings.read_text())

    def keep(name: str, model: Any) -> None:
        readings[name] = measure(model, tokenizer, twins)
        given.readings.write_text(json.dumps(readings))

    if "before" not in readings:
        keep("before", AutoModelForCausalLM.from_pretrained(folder, dtype="float32"))
    plans: list[tuple[str, Any, Path]] = [("dpo", pair_rows, given.pairs)]
    plans.append(("sft", sft_rows, given.run))
    for kind, rows_of, run in plans:
        print(f"{kind}: {len(rows_of(run, None))} rows of {run}", flush=True)
        for seed in range(given.seeds):
            for arm, chosen in (("curated", None), ("raw", seed)):
                name, began = f"{kind} {arm} {seed}", time.monotonic()
                if name not in readings:
                    keep(name, train(kind, folder, rows_of(run, chosen), seed))
                    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    found: dict[str, list[dict[str, list[float]]]] = {}
    for name, held in readings.items():
        found.setdefault(name.rstrip("0123456789 "), []).append(held)
    report(found)


def report(found: dict[str, list[dict[str, list[float]]]]) -> None:
    """Print a row an arm, and what differs from before and between the arms."""
    readings = {
        arm: (
            np.array([held["loss"] for held in runs]),
            np.array([held["margin"] for held in runs]) > 0,
        )
        for arm, runs in found.items()
    }
    print("| | held-out loss | pair accuracy |\n|---|---|---|")
    for arm, (loss, right) in readings.items():
        print(f"| {arm} | {shown(loss)} | {shown(right)} |")
    for kind in ("sft", "dpo"):
        if f"{kind} raw" in readings:
            pairs = [(f"{kind} curated", "before"), (f"{kind} curated", f"{kind} raw")]
            for one, other in pairs:
                loss, right = (
                    readings[one][at].astype(float) - readings[other][at].astype(float)
                    for at in (0, 1)
                )
                print(f"| {one} - {other} | {shown(loss)} | {shown(right)} |")


def shown(values: np.ndarray) -> str:
    return "{:.3f} ({:.3f} to {:.3f})".format(*interval(values.astype(float)))


if __name__ == "__main__":
    main()
