"""TRL's own trainers asked about the same rows: what `check` says of a row is what becomes of it.

The trainers are built with the smallest model there is, and their prepared data set is looked at; on exports of
real data they also take a step.
"""

from __future__ import annotations

import copy
import math
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from curate.trainer_check import replay, runner
from curate.trainer_check.check import check_path
from curate.trainer_check.findings import Problem, Replay
from tests.engines.families import small_tokenizer, tokenizer_of
from tests.trainer_check import planted as p
from tests.trainer_check.asking import (
    PLAIN,
    TRIMMING,
    WITH_TOOLS,
    agrees,
    asked,
    exports,
    stages_loaded_whole,
    tokenizer_folder,
    write_rows,
)
from tests.trainer_check.planted import Planted, Row, message

datasets = pytest.importorskip("datasets", reason="needs the dependency group 'trainers'")
trl = pytest.importorskip("trl", reason="needs the dependency group 'trainers'")
pytestmark = [pytest.mark.trainer, pytest.mark.usefixtures("offline")]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner is asked here: a process of its own would load TRL anew for each test."""

    def ask(package: str, python: str, tokenizer: str, jobs: list[Any]) -> list[Any]:
        assert python == sys.executable
        return [
            orjson.loads(orjson.dumps(each, option=orjson.OPT_NON_STR_KEYS))
            for each in runner.run(package, tokenizer, jobs)
        ]

    monkeypatch.setattr(replay, "ask", ask)


TEMPLATES = Path(trl.__file__).parent / "chat_templates"

CASES: list[tuple[str, Row, Planted]] = [
    *(("dpo", p.TRL_DPO, case) for case in p.TRL_DPO_PLANTED),
    *(("reward", p.TRL_DPO, case) for case in p.TRL_REWARD_PLANTED),
    *(("sft", p.TRL_SFT, case) for case in p.TRL_SFT_PLANTED),
    *(("sft", p.TRL_COMPLETION, case) for case in p.TRL_COMPLETION_PLANTED),
    *(("kto", p.TRL_KTO, case) for case in p.TRL_KTO_PLANTED),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tokenizer_folder(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.fixture(scope="module")
def trimming(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tokenizer_folder(tmp_path_factory.mktemp("trimming"), TRIMMING)


@pytest.fixture(scope="module")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tokenizer_folder(tmp_path_factory.mktemp("tools"), WITH_TOOLS)


@pytest.mark.parametrize(
    ("stage", "good", "case"), CASES, ids=[f"{stage}-{case.name}" for stage, _, case in CASES]
)
def test_a_planted_row(stage: str, good: Row, case: Planted, plain: str, tmp_path: Path) -> None:
    report = asked(tmp_path, case.rows(good), "trl", plain, stage=stage, limit=case.limit)
    agrees(report, case)


@pytest.mark.parametrize(
    ("stage", "good"),
    [
        ("dpo", p.TRL_DPO),
        ("dpo", {"chosen": [p.ASK, p.YES], "rejected": [p.ASK, p.NO]}),
        ("dpo", {"prompt": "Where is it? ", "chosen": "Here.", "rejected": "No idea."}),
        ("sft", p.TRL_SFT),
        ("sft", p.TRL_COMPLETION),
        ("kto", p.TRL_KTO),
        ("reward", p.TRL_DPO),
    ],
)
def test_good_rows_are_as_long_as_the_trainer_finds_them(
    stage: str, good: Row, plain: str, tmp_path: Path
) -> None:
    longer = {
        key: [*value[:-1], value[-1] | {"content": value[-1]["content"] * 3}]
        if isinstance(value, list)
        else value
        for key, value in good.items()
    }
    report = asked(tmp_path, [good, longer, good], "trl", plain, stage=stage)
    assert report.is_clean, report.findings
    counted = check_path(
        tmp_path / "rows.jsonl", "trl", stage=stage, tokenizer=plain, through="restated"
    ).files[0]
    assert counted.lengths is not None
    assert report.replay is not None
    assert list(report.replay.lengths.values()) == counted.lengths.needed


def test_a_column_of_pictures_stops_a_text_model(plain: str, tmp_path: Path) -> None:
    report = asked(tmp_path, [p.TRL_DPO | {"images": ["a.png"]}], "trl", plain, stage="dpo")
    assert report.codes["extra_columns"] == 1
    assert report.replay is not None
    assert report.replay.error is not None


def test_a_prompt_column_beside_messages_stops_sft(plain: str, tmp_path: Path) -> None:
    report = asked(tmp_path, [p.TRL_SFT | {"prompt": "Where?"}], "trl", plain, stage="sft")
    assert report.codes["unknown_columns"] == 1
    assert report.replay is not None
    assert report.replay.error is not None


def test_rows_of_whole_dialogues_are_split_as_the_trainer_splits_them(
    plain: str, tmp_path: Path
) -> None:
    """Texts without a prompt column, as in hh-rlhf: identical sides leave one character each."""
    asks = "\n\nHuman: Where is it?\n\nAssistant:"
    good = {"chosen": asks + " Here.", "rejected": asks + " No idea."}
    case = Planted("identical", {"rejected": asks + " Here."}, "identical_sides", "corrupted")
    report = asked(tmp_path, case.rows(good), "trl", plain, stage="dpo")
    agrees(report, case)
    path = tmp_path / "rows.jsonl"
    counted = check_path(path, "trl", stage="dpo", tokenizer=plain, through="restated").files[0]
    assert counted.lengths is not None
    assert report.replay is not None
    assert list(report.replay.lengths.values()) == counted.lengths.needed


def test_a_tokenizer_json_is_enough(plain: str, tmp_path: Path) -> None:
    """With the template beside it, and without the other files of a tokenizer's folder."""
    for name in ("tokenizer.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((Path(plain) / name).read_bytes())
    path = write_rows(tmp_path, [p.TRL_SFT])
    needed = [
        check_path(path, "trl", tokenizer=tokenizer, through="restated").files[0].lengths
        for tokenizer in (plain, str(tmp_path / "tokenizer.json"))
    ]
    assert needed[0] == needed[1]


def test_the_suggested_limit_keeps_what_it_says(plain: str, tmp_path: Path) -> None:
    rows = [p.TRL_DPO | {"prompt": [message("user", "Where? " * count)]} for count in range(1, 101)]
    report = asked(tmp_path, rows, "trl", plain, stage="dpo", limit=100)
    assert report.effects["dropped"] > 0
    assert report.lengths is not None
    suggested = report.lengths.keeping(99)
    again = asked(tmp_path, rows, "trl", plain, stage="dpo", limit=suggested)
    assert again.effects["intact"] + again.effects["noted"] == 99
    assert asked(tmp_path, rows, "trl", plain, limit=report.lengths.keeping(100)).is_clean


def test_sides_that_differ_in_what_the_template_takes_away(trimming: str, tmp_path: Path) -> None:
    case = Planted(
        "spaces",
        {"rejected": [message("assistant", p.YES["content"] + " ")]},
        "same_tokens",
        "corrupted",
    )
    agrees(asked(tmp_path, case.rows(p.TRL_DPO), "trl", trimming), case)


def test_a_prompt_that_renders_otherwise_with_its_answer(tmp_path: Path) -> None:
    """A template that ends the generation prompt with what the whole dialogue does not have."""
    template = PLAIN.replace("assistant\n{% endif %}", "assistant\n<think></think>{% endif %}")
    tokenizer = tokenizer_folder(tmp_path / "tokenizer", template)
    report = asked(tmp_path, [p.TRL_DPO], "trl", tokenizer)
    assert ("prompt_not_prefix", "mis_masked") in {(f.code, f.effect) for f in report.findings}


def masks_answers(path: Path, tokenizer: Any, out: Path) -> bool:
    """Whether TRL itself takes `assistant_only_loss=True` with this tokenizer, trained on the answers alone."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=len(tokenizer), num_attention_heads=1, **size)
    options: dict[str, Any] = {"use_cpu": True, "bf16": False, "report_to": []}
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    try:
        trainer = trl.SFTTrainer(
            model=LlamaForCausalLM(config),
            args=trl.SFTConfig(output_dir=str(out), assistant_only_loss=True, **options),
            train_dataset=datasets.load_dataset(
                "json", data_files=str(path), split="train", cache_dir=str(out / "cache")
            ),
            processing_class=tokenizer,
        )
    except ValueError as error:
        if "not training-compatible" not in str(error):
            raise
        return False
    row = trainer.train_dataset[0]
    pairs = zip(row["input_ids"], row["labels"], strict=True)
    learnt = tokenizer.decode([token for token, label in pairs if label != -100])
    assert p.YES["content"] in learnt
    assert p.ASK["content"] not in learnt
    return True


@pytest.mark.parametrize(
    ("template", "end", "code"),
    [
        ("smollm2", "<|im_end|>", "trains_on_all_unmarked"),
        ("llama3_1", "<|eot_id|>", "trains_on_all_unmarked"),
        ("llama3", "<|eot_id|>", "trains_on_all"),
        ("llama3_training", "<|eot_id|>", "trains_on_all"),
        ("qwen3", "<|im_end|>", "trains_on_all"),
    ],
)
def test_a_loss_on_answers_alone_is_advised_where_the_trainer_takes_it(
    template: str, end: str, code: str, kept_tokenizers: Path, tmp_path: Path
) -> None:
    """The template decides, so that those which TRL ships stand over a tokenizer of some hundred tokens."""
    from transformers import AutoTokenizer

    if template == "smollm2":
        tokenizer = copy.deepcopy(tokenizer_of(template, kept_tokenizers))
    else:
        tokenizer = small_tokenizer((TEMPLATES / f"{template}.jinja").read_text("utf-8"))
        ends = {"bos_token": "<|begin_of_text|>", "eos_token": end}
        tokenizer.add_special_tokens(ends)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    path = write_rows(tmp_path, [p.TRL_SFT])
    folder = str(tmp_path / "tokenizer")
    report = check_path(path, "trl", tokenizer=folder, through="installed").files[0]
    assert [(f.code, f.basis) for f in report.findings if f.row is None] == [(code, "replayed")]
    assert report.is_clean
    advised = "set assistant_only_loss=True" in report.findings[0].do[:30]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert masks_answers(path, tokenizer, tmp_path / "out") == advised == (code == "trains_on_all")


def test_what_trl_makes_of_a_template_is_not_known_without_asking_it(
    plain: str, tmp_path: Path
) -> None:
    path = write_rows(tmp_path, [p.TRL_SFT])
    marked = tokenizer_folder(
        tmp_path / "marked",
        "{% generation %}" + PLAIN.replace("{% endfor %}", "{% endgeneration %}{% endfor %}", 1),
    )
    for tokenizer, code in ((plain, "trains_on_all_unclear"), (marked, "trains_on_all")):
        report = check_path(path, "trl", tokenizer=tokenizer, through="restated").files[0]
        assert [f.code for f in report.findings if f.row is None] == [code]


def test_the_loader_is_run_by_another_interpreter(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, which finds no curate, and for all files of a folder at once."""
    monkeypatch.undo()
    elsewhere = tmp_path / "python"
    elsewhere.write_text(f'#!/bin/sh\ncd / && exec env -u PYTHONPATH {sys.executable} -P "$@"\n')
    elsewhere.chmod(0o755)
    rows = tmp_path / "rows"
    rows.mkdir()
    for name, row in (("a", p.TRL_DPO), ("b", p.TRL_DPO | {"prompt": "Where?"})):
        lines = [orjson.dumps(each) for each in (p.TRL_DPO, row)]
        (rows / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    report = check_path(rows, "trl", tokenizer=plain, python=str(elsewhere))
    first, second = report.files
    assert report.not_replayed == ""
    assert first.is_clean
    assert first.replay is not None
    assert first.replay.version == f"trl {trl.__version__}"
    assert {
        (f.code, f.row, f.basis, f.version) for f in second.findings if f.effect == "stops"
    } == {("mixed_shapes", 1, "replayed", first.replay.version)}


def test_a_row_that_its_own_code_drops_is_found_though_nothing_was_stated(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a release that does what no fact says yet; and the other way round."""
    monkeypatch.setattr("curate.trainer_check.check.check_rendered", lambda *_: 9)
    case = Planted("long", {"prompt": [message("user", p.LONG)]}, "replay_dropped", "dropped", 200)
    agrees(asked(tmp_path, case.rows(p.TRL_DPO), "trl", plain, limit=200), case)


def test_what_was_stated_gives_way_to_what_the_loader_does(tmp_path: Path) -> None:
    stated = Problem("too_long", "dropped", "drop the row")
    told = Replay("trl 9.9", 2, 2, lengths={0: 5, 1: 5})
    of_file, of_rows = replay.settle_problems(told, [], {1: [stated]})
    assert of_file == []
    [kept] = of_rows[1]
    assert (kept.code, kept.effect, kept.replayed) == ("replay_differs", "noted", True)


def test_rows_are_found_in_a_file_of_many(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that stops the run and one that is dropped, where neither was stated."""
    monkeypatch.setattr("curate.trainer_check.check.check_rendered", lambda *_: 9)
    monkeypatch.setattr("curate.trainer_check.check.check_example", lambda *_, **__: None)
    template = PLAIN.replace(
        "{{ m.role }}",
        "{% if m.role == 'narrator' %}{{ raise_exception('no') }}{% endif %}{{ m.role }}",
    )
    tokenizer = tokenizer_folder(tmp_path / "tokenizer", template)
    rows = [p.TRL_DPO] * 12
    rows[7] = p.TRL_DPO | {"prompt": [p.BOT, p.ASK]}
    rows[10] = p.TRL_DPO | {"prompt": [message("user", p.LONG)]}
    report = asked(tmp_path, rows, "trl", tokenizer, limit=200)
    found = {(f.code, f.row) for f in report.findings if f.effect != "noted"}
    assert found == {("replay_failed", 7), ("replay_dropped", 10)}


def test_a_template_that_refuses_a_row_stops_the_run(tmp_path: Path) -> None:
    template = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}" + (
        "{{ raise_exception('no such role') }}{% endif %}{{ m.content }}<|im_end|>{% endfor %}"
    )
    tokenizer = tokenizer_folder(tmp_path / "tokenizer", template)
    case = Planted("system", {"prompt": [message("system", "s"), p.ASK]}, "template_fails", "stops")
    agrees(asked(tmp_path, case.rows(p.TRL_DPO), "trl", tokenizer), case)


@pytest.fixture(scope="module")
def real(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return exports(shared_data, tmp_path_factory.mktemp("real"), ["trl"])


@pytest.mark.parametrize("source", ["oasst", "tau_bench", "hh_rlhf"])
def test_exports_of_real_data_are_taken_whole(
    source: str, real: dict[str, Path], with_tools: str
) -> None:
    stages = stages_loaded_whole(real[source] / "trl", "trl", with_tools)
    assert stages >= ({"sft"} if source == "tau_bench" else {"sft", "dpo"})


@pytest.mark.parametrize(
    ("source", "stage"),
    [("oasst", "dpo"), ("hh_rlhf", "dpo"), ("tau_bench", "sft"), ("oasst", "sft")],
)
def test_a_step_is_taken_on_real_data(
    source: str, stage: str, real: dict[str, Path], with_tools: str, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(with_tools)
    torch.manual_seed(0)
    config = LlamaConfig(
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
    model = LlamaForCausalLM(config)
    file = real[source] / "trl" / {"dpo": "dpo_natural.jsonl", "sft": "sft.jsonl"}[stage]
    rows = datasets.load_dataset(
        "json", data_files=str(file), split="train[:8]", cache_dir=str(tmp_path / "cache")
    )
    common: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"),
        "max_length": 1024,
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    before = model.lm_head.weight.detach().clone()
    if stage == "dpo":
        reference = LlamaForCausalLM(config)
        reference.load_state_dict(model.state_dict())
        trainer = trl.DPOTrainer(
            model=model,
            ref_model=reference,
            args=trl.DPOConfig(**common),
            train_dataset=rows,
            processing_class=tokenizer,
        )
    else:
        trainer = trl.SFTTrainer(
            model=model,
            args=trl.SFTConfig(**common),
            train_dataset=rows,
            processing_class=tokenizer,
        )
    assert math.isfinite(trainer.train().training_loss)
    assert trainer.state.global_step == 1
    assert not model.lm_head.weight.equal(before)


def prepared(row: Row, tokenizer: str, folder: Path) -> tuple[str, str]:
    """A DPO row as TRL prepares it: what it takes for the prompt and for the chosen answer."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=len(loaded), num_attention_heads=1, **size)
    trainer = trl.DPOTrainer(
        model=LlamaForCausalLM(config),
        ref_model=LlamaForCausalLM(config),
        args=trl.DPOConfig(output_dir=str(folder), use_cpu=True, bf16=False, report_to=[]),
        train_dataset=datasets.Dataset.from_list([row]),
        processing_class=loaded,
    )
    [made] = trainer.train_dataset
    return loaded.decode(made["prompt_ids"]), loaded.decode(made["chosen_ids"])


def test_what_is_said_of_a_row_shows_in_what_is_made_of_it(plain: str, tmp_path: Path) -> None:
    """A mask over the user's words, a second header, an answer without its call."""
    several = p.TRL_DPO | {"chosen": [p.YES, p.ASK, p.NO]}
    assert "<|im_start|>user" in prepared(several, plain, tmp_path)[1]
    not_open = p.TRL_DPO | {"prompt": [p.ASK, p.NO]}
    assert prepared(not_open, plain, tmp_path)[0].count("<|im_start|>assistant") == 2
    called = p.TRL_DPO | {"chosen": [message("assistant", "I look.", tool_calls=[p.CALL])]}
    assert "track" not in prepared(called, plain, tmp_path)[1]
    untrimmed = p.TRL_DPO | {"chosen": [message("assistant", "At nine. ")]}
    assert "At nine. <|im_end|>" in prepared(untrimmed, plain, tmp_path)[1]
    assert prepared(p.TRL_DPO, plain, tmp_path)[1] == p.YES["content"] + "<|im_end|>\n"
