"""The files as the trainers see them: `datasets` loads them, TRL prepares and trains on them.

Everything is offline: the model is a random Llama of a few thousand weights, the tokenizer is trained on
the rows, and the chat template is ChatML with tools, written here.
"""

from __future__ import annotations

import copy
import math
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from curate.dialogue import Dialogue, Message
from curate.export.config import ExportConfig
from curate.export.writing import ExportData, write_export
from tests.export.samples import (
    GOOD,
    USER,
    call,
    dialogue,
    pair,
    renew_dialogue,
    tool_dialogue,
    tool_pair,
)

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

datasets = pytest.importorskip("datasets", reason="needs the dependency group 'trainers'")
trl = pytest.importorskip("trl", reason="needs the dependency group 'trainers'")
pytestmark = pytest.mark.trainer

CHATML = r"""
{%- if tools -%}
    {{- '<|im_start|>system\ntools: ' -}}
    {%- for tool in tools -%}{{- tool.function.name + ' ' + tool | tojson + ' ' -}}{%- endfor -%}
    {{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\n' -}}
    {%- if message.role == 'assistant' -%}
        {%- generation -%}
        {{- message.content -}}
        {%- if 'tool_calls' in message -%}
            {%- for call in message.tool_calls -%}
                {{- '\ncall ' + call.function.name -}}
                {%- for key, value in call.function.arguments | items -%}
                    {{- ' ' + key + '=' + value | tojson -}}
                {%- endfor -%}
            {%- endfor -%}
        {%- endif -%}
        {{- '<|im_end|>' -}}
        {%- endgeneration -%}
        {{- '\n' -}}
    {%- else -%}
        {{- message.content + '<|im_end|>\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""
# Templates of Llama 3, gpt-oss and others ask whether a key is there, as this one does; a null would raise.


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    system = Message(role="system", content="You track parcels.")
    data = ExportData(
        sft=[
            dialogue("plain"),
            tool_dialogue(),
            renew_dialogue(),
            dialogue("s", system, USER, GOOD),
        ],
        pairs=[pair("a"), tool_pair("b"), pair("c", chosen=call("track", {"parcel": 81}))],
        natural=[pair("n", prompt=(system, USER)), pair("m")],
    )
    write_export(folder, "trl", data, ExportConfig())
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


def load(path: Path, cache: str) -> Any:
    kind = "json" if path.suffix == ".jsonl" else "parquet"
    return datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=cache)


def written(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def without_missing(rows: Any) -> list[Any]:
    """Rows as loaded, without top-level columns a row does not have."""
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("split", ["sft", "dpo", "dpo_natural"])
def test_datasets_gives_back_exactly_what_was_written(
    exported: Path, cache: str, split: str, suffix: str
) -> None:
    rows = load(exported / f"{split}.{suffix}", cache)
    assert without_missing(rows) == written(exported / f"{split}.jsonl")


def test_both_formats_load_as_the_same_types(exported: Path, cache: str) -> None:
    for split in ("sft", "dpo_natural"):
        as_json, as_parquet = (
            load(exported / f"{split}.{suffix}", cache) for suffix in ("jsonl", "parquet")
        )
        assert as_json.features == as_parquet.features


def test_a_tool_call_after_the_first_ten_megabytes_is_read(tmp_path: Path, cache: str) -> None:
    """`datasets` infers types from the first 10 MB; a late new kind would break the whole file."""
    long = Message(role="user", content="x" * 1_000_000)
    sft = [*(dialogue(f"{i}", long, GOOD) for i in range(12)), tool_dialogue()]
    write_export(tmp_path, "trl", ExportData(sft=sft), ExportConfig())
    for suffix in ("jsonl", "parquet"):
        rows = load(tmp_path / f"sft.{suffix}", cache)
        assert without_missing(rows) == written(tmp_path / "sft.jsonl")


def test_arguments_keep_their_types_beside_each_other(tmp_path: Path, cache: str) -> None:
    """The text "1" must not come back as the number 1, nor a key of one call as a null of another."""
    values: list[dict[str, Any]] = [
        {"x": 1},
        {"x": "1"},
        {"x": [1, "2"], "y": {}},
        {"x": None},
        {},
        {"z": 2**63},
        {"z": "😀 \u2028 \x00 </s>"},
    ]
    sft = [
        Dialogue(
            id=str(i), messages=(USER, call("f", value), Message(role="tool", content="1"), GOOD)
        )
        for i, value in enumerate(values)
    ]
    write_export(tmp_path, "trl", ExportData(sft=sft), ExportConfig())
    for suffix in ("jsonl", "parquet"):
        rows = load(tmp_path / f"sft.{suffix}", cache)
        loaded = [row["messages"][1]["tool_calls"][0]["function"]["arguments"] for row in rows]
        assert sorted(map(repr, loaded)) == sorted(map(repr, values))


def test_parquet_keeps_small_numbers(tmp_path: Path, cache: str) -> None:
    """From JSONL `datasets` rounds to ten decimals (docs/exporting.md), which is why Parquet is there."""
    placed = dialogue("a", USER, call("place", {"lat": -73.98765432109876, "e": 1e-12}), GOOD)
    write_export(tmp_path, "trl", ExportData(sft=[placed]), ExportConfig())
    row = load(tmp_path / "sft.parquet", cache)[0]
    arguments = row["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert arguments == pytest.approx({"lat": -73.98765432109876, "e": 1e-12}, rel=1e-14)


@pytest.fixture(scope="module")
def tokenizer(exported: Path) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    model.train_from_iterator([(exported / "sft.jsonl").read_text()], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=model, eos_token="<|im_end|>", pad_token="<pad>", chat_template=CHATML
    )


@pytest.fixture
def model(tokenizer: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=1024,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def common(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "bf16": False,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def took_a_step(trainer: Any, model: Any) -> bool:
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    loss = trainer.train().training_loss
    moved = any(not weight.equal(before[name]) for name, weight in model.named_parameters())
    return math.isfinite(loss) and trainer.state.global_step == 1 and moved


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_trl_prepares_sft_and_takes_a_step(
    exported: Path, cache: str, tmp_path: Path, tokenizer: Any, model: Any, suffix: str
) -> None:
    rows = load(exported / f"sft.{suffix}", cache)
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(**common(tmp_path), max_length=1024, assistant_only_loss=True),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    prepared = trainer.train_dataset
    assert len(prepared) == len(rows)
    texts = [tokenizer.decode(row["input_ids"]) for row in prepared]
    assert "tools: track" in texts[1]
    assert "call track parcel=81" in texts[1]
    assert 'call renew book="1" weeks=2' in texts[2]
    trained = [
        tokenizer.decode([token for token, label in zip(*columns, strict=True) if label != -100])
        for columns in ((row["input_ids"], row["labels"]) for row in prepared)
    ]
    assert all(GOOD.content in text and USER.content not in text for text in trained)
    assert took_a_step(trainer, model)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("split", ["dpo", "dpo_natural"])
def test_trl_prepares_dpo_and_takes_a_step(
    exported: Path, cache: str, tmp_path: Path, tokenizer: Any, model: Any, split: str, suffix: str
) -> None:
    rows = load(exported / f"{split}.{suffix}", cache)
    trainer = trl.DPOTrainer(
        model=model,
        ref_model=copy.deepcopy(model),
        args=trl.DPOConfig(**common(tmp_path), max_length=1024),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    prepared = trainer.train_dataset
    assert len(prepared) == len(rows)
    for row, source in zip(prepared, rows, strict=True):
        prompt = tokenizer.decode(row["prompt_ids"])
        # the completion is the side and nothing of the prompt: the template renders both alike
        assert prompt.endswith("<|im_start|>assistant\n")
        assert source["prompt"][-1]["content"] in prompt
        for side in ("chosen", "rejected"):
            completion = tokenizer.decode(row[f"{side}_ids"])
            assert source[side][0]["content"] in completion
            assert completion.count("<|im_end|>") == 1
    if split == "dpo":
        texts = [
            "".join(tokenizer.decode(row[k]) for k in ("prompt_ids", "chosen_ids"))
            for row in prepared
        ]
        assert sum("tools: track" in text for text in texts) == 1
        assert sum("call track parcel=81" in text for text in texts) == 2
    assert took_a_step(trainer, model)
