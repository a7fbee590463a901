"""Servers of this machine are asked for their models, and nobody else is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from curate.engines.local_servers import ask_models
from tests.live import live_server


@contextmanager
def moved(to: str) -> Iterator[str]:
    """A server that sends everybody elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", to)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def test_a_redirect_is_no_answer() -> None:
    with live_server() as server:
        found = ask_models(server.base_url)
        assert found is not None
        assert found.models == ("fake-judge",)
        with moved(f"{server.base_url}/models") as url:
            assert ask_models(url) is None
