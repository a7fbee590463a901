"""Checks over whole sets of pairs: planted shortcuts must alarm, balanced sets must not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Lineage, Message, ToolCall
from curate.records import PairCheck, PairSetReport, PreferencePair, SetCheck
from curate.trust.pair_set import PairFacts, PairSetConfig, check_pair_set, check_rows, side_length
from curate.trust.telling_words import WordCounts

CONFIG = PairSetConfig()
COMMON = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "you",
    "can",
    "it",
    "is",
    "that",
    "in",
    "we",
    "for",
    "on",
    "with",
    "your",
    "this",
    "our",
    "when",
    "how",
]
TOPICS = [f"topic{n}" for n in range(60)]

Side = str | Message


def pair(chosen: Side, rejected: Side, prompt: str = "Q", **fields: object) -> PreferencePair:
    def side(given: Side) -> Message:
        return given if isinstance(given, Message) else Message(role="assistant", content=given)

    given = {
        "pair_id": f"{prompt}/{chosen}/{rejected}",
        "dialogue_id": prompt,
        "content_hash": "",
        "source": "natural",
        "basis": "rank",
        "prompt": (Message(role="user", content=prompt),),
        "chosen": side(chosen),
        "rejected": side(rejected),
    }
    return PreferencePair.model_validate(given | fields)


def sentence(draw: random.Random, words: int = 30) -> str:
    """Words that say nothing, the same for both sides but for chance."""
    return " ".join(draw.choice(COMMON + TOPICS) for _ in range(words))


def balanced(
    n: int, seed: int = 0, chosen: Callable[[str], str] = str, rejected: Callable[[str], str] = str
) -> list[PreferencePair]:
    """Pairs whose sides are alike, but for what is done to either."""
    draw = random.Random(seed)
    return [
        pair(
            chosen(sentence(draw)),
            rejected(sentence(draw)),
            f"question {k} about {draw.choice(TOPICS)}",
        )
        for k in range(n)
    ]


def report(
    pairs: list[PreferencePair], config: PairSetConfig = CONFIG, **more: object
) -> PairSetReport:
    return check_pair_set(lambda: pairs, config, **more)  # type: ignore[arg-type]


def check(pairs: list[PreferencePair], name: str, **more: object) -> SetCheck:
    [found] = [item for item in report(pairs, **more).checks if item.name == name]  # type: ignore[arg-type]
    return found


# --- words


@pytest.mark.parametrize(
    "planted",
    [
        lambda text: f"Sure! {text}",
        lambda text: f"{text} **Note**",
        lambda text: text.replace("you", "thou"),
    ],
)
def test_a_word_that_marks_the_chosen_side_alarms(planted: Callable[[str], str]) -> None:
    found = check(balanced(300, chosen=planted), "word_auc")
    assert found.status == "warn"
    assert found.figure is not None
    assert found.figure > 0.9
    assert check(balanced(300, rejected=planted), "word_auc").status == "warn"


def test_the_telling_words_are_named() -> None:
    found = check(balanced(300, chosen=lambda text: f"Sure! {text}"), "word_auc")
    assert "'sure' only in chosen 300, only in rejected 0" in found.detail


def test_a_marker_in_a_third_of_the_pairs_alarms_where_the_threshold_says_so() -> None:
    draw = random.Random(1)
    pairs = balanced(900, chosen=lambda text: f"Sure! {text}" if draw.random() < 0.4 else text)
    found = check(pairs, "word_auc")
    assert found.figure is not None
    assert 0.6 < found.figure < 0.8
    assert found.status == "warn"
    assert check(pairs, "word_auc", config=PairSetConfig(word_auc=0.85)).status == "pass"


@pytest.mark.parametrize("seed", range(4))
def test_a_balanced_set_alarms_nowhere(seed: int) -> None:
    found = report(balanced(400, seed), count_repeats=lambda _: 0)
    assert {item.name for item in found.checks if item.status == "warn"} == set()
    assert {item.name for item in found.checks if item.status == "pass"} == {
        "longer_wins", "length_auc", "word_auc", "repeated_prompts",
    }  # fmt: skip


def test_a_word_of_the_subject_is_no_shortcut() -> None:
    """Words of one conversation tell its own pairs only, and those are held out together."""
    draw = random.Random(3)
    pairs = []
    for k in range(40):
        for n in range(8):
            yes, no = sentence(draw), sentence(draw)
            pairs.append(
                pair(f"{yes} fact{k}", f"{no} error{k}", f"Question {k}", pair_id=f"{k}/{n}")
            )
    assert check(pairs, "word_auc").status == "pass"
    scattered = [
        p.model_copy(update={"prompt": (Message(role="user", content=p.pair_id),)}) for p in pairs
    ]
    assert check(scattered, "word_auc").status == "warn"


def test_one_conversation_cannot_be_held_out() -> None:
    pairs = [pair(f"yes {k}", f"no {k}") for k in range(80)]
    found = check(pairs, "word_auc")
    assert (found.status, found.figure) == ("not_run", None)
    assert "one conversation" in found.detail


def test_words_are_counted_of_a_sample_and_the_figure_stays() -> None:
    pairs = balanced(600, chosen=lambda text: f"Sure! {text}")
    found = check(pairs, "word_auc", config=PairSetConfig(sample=200))
    assert found.n == 200
    assert found.status == "warn"


def test_a_tool_that_is_called_is_a_word_of_its_side() -> None:
    call = Message(role="assistant", tool_calls=(ToolCall(name="search", arguments={"q": 1}),))
    counts = WordCounts()
    for k in range(100):
        counts.add(str(k), call, Message(role="assistant", content="I cannot."))
    found = counts.shortcut()
    assert found is not None
    assert found.auc == 1
    assert "call:search" in {word.word for word in found.words}


@given(st.permutations(range(30)))
def test_the_order_of_the_pairs_does_not_matter(order: list[int]) -> None:
    pairs = balanced(30, chosen=lambda text: f"Sure! {text}")
    small = PairSetConfig(min_pairs=10)
    assert report([pairs[k] for k in order], small) == report(pairs, small)


# --- length


def test_longer_sides_that_win_alarm_and_so_do_shorter_ones() -> None:
    longer = balanced(200, chosen=lambda text: f"{text} {text}")
    shorter = balanced(200, rejected=lambda text: f"{text} {text}")
    for name in ("longer_wins", "length_auc"):
        assert check(longer, name).status == "warn"
        assert check(shorter, name).status == "warn"
        assert check(longer, name).figure == 1
        assert check(shorter, name).figure == 0
    # the same words, only more of them: the words are no shortcut of their own
    assert check(longer, "word_auc").status == "pass"


def test_equal_lengths_are_no_win_for_either() -> None:
    pairs = [pair("yes", "no!", f"q{k}") for k in range(100)] + [
        pair("yes.", "no", f"r{k}") for k in range(60)
    ]
    found = check(pairs, "longer_wins")
    assert (found.figure, found.n) == (1, 60)


def test_length_counts_tool_calls_and_no_space_at_the_ends() -> None:
    assert side_length(Message(role="assistant", content=" four \n")) == 4
    call = ToolCall(name="ab", arguments={"n": 1})
    assert side_length(Message(role="assistant", content="x", tool_calls=(call,))) == 1 + 2 + 7


# --- few pairs, thresholds, repeats


def test_few_pairs_tell_nothing_and_that_is_no_pass() -> None:
    found = report(
        [pair("Sure, yes yes", "no", f"q{k}") for k in range(49)], count_repeats=lambda _: 40
    )
    assert {item.status for item in found.checks} == {"not_run"}
    assert all(item.figure is None for item in found.checks)
    assert "at least 50" in found.checks[0].detail


def test_checks_that_one_reason_stopped_share_a_row() -> None:
    found = report([pair("Sure, yes yes", "no", f"q{k}") for k in range(3)])
    reasons = {item.detail for item in found.checks}
    rows = check_rows({"natural": found})
    assert len(rows) == len(reasons) < len(found.checks)
    assert {row[4] for row in rows} == {f"not run: {reason}" for reason in reasons}


def test_each_check_can_be_left_out() -> None:
    none = PairSetConfig.model_validate(
        {name: None for name in PairSetConfig.model_fields if name not in ("min_pairs", "sample")}
    )
    assert report(balanced(60), none).checks == ()


def test_repeated_prompts_are_a_share_of_the_pairs() -> None:
    pairs = balanced(100)
    found = check(pairs, "repeated_prompts", count_repeats=lambda read: len(list(read())) // 4)
    assert (found.figure, found.status, found.detail) == (0.25, "warn", "25 of 100 pairs")
    assert check(pairs, "repeated_prompts", count_repeats=lambda _: 20).status == "pass"


def test_sides_that_say_the_same_words_tell_nothing() -> None:
    counts = WordCounts()
    side = Message(role="assistant", content="The very same.")
    for prompt in range(10):
        counts.add(str(prompt), side, side)
    found = counts.shortcut()
    assert found is not None
    assert (found.auc, found.words) == (0.5, ())


# --- mixes


def scored(n: int, **gains: float) -> list[PreferencePair]:
    low = dict.fromkeys(("context_use", "helpfulness", "safety"), 2.0)
    high = {name: low[name] + gains.get(name, 0) for name in low}
    figures = PairCheck(chosen_scores=high, rejected_scores=low)
    return [pair(f"y {k} {gains}", f"n {k} {gains}", f"q {k}", check=figures) for k in range(n)]


def test_pairs_that_all_mend_one_dimension_alarm() -> None:
    mixed = scored(70, helpfulness=2, safety=1) + scored(30, context_use=1)
    found = check(mixed, "dimension_mix")
    assert (found.figure, found.status, found.detail) == (0.7, "pass", "most are helpfulness")
    assert check(scored(90, helpfulness=2) + scored(10, safety=2), "dimension_mix").status == "warn"
    assert check(scored(60, helpfulness=2), "dimension_mix").figure == 1
    assert report(mixed).mixes["dimension"] == {"helpfulness": 70, "context_use": 30}


def test_unknown_is_said_and_never_a_value() -> None:
    def about(given: PreferencePair) -> PairFacts:
        number = int(given.prompt[0].content.split()[1])
        return PairFacts(role="R" if number % 2 else "S", language="de" if number < 60 else None)

    pairs = balanced(100)
    found = {item.name: item for item in report(pairs, about=about).checks}
    assert found["dimension_mix"].status == "not_run"
    assert "unknown for all 100 pairs" in found["dimension_mix"].detail
    assert (found["role_balance"].figure, found["role_balance"].status) == (0.5, "pass")
    assert found["language_balance"].status == "not_run"
    assert "unknown for 40 of 100 pairs" in found["language_balance"].detail


def test_a_lopsided_source_role_or_language_alarms() -> None:
    pairs = [
        p.model_copy(update={"lineage": Lineage(source="b" if k < 3 else "a", file="f", rows=(k,))})
        for k, p in enumerate(balanced(100))
    ]

    def about(given: PreferencePair) -> PairFacts:
        rare = given.lineage is not None and given.lineage.source == "b"
        return PairFacts(role="x" if rare else "y", language="en" if rare else "fr")

    found = {item.name: item for item in report(pairs, about=about).checks}
    for name in ("source_mix", "role_balance", "language_balance"):
        assert (found[name].figure, found[name].status) == (0.97, "warn")
    assert report(pairs).mixes["source"] == {"a": 97, "b": 3}


def test_long_mixes_are_cut_to_a_sum() -> None:
    pairs = balanced(100)
    found = report(pairs, about=lambda p: PairFacts(role=p.prompt[0].content)).mixes["role"]
    assert len(found) == 21
    assert found["(others)"] == 80
    assert sum(found.values()) == 100
