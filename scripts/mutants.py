"""Test the tests: change the code in small ways, one at a time, and see whether a test of its room fails.

    python scripts/mutants.py            # 400 mutants drawn with seed 1; results in .mutants/seed-1.jsonl
    python scripts/mutants.py --lines curate/judging/verdict.py:40-90    # all mutants of these lines
    python scripts/mutants.py --lines curate/judging/verdict.py:40-90 --tests tests/judging/test_verdict.py

mutmut makes the mutants, of what its own runner would change: functions and methods without decorators. Its
runner is not used: here pytest collects a room's tests once, and every mutant is a fork of that process in
which one function has another code object. So no import is repeated and no file is changed. One run under
coverage tells which tests reach a line; a mutant is given those, the quickest first, until one fails. Mutants
are tried in the order drawn, over all rooms, so those tried so far are a random sample whenever it is stopped.

A survivor is a change that no test notices: a missing test, or a change that makes no difference.

What a test module does when it is imported may start no threads (a polars expression starts some): a fork has none of
them, and its first expression would wait for ever.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import importlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import hypothesis
import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from curate.statistics import wilson

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("judging", "adherence", "selection", "pairs", "sources", "run")
SAMPLE = 400
LONGEST = 30.0  # CPU seconds of tests a mutant is given
# What these run is in other processes, where no mutant is, or one run after another for minutes.
LEFT_OUT = (
    "tests/run/test_damage.py",
    "tests/run/test_faults.py",
    "tests/run/test_kill.py",
    "tests/run/test_mutation.py",
    "tests/run/test_server_kill.py",
    "tests/run/test_surroundings.py",
)
KILLED, SURVIVED, UNREACHED = "killed", "survived", "no test reaches it"


# --------------------------------------------------------------------------------------------- mutants
@dataclass(frozen=True)
class Mutant:
    """One changed function. `lines` are those of the smallest statement around the change."""

    path: Path
    qualname: str
    lines: range
    source: str  # the whole module, changed

    @property
    def room(self) -> str:
        return self.path.parts[1]

    def diff(self) -> str:
        """Return the changed lines, without context."""
        before, after = (ROOT / self.path).read_text().splitlines(), self.source.splitlines()
        found = difflib.unified_diff(before, after, lineterm="", n=0)
        return "\n".join(line for line in found if not line.startswith(("---", "+++", "@@")))

    def apply(self) -> None:
        """Give the live function the changed code and defaults."""
        function = live_function(self.path, self.qualname)
        module = compile(self.source, str(ROOT / self.path), "exec", dont_inherit=True)
        function.__code__ = code_of(module, self.qualname)
        arguments = definition(ast.parse(self.source), self.qualname).args
        values = [eval_simple(node, function) for node in arguments.defaults]
        function.__defaults__ = tuple(values) or None
        for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if node is not None:
                assert function.__kwdefaults__ is not None
                function.__kwdefaults__[argument.arg] = eval_simple(node, function)


class Mutable:
    """A file and what mutmut would change in its functions.

    A text is changed once (XX around it), not also to lower and to upper case as mutmut does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        wrapper = MetadataWrapper(cst.parse_module((ROOT / path).read_text()))
        visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
        wrapper.visit(visitor)
        self.module = wrapper.module
        self.positions = wrapper.resolve(PositionProvider)
        self.names = {id(node): name for name, node in functions(self.module)}
        self.statements = statement_lines(ast.parse(self.module.code))
        self.mutations = [
            mutation
            for mutation in visitor.mutations
            if id(mutation.contained_by_top_level_function) in self.names
            and not recased(mutation.mutated_node)
        ]

    def line(self, number: int) -> int:
        """Return the line where the statement of a mutation begins."""
        return self.statements[
            self.positions[self.mutations[number].original_node].start.line
        ].start

    def mutant(self, number: int) -> Mutant:
        mutation = self.mutations[number]
        changed = deep_replace(self.module, mutation.original_node, mutation.mutated_node)
        assert isinstance(changed, cst.Module)
        lines = self.statements[self.positions[mutation.original_node].start.line]
        name = self.names[id(mutation.contained_by_top_level_function)]
        return Mutant(self.path, name, lines, changed.code)


