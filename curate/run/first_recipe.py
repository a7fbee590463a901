"""Write a first recipe for a source, from its first rows.

What the data says goes into it as it is (shape or mapping, whether dialogues have a role); guesses (role, scenario) are
marked as drafts, and what the data cannot say (the judge, if none was named) is left to be filled in. The file is `first_recipe.yaml`, a template.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from curate.dialogue import Dialogue, function_tool
from curate.engines.config import OpenAIConfig
from curate.errors import CurateError
from curate.executors.loop import run as run_in_loop
from curate.recipe import parse_recipe
from curate.run.ingest import SourceReport, sample_sources
from curate.run.plan import Plan, make_plan
from curate.sources import Mapping as RowMapping
from curate.sources import SourceConfig, open_source
from curate.sources.hub_datasets import is_hub_source
from curate.sources.proposal import flow, mapping_yaml
from curate.storage.yaml_text import parse_yaml
from curate.wording import plural

ROWS: Final = 2_000
"""First rows of a source that are looked at."""
_WORDS: Final = 8
_TOOLS: Final = 6
_WORD = re.compile(r"[^\W\d_]{4,}")
_PLAIN = frozenset({"system", "user", "assistant", "human", "model", "chatbot", "machine"})


_STAND_IN: Final[dict[str, Any]] = {
    "engine": "scripted",
    "replies": [],
    "capabilities": ["json_schema", "top_logprobs"],
}
"""A judge that is only there to be planned with, where none is named: with log-probabilities, as most servers are."""

_UNNAMED = re.compile(r"^# models:\n#   judge: .*\n(?:#   policy: .*\n)?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The first rows of a source, read.

    Attributes:
        config: of the source, with the mapping that was taken.
        report: shape, and what became of the rows.
        dialogues: that were read.
    """

    config: SourceConfig
    report: SourceReport
    dialogues: tuple[Dialogue, ...]

    @property
    def with_role(self) -> int:
        """Number of dialogues that have a role definition."""
        return sum(dialogue.role_definition is not None for dialogue in self.dialogues)

    @property
    def with_scenario(self) -> int:
        """Number of dialogues that have a scenario."""
        return sum(dialogue.scenario is not None for dialogue in self.dialogues)

    @property
    def has_preferences(self) -> bool:
        """Return whether the data says which of two answers is better."""
        return any("preference" in dialogue.labels for dialogue in self.dialogues)

    @property
    def mapping(self) -> RowMapping | None:
        """The mapping that reads the rows, if they have no known shape."""
        return self.config.mapping or self.report.source.detection.mapping

    @property
    def found(self) -> str:
        """Return how the rows are read, in a sentence."""
        tally, detection = self.report.tally, self.report.source.detection
        rows = "rows" if self.is_whole else "first rows"
        return (
            f"{tally.rows_used:,} of {tally.rows_in:,} {rows} are read as {detection.shape} "
            f"({plural(len(self.dialogues), 'dialogue')})."
        )

    @property
    def is_whole(self) -> bool:
        """Return whether all rows of the source were read."""
        return self.report.tally.rows_in < ROWS


@dataclass(frozen=True, slots=True)
class RecipeDraft:
    """Parts of a recipe that the data does not say, or leaves in doubt.

    Attributes:
        role: of dialogues that bring none.
        scenario: likewise.
        judge: as `models.judge` has it; None leaves it to be filled in.
        others: further models that its server has.
        doubts: what is to be looked at in the mapping.
    """

    role: str | None = None
    scenario: str | None = None
    judge: dict[str, Any] | None = None
    others: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def look_at(config: SourceConfig) -> FirstLook:
    """Read the first rows of a source.

    Raises:
        UnknownShapeError: no shape is certain; holds the proposal, if there is one.
        UsageError, SourceError: as `curate.sources.open_source`.
    """
    source = open_source(config.model_copy(update={"limit": min(config.limit or ROWS, ROWS)}))
    dialogues: list[Dialogue] = []
    [report] = sample_sources([source], dialogues.append, role=None, scenario=None)
    return FirstLook(config, report, tuple(dialogues))


