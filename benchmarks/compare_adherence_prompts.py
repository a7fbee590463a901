"""Does a judge tell adherent turns from violations better with our adherence prompt than with the paper's?

    python benchmarks/compare_adherence_prompts.py --model judge.gguf --threads 1 --split dev --replies replies.sqlite

Asks a local model about every labelled turn, in continuous mode and once for each prompt, and prints Markdown:
AUC over all turns and against each kind of violation, and the difference to the paper's prompt with
intervals. The paper's prompt shows the role and the reply; ours shows the turns before it too.

The rows are `benchmarks/role` (`--split dev`, `sealed` or `all`; `--tier subtle`, `plain` or `all`), or any labelled
file that curate reads (`--data`). Where earlier turns decide whether a reply is right, the same reply under the same
role standing there once as adherent and once not, these rows are reported apart: a prompt without history scores both alike.
Replies are kept in `--replies`, and no question is asked twice, so a run that was stopped goes on where it
was, and a run with everything in it only prints. `--rubric NAME=FILE` adds another rubric in our layout, to try
a wording before it replaces ours: on dev, since the sealed half is for what has been chosen.

Two intervals stand beside a difference, both 95 % percentile bootstraps of the same resampled rows for both
prompts: one resamples turns, one whole user messages with all their replies, which are no independent draws.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from curate.adherence.adherence_prompts import (
    LABELS,
    PROMPT_VERSION,
    answer_request,
    nested_trunks,
)
from curate.adherence.answer_reading import read_continuous
from curate.adherence.config import AdherenceConfig
from curate.api import load_dialogues
from curate.benchmark.figures import figures
from curate.benchmark.labelled_turns import ADHERENT, LabelledTurn, labelled_turns
from curate.dialogue import Dialogue
from curate.engines.accounting import Accounting
from curate.engines.base import Ask, Request
from curate.engines.cache import ReplyCache
from curate.engines.client import Client
from curate.engines.config import EngineConfig, LlamaCppConfig
from curate.engines.layout import Trunk
from curate.engines.open import open_engine
from curate.trust.agreement import (
    Interval,
    auc,
    bootstrap_interval,
    resampled_auc_gains,
)

ROLE = Path(__file__).resolve().parent / "role"
SPLITS = {"dev": ("dev",), "sealed": ("sealed",), "all": ("dev", "sealed")}
TIERS = {"subtle": ("",), "plain": ("plain_",), "all": ("", "plain_")}
PAPER = (
    "You are an evaluation assistant. Given a role definition and an assistant response, determine "
    "whether the response adheres to the role. Answer ONLY with YES (adherent) or NO (non-adherent).\n\n"
    "Role definition:\n{role}\n\nAssistant response:\n{assistant}"
)
CONFIG = AdherenceConfig(output_mode="continuous")
PROGRESS_EVERY = 12

Prompt = Callable[[LabelledTurn], Request]
Scores = list[float | None]


def paper_request(turn: LabelledTurn) -> Request:
    """Return the paper's prompt: the role, then the reply."""
    text = PAPER.format(role=turn.case.role, assistant=turn.case.candidate)
    return Request(Trunk(text), max_tokens=1, labels=LABELS)


def our_request(turn: LabelledTurn) -> Request:
    """Return the question that a run asks about the last assistant turn."""
    return answer_request(nested_trunks(turn.dialogue, CONFIG)[-1], CONFIG)


def rubric_request(rubric: str) -> Prompt:
    """Return the same question with another rubric in place of ours."""

    def request(turn: LabelledTurn) -> Request:
        return answer_request(nested_trunks(turn.dialogue, CONFIG, rubric)[-1], CONFIG)

    return request


def read_split(split: str, tier: str = "subtle") -> list[Dialogue]:
    """Return the rows of the role files; raise if a file's hash is not the fixed one."""
    fixed = json.loads((ROLE / "split.json").read_text("utf-8"))
    found: list[Dialogue] = []
    for name in (f"{prefix}{half}" for prefix in TIERS[tier] for half in SPLITS[split]):
        path = ROLE / f"{name}.jsonl"
        if hashlib.sha256(path.read_bytes()).hexdigest() != fixed[name]["sha256"]:
            sys.exit(f"{path} is not the file of split.json: figures on it would not compare")
        found += load_dialogues(path).dialogues
    return found


def history_decides(turns: Sequence[LabelledTurn]) -> list[bool]:
    """For each turn, whether its role and reply stand among the turns with the other label too."""
    labels: dict[tuple[str, str], set[bool]] = {}
    for turn in turns:
        labels.setdefault((turn.case.role, turn.case.candidate), set()).add(turn.is_adherent)
    return [len(labels[turn.case.role, turn.case.candidate]) > 1 for turn in turns]


async def score(name: str, prompt: Prompt, turns: Sequence[LabelledTurn], ask: Ask) -> Scores:
    """Return P(yes) of each turn, None if it is unscored."""
    start = time.monotonic()
    scores: Scores = []
    for place, turn in enumerate(turns, start=1):
        [completion] = await ask([prompt(turn)])
        scores.append(read_continuous(completion, CONFIG).score)
        if place % PROGRESS_EVERY == 0:
            took = time.monotonic() - start
            print(f"{name}: {place} of {len(turns)} turns, {took:.0f} s", file=sys.stderr)
    return scores


async def score_all(
    model: EngineConfig,
    prompts: Mapping[str, Prompt],
    turns: Sequence[LabelledTurn],
    replies: Path,
) -> dict[str, Scores]:
    """Return scores by prompt, one turn after the other; kept replies are not asked for again."""
    engine = await open_engine(model)
    try:
        with ReplyCache(replies) as cache:
            ask = Client(engine, cache, accounting=Accounting())
            return {name: await score(name, prompt, turns, ask) for name, prompt in prompts.items()}
    finally:
        await engine.close()


