"""One page asked about in either scoring mode: the fork between the two, and nothing more."""

from __future__ import annotations

from curate.judging.json_mode import ask_json
from curate.judging.session import Failure, Page, PageReading, Scope, Session
from curate.judging.text import add_text
from curate.judging.tokens_mode import ask_tokens


async def ask_scope(
    session: Session, page: Page, scope: Scope, *, wording: int | None = None
) -> PageReading | Failure:
    """Ask about one page in the config's mode, and for the words behind the scores where they are wanted.

    `wording` names the one paraphrase to ask; None leaves it to the mode.
    """
    if session.config.mode == "tokens":
        reading = await ask_tokens(session, page, scope, wording=wording)
    else:
        reading = await ask_json(session, page, scope, wording=wording or 0)
    if isinstance(reading, PageReading) and session.config.text_mode == "separate":
        return await add_text(session, page, scope, reading)
    return reading
