"""Candidates for the chosen side: resamples of the policy, and one minimal revision.

A resample continues exactly the exported prompt, so training on it is close to on-policy. The revision
fixes the original with least change, so the pair differs in the flaw and little else. In place of an
original that calls a tool, only another call will do, and one that fits the tools offered. What came
back unusable is kept as a candidate without a message, with the reason.

Servers give tool calls as objects. A model in this process writes them as text, in the form it was trained on:
`<tool_call>` blocks, `[TOOL_CALLS]` and a list, or bare objects with a name and arguments. Such a text taken for an
answer would end up as one in training data, so all three are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jsonschema

from curate.dialogue import Dialogue, Message, ToolCall, function_tool, split_thinking
from curate.engines.base import Completion, Request
from curate.engines.layout import Chat, defuse, without_tokens
from curate.engines.redaction import redact_request
from curate.engines.structured import only_values
from curate.pairs.config import ForkConfig
from curate.pairs.judge_functions import ForkAsks
from curate.pairs.pair_prompts import critique, revision
from curate.pairs.prefix import said_text, to_wire
from curate.records import DropReason

_ECHOED_FENCE = re.compile(r"^<reply>\n?(.*?)\n?</reply>$", re.DOTALL)
_NO_FAULT = re.compile(r"\W*none\W*", re.IGNORECASE)
_CRITIQUE_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible chosen side.

    Attributes:
        sample: index of the resample; 0 for the revision.
        message: None when the reply cannot be used.
        drop_reason: reason code where there is no message: `no_candidate` or `engine_error`.
        issue: what the reviser was told; empty for a resample.
    """

    source: Literal["resample", "revision"]
    sample: int
    message: Message | None
    drop_reason: DropReason | None = None
    detail: str = ""
    sampling: Mapping[str, float] = field(default_factory=dict)
    issue: str = ""

    @property
    def label(self) -> str:
        """The candidate's name in details."""
        return f"resample {self.sample}" if self.source == "resample" else "revision"


async def resample(
    prompt: Dialogue,
    original: Message,
    asks: ForkAsks,
    config: ForkConfig,
    samples: Iterable[int] | None = None,
) -> list[Candidate]:
    """Ask the policy for replies to the prompt, as siblings in one call.

    Args:
        prompt: the dialogue with exactly the exported prompt's messages.
        original: the message that a reply would stand in place of.
        samples: which of the `config.resamples`; all by default.
    """
    sampling = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_tokens": config.max_tokens,
    }
    plain = resample_request(prompt, config)
    requests = [
        replace(plain, sample=sample)
        for sample in (range(config.resamples) if samples is None else samples)
    ]
    completions = await asks.policy(requests) if requests else []
    return [
        _read(
            Candidate(
                "resample", request.sample, None, sampling={**sampling, "sample": request.sample}
            ),
            completion,
            original,
            prompt.tools,
        )
        for request, completion in zip(requests, completions, strict=True)
    ]


def resample_request(prompt: Dialogue, config: ForkConfig) -> Request:
    """Return the request to the policy: the chat as it stands, but for what would form a special token.

    Nothing in a dialogue can end a message or begin one, in a tool call's arguments behind an escape of JSON either.
    """
    request = Request(
        Chat(to_wire(prompt.messages)),
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        tools=tuple(map(function_tool, prompt.tools)),
        purpose="pairs.resample",
    )
    return redact_request(request, without_tokens)


async def revise(
    prompt: Dialogue, original: Message, issue: str, asks: ForkAsks, config: ForkConfig
) -> Candidate:
    """Ask the reviser to fix `original`, told the issue, and to change nothing else.

    An original that holds strings the prompt layout must defuse is not revised: the defused spelling
    would come back in the revision and end up in training data.
    """
    sampling = {"temperature": 0.0, "max_tokens": config.max_tokens}
    candidate = Candidate("revision", 0, None, sampling=sampling, issue=issue.strip())
    if not issue.strip():
        return _without(candidate, DropReason.NO_CANDIDATE, "the judge names no issue to fix")
    if defuse(said_text(original)).count:
        detail = "the original holds control strings, not shown as is"
        return _without(candidate, DropReason.NO_CANDIDATE, detail)
    trunk_and_question = revision(prompt, original, issue, config.principles)
    request = Request(*trunk_and_question, max_tokens=config.max_tokens, purpose="pairs.revise")
    [completion] = await asks.reviser([request])
    return _read(candidate, completion, original, prompt.tools)


async def criticise(prompt: Dialogue, original: Message, asks: ForkAsks, config: ForkConfig) -> str:
    """Ask which of the config's principles the original breaks, in the judge's words; empty where none."""
    if not config.principles:
        return ""
    request = Request(
        *critique(prompt, original, config.principles),
        max_tokens=_CRITIQUE_TOKENS,
        purpose="pairs.critique",
    )
    [completion] = await asks.judging.judge([request])
    text = split_thinking(completion.text)[0].strip()
    if completion.fault is not None or _NO_FAULT.fullmatch(text):
        return ""
    return " ".join(text.split())


