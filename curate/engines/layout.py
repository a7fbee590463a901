"""Prompt layout: the order of a prompt's parts, chosen so that requests about one dialogue share their start.

The order is fixed: rubric, meaning of the parts, role, scenario and other parts, the dialogue as data, the question last.
Everything up to the question is a *trunk*; two requests about the same dialogue share it byte for byte, and the trunk of
turns 1..i is a prefix of the trunk of turns 1..i+1 (before its closing fence). Engines with a prefix
cache then compute it once.

The dialogue is data inside ONE user message: chat templates render history and the last turn
differently, which would break the shared prefix and let the data speak with the judge's voice.
Any text in it that could close the fence, pose as a header, form a special token or tell the judge a level is defused
and counted.

Every segment starts with a visible ASCII character and ends with a newline, because tokenizers split
there: joining segments then never changes the tokens of the text before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import orjson

from curate.dialogue import Dialogue, Message, ToolCall, Turn
from curate.engines.prompt_files import prompt_sections
from curate.engines.words_to_judge import hide_levels

T = TypeVar("T")

DIALOGUE_OPEN = "<dialogue>\n"
DIALOGUE_CLOSE = "</dialogue>\n"
NO_HEADINGS: Mapping[str, str] = MappingProxyType({})

TAGS = (
    "dialogue",
    "role",
    "scenario",
    "emphasis",
    "evidence",
    "expected_outcomes",
    "expected_calls",
    "calls_compared",
    "tools",
    "ledger",
    "candidate",
    "reply",
    "part",
    "rubric",
)
"""Tags of the fences around data; after `defuse` no data holds one."""

# Strings that chat templates turn into control tokens. A zero-width or look-alike character would change what the
# judge reads in odd ways; a space after the bracket stays legible.
_CONTROL = (
    r"<(?=[|｜])"  # <|im_end|>, <|eot_id|>, …; DeepSeek's full-width form
    r"|〈(?=[|｜])|｜(?=DSML｜)"
    r"|<(?=[\w.-]{1,40}\|>)"  # Gemma 4 closes <|turn> with <turn|>
    r"|\[(?=\|[\w ]{1,40}\|\])"  # EXAONE's [|user|]
    r"|<(?=/?(?:s|bos|eos|pad|unk|mask|think|start_of_turn|end_of_turn|start_header_id|end_header_id"
    r"|tool_call|tool_response|tools)\b)"
    r"|<(?=/?(?:user|assistant|system|role|sep|cls|eod|eot|eom|eoh|eoa|image|img|audio|video|tool|tool_calls|tool_results?"
    r"|tool_definitions|documents?|citations|co|active_output_modes|available_tools|arg_key|arg_value)>)"
    r"|<(?=/?(?:seed|minimax|dsml|mm):)"
    r"|<(?=(?:begin|beginning|start|end)_of_\w{1,20}>|(?:\w{1,20}_soft_token|_(?:user|bot|system|start|end|pad))>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|THINK|gMASK|sMASK)\])"
    r"|<(?=</?SYS>)"
    # Of single families of models; as they are spelled, since `[img]` in small letters is a forum's markup.
    r"|(?-i:<(?=/?(?:sop|eop)>|SPECIAL_\d|(?:unused|reserved|extra_id)_?\d|(?:PRE|SUF|MID|TOOLCALL|AVAILABLE_TOOLS)>"
    r"|/(?:TOOLCALL|AVAILABLE_TOOLS)>|REKA_IMG_TOKEN>|im_patch>|tool_(?:def_)?sep>))"
    r"|(?-i:<(?=(?:fim|issue|jupyter)_[a-z]{1,20}>|(?:repo_?name|filename|file_sep|gh_stars|empty_output)>))"
    r"|(?-i:\[(?=/?(?:IMG(?:_BREAK|_END)?|AUDIO|BEGIN_AUDIO|TOOL_CONTENT|MODEL_SETTINGS|ARGS|CALL_ID|PREFIX|MIDDLE|SUFFIX"
    r"|MASK|CLS|SEP|PAD|UNK|multimodal|REFERENCE_DOC_\d{1,3}|(?:BEGIN|END) FINAL RESPONSE)\]|(?:control|UNUSED_TOKEN)_\d))"
    r"|(?-i:\](?=~!?b[\[\]]|<\][a-z]{1,20}\[>\[)|\[(?=e~\[))"
)
_TOKENS = re.compile(_CONTROL, re.IGNORECASE)
_SPECIAL = re.compile(rf"{_CONTROL}|<(?=/?(?:{'|'.join(TAGS)})\b)", re.IGNORECASE)
_FIRST_SIGNS = ("<", "[", "〈", "｜", "]~")
# A reader takes every kind of line break for one, and looks past leading blanks and signs that have no width; so
# does this. Blanks leave the breaks out, or a long run of breaks would take quadratic time.
_BREAKS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"
_NO_WIDTH = r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
_HEADER = re.compile(
    rf"(?:^|(?<=[{_BREAKS}]))(?:[^\S\n{_BREAKS}]|[{_NO_WIDTH}])*\[(?=[{_NO_WIDTH}]*\d[\d{_NO_WIDTH}]*\.)",
    re.MULTILINE,
)
_NO_BRACKETS = {ord("["): "(", ord("]"): ")"}


def special_pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of one tokenizer's special tokens; blanks that some list among them are ordinary text."""
    whole = sorted((token for token in tokens if len(token.strip()) > 2), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, whole)) or r"(?!)")


