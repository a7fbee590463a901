"""Data and models from elsewhere run no code: no pickle is read, no code of a model repository, no file beside the data."""

from __future__ import annotations

import ast
import json
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from curate.engines.config import TransformersConfig
from curate.errors import CurateError
from curate.sources.config import SourceConfig
from curate.sources.input_files import list_files
from curate.sources.source import open_source
from curate.storage.yaml_text import parse_yaml

MODULES = sorted((Path(__file__).parents[1] / "curate").rglob("*.py"))
UNPICKLING = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
RUNNING = {"eval", "exec", "compile"}
OF_MODULES = {
    ("os", "system"), ("os", "popen"), ("torch", "load"), ("np", "load"), ("numpy", "load"),
    ("pandas", "read_pickle"), ("pd", "read_pickle"), ("yaml", "unsafe_load"), ("yaml", "full_load"),
}  # fmt: skip


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "taken"


def calls(tree: ast.AST) -> list[tuple[int, str | tuple[str, str]]]:
    found: list[tuple[int, str | tuple[str, str]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.append((node.lineno, node.func.id))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            found.append((node.lineno, (node.func.value.id, node.func.attr)))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(path.parents[2])))
def test_no_module_unpickles_or_runs_text(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & UNPICKLING
    assert [call for call in calls(tree) if call[1] in RUNNING | OF_MODULES] == []
    named = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    assert not [node for node in named if node.arg in ("allow_pickle", "shell")]
    # A model's own code runs where a recipe names it (vLLM's engine_args), and never from here.
    for node in named:
        if node.arg == "trust_remote_code":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_every_model_is_loaded_without_its_own_code() -> None:
    loads = [
        (path.name, node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained")
            or (isinstance(node.func, ast.Name) and node.func.id == "SentenceTransformer")
        )
    ]
    assert len(loads) >= 7
    for name, node in loads:
        given = {keyword.arg for keyword in node.keywords}
        # `**options` of transformers_loading, tested below with a real folder
        assert "trust_remote_code" in given or (name == "transformers_loading.py" and None in given)


def model_folder(folder: Path, mark: Path) -> Path:
    """A model with weights that are a pickle, and a configuration that names code beside it."""
    folder.mkdir()
    config = {
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 1, "vocab_size": 8, "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Trap(mark)}))
    (folder / "odd.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    return folder


@pytest.mark.parametrize("names_code", [False, True])
def test_a_models_pickle_and_code_are_not_run(tmp_path: Path, mark: Path, names_code: bool) -> None:
    pytest.importorskip("torch")
    from curate.engines.transformers_loading import _load_model

    folder = model_folder(tmp_path / "model", mark)
    if names_code:
        config = json.loads((folder / "config.json").read_text())
        config |= {
            "model_type": "odd",
            "auto_map": {"AutoConfig": "odd.Config", "AutoModelForCausalLM": "odd.Model"},
        }
        (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CurateError, match="cannot be loaded"):
        _load_model(TransformersConfig(model=str(folder)))
    assert not mark.exists()


def test_a_parquet_file_with_a_pickle_for_a_type_is_data(tmp_path: Path, mark: Path) -> None:
    extension = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Trap(mark), protocol=0),
    }
    text = pa.array(["Hi", "Hello, how can I help you today?"])
    roles = pa.array(["user", "assistant"])
    message = pa.StructArray.from_arrays([roles, text], names=["role", "content"])
    messages = pa.ListArray.from_arrays([0, 2], message)
    schema = pa.schema([pa.field("messages", messages.type, metadata=extension)])
    path = tmp_path / "chats.parquet"
    pq.write_table(pa.Table.from_arrays([messages], schema=schema), path)
    assert open_source(SourceConfig(path=str(path))).files == (str(path),)
    assert not mark.exists()


def test_what_is_a_pickle_is_no_data_file(tmp_path: Path, mark: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.pkl", "b.pt", "c.npy", "d.joblib"):
        (tmp_path / "in" / name).write_bytes(pickle.dumps(Trap(mark)))
    (tmp_path / "in" / "f.jsonl").write_bytes(pickle.dumps(Trap(mark)))
    files, skipped = list_files(SourceConfig(path=str(tmp_path / "in")))
    assert [file.path.name for file in files] == ["f.jsonl"]
    assert {item.reason for item in skipped} == {"not a data file"}
    with pytest.raises(CurateError):
        open_source(SourceConfig(path=str(tmp_path / "in")))
    assert not mark.exists()


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.mkdir", "!!python/name:os.system", "!!python/module:os"]
)
def test_a_recipe_makes_no_objects(tag: str, mark: Path) -> None:
    with pytest.raises((yaml.YAMLError, CurateError, ValueError)):
        parse_yaml(f"name: {tag} ['{mark}']")
    assert not mark.exists()


def test_a_chat_template_runs_no_code(mark: Path) -> None:
    pytest.importorskip("transformers")
    from curate.engines.tokens import PromptTokens
    from tests.engines.families import small_tokenizer

    reach = "''.__class__.__mro__[1].__subclasses__()"
    for template in (
        f"{{{{ {reach} }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}",
        "{{ cycler.__init__.__globals__.os.mkdir('" + str(mark) + "') }}{{ messages[0].content }}",
        "{{ messages.append(1) }}{{ messages[0].content }}",
    ):
        with pytest.raises(CurateError, match="chat template"):
            PromptTokens(small_tokenizer(template))
    assert not mark.exists()


@pytest.mark.parametrize("given", ["folder", "glob", "recursive glob"])
def test_links_out_of_a_source_folder_are_not_followed(tmp_path: Path, given: str) -> None:
    row = (
        '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}\n'
    )
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside, inside / "below"):
        folder.mkdir()
    (outside / "secret.jsonl").write_text(row)
    (inside / "own.jsonl").write_text(row)
    (inside / "file.jsonl").symlink_to(outside / "secret.jsonl")
    (inside / "folder").symlink_to(outside)
    (inside / "same.jsonl").symlink_to("own.jsonl")
    paths = {"folder": inside, "glob": inside / "*.jsonl", "recursive glob": inside / "**/*.jsonl"}
    files, skipped = list_files(SourceConfig(path=str(paths[given])))
    assert [file.path.name for file in files] == ["own.jsonl", "same.jsonl"]
    assert {item.reason for item in skipped} == {"a link that leads out of the folder"}
    # A link that a person names is meant.
    [named], _ = list_files(SourceConfig(path=str(inside / "file.jsonl")))
    assert named.path == inside / "file.jsonl"
    (tmp_path / "link").symlink_to(inside)
    assert len(list_files(SourceConfig(path=str(tmp_path / "link")))[0]) == 2


def test_a_snapshot_in_the_hubs_cache_is_read_through_its_links(tmp_path: Path) -> None:
    repo = tmp_path / "datasets--owner--name"
    (repo / "blobs").mkdir(parents=True)
    (repo / "snapshots" / "1234" / "data").mkdir(parents=True)
    (repo / "blobs" / "abcd").write_text('{"messages": []}\n')
    (tmp_path / "secret.jsonl").write_text('{"messages": []}\n')
    data = repo / "snapshots" / "1234" / "data"
    (data / "train.jsonl").symlink_to("../../../blobs/abcd")
    (data / "other.jsonl").symlink_to(tmp_path / "secret.jsonl")
    for given in (repo / "snapshots" / "1234", data, data / "*.jsonl"):
        files, skipped = list_files(SourceConfig(path=str(given)))
        assert [file.path.name for file in files] == ["train.jsonl"]
        assert [Path(item.file).name for item in skipped] == ["other.jsonl"]