def functions(module: cst.Module) -> Iterator[tuple[str, cst.FunctionDef]]:
    for node in module.body:
        if isinstance(node, cst.FunctionDef):
            yield node.name.value, node
        elif isinstance(node, cst.ClassDef):
            for child in node.body.body:
                if isinstance(child, cst.FunctionDef):
                    yield f"{node.name.value}.{child.name.value}", child


def recased(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleString) and not (
        node.raw_value.startswith("XX") or node.raw_value == ""
    )


def statement_lines(module: ast.Module) -> dict[int, range]:
    """For each line of code the lines of its statement; of a compound one, those of its head."""
    lines: dict[int, range] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.match_case):
            first, end = node.pattern.lineno, node.pattern.end_lineno
        elif isinstance(node, ast.stmt | ast.excepthandler):
            first, end = node.lineno, node.end_lineno or node.lineno
        else:
            continue
        body = getattr(node, "body", None)
        last = max(first, body[0].lineno - 1) if body else end
        found = range(first, last + 1)
        for line in found:
            if line not in lines or len(lines[line]) > len(found):
                lines[line] = found
    return lines


def definition(module: ast.Module, qualname: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    body: list[ast.stmt] = module.body
    *classes, name = qualname.split(".")
    for wanted in classes:
        [body] = [n.body for n in body if isinstance(n, ast.ClassDef) and n.name == wanted]
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in body if isinstance(node, kinds) and node.name == name][-1]


def code_of(module: CodeType, qualname: str) -> CodeType:
    found = module
    for name in qualname.split("."):
        inner = [code for code in found.co_consts if isinstance(code, CodeType)]
        found = [code for code in inner if code.co_name == name][-1]
    return found


def live_function(path: Path, qualname: str) -> FunctionType:
    found: Any = importlib.import_module(".".join(path.with_suffix("").parts))
    for name in qualname.split("."):
        found = found.__dict__[name]
    found = getattr(found, "__func__", found)  # class and static methods
    assert isinstance(found, FunctionType), f"{path}: {qualname} is {type(found).__name__}"
    return found


def eval_simple(node: ast.expr, function: FunctionType) -> Any:
    return eval(compile(ast.Expression(node), "default", "eval"), function.__globals__)


def sample(rooms: tuple[str, ...], number: int, seed: int) -> list[Mutant]:
    files = [
        Mutable(path.relative_to(ROOT))
        for room in rooms
        for path in sorted((ROOT / "curate" / room).rglob("*.py"))
    ]
    found = [(file, index) for file in files for index in range(len(file.mutations))]
    print(f"{len(found)} mutants in {', '.join(rooms)}", flush=True)
    drawn = random.Random(seed).sample(found, min(number, len(found)))
    return [file.mutant(index) for file, index in drawn]


def of_lines(place: str) -> list[Mutant]:
    """The mutants of PATH:FIRST-LAST, or of a whole PATH."""
    name, _, lines = place.partition(":")
    first, _, last = lines.partition("-")
    file = Mutable(Path(name))
    asked = range(int(first or 1), int(last or first or 10**9) + 1)
    return [file.mutant(n) for n in range(len(file.mutations)) if file.line(n) in asked]


