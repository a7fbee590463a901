from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Lineage, Message
from curate.selection.cleaning import Cleaner
from curate.selection.config import DedupConfig, NearConfig, SelectConfig, SplitConfig
from curate.selection.minhash import Groups
from curate.selection.rules import select
from curate.selection.splits import assign_splits, conversation_keys, group_key, prompt_keys
from curate.selection.table import score_table
from tests.selection.test_dedup import jaccard, talk, varied


def sides(dialogues: list[Dialogue], config: SelectConfig) -> dict[str, str]:
    with Cleaner(config, lambda: dialogues) as cleaner:
        decisions = select(score_table(dialogues), config, cleaner)
    assert all(d.split is not None for d in decisions)
    return {d.dialogue_id: str(d.split) for d in decisions}


def config(**fields: object) -> SelectConfig:
    return SelectConfig(where={}, split=SplitConfig(**fields))  # type: ignore[arg-type]


def apart(dialogues: list[Dialogue]) -> list[Dialogue]:
    """Each from a row of its own."""
    return [
        d.model_copy(update={"lineage": Lineage(source="logs", file="a", rows=(n,))})
        for n, d in enumerate(dialogues, start=1)
    ]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    groups=st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=40, max_size=40),
    fraction=st.sampled_from([0.05, 0.3, 0.5]),
)
def test_the_sides_share_no_group_row_or_near_duplicate(
    seed: int, groups: list[str | None], fraction: float
) -> None:
    given = [
        d.model_copy(update={"group": group})
        for d, group in zip(apart(varied(seed, 40)), groups, strict=True)
    ]
    side = sides(given, config(validation=fraction, threshold=0.7))
    for one, other in combinations(given, 2):
        if one.group is not None and one.group == other.group:
            assert side[one.id] == side[other.id]
        # 0.75: of the pairs that far above the threshold MinHash misses next to none
        if jaccard(one, other) >= 0.75:
            assert side[one.id] == side[other.id]
    held = sum(value == "validation" for value in side.values())
    assert held <= max(1, round(fraction * 40))


def test_chains_of_different_ties_hold_together() -> None:
    text = "the very same words in a fairly long message about shoes"
    given = [
        talk("a", "one", "x", group="g", lineage=Lineage(source="s", file="f", rows=(1,))),
        talk("b", text, text + " y", group="g", lineage=Lineage(source="s", file="f", rows=(2,))),
        talk("c", text, text, group="h", lineage=Lineage(source="s", file="f", rows=(3, 4))),
        talk("d", "four", "z", group=None, lineage=Lineage(source="s", file="f", rows=(4,))),
        *apart([talk(f"e{n}", f"other{n}", f"thing{n}") for n in range(20)]),
    ]
    given[4:] = [
        d.model_copy(update={"lineage": Lineage(source="t", file="f", rows=(n,))})
        for n, d in enumerate(given[4:])
    ]
    for seed in range(6):
        side = sides(given, config(validation=0.5, seed=seed))
        assert len({side[name] for name in "abcd"}) == 1
        assert sum(value == "validation" for value in side.values()) == 12


def test_the_same_prompt_stays_on_one_side_and_so_do_equal_short_dialogues() -> None:
    prompt = "Write a long poem about the sea and its many ships"
    given = [talk(f"p{n}", prompt, f"answer {n} " * 20) for n in range(4)]
    given += [talk(f"s{n}", "hi", "hello") for n in range(4)]
    given += [talk(f"o{n}", f"o{n}", f"x{n}") for n in range(12)]
    for seed in range(5):
        side = sides(apart(given), config(validation=0.4, seed=seed))
        assert len({side[f"p{n}"] for n in range(4)}) == len({side[f"s{n}"] for n in range(4)}) == 1


ANSWER = "Our shop opens at nine and closes at six on every day but Sunday"


def test_a_conversation_logged_once_for_each_of_its_turns_stays_on_one_side() -> None:
    """The whole texts are far from each other, and the first message is too short to be compared."""
    turns = [
        "hi",
        "hello",
        "when do you open on Monday and on the other days",
        ANSWER,
        "and on holidays?",
    ]
    tail = [" ".join(f"{name}{n}" for n in range(60)) for name in ("x", "y", "z")]
    given = [
        talk("one", *turns[:3], tail[0]),
        talk("two", *turns[:4], turns[4], tail[1]),
        talk("three", *(text.upper() + " " for text in turns[:3]), tail[2]),
        *(talk(f"o{n}", "hi", "hello", f"other{n} thing{n}", f"reply{n}") for n in range(20)),
    ]
    assert all(jaccard(one, other) < 0.5 for one, other in combinations(given[:3], 2))
    apart_somewhere = False
    for seed in range(8):
        side = sides(apart(given), config(validation=0.5, seed=seed))
        assert len({side["one"], side["two"], side["three"]}) == 1
        # "hi" opens all of them and ties nobody
        assert sum(value == "validation" for value in side.values()) > 5
        loose = config(validation=0.5, seed=seed, by=("group", "conversation", "near_duplicates"))
        found = sides(apart(given), loose)
        apart_somewhere |= len({found["one"], found["two"], found["three"]}) > 1
    assert apart_somewhere


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), fraction=st.sampled_from([0.1, 0.5]))
def test_no_prompt_is_on_both_sides(seed: int, fraction: float) -> None:
    """Every beginning of a dialogue may become the prompt of a pair."""
    draw = random.Random(seed)
    words = [f"word{n}" for n in range(12)]
    asks = [" ".join(draw.choices(words, k=draw.choice((1, 4, 9)))) for _ in range(6)]
    given = [
        talk(f"d{n}", *(draw.choice(asks) for _ in range(draw.choice((2, 4, 6)))))
        for n in range(40)
    ]
    side = sides(apart(given), config(validation=fraction, by=("prompt",)))
    seen: dict[tuple[str, ...], set[str]] = {}
    for one in given:
        for stop in range(1, len(one.messages), 2):
            texts = tuple(message.content for message in one.messages[:stop])
            if sum(len(text.split()) for text in texts[::2]) >= 8:
                seen.setdefault(texts, set()).add(side[one.id])
    assert all(len(on) == 1 for on in seen.values())


