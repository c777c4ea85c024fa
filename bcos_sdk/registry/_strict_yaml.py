"""Parse YAML to plain values. Duplicate keys and anchors that contain themselves are errors."""

from __future__ import annotations

from typing import Any

import yaml

from bcos_sdk.errors import RegistryError

__all__ = ["parse_yaml"]

_MERGE_TAG = "tag:yaml.org,2002:merge"


def parse_yaml(text: str, *, source: str) -> Any:
    """Return the document as dicts, lists and scalars, or raise `RegistryError`."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - it is a subclass of SafeLoader
    except RecursionError as error:
        raise RegistryError(f"{source} is not valid YAML: it is nested too deeply", source=source) from error
    except Exception as error:  # PyYAML raises many types for malformed scalars, not only YAMLError
        raise RegistryError(f"{source} is not valid YAML: {error}", source=source) from error


class _StrictLoader(yaml.SafeLoader):
    """A SafeLoader that rejects duplicate keys and recursive anchors.

    PyYAML silently lets a later key replace an earlier one. The check runs on the composed nodes, before construction:
    construction mixes the keys of merged mappings (`<<`) with the mapping's own keys.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        self._check(node, above=set(), checked=set())
        return super().construct_document(node)

    def _check(self, node: yaml.Node, above: set[int], checked: set[int]) -> None:
        """Check a node and its children. `above`: ids of the enclosing nodes. `checked`: ids of visited nodes."""
        if id(node) in above:
            raise _error("an anchor contains itself", node)
        if id(node) in checked or not isinstance(node, yaml.CollectionNode):
            return
        checked.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            children = [child for pair in node.value for child in pair]
        else:
            children = node.value
        holders = above | {id(node)}
        for child in children:
            self._check(child, holders, checked)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue  # construction rejects lists and mappings as keys
            key = key_node.value if key_node.tag == _MERGE_TAG else self.construct_object(key_node)
            if key in seen:
                raise _error(f"duplicate key {key!r}", key_node)
            seen.add(key)


def _error(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