def take_apart(text: str, special: re.Pattern[str]) -> str:
    """Return a prompt's text without strings that its engine's tokenizer reads as special tokens.

    Each such string, which can only come from the data, gets a blank after its first character.
    """
    return special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def without_tokens(text: str) -> str:
    """Return a text of a chat for a policy, unable to form a special token or to end its message.

    Like `defuse`, but fences and headers stay as they are: a chat has none.
    """
    return _TOKENS.sub(_with_blank, text)


def _with_blank(match: re.Match[str]) -> str:
    return f"{match[0]} "


@dataclass(frozen=True, slots=True)
class Defused:
    """Text that is safe between fences, and the number of strings that were changed."""

    text: str
    count: int


def defuse(text: str) -> Defused:
    """Make text unable to close a fence, pose as a turn header or form a special token.

    A space is put after the opening bracket of each such string; nothing else changes.
    """
    if not any(sign in text for sign in _FIRST_SIGNS):
        return Defused(text, 0)  # every pattern begins with one of them; most texts have none
    text, special = _SPECIAL.subn(_with_blank, text)
    text, headers = _HEADER.subn(_with_blank, text)
    return Defused(text, special + headers)


def render_message(
    message: Message,
    turn: int,
    *,
    show_reasoning: bool = False,
    show_ids: bool = False,
    headings: Mapping[str, str] = NO_HEADINGS,
) -> Defused:
    """Return one message under its header `[turn.role]`, ending with a newline, with levels told to the judge hidden.

    Args:
        show_ids: name each tool call by its id, and each result by the id of its call.
        headings: by role, the heading used in place of the role's name.
    """
    label = message.name or ""
    if show_ids and message.tool_call_id:
        label += f" #{message.tool_call_id}"
    # A name may hold anything; on one line and without brackets it cannot end the header early.
    label = " ".join(label.translate(_NO_BRACKETS).split())
    role = f"{headings.get(message.role, message.role)} {label}".rstrip()
    parts: list[str] = []
    if show_reasoning and message.reasoning:
        parts.append(f"(thinking) {message.reasoning}")
    content, hidden = message.content.strip(), 0
    if message.role != "assistant":  # whose words are judged
        (role, in_name), (content, in_content) = hide_levels(role), hide_levels(content)
        hidden = in_name + in_content
    if content:
        parts.append(content)
    parts.extend(
        f"(calls tool) {f'#{call.id} ' if show_ids and call.id else ''}{rendered_call(call)}"
        for call in message.tool_calls
    )
    name, body = defuse(role), defuse("\n".join(parts) or "(empty)")
    return Defused(f"[{turn}.{name.text}]\n{body.text}\n", hidden + name.count + body.count)


def rendered_call(call: ToolCall) -> str:
    """Return a tool call in one line: its name, and its arguments as JSON or as the original text."""
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return f"{call.name} {text}"


def render_turns(
    turns: Sequence[Turn],
    *,
    show_reasoning: bool = False,
    show_ids: bool = False,
    headings: Mapping[str, str] = NO_HEADINGS,
) -> Defused:
    """Return turns as data, each message under its header (see `render_message`), without fences."""
    rendered = [
        render_message(
            message,
            turn.number,
            show_reasoning=show_reasoning,
            show_ids=show_ids,
            headings=headings,
        )
        for turn in turns
        for message in turn.messages
        if message.role != "system"
    ]
    return Defused("".join(part.text for part in rendered), sum(part.count for part in rendered))


