"""`Surface`: a module with exactly the API of real TensorRT bindings, which computes nothing.

Its classes are made from the real pybind11 classes. A member that does not exist, an argument of a wrong type and a
property that cannot be set are AssertionErrors that name class, member and TensorRT version. A call returns a value of
the type that its docstring declares. Enums, constants, shapes and plain Python functions are the real ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from support.signatures import fits, overloads, split

__all__ = ["AbsentError", "MisusedError", "Surface"]

_BUFFERS = {"IHostMemory": b"a plan"}
"""Classes that support the buffer protocol; the docstrings do not say so."""
_PROTOCOLS = ("__enter__", "__exit__", "__getitem__", "__iter__", "__len__")
_PLAIN: dict[str, object] = {"None": None, "bool": True, "int": 1, "float": 1.0, "str": "text"}


class AbsentError(AssertionError, AttributeError):
    """The bindings have no such member. It is an AttributeError too, so that `hasattr` works as with TensorRT."""


class MisusedError(AssertionError, TypeError):
    """The bindings have the member, but do not accept this use of it."""


class Surface:
    """The stand-in for one module. Use `module` in its place; `used` collects the members that were used.

    `answers` maps "Class.member" to what it returns: a value, or a function of the named arguments. The value must have
    the declared type or be None, which TensorRT returns on every failure.
    """

    def __init__(self, real: ModuleType, answers: Mapping[str, object] | None = None) -> None:
        self.real = real
        self.title = f"{real.__name__.removesuffix('_bindings')} {real.__version__}"
        self.used: set[str] = set()
        self.module: Any = _Module(self)
        self._answers = dict(answers or {})
        self._classes: dict[type, type] = {}
        for path in self._answers:
            owner, _, member = path.partition(".")
            if not hasattr(getattr(real, owner, None), member):
                raise self.absent(path)

    def instance(self, name: str) -> Any:
        """An object of this class, as TensorRT would return it."""
        kind = self.look_up(name)
        return kind.__new__(kind, *([_BUFFERS[name]] if name in _BUFFERS else []))

    def look_up(self, name: str) -> Any:
        try:
            found = getattr(self.real, name)
        except AttributeError:
            raise self.absent(name) from None
        if isinstance(found, type):
            return self.stand_in(found)
        if inspect.isbuiltin(found):
            return lambda *args, **keywords: self.call(name, found.__doc__, args, keywords)
        return found

    def stand_in(self, real: type) -> type:
        """The stand-in for a class. Enums and shapes work without TensorRT's libraries, so they are not replaced."""
        if hasattr(real, "__members__") or issubclass(real, self.real.Dims) or real.__module__ == "builtins":
            return real
        if real not in self._classes:
            same_module = [base for base in real.__bases__ if base.__module__ == real.__module__]
            bases = tuple(map(self.stand_in, same_module)) or (_StandIn,)
            members = {name: self._member(real, name) for name in dir(real) if name[0] != "_" or name in _PROTOCOLS}
            if real.__name__ in _BUFFERS:
                bases = (*bases, bytes)
                members = {**{name: _hidden(name) for name in dir(bytes) if _is_visible(name)}, **members}
            made = _Class(real.__name__, bases, {**members, "_surface": self, "_path": real.__name__})
            made.__init__ = self._method(real, "__init__")  # type: ignore[misc]  # a class with its own signature
            self._classes[real] = made
        return self._classes[real]

    def named(self, text: str) -> type | None:
        """The class that a docstring names. Docstrings use the Python name, or the C++ name of types not yet known."""
        parts = text.replace("::", ".").split(".")
        for first in range(len(parts)):
            found: Any = self.real
            for part in parts[first:]:
                found = getattr(found, part, None)
            if isinstance(found, type) and found.__module__ != "builtins":
                return self.stand_in(found)
        # The parser's errors are called IParserError in C++ and ParserError in Python.
        return self.named(parts[-1][1:]) if parts[-1][:1] == "I" and len(parts) > 1 else None

    def call(self, path: str, docstring: str | None, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Check the arguments against the docstring, and return what the member returns."""
        self.used.add(path)
        declared = overloads(path.rpartition(".")[2], docstring)
        for overload in declared:
            arguments = overload.bind(args, keywords, self.named)
            if arguments is not None:
                arguments.pop("self", None)
                return self.answer(path, overload.returns, arguments)
        given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in keywords.items())])
        takes = " or ".join(overload.text for overload in declared) or "no call from Python"
        raise MisusedError(f"{self.title}: {path} does not take ({given}); it takes {takes}")

    def answer(self, path: str, returns: str, arguments: dict[str, Any]) -> Any:
        if path not in self._answers:
            return self._example(path, returns)
        chosen = self._answers[path]
        value = chosen(**arguments) if callable(chosen) else chosen
        assert value is None or fits(returns, value, self.named), f"{self.title}: {path} returns {returns}: {value!r}"
        return value

    def _example(self, path: str, declared: str) -> Any:
        declared = split(declared, "|")[0]
        if declared in _PLAIN:
            return _PLAIN[declared]
        outer, _, inner = declared.removesuffix("]").partition("[")
        if outer in ("list", "tuple"):
            items = [self._example(path, part) for part in split(inner, ",")]
            return items if outer == "list" else tuple(items)
        kind = self.named(declared)
        assert kind is not None, f"{self.title}: {path} returns {declared}: give a value in `answers`"
        if hasattr(kind, "__members__"):
            return next(iter(kind.__members__.values()))
        return kind((1,)) if issubclass(kind, self.real.Dims) else self.instance(kind.__name__)

    def absent(self, path: str) -> AbsentError:
        return AbsentError(f"{self.title} has no {path}")

    def _member(self, real: type, name: str) -> Any:
        found = getattr(real, name)
        if isinstance(found, property):
            return self._property(f"{real.__name__}.{name}", found)
        return self._method(real, name) if type(found).__name__ == "instancemethod" else found

    def _method(self, real: type, name: str) -> Any:
        docstring = getattr(real, name).__doc__

        def method(this: Any, *args: Any, **keywords: Any) -> Any:
            return self.call(f"{real.__name__}.{name}", docstring, (this, *args), keywords)

        return method

    def _property(self, path: str, real: property) -> property:
        name = path.partition(".")[2]

        def read(this: Any) -> Any:
            self.used.add(path)
            declared = overloads("", real.fget.__doc__) if real.fget else []
            if not declared:
                raise self.absent(f"{path} that can be read")
            return vars(this)[name] if name in vars(this) else self.answer(path, declared[0].returns, {})

        def write(this: Any, value: Any) -> None:
            self.used.add(path)
            declared = overloads("", real.fset.__doc__) if real.fset else []
            if not declared:
                raise self.absent(f"{path} that can be set")
            if declared[0].bind((this, value), {}, self.named) is None:
                raise MisusedError(f"{self.title}: {path} does not take {value!r}; it takes {declared[0].text}")
            vars(this)[name] = value

        return property(read, write)


class _Module(ModuleType):
    def __init__(self, surface: Surface) -> None:
        super().__init__(surface.real.__name__)
        self.__dict__["surface of"] = surface

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["surface of"].look_up(name)


class _Class(type):
    _surface: Surface
    _path: str

    def __getattr__(cls, name: str) -> Any:
        raise cls._surface.absent(f"{cls._path}.{name}")


class _StandIn:
    _surface: Surface
    _path: str

    def __getattr__(self, name: str) -> Any:
        raise self._surface.absent(f"{self._path}.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        # A subclass in the code under test, such as a logger, may set any attribute.
        if "_path" in vars(type(self)) and not isinstance(getattr(type(self), name, None), property):
            raise self._surface.absent(f"{self._path}.{name} that can be set")
        object.__setattr__(self, name, value)


def _is_visible(name: str) -> bool:
    return name[0] != "_" or name in (*_PROTOCOLS, "__add__", "__contains__", "__mul__")


def _hidden(name: str) -> Any:
    """Hide a member of `bytes`: a property without a getter acts as a missing member."""
    return None if name[0] == "_" else property()
