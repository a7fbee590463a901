"""Every command that README and the docs show is run as it stands, page by page and in order, as a reader would.

A page finds on its desk what it assumes (`DESKS`), the reader does by hand what it asks of people, and each command ends
with 0, or with the code that the page promises (`PROMISED`). What cannot be run here is named, with the reason.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from curate.cli import main
from curate.engines import local_servers
from curate.run.labels.populations import read_drawn, read_draws
from tests.docs.blocks import FENCE, PAGES, ROOT, commands, name_of
from tests.docs.desk import DIALOGUES, Judge, chat, fill_in, is_bad, number_of, review, write_lines
from tests.hub_server import HubServer
from tests.live import live_server
from tests.processes import curate as curate_process
from tests.publishing.conftest import hub as hub  # fixtures
from tests.publishing.conftest import outside as outside
from tests.run.test_sample_files import answered
from tests.servers import CountingServer
from tests.trainer_check.asking import PLAIN, tokenizer_folder

_RAY = "a Ray cluster takes half a minute to start: tests/executors/test_ray.py runs these"
_DATA = "published data that is not part of the repository"
NOT_RUN = {
    "make ": "installs: .ci/run runs each, and tests/run/test_demo.py what `make demo` does",
    "pip install ": "installs from an index: .ci/package, .ci/trainers and .ci/vllm do",
    "vllm serve ": "a server on GPUs",
    "docs/howto/vllm.md": "a model on GPUs: .ci/vllm runs the engine on the CPU",
    "ray start ": _RAY,
    "curate run recipe.yaml --address auto": _RAY,
    "curate run recipe.yaml --executor ray": _RAY,
    "docs/howto/ray.md": _RAY,
    "curate run recipe.yaml --out s3://": "an object store: tests/storage/test_remote.py writes to another",
    "curate check runs/my-recipe/export/axolotl ": "axolotl in an environment of its own: .ci/trainers",
    "docs/benchmark.md": "encoders and NLI models from the Hub, and published data: tests/benchmark runs the command without",
    "curate benchmark labelled.jsonl ": "encoders from the Hub: tests/benchmark runs the command without",
    "cd benchmarks": _DATA,
    "python ": "hours of a model, or "
    + _DATA
    + ": tests/benchmarks has what can be tested without",
    "curate sample runs/conture ": _DATA,
    "curate certify runs/conture ": _DATA,
    "curate agreement runs/conture ": _DATA,
}
"""How a command begins that is not run here, or a page of which none is, and why."""

SHORTENED = {
    "curate probe ": "--limit 13",  # a whole card takes ten thousand questions
}
"""What is added to a command that asks for more than a test should."""

PROMISED = {
    ("docs/tutorial.md", "curate certify runs/demo "): 1,
    ("docs/checking.md", "curate check pairs.jsonl "): 1,
    ("docs/trust.md", "curate certify runs/my-recipe --dimension coherence "): 1,
}
"""Exit codes other than 0: a certificate that the labels do not give, a file that is not clean."""


def not_run(page: Path, line: str) -> str | None:
    """The entry of `NOT_RUN` that a page's line is one of."""
    return next((key for key in NOT_RUN if key == name_of(page) or line.startswith(key)), None)


@pytest.fixture(scope="session")
def judge() -> Iterator[CountingServer]:
    with live_server(answer=Judge(), models=("my-judge", "small-judge", "large-judge")) as server:
        yield server


