"""`curate doctor`: check whether this machine can run a recipe, and what each engine can do.

Engines are opened as a run opens them, with the same probes and the same resolution of scoring modes. Models get no
calls but those of opening. The other engines are examined even if one is unusable.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from pydantic import Field

from curate.adherence.config import resolve_output_mode
from curate.dialogue import Frozen
from curate.engines.base import Capability, Engine
from curate.engines.config import EngineConfig
from curate.engines.model_pool import warnings_of
from curate.engines.open import open_engine
from curate.errors import PACKAGE, CurateError, installed_version, requirement
from curate.judging.config import resolve_mode, scoring_mode
from curate.recipe import Recipe
from curate.records import StageName

_SHOWN = ("json_schema", "label_logprobs", "top_logprobs", "prefill", "token_prompts", "seed")
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)([^;]*)(?:;(.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


class Extra(Frozen):
    """An optional part of the installation."""

    name: str
    packages: dict[str, str | None] = Field(description="Installed version, or null.")
    install: str | None = Field(None, description="The line that installs it, where it is missing.")

    @property
    def missing(self) -> list[str]:
        """Packages of this part that are not installed."""
        return [package for package, version in self.packages.items() if version is None]


class Machine(Frozen):
    """CPU cores, memory and GPUs that this process may use."""

    cores: int
    memory_gib: float = Field(description="Of the machine, or less where a control group says so.")
    gpus: tuple[str, ...] = Field((), description="As nvidia-smi names them.")


class Folder(Frozen):
    """The folder that a run would be written to."""

    path: str
    is_writable: bool
    free_gib: float


class ModeReport(Frozen):
    """The scoring mode of a stage on an engine; None if it cannot run there."""

    stage: StageName
    mode: str | None
    why: str


class EngineReport(Frozen):
    """One opened engine of the recipe, or why it could not be opened."""

    roles: tuple[str, ...]
    engine: str
    model: str
    problem: str | None = None
    revision: str = ""
    quantisation: str = ""
    capabilities: dict[str, bool] = Field(default_factory=dict)
    context_tokens: int | None = None
    open_dialogues: int = 0
    facts: dict[str, str] = Field(default_factory=dict, description="What else the engine tells.")
    modes: tuple[ModeReport, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """True when it was opened and every stage that asks it can."""
        return self.problem is None and all(mode.mode is not None for mode in self.modes)


class Report(Frozen):
    """The result of `examine`."""

    versions: dict[str, str]
    extras: tuple[Extra, ...]
    machine: Machine
    folder: Folder
    engines: tuple[EngineReport, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """True when a run would not be stopped by what was examined here."""
        return self.folder.is_writable and all(engine.is_usable for engine in self.engines)


async def examine(recipe: Recipe | None = None, out: Path | None = None) -> Report:
    """Look at the installation, the machine, the run folder and each distinct engine of a recipe."""
    folder = out if out is not None else Path("runs") / (recipe.name if recipe else "")
    engines: list[EngineReport] = []
    warnings: list[str] = []
    if recipe is not None:
        for roles, config in _engines(recipe):
            engines.append(await _examine_engine(recipe, roles, config))
        if recipe.asks_models and recipe.models.lead is None:
            warnings.append("the recipe names no judge, so it will be refused: write models.judge")
    return Report(
        versions={
            "python": platform.python_version(),
            PACKAGE: installed_version(PACKAGE) or "unknown",
        },
        extras=tuple(extras()),
        machine=examine_machine(),
        folder=examine_folder(folder),
        engines=tuple(engines),
        warnings=tuple(warnings),
    )


def _engines(recipe: Recipe) -> list[tuple[tuple[str, ...], EngineConfig]]:
    """Return each distinct engine with its roles, in the order judge, policy, reviser, metrics."""
    engines: dict[str, tuple[list[str], EngineConfig]] = {}
    models = recipe.models
    others = {"policy": models.policy, "reviser": models.reviser, "metrics": models.metrics}
    for role, config in {**models.judges_by_role, **others}.items():
        if config is not None:
            engines.setdefault(config.model_dump_json(), ([], config))[0].append(role)
    return [(tuple(roles), config) for roles, config in engines.values()]


async def _examine_engine(
    recipe: Recipe, roles: tuple[str, ...], config: EngineConfig
) -> EngineReport:
    bare = EngineReport(roles=roles, engine=config.engine, model=config.model)
    try:
        engine = await open_engine(config)
    except CurateError as error:
        return bare.model_copy(update={"problem": str(error)})
    try:
        identity = engine.identity
        return bare.model_copy(
            update={
                "model": identity.model,
                "revision": identity.revision,
                "quantisation": identity.quantisation,
                "capabilities": {name: Capability(name) in engine.capabilities for name in _SHOWN},
                "context_tokens": engine.context_tokens,
                "open_dialogues": engine.open_dialogues,
                "facts": _facts(engine),
                "warnings": warnings_of(engine),
                "modes": modes(recipe, engine.capabilities, roles),
            }
        )
    finally:
        await engine.close()


def _facts(engine: Engine) -> dict[str, str]:
    """Return what an engine tells beyond the protocol, if it does."""
    facts: Mapping[str, str | bool] = getattr(engine, "facts", {})
    return {
        name: ("yes" if value else "no") if isinstance(value, bool) else value
        for name, value in facts.items()
    }


def modes(
    recipe: Recipe, capabilities: frozenset[Capability], roles: Sequence[str] = ("judge",)
) -> tuple[ModeReport, ...]:
    """Describe how each judging stage would ask an engine that can do this and has these roles, and why."""
    reports = []
    judge, adherence, metrics = recipe.judge, recipe.judged_adherence, recipe.metrics
    if judge and {*roles} & {*recipe.models.judges_by_role, "judge"}:
        settle = partial(resolve_mode, judge, capabilities)
        reports.append(_mode(StageName.JUDGE, judge.mode, settle, capabilities))
    if adherence and "judge" in roles:
        mode, warning = resolve_output_mode(adherence, capabilities)
        settled = _mode(StageName.ADHERENCE, adherence.output_mode, lambda: mode, capabilities)
        why = f"{settled.why}; {warning}" if warning else settled.why
        reports.append(settled.model_copy(update={"why": why}))
    if metrics and ("judge" if recipe.models.metrics is None else "metrics") in roles:
        settle = partial(scoring_mode, metrics.mode, capabilities, "metrics")
        reports.append(_mode(StageName.METRICS, metrics.mode, settle, capabilities))
    return tuple(reports)


def _mode(
    stage: StageName, requested: str, settle: Callable[[], str], capabilities: frozenset[Capability]
) -> ModeReport:
    """Return the mode that `settle` chooses, and why; None if it refuses the requested one."""
    try:
        mode = settle()
    except CurateError as error:
        return ModeReport(stage=stage, mode=None, why=str(error))
    reads = mode in ("tokens", "continuous")
    gives = f"the engine gives {'' if reads else 'no '}log-probabilities"
    why = "as the recipe says" if mode == requested else gives
    return ModeReport(stage=stage, mode=mode, why=why + _exactness(mode, capabilities))


def _exactness(mode: str, capabilities: frozenset[Capability]) -> str:
    if mode not in ("tokens", "continuous"):
        return ""
    if Capability.LABEL_LOGPROBS in capabilities:
        return "; labels are read exactly"
    return "; labels are read from the likeliest tokens, where they are among them"


def extras() -> list[Extra]:
    """Return the optional parts that the installed package declares, with the packages of each that are installed."""
    try:
        declared = distribution(PACKAGE).requires or []
    except PackageNotFoundError:
        return []
    packages_by_extra: dict[str, dict[str, str | None]] = {}
    for line in declared:
        match = _REQUIREMENT.match(line)
        extra = _EXTRA.search(match.group(3) or "") if match else None
        if match and extra:
            package = match.group(1)
            packages_by_extra.setdefault(extra.group(1), {})[package] = installed_version(package)
    return [
        Extra(
            name=name,
            packages=packages,
            install=f"pip install '{requirement(name)}'" if None in packages.values() else None,
        )
        for name, packages in packages_by_extra.items()
    ]


def examine_machine(
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
) -> Machine:
    """Return cores, memory and GPUs as the system reports them; no GPU library is loaded."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        memory = min(memory, int(text))
    gpus: tuple[str, ...] = ()
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            answer = run(query, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            answer = None
        if answer is not None and answer.returncode == 0:
            gpus = tuple(line.strip() for line in answer.stdout.splitlines() if line.strip())
    return Machine(cores=cores, memory_gib=memory / 2**30, gpus=gpus)


def examine_folder(folder: Path) -> Folder:
    """Check whether a run folder can be written, or made, and how much room there is."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    return Folder(
        path=str(folder),
        is_writable=existing.is_dir() and os.access(existing, os.W_OK),
        free_gib=shutil.disk_usage(existing).free / 2**30,
    )