def _read(
    candidate: Candidate,
    completion: Completion,
    original: Message,
    tools: Sequence[Mapping[str, Any]],
) -> Candidate:
    """Return the candidate with the message of a reply, its thinking parsed off, or why there is none."""
    if completion.fault is not None:
        fault = completion.fault
        detail = f"{fault.kind}: {fault.detail}" if fault.detail else fault.kind
        return _without(candidate, DropReason.ENGINE_ERROR, detail)
    if completion.finish == "length":
        return _without(candidate, DropReason.NO_CANDIDATE, "cut by max_tokens")
    text, reasoning = split_thinking(completion.text.strip())
    if candidate.source == "revision":
        text = _ECHOED_FENCE.sub(r"\1", text).strip()
    is_call = bool(original.tool_calls)
    original_names = (call.name for call in original.tool_calls)
    reply = calls_of_reply(completion, text, {*tool_names(tools), *original_names})
    if reply.problem:
        return _without(candidate, DropReason.NO_CANDIDATE, reply.problem)
    if is_call and not reply.calls:
        return _without(candidate, DropReason.NO_CANDIDATE, "answers instead of calling a tool")
    if not is_call and reply.calls:
        return _without(candidate, DropReason.NO_CANDIDATE, "calls a tool instead of answering")
    if tools and (unfit := misfit(reply.calls, tools)) is not None:
        return _without(candidate, DropReason.NO_CANDIDATE, unfit)
    if not reply.text and not reply.calls:
        return _without(candidate, DropReason.NO_CANDIDATE, "empty reply")
    # What the original says beside its calls is not what is fixed.
    text = original.content if is_call and candidate.source == "revision" else reply.text
    calls = with_ids_of(reply.calls, original)
    message = Message(role="assistant", content=text, tool_calls=calls, reasoning=reasoning)
    return replace(candidate, message=message)


def _without(candidate: Candidate, drop_reason: DropReason, detail: str) -> Candidate:
    return replace(candidate, drop_reason=drop_reason, detail=detail)


_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_LIST = re.compile(r"\[TOOL_CALLS\]\s*(.*)\Z", re.DOTALL)
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReadCalls:
    """A reply taken apart.

    Attributes:
        text: what is not part of a call.
        calls: in order, without ids.
        problem: why a call cannot be used; empty where there is none.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


def calls_of_reply(completion: Completion, text: str, offered: Collection[str]) -> ReadCalls:
    """Return the tool calls of a reply.

    Args:
        completion: a reply without a fault.
        text: its text, thinking parsed off.
        offered: names of the tools; a bare object counts as a call only if it names one of them.
    """
    if completion.tool_calls:
        return _calls_of(text, [call.get("function", call) for call in completion.tool_calls])
    if blocks := _BLOCK.findall(text):
        return _parsed(_BLOCK.sub("", text).strip(), [block.strip() for block in blocks])
    if list_match := _LIST.search(text):
        return _parsed(text[: list_match.start()].strip(), [list_match[1]])
    fenced = _FENCE.match(text)
    objects = only_values(fenced[1] if fenced else text)
    if objects and all(
        (isinstance(value, Mapping) and value.get("name") in offered) for value in objects
    ):
        return _calls_of("", objects)
    return ReadCalls(text)


def tool_names(tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of tool definitions, in whatever form they are."""
    return tuple(name for tool in tools if isinstance(name := _definition(tool).get("name"), str))


def misfit(calls: Sequence[ToolCall], tools: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why calls do not fit the tools offered: another name, or arguments against its schema; else None."""
    definitions = {
        name: definition
        for tool in tools
        if isinstance(name := (definition := _definition(tool)).get("name"), str)
    }
    for call in calls:
        if call.name not in definitions:
            return f"calls {call.name!r}, which is not offered"
        schema = definitions[call.name].get(
            "parameters", definitions[call.name].get("input_schema")
        )
        if not isinstance(schema, Mapping):
            continue
        try:
            error = jsonschema.exceptions.best_match(
                jsonschema.Draft202012Validator(schema).iter_errors(call.arguments)
            )
        except Exception:  # a broken schema raises anything, and says nothing about the call
            continue
        if error is not None:
            where = ".".join(map(str, error.absolute_path)) or "arguments"
            return f"call of {call.name!r} against its schema: {where}: {error.message[:120]}"
    return None


def with_ids_of(calls: Sequence[ToolCall], original: Message) -> tuple[ToolCall, ...]:
    """Return the calls with the ids that the original's have at the same places; ids are no difference."""
    ids = [call.id for call in original.tool_calls]
    return tuple(
        call.model_copy(update={"id": ids[at] if at < len(ids) else None})
        for at, call in enumerate(calls)
    )


def _definition(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = tool.get("function")
    return inner if isinstance(inner, Mapping) else tool


def _parsed(text: str, bodies: Sequence[str]) -> ReadCalls:
    values: list[Any] = []
    for body in bodies:
        objects = only_values(body)
        if objects is None:
            return ReadCalls(text, problem=f"a tool call is no JSON: {body[:80]!r}")
        values.extend(objects)
    return _calls_of(text, values)


def _calls_of(text: str, values: Sequence[Any]) -> ReadCalls:
    calls: list[ToolCall] = []
    for value in values:
        name = value.get("name") if isinstance(value, Mapping) else None
        if not isinstance(name, str) or not name:
            return ReadCalls(text, problem=f"a tool call without a name: {str(value)[:80]!r}")
        arguments = value.get("arguments", value.get("parameters", {}))
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except ValueError:
                arguments = None
        if not isinstance(arguments, dict):
            return ReadCalls(text, problem=f"the arguments of {name!r} are no JSON object")
        calls.append(ToolCall(name=name, arguments=arguments))
    return ReadCalls(text, tuple(calls))
