"""The real files load with no shape given, with the counts that their SOURCE.txt states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from curate.sources import SourceConfig
from tests.sources.conftest import load

DOCS = Path(__file__).parents[2] / "docs" / "sources.md"

# file: shape, rows, dialogues
FILES = {
    "mtbench101/mtbench101.jsonl": ("history", 1388, 1388),
    "tau_bench/gpt-4o-airline.json": ("trajectory", 200, 200),
    "hh_rlhf/test.jsonl.gz": ("hh", 2312, 4621),
    "oasst/oasst2_filtered.jsonl": ("oasst", 551, 523),
    "oasst/en_100_tree.jsonl": ("oasst", 100, 564),
    "oasst/realistic_seed_data.json": ("oasst", 444, 158),
    "llamafactory_demos/alpaca_en_demo.json": ("alpaca", 999, 999),
    "llamafactory_demos/dpo_en_demo.json": ("preference", 300, 600),
    "llamafactory_demos/glaive_toolcall_en_demo.json": ("sharegpt", 300, 300),
    "llamafactory_demos/kto_en_demo.json": ("messages", 300, 300),
    "llamafactory_demos/reason_tool_use_demo_50.jsonl": ("messages", 50, 50),
    "llamafactory_demos/v1_dpo_demo.jsonl": ("preference", 10, 20),
    "llamafactory_demos/v1_sft_demo.jsonl": ("messages", 500, 500),
    "axolotl_fixtures/alpaca.json": ("alpaca", 2, 2),
    "axolotl_fixtures/conversation.json": ("sharegpt", 1, 1),
    "axolotl_fixtures/conversation.missingturns.json": ("sharegpt", 1, 1),
    "gaussia_role/dataset_role_adherence.json": ("gaussia", 2, 2),
    "role_benchmark/benchmark.json": ("gaussia", 150, 150),
    "mt_bench/dummy_conversation.json": ("sharegpt", 500, 500),
    "llm_rubric/real_data.json": ("messages", 223, 223),
}

# folder: rows, data files that are not dialogues
FOLDERS = {
    "mtbench101": (1388, set()),
    "tau_bench": (200, set()),
    "hh_rlhf": (2312, set()),
    "oasst": (1095, set()),
    "llamafactory_demos": (2459, {"dataset_info.json"}),
    "axolotl_fixtures": (4, set()),
    "gaussia_role": (2, set()),
    "role_benchmark": (150, {"logprob_results.json"}),
    "mt_bench": (500, {"gpt-4.jsonl", "judge_prompts.jsonl", "question.jsonl"}),
    "llm_rubric": (
        223,
        {
            "gpt-3.5-turbo-16k_real_evaluations_FIXED.tsv",
            "human_judges_real_convs_FIXED_ANON.tsv",
            "human_judges_synth_all_FIXED_ANON.tsv",
            "real_dialogue_ids.tsv",
        },
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_loads_with_no_shape_given(shared_data: Path, name: str) -> None:
    shape, rows, dialogues = FILES[name]
    loaded = load(SourceConfig(path=str(shared_data / name)))
    assert (loaded.shape, loaded.source.detection.confidence) == (shape, 1.0)
    assert (loaded.tally.rows_in, loaded.tally.dialogues) == (rows, dialogues)
    assert len({dialogue.id for dialogue in loaded.dialogues}) == dialogues
    if not name.startswith("oasst"):
        assert loaded.tally.quarantined == 0


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_loads_and_names_what_is_no_dialogue(shared_data: Path, name: str) -> None:
    rows, not_dialogues = FOLDERS[name]
    loaded = load(SourceConfig(path=str(shared_data / name)))
    assert loaded.tally.rows_in == rows
    skipped = {
        Path(item.file).name
        for item in loaded.source.skipped_files
        if item.reason != "not a data file"
    }
    assert skipped == not_dialogues


def test_tau_bench_keeps_tools_rewards_and_trials(shared_data: Path) -> None:
    dialogues = load(
        SourceConfig(path=str(shared_data / "tau_bench/gpt-4o-airline.json"))
    ).dialogues
    assert sum(dialogue.reward or 0 for dialogue in dialogues) == 84
    assert len({dialogue.group for dialogue in dialogues}) == 50
    calls = [call for dialogue in dialogues for m in dialogue.messages for call in m.tool_calls]
    results = [m for dialogue in dialogues for m in dialogue.messages if m.role == "tool"]
    assert len(calls) == len(results) == 1164
    assert all(isinstance(call.arguments, dict) for call in calls)
    assert all(dialogue.expected_outcomes for dialogue in dialogues)


def test_mtbench101_turns(shared_data: Path) -> None:
    dialogues = load(SourceConfig(path=str(shared_data / "mtbench101/mtbench101.jsonl"))).dialogues
    assert sum(len(dialogue.turns) for dialogue in dialogues) == 4208


def test_oasst_siblings_can_be_found_again(shared_data: Path) -> None:
    """All ranked sibling sets that SOURCE.txt counts, from the dialogues alone."""
    loaded = load(SourceConfig(path=str(shared_data / "oasst/oasst2_filtered.jsonl")))
    siblings: dict[tuple[str, ...], dict[str, int]] = {}
    for dialogue in loaded.dialogues:
        ids = dialogue.metadata["message_ids"]
        for index, rank in enumerate(dialogue.labels["message_ranks"]):
            if rank is not None and dialogue.messages[index].role == "assistant":
                siblings.setdefault(tuple(ids[:index]), {})[ids[index]] = rank
    assert sum(len(ranks) > 1 for ranks in siblings.values()) >= 100
    assert dict(loaded.tally.reasons) == {"no_assistant": 432, "deleted": 1}


def test_role_benchmark_is_turn_zero_with_labels(shared_data: Path) -> None:
    dialogues = load(
        SourceConfig(path=str(shared_data / "role_benchmark/benchmark.json"))
    ).dialogues
    assert all(dialogue.turns[0].number == 0 for dialogue in dialogues)
    assert all(dialogue.references and dialogue.role_definition for dialogue in dialogues)
    assert {dialogue.labels["label"] for dialogue in dialogues} >= {"adherent"}


def _documented(name: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> SourceConfig:
    block = re.search(rf"<!-- mapping: {name} -->\n```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert block is not None
    monkeypatch.chdir(data)
    return SourceConfig.model_validate(yaml.safe_load(block.group(1))["source"])


def test_the_documented_mapping_reads_conture(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(_documented("conture", shared_data, monkeypatch))
    assert (loaded.tally.dialogues, loaded.tally.quarantined) == (118, 1)
    assert loaded.tally.reasons == {"empty_user": 1}  # dialogue 64 has a turn "User:"
    assert sum(len(d.labels["overall_impression"]) for d in loaded.dialogues) == 1057
    assert all(
        not message.content.startswith(("User:", "Chatbot:"))
        for dialogue in loaded.dialogues
        for message in dialogue.messages
    )


def test_the_documented_mapping_reads_tooltalk(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(_documented("tooltalk", shared_data, monkeypatch))
    assert (loaded.tally.dialogues, loaded.tally.quarantined) == (78, 0)
    messages = [message for dialogue in loaded.dialogues for message in dialogue.messages]
    assert sum(len(message.tool_calls) for message in messages) == 266
    assert sum(message.role == "tool" for message in messages) == 266
    assert sum(message.role != "tool" and not message.tool_calls for message in messages) == 503


def test_the_docs_list_every_quarantine_reason() -> None:
    from curate.records import QuarantineReason

    text = DOCS.read_text()
    for reason in QuarantineReason:
        assert f"| `{reason}` | {reason.meaning} |" in text
