from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue
from curate.selection.cleaning import Cleaner
from curate.selection.config import EvalSet, SelectConfig
from curate.selection.contamination import EvalIndex, EvalText
from curate.selection.dedup import TextBatch
from curate.selection.rules import select
from curate.selection.shingles import tokenise
from curate.selection.table import score_table
from tests.selection.test_dedup import talk

QUESTION = (
    "A robe takes 2 bolts of blue fiber and half that much white fiber. "
    "How many bolts in total does it take?"
)


def index(*texts: str, **settings: object) -> EvalIndex:
    config = EvalSet(path="gsm8k_test.jsonl", **settings)  # type: ignore[arg-type]
    return EvalIndex(config, [EvalText(str(n), text) for n, text in enumerate(texts, start=1)])


def test_a_shared_run_is_found_whatever_its_case_and_punctuation() -> None:
    found = index("Nothing to do with the matter at all, I am quite sure about that one.", QUESTION)
    given = [
        talk("clean", "How do I sew a robe?", "With blue fiber and a needle."),
        talk("dirty", "My homework:", f"«{QUESTION.upper().replace('.', ' …')}» Three."),
    ]
    [(row, collision)] = found.collisions(TextBatch(given)).items()
    assert row == 1
    assert collision.reason == "contaminated"
    assert collision.other == "gsm8k_test.jsonl:2"
    assert collision.text == "a robe takes 2 bolts of blue fiber and half that much white"
    assert collision.similarity == 1.0


def test_thirteen_words_are_one_too_many_and_twelve_are_none() -> None:
    words = tokenise(QUESTION)
    found = index(QUESTION)
    twelve, thirteen = " ".join(words[:12]), " ".join(words[:13])
    given = [talk("twelve", twelve + " else", ""), talk("thirteen", "so " + thirteen, "")]
    assert list(found.collisions(TextBatch(given))) == [1]
    share = found.collisions(TextBatch(given))[1].similarity
    assert share == pytest.approx(1 / (len(words) - 12))


def test_system_messages_and_tool_calls() -> None:
    found = index(QUESTION)
    from curate.dialogue import Message, ToolCall

    call = ToolCall(name="ask", arguments={"question": QUESTION})
    hidden = Dialogue(id="a", messages=(Message(role="system", content=QUESTION),))
    called = Dialogue(id="b", messages=(Message(role="assistant", tool_calls=(call,)),))
    assert list(found.collisions(TextBatch([hidden, called]))) == [1]


def test_chinese_is_counted_in_characters_of_half_a_word() -> None:
    text = "小明有五个苹果他给了小红两个又从商店买了三个请问小明现在一共有多少个苹果"
    found = index(text)
    given = [talk("a", "问题" + text[:26], "好"), talk("b", "问题" + text[:25] + "吗", "好")]
    collisions = found.collisions(TextBatch(given))
    assert list(collisions) == [0]
    assert collisions[0].text == " ".join(text[:26])


def test_the_template_of_a_set_does_not_count_and_what_cannot_be_found_is_said() -> None:
    template = (
        "Choose the one right answer from the four options that are given below this line please: "
    )
    own = [" ".join(f"word{n}x{m}" for m in range(14)) for n in range(12)]
    found = index(*(template + text for text in own), template, "Too short.")
    assert (found.texts, found.short, found.template) == (14, 1, 1)
    assert found.warning is not None
    assert "1 are shorter than 13 words" in found.warning
    assert "1 hold no n-gram" in found.warning
    given = [talk("a", template, "B"), talk("b", "see " + own[3], "C")]
    collisions = found.collisions(TextBatch(given))
    assert list(collisions) == [1]
    assert collisions[1].other == "gsm8k_test.jsonl:4"
    every = index(*(template + text for text in own), common=None)
    assert every.warning is None
    assert list(every.collisions(TextBatch(given))) == [0, 1]


def test_an_empty_set_finds_nothing() -> None:
    assert index().collisions(TextBatch([talk("a", QUESTION, "b")])) == {}


WORDS = st.lists(st.sampled_from("abc"), min_size=0, max_size=25)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=5), st.lists(WORDS, max_size=5), st.integers(2, 5))
def test_found_is_exactly_what_shares_a_run(
    evals: list[list[str]], dialogues: list[list[str]], ngram: int
) -> None:
    def runs(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)}

    held = [runs(words) for words in evals]
    found = index(*(" ".join(words) for words in evals), ngram=ngram, common=None)
    given = [talk(str(n), " ".join(words)) for n, words in enumerate(dialogues)]
    collisions = found.collisions(TextBatch(given))
    every = set().union(*held)
    assert set(collisions) == {n for n, words in enumerate(dialogues) if runs(words) & every}
    for n, collision in collisions.items():
        other = held[int(collision.other.rpartition(":")[2]) - 1]
        mine = runs(dialogues[n])
        assert tuple(collision.text.split()) in mine & other
        shares = [len(mine & theirs) / len(theirs) for theirs in held if theirs]
        assert collision.similarity == max(shares) == len(mine & other) / len(other)


def test_a_contaminated_dialogue_is_rejected_and_keeps_nobody_out() -> None:
    given = [
        talk("dirty", QUESTION, "Three."),
        talk("copy", QUESTION, "Three."),
        talk("clean", "Hello", "What can I do for you?"),
    ]
    config = SelectConfig.model_validate(
        {"where": {}, "decontaminate": {"path": "gsm8k_test.jsonl"}, "dedup": {}}
    )
    with Cleaner(config, lambda: given, [index(QUESTION)]) as cleaner:
        decisions = select(score_table(given), config, cleaner)
    assert [d.reasons for d in decisions] == [("contaminated",), ("contaminated",), ()]
    assert all(len(d.collisions) == 1 for d in decisions[:2])


def test_every_eval_set_is_named() -> None:
    given = [talk("dirty", QUESTION, "Three.")]
    sets = [index(QUESTION, name="one"), index("x " + QUESTION, name="two")]
    with Cleaner(SelectConfig(where={}), lambda: given, sets) as cleaner:
        assert [c.other for c in cleaner.contaminated[0]] == ["one:1", "two:1"]
