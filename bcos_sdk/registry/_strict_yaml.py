"""Parse YAML to plain values. Duplicate keys and anchors that contain themselves are errors.

A short text can stand for very many values: an anchor may be used many times, inside another one that is used many
times. So their number is counted before they are made.
"""

from __future__ import annotations

from typing import Any

import yaml

from bcos_sdk.errors import RegistryError, shown

__all__ = ["parse_yaml"]

_MERGE_TAG = "tag:yaml.org,2002:merge"
_MOST_VALUES = 200_000


def parse_yaml(text: str, *, source: str) -> Any:
    """Return the document as dicts, lists and scalars, or raise `RegistryError`."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - it is a subclass of SafeLoader
    except RecursionError as error:
        raise RegistryError(f"{source} is not valid YAML: it is nested too deeply", source=source) from error
    except Exception as error:  # PyYAML raises many types for malformed scalars, not only YAMLError
        raise RegistryError(
            f"{source} is not valid YAML: {shown(error, quote=False, most=1000)}", source=source
        ) from error


class _StrictLoader(yaml.SafeLoader):
    """A SafeLoader that rejects duplicate keys, recursive anchors, and anchors that multiply to very many values.

    PyYAML silently lets a later key replace an earlier one. The check runs on the composed nodes, before construction:
    construction mixes the keys of merged mappings (`<<`) with the mapping's own keys.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        self._check(node, above=set(), sizes={})
        return super().construct_document(node)

    def _check(self, node: yaml.Node, above: set[int], sizes: dict[int, int]) -> int:
        """Check a node and its children, and return for how many values it stands.

        `above`: ids of the enclosing nodes. `sizes`: the numbers of values of visited nodes, by id.
        """
        if id(node) in above:
            raise _error("an anchor contains itself", node)
        if not isinstance(node, yaml.CollectionNode):
            return 1
        if id(node) not in sizes:
            children = node.value
            if isinstance(node, yaml.MappingNode):
                self._check_keys(node)
                children = [child for pair in node.value for child in pair]
            above.add(id(node))
            sizes[id(node)] = 1 + sum(self._check(child, above, sizes) for child in children)
            above.remove(id(node))
        if sizes[id(node)] > _MOST_VALUES:
            raise _error(f"it stands for more than {_MOST_VALUES:,} values", node)
        return sizes[id(node)]

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue  # construction rejects lists and mappings as keys
            key = key_node.value if key_node.tag == _MERGE_TAG else self.construct_object(key_node)
            if key in seen:
                raise _error(f"duplicate key {shown(key)}", key_node)
            seen.add(key)


def _error(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
