"""Parsing of a recipe's YAML within limits: a hostile recipe must not take minutes or overflow the stack.

An alias is a few characters and stands for everything it names, so the size counts with every alias written out. Both
limits are far above any recipe that a person writes or reads.
"""

from __future__ import annotations

from typing import Any

import yaml

from curate.errors import UsageError

_DEEPEST = 50  # sections within sections
_MOST = 20_000  # keys and values, those of aliases counted each time


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses repeated keys: otherwise the last one would silently win."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = 0
        self._nodes = 0
        self._extents: dict[int, tuple[int, int]] = {}
        """Size and depth of each complete node, by its id."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.AliasEvent)
        self._level += 1
        self._nodes += 1
        self._check(self._nodes, self._level, mark)
        node = super().compose_node(parent, index)
        self._level -= 1
        if is_alias and id(node) not in self._extents:
            problem = "an alias is inside the value that it names"
            raise yaml.composer.ComposerError(None, None, problem, mark)
        if not is_alias:
            self._extents[id(node)] = self._extent(node)
        self._check(*self._extents[id(node)], mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                problem = f"the key '{key.value}' occurs twice"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            keys.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return node

    def _extent(self, node: Any) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            return 1, 1
        is_mapping = isinstance(node, yaml.MappingNode)
        inner = [one for pair in node.value for one in pair] if is_mapping else node.value
        extents = [self._extents[id(one)] for one in inner]
        return 1 + sum(size for size, _ in extents), 1 + max(
            (depth for _, depth in extents), default=0
        )

    @staticmethod
    def _check(size: int, depth: int, mark: Any) -> None:
        if size > _MOST or depth > _DEEPEST:
            raise _too_large(size, depth, f" in line {mark.line + 1}")


def parse_yaml(text: str) -> Any:
    """Parse YAML from a recipe or `--set`.

    Raises:
        UsageError: it is too large or too deep.
        ValueError: it is not YAML, or contains an impossible number or date.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def check_extent(data: Any) -> None:
    """Raise if a value is too large or too deep for a recipe, such as a list that contains itself.

    Raises:
        UsageError: it is.
    """
    waiting = [(data, 1)]
    size = 0
    while waiting:
        value, depth = waiting.pop()
        size += 1
        inner = list(value.values()) if isinstance(value, dict) else value
        if isinstance(inner, (list, tuple)):
            waiting += [(one, depth + 1) for one in inner]
        if size + len(waiting) > _MOST or depth > _DEEPEST:
            raise _too_large(size + len(waiting), depth)


def _too_large(size: int, depth: int, where: str = "") -> UsageError:
    deep = depth > _DEEPEST
    return UsageError(
        f"a recipe is nested too deeply{where}" if deep else f"a recipe is too large{where}",
        got=f"more than {_DEEPEST} levels"
        if deep
        else f"{size:,} keys and values, with aliases written out",
        expected=f"at most {_DEEPEST} levels and {_MOST:,} keys and values",
        fix="remove what a recipe does not need; put data into a file that the recipe names",
    )
