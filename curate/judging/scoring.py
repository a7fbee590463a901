"""One trunk asked in either scoring mode: the fork between the two, and nothing more."""

from __future__ import annotations

from curate.engines.layout import Trunk
from curate.judging.json_mode import ask_json
from curate.judging.reading import Failure, Reading, Scope, Session
from curate.judging.text import add_text
from curate.judging.tokens_mode import ask_tokens


async def ask_scope(
    session: Session, trunk: Trunk, scope: Scope, *, wording: int | None = None
) -> Reading | Failure:
    """Ask one trunk in the config's mode, and for the words behind the scores where they are wanted.

    `wording` names the one paraphrase to ask; None leaves it to the mode.
    """
    if session.config.mode == "tokens":
        reading = await ask_tokens(session, trunk, scope, wording=wording)
    else:
        reading = await ask_json(session, trunk, scope, wording=wording or 0)
    if isinstance(reading, Reading) and session.config.text_mode == "separate":
        return await add_text(session, trunk, scope, reading)
    return reading
