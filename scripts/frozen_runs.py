"""Freeze what runs give, and print where two trees differ: the check for a change that should change nothing.

    python scripts/frozen_runs.py make OUT [--data ../shared/data] [--only SOURCE …]
    python scripts/frozen_runs.py compare A B [--only SOURCE …]

`make` runs this tree's `curate` on five sources against a server in this process, and keeps under OUT what a
user gets: every row table, every export, the closing figures, what `show`, `estimate`, `--dry-run`, `push
--dry-run` and `calibrate` say, and exit codes; besides, every distinct request that was made. The server's
replies follow from a request's messages and options alone, a few of them faulty, so a changed word in a
prompt changes what comes out. `compare` matches rows by what they are about, not by order, and ends with 1
and a list where something differs. Text for people is compared by its figures: its wording may change, and
that is noted without failing.

A change on purpose goes into `RENAMED` or `LEFT_OUT` below. A run folder's files are read by the `read_*`
functions, one a kind: a new layout changes those and nothing else, and the kept files stay comparable.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import os
import random
import re
import shutil
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from aiohttp import web

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # this tree's curate, whichever is installed

from tests.processes import start  # noqa: E402

RENAMED: dict[str, str] = {
    # Old name to new: keys, whole string values and file names of rows, on both sides of a comparison.
    "refused_pairs": "dropped_pairs",
    "refusal": "drop_reason",
    "refusals": "drop_reasons",
    "natural_refusals": "natural_drop_reasons",
    "judging": "judge",
}
LEFT_OUT = frozenset(
    # Keys that say when, where or with which code a row was made.
    {
        *("fingerprint", "fingerprints", "code_version", "prompt_version", "versions"),
        *("judge_key", "adherence_key"),
        *("started", "finished", "seconds", "seconds_by_stage", "recipe"),
        "hashes",  # of files that name the source's place
    }
)
ADDED = frozenset({"kind"})
"""Keys that rows have got since."""
PROSE = frozenset({"detail", "warnings", "assumptions", "levels", "pair_decisions", "fix"})
"""Keys whose values are sentences of ours: compared by the figures in them."""
UNSTEADY = ("sample", "hh_rlhf", "oasst")
"""Sources some of whose dialogues share requests: how many of equal ones in flight are sent hangs on the clock."""
UNSTEADY_KEYS = frozenset(
    {
        *("requests", "requests_sent", "cost", "tokens_in", "tokens_out"),
        *("prompt_tokens", "completion_tokens"),
    }
)
UNSTEADY_LINES = re.compile(r"requests |tokens |cost |  \d+ of the requests")
TOLERANCE = 1e-9

WORDS = [
    *("order", "refund", "ticket", "address", "window", "table"),
    *("river", "garden", "letter", "invoice", "museum", "station"),
]
BETTER = "To settle this properly:"
"""How most of the policy's candidates begin; the judge prefers what has it."""


# The server ------------------------------------------------------------------------------------------------


