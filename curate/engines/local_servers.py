"""Model servers that answer on this machine, on the ports that their programs listen on by default.

Only their list of models is requested, by the standard library, so that a base install can look, too.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from curate.engines.config import OpenAIConfig

PORTS: Final[dict[int, str]] = {
    8000: "vLLM",
    8080: "llama.cpp",
    11434: "Ollama",
    1234: "LM Studio",
    30000: "SGLang",
    3000: "TGI",
    8001: "a second vLLM",
    5001: "KoboldCpp",
    5000: "text-generation-webui",
    4000: "LiteLLM",
    1337: "Jan",
}
"""Port, and the program whose default it is (vLLM's first: the order of the search)."""

_PATIENCE = 2.0  # seconds; a server of this machine lists its models at once
_LARGEST = 2_000_000  # bytes of a list of models
_NO_CHAT = re.compile(r"embed|rerank|whisper|(^|[-_/])(bge|tts|clip|asr)[-_]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answered a request for its list of models.

    Attributes:
        models: their names in the server's order, without those that embed, rank or transcribe by their name.
        asks_for_key: True if it lists nothing without a key.
    """

    url: str
    models: tuple[str, ...]
    asks_for_key: bool = False


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, so that requests go to the named server only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def find_servers() -> list[LocalServer]:
    """Return the servers of this machine that list a chat model or ask for a key, in the order of `PORTS`."""
    urls = [f"http://localhost:{port}/v1" for port in PORTS]
    with ThreadPoolExecutor(len(urls)) as threads:
        return [server for server in threads.map(ask_models, urls) if server is not None]


def ask_models(url: str) -> LocalServer | None:
    """Ask a server for its models.

    Returns:
        None where no server answers, or it is no model server or has no chat model.

    Raises:
        UsageError: `url` is no address.
    """
    config = OpenAIConfig(model="any", base_url=url)
    # This machine reaches itself without a proxy.
    opener = build_opener(_NoRedirect, *([] if config.is_hosted else [ProxyHandler({})]))
    request = Request(f"{config.base_urls[0]}/models", headers={"Accept": "application/json"})
    try:
        with opener.open(request, timeout=_PATIENCE) as reply:
            entries = json.loads(reply.read(_LARGEST))["data"]
            names = [entry["id"] for entry in entries if isinstance(entry["id"], str)]
    except HTTPError as refused:
        return LocalServer(url, (), asks_for_key=True) if refused.code in (401, 403) else None
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return None
    chat = tuple(name for name in names if name and not _NO_CHAT.search(name))
    return LocalServer(url, chat) if chat else None
