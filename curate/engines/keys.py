"""Keys and passwords in a recipe, which must not hold any.

A recipe is copied into the manifest, the rows and the card of a pushed dataset, so a key may not stand anywhere in
it: it names the environment variable that holds one (`api_key_env`). A key is known by the form that its
provider gives it, or by the name of its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from curate.errors import UsageError

# Forms of keys: the provider's prefix, then characters that no word or model name has.
_FORM = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)[-_](?:[a-z0-9]{1,12}[-_]){0,3}(?=[A-Za-z_]*\d)[A-Za-z0-9_]{16}"
    r"|(?:hf|gsk|r8|gh[oprsu]|npm)_[A-Za-z0-9]{16}"
    r"|(?:github_pat_|glpat-|nvapi-|dop_v1_|tgp_v1_|(?:xai|pplx)-(?=[A-Za-z]*\d))[A-Za-z0-9_-]{16}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{24}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10}"
    r"|eyJ[A-Za-z0-9_-]{10,2000}\.eyJ"
    r")"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY"
    r"|(?i:\b(?:Bearer|Basic)\s{1,4}(?=[A-Za-z+/._=-]{0,200}\d)[A-Za-z0-9+/._=-]{16})"
    r"|(?<![a-z0-9+])[a-z][a-z0-9+]{1,20}://[^/\s:@]{1,200}:[^/\s@]{1,200}@"
    r"|(?i:[?&](?:[a-z0-9-]{1,20}[-_])?(?:api[-_]?key|key|token|secret|signature|password)=[^&\s]{6})"
)
_NAME = re.compile(
    r"(?:.*[-_])?(?:api[-_]?keys?|authori[sz]ation|passw(?:or)?d|passphrase|secrets?"
    r"|(?:secret|private|access|secret[-_]access)[-_]?key(?:[-_]?id)?|credentials?|bearer)"
    # `pad_token` and `stop_token` are no secrets, `tokens` is a number.
    r"|(?:x[-_])?(?:(?:access|auth|api|bearer|hf|hub|refresh|session|security|github)[-_]?)?token",
    re.IGNORECASE,
)
_HEADERS = re.compile(r"(?:.*[-_])?headers?", re.IGNORECASE)
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password|session", re.IGNORECASE)
_ONE_WORD = re.compile(r"\s*(?:(?:Bearer|Basic|Token|Key)\s+)?\S+\s*", re.IGNORECASE)
_KEY_START = re.compile(
    r"(?:sk|pk|rk|gsk|hf|nvapi|xai|ghp|key|r8|tgp_v\d|AIza)[-_]?[A-Za-z0-9]{12}"
)


def refuse_keys(data: Mapping[str, Any], what: str) -> None:
    """Refuse a mapping that holds a key anywhere.

    Args:
        data: a recipe or a section of one, before or after validation.
        what: name of the mapping, for the message.

    Raises:
        UsageError: there is one. The message names the place and does not repeat the key.
    """
    places = sorted({".".join(place) for place in _places(data)})
    if places:
        raise UsageError(
            f"there is a key or a password in {what}, which would be copied into the run folder and the card",
            got=f"{', '.join(places)} (not shown)",
            expected="the name of an environment variable that holds it, such as api_key_env: MY_KEY",
            fix="put it into an environment variable and name that; if it has been shared already, replace it "
            "at its provider",
        )


def looks_like_key(value: str) -> bool:
    """Tell whether a value is a key in place of the name of an environment variable."""
    if _KEY_START.match(value):
        return True
    # Names are words; a run of 20 characters with digits in both cases is not.
    return any(
        len(part) >= 20 and re.search(r"\d", part) and re.search(r"[a-z]", part) is not None
        for part in value.split("_")
    )


def _places(data: Any) -> Iterator[tuple[str, ...]]:
    """Yield the place of each API key: the keys of the mappings, and the indices of the lists, that lead to it."""
    waiting: list[tuple[tuple[str, ...], Any, bool]] = [((), data, False)]
    while waiting:
        place, value, has_secret_name = waiting.pop()
        if isinstance(value, Mapping):
            in_headers = bool(place) and _HEADERS.fullmatch(place[-1])
            for key, inner in ((str(key), inner) for key, inner in value.items()):
                if _FORM.search(key):
                    yield (*place, "(a key)")
                    continue
                is_secret = _NAME.fullmatch(key) or (in_headers and _SECRET_HEADER.search(key))
                waiting.append(((*place, key), inner, bool(is_secret)))
        elif isinstance(value, (list, tuple)):
            waiting += [
                ((*place, str(index)), inner, has_secret_name) for index, inner in enumerate(value)
            ]
        elif isinstance(value, str):
            if _FORM.search(value) or (has_secret_name and _ONE_WORD.fullmatch(value)):
                yield place
        elif isinstance(value, int) and value >= 100_000 and has_secret_name:
            yield place
