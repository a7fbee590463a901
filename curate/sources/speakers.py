"""Who speaks: the data's own names for speakers, as roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from curate.dialogue import Role
from curate.sources.messages import read_role
from curate.sources.unit_result import UnreadableError, scalar_id

RoleOrSkip = Literal["system", "user", "assistant", "tool", "skip"]


def speaker_name(value: Any) -> str | None:
    """A speaker as text: a name, a number, `true` or `false`; None for anything else."""
    if isinstance(value, bool):
        return str(value).lower()
    return scalar_id(value)


def _by_name(value: object) -> object:
    """Speakers' names as text, which YAML may have read as numbers or as true and false."""
    if not isinstance(value, dict):
        return value
    return {
        key if isinstance(key, str) else speaker_name(key) or key: role
        for key, role in value.items()
    }


Roles = Annotated[dict[str, RoleOrSkip], BeforeValidator(_by_name)]


@dataclass(slots=True)
class Speakers:
    """The speakers of one dialogue.

    Attributes:
        roles: roles of speakers by name; `skip` leaves one out.
        in_order: roles of the others, in the order in which they first speak.
    """

    roles: Mapping[str, RoleOrSkip]
    in_order: tuple[Role, ...] = ()
    _met: dict[str, Role] = field(default_factory=dict)

    def named(self, said: Any) -> RoleOrSkip | None:
        """The role by name or by order; None where neither is given."""
        name = speaker_name(said)
        own = self.roles.get(name) if name is not None else None
        if own is not None or name is None or not self.in_order:
            return own
        if name not in self._met:
            if len(self._met) == len(self.in_order):
                others = ", ".join(self._met)
                raise UnreadableError("unknown_role", f"'{name}' speaks after {others}")
            self._met[name] = self.in_order[len(self._met)]
        return self._met[name]

    def role(self, said: Any) -> RoleOrSkip:
        """The role, by any vendor's name for it where it is not given.

        Raises:
            UnreadableError: `missing_field` or `unknown_role`.
        """
        return self.named(said) or read_role(said)
