"""Candidates for the chosen side: resamples of the policy, and one minimal revision.

A resample continues exactly the exported prompt, so training on it is close to on-policy. The revision
mends the original with least change, so the pair differs in the flaw and little else. What came back
unusable is kept as a candidate without a message, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Request
from curate.engines.layout import defuse
from curate.pairs.asks import ForkAsks
from curate.pairs.config import ForkConfig
from curate.pairs.prompting import revision
from curate.pairs.wire import to_wire, tools_to_wire

_THINK = re.compile(r"^\s*<think>(.*?)</think>", re.DOTALL)
_ECHOED_FENCE = re.compile(r"^<reply>\n?(.*?)\n?</reply>$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible chosen side.

    Attributes:
        source: who wrote it.
        sample: index of the resample; 0 for the revision.
        message: None when the reply cannot be used.
        refusal: reason code where there is no message: `no_candidate` or `engine_error`.
        detail: the reason in words.
    """

    source: Literal["resample", "revision"]
    sample: int
    message: Message | None
    refusal: str | None = None
    detail: str = ""

    @property
    def label(self) -> str:
        """What the candidate is called in details."""
        return f"resample {self.sample}" if self.source == "resample" else "revision"


async def resample(
    prompt: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    asks: ForkAsks,
    config: ForkConfig,
) -> list[Candidate]:
    """Ask the policy for `config.resamples` replies to the prompt, as siblings in one call."""
    if not config.resamples:
        return []
    messages, offered = to_wire(prompt), tools_to_wire(tools)
    requests = [
        Request(
            messages,
            config.max_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            sample=sample,
            tools=offered,
            purpose="pairs.resample",
        )
        for sample in range(config.resamples)
    ]
    completions = await asks.policy(requests)
    return [_read("resample", sample, completion) for sample, completion in enumerate(completions)]


async def revise(
    prompt: Dialogue, original: Message, issue: str, asks: ForkAsks, config: ForkConfig
) -> Candidate:
    """Ask the reviser to mend `original`, told the issue, and to change nothing else.

    An original that holds strings the prompt layout must defuse is not revised: the defused spelling
    would come back in the revision and end up in training data.
    """
    if not issue.strip():
        return Candidate("revision", 0, None, "no_candidate", "the judge names no issue to mend")
    if defuse(original.content).count:
        return Candidate(
            "revision",
            0,
            None,
            "no_candidate",
            "the original holds control strings, not shown as is",
        )
    request = Request(revision(prompt, original, issue), config.max_tokens, purpose="pairs.revise")
    [completion] = await asks.reviser([request])
    return _read("revision", 0, completion)


def _read(
    source: Literal["resample", "revision"], sample: int, completion: Completion
) -> Candidate:
    """The candidate in a reply, its thinking parsed off, or why there is none."""
    if completion.fault is not None:
        fault = completion.fault
        detail = f"{fault.kind}: {fault.detail}" if fault.detail else fault.kind
        return Candidate(source, sample, None, "engine_error", detail)
    if completion.finish == "length":
        return Candidate(source, sample, None, "no_candidate", "cut by max_tokens")
    if completion.tool_calls:
        return Candidate(source, sample, None, "no_candidate", "calls a tool instead of answering")
    text, reasoning = split_thinking(completion.text)
    if source == "revision":
        text = _ECHOED_FENCE.sub(r"\1", text).strip()
    if not text:
        return Candidate(source, sample, None, "no_candidate", "empty reply")
    return Candidate(source, sample, Message(role="assistant", content=text, reasoning=reasoning))


def split_thinking(text: str) -> tuple[str, str | None]:
    """A reply without its thinking, and the thinking; both stripped.

    Some chat templates open the block in the prompt, so that the reply holds only the closing tag. A
    block that is never closed leaves no answer.
    """
    match = _THINK.match(text)
    if match:
        thinking, answer = match.group(1), text[match.end() :]
    elif text.lstrip().startswith("<think>"):
        thinking, answer = text.lstrip().removeprefix("<think>"), ""
    elif "</think>" in text and "<think>" not in text:
        thinking, _, answer = text.partition("</think>")
    else:
        return text.strip(), None
    return answer.strip(), thinking.strip() or None
