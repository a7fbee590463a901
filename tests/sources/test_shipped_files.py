"""The sample data that comes with curate."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import UsageError
from curate.sources import shipped_files
from curate.sources.shipped_files import recipes_folder, sample_chats, sample_rewordings


def test_rewordings_are_of_what_stands_in_the_sample() -> None:
    chats = "".join(path.read_text("utf-8") for path in sample_chats())
    replies, scenarios = sample_rewordings()
    assert len(replies) > 5
    assert scenarios
    for given in (replies, scenarios):
        for text, other in given.items():
            assert text[:20] in chats
            assert other
            assert other != text


def test_an_installation_without_them_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "curate"
    monkeypatch.setattr(shipped_files, "_PACKAGE", package)
    with pytest.raises(UsageError) as caught:
        recipes_folder()
    assert "the recipes and the sample data are missing" in str(caught.value)
    assert f"got: {package}" in str(caught.value)
    assert "install curate again; where from a checkout, from a complete one" in str(caught.value)
    for folder in (tmp_path / "recipes", package / "recipes"):  # a checkout's, then a package's
        (folder / "sample").mkdir(parents=True)
        assert recipes_folder() == folder