def test_ties_that_are_not_asked_for_do_not_hold() -> None:
    given = [talk(f"d{n}", "same words", "for all", group="g") for n in range(20)]
    alone = {"validation": 0.5, "by": ("conversation",)}
    assert set(sides(apart(given), config(**alone)).values()) == {"train", "validation"}
    assert set(sides(apart(given), config(validation=0.5)).values()) == {"train"}
    assert set(sides(given, config(**alone)).values()) == {"train"}


def test_the_order_of_the_rows_does_not_matter_and_the_seed_does() -> None:
    given = apart(varied(3, 60))
    before = sides(given, config(validation=0.3))
    assert sides(given[::-1], config(validation=0.3)) == before
    assert sides(given, config(validation=0.3, seed=1)) != before


def test_a_removed_duplicate_is_on_the_side_of_the_one_that_is_kept() -> None:
    given = apart(varied(5, 80))
    asked = SelectConfig(
        where={},
        dedup=DedupConfig(near=NearConfig(threshold=0.7)),
        split=SplitConfig(validation=0.4),
    )
    with Cleaner(asked, lambda: given) as cleaner:
        decisions = select(score_table(given), asked, cleaner)
    side = {d.dialogue_id: d.split for d in decisions}
    collisions = [(d.dialogue_id, c.other) for d in decisions for c in d.collisions]
    assert len(collisions) > 10
    assert all(side[one] == side[other] for one, other in collisions)


def test_selected_and_rejected_are_dealt_apart() -> None:
    groups = Groups(200)
    names = [f"{n:03}" for n in range(200)]
    selected = [n < 40 for n in range(200)]
    found = assign_splits(groups, names, selected, 0.1, seed=0)
    assert [found[:40].count("validation"), found[40:].count("validation")] == [4, 16]


@pytest.mark.parametrize("selected", [True, False])
@pytest.mark.parametrize(("rows", "held"), [(0, 0), (1, 0), (2, 1), (5, 1)])
def test_small_sets_keep_something_to_train_on(rows: int, held: int, selected: bool) -> None:
    names = [str(n) for n in range(rows)]
    found = assign_splits(Groups(rows), names, [selected] * rows, 0.05, seed=0)
    assert found.count("validation") == held


def test_union_find_is_transitive() -> None:
    groups = Groups(6)
    for one, other in [(4, 5), (0, 2), (2, 5)]:
        groups.unite(one, other)
    assert list(groups.roots()) == [0, 1, 0, 3, 0, 0]


def test_a_seed_deals_the_same_dialogues_in_every_release() -> None:
    """Whoever trains on one release and validates with another must not meet what was trained on."""
    given = apart([talk(f"d{n}", f"question {n}", f"answer {n}") for n in range(20)])
    side = sides(given, config(validation=0.2, by=("group",), seed=7))
    held_out = {name for name, where in side.items() if where == "validation"}
    assert held_out == {"d1", "d4", "d10", "d18"}


def test_a_group_is_of_its_source_and_a_row_of_its_file() -> None:
    def held(source: str, file: str, row: int, group: str) -> tuple[object, object]:
        lineage = Lineage(source=source, file=file, rows=(row, 9))
        made = talk("a", "Hi").model_copy(update={"lineage": lineage, "group": group})
        return group_key(made), conversation_keys(made)

    group, rows = held("logs", "a", 1, "g")
    assert held("logs", "b", 2, "g")[0] == group
    assert group not in {held("other", "a", 1, "g")[0], held("logs", "a", 1, "h")[0]}
    assert held("logs", "a", 1, "h")[1] == rows
    others = (("other", "a", 1), ("logs", "b", 1), ("logs", "a", 2))
    assert len({rows, *(held(*other, "g")[1] for other in others)}) == 4
    bare = talk("a", "Hi").model_copy(update={"lineage": None})
    assert (group_key(bare), conversation_keys(bare)) == (None, ())
    assert group_key(bare.model_copy(update={"group": "g"})) not in (None, group)


def test_names_that_are_no_utf_8_tie_and_split_like_others() -> None:
    """A file's name may hold bytes that are no text."""
    odd, other = (
        d.model_copy(update={"group": group, "lineage": Lineage(source=name, file=name, rows=(1,))})
        for d, group, name in zip(
            varied(0, 2), ("\udcff", "\udcfe"), ("a\udcff", "a\udcfe"), strict=True
        )
    )
    assert conversation_keys(odd) != conversation_keys(other)
    assert group_key(odd) not in (None, group_key(other))
    again = odd.model_copy(update={"id": "again"})
    assert (conversation_keys(again), group_key(again)) == (conversation_keys(odd), group_key(odd))


def test_only_what_the_user_says_makes_a_beginning_long_enough_to_tell_dialogues_by() -> None:
    long = "these are many words that no other dialogue has in common with this one at all"
    short = [Message(role="user", content="hi"), Message(role="assistant", content=long)] * 3
    assert prompt_keys(Dialogue(id="a", messages=tuple(short))) == ()
    asked = [Message(role="user", content=long), Message(role="assistant", content="ok")]
    hidden = Message(role="system", content="hidden")
    keys = prompt_keys(Dialogue(id="b", messages=(*asked, *asked)))
    assert len(keys) == 2
    assert prompt_keys(Dialogue(id="c", messages=(hidden, *asked))) == keys[:1]
