"""`Surface`: a module that has exactly the API of real TensorRT bindings, and does nothing.

Its classes are made from the real pybind11 classes: a member that these lack, an argument that they do not take, a
property that they do not let be set is an AssertionError that names class, member and TensorRT. What a call returns
is of the type that its docstring declares. Enums, constants, shapes and plain Python functions are the real ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from support.signatures import fits, overloads, split

__all__ = ["AbsentError", "MisusedError", "Surface"]

_BUFFERS = {"IHostMemory": b"a plan"}
"""Classes that can be read as bytes, which no docstring tells."""
_PROTOCOLS = ("__enter__", "__exit__", "__getitem__", "__iter__", "__len__")
_PLAIN: dict[str, object] = {"None": None, "bool": True, "int": 1, "float": 1.0, "str": "text"}


class AbsentError(AssertionError, AttributeError):
    """The bindings have no such member. An AttributeError too, so that `hasattr` answers as it does with TensorRT."""


class MisusedError(AssertionError, TypeError):
    """The bindings have the member, but do not take this use of it."""


class Surface:
    """The stand-in of one module. `module` is to be used in its place, `used` are the members that were reached.

    `answers` says what members return, by "Class.member": a value, or a function of the arguments by name. It must
    be of the declared type, or None, which TensorRT returns wherever it fails.
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
        """An object of this class, as TensorRT would hand it out."""
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
        """The class that stands for this one; enums and shapes work without TensorRT's libraries and stay."""
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
        """The class that a docstring means, whose types are spelled in Python or, where not yet known, in C++."""
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
        """What the member of this docstring returns, if it takes these arguments."""
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
        assert kind is not None, f"{self.title}: {path} returns {declared}: say in `answers` what that shall be"
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
        # A class that the code under test derives, such as a logger of its own, may hold what it likes.
        if "_path" in vars(type(self)) and not isinstance(getattr(type(self), name, None), property):
            raise self._surface.absent(f"{self._path}.{name} that can be set")
        object.__setattr__(self, name, value)


def _is_visible(name: str) -> bool:
    return name[0] != "_" or name in (*_PROTOCOLS, "__add__", "__contains__", "__mul__")


def _hidden(name: str) -> Any:
    """In place of what comes with `bytes`: a property without a getter is as good as no member."""
    return None if name[0] == "_" else property()