# ----------------------------------------------------------------------------------------------- tests
@dataclass(frozen=True)
class Reach:
    """Which tests reach a line, and how long each takes, from one run under coverage."""

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]  # CPU seconds of tests that passed

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests to run, file by file, quickest first, up to `LONGEST`."""
        reached = self.lines.get(str(mutant.path), {})
        found = {test for line in mutant.lines for test in reached.get(line, ())}
        quickest = sorted((t for t in found if t in self.seconds), key=self.seconds.__getitem__)
        taken: list[str] = []
        total = 0.0
        for test in quickest:
            total += self.seconds[test]
            if taken and total > LONGEST:
                break
            taken.append(test)
        files: dict[str, list[str]] = defaultdict(list)
        for test in taken:
            files[test.partition("::")[0]].append(test)
        return [test for tests in files.values() for test in tests]


class Watcher:
    """A pytest plugin for the run under coverage: a context for each test, and how long it took.

    What a fixture of a module or session runs belongs to all tests that ask for it.
    """

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.context = ""
        self.items: list[pytest.Item] = []
        self.shared: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        self.began = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.switch(item.nodeid)
        self.began = time.process_time()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        before, name = self.context, f"{fixturedef.baseid}|{fixturedef.argname}"
        self.shared[name] = [
            item.nodeid
            for item in self.items
            if item.nodeid.startswith(fixturedef.baseid)
            and fixturedef.argname in getattr(item, "fixturenames", ())
        ]
        self.switch(name)
        try:
            return (yield)
        finally:
            self.switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = time.process_time() - self.began

    def switch(self, context: str) -> None:
        self.context = context
        self.measured.switch_context(context)

    def reach(self, data: coverage.CoverageData) -> Reach:
        lines: dict[str, dict[int, list[str]]] = {}
        for name in data.measured_files():
            contexts = data.contexts_by_lineno(name)
            lines[str(Path(name).relative_to(ROOT))] = {
                line: [test for c in named for test in self.shared.get(c, [c])]
                for line, named in contexts.items()
            }
        return Reach(lines, self.seconds)


def measure(session: pytest.Session, items: list[pytest.Item], room: str, file: Path) -> None:
    """Run these tests under coverage and write what reaches what of a room."""
    measured = coverage.Coverage(data_file=None, include=[str(ROOT / "curate" / room / "*")])
    watcher = Watcher(measured)
    watcher.items = items
    session.config.pluginmanager.register(watcher)
    with measured.collect():
        run_items(session, watcher.items, stop=False)
    reach = watcher.reach(measured.get_data())
    file.write_text(json.dumps([reach.lines, reach.seconds]))


def run_items(session: pytest.Session, items: list[pytest.Item], stop: bool) -> bool:
    """Run these tests silently, in a fork; return whether all passed."""
    session.config.pluginmanager.unregister(name="terminalreporter")
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if stop and session.testsfailed:
            return False
    return not session.testsfailed


class FirstFailure:
    """A pytest plugin that writes the name of a test that failed."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.file.write_text(report.nodeid)


# ------------------------------------------------------------------------------------------------- run
class Loop:
    """A pytest plugin that runs, instead of the tests it collected, all mutants against them."""

    def __init__(self, drawn: list[Mutant], out: Path, only_some: bool) -> None:
        self.drawn = drawn
        self.out = out
        self.only_some = only_some  # of the rooms' tests: what they reach is not kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        say = os.fdopen(os.dup(1), "w", buffering=1)
        items = {item.nodeid: item for item in session.items}
        results = map(json.loads, lines_of(self.out))
        done = {(result["path"], result["line"], result["diff"]) for result in results}
        rooms = sorted({mutant.room for mutant in self.drawn})
        reach = {room: self.measured(session, room, say) for room in rooms}
        for number, mutant in enumerate(self.drawn, 1):
            if (str(mutant.path), mutant.lines.start, mutant.diff()) in done:
                continue
            result = self.tried(session, items, mutant, reach[mutant.room])
            with self.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
            place = f"{mutant.path}:{mutant.lines.start}"
            print(f"{number}/{len(self.drawn)} {result['outcome']}: {place}", file=say)
        report(self.out, say)
        return True

    def measured(self, session: pytest.Session, room: str, say: Any) -> Reach:
        """Which tests reach a room's lines; measured again when code or tests have changed."""
        newest = max(
            path.stat().st_mtime_ns
            for folder in (ROOT / "curate", ROOT / "tests" / room)
            for path in folder.rglob("*.py")
        )
        name = f"reach-{room}{'-some' if self.only_some else ''}.json"
        file = self.out.parent / name
        if self.only_some or not file.exists() or file.stat().st_mtime_ns < newest:
            print(f"the tests of {room} under coverage ...", file=say)
            started = time.monotonic()
            own = [i for i in session.items if i.nodeid.startswith(f"tests/{room}/")]
            items = session.items if self.only_some else own
            in_fork(lambda: measure(session, items, room, file), 24 * 3600)
            print(f"... took {time.monotonic() - started:.0f} s", file=say)
        lines, seconds = json.loads(file.read_text())
        numbered = {
            name: {int(line): tests for line, tests in of.items()} for name, of in lines.items()
        }
        return Reach(numbered, seconds)

    def tried(
        self,
        session: pytest.Session,
        items: dict[str, pytest.Item],
        mutant: Mutant,
        reach: Reach,
    ) -> dict[str, Any]:
        tests = [test for test in reach.tests(mutant) if test in items]
        expected = sum(reach.seconds[test] for test in tests)
        failed = self.out.parent / "failed"
        failed.unlink(missing_ok=True)

        def attempt() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(30 + 3 * expected),) * 2)
            mutant.apply()
            session.config.pluginmanager.register(FirstFailure(failed))
            if not run_items(session, [items[test] for test in tests], stop=True):
                os._exit(1)

        started = time.monotonic()
        code = in_fork(attempt, 300 + 20 * expected) if tests else None
        outcome = UNREACHED if code is None else SURVIVED if code == 0 else KILLED
        by = failed.read_text() if failed.exists() else f"exit code {code}" if code else None
        return {
            "path": str(mutant.path),
            "line": mutant.lines.start,
            "function": mutant.qualname,
            "diff": mutant.diff(),
            "outcome": outcome,
            "by": by,
            "tests": len(tests),
            "seconds": round(time.monotonic() - started, 1),
        }


