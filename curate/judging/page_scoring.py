"""Dispatch of one page to either scoring mode."""

from __future__ import annotations

from curate.judging.json_mode import ask_json
from curate.judging.session import Failure, Page, PageReading, Scope, Session
from curate.judging.tokens_mode import ask_tokens


async def ask_scope(
    session: Session, page: Page, scope: Scope, *, wording: int | None = None
) -> PageReading | Failure:
    """Ask about one page in the config's mode; `wording` names the one paraphrase, None leaves it to the mode."""
    if session.config.mode == "tokens":
        return await ask_tokens(session, page, scope, wording=wording)
    return await ask_json(session, page, scope, wording=wording or 0)
