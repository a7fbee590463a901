"""Fixtures of the tests that ask real trainers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def offline() -> Iterator[None]:
    """The Hub's clients in this process stay offline while a module's tests run.

    They read the environment when they are imported, which another test may have done by now.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr("datasets.config.HF_HUB_OFFLINE", True)
        yield
