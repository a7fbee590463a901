"""A first recipe is made from a look at real files; each stands whole in `tests/run/first_recipes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.recipe import Recipe, load_recipe
from curate.run import first_recipe
from curate.run.first_recipe import (
    FirstLook,
    FirstRecipe,
    RecipeDraft,
    draft_role,
    draft_scenario,
    look_at,
    recipe_text,
    usual_words,
    with_judge,
    write_recipe,
)
from curate.sources import SourceConfig
from curate.sources.proposal import UnknownShapeError
from tests.live import live_server
from tests.run.test_pipeline import chat, write_rows
from tests.transcript import check

FOLDER = Path(__file__).parent / "first_recipes"
HOSTED = {
    "engine": "openai",
    "model": "large",
    "base_url": "https://models.example/v1",
    "api_key_env": "NO_SUCH_KEY",
}
TOPICS = ("refund", "parcel", "refund", "invoice", "parcel")
PAIR = {"prompt": "Why is it late?", "chosen": "It snows.", "rejected": "No."}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test's files lie in the working directory, as a user's do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    return tmp_path


def look(rows: list[Any], **settings: Any) -> FirstLook:
    write_rows(Path("chats.jsonl"), rows)
    return look_at(SourceConfig.model_validate({"path": "chats.jsonl", **settings}))


def about_topics() -> list[dict[str, Any]]:
    return [chat(n, text=f"a {topic}") for n, topic in enumerate(TOPICS)]


def support(*, tools: int = 0) -> FirstLook:
    """Rows of no known shape, whose speakers' names say who they are; the proposed mapping is accepted."""
    offered = [{"name": f"tool_{n}"} for n in range(tools)]
    said = ["My parcel is late.", "I am sorry.", "Where is it?", "In Rome."]
    turns = [
        {"speaker": name, "text": text}
        for name, text in zip(["client", "operator"] * 2, said, strict=True)
    ]
    rows = [{"key": n, "talk": turns, **({"tools": offered} if tools else {})} for n in range(2)]
    with pytest.raises(UnknownShapeError) as unknown:
        look(rows)
    assert unknown.value.proposal is not None
    return look(rows, mapping=unknown.value.proposal.settings)


def written(look: FirstLook, draft: RecipeDraft) -> tuple[FirstRecipe, str, Recipe]:
    """Return what writing says, the recipe's text, and the recipe, which a run takes as it is."""
    file = Path("first.yaml")
    result = write_recipe(look, draft, command="curate init chats.jsonl", file=file)
    return result, file.read_text(encoding="utf-8"), load_recipe(file)


def test_without_a_judge_it_is_left_open_and_the_calls_of_a_stand_in_are_expected() -> None:
    seen = look([*about_topics(), "not a row"])
    result, text, recipe = written(seen, RecipeDraft(draft_role(seen), draft_scenario(seen)))
    check(text, FOLDER / "no_judge.yaml")
    assert (result.problem, result.modes) == (None, {})
    assert f"# {result.expected}\n" in text
    assert recipe.role == (
        "A helpful, honest assistant that answers what is asked and says so when it does not know."
    )
    assert recipe.scenario == (
        "A person talks with an assistant and wants help with what they bring up."
    )
    plan = result.plan.as_dict()
    assert (plan["sources"][0]["dialogues"], plan["estimate"]["dialogues"]) == (5, 5)
    assert plan["warnings"] == []


def test_a_judge_that_answers_is_named_with_its_modes_and_its_neighbours() -> None:
    rows = about_topics()
    rows[0] |= {"role_definition": "A clerk.", "scenario": "A shop."}
    with live_server() as server:
        judge = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        draft = RecipeDraft("A clerk: honest # and kind.", "A [shop].", judge, ("other", "od\nd"))
        result, text, recipe = written(look(rows), draft)
        text = text.replace(server.base_url, "SERVER")
    check(text, FOLDER / "judge.yaml")
    assert (result.problem, result.modes) == (None, {"judge": "tokens", "adherence": "continuous"})
    assert (recipe.role, recipe.scenario) == ("A clerk: honest # and kind.", "A [shop].")


def test_a_judge_that_cannot_be_used_is_named_and_no_mode_is_promised_of_it() -> None:
    result, text, recipe = written(look(about_topics()), RecipeDraft("A clerk.", judge=HOSTED))
    check(text, FOLDER / "judge_without_key.yaml")
    assert result.problem is not None
    assert "NO_SUCH_KEY is not set" in result.problem
    assert result.modes == {}
    assert result.expected.endswith(" out, with a judge that gives log-probabilities.")
    assert recipe.models.lead is not None
    assert result.plan.identities["judge"].engine == "scripted"


def test_of_pairs_both_sides_are_verified_and_no_policy_is_named() -> None:
    _, text, recipe = written(look([PAIR]), RecipeDraft(judge=HOSTED, scenario="A shop."))
    check(text, FOLDER / "hosted_pairs.yaml")
    assert recipe.natural.verification is not None
    check(written(look([PAIR]), RecipeDraft())[1], FOLDER / "pairs.yaml")


