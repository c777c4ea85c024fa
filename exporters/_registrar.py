"""The decorator that fills a table with one entry per operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["registrar"]

Function = TypeVar("Function", bound=Callable[..., Any])


def registrar(table: dict[Any, Any]) -> Callable[..., Callable[[Function], Function]]:
    """`@registrar(table)(op, …)` puts the function into the table under each operator, once."""

    def enter(*operators: Any) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            for operator in operators:
                assert operator not in table, f"{operator} has an entry already"
                table[operator] = function
            return function

        return register

    return enter
