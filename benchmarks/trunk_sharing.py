"""How near prompts come to the least that has to be prefilled, and what that saves in time.

    python benchmarks/trunk_sharing.py [--json] [--dialogues 20] [--timed 2]

All requests about a dialogue have at least R + nL + (the questions) tokens that differ from one another: rubric
and role, n turns, and each question once. Counted exactly, the requests that the stages really send are
tokenised with a real tokenizer and put through a prefix cache of blocks of 16 tokens (vLLM's default:
a block is found if all before it is equal; the last token is always computed). Then llama.cpp is asked, and
says itself how many prompt tokens it found in its cache.

Time is taken at n = 10 for role adherence, turn by turn, against the same prompts with the turn's number before
the rubric instead of nothing: every prompt then has to be read again.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from material import (
    MODEL,
    Capture,
    figure,
    make_dialogue,
    parser,
    report,
    small_gguf,
    small_tokenizer,
)

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue
from curate.engines.base import Capability, Completion, Engine, Request
from curate.engines.config import LlamaCppConfig
from curate.engines.layout import DIALOGUE_CLOSE, DIALOGUE_OPEN, Trunk
from curate.engines.open import open_engine
from curate.engines.scripted import ScriptedEngine
from curate.engines.tokens import PromptTokens
from curate.judging.config import RubricConfig
from curate.stages import adherence_stage, judge_stage

BLOCK = 16
TURNS = 10
WORDS = 120  # about 160 tokens with this tokenizer
ADHERENCE = AdherenceConfig(output_mode="continuous")
RUBRIC = RubricConfig(mode="tokens", text="off")
LABELS = frozenset({Capability.TOP_LOGPROBS, Capability.PREFILL})


def requests_of(dialogue: Dialogue, stage: str) -> list[Request]:
    """What a stage asks about a dialogue, in its order."""
    engine = ScriptedEngine([], capabilities=LABELS)
    asking = (
        adherence_stage(ADHERENCE, engine) if stage == "adherence" else judge_stage(RUBRIC, engine)
    )
    return [call.request for call in asking.expected_load(dialogue)]


def dialogue_end(text: str, request: Request) -> int:
    """Where a prompt's dialogue ends: before its fence, or with the message where nothing is asked behind it."""
    at = text.rfind(DIALOGUE_CLOSE)
    message = str(request.messages[0]["content"])
    return at if at >= 0 else text.index(message) + len(message)


def bound(tokens: PromptTokens, requests: Sequence[Request]) -> int:
    """R + nL and each question: the longest trunk once, and all that stands behind each one's end."""
    heads, tails = [], []
    for request in requests:
        text = tokens.prompt_text(request)
        at = dialogue_end(text, request)
        heads.append(len(tokens.encode(text[:at])))
        tails.append(len(tokens.encode(text)) - heads[-1])
    return max(heads) + sum(tails)


def sizes(tokens: PromptTokens, requests: Sequence[Request]) -> str:
    """R, L and q of a dialogue's requests, in words."""
    longest = max(requests, key=lambda one: len(one.messages[0]["content"]))
    text = tokens.prompt_text(longest)
    start, end = text.index(DIALOGUE_OPEN), dialogue_end(text, longest)
    rubric, head = len(tokens.encode(text[:start])), len(tokens.encode(text[:end]))
    tail = len(tokens.encode(text)) - head
    return f"R = {rubric}, L = {(head - rubric) / TURNS:.0f}, q = {tail}, {len(requests)} questions"


class BlockCache:
    """vLLM's prefix cache without eviction."""

    def __init__(self) -> None:
        self._known: set[tuple[int, ...]] = set()

    def prefill(self, ids: Sequence[int]) -> int:
        """Tokens to be computed for a prompt; its full blocks are then known."""
        ends = range(BLOCK, len(ids) + 1, BLOCK)
        starts = [tuple(ids[:end]) for end in ends]
        hit = 0
        for start in starts:
            if start not in self._known or len(start) == len(ids):
                break
            hit = len(start)
        self._known.update(starts)
        return len(ids) - hit


