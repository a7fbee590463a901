from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message, ToolCall
from curate.errors import UsageError
from curate.selection import semantic_duplicates
from curate.selection.cleaning import Cleaner
from curate.selection.config import DedupConfig, EmbeddingConfig, NearConfig, SelectConfig
from curate.selection.dedup import (
    BATCH,
    Deduplication,
    Duplicate,
    batches,
    exact_key,
    view_text,
)
from curate.selection.minhash import banding
from curate.selection.rules import select
from curate.selection.semantic_duplicates import open_embedder, similar_pairs
from curate.selection.shingles import TokenBatch, _mixed, tokenise, worth
from curate.selection.table import score_table
from tests.selection.rows import dialogue


def talk(name: str, *texts: str, **fields: object) -> Dialogue:
    """A dialogue of the given messages, user first."""
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[i % 2], content=text) for i, text in enumerate(texts))  # type: ignore[arg-type]
    return dialogue(name, **({"messages": messages} | fields))


def jaccard(one: Dialogue, other: Dialogue, size: int = 3) -> float:
    """By sets of strings, without any hash."""

    def shingles(of: Dialogue) -> set[tuple[str, ...]]:
        tokens = tokenise(view_text(of, "dialogue"))
        runs = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
        return runs or ({tuple(tokens)} if tokens else set())

    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b) if a | b else 0.0


def varied(seed: int, count: int) -> list[Dialogue]:
    """Random dialogues, most of them made of an earlier one by changing a few words."""
    rng = random.Random(seed)
    made: list[list[str]] = []
    for _ in range(count):
        if made and rng.random() < 0.7:
            words = list(rng.choice(made))
            for _ in range(rng.randrange(6)):
                words[rng.randrange(len(words))] = f"w{rng.randrange(500)}"
        else:
            words = [f"w{rng.randrange(500)}" for _ in range(rng.randrange(4, 60))]
        made.append(words)
    return [talk(f"d{i}", " ".join(words[:3]), " ".join(words[3:])) for i, words in enumerate(made)]


def removed(
    dialogues: Sequence[Dialogue], config: DedupConfig, threshold: float | None = None
) -> dict[int, tuple[Duplicate, ...]]:
    with Deduplication(lambda: dialogues, config) as found:
        return found.at(threshold).removed


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.5, 0.7, 0.8, 0.95]))
def test_no_two_kept_are_near_and_each_removal_names_a_kept_one(
    seed: int, threshold: float
) -> None:
    given = varied(seed, 60)
    config = DedupConfig(exact=False, near=NearConfig(threshold=threshold))
    found = removed(given, config)
    kept = [row for row in range(len(given)) if row not in found]
    for row, collisions in found.items():
        [collision] = collisions
        assert collision.reason == "near_duplicate"
        assert collision.other in kept
        assert collision.similarity == jaccard(given[row], given[collision.other]) >= threshold
    near = [
        pair
        for pair in combinations(kept, 2)
        if jaccard(given[pair[0]], given[pair[1]]) >= threshold
    ]
    # MinHash may miss a pair just at the threshold, one in a hundred
    assert len(near) <= 1


def test_nearly_every_pair_at_the_threshold_is_found() -> None:
    config = DedupConfig(exact=False, near=NearConfig(threshold=0.7))
    rng = random.Random(1)
    pairs = 0
    missed = 0
    for _ in range(300):
        words = [f"w{rng.randrange(10_000)}" for _ in range(62)]
        other = list(words)
        for place in rng.sample(range(2, 60, 5), 4):
            other[place] = "changed" + str(place)
        two = [talk("a", "", " ".join(words)), talk("b", "", " ".join(other))]
        pairs += 0.65 <= jaccard(*two) < 0.75
        if jaccard(*two) >= 0.7:
            missed += not removed(two, config)
    assert pairs > 200
    assert missed <= 6


def test_bands_miss_at_most_one_in_a_hundred_at_the_threshold() -> None:
    for threshold in (0.3, 0.5, 0.7, 0.8, 0.9, 1.0):
        bands, rows = banding(threshold, 128)
        assert bands * rows <= 128
        assert 1 - (1 - threshold**rows) ** bands >= 0.99
    assert banding(0.8, 128) == (21, 6)


