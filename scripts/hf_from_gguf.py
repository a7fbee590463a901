"""Make a Hugging Face model folder of a GGUF file: `python scripts/hf_from_gguf.py model.gguf folder`.

The weights are unpacked to plain tensors, so that torch, vLLM and the tests can use the small model that
pip can install. Needs the packages torch, transformers, gguf and accelerate.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path


def convert(gguf: Path, folder: Path, dtype: str = "float32") -> Path:
    """Write model and tokenizer to `folder` (made whole or not at all) and return it.

    Args:
        gguf: a file of an architecture that transformers can read.
        folder: is left as it is where it holds a model already.
        dtype: name of a torch type for the written weights.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, quantization_config=GgufConfig(dequantize=True), dtype=getattr(torch, dtype)
    )
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # What was quantised is plain now; a trace of it would make readers look for packed weights.
    model.config.__dict__.pop("quantization_config", None)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        unfinished.chmod(0o755)
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    print(convert(args.gguf, args.folder, args.dtype))


if __name__ == "__main__":
    main()
