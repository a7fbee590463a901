"""Options that make no sense are refused, and the mode is resolved before a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from curate.engines.base import Capability
from curate.errors import UsageError
from curate.judging.config import RubricConfig, reading_options, resolve_mode, scoring_mode
from curate.judging.rubric_prompts import (
    PROMPT_VERSION,
    WORDINGS,
    check_wording,
    prompt_version,
    resolve_texts,
)
from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS


@pytest.mark.parametrize("capability", [Capability.TOP_LOGPROBS, Capability.LABEL_LOGPROBS])
def test_auto_takes_tokens_where_the_engine_can(capability: Capability) -> None:
    assert resolve_mode(RubricConfig(), frozenset({capability})) == "tokens"
    assert resolve_mode(RubricConfig(mode="json"), frozenset({capability})) == "json"
    assert resolve_mode(RubricConfig(mode="tokens"), frozenset({capability})) == "tokens"


def test_tokens_without_log_probabilities_is_refused_before_anything_runs() -> None:
    can = frozenset({Capability.JSON_SCHEMA, Capability.PREFILL})
    assert resolve_mode(RubricConfig(), can) == "json"
    with pytest.raises(UsageError, match="log-probabilities"):
        resolve_mode(RubricConfig(mode="tokens"), can)


@pytest.mark.parametrize(
    "wrong",
    [
        {"window_turns": 3},
        {"window_turns": 7},
        {"overlap": 4},
        {"max_turn": 5},
        {"answer_prefix": "Score: "},
        {"retry_prefix": "Score: "},
        {"text": "everything"},
        {"rubric": "  "},
        {"prompt_file": "no-such-file.md"},
        {"anchors": {"kindness": {1: "cruel"}}},
        {"anchors": {"safety": {6: "more than safe"}}},
        {"min_scored_share": 0},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RubricConfig.model_validate(wrong)


@pytest.mark.parametrize("gone", ["joint", "separate"])
def test_ways_to_ask_for_words_that_are_gone_are_refused_with_what_to_write(gone: str) -> None:
    with pytest.raises(ValidationError, match="write `all`"):
        RubricConfig.model_validate({"text": gone})


def test_every_level_of_every_dimension_has_an_anchor() -> None:
    rubric = resolve_texts(RubricConfig()).rubric
    for name in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS):
        scale = rubric.split(f"\n{name}: ")[1].splitlines()[1:6]
        assert [line[:4] for line in scale] == ["5 = ", "4 = ", "3 = ", "2 = ", "1 = "]
        assert all(len(line) > 8 for line in scale)
    assert "{" not in rubric


def test_there_are_three_wordings_or_more_all_different() -> None:
    assert len(set(WORDINGS)) == len(WORDINGS) >= 3
    questions = resolve_texts(RubricConfig()).questions
    assert all(f"json.{number}" in questions for number in range(len(WORDINGS)))


def test_version_follows_every_text() -> None:
    assert prompt_version(RubricConfig(max_turns=4)) == PROMPT_VERSION
    assert PROMPT_VERSION.startswith("rubric-1-")
    changed = {
        prompt_version(RubricConfig(rubric="Judge this.")),
        prompt_version(RubricConfig(anchors={"safety": {5: "spotless"}})),
        prompt_version(RubricConfig(examples=("One.",))),
        prompt_version(RubricConfig(answer_prefix="[[")),
        PROMPT_VERSION,
    }
    assert len(changed) == 5


def test_own_anchors_and_examples_take_the_place_of_ours(tmp_path: Path) -> None:
    own = RubricConfig(anchors={"safety": {3: "a {curly} anchor"}}, examples=("An example.",))
    rubric = resolve_texts(own).rubric
    assert "3 = a {curly} anchor" in rubric
    assert "5 = clean" in rubric
    assert rubric.endswith("Example:\nAn example.\n")
    file = tmp_path / "rubric.md"
    file.write_text("My rubric.\n{anchors}\n", encoding="utf-8")
    from_file = RubricConfig(prompt_file=file, examples=("An example.",))
    file.write_text("Edited while running.", encoding="utf-8")
    rubric = resolve_texts(from_file).rubric
    assert rubric.startswith("My rubric.\ncontext_use: ")
    assert rubric.endswith("An example.\n")
    bare = resolve_texts(RubricConfig(rubric="Only this, {braces} too."))
    assert bare.rubric == "Only this, {braces} too.\n"
    with pytest.raises(ValidationError, match="not both"):
        RubricConfig(prompt_file=file, rubric="text")


def test_a_mode_that_the_engine_cannot_do_is_refused_with_what_it_can() -> None:
    with pytest.raises(UsageError) as caught:
        scoring_mode("tokens", frozenset({Capability.PREFILL, Capability.JSON_SCHEMA}), "metrics")
    text = str(caught.value)
    assert "scoring mode 'tokens' needs an engine that gives log-probabilities" in text
    assert f"got: {Capability.JSON_SCHEMA}, {Capability.PREFILL}" in text
    assert "expected: top_logprobs or label_logprobs" in text
    assert "set metrics.mode to 'json' or 'auto', or choose another engine" in text
    with pytest.raises(UsageError, match="got: an engine without any such capability"):
        scoring_mode("tokens", frozenset(), "judge")


def test_thoughts_that_the_engine_cannot_be_given_are_refused_in_mode_tokens_alone() -> None:
    config = RubricConfig(thought_tokens=100)
    can = frozenset({Capability.TOP_LOGPROBS})
    with pytest.raises(UsageError) as caught:
        resolve_mode(config, can)
    text = str(caught.value)
    assert "judge.thought_tokens cannot be used" in text
    assert f"got: {Capability.TOP_LOGPROBS}" in text
    assert "an engine on which a reply can begin with a thought" in text
    assert "name the server's `tokenizer` on the engine openai" in text
    assert resolve_mode(config, can | {Capability.THOUGHTS}) == "tokens"
    assert resolve_mode(config.model_copy(update={"mode": "json"}), can) == "json"
    assert resolve_mode(RubricConfig(), can) == "tokens"


def test_options_that_change_readings_are_named_where_they_are_not_the_defaults() -> None:
    assert reading_options(RubricConfig(), "tokens") == {}
    assert reading_options(RubricConfig(samples=5), "tokens") == {}
    sampled = reading_options(RubricConfig(samples=5), "json")
    assert sampled["samples"] == 5
    assert set(sampled) == {"samples", "temperature"}
    assert reading_options(RubricConfig(paraphrases=2), "tokens") == {"paraphrases": 2}
    assert reading_options(RubricConfig(paraphrases=2), "json") == {}


@pytest.mark.parametrize("wording", [-1, len(WORDINGS)])
def test_a_wording_that_does_not_exist_is_refused(wording: int) -> None:
    with pytest.raises(UsageError) as caught:
        check_wording(wording)
    assert "there is no such wording of the question" in str(caught.value)
    assert f"got: {wording}" in str(caught.value)
    assert f"expected: 0 to {len(WORDINGS) - 1}" in str(caught.value)
    check_wording(0)
    check_wording(len(WORDINGS) - 1)
