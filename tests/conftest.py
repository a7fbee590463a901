"""Fixtures that several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A test says what is right, not how fast a busy machine is.
settings.register_profile("curate", deadline=None)
settings.load_profile("curate")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data that lies beside a developer's checkout and is never part of it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the development data does not lie beside this checkout")
    return folder