def test_a_chain_of_small_changes_keeps_its_far_end() -> None:
    words = [f"w{i}" for i in range(40)]
    steps = [words[2 * i :] + [f"new{i}-{j}" for j in range(2 * i)] for i in range(8)]
    given = [talk(f"d{i}", "hello", " ".join(step)) for i, step in enumerate(steps)]
    found = removed(given, DedupConfig(near=NearConfig(threshold=0.7)))
    assert 1 in found
    assert jaccard(given[0], given[7]) < 0.4
    assert 7 not in found or found[7][0].other != 0


def test_a_higher_threshold_is_decided_from_the_same_sketches() -> None:
    given = varied(7, 120)
    read = 0

    def dialogues() -> Iterable[Dialogue]:
        nonlocal read
        read += 1
        return given

    with Deduplication(dialogues, DedupConfig(near=NearConfig(threshold=0.6))) as found:
        before = read
        loose, strict = found.at(), found.at(0.9)
        assert read == before
        assert len(strict.kept) > len(loose.kept)
        fresh = removed(given, DedupConfig(near=NearConfig(threshold=0.9)))
        assert strict.removed == fresh
        with pytest.raises(ValueError, match=r"from 0\.6 upwards"):
            found.at(0.5)


def test_exact_means_the_same_messages_and_tools() -> None:
    call = Message(
        role="assistant", tool_calls=(ToolCall(name="find", arguments={"q": "a", "n": 1}),)
    )
    same = Message(
        role="assistant", tool_calls=(ToolCall(name="find", arguments={"n": 1, "q": "a"}),)
    )
    other = Message(
        role="assistant", tool_calls=(ToolCall(name="find", arguments={"n": 2, "q": "a"}),)
    )
    ask = Message(role="user", content="find a")
    assert exact_key(talk("a", "Caf\u00e9", "b")) == exact_key(talk("b", " Cafe\u0301 ", "b\n"))
    assert exact_key(talk("a", "Hi", "b")) != exact_key(talk("b", "hi", "b"))
    assert exact_key(dialogue("a", messages=(ask, call))) == exact_key(
        dialogue("b", messages=(ask, same))
    )
    assert exact_key(dialogue("a", messages=(ask, call))) != exact_key(
        dialogue("b", messages=(ask, other))
    )
    system = Message(role="system", content="Be brief.")
    assert exact_key(dialogue("a", messages=(ask,))) != exact_key(
        dialogue("b", messages=(system, ask))
    )
    found = removed([talk("a", "x", "y"), talk("b", "x", "y ")], DedupConfig(near=None))
    assert found == {1: (Duplicate("duplicate_exact", 0, 1.0),)}


def test_first_user_messages_are_compared_where_they_say_something() -> None:
    prompt = "Please write a poem about the sea in the style of a sailor"
    given = [
        talk("a", prompt, "The waves"),
        talk("b", prompt.upper() + "!", "A quite different answer of many other words"),
        talk("c", "hello", "How may I help you with your parcel today?"),
        talk("d", "Hello", "What is it you want to know about the weather?"),
    ]
    found = removed(given, DedupConfig(near=NearConfig(of=("first_user",))))
    assert found == {1: (Duplicate("near_duplicate_prompt", 0, 1.0),)}
    both = removed(given, DedupConfig(near=NearConfig(of=("first_user",), min_words=0)))
    assert set(both) == {1, 3}


def test_texts_are_read_without_case_punctuation_and_width() -> None:
    assert tokenise("Ｈello, WORLD—don't!") == ["hello", "world", "don", "t"]
    assert tokenise("हिन्दी में") == ["हिन्दी", "में"]
    assert tokenise("今日は晴れ") == ["今", "日", "は", "晴", "れ"]
    assert tokenise("🙂 ... ") == []