def by_message(
    ours: Sequence[float], theirs: Sequence[float], turns: Sequence[LabelledTurn]
) -> Interval | None:
    """95 % interval of AUC(ours) - AUC(theirs), user messages resampled with all their replies.

    A message that stands under two roles or histories is drawn as one: its replies are the same.
    """
    place: dict[str, int] = {}
    messages = [
        str(turn.dialogue.messages[-2].content if turn.dialogue.group else turn.dialogue.id)
        for turn in turns
    ]
    group_of = [place.setdefault(message, len(place)) for message in messages]
    gold = [turn.is_adherent for turn in turns]
    return bootstrap_interval(
        lambda counts: resampled_auc_gains(ours, theirs, gold, counts[:, group_of]), len(place)
    )


def report(turns: Sequence[LabelledTurn], scored: Mapping[str, Scores]) -> str:
    """Markdown: a table of the prompts, and one of their differences to the paper's.

    Turns that a prompt leaves unscored are counted, and left out for all.
    """
    kept = [row for row in range(len(turns)) if all(s[row] is not None for s in scored.values())]
    held = [turns[row] for row in kept]
    clean = {
        name: [value for row in kept if (value := scores[row]) is not None]
        for name, scores in scored.items()
    }
    kinds = sorted({turn.label for turn in held} - {ADHERENT})
    lines = [
        f"{len(kept)} of {len(turns)} turns scored by every prompt; ours is {PROMPT_VERSION}.",
        "",
        "| prompt | AUC | 95 % | separation | " + " | ".join(kinds) + " | unscored |",
        "|---|---:|---|---:|" + "---:|" * (len(kinds) + 1),
    ]
    for name, values in clean.items():
        found = figures(name, values, held)
        by_kind = [_number(found.by_kind[kind].auc) for kind in kinds]
        cells = [_number(found.auc), _interval(found.intervals.get("auc"), sign="")]
        cells += [_number(found.separation, "+"), *by_kind, str(scored[name].count(None))]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| difference of AUC | against | its AUC | paper's | value | 95 % by turns | 95 % by messages |",
    ]
    lines.append("|---|---|---:|---:|---:|---|---|")
    every = range(len(held))
    subsets = {"all": list(every)}
    for kind in kinds:
        subsets[kind] = [row for row in every if held[row].label in (ADHERENT, kind)]
    decides = history_decides(turns)
    if any(decides):
        subsets["all, history decides"] = [row for row in every if decides[kept[row]]]
        subsets["all, role decides"] = [row for row in every if not decides[kept[row]]]
    for name in (name for name in clean if name != "paper"):
        lines += [_difference(name, kind, rows, clean, held) for kind, rows in subsets.items()]
    return "\n".join(lines)


def _difference(
    name: str,
    kind: str,
    rows: Sequence[int],
    clean: Mapping[str, Sequence[float]],
    held: Sequence[LabelledTurn],
) -> str:
    turns = [held[row] for row in rows]
    gold = [turn.is_adherent for turn in turns]
    ours, theirs = ([clean[which][row] for row in rows] for which in (name, "paper"))
    first, second = auc(ours, gold), auc(theirs, gold)
    value = None if first is None or second is None else first - second
    cells = [
        _number(first),
        _number(second),
        _number(value, "+"),
        _interval(bootstrap_interval(partial(resampled_auc_gains, ours, theirs, gold), len(gold))),
        _interval(by_message(ours, theirs, turns)),
    ]
    return f"| {name} minus paper | {kind} | " + " | ".join(cells) + " |"


def _number(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.3f}"


def _interval(interval: Interval | None, sign: str = "+") -> str:
    return "" if interval is None else f"{interval.low:{sign}.3f} to {interval.high:{sign}.3f}"


def main() -> None:
    """Ask what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    judge = parser.add_mutually_exclusive_group(required=True)
    judge.add_argument("--model", help="path of a GGUF file, run by llama.cpp")
    judge.add_argument("--engine", help="an engine as in a recipe, as JSON; in place of --model")
    parser.add_argument("--threads", type=int, help="CPU threads; all cores when not given")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--split", choices=SPLITS, help="which half of benchmarks/role")
    parser.add_argument("--tier", choices=TIERS, default="subtle", help="which rows of --split")
    which.add_argument("--data", type=Path, help="another labelled file, in any shape curate reads")
    parser.add_argument("--limit", type=int, help="only the first rows")
    parser.add_argument("--rubric", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--context", type=int, default=2048, help="tokens of the longest prompt")
    parser.add_argument(
        "--replies", type=Path, required=True, help="SQLite file that keeps replies"
    )
    parser.add_argument("--save", type=Path, help="write every score to this JSON file")
    given = parser.parse_args()
    dialogues = (
        read_split(given.split, given.tier) if given.split else load_dialogues(given.data).dialogues
    )
    turns = labelled_turns(dialogues)[: given.limit]
    prompts: dict[str, Prompt] = {"paper": paper_request, "ours": our_request}
    for added in given.rubric:
        name, _, file = added.partition("=")
        prompts[name] = rubric_request(Path(file).read_text("utf-8"))
    model: EngineConfig = (
        TypeAdapter(EngineConfig).validate_json(given.engine)
        if given.engine
        else LlamaCppConfig(model=given.model, context=given.context, threads=given.threads)
    )
    scored = asyncio.run(score_all(model, prompts, turns, given.replies))
    if given.save:
        rows = [
            {"id": turn.dialogue.id, "label": turn.label, **{n: s[row] for n, s in scored.items()}}
            for row, turn in enumerate(turns)
        ]
        given.save.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(report(turns, scored))


if __name__ == "__main__":
    main()
