"""What is known of an encoder without running it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from curate.adherence.sentence_encoder import model_name, token_limit


@pytest.mark.parametrize(("stated", "limit"), [(384, 384), (8192, 8192), (int(1e30), 510)])
def test_a_tokenizer_that_does_not_know_its_limit_has_that_of_the_position_table(
    stated: int, limit: int
) -> None:
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=512))
    assert token_limit(SimpleNamespace(model_max_length=stated), model) == limit


def test_a_folder_is_called_by_its_last_name_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    assert model_name(str(tmp_path / "encoder")) == "encoder"
    assert model_name("org/encoder") == "org/encoder"
