"""YAML text → plain values, with every key standing once and no anchor that holds itself."""

from __future__ import annotations

from typing import Any

import yaml

from bcos_sdk.errors import RegistryError

__all__ = ["parse_yaml"]

_MERGE_TAG = "tag:yaml.org,2002:merge"


def parse_yaml(text: str, *, source: str) -> Any:
    """The document as dicts, lists and scalars, or a `RegistryError`."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader underneath
    except RecursionError as error:
        raise RegistryError(f"{source} is not valid YAML: it nests too deeply", source=source) from error
    except Exception as error:  # beside YAMLError, PyYAML meets odd scalars with whatever they lead it into
        raise RegistryError(f"{source} is not valid YAML: {error}", source=source) from error


class _StrictLoader(yaml.SafeLoader):
    """Checks the composed nodes before anything is made of them.

    YAML lets a later key replace an earlier one in silence; a registry must not. Construction is too
    late to see it: by then merge keys (`<<`) have put the merged keys beside a mapping's own.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        self._check(node, above=set(), checked=set())
        return super().construct_document(node)

    def _check(self, node: yaml.Node, above: set[int], checked: set[int]) -> None:
        """`above` are the nodes that hold this one; `checked` spares aliases a second visit."""
        if id(node) in above:
            raise _refusal("an anchor holds itself", node)
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
                continue  # a list or a mapping cannot be a key: construction says so
            key = key_node.value if key_node.tag == _MERGE_TAG else self.construct_object(key_node)
            if key in seen:
                raise _refusal(f"the key {key!r} stands twice", key_node)
            seen.add(key)


def _refusal(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