def asked_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return what a reply follows from: the messages and the options that steer generation."""
    names = (
        *("model", "messages", "temperature", "top_p", "seed", "max_tokens", "tools"),
        *("response_format", "logprobs", "top_logprobs", "add_generation_prompt", "stop"),
    )
    return {name: body[name] for name in names if name in body}


def digest_of(value: Any) -> str:
    """Return 32 hex digits of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def instance(schema: dict[str, Any], draw: random.Random, root: dict[str, Any]) -> Any:
    """A value that is valid for a schema; levels lean to the good side, as real judges' do."""
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return instance(target, draw, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _leaning(schema["enum"], draw)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return instance(draw.choice(schema[union]), draw, root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = draw.choice(kind)
    if kind == "object":
        return {name: instance(of, draw, root) for name, of in schema["properties"].items()}
    if kind == "array":
        low = int(schema.get("minItems", 0))
        count = draw.randint(low, int(schema.get("maxItems", low + 2)))
        return [instance(schema.get("items", {}), draw, root) for _ in range(count)]
    if kind == "integer":
        low, high = int(schema.get("minimum", 1)), int(schema.get("maximum", 5))
        return _leaning(range(low, high + 1), draw)
    if kind == "number":
        return round(draw.uniform(schema.get("minimum", 0), schema.get("maximum", 1)), 3)
    if kind == "boolean":
        return draw.random() < 0.5
    return None if kind == "null" else " ".join(draw.sample(WORDS, 3))


def _leaning(values: Iterable[Any], draw: random.Random) -> Any:
    values = list(values)
    levels = [isinstance(value, int) and 1 <= value <= 5 for value in values]
    weights = [
        {5: 84, 4: 7, 3: 4, 2: 3, 1: 2}[value] if is_level else 10
        for value, is_level in zip(values, levels, strict=True)
    ]
    return draw.choices(values, weights)[0]


def labels_asked(text: str) -> tuple[list[str], str]:
    """The labels of a one-token answer, and the one that is preferred; the question stands last."""
    if "ONLY with YES" in text:
        return ["YES", "NO"], "YES"
    letters = re.findall(r"one letter, ([A-Z, or]+)\.", text)
    if letters:
        labels = re.findall("[A-Z]", letters[-1])
        shown = re.findall(r"Candidate ([AB])\n<candidate>(.*?)</candidate>", text, re.DOTALL)[-2:]
        better = [label for label, said in shown if BETTER in said]
        if len(shown) == 2 and len(better) != 1:
            better = [max(shown, key=lambda side: len(side[1]))[0]]
        better += re.findall(r"(?m)^([A-Z]) = (?:none of them is made up|yes, )", text)[-1:]
        return labels, better[0] if len(better) == 1 else ""
    last = text.rpartition("\n\n")[2][-1500:]
    choices = re.findall(r"(?m)^([A-Z]) = ", last) or re.findall(r"\b([A-Z]) = ", last)
    if choices:
        return choices, ""
    return [*"12345", *("N" if "letter N" in last else "")], "5" if BETTER in text else ""


def first_token(text: str, count: int, draw: random.Random) -> list[tuple[str, float]]:
    """Log-probabilities of a first token, the likeliest first, their sum a little under 1."""
    labels, preferred = labels_asked(text)
    weights = {label: draw.random() ** 3 / 5 + 1e-3 for label in labels}
    if labels[0] == "1":
        weights[str(_leaning(range(1, 6), draw))] += 4.0
    elif labels == ["YES", "NO"]:
        weights["YES"] += 1.2
    if preferred:
        weights[preferred] += 3.0
    if draw.random() < 0.004:  # no label has mass: the reply cannot be used
        weights = {label: weight * 1e-6 for label, weight in weights.items()} | {"The": 1.0}
    for filler in ("The", "I", "Sure", "\n", "**", "Turn"):
        weights.setdefault(filler, 1e-4 * (1 + draw.random()))
    total = sum(weights.values()) * 1.001
    ranked = sorted(weights, key=lambda token: (-weights[token], token))
    return [(token, math.log(weights[token] / total)) for token in ranked[:count]]


def words_for(text: str, draw: random.Random) -> str:
    """A reply in words: a yes or no, the lines that are asked for, a repaired call, or a candidate message."""
    some = " ".join(draw.choices(WORDS, k=8))
    if "ONLY with YES" in text:
        return "YES" if draw.random() < 0.8 else "NO"
    lines = re.findall(r"(?m)^(turn \d+|\w+|basis): (?:what is wrong|why|the reason)", text)
    if "Write exactly these lines" in text and lines:
        return "\n".join(f"{name}: the {some}" for name in lines)
    if "Write the mended calls" in text:
        calls = re.findall(r'"?name"?: "(\w+)"', text.rpartition("<reply>")[2]) or ["think"]
        return json.dumps({"name": calls[0], "arguments": {"note": some}})
    if "Which of them does it break" in text or "What is wrong with" in text:
        return f"It leaves out the {some}."
    asked_for = draw.randint(1, 3) * 10
    said = " ".join(draw.choices(WORDS, k=asked_for))
    opening = BETTER if draw.random() < 0.7 else "Well,"
    thought = f"<think>Is it the {draw.choice(WORDS)}?</think>" if draw.random() < 0.1 else ""
    return f"{thought}{opening} I looked at the {said}. The total is {draw.randint(10, 99)} euros."


REFUSAL = "I'm sorry, but I can't help with that."


def reply_to(body: dict[str, Any]) -> tuple[str, list[tuple[str, float]], str]:
    """Text, the first token's distribution where asked for, and why it ended."""
    asked = asked_of(body)
    draw = random.Random(digest_of(asked))
    text = "\n\n".join(str(message.get("content") or "") for message in body["messages"])
    if body.get("logprobs"):
        ranked = first_token(text, int(body.get("top_logprobs") or 1), draw)
        return ranked[0][0], ranked, "stop"
    luck = draw.random()
    if luck < 0.02:
        return REFUSAL, [], "stop"
    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema is None:
        return words_for(text, draw), [], "length" if luck > 0.98 else "stop"
    preferred = labels_asked(text)[1] if list(schema.get("properties", {})) == ["answer"] else ""
    value = instance(schema, draw, schema)
    said = json.dumps({"answer": preferred} if preferred and luck < 0.9 else value)
    if luck < 0.05:
        return said[: len(said) * 2 // 3], [], "stop"
    if luck < 0.15:  # as models do that know no schema
        return f"Here it is:\n```json\n{said}\n```", [], "stop"
    return (f"<think>Let me see {{first}}.</think>{said}" if luck < 0.2 else said), [], "stop"


class Server:
    """An OpenAI-compatible server; a small share of requests meets a 503 the first time.

    Attributes:
        asked: every distinct request since `begin`, by digest, and how often it came.
    """

    def __init__(self) -> None:
        self.port = 0
        self.asked: dict[str, dict[str, Any]] = {}
        self.times: Counter[str] = Counter()

    @property
    def about_dialogues(self) -> int:
        """Requests received, the probes at opening aside."""
        return sum(
            times
            for digest, times in self.times.items()
            if any("<dialogue>" in str(m["content"]) for m in self.asked[digest]["messages"])
        )

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def _models(self, _: web.Request) -> web.Response:
        data = [{"id": name, "owned_by": "frozen"} for name in ("frozen-judge", "frozen-policy")]
        return web.json_response({"object": "list", "data": data})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        asked = asked_of(body)
        digest = digest_of(asked)
        self.asked[digest] = asked
        self.times[digest] += 1
        if int(digest[:8], 16) % 50 == 0 and self.times[digest] == 1:
            error = {"message": "overloaded", "type": "server_error"}
            return web.json_response({"error": error}, status=503, headers={"retry-after-ms": "1"})
        text, ranked, finish = reply_to(body)
        message = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
        if ranked:
            top = [{"token": token, "logprob": value} for token, value in ranked]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        prompt = sum(len(str(m.get("content") or "")) for m in body["messages"]) // 4 + 1
        usage = {"prompt_tokens": prompt, "completion_tokens": len(text) // 4 + 1}
        return web.json_response({"id": "x", "choices": [choice], "usage": usage})


@contextmanager
def serving() -> Iterator[Server]:
    """The server in a thread of its own."""
    server = Server()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server._runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


# The sources -----------------------------------------------------------------------------------------------


EXPORTS = ["trl", "unsloth", "axolotl", "llamafactory", "openrlhf", "verl", "swift", "openai"]
LEAKED = "Please write to jo.doe@example.com or call +44 20 7946 0958; card 4111 1111 1111 1111."


def recipes(data: Path, work: Path) -> dict[str, dict[str, Any]]:
    """Recipe by source, without its models; small inputs are written into `work`."""
    sample = ROOT / "recipes" / "sample"
    work.mkdir(parents=True, exist_ok=True)
    private = work / "private.jsonl"
    private.write_text(_row("private-1", "A clerk of a shop.", LEAKED, f"Noted: {LEAKED}"))
    twice = work / "twice.jsonl"
    twice.write_text((sample / "support.jsonl").read_text().splitlines()[0] + "\n")
    scenario = "A person asks for help; the assistant keeps to what was said and gets the job done."
    shared = {"scenario": scenario, "max_unscored": 0.5}
    return {
        "sample": shared
        | {
            "source": [
                *({"path": str(sample / f"{name}.jsonl")} for name in ("support", "dialogues")),
                *({"path": str(sample / f"{name}.jsonl")} for name in ("preferences", "bad")),
                *({"path": str(path)} for path in (private, twice)),
            ],
            "redact": ["email", "phone", "card"],
            "judge": {"mode": "tokens", "text": "all"},
            "adherence": {"output_mode": "continuous", "missing_role": "skip"},
            "select": {
                "where": {"helpful": "mean_helpfulness >= 2.5", "in_role": "adherence >= 0.5"},
                "review": "verdict_mismatch OR weakest_mismatch",
                "dedup": {"keep": "mean_score"},
                "split": {"validation": 0.2},
            },
            "fork": {"resamples": 2, "principles": ["Say what happens next.", "Invent nothing."]},
            "natural": {"verify": True},
            "pair_checks": {"min_pairs": 5},
            "export": {"trainers": EXPORTS, "salvage": {}, "kto_turns": {}, "role_as_system": True},
        },
        "tau_bench": shared
        | {
            "source": {"path": str(data / "tau_bench" / "gpt-4o-airline.json"), "limit": 14},
            "judge": {"mode": "json", "text": "all", "window_turns": 4, "overlap": 2},
            "adherence": {"output_mode": "binary", "include_reason": True},
            "select": {"top": {"fraction": 0.5, "by": "mean_score"}, "where": {}},
            "fork": {
                "where": "weakest_turn IS NOT NULL AND n_turns <= 12",
                "tool_turns": "failed_message",
                "resamples": 1,
                "at": "weakest",
                "max_forks": 2,
            },
            "natural": {"bases": ["reward"], "pairing": "all"},
            "export": {"trainers": EXPORTS, "formats": ["jsonl"]},
        },
        "hh_rlhf": shared
        | {
            "source": {"path": str(data / "hh_rlhf" / "test.jsonl.gz"), "limit": 24},
            "role": "A helpful and harmless assistant.",
            "judge": {"mode": "tokens", "paraphrases": 2},
            "adherence": {"output_mode": "continuous", "definition": "restrictive"},
            "select": {"where": {"good": "verdict >= 'borderline'"}, "rejected_sides": True},
            "natural": {"verify": {"wordings": 2}, "may_be_fine": True},
            "pair_checks": {"min_pairs": 5},
            "export": {"trainers": ["trl", "openrlhf", "swift"], "shard_rows": 10},
        },
        "oasst": shared
        | {
            "source": {"path": str(data / "oasst" / "en_100_tree.jsonl"), "limit": 10},
            "role": "A helpful, honest assistant.",
            "judge": {"mode": "json", "on_mismatch": "retry"},
            "adherence": {
                "output_mode": "continuous",
                "evaluation_granularity": "conversation",
                "strict_mode": True,
            },
            "select": {
                "dedup": {"near": {"threshold": 0.5, "of": ["dialogue", "first_user"]}},
                "split": {"validation": 0.3},
                "active": "attention > 0.3",
            },
            "fork": {
                "at": "earliest",
                "resamples": 2,
                "early_stop": True,
                "guided_revision": False,
            },
            "natural": {"verify": {"check_specifics": False}, "may_be_fine": True},
            "export": {"trainers": ["trl", "llamafactory", "axolotl"], "formats": ["parquet"]},
        },
        "mtbench101": shared
        | {
            "source": {"path": str(data / "mtbench101" / "mtbench101.jsonl"), "limit": 24},
            "role": "A patient assistant.",
            "role_from": "recipe",
            "judge": {"mode": "tokens", "window_context": "full", "conversation": "windows"},
            "adherence": {"output_mode": "binary", "interval": "bayesian", "threshold": 0.7},
            "select": {
                "where": {"helpful": "mean_helpfulness >= 2"},
                "decontaminate": {"path": str(_eval_set(data, work)), "ngram": 6},
            },
            "export": {"trainers": ["trl", "verl"], "keep_reasoning": True},
        },
        # Dialogues of the same data by reference answers, which asks no judge.
        **{
            f"references_{method}": shared
            | {
                "source": {"path": str(_with_references(data, work))},
                "judge": False,
                "adherence": {"scoring_method": method},
                "select": {"where": {"in_role": "adherence >= 0.2"}},
            }
            for method in ("rouge", "bleu")
        },
    }


def _row(name: str, system: str, *texts: str) -> str:
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}]
    messages += [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return json.dumps({"id": name, "messages": messages}) + "\n"


def _chats(data: Path, count: int) -> list[dict[str, Any]]:
    path = data / "mtbench101" / "mtbench101.jsonl"
    with path.open() as lines:
        return [json.loads(next(lines)) for _ in range(count)]


def _eval_set(data: Path, work: Path) -> Path:
    """Two texts of the data, as an evaluation that they leaked from."""
    path = work / "eval.txt"
    texts = [chat["history"][0]["user"] for chat in _chats(data, 8)[3:5]]
    path.write_text("".join(" ".join(text.split()) + "\n" for text in texts))
    return path


def _with_references(data: Path, work: Path) -> Path:
    """Dialogues whose turns have a reference answer: the reply to come, with words exchanged."""
    path, draw = work / "references.jsonl", random.Random(3)
    with path.open("w") as out:
        for at, chat in enumerate(_chats(data, 10)):
            messages: list[dict[str, Any]] = [{"role": "system", "content": "A patient assistant."}]
            references = []
            for turn in chat["history"]:
                words = turn["bot"].split()
                references.append([" ".join(w for w in words if draw.random() < 0.6) or "Yes."])
                messages.append({"role": "user", "content": turn["user"]})
                messages.append({"role": "assistant", "content": turn["bot"]})
            row = {"id": f"ref-{at}", "messages": messages, "references": references}
            out.write(json.dumps(row) + "\n")
    return path


# Making ----------------------------------------------------------------------------------------------------


class Maker:
    """Runs commands of one source and keeps what they leave."""

    def __init__(
        self, server: Server, folder: Path, recipe: dict[str, Any], paths: dict[str, Path]
    ) -> None:
        self.server, self.kept, self.work = server, folder / "kept", folder / "work"
        self.paths = {"WORK": self.work, **paths}
        self.kept.mkdir(parents=True)
        self.work.mkdir(exist_ok=True)
        model = {
            "engine": "openai",
            # An address that counts as hosted, so that what is redacted for one is.
            "base_url": f"http://0.0.0.0:{server.port}/v1",
            "revision": "frozen-1",
            "in_flight": 8,
            "concurrency": "fixed",
            "prices": {"input": 1.0, "output": 2.0},
        }
        models = {role: {**model, "model": f"frozen-{role}"} for role in ("judge", "policy")}
        self.recipe = {"name": "frozen", "models": models} | recipe
        self.path = self.work / "recipe.yaml"
        self.path.write_text(json.dumps(self.recipe))
        self.run_folder = self.work / "run"
        self.commands: dict[str, Any] = {}

    def curate(self, name: str, *words: str | Path) -> str:
        """Run a command; its exit code and its figures are kept."""
        env = dict(os.environ, PYTHONPATH=str(ROOT), COLUMNS="200", NO_COLOR="1", TERM="dumb")
        done = start(*words, env=env, cwd=self.work).wait()
        print(f"  {name}: exit {done.returncode}", flush=True)
        (self.work / f"{name}.out").write_text(done.stdout)
        (self.work / f"{name}.err").write_text(done.stderr)
        self.commands[name] = {"exit": done.returncode}
        return _without_clock(done.stdout)

    def clean(self, text: str) -> str:
        """The text without this machine's paths and port."""
        for sign, path in self.paths.items():
            text = text.replace(str(path), sign)
        return text.replace(f":{self.server.port}", ":PORT")

    def keep(self, name: str, value: Any) -> None:
        """Write one kept file: {"kind": rows | value | text, "content": …}."""
        kind = "text" if isinstance(value, str) else "rows" if isinstance(value, list) else "value"
        text = json.dumps({"kind": kind, "content": value}, ensure_ascii=False, default=str)
        (self.kept / f"{name}.json").write_text(self.clean(text))


def _without_clock(text: str) -> str:
    lines = [line for line in text.splitlines() if not re.match(r"seconds|time\b", line)]
    text = re.sub(r"\b[\d.,]+ ?(?:ms|s|sec|seconds?|minutes?|min|h)\b", "TIME", "\n".join(lines))
    return re.sub(r"\b\d{1,2}:\d\d(:\d\d)?\b", "TIME", text)


def make(out: Path, data: Path, only: set[str]) -> None:
    """Run every source into OUT."""
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty; name a new folder")
    out, data = out.resolve(), data.resolve()
    paths = {"INPUTS": out / "inputs", "DATA": data, "ROOT": ROOT}
    with serving() as server:
        for name, recipe in recipes(data, paths["INPUTS"]).items():
            if only and name not in only:
                continue
            print(name, flush=True)
            server.asked.clear()
            server.times.clear()
            make_one(Maker(server, out / name, recipe, paths), name)


def make_one(maker: Maker, name: str) -> None:
    """Run all commands of one source, and keep their output."""
    run, recipe = maker.run_folder, maker.path
    if name in ("sample", "tau_bench"):
        maker.keep("dry_run", maker.curate("dry_run", "run", recipe, "--out", run, "--dry-run"))
    if name in ("sample", "oasst"):
        said = maker.curate("estimate", "estimate", recipe, "--out", run, "--json")
        maker.keep("estimate", json.loads(said))
    maker.curate("run", "run", recipe, "--out", run)
    maker.keep("requests", list(maker.server.asked.values()))
    keep_run(maker, run)
    maker.keep("show", maker.curate("show", "show", run))
    if name == "sample":
        ids = ["parcel-tools", "library-holds"]
        maker.keep("show_one", "\n".join(maker.curate("show_one", "show", run, one) for one in ids))
    if name in ("sample", "hh_rlhf"):
        push = ("--license", "cc0-1.0", "--language", "en", "--dry-run")
        maker.keep("push", maker.curate("push", "push", run, "me/frozen", *push))
        keep_push(maker, run)
    if name in ("sample", "tau_bench"):
        before = maker.server.about_dialogues
        maker.curate("again", "run", recipe, "--out", run)
        maker.commands["again"]["asked"] = maker.server.about_dialogues - before
        maker.keep("scores_again", read_scores(run))
    if name == "sample":
        calibrated(maker, run)
    maker.keep("commands", maker.commands)


def calibrated(maker: Maker, run: Path) -> None:
    """Fit levels to labels that follow from the scores, and run again by them: no call is made."""
    draw, gold = random.Random(11), maker.work / "gold.csv"
    lines = ["id,turn,dimension,value"]
    for row in read_stage(run, "judge"):
        for turn in row.get("per_turn", []):
            for dimension in ("context_use", "helpfulness", "safety"):
                value = min(5, max(1, round(turn["scores"][dimension] + draw.gauss(0, 0.7))))
                lines.append(f"{row['dialogue_id']},{turn['turn']},{dimension},{value}")
        if "verdict" in row:
            is_good = row["verdict"] in ("excellent", "good") or draw.random() < 0.2
            lines.append(f"{row['dialogue_id']},,accept,{'yes' if is_good else 'no'}")
    gold.write_text("\n".join(lines) + "\n")
    fitted = maker.work / "calibration.json"
    maker.keep(
        "calibrate", maker.curate("calibrate", "calibrate", run, gold, "--out", fitted, "--json")
    )
    if fitted.is_file():
        maker.keep("calibration", json.loads(fitted.read_text()))
    by_levels = maker.work / "by_levels.yaml"
    by_levels.write_text(
        json.dumps(maker.recipe | {"judge": maker.recipe["judge"] | {"calibration": str(fitted)}})
    )
    out = maker.work / "by_levels"
    shutil.copytree(run, out)
    maker.curate("by_levels", "run", by_levels, "--out", out)
    keep_run(maker, out, "by_levels_")


# Reading a run folder, one function a kind of file -----------------------------------------------------------


def read_lines(path: Path) -> list[Any]:
    """Rows of a JSON Lines file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def read_parquet(path: Path) -> list[Any]:
    """Rows of a Parquet file."""
    rows: list[Any] = json.loads(pl.read_parquet(path).write_json())
    return rows


def read_rows(path: Path) -> list[Any]:
    """Rows of either kind of file."""
    return read_parquet(path) if path.suffix == ".parquet" else read_lines(path)


def read_stage(run: Path, stage: str) -> list[Any]:
    """Rows of a stage, judged or unscored, as records."""
    tables = sorted((run / stage).glob("*/rows.parquet"))
    return [
        json.loads(record)
        for table in tables
        for record in pl.read_parquet(table, columns=["record"])["record"]
    ]


def read_scores(run: Path) -> list[Any]:
    """The score table."""
    path = run / "scores.parquet"
    return read_parquet(path) if path.is_file() else []


def read_dialogues(run: Path) -> list[Any]:
    """The normalised input."""
    return read_lines(run / "dialogues.jsonl")


def read_files(run: Path) -> dict[str, list[Any]]:
    """Quarantine, decisions and sets, pairs: name to rows."""
    found = {}
    for name in ("quarantine", "select/*", "pairs/*"):
        for path in sorted(run.glob(f"{name}.jsonl")):
            found[str(path.relative_to(run).with_suffix(""))] = read_lines(path)
    return found


def read_exports(run: Path) -> dict[str, Any]:
    """Every file of every trainer, by its path."""
    found: dict[str, Any] = {}
    folder = run / "export"
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix in (".jsonl", ".parquet"):
            found[name] = read_rows(path)
        elif path.suffix == ".json":
            found[name] = json.loads(path.read_text())
        else:
            found[name] = path.read_text()
    return found


def read_counts(run: Path) -> dict[str, Any]:
    """What the manifest counts; when, where and with which code is left out by `LEFT_OUT`."""
    counts: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    counts.pop("format", None)  # of the folder, which may change its form
    return counts


def keep_run(maker: Maker, run: Path, prefix: str = "") -> None:
    """Keep all that a run left."""
    for stage in ("judge", "adherence", "fork", "natural"):
        rows = read_stage(run, stage)
        if rows:
            maker.keep(f"{prefix}rows_{stage}", rows)
    maker.keep(f"{prefix}scores", read_scores(run))
    maker.keep(f"{prefix}dialogues", read_dialogues(run))
    for name, rows in read_files(run).items():
        maker.keep(f"{prefix}{name.replace('/', '_')}", rows)
    for name, content in read_exports(run).items():
        maker.keep(f"{prefix}export_{name.replace('/', '_')}", content)
    maker.keep(f"{prefix}counts", read_counts(run))


def keep_push(maker: Maker, run: Path) -> None:
    """Keep the card and the rows that would go out."""
    folder = run / "push" / "files"
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = f"push_{str(path.relative_to(folder)).replace('/', '_')}"
        if path.suffix == ".parquet":
            maker.keep(name, read_parquet(path))
        elif path.suffix == ".md":
            maker.keep(name, path.read_text())


# Comparing -------------------------------------------------------------------------------------------------


def normal(value: Any, key: str = "", left_out: frozenset[str] = LEFT_OUT) -> Any:
    """A value with new names, without what is left out, prose as its figures."""
    if key in PROSE:
        return _figures(json.dumps(value))
    if isinstance(value, dict):
        return {
            RENAMED.get(name, name): normal(of, name, left_out)
            for name, of in value.items()
            if name not in left_out
        }
    if isinstance(value, list):
        return [normal(item, left_out=left_out) for item in value]
    if isinstance(value, str):
        return RENAMED.get(value, value)
    return value


def _figures(text: str) -> list[str]:
    text = re.sub(r"(rubric|pairs|adherence)-\d+[-+][0-9a-f]{8}", "PROMPTS", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*", "TIME", text)
    return re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?", text)


def _without_unsteady(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not UNSTEADY_LINES.match(line))


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """Yield where two values differ: path and both sides."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            if name not in one or name not in other:
                if name in ADDED and name not in one:
                    continue
                side = "second" if name not in other else "first"
                given = one.get(name, other.get(name))
                if given not in (None, [], {}, ""):
                    yield f"{at}.{name}: not in the {side} ({_short(given)})"
            else:
                yield from differences(one[name], other[name], f"{at}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{at}[{index}]")
    elif _is_number(one) and _is_number(other):
        if not math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12):
            yield f"{at}: {one!r} against {other!r}"
    elif one != other:
        if isinstance(one, str) and isinstance(other, str):
            yield f"{at}: {_parting(one, other)}"
        else:
            yield f"{at}: {_short(one)} against {_short(other)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _parting(one: str, other: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    at = at or min(len(one), len(other)) * (one[:1] == other[:1])
    start = max(0, at - 30)
    return f"...{one[start : at + 60]!r} against ...{other[start : at + 60]!r}"


_KEYS = ("pair_id", "dialogue_id", "id", "content_hash")


def _about(row: Any) -> str:
    """Return what a row is about; rows about the same are distinguished by their content."""
    if not isinstance(row, dict):
        return "value"
    found = [f"{name}={row[name]}" for name in _KEYS if isinstance(row.get(name), str)]
    found += [f"{name}={row[name]}" for name in ("turn", "drop_reason") if row.get(name)]
    return " ".join(found)


def _exact(row: Any) -> str:
    """The row as text, its floats cut where they may differ."""
    text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
    return re.sub(r"\d+\.\d{6,}(e-?\d+)?", lambda m: f"{float(m[0]):.6g}", text)


def row_differences(one: list[Any], other: list[Any]) -> Iterator[str]:
    """Yield where two lists of rows differ, in any order."""
    if len(one) != len(other):
        yield f"{len(one)} rows against {len(other)}"
    groups: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((one, other)):
        for row in rows:
            groups[_about(row)][side].append(row)
    for key, sides in groups.items():
        # Rows that are equal but for the last digits are compared first, then what is left.
        by_text: tuple[defaultdict[str, list[Any]], ...] = (defaultdict(list), defaultdict(list))
        for texts, rows in zip(by_text, sides, strict=True):
            for row in rows:
                texts[_exact(row)].append(row)
        left: tuple[list[Any], list[Any]] = ([], [])
        for text in sorted({*by_text[0], *by_text[1]}):
            first, second = by_text[0][text], by_text[1][text]
            shared = min(len(first), len(second))
            for a, b in zip(first[:shared], second[:shared], strict=True):
                yield from differences(a, b, key)
            left[0].extend(first[shared:])
            left[1].extend(second[shared:])
        for a, b in zip(*left, strict=False):
            yield from differences(a, b, key)
        paired = min(map(len, left))
        for rows, place in zip(left, ("first", "second"), strict=True):
            for row in rows[paired:]:
                yield f"only in the {place}: {key or 'row'} {_short(row)}"


def compare(one: Path, other: Path, only: set[str]) -> int:
    """Print where two frozen folders differ; the exit code."""
    names = [
        {
            str(path.relative_to(folder))
            for path in folder.glob("*/kept/*.json")
            if not only or path.parts[-3] in only
        }
        for folder in (one, other)
    ]
    if not names[0] or not names[1]:
        sys.exit(f"nothing was made in {one if not names[0] else other}")
    shared = [{_renamed_file(name): name for name in sorted(side)} for side in names]
    bad = 0
    for name in sorted({*shared[0], *shared[1]}):
        if name not in shared[0] or name not in shared[1]:
            bad += 1
            print(f"{name}: only in {one if name in shared[0] else other}")
            continue
        first, second = (
            json.loads((folder / side[name]).read_text())
            for folder, side in ((one, shared[0]), (other, shared[1]))
        )
        found = list(_compare_kept(first, second, name))
        if found:
            bad += 1
            print(f"{name}: {len(found)} differences")
            for line in found[:5]:
                print(f"    {line}")
    print(
        f"{len(shared[0])} files, {bad} of them differ" if bad else f"{len(shared[0])} files, equal"
    )
    return 1 if bad else 0


def _renamed_file(name: str) -> str:
    for old, new in RENAMED.items():
        name = name.replace(old, new)
    return name


def _compare_kept(first: dict[str, Any], second: dict[str, Any], name: str) -> Iterator[str]:
    if first["kind"] != second["kind"]:
        yield f"{first['kind']} against {second['kind']}"
        return
    one, other = first["content"], second["content"]
    if first["kind"] == "text":
        if name.startswith(UNSTEADY) and name.endswith("show.json"):
            one, other = _without_unsteady(one), _without_unsteady(other)
        if one != other and _figures(one) == _figures(other):
            print(f"{name}: other words, the same figures")
        numbers = (
            sorted(float(figure.replace(",", "")) for figure in _figures(text))
            for text in (one, other)
        )
        yield from differences(*numbers, "figures")
    elif first["kind"] == "rows":
        yield from row_differences(normal(one), normal(other))
    else:
        is_unsteady = name.startswith(UNSTEADY) and name.endswith("counts.json")
        left_out = LEFT_OUT | UNSTEADY_KEYS if is_unsteady else LEFT_OUT
        yield from differences(normal(one, "", left_out), normal(other, "", left_out))


def main() -> None:
    """Make or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="run all sources and keep what comes out")
    making.add_argument("out", type=Path)
    making.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    comparing = commands.add_parser("compare", help="say where two folders differ")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    for command in (making, comparing):
        command.add_argument("--only", nargs="*", default=[], help="these sources only")
    given = parser.parse_args()
    if given.command == "make":
        make(given.out, given.data, set(given.only))
    else:
        sys.exit(compare(given.one, given.other, set(given.only)))


if __name__ == "__main__":
    main()
