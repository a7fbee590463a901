"""The files as the trainers see them: `datasets` loads them, TRL prepares and trains on them.

Everything is offline: the model is a random Llama of a few thousand weights, the tokenizer is trained on
the rows, and the chat template is ChatML with tools, written here.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import orjson
import pytest

from curate.dialogue import Dialogue, Message
from curate.export.config import ExportConfig, SalvageConfig
from curate.export.good_turns import MixedDialogue
from curate.export.writing import ExportData, write_export
from tests.export.samples import (
    BAD,
    GOOD,
    USER,
    call,
    dialogue,
    mixed_dialogue,
    pair,
    renew_dialogue,
    tool_dialogue,
    tool_pair,
)

datasets = pytest.importorskip("datasets", reason="needs the dependency group 'trainers'")
trl = pytest.importorskip("trl", reason="needs the dependency group 'trainers'")
pytestmark = [pytest.mark.trainer, pytest.mark.usefixtures("offline")]

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


def prepared_by(trainer: Any, name: str, rows: Any) -> Any:
    prepared = trainer.train_dataset
    assert len(prepared) == len(rows), name
    return prepared


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels, margins and good turns of mixed dialogues."""
    folder = tmp_path_factory.mktemp("turns")
    data = ExportData(
        pairs=[pair("a"), tool_pair("b"), pair("c", prompt=(Message(role="user", content="Hm?"),))],
        mixed=[
            MixedDialogue(mixed_dialogue(), (2,)),
            MixedDialogue(dialogue("plain", USER, BAD, USER, GOOD, USER, BAD), (2,)),
        ],
    )
    write_export(folder, "trl", data, ExportConfig(salvage=SalvageConfig()))
    return folder


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_trl_trains_on_the_good_turns_of_a_mixed_dialogue_only(
    turned: Path, cache: str, tmp_path: Path, tokenizer: Any, model: Any, suffix: str
) -> None:
    rows = load(turned / f"sft_salvaged.{suffix}", cache)
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(**common(tmp_path), max_length=1024),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    trained = [
        tokenizer.decode(
            [t for t, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100]
        )
        for row in prepared_by(trainer, "sft_salvaged", rows)
    ]
    assert sorted(text.strip() for text in trained) == sorted(
        [f"{GOOD.content}<|im_end|>"] * 2 + ["call track parcel=81<|im_end|>"]
    )
    seen = [tokenizer.decode(row["input_ids"]) for row in trainer.train_dataset]
    assert all(BAD.content in text for text in seen)  # in sight, and not trained on
    assert took_a_step(trainer, model)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_trl_prepares_reward_rows_with_their_margin_and_takes_a_step(
    turned: Path, cache: str, tmp_path: Path, tokenizer: Any, suffix: str
) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    model = LlamaForSequenceClassification(
        LlamaConfig(
            vocab_size=len(tokenizer),
            num_attention_heads=2,
            num_labels=1,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            **size,
        )
    )
    rows = load(turned / f"reward.{suffix}", cache)
    trainer = trl.RewardTrainer(
        model=model,
        args=trl.RewardConfig(**common(tmp_path), max_length=1024),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    prepared = prepared_by(trainer, "reward", rows)
    assert list(prepared["margin"]) == [1.5] * 3
    assert all(GOOD.content in tokenizer.decode(row["chosen_ids"]) for row in prepared)
    assert took_a_step(trainer, model)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_trl_prepares_kto_rows_and_mismatches_them_across_pairs(
    cache: str, tmp_path: Path, tokenizer: Any, model: Any, suffix: str
) -> None:
    asked = [Message(role="user", content=f"Where is parcel {n}?") for n in range(3)]
    pairs = [pair(f"{n}", prompt=(message,)) for n, message in enumerate(asked)]
    write_export(tmp_path / "trl", "trl", ExportData(pairs=pairs), ExportConfig())
    rows = load(tmp_path / f"trl/kto.{suffix}", cache)
    trainer = trl.KTOTrainer(
        model=model,
        ref_model=copy.deepcopy(model),
        args=trl.KTOConfig(
            **common(tmp_path) | {"per_device_train_batch_size": 2}, max_length=1024
        ),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    prepared = prepared_by(trainer, "kto", rows)
    assert list(prepared["label"]) == [True, False] * 3
    for batch in (prepared[n : n + 2] for n in range(0, 6, 2)):
        assert batch["prompt_ids"][0] != batch["prompt_ids"][1]
        # each prompt is given the other row's answer, which must be the answer to another prompt
        assert batch["KL_completion_ids"] == batch["completion_ids"][::-1]
    assert took_a_step(trainer, model)


def test_shards_load_as_the_whole_file(tmp_path: Path, cache: str) -> None:
    """`datasets` types all shards by the first, so that one must show every kind of message."""
    sft = [*(dialogue(f"{n}") for n in range(5)), tool_dialogue(), renew_dialogue(), dialogue("z")]
    for name, options in (("whole", {}), ("shards", {"shard_rows": 2})):
        config = ExportConfig.model_validate(options)
        write_export(tmp_path / name, "trl", ExportData(sft=sft), config)
    assert len(list((tmp_path / "shards").glob("sft-*.jsonl"))) == 4
    for kind, suffix in (("json", "jsonl"), ("parquet", "parquet")):
        shards = sorted(str(path) for path in (tmp_path / "shards").glob(f"sft-*.{suffix}"))
        rows = datasets.load_dataset(kind, data_files=shards, split="train", cache_dir=cache)
        assert without_missing(rows) == written(tmp_path / "whole/sft.jsonl")