@pytest.mark.parametrize(
    ("text", "words"), [("a b c", 3), ("今天天气很好", 3), ("ひらがな", 1), ("สวัสดีครับ", 2), ("", 0)]
)
def test_scripts_without_spaces_count_by_the_length_of_their_words(text: str, words: int) -> None:
    assert worth(tokenise(text)) == words


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "今", "ひ", "ไ"]), max_size=12), max_size=6),
    st.integers(1, 4),
    st.booleans(),
)
def test_runs_are_equal_where_their_tokens_are(
    texts: list[list[str]], words: int, short: bool
) -> None:
    runs = TokenBatch(texts).runs(words, short=short)
    named: dict[tuple[str, ...], int] = {}
    for place, tokens in enumerate(texts):
        lo, hi = runs.offsets[place], runs.offsets[place + 1]
        spans = list(zip(runs.starts[lo:hi].tolist(), runs.stops[lo:hi].tolist(), strict=True))
        expected = []
        for start in range(len(tokens)):
            stops = [
                s
                for s in range(start, len(tokens) + 1)
                if 12 * words <= sum({"今": 6, "ひ": 4, "ไ": 3}.get(t, 12) for t in tokens[start:s])
            ]
            if stops:
                expected.append((start, stops[0]))
        if short and tokens and not expected:
            expected = [(0, len(tokens))]
        assert spans == expected
        for (start, stop), hashed in zip(spans, runs.of(place).tolist(), strict=True):
            assert named.setdefault(tuple(tokens[start:stop]), hashed) == hashed
    assert len(set(named.values())) == len(named)


def test_the_best_by_score_is_kept_whatever_the_order() -> None:
    text = "I would like to return the shoes that I bought last week"
    given = [
        talk(f"d{i}", text, "Of course, here is how." + " please" * (i % 2), reward=reward)
        for i, reward in enumerate([0.1, None, 0.9, 0.5])
    ]
    config = SelectConfig(
        where={}, dedup=DedupConfig(near=NearConfig(of=("first_user",)), keep="reward")
    )
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        shuffled = [given[i] for i in order]
        with Cleaner(config, lambda shuffled=shuffled: shuffled) as cleaner:
            decisions = select(score_table(shuffled), config, cleaner)
        kept = [d.dialogue_id for d in decisions if "sft" in d.sets]
        assert kept == ["d2"]
        assert {c.other for d in decisions for c in d.collisions} == {"d2"}


def test_what_fails_a_condition_removes_nobody() -> None:
    given = [
        talk("bad", "the same words", "in both", reward=0.4),
        talk("good", "the same words", "in both", reward=1.0),
    ]
    config = SelectConfig(where={"rewarded": "reward > 0.5"}, dedup=DedupConfig())
    with Cleaner(config, lambda: given) as cleaner:
        bad, good = select(score_table(given), config, cleaner)
    assert bad.reasons == ("rewarded",)
    assert good.sets[0] == "sft"
    assert good.collisions == bad.collisions == ()


def test_a_share_is_taken_of_what_is_left_of_duplicates() -> None:
    given = [talk(f"d{i}", "the same", "words", reward=1.0) for i in range(8)]
    given += [talk("other", "unlike", "all", reward=0.5), talk("more", "else", "again", reward=0.1)]
    config = SelectConfig(
        where={},
        dedup=DedupConfig(),
        top={"fraction": 0.5, "by": "reward"},  # type: ignore[arg-type]
    )
    with Cleaner(config, lambda: given) as cleaner:
        decisions = select(score_table(given), config, cleaner)
    assert [d.dialogue_id for d in decisions if "sft" in d.sets] == ["d0", "other"]
    assert decisions[-1].reasons == ("top",)