def draft_role(look: FirstLook) -> str:
    """Return a draft of the role definition: the assistant's name and its tools, as far as the data has them."""
    who = _a(_speaker(look, "assistant") or "helpful, honest assistant")
    tools = dict.fromkeys(
        str(function_tool(tool)["function"].get("name"))
        for dialogue in look.dialogues
        for tool in dialogue.tools
    )
    names = ", ".join([*tools][:_TOOLS]) + (" and others" if len(tools) > _TOOLS else "")
    uses = f", uses its tools ({names}) where they help," if tools else ""
    return f"{who[0].upper()}{who[1:]} that answers what is asked{uses} and says so when it does not know."


def draft_scenario(look: FirstLook) -> str:
    """Return a draft of the scenario: who talks with whom, as far as the data says."""
    user = _a(_speaker(look, "user") or "person")
    assistant = _a(_speaker(look, "assistant") or "assistant")
    return f"{user[0].upper()}{user[1:]} talks with {assistant} and wants help with what they bring up."


def usual_words(dialogues: Sequence[Dialogue]) -> list[str]:
    """Return words that users write in several dialogues, the commonest first; those of most dialogues are left out."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts: Counter[str] = Counter()
    for dialogue in dialogues:
        texts = (m.content.lower() for m in dialogue.messages if m.role == "user")
        counts.update({word for text in texts for word in _WORD.findall(text)} - ENGLISH_STOP_WORDS)
    least, most = max(2, 0.02 * len(dialogues)), 0.4 * len(dialogues)
    return [word for word, n in counts.most_common() if least <= n <= most][:_WORDS]


def _speaker(look: FirstLook, role: str) -> str | None:
    """Return the data's name for a speaker, if it is one word that says more than the role."""
    mapping = look.mapping
    roles = mapping.roles if mapping is not None else look.config.columns.roles
    names = [name.lower() for name, known_role in roles.items() if known_role == role]
    is_telling = len(names) == 1 and _WORD.fullmatch(names[0]) and names[0] not in _PLAIN
    return names[0] if is_telling else None