async def counted(tokens: PromptTokens, stage: str, number: int) -> tuple[float, str]:
    """Mean over dialogues of prefilled / bound, and the absolute figures in words."""
    ratios, unshared, prefilled = [], [], []
    for seed in range(number):
        asked = requests_of(make_dialogue(seed, TURNS, WORDS), stage)
        cache, least = BlockCache(), bound(tokens, asked)
        prompts = [tokens.prompt_ids(request) for request in asked]
        prefilled.append(sum(cache.prefill(ids) for ids in prompts))
        ratios.append(prefilled[-1] / least)
        unshared.append(sum(map(len, prompts)) / least)
    return statistics.fmean(ratios), (
        f"{statistics.fmean(prefilled):,.0f} tokens a dialogue; without sharing "
        f"{statistics.fmean(unshared):.1f} of the bound; {sizes(tokens, asked)}"
    )


async def timed(engine: Engine, requests: Sequence[Request]) -> tuple[float, int, int]:
    """Seconds, prompt tokens and cached tokens of asking one after the other."""
    capture = Capture(engine)
    started = time.perf_counter()
    replies: list[Completion] = await capture(requests)
    seconds = time.perf_counter() - started
    failed = [reply.fault for reply in replies if reply.fault is not None]
    if failed:
        raise SystemExit(f"llama.cpp: {failed[0]}")
    usage = [reply.usage for reply in replies]
    return seconds, sum(use.prompt_tokens for use in usage), sum(use.cached_tokens for use in usage)


def number_first(requests: Sequence[Request]) -> list[Request]:
    """The same prompts with something that varies before the rubric."""
    return [
        replace(request, trunk=Trunk(f"[{index}] {request.messages[0]['content']}"), question="")
        for index, request in enumerate(requests)
    ]


async def measure(tokens: PromptTokens, number: int, timings: int) -> list[dict[str, object]]:
    rows = []
    for stage in ("adherence", "rubric"):
        ratio, beside = await counted(tokens, stage, number)
        rows.append(
            figure(
                f"{stage}: tokens prefilled / bound, block {BLOCK}, n = {TURNS}",
                ratio,
                target="<= 1.05",
                met=ratio <= 1.05,
                beside=beside,
            )
        )
    engine = await open_engine(LlamaCppConfig(model=str(small_gguf()), context=8192))
    shared_seconds, unshared_seconds, prefilled_share = [], [], []
    try:
        for seed in range(1000, 1000 + timings):
            asked = requests_of(make_dialogue(seed, TURNS, WORDS), "adherence")
            seconds, prompt, cached = await timed(engine, asked)
            shared_seconds.append(seconds)
            prefilled_share.append((prompt - cached) / bound(tokens, asked))
            unshared_seconds.append((await timed(engine, number_first(asked)))[0])
        rubric = []
        for seed in range(2000, 2000 + timings):
            asked = requests_of(make_dialogue(seed, TURNS, WORDS), "rubric")
            _, prompt, cached = await timed(engine, asked)
            rubric.append((prompt - cached) / bound(tokens, asked))
    finally:
        await engine.close()
    speedup = sum(unshared_seconds) / sum(shared_seconds)
    measured = "as llama.cpp counts its own cache, which goes by tokens"
    return [
        *rows,
        figure(
            "adherence: tokens prefilled / bound, llama.cpp",
            statistics.fmean(prefilled_share),
            target="<= 1.05",
            met=statistics.fmean(prefilled_share) <= 1.05,
            beside=measured,
        ),
        figure(
            "rubric: tokens prefilled / bound, llama.cpp",
            statistics.fmean(rubric),
            target="<= 1.05",
            met=statistics.fmean(rubric) <= 1.05,
            beside=measured,
        ),
        figure(
            f"adherence: wall time unshared / shared, n = {TURNS}",
            speedup,
            unit="x",
            target=">= 5x",
            met=speedup >= 5,
            beside=f"{statistics.fmean(shared_seconds):.2f} s a dialogue shared, "
            f"{statistics.fmean(unshared_seconds):.2f} s with the turn's number before the rubric",
        ),
    ]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--dialogues", type=int, default=20)
    arguments.add_argument("--timed", type=int, default=2)
    given = arguments.parse_args()
    rows = asyncio.run(measure(PromptTokens(small_tokenizer()), given.dialogues, given.timed))
    how = (
        f"{given.dialogues} made-up dialogues of {TURNS} turns counted, {given.timed} asked in llama.cpp, by the "
        f"tokenizer and weights of {MODEL}. The bound is R + nL + the tokens of every question. Questions of the "
        "rubric all stand on one trunk, and share words with one another, so they can come out under the bound; those of "
        "adherence stand on nested ones, which never show a later turn."
    )
    report(1, "Trunk-shared prompts", rows, how, as_json=given.json)


if __name__ == "__main__":
    main()
