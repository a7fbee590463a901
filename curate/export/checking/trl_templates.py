"""Which chat templates TRL can train on the assistant's tokens alone with, restated after TRL 1.16.

`assistant_only_loss=True` wants `{% generation %}` marks in the template. Where there are none TRL puts a marked
template of its own in the place of those it knows to the letter, and raises at any other.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

_MARK: Final = re.compile(r"\{%-?\s*generation\s*-?%\}")

MARKED_BY_TRL: Final = {
    "7aff222e36666d06": "cohere",
    "54cde1e3d30872f2": "cohere2",
    "d2f9dd6e8c662918": "deepseek_r1_distill",
    "de9f8eba92585f9b": "deepseekv3",
    "6d51adba2614a6ba": "diffusion_gemma",
    "ffb5548f97a192aa": "gemma",
    "fa55b9d27ffa35d6": "gemma3",
    "b069c795e0d0274a": "glm4moe",
    "f223d03f0398afdf": "gptoss",
    "1f9882f5a8e53380": "idefics3",
    "3add62b5ceecbdf4": "lfm2",
    "c69abb39bb13a0e8": "lfm2_v2",
    "49f16cce50d0ab37": "llama3",
    "a1402b27246cddc8": "llava_next",
    "939e086ede9b0bff": "muse_glimmer",
    "819e023386586e5f": "nemotron_3_5_lightning",
    "bfb3ecb0e24c5afd": "nemotron_3_nano",
    "35fcb1a11477fe5d": "nemotron_3_super",
    "cacda10ad20daf0d": "nemotron_3_ultra",
    "ff99dd2dd7b02e69": "phi3",
    "67bfde3c784cc004": "phi3_5",
    "5682170caef7abbc": "qwen2_5",
    "0245468ed9874548": "qwen2_5_vl",
    "5796b715815db836": "qwen3",
    "8ec05439b05b5af5": "qwen3_5_nothink",
    "e4102ab4a60e6177": "qwen3_5_think",
    "f660d4b1172f502a": "qwen3_6",
    "799219edd60dd5fb": "qwen3_8",
    "c36f4f13ef248942": "qwen3_instruct_2507",
    "08bbfba8e6fe915b": "qwen3_vl",
    "6c8be68ea89034fe": "smolvlm",
}
"""Digest of each template that TRL has a marked one for, and TRL's name for it."""


def takes_assistant_only_loss(template: str) -> bool:
    """Whether TRL trains on the answers alone with this chat template; it raises where not."""
    return has_marks(template) or template_digest(template) in MARKED_BY_TRL


def has_marks(template: str) -> bool:
    """Whether a chat template says which of its text is the assistant's."""
    return _MARK.search(template) is not None


def template_digest(template: str) -> str:
    """As in `MARKED_BY_TRL`: 16 hexadecimal digits."""
    return blake2b(template.encode("utf-8"), digest_size=8).hexdigest()