def test_what_every_dialogue_brings_is_not_drafted_and_a_mapping_is_written_with_its_doubts() -> (
    None
):
    draft = RecipeDraft(doubts=("'operator' is\ta\u2028guess", "look"))
    check(written(support(), draft)[1], FOLDER / "mapping.yaml")
    rows = [chat(n) | {"role_definition": "A clerk.", "scenario": "A shop."} for n in range(3)]
    check(written(look(rows), RecipeDraft())[1], FOLDER / "all_brought.yaml")


def test_the_names_of_the_speakers_and_tools_are_drafted() -> None:
    assert draft_scenario(support()) == (
        "A person talks with an operator and wants help with what they bring up."
    )
    assert draft_role(support()) == (
        "An operator that answers what is asked and says so when it does not know."
    )
    for tools, names in [
        (2, "tool_0, tool_1"),
        (6, "tool_0, tool_1, tool_2, tool_3, tool_4, tool_5"),
        (7, "tool_0, tool_1, tool_2, tool_3, tool_4, tool_5 and others"),
    ]:
        offered = [{"type": "function", "function": {"name": f"tool_{n}"}} for n in range(tools)]
        assert draft_role(look([chat(n) | {"tools": offered} for n in range(2)])) == (
            "A helpful, honest assistant that answers what is asked, uses its tools "
            f"({names}) where they help, and says so when it does not know."
        )


@pytest.mark.parametrize(
    ("roles", "scenario"),
    [
        ({"client": "user", "Nurse": "assistant"}, "A client talks with a nurse"),
        ({"client": "user", "buyer": "user", "nurse": "assistant"}, "A person talks with a nurse"),
        ({"human": "user", "chatbot": "assistant"}, "A person talks with an assistant"),
        ({"Ann": "user", "call taker": "assistant"}, "A person talks with an assistant"),
        ({"p4": "user", "x": "assistant"}, "A person talks with an assistant"),
    ],
)
def test_only_a_name_that_says_more_than_the_role_is_drafted(
    roles: dict[str, str], scenario: str
) -> None:
    names = [next(iter(roles)), [*roles][-1]]
    rows = [
        {"talk": n, "speaker": name, "text": text}
        for n in range(2)
        for name, text in zip(names, ["Hello?", "Yes."], strict=True)
    ]
    columns = {"conversation": "talk", "role": "speaker", "text": "text", "roles": roles}
    table = look(rows, shape="turns_table", columns=columns)
    said = {"each": "talk[*]", "messages": [{"role_from": "speaker", "text": "text"}]}
    mapped = look([{"talk": rows[:2]}] * 2, mapping=said | {"roles": roles})
    for seen in (table, mapped):
        assert draft_scenario(seen) == f"{scenario} and wants help with what they bring up."


def test_the_usual_words_are_users_own_in_several_dialogues_but_not_in_most() -> None:
    assert usual_words(look(about_topics()).dialogues) == ["refund", "parcel"]
    said = (
        "loan cat coin",
        "loan cat coin",
        "coin",
        "Rent",
        "rent",
    )  # three letters; in three of five
    seen = look([chat(n, text=words) for n, words in enumerate(said)])
    assert usual_words(seen.dialogues) == ["loan", "rent"]
    many = [
        chat(
            n, text=" ".join(f"word{chr(97 + k)}" for k in range(12) if n % 12 in (k, (k + 1) % 12))
        )
        for n in range(24)
    ]
    assert len(usual_words(look(many).dialogues)) == 8
    assert usual_words([]) == []


def test_no_more_rows_are_looked_at_than_a_first_look_or_the_limit_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_recipe, "ROWS", 3)
    first = look(about_topics())
    assert not first.is_whole
    assert first.found == "3 of 3 first rows are read as messages (3 dialogues)."
    limited = look(about_topics(), limit=2)
    assert limited.is_whole
    assert limited.found == "2 of 2 rows are read as messages (2 dialogues)."
    assert len(look(about_topics(), limit=4).dialogues) == 3


def test_a_recipe_elsewhere_names_its_files_in_full(here: Path) -> None:
    seen = look(about_topics())
    write_rows(Path("more.jsonl"), about_topics())
    two = look_at(SourceConfig.model_validate({"path": ["chats.jsonl", "more.jsonl"]}))
    Path("below").mkdir()

    def source(seen: FirstLook, file: str) -> Any:
        text = recipe_text(seen, RecipeDraft(), command="curate init", file=Path(file))
        return text.split("source:\n")[1].split("  # license")[0]

    assert source(seen, "first.yaml") == "  path: chats.jsonl\n"
    assert source(seen, "below/first.yaml") == f"  path: {here}/chats.jsonl\n"
    assert source(two, "below/first.yaml") == (f"  path: [{here}/chats.jsonl, {here}/more.jsonl]\n")


def test_an_open_judge_is_filled_in_once_and_a_named_one_is_kept() -> None:
    open_text = recipe_text(
        look(about_topics()), RecipeDraft(), command="curate init", file=Path("first.yaml")
    )
    filled = with_judge(open_text, HOSTED)
    named = (
        "models:\n  judge: {engine: openai, model: large, base_url: 'https://models.example/v1',"
        " api_key_env: NO_SUCH_KEY}\n"
    )
    before, rest = open_text.split("# models:\n")
    assert filled == before + named + rest.split("\n", 2)[2]
    assert with_judge(filled, {"engine": "other"}) == filled