def test_embeddings_find_what_shares_no_words() -> None:
    given = [talk("a", "car"), talk("b", "boat"), talk("c", "automobile"), talk("d", "vehicle")]
    vectors = {
        "car": [3.0, 0.1],
        "automobile": [1.0, 0.0],
        "vehicle": [1.0, 0.06],
        "boat": [0.0, 1.0],
    }

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.array([vectors[text] for text in texts], dtype=np.float32)

    config = SelectConfig(
        where={},
        dedup=DedupConfig(near=None, embedding=EmbeddingConfig(model="m", threshold=0.99)),
    )
    with Cleaner(config, lambda: given, embed=embed) as cleaner:
        decisions = select(score_table(given), config, cleaner)
    assert [d.reasons for d in decisions] == [
        (),
        (),
        ("embedding_duplicate",),
        ("embedding_duplicate",),
    ]
    assert [c.other for d in decisions for c in d.collisions] == ["a", "a"]
    assert decisions[2].collisions[0].similarity == pytest.approx(0.99944, abs=1e-4)


def test_a_sentence_encoder_finds_what_says_the_same_in_other_words(minilm: str) -> None:
    said = (
        "How do I reset my password?",
        "I forgot my password, how can I reset it?",
        "Sell a boat.",
    )
    given = [talk(str(number), text) for number, text in enumerate(said)]
    embedding = EmbeddingConfig(model=minilm, threshold=0.85)
    config = SelectConfig(where={}, dedup=DedupConfig(near=None, embedding=embedding))
    with Cleaner(config, lambda: given, embed=open_embedder(embedding)) as cleaner:
        decisions = select(score_table(given), config, cleaner)
    assert [d.reasons for d in decisions] == [(), ("embedding_duplicate",), ()]
    assert decisions[1].collisions[0].other == "0"
    assert 0.85 < decisions[1].collisions[0].similarity < 0.99


def test_embeddings_without_their_package_name_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UsageError, match="'sentence-transformers' is needed") as caught:
        open_embedder(EmbeddingConfig(model="m"))
    assert "[scorers]" in str(caught.value.fix)


