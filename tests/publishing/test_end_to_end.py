"""The command on a scripted run with natural pairs, and what others get from the Hub afterwards.

Each is a process of its own, as users have it: the Hub's address is read when a process starts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from curate.publishing.hub_commit import REPORT
from curate.run.read_back import read_manifest
from tests.hub_server import HubServer, Repo
from tests.live import live_server
from tests.processes import curate
from tests.publishing.test_push import SIDES, lines, rows_of
from tests.run.test_pipeline import chat
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

    with_report = curate("push", run, REPO, "--report", env=outside)
    assert with_report.returncode == 0, with_report.stderr
    assert hub.files(REPO)[REPORT] == (run / f"push/files/{REPORT}").read_bytes()
    without = curate("push", run, REPO, env=outside)
    assert f"removed, from an earlier push: {REPORT}" in without.stdout
    assert REPORT not in hub.files(REPO)


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
    for word in ("email: 1 in 1 row, stops the push", "phone: 1 in 1 row, allowed", "a…@l….org"):
        assert word in said
    assert "--allow email" in said
    assert lines(run / "push/findings.jsonl")[0]["row_id"] in said
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


def test_a_pushed_recipe_is_run_again_with_files_and_servers_of_ones_own(
    run: Path, hub: HubServer, outside: dict[str, str], tmp_path: Path
) -> None:
    assert curate("push", run, REPO, env=outside).returncode == 0
    held = hub.files(REPO)["recipe.yaml"].decode()
    assert "127.0.0.1" not in held
    assert str(tmp_path) not in held
    manifest = read_manifest(run)
    files = [str(source["path"]) for source in manifest.recipe["source"]]
    again = ["run", f"hf://{REPO}", "--out", str(tmp_path / "again")]
    with live_server() as server:
        own = ["--set", f"models.judge.base_url={server.base_url}"]
        own += ["--set", f"models.policy.base_url={server.base_url}"]
        there = [f"--set=source.{at}.path={path}" for at, path in enumerate(files)]
        for options, words in [
            ([], "models.judge: fake-judge"),
            (own, "chats.jsonl, prefs.jsonl"),
            ([*own, "--set", f"source.0.path={files[0]}"], "--set source.1.path=FILE"),
        ]:
            refused = curate(*again, *options, env=outside, cwd=tmp_path)
            assert refused.returncode == 2
            assert words in " ".join(refused.stderr.split())
        assert server.requests == []
        done = curate(*again, *own, *there, env=outside, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = read_manifest(tmp_path / "again")
    for name in ("verdicts", "selected", "pairs", "natural_pairs", "dialogues"):
        assert getattr(made, name) == getattr(manifest, name)


def test_what_is_no_pushed_recipe_is_refused(hub: HubServer, outside: dict[str, str]) -> None:
    hub.repos["me/bare"] = Repo(private=False)
    hub.repos["me/bare"].commit("main", "first", {"a.txt": b"a"}, [])
    for name, words in [
        ("hf://me/none", "the Hub has no dataset me/none"),
        ("hf://me/bare", "me/bare has no recipe"),
        ("hf://me", "expected: hf://owner/name"),
        ("hf://me/bare@nowhere", "check HF_ENDPOINT, the network and the revision"),
    ]:
        refused = curate("run", name, env=outside)
        assert refused.returncode in (1, 2)
        assert words in " ".join(refused.stderr.split())
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("streaming", [None, True, False])
def test_a_set_on_the_hub_is_read_streamed_or_not(
    hub: HubServer, outside: dict[str, str], tmp_path: Path, streaming: bool | None
) -> None:
    rows = b"".join(json.dumps(chat(n)).encode() + b"\n" for n in range(5))
    hub.repos["me/chats"] = Repo(private=False)
    hub.repos["me/chats"].commit("main", "first", {"train.jsonl": rows}, [])
    settings = {"path": "me/chats", "limit": 3} | (
        {} if streaming is None else {"streaming": streaming}
    )
    (tmp_path / "hub.yaml").write_text(json.dumps({"source": settings}))
    done = curate("ingest", "--recipe", "hub.yaml", "--json", env=outside, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows_in"] == 3
    fetched = [path for method, path in hub.requests if method == "GET" and "train.jsonl" in path]
    assert fetched
    # What is streamed is not kept; what is not streamed is, and read from there.
    kept = list((tmp_path / "hf").rglob("*.arrow"))
    assert bool(kept) == (streaming is False)


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
    # A config whose pairs are all for validation has nothing to train on, and no code that would.
    tables = {name: data for name, data in hub.files(REPO).items() if "/train-" in name}
    rows = {name: pq.read_metadata(BytesIO(data)).num_rows for name, data in tables.items()}
    to_train = [name for name, count in rows.items() if re.match(r"sft|dpo", name) and count]
    assert len(blocks) == len(to_train) >= 2
    code = "\n".join(blocks).replace("your/model", str(tiny_model(tmp_path / "tiny")))
    small = "max_length=4096, max_steps=1, use_cpu=True, bf16=False, report_to=[]"
    code = code.replace("max_length=4096", small)
    trained = process(sys.executable, "-c", code, env=outside, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert trained.stdout.count("train_loss") == len(blocks)
