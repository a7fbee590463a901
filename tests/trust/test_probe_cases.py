"""What a judge is probed with: one flaw in one message, twins that differ in nothing else, all of one length."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message
from curate.recipe import parse_recipe
from curate.run.sample_dialogues import sample_dialogues
from curate.sources.shipped_files import sample_chats, sample_rewordings
from curate.trust.harmless import changed_share, harmless_edit
from curate.trust.plants import LENGTH_SLACK
from curate.trust.probe_cases import (
    LONGEST,
    PROBE_KINDS,
    ProbeCase,
    cases_by_kind,
    first_turns,
    plant_cases,
)
from curate.trust.probe_variants import (
    ATTACKS,
    CROSSINGS,
    Variant,
    clean_variants,
    hidden_instructions,
)


@cache
def clean() -> tuple[Dialogue, ...]:
    recipe = parse_recipe({"name": "r", "source": {"path": str(sample_chats()[0])}})
    return tuple(first_turns(dialogue) for dialogue in sample_dialogues(recipe))


@cache
def cases(limit: int = 312, seed: int = 42) -> tuple[ProbeCase, ...]:
    replies, _ = sample_rewordings()
    return tuple(plant_cases(clean(), limit, rewordings=replies, seed=seed))


def said(message: Message) -> str:
    calls = " ".join(f"{call.name} {call.arguments}" for call in message.tool_calls)
    return f"{message.content} {calls}".strip()


def test_the_sample_alone_has_room_for_three_hundred_flaws_of_all_kinds() -> None:
    assert len(cases()) >= 300
    counts = cases_by_kind(cases())
    assert set(counts) == set(PROBE_KINDS)
    assert min(counts.values()) >= 15
    assert len({case.group for case in cases()}) >= 25
    assert len({case.planted.content_hash for case in cases()}) == len(cases())


def test_a_case_differs_from_its_twins_in_one_message_of_like_length() -> None:
    for case in cases():
        for other in filter(None, (case.planted, case.harmless)):
            pairs = list(zip(case.untouched.messages, other.messages, strict=True))
            assert [at for at, (one, two) in enumerate(pairs) if one != two] == [case.index]
            assert other.tools == case.untouched.tools
        length = len(said(case.untouched.messages[case.index]))
        for other in filter(None, (case.planted, case.harmless)):
            assert abs(len(said(other.messages[case.index])) - length) <= LENGTH_SLACK * length
        turn = next(turn for turn in case.planted.turns if turn.number == case.turn)
        assert turn.start <= case.index < turn.stop


def test_harmless_edits_change_about_as_much_as_flaws_do() -> None:
    """Whole replies are reworded where a flaw replaces the reply, single words where it changes one."""
    large, small = (
        [
            (case.changed(case.planted), case.changed(case.harmless))
            for case in cases()
            if case.harmless is not None and (case.changed(case.planted) > 0.5) == is_large
        ]
        for is_large in (True, False)
    )
    assert median(edit for _, edit in large) > 0.35
    assert median(edit for _, edit in small) < 0.2


def test_nearly_every_case_has_a_harmless_edit() -> None:
    assert sum(case.harmless is None for case in cases()) < 0.1 * len(cases())


def test_equal_arguments_give_equal_cases_and_a_smaller_limit_the_first_of_them() -> None:
    assert cases() == tuple(plant_cases(clean(), 312, rewordings=sample_rewordings()[0]))
    assert cases(60) == cases()[:60]
    assert cases(60, 7) != cases(60)
    assert max(Counter(case.kind for case in cases(60)).values()) <= 6


def test_a_flaw_lies_at_every_place_of_a_dialogue() -> None:
    places = Counter(
        (case.turn - 1) / (len(case.planted.turns) - 1)
        for case in cases()
        if len(case.planted.turns) > 1
    )
    first = sum(number for place, number in places.items() if place < 0.5)
    last = sum(number for place, number in places.items() if place > 0.5)
    assert first > 50
    assert last > 50


def test_each_kind_is_what_it_says() -> None:
    by_kind = {kind: [case for case in cases() if case.kind == kind] for kind in PROBE_KINDS}

    def texts(case: ProbeCase) -> tuple[str, str]:
        return tuple(  # type: ignore[return-value]
            held.messages[case.index].content for held in (case.untouched, case.planted)
        )

    for case in by_kind["forgotten_constraint"]:
        right, flawed = texts(case)
        name = right.split(":")[0]
        asked = next(m for m in case.untouched.messages if m.role == "user").content
        assert f"begin each of your answers with my name, {name}" in asked
        assert not flawed.startswith(name)
    for case in by_kind["ignored_correction"]:
        asked = case.untouched.messages[case.index - 1].content
        old, new = asked.split(" is ")[1].split(".")[0], asked.split("it is ")[1].split(".")[0]
        right, flawed = texts(case)
        assert new in right
        assert old not in right
        assert old in flawed
        assert new not in flawed
    for case in by_kind["wrong_tool"]:
        right, flawed = (
            held.messages[case.index].tool_calls[0] for held in (case.untouched, case.planted)
        )
        offered = {tool["function"]["name"] for tool in case.planted.tools}
        assert flawed.name in offered - {right.name}
        assert flawed.arguments == right.arguments
    for case in by_kind["wrong_argument"]:
        right, flawed = (
            held.messages[case.index].tool_calls[0] for held in (case.untouched, case.planted)
        )
        assert flawed.name == right.name
        assert flawed.arguments != right.arguments
    for case in by_kind["misread_result"]:
        assert any(m.role == "tool" for m in case.planted.messages[case.index - 2 : case.index])
    for case in by_kind["sycophantic_reversal"]:
        assert case.untouched.messages[case.index - 1].role == "user"


def test_variants_differ_where_they_say() -> None:
    _, translated = sample_rewordings()
    variants = clean_variants(clean(), 30, translated)
    lines = Counter(variant.line for variant in variants)
    assert set(lines) == {
        "verbosity",
        "formatting",
        "scenario_language",
        "other_scenario",
        "speaker_names",
    }
    assert min(lines.values()) >= 20
    for variant in variants:
        assert variant.first.content_hash != variant.second.content_hash
        roles = [[m.role for m in held.messages] for held in (variant.first, variant.second)]
        assert roles[0] == roles[1]
        if variant.line == "scenario_language":
            assert variant.second.scenario == translated[variant.first.scenario or ""]
    hidden = hidden_instructions(cases(), 30, crossings=7)
    counts = dict.fromkeys(ATTACKS, 30) | dict.fromkeys(CROSSINGS, 7)
    assert Counter(variant.line for variant in hidden) == counts
    for variant in hidden:
        first, second = (
            sum(len(m.content) + len(m.name or "") for m in held.messages)
            for held in (variant.first, variant.second)
        )
        # What is hidden takes about as much room as what stands there in its place.
        assert abs(first - second) <= 0.6 * max(map(len, ATTACKS.values()))
        if variant.line in CROSSINGS:
            place = variant.line.rpartition("_in_")[2]
            text = ATTACKS[variant.line]
            assert any(
                text == m.name if place == "name" else m.role == place and text in m.content
                for m in variant.second.messages
            )


@pytest.mark.parametrize("line", ["verbosity", "other_scenario", "speaker_names"])
def test_what_is_drawn_for_a_variant_follows_from_the_seed(line: str) -> None:
    def drawn(**seed: int) -> list[Variant]:
        return [one for one in clean_variants(clean(), 20, {}, **seed) if one.line == line]

    assert drawn() == drawn(seed=42) != drawn(seed=7)


def test_dialogues_are_cut_to_their_first_turns() -> None:
    assert max(len(dialogue.turns) for dialogue in clean()) == LONGEST


def test_no_case_is_no_number() -> None:
    with pytest.raises(ValueError, match="limit"):
        plant_cases(clean(), 0, rewordings={})


_TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=200)


@settings(max_examples=30, deadline=None)
@given(text=_TEXT, share=st.floats(0, 1), seed=st.integers(0, 9))
def test_a_harmless_edit_is_another_text_of_like_length_or_none(
    text: str, share: float, seed: int
) -> None:
    edited = harmless_edit(text, share, {}, random.Random(seed))
    assert edited is None or (edited != text and abs(len(edited) - len(text)) <= 0.1 * len(text))


def test_no_rewording_of_the_sample_is_of_another_length_or_much_like_the_original() -> None:
    replies, translated = sample_rewordings()
    for text, other in replies.items():
        assert abs(len(other) - len(text)) <= LENGTH_SLACK * len(text), text
        assert changed_share(text, other) > 0.1, text
    assert {dialogue.scenario for dialogue in clean()} <= set(translated)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.builds(lambda asked, reply: (asked, reply), st.text(max_size=60), st.text(max_size=120)),
        min_size=1,
        max_size=4,
    )
)
def test_any_dialogue_gives_cases_or_none_and_never_breaks(turns: list[tuple[str, str]]) -> None:
    messages = [
        Message(role=role, content=text)  # type: ignore[arg-type]
        for asked, reply in turns
        for role, text in (("user", asked), ("assistant", reply))
    ]
    odd = Dialogue(id="odd", messages=tuple(messages), scenario="s", role_definition="r")
    for case in plant_cases([odd, *clean()[:2]], 26, rewordings={}):
        assert case.planted.content_hash != case.untouched.content_hash


def test_many_dialogues_are_all_used_before_one_is_used_again() -> None:
    many = [
        dialogue.model_copy(update={"scenario": f"{dialogue.scenario} ({number})"})
        for number in range(8)
        for dialogue in clean()
    ]
    drawn = plant_cases(many, 130, rewordings={})
    assert len({case.group for case in drawn}) > 0.75 * len(drawn)