def directions(texts: Sequence[str]) -> np.ndarray:
    """Each text is an angle in degrees, or nothing."""
    angles = np.radians([float(text or 0) for text in texts])
    lengths = np.array([2.0 if text else 0.0 for text in texts])
    return (lengths * np.array([np.cos(angles), np.sin(angles)])).T.astype(np.float32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("block", [1, 2, 3, 2048])
def test_pairs_by_meaning_are_the_same_in_blocks_of_any_size(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic_duplicates, "_BLOCK", block)
    given = [talk(str(n), text) for n, text in enumerate(["0", "90", "5", "", "93", "", "7"])]
    config = EmbeddingConfig(model="m", threshold=0.99)  # less than 8.1 degrees apart
    found = similar_pairs(lambda: given, [6, 4, 2, 3, 0, 1, 5], config, directions, None)
    assert {row: [other for other, _ in near] for row, near in found.items()} == {
        2: [6],
        0: [6, 2],
        1: [4],
    }
    cosine = {(row, other): value for row, near in found.items() for other, value in near}
    assert cosine[1, 4] == pytest.approx(np.cos(np.radians(3)), abs=1e-6)
    assert all(value <= 1.0 for value in cosine.values())
    some = similar_pairs(lambda: given, [2, 0], config, directions, None)
    assert {row: [other for other, _ in near] for row, near in some.items()} == {0: [2]}
    assert similar_pairs(lambda: given, [], config, directions, None) == {}


def test_of_several_near_in_meaning_the_nearest_that_is_kept_is_named() -> None:
    given = [talk(name, angle) for name, angle in [("a", "0"), ("b", "6"), ("c", "8"), ("d", "13")]]
    embedding = EmbeddingConfig(model="m", threshold=0.99)
    config = SelectConfig(where={}, dedup=DedupConfig(near=None, embedding=embedding))
    with Cleaner(config, lambda: given, embed=directions) as cleaner:
        decisions = select(score_table(given), config, cleaner)
    # c is near b, which is removed, and not near enough to a only if 8 degrees are too many
    named = {d.dialogue_id: [c.other for c in d.collisions] for d in decisions}
    assert named == {"a": [], "b": ["a"], "c": ["a"], "d": []}


def test_what_a_cleaner_cannot_do_it_says() -> None:
    given = [talk("a", "x"), talk("b", "y")]
    embedding = EmbeddingConfig(model="m")
    config = SelectConfig(where={}, dedup=DedupConfig(near=None, embedding=embedding))
    with Cleaner(config, lambda: given) as cleaner:
        with pytest.raises(UsageError, match="scorers"):
            cleaner.duplicates(score_table(given), [0, 1])
        with pytest.raises(RuntimeError, match="2 dialogues were read for 1 row of the table"):
            cleaner.duplicates(score_table(given[:1]), [0])
        with pytest.raises(RuntimeError, match="2 dialogues"):
            cleaner.splits(score_table(given[:1]), [True])
    with Cleaner(SelectConfig(where={}), lambda: given) as cleaner:
        assert cleaner.duplicates(score_table(given), [0, 1]) == {}
        assert cleaner.splits(score_table(given), [True, True]) is None


def test_one_collision_a_measure_is_named_each_with_its_own_reason() -> None:
    prompt = "Please write a poem about the sea in the style of a sailor"
    other = "Tell me how to cook rice for six people in one small pot"
    reply = " ".join(f"word{n}" for n in range(90))
    given = [talk("a", prompt, "The waves"), talk("b", other, reply), talk("c", prompt, reply)]
    config = DedupConfig(near=NearConfig(of=("dialogue", "first_user"), threshold=0.7))
    [(row, collisions)] = removed(given, config).items()
    assert row == 2
    assert [(c.reason, c.other) for c in collisions] == [
        ("near_duplicate", 1),
        ("near_duplicate_prompt", 0),
    ]
    assert collisions[0].similarity == jaccard(given[2], given[1])


def test_exact_duplicates_may_stay_and_near_ones_too() -> None:
    given = [talk("a", "the same", "words here"), talk("b", "the same", "words here")]
    assert removed(given, DedupConfig(exact=False, near=None)) == {}
    near = removed(given, DedupConfig(exact=False))
    assert near == {1: (Duplicate("near_duplicate", 0, 1.0),)}
    with Deduplication(lambda: given, DedupConfig(near=None)) as found:
        assert found.at() == found.at(1.0)
        assert found.at().threshold == 1.0
        assert found.at().kept == (0,)
        with pytest.raises(ValueError, match=r"from 1\.0 upwards"):
            found.at(0.9)


def test_the_text_of_a_dialogue_is_all_but_its_system_messages() -> None:
    calls = (ToolCall(name="find", arguments={"q": "a"}), ToolCall(name="say", arguments="raw"))
    of = dialogue(
        "a",
        messages=(
            Message(role="system", content="hidden"),
            Message(role="assistant", content="Welcome"),
            Message(role="user", content="one"),
            Message(role="assistant", content="", tool_calls=calls),
            Message(role="user", content="two"),
        ),
    )
    assert view_text(of, "dialogue") == 'Welcome\none\nfind\n{"q":"a"}\nsay\nraw\ntwo'
    assert view_text(of, "first_user") == "one"
    assert view_text(dialogue("b", messages=()), "first_user") == ""


def test_among_no_dialogues_there_are_no_duplicates() -> None:
    near = NearConfig(of=("dialogue", "first_user"))
    with Deduplication(list, DedupConfig(near=near)) as found:
        assert (found.at().kept, found.at().removed) == ((), {})


def test_hashes_of_runs_are_mixed_as_splitmix64_does() -> None:
    """Its first two numbers from seed 0, by the authors' own program."""
    states = np.array([0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A], np.uint64)
    assert _mixed(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_embeddings_may_be_of_the_first_user_message_alone() -> None:
    given = [talk("a", "0", "far"), talk("b", "90", "far"), talk("c", "1", "near")]
    config = EmbeddingConfig(model="m", threshold=0.99, of="first_user")
    found = similar_pairs(lambda: given, [0, 1, 2], config, directions, None)
    assert {row: [other for other, _ in near] for row, near in found.items()} == {2: [0]}


def test_dialogues_are_held_a_batch_at_a_time() -> None:
    given = [talk("a", "x")] * (2 * BATCH + 3)
    assert [len(batch) for batch in batches(given)] == [BATCH, BATCH, 3]
