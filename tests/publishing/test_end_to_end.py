"""The command on a scripted run with natural pairs, and what others get from the Hub afterwards.

Each is a process of its own, as users have it: the Hub's address is read when a process starts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_commands import ROOT
from tests.hub_server import HubServer
from tests.processes import curate
from tests.publishing.test_push import SIDES, lines, rows_of
from tests.trainer_check.asking import tokenizer_folder

REPO = "me/parcels"

LOAD = """
import sys, orjson, datasets
for config in ("sft", "dpo_natural", "judgments"):
    loaded = datasets.load_dataset(sys.argv[1], config)
    for split, rows in loaded.items():
        print(orjson.dumps([config, split, list(rows)]).decode())
"""

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def outside(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that talks to this Hub, with caches of its own."""
    online = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "0")
    own = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_TOKEN": "hf_test",
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": str(ROOT),
    }
    return os.environ | online | own


def process(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, arguments)], capture_output=True, text=True, **options)


def test_a_run_goes_to_the_hub_and_comes_back_equal(
    run: Path, hub: HubServer, outside: dict[str, str]
) -> None:
    dry = curate("push", run, REPO, "--dry-run", env=outside)
    assert dry.returncode == 0, dry.stderr
    assert hub.requests == []
    for file in (run / "push/files").rglob("*.*"):
        name, size = str(file.relative_to(run / "push/files")), f"{file.stat().st_size:,}"
        assert re.search(rf"^{re.escape(name)} .*{size}$", dry.stdout, re.MULTILINE)
    for word in ("nothing was sent", "cc-by-4.0", "rows in 48", "0 findings", "same model"):
        assert word in dry.stdout
    assert max(map(len, dry.stdout.splitlines())) <= 80 or str(run) in dry.stdout

    pushed = curate("push", run, REPO, env=outside)
    assert pushed.returncode == 0, pushed.stderr
    assert f"pushed (private): {hub.url}/datasets/{REPO}/commit/" in pushed.stdout
    assert hub.body("/api/repos/create")["visibility"] == "private"
    assert len(hub.repos[REPO].history()) == 2

    back = process(sys.executable, "-c", LOAD, REPO, env=outside)
    assert back.returncode == 0, back.stderr
    loaded = {(c, s): rows for c, s, rows in map(json.loads, back.stdout.splitlines())}
    from curate.publishing.push import prepare_push

    prepared = prepare_push(run, REPO)
    assert loaded.keys() == {(c, s) for c in ("sft", "dpo_natural", "judgments") for s, _ in SIDES}
    for (config, split), rows in loaded.items():
        assert rows == rows_of(prepared, config, split)
    natural = loaded["dpo_natural", "train"]
    assert [{k: row[k] for k in ("prompt", "chosen", "rejected")} for row in natural] == lines(
        run / "export/trl/dpo_natural.jsonl"
    )
    assert natural

    again = curate("push", run, REPO, env=outside)
    assert again.returncode == 0
    assert "unchanged" in again.stdout
    assert len(hub.repos[REPO].history()) == 2


def test_findings_stop_the_command_and_are_shown_masked(
    run: Path, hub: HubServer, outside: dict[str, str], edit_export: Any
) -> None:
    edit_export("write to ada@lovelace.org or ring +44 20 7946 0958")
    stopped = curate("push", run, REPO, "--allow", "phone", env=outside)
    said = stopped.stdout + stopped.stderr
    assert stopped.returncode == 1
    assert hub.requests == []
    assert "Traceback" not in said
    assert "ada@" not in said
    for word in ("email: 1 in 1 rows, stops the push", "phone: 1 in 1 rows, allowed", "a…@l….org"):
        assert word in said
    assert "--allow email" in said
    assert "chat-0" in said
    both = ("--allow", "phone", "--allow", "email")
    assert curate("push", run, REPO, *both, env=outside).returncode == 0


def test_mistakes_end_with_their_code_and_say_what_to_do(
    run: Path, hub: HubServer, outside: dict[str, str]
) -> None:
    licence = curate("push", run, REPO, "--license", "nope", env=outside)
    no_token = curate("push", run, REPO, env=outside | {"HF_TOKEN": ""})
    away = outside | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    unreachable = curate("push", run, REPO, env=away)
    for failed, code, words in [
        (licence, 2, "no licence of that name"),
        (no_token, 2, "HF_TOKEN"),
        (unreachable, 1, "cannot be reached"),
    ]:
        assert failed.returncode == code, failed.stdout
        assert words in " ".join(failed.stderr.split())
        assert "Traceback" not in failed.stderr
    assert hub.requests == []


def tiny_model(folder: Path) -> Path:
    """A random Llama of a few thousand weights and a tokenizer of bytes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer_folder(folder, TEMPLATE)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=600,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=4096,
        )
    ).save_pretrained(folder)
    return folder


@pytest.mark.trainer
def test_the_code_on_the_card_trains(
    run: Path, hub: HubServer, outside: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("trl", reason="needs the dependency group 'trainers'")
    assert curate("push", run, REPO, env=outside).returncode == 0
    card = hub.files(REPO)["README.md"].decode()
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    # `dpo` has but one pair, for validation: nothing to train on, and no code that would.
    assert len(blocks) == 2
    code = "\n".join(blocks).replace("your/model", str(tiny_model(tmp_path / "tiny")))
    small = "max_length=4096, max_steps=1, use_cpu=True, bf16=False, report_to=[]"
    code = code.replace("max_length=4096", small)
    trained = process(sys.executable, "-c", code, env=outside, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert trained.stdout.count("train_loss") == 2
