"""The texts a judge reads: shipped as files, overridden by the config, hashed into a version.

`rubric.md` is one text with `{anchors}` and `{examples}`. A rubric of the user's own may have other braces, so
these two are replaced and nothing else is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import orjson

from curate.engines.label_mass import LETTER_PREFIX
from curate.engines.prompt_files import fill, prompt_file, prompt_sections
from curate.errors import UsageError
from curate.judging.config import RubricConfig
from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS

LEVELS = (5, 4, 3, 2, 1)
_GENERATION = 1  # Raised by hand when the prompts change in kind; the hash follows every edit.


@dataclass(frozen=True, slots=True)
class RubricTexts:
    """All texts of one configuration.

    Attributes:
        rubric: the start of every prompt, filled in.
        questions: section name to text, from `questions.md`.
        asks: dimension to what it asks, one clause.
        version: `rubric-<generation>-<8 hex digits of all of the above>`.
    """

    rubric: str
    questions: Mapping[str, str]
    asks: Mapping[str, str]
    version: str

    def question(self, name: str, **values: object) -> str:
        """Return the section `name` with each `{name}` replaced by its value; every one must be given."""
        return fill(self.questions[name], **values)


def resolve_texts(config: RubricConfig) -> RubricTexts:
    """Return a config's texts: ours, or the user's rubric, anchors and examples in their place."""
    shipped = _shipped()
    overrides_of = {str(name): levels for name, levels in config.anchors.items()}
    scales = []
    for name in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS):
        own = overrides_of.get(name, {})
        lines = [f"{level} = {own.get(level, shipped.anchors[name][level])}" for level in LEVELS]
        scales.append(f"{name}: {shipped.asks[name]}\n" + "\n".join(lines))
    examples = "\n\n".join(f"Example:\n{example.strip()}" for example in config.examples)
    template = config.own_rubric or shipped.rubric
    # A rubric of the user's own may bring its scales and need no {anchors}; overrides still show.
    for key, overrides in (("anchors", config.anchors), ("examples", config.examples)):
        if overrides and f"{{{key}}}" not in template:
            template = f"{template.rstrip()}\n{{{key}}}"
    values = {"{anchors}": "\n".join(scales), "{examples}": examples}
    # in one pass, so that braces of the user's own anchors and examples are left alone
    filled = re.sub(r"\{(?:anchors|examples)\}", lambda name: values[name[0]], template)
    rubric = filled.strip() + "\n"
    content = orjson.dumps(
        [
            rubric,
            dict(shipped.questions),
            dict(shipped.asks),
            config.answer_prefix,
            config.retry_prefix,
            LETTER_PREFIX,
        ],
        option=orjson.OPT_SORT_KEYS,
    )
    digest = hashlib.blake2b(content, digest_size=4).hexdigest()
    return RubricTexts(rubric, shipped.questions, shipped.asks, f"rubric-{_GENERATION}-{digest}")


def prompt_version(config: RubricConfig) -> str:
    """Return the version of a config's texts; for the judge's identity and the stage's fingerprint."""
    return resolve_texts(config).version


@dataclass(frozen=True, slots=True)
class _Shipped:
    rubric: str
    questions: Mapping[str, str]
    asks: Mapping[str, str]
    anchors: Mapping[str, Mapping[int, str]]


@cache
def _shipped() -> _Shipped:
    asks: dict[str, str] = {}
    anchors: dict[str, dict[int, str]] = {}
    for dimension, text in prompt_sections("judging", "anchors").items():
        lines = dict(line.split(": ", 1) for line in text.splitlines())
        asks[dimension] = lines["asks"]
        anchors[dimension] = {level: lines[str(level)] for level in LEVELS}
    questions = prompt_sections("judging", "questions")
    return _Shipped(prompt_file("judging", "rubric"), questions, asks, anchors)


def _wordings(prefix: str) -> tuple[str, ...]:
    questions = _shipped().questions
    names = sorted(name for name in questions if re.fullmatch(rf"{prefix}\.\d+", name))
    return tuple(questions[name] for name in names)


WORDINGS: tuple[str, ...] = _wordings("score")
"""Paraphrases of the question for one turn's score; number 0 is the one `judge_dialogue` asks."""

PROMPT_VERSION: str = prompt_version(RubricConfig())
"""Version of the shipped prompts."""


def check_wording(wording: int) -> None:
    """Refuse a paraphrase number that does not exist.

    Raises:
        UsageError: `wording` is not in [0, len(WORDINGS)).
    """
    if not 0 <= wording < len(WORDINGS):
        raise UsageError(
            "there is no such wording of the question",
            got=wording,
            expected=f"0 to {len(WORDINGS) - 1}",
        )
