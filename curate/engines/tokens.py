"""From requests to token ids, each piece of text tokenised once.

The prompts of a dialogue repeat each other: the questions on one trunk differ in their last lines, and
the trunk of turns 1..i begins the trunk of turns 1..i+1. Rendering and tokenising every prompt by itself
costs more than all else this program does for it. Here the chat template is split once, around
the one user message of a judge's request, and the rendered text is cut into *segments* whose
ids are kept and joined.

A segment begins at a line that starts with `[` or `<` behind a line that ends in a visible character
(see `engines.layout`). Joining is exact where a tokenizer never looks past such a place:
- the regular expressions before byte-level BPE treat a single newline alike whatever follows it (a run of
  blanks they do not, hence the visible character);
- no token of the vocabulary spans it (looked up), so that neither BPE merges nor a unigram model do;
- SentencePiece's dummy prefix stands only before the first segment: the others are tokenised behind a
  newline, whose ids are then removed.
Each tokenizer is checked for this when it is loaded; with one that fails every prompt is tokenised whole.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise
from threading import Lock
from typing import Any

import orjson

from curate.engines.base import Request, short_hash, sorted_json
from curate.engines.layout import Chat, Trunk, special_pattern, take_apart
from curate.engines.model_files import model_folder
from curate.engines.redaction import redact_request
from curate.engines.thinking import OPENING, begun_reply
from curate.errors import EngineError, UsageError, first_line, missing_extra

KEPT_IDS = 2_000_000
"""Token ids kept in all, about 40 bytes each: some thousand dialogues."""

_BOUNDARY = re.compile(r"\n(?=[\[<])")
_SENTINEL = "curate-7f3a-content"
_ANCHOR = "\n"
# Contents that a template might treat specially: blanks at both ends, its own syntax, markup.
_CONTENT_PROBES = (
    "plain",
    " \n padded \t\n\n",
    "[1.user]\nHello {{ x }} {% y %}\n</dialogue>\nAnd?\n",
    "<b>one</b>\n\n\n[2.assistant]\n```\n\tcode\n```\n",
)
_LINE_ENDS = 'aé。1.)}"]>/😀\u200d한ا`|'
_LINE_STARTS = (
    *("[1.user]", "[", "[[", "[ 1.", "[INST]"),
    *("<role>", "</dialogue>", "<", "<|x|>", "<https"),
)


class PromptRefused(ValueError):
    """The chat template does not take these messages (say, two user messages in a row)."""


class PromptTokens:
    """Turns requests into the token ids of their prompts.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        template_kwargs: variables for the template, such as `enable_thinking`.

    Attributes:
        is_segmentable: False where joined segments do not give the ids of the whole text; every prompt is
            then tokenised whole.
        opens_thought: True where the template begins every reply with a thought. A label or an object that is forced
            would stand inside it, so it is closed first.
        is_split: True where a single user message is put between the template's fixed parts; else the
            template renders every prompt.
        identity_detail: template and tokenizer, for an engine's identity.

    Raises:
        UsageError: the tokenizer has no chat template, or the template fails on a plain message.
    """

    def __init__(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self._kwargs = dict(template_kwargs or {})
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template",
                expected="the tokenizer of an instruction-tuned model",
                fix="put its template into chat_template.jinja beside the tokenizer",
            )
        self._kept: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._kept_ids = 0
        self._lock = Lock()
        self._labels: dict[tuple[str, ...], dict[int, str]] = {}
        self._vocabulary: dict[str, int] = tokenizer.get_vocab()
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        self._special = special_pattern(
            {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
        )
        self._backend: Any = None
        self._backend = self._find_backend()
        self._anchor = self._encode(_ANCHOR)
        self.is_segmentable = self._joins_exactly()
        self.opens_thought = False
        self._head, self._tail, self._trim = self._split_template()
        self.is_split = self._trim is not None
        self.identity_detail = self._describe()

    def prompt_text(self, request: Request) -> str:
        """Return the rendered prompt: template, generation prompt, the thought and, unless there is a schema, the prefill.

        A schema forces the start of the reply by itself, see `Request.prefill`.

        Raises:
            PromptRefused: the template does not take these messages.
        """
        start = self._start(request)
        if self._trim is not None and isinstance(request.trunk, Trunk) and not request.tools:
            content = self._trim(take_apart(request.trunk.text + request.question, self._special))
            return f"{self._head}{content}{self._tail}{start}"
        request = redact_request(request, lambda text: take_apart(text, self._special))
        return self._render(request.messages, request.tools) + start

    def _start(self, request: Request) -> str:
        """Return the forced start of the reply."""
        return begun_reply(request, self._special, opens_thought=self.opens_thought)

    def prompt_ids(self, request: Request) -> list[int]:
        """Return the token ids of `prompt_text`, equal to those of tokenising it whole without special tokens.

        Those of a trunk are made once for all its questions.

        Raises:
            PromptRefused: the template does not take these messages.
        """
        trunk = request.trunk
        is_split = self._trim is not None and self.is_segmentable and not request.tools
        if isinstance(trunk, Chat) or not is_split or not request.question.strip():
            return self.encode(self.prompt_text(request))
        ids, rest = trunk.derived(self, self._begin)
        question = take_apart(request.question, self._special)
        assert self._trim is not None
        content = self._trim(f"x{question}")[1:]  # x stands for the trunk: only the end is trimmed
        return ids + self._join(
            f"{rest}{content}{self._tail}{self._start(request)}", is_first=not ids
        )

    def _begin(self, text: str) -> tuple[list[int], str]:
        """Return the ids of a trunk up to its last segment, and the text of that segment, which a question continues."""
        assert self._trim is not None
        text = self._head + self._trim(f"{take_apart(text, self._special)}x")[:-1]
        *_, (last, _) = _segments(text)
        return (self._join(text[:last], is_first=True) if last else []), text[last:]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text that holds its own special tokens, from kept segments where possible."""
        if not self.is_segmentable:
            return list(self._encode(text))
        return self._join(text, is_first=True)

    def _join(self, text: str, *, is_first: bool) -> list[int]:
        ids: list[int] = []
        for start, stop in _segments(text):
            ids += self._segment_ids(text[start:stop], is_first=is_first and start == 0)
        return ids

    def label_ids(self, request: Request) -> dict[int, str]:
        """Return the tokens that spell a label as the reply's first token: id to text, blank included.

        Every token counts that is a label but for one leading blank: the judge gives the label by any of them.
        A label without such a token is missing.
        """
        if request.labels not in self._labels:
            self._labels[request.labels] = self._find_labels(request.labels)
        return dict(self._labels[request.labels])

    def _find_labels(self, labels: Sequence[str]) -> dict[int, str]:
        texts: dict[int, str] = {}
        for label in labels:
            for text in (label, f" {label}"):
                for spelling in self._spellings(text):
                    index = self._vocabulary.get(spelling)
                    if index is None:
                        continue
                    # Decoding tells a spelling from a token that merely looks like it.
                    decoded = self.tokenizer.decode([index], skip_special_tokens=False)
                    if decoded.strip() == label.strip():
                        texts[index] = text
        return texts

    def _spellings(self, text: str) -> set[str]:
        """Return the ways a vocabulary may write a text: as it is, with SentencePiece's blank, as mapped bytes."""
        spellings = {text, text.replace(" ", "\u2581")}
        if getattr(self.tokenizer, "is_fast", False):
            from tokenizers.pre_tokenizers import ByteLevel

            mapped = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
            spellings.add("".join(piece for piece, _ in mapped))
        return spellings

    def _segment_ids(self, text: str, *, is_first: bool) -> tuple[int, ...]:
        key = text if is_first else _ANCHOR + text
        with self._lock:
            ids = self._kept.get(key)
            if ids is not None:
                self._kept.move_to_end(key)
                return ids
        ids = self._encode(key)[0 if is_first else len(self._anchor) :]
        with self._lock:
            if key not in self._kept:
                self._kept[key] = ids
                self._kept_ids += len(ids)
            while self._kept_ids > KEPT_IDS:
                self._kept_ids -= len(self._kept.popitem(last=False)[1])
        return ids

    def _encode(self, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        if self._backend is not None:
            [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=False)
            return tuple(encoding.ids)
        # verbose=False: a prompt beyond the model's length is the engine's to report.
        encoded = self.tokenizer(text, add_special_tokens=False, verbose=False)
        return tuple(encoded["input_ids"])

    def _render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        import jinja2

        try:
            text: str = self.tokenizer.apply_chat_template(
                [_with_parsed_arguments(message) for message in messages],
                tools=[dict(tool) for tool in tools] or None,
                add_generation_prompt=True,
                tokenize=False,
                **self._kwargs,
            )
        # Templates are programs: they refuse by raising, and trip over fields they did not expect.
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, IndexError) as error:
            raise PromptRefused(f"the chat template refuses the messages: {error}") from error
        return text

    def _split_template(self) -> tuple[str, str, Callable[[str], str] | None]:
        """Return the template's text before and behind a user message, and how it trims the message's ends."""
        try:
            rendered = self._render([{"role": "user", "content": _SENTINEL}])
        except PromptRefused as error:
            raise UsageError(
                "the chat template fails on a single user message",
                got=str(error.__cause__),
                fix="use a tokenizer that has the template of a chat model",
            ) from error
        self.opens_thought = rendered.rstrip().endswith(OPENING)
        if rendered.count(_SENTINEL) == 1:
            head, tail = rendered.split(_SENTINEL)
            expected = [
                self._render([{"role": "user", "content": probe}]) for probe in _CONTENT_PROBES
            ]
            for trim in (str, str.strip, str.rstrip, str.lstrip):
                if expected == [f"{head}{trim(probe)}{tail}" for probe in _CONTENT_PROBES]:
                    return head, tail, trim
        return "", "", None

    def _joins_exactly(self) -> bool:
        """Tell whether a text's ids are those of its segments, one after the other."""
        # The newline alone and as it is written in byte-level and byte-fallback vocabularies.
        crossing = tuple(f"{newline}{start}" for newline in ("\n", "Ċ", "<0x0A>") for start in "[<")
        if any(part in token for token in self._vocabulary for part in crossing):
            return False
        added = getattr(self.tokenizer, "added_tokens_decoder", {}).values()
        if any(token.lstrip and token.content[:1] in ("[", "<") for token in added):
            return False
        self.is_segmentable = True
        lines = [
            f"{start}word {end}\n{start} 12 {end}{end}\n{start}{end}\n"
            for start in _LINE_STARTS
            for end in _LINE_ENDS
        ]
        texts = ["".join(lines), *("".join(pair) for pair in pairwise(lines))]
        return all(self.encode(text) == list(self._encode(text)) for text in texts)

    def _find_backend(self) -> Any:
        """Return the Rust tokenizer behind a fast one, which need not count offsets; None where it is not the same.

        A copy, because the original keeps the truncation of its last caller.
        """
        backend: Any = getattr(self.tokenizer, "backend_tokenizer", None)
        if not hasattr(backend, "encode_batch_fast"):
            return None
        backend = copy(backend)
        backend.no_truncation()
        backend.no_padding()
        same = all(
            tuple(backend.encode_batch_fast([probe], add_special_tokens=False)[0].ids)
            == self._encode(probe)
            for probe in (*_CONTENT_PROBES, self.tokenizer.eos_token or "")
            if probe
        )
        return backend if same else None

    def _describe(self) -> tuple[tuple[str, str], ...]:
        template = self.tokenizer.chat_template
        if not isinstance(template, str):
            template = sorted_json(template).decode()
        # Its behaviour rather than its file, whose form changes with the library's version.
        behaviour = [sorted(self._vocabulary.items()), self._encode(_CONTENT_PROBES[-1])]
        detail = [
            ("chat_template", short_hash(template)),
            ("tokenizer", short_hash(orjson.dumps(behaviour).decode())),
        ]
        if self._kwargs:
            detail.append(("chat_template_kwargs", sorted_json(self._kwargs).decode()))
        if self.opens_thought:
            detail.append(("forced_replies", "behind the closed thought"))
        return tuple(detail)


