"""One trunk asked in either scoring mode: the fork between the two, and nothing more."""

from __future__ import annotations

from curate.engines.layout import Trunk
from curate.judging.json_mode import ask_json
from curate.judging.reading import Failure, Reading, Scope, Session
from curate.judging.text import add_text
from curate.judging.tokens_mode import ask_tokens


async def ask_scope(
    session: Session, trunk: Trunk, scope: Scope, *, wording: int = 0
) -> Reading | Failure:
    """Ask one trunk in the config's mode, and for the words behind the scores where they are wanted."""
    ask = ask_tokens if session.config.mode == "tokens" else ask_json
    reading = await ask(session, trunk, scope, wording=wording)
    if isinstance(reading, Reading) and session.config.text_mode == "separate":
        return await add_text(session, trunk, scope, reading)
    return reading