@pytest.fixture
def port(judge: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is the one server that answers on a usual port."""
    monkeypatch.setattr(local_servers, "PORTS", {judge.port: "vLLM"})


Call = Callable[..., None]


@pytest.fixture
def call(
    tmp_path: Path,
    judge: CountingServer,
    port: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    """Runs a line in this process, in the reader's folder, and holds its exit code against the one expected."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(line: str, expected: int = 0) -> None:
        monkeypatch.setattr(sys, "argv", words(line, judge))
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == expected, f"{line}\n{said.out}\n{said.err}"

    return run


def words(line: str, judge: CountingServer) -> list[str]:
    """The words of a command; the judge's address is the one it has here."""
    line = line.replace("http://localhost:8000/v1", judge.base_url)
    added = (more for start, more in SHORTENED.items() if line.startswith(start))
    return [*shlex.split(line, comments=True), *" ".join(added).split()]


class Desk:
    """The folder in which a page's commands are run.

    Args:
        folder: where.
        call: runs a command there.
        url: the judge's address.
    """

    def __init__(self, folder: Path, call: Call, url: str) -> None:
        self.folder, self.call, self.url = folder, call, url
        write_lines(folder / "chats.jsonl", [chat(n) for n in range(DIALOGUES)])

    def recipe(self, name: str = "my-recipe", extra: str = "", *, policy: bool = False) -> Path:
        """A recipe for the chats as `curate init` writes it, with more sections, or with a policy."""
        path = self.folder / f"{name}.yaml"
        self.call(f"curate init chats.jsonl --yes --out {path.name}")
        text = path.read_text(encoding="utf-8")
        model = f"{{engine: openai, model: my-judge, base_url: '{self.url}'}}"
        if policy:
            text = re.sub(r"^  # policy: .*$", f"  policy: {model}", text, flags=re.MULTILINE)
        path.write_text(text + extra, encoding="utf-8")
        return path

    def run(self, name: str = "my-recipe", recipe: str = "", limit: int | None = None) -> Path:
        """A finished run of a recipe."""
        rows = "" if limit is None else f" --limit {limit}"
        self.call(f"curate run {recipe or name}.yaml --out runs/{name} --quiet{rows}")
        return self.folder / "runs" / name

    def cascade(self, name: str) -> Path:
        """A recipe whose judges are a small and a large one."""
        path = self.recipe(name)
        models = [
            f"{{engine: openai, model: {m}, base_url: '{self.url}'}}"
            for m in ("small-judge", "large-judge")
        ]
        text = re.sub(
            r"^  judge: .*$",
            f"  judge: {{cascade: [{', '.join(models)}]}}",
            path.read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        path.write_text(text.replace("adherence: {", "# adherence: {"), encoding="utf-8")
        return path

    def labels(self, dimension: str) -> None:
        """People's labels of all chats, in gold.csv."""
        rows = (f"chat-{n},{dimension},{2 if is_bad(n) else 5}\n" for n in range(DIALOGUES))
        (self.folder / "gold.csv").write_text("id,dimension,value\n" + "".join(rows))


def recipe(desk: Desk) -> None:
    desk.recipe()


def finished(desk: Desk) -> None:
    """A recipe and its run, and a tokenizer."""
    desk.recipe()
    desk.run()
    tokenizer_folder(desk.folder / "my-model", PLAIN)


def readme(desk: Desk) -> None:
    """An older run, one with two judges, and a tokenizer: all else is made by the commands."""
    desk.recipe("old")
    desk.run("old", limit=12)
    desk.cascade("two-judges")
    desk.run("two-judges", limit=24)
    tokenizer_folder(desk.folder / "my-model", PLAIN)


def labelled(desk: Desk) -> None:
    desk.recipe("labelled")


def pairs(desk: Desk) -> None:
    """Pairs of which one teaches nothing, and SmolLM2's place in the folder."""
    side = [{"role": "assistant", "content": "At nine."}]
    row = {"prompt": [{"role": "user", "content": "When?"}], "chosen": side, "rejected": side}
    write_lines(desk.folder / "pairs.jsonl", [row])
    tokenizer_folder(desk.folder / "SmolLM2-135M-Instruct", PLAIN)


def own_metric(desk: Desk) -> None:
    """The recipe with the section that the page shows."""
    text = (ROOT / "docs/howto/metrics.md").read_text(encoding="utf-8")
    [block] = [block for _, language, block in FENCE.findall(text) if language == "yaml"]
    desk.recipe(extra=dedent(block))
    desk.labels("metric_confirmation")


def metrics(desk: Desk) -> None:
    desk.recipe("my")
    desk.recipe("labelled", "metrics: {choose: [instruction_compliance]}\n")
    desk.run("labelled")
    desk.labels("metric_instruction_compliance")


def judging(desk: Desk) -> None:
    """A run with labels, and a recipe with two judges."""
    desk.recipe("labelled")
    desk.run("labelled")
    desk.labels("coherence")
    desk.cascade("my-recipe")


def running(desk: Desk) -> None:
    """A recipe, and two runs to compare."""
    desk.recipe()
    desk.run("old", "my-recipe")
    desk.run("new", "my-recipe")


def trust(desk: Desk) -> None:
    """A run that people have labelled, a second one, good dialogues, and two recipes to compare."""
    finished(desk)
    (desk.folder / "my-recipe.yaml").unlink()
    desk.recipe(policy=True)
    desk.recipe("labelled")
    desk.run("labelled")
    for name in "ab":
        desk.recipe(name)
    write_lines(desk.folder / "good.jsonl", [chat(n) for n in range(DIALOGUES) if not is_bad(n)])


def sample(desk: Desk) -> None:
    """The project's own recipes, as a clone has them."""
    (desk.folder / "recipes").symlink_to(ROOT / "recipes")


DESKS: dict[str, Callable[[Desk], object]] = {
    "README.md": readme,
    "docs/adherence.md": labelled,
    "docs/checking.md": pairs,
    "docs/howto/judge-server.md": recipe,
    "docs/howto/labels.md": finished,
    "docs/howto/metrics.md": own_metric,
    "docs/howto/trainers.md": finished,
    "docs/judging.md": judging,
    "docs/metrics.md": metrics,
    "docs/report.md": finished,
    "docs/running.md": running,
    "docs/trust.md": trust,
    "docs/tutorial.md": sample,
}


def by_hand(line: str, folder: Path) -> None:
    """What people do after a command: they answer what was drawn for them, and review a page."""
    given = shlex.split(line, comments=True)
    run = folder / given[2] if len(given) > 2 else folder
    if given[1] == "report" and run.name == "my-recipe":
        write_lines(folder / f"review-{run.name}.jsonl", review(run))
    if given[1] == "sample" and "--tool" in given:
        answered(folder / "labels-label-studio", "label-studio", said_in_tool)
        (folder / "labels-label-studio.json").rename(folder / "export.json")
    elif given[1] == "sample":
        out = folder / (given[given.index("--out") + 1] if "--out" in given else "labels.csv")
        if out.suffix == ".csv":
            fill_in(out)
        else:
            draw = read_draws(run)[-1]
            drawn = set(read_drawn(run, draw).filter("drawn")["unit"])
            answers = (row | {"draw": draw.id} for row in review(run) if row["content"] in drawn)
            write_lines(folder / f"labels-{run.name}.jsonl", answers)


def said_in_tool(task: Any) -> dict[str, str]:
    bad = is_bad(number_of(task["data"]["dialogue_id"]))
    return {"accept": "reject" if bad else "accept"}


PUBLISHING = "docs/publishing.md"
SHOWN = [
    page
    for page in PAGES
    if name_of(page) != PUBLISHING and any(not_run(page, line) is None for line in commands(page))
]


def test_what_is_not_run_is_still_shown() -> None:
    used = {not_run(page, line) for page in PAGES for line in commands(page)}
    assert used - {None} == NOT_RUN.keys()
    assert {name for name, _ in PROMISED} | DESKS.keys() == {name_of(page) for page in SHOWN}


@pytest.mark.parametrize("page", SHOWN, ids=name_of)
def test_the_commands_of_a_page_run_in_order(
    page: Path, tmp_path: Path, call: Call, judge: CountingServer
) -> None:
    DESKS[name_of(page)](Desk(tmp_path, call, judge.base_url))
    for line in commands(page):
        if not_run(page, line) is None:
            call(line, promised(page, line))
            by_hand(line, tmp_path)


def test_the_commands_about_publishing_run_with_a_hub(
    tmp_path: Path, call: Call, judge: CountingServer, hub: HubServer, outside: dict[str, str]
) -> None:
    """In processes of their own: the Hub's address is read when one starts."""
    finished(Desk(tmp_path, call, judge.base_url))
    page = ROOT / PUBLISHING
    for line in commands(page):
        if not_run(page, line) is None:
            done = curate_process(*words(line, judge)[1:], env=outside, cwd=tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        for repo in hub.repos.values():  # the tag that the page names is set by hand
            repo.branches.setdefault("v1", repo.branches["main"])


def promised(page: Path, line: str) -> int:
    """The exit code that a page promises of a line."""
    return next(
        (
            code
            for (name, start), code in PROMISED.items()
            if name == name_of(page) and line.startswith(start)
        ),
        0,
    )