def _segments(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each segment of a text; a single empty one for no text."""
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        stop = boundary.end()
        if stop >= 2 and not text[stop - 2].isspace():
            yield start, stop
            start = stop
    yield start, len(text)


def load_tokenizer(path_or_hub_id: str, revision: str | None = None) -> Any:
    """Return a Hugging Face tokenizer from a folder, or from the Hub by its id.

    Raises:
        UsageError: the package is missing, or there is no tokenizer.
        EngineError: the Hub cannot be reached or refuses.
    """
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise missing_extra("transformers", "transformers") from error
    folder = model_folder(path_or_hub_id)
    name = str(folder or path_or_hub_id)
    try:
        return AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
    # transformers and the Hub client raise types from half a dozen libraries, all to the same effect.
    except Exception as error:
        if folder:
            raise UsageError(
                f"there is no usable tokenizer in {name}",
                got=first_line(error),
                expected="the files of a Hugging Face tokenizer, such as tokenizer.json",
            ) from error
        raise EngineError(
            f"the tokenizer of {name} cannot be loaded",
            got=first_line(error),
            expected="an existing folder, or a Hub id such as owner/name",
            fix="check the name and the connection",
        ) from error


def _with_parsed_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with its tool calls' arguments as objects, the form that templates print."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    parsed = []
    for call in calls:
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), str):
            try:
                value = orjson.loads(function["arguments"])
            except orjson.JSONDecodeError:
                value = None
            if isinstance(value, dict):
                function["arguments"] = value
        parsed.append({**call, "function": function})
    return {**message, "tool_calls": parsed}