def fenced(tag: str, text: str | None) -> Defused:
    """Return `text` between `<tag>` and `</tag>`, empty where there is no text; `tag` is one of `TAGS`."""
    assert tag in TAGS, tag  # else the text could close it
    if text is None or not text.strip():
        return Defused("", 0)
    body = defuse(text.strip())
    return Defused(f"<{tag}>\n{body.text}\n</{tag}>\n", body.count)


@dataclass(frozen=True, slots=True)
class Chat:
    """Chat messages for a policy, in OpenAI's form."""

    messages: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Trunk:
    """The shared start of prompts, its fence closed; a question follows it.

    Values derived from it (hash, token ids, redacted text) are cached on it, so that they are computed once
    for all questions.
    """

    text: str
    neutralised: int = 0
    _derived: dict[Hashable, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def derived(self, owner: Hashable, make: Callable[[str], T]) -> T:
        """Return the result of `make` for the text, computed once for each owner."""
        if owner not in self._derived:
            self._derived[owner] = make(self.text)
        value: T = self._derived[owner]
        return value

    def ending_with_dialogue(self) -> Trunk:
        """Return the trunk of a request whose rubric holds the question, so that the prompt ends with the dialogue.

        The fence stays open, since nothing follows it; nothing in the dialogue can close it. No line break
        ends it either: that alone made a small judge's answers worse (docs/adherence.md has the figures).
        """
        return Trunk(self.text.removesuffix(DIALOGUE_CLOSE).rstrip(), self.neutralised)

    def __reduce__(self) -> tuple[type[Trunk], tuple[str, int]]:
        return Trunk, (self.text, self.neutralised)


def nested(
    bare: Trunk,
    turns: Sequence[Turn],
    *,
    show_reasoning: bool = False,
    headings: Mapping[str, str] = NO_HEADINGS,
) -> list[Trunk]:
    """Return the trunk that ends with each of the turns, in order, given the one that shows none of them.

    Every turn is rendered once; rendering each trunk separately would take n (n + 1) / 2 renderings for n turns,
    the most expensive part of making prompts.
    """
    text, neutralised = bare.text.removesuffix(DIALOGUE_CLOSE), bare.neutralised
    trunks = []
    for turn in turns:
        body = render_turns((turn,), show_reasoning=show_reasoning, headings=headings)
        text, neutralised = text + body.text, neutralised + body.count
        trunks.append(Trunk(text + DIALOGUE_CLOSE, neutralised))
    return trunks


def trunk(
    rubric: str,
    dialogue: Dialogue,
    turns: Sequence[Turn],
    *,
    ledger: str | None = None,
    show_reasoning: bool = False,
    show_scenario: bool = True,
) -> Trunk:
    """Return the trunk of rubric, role, scenario, a summary of earlier turns, and the turns shown.

    Args:
        rubric: the instructions, from a prompt file; ends up first.
        dialogue: gives role, scenario, evidence and emphasis.
        turns: the turns shown. A prefix of the dialogue gives a prefix of the trunk.
        ledger: summary of the turns before the first one shown.
        show_scenario: False leaves out all but the role (role adherence).
    """
    parts: list[PromptPart] = [("role", dialogue.role_definition)]
    if show_scenario:
        parts += [
            ("scenario", dialogue.scenario),
            ("emphasis", dialogue.emphasis),
            ("evidence", "\n\n".join(dialogue.evidence)),
            ("expected_outcomes", "\n".join(dialogue.expected_outcomes)),
        ]
    parts.append(("ledger", ledger))
    return lay_out(rubric, parts, render_turns(turns, show_reasoning=show_reasoning))


PromptPart = tuple[str, str | None]
"""Tag and text of a fenced part; without text it is left out."""


def lay_out(rubric: str, parts: Sequence[PromptPart], turns: Defused) -> Trunk:
    """Return the trunk of a rubric, the fenced parts in order, and turns as `render_turns` returns them.

    The meanings of the parts that are shown (`prompts/parts.md`) follow the rubric.
    """
    fences = [fenced(tag, text) for tag, text in parts]
    meanings = prompt_sections("engines", "parts")
    explained = [
        meanings[tag] + "\n"
        for (tag, _), fence in zip(parts, fences, strict=True)
        if fence.text and tag in meanings
    ]
    shown = [*explained, *(fence.text for fence in fences)]
    text = f"{rubric.rstrip()}\n{''.join(shown)}{DIALOGUE_OPEN}{turns.text}{DIALOGUE_CLOSE}"
    return Trunk(text, sum(fence.count for fence in fences) + turns.count)