def in_fork(work: Any, limit: float) -> int:
    """The exit code of a fork that does this; -9 when it took longer than `limit` seconds."""
    child = os.fork()
    if child == 0:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        try:
            work()
        except BaseException:
            os._exit(2)
        os._exit(0)
    deadline = time.monotonic() + limit
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    with contextlib.suppress(
        ProcessLookupError
    ):  # whatever it left behind, servers and workers too
        os.killpg(child, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def report(file: Path, say: Any = sys.stdout) -> None:
    results = [json.loads(line) for line in lines_of(file)]
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        rooms[result["path"].split("/")[1]][result["outcome"]] += 1
    for room, counted in [*sorted(rooms.items()), ("all", sum(rooms.values(), Counter()))]:
        share = counted[KILLED] / max(1, counted.total())
        low, high = wilson(share, max(1, counted.total()))
        interval = f"(95 %: {low:.0%} to {high:.0%})"
        print(f"{room:10} {counted.total():4} mutants, {share:.1%} killed {interval}", file=say)
    print(f"each with its diff: {file}", file=say)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this room")
    parser.add_argument("--lines", help="all mutants of PATH:FIRST-LAST instead of a sample")
    parser.add_argument("--tests", nargs="+", help="these tests, not all of the mutants' rooms")
    parser.add_argument("--out", type=Path, default=ROOT / ".mutants", help="folder of the results")
    options = parser.parse_args()
    os.chdir(ROOT)
    out: Path = options.out.absolute()
    out.mkdir(exist_ok=True)
    if options.lines:
        drawn, name = of_lines(options.lines), "lines"
        (out / f"{name}.jsonl").unlink(missing_ok=True)
    else:
        drawn, name = (
            sample(tuple(options.room or ROOMS), options.sample, options.seed),
            f"seed-{options.seed}",
        )
    # Nothing shrinks a failing example, and the same ones, fewer than usual, are drawn for every mutant.
    hypothesis.settings.register_profile(
        "mutants",
        deadline=None,
        max_examples=30,
        derandomize=True,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    os.environ["CURATE_HYPOTHESIS"] = "mutants"
    rooms = sorted({mutant.room for mutant in drawn})
    with tempfile.TemporaryDirectory() as temporary:
        arguments = options.tests or [f"tests/{room}" for room in rooms]
        arguments += [f"--ignore={file}" for file in LEFT_OUT]
        arguments += ["-q", "-p", "no:cacheprovider", "--basetemp", f"{temporary}/t"]
        loop = Loop(drawn, out / f"{name}.jsonl", bool(options.tests))
        return int(pytest.main(arguments, plugins=[loop]))


if __name__ == "__main__":
    sys.exit(main())