def _a(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def recipe_text(
    look: FirstLook,
    draft: RecipeDraft,
    *,
    command: str,
    file: Path,
    modes: Mapping[str, str] | None = None,
    expected: str | None = None,
) -> str:
    """Return the text of a recipe; `parse_recipe` takes it.

    Args:
        look: at the source.
        draft: what the data does not say.
        command: that makes it.
        file: where it will stand.
        modes: of the stages, on the judge that was opened.
        expected: what a run would ask, in a sentence.
    """
    from jinja2 import Environment, StrictUndefined

    template = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    n, modes = len(look.dialogues), modes or {}
    judge = draft.judge
    text = template.from_string(
        (resources.files(__package__) / "first_recipe.yaml").read_text(encoding="utf-8")
    ).render(
        command=command,
        file=file,
        expected=expected,
        read=_one_line(look.found),
        doubts=[_one_line(doubt) for doubt in draft.doubts],
        source=_source_lines(look, file),
        words=", ".join(usual_words(look.dialogues)),
        scenario=flow(draft.scenario) if draft.scenario else None,
        scenario_said=_brought("scenario", look.with_scenario, n, draft.scenario),
        role=flow(draft.role) if draft.role else None,
        role_said=_brought("role", look.with_role, n, draft.role),
        judge=flow(judge) if judge else None,
        others=[_one_line(name) for name in draft.others],
        hosted=bool(judge) and OpenAIConfig.model_validate(judge).is_hosted,
        preferences=look.has_preferences,
        adherence=bool(draft.role or look.with_role),
        judge_mode=f" On this judge: {modes['judge']}." if "judge" in modes else "",
        adherence_mode=f" On this judge: {modes['adherence']}." if "adherence" in modes else "",
    )
    parse_recipe({"name": "first", **parse_yaml(text)})
    return text


@dataclass(frozen=True, slots=True)
class FirstRecipe:
    """A recipe that was written, and what its run would take.

    Attributes:
        plan: of its run on the first rows; with a stand-in for a judge that cannot be used or is not named.
        problem: why the judge cannot be used; None if it can, or is not named.
        modes: by stage, how the judge would be asked; empty without one that can be used.
        expected: the requests and tokens of a run, in a sentence.
    """

    plan: Plan
    problem: str | None
    modes: dict[str, str]
    expected: str


def write_recipe(look: FirstLook, draft: RecipeDraft, *, command: str, file: Path) -> FirstRecipe:
    """Plan the run of a first recipe, and write the recipe with its modes and what to expect of it.

    Args:
        look, draft, command, file: as for `recipe_text`.
    """
    plan, problem = _plan(recipe_text(look, draft, command=command, file=file), draft.judge)
    assert plan.estimate is not None  # the recipe asks a judge
    is_asked = draft.judge is not None and problem is None  # else a stand-in answers for it
    modes = {name: f"{x.mode}" for name, x in plan.identities.items()} if is_asked else {}
    total = plan.estimate.total
    assumed = "" if is_asked else ", with a judge that gives log-probabilities"
    expected = (
        f"Expected for {plural(plan.estimate.dialogues, 'dialogue')}: {plural(total.requests, 'request')}, "
        f"{plural(total.prompt_tokens, 'token')} in, {total.completion_tokens:,} out{assumed}."
    )
    text = recipe_text(look, draft, command=command, file=file, modes=modes, expected=expected)
    file.write_text(text, encoding="utf-8")
    return FirstRecipe(plan, problem, modes, expected)


def _plan(text: str, judge: dict[str, Any] | None) -> tuple[Plan, str | None]:
    """Return the plan of a recipe's run; with a stand-in if its judge cannot be opened, and why it cannot."""
    recipe = {"name": "first", **parse_yaml(text)}

    def plan_with(model: dict[str, Any]) -> Plan:
        loaded = parse_recipe(recipe | {"models": {"judge": model}})
        return run_in_loop(make_plan(loaded, limit=ROWS))

    if judge is None:
        return plan_with(_STAND_IN), None
    try:
        return plan_with(judge), None
    except CurateError as error:
        return plan_with(_STAND_IN), str(error)


def with_judge(text: str, judge: Mapping[str, Any]) -> str:
    """Return a recipe that leaves its judge open with this judge filled in."""
    return _UNNAMED.sub(lambda _: f"models:\n  judge: {flow(judge)}\n", text, count=1)


def _brought(part: str, number: int, whole: int, draft: str | None) -> str:
    if number == whole:
        return f"Every dialogue brings its {part}."
    some = (
        f"{number:,} of {plural(whole, 'dialogue')} bring theirs"
        if number
        else "The data names none"
    )
    rest = " for the others" if number else ""
    return some + (f"; a draft{rest}: change it." if draft else ".")


def _source_lines(look: FirstLook, file: Path) -> list[str]:
    settings = look.config.model_dump(mode="json", exclude_unset=True)
    if not is_hub_source(look.config):
        beside = Path.cwd() == file.resolve().parent
        paths = [path if beside else str(Path(path).resolve()) for path in look.config.paths]
        settings["path"] = paths[0] if len(paths) == 1 else paths
    settings.pop("mapping", None)
    lines = mapping_yaml(settings).splitlines()
    if look.mapping is not None:
        read_by = look.mapping.model_dump(mode="json", exclude_unset=True)
        lines += ["mapping:", *(f"  {line}" for line in mapping_yaml(read_by).splitlines())]
    return lines


def _one_line(text: str) -> str:
    """Return a text from the data as one line of a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
