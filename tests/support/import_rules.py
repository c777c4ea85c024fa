"""An import-linter contract: a module whose name begins with an underscore is private to the folder it is in."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class PrivateModules(Contract):
    """`package._module` is imported by modules inside `package` only; others import from the package itself."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        violations = [
            (importer, private)
            for private in sorted(graph.modules)
            if (owner := owner_of(private)) is not None
            for importer in sorted(graph.find_modules_that_directly_import(private))
            if not is_inside(importer, owner)
        ]
        return ContractCheck(kept=not violations, metadata={"violations": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, private in check.metadata["violations"]:
            output.print_error(f"{importer} imports {private}, which is private to {owner_of(private)}", bold=False)


def owner_of(module: str) -> str | None:
    """The package that the module is private to: the path before its last part with an underscore. None if public."""
    parts = module.split(".")
    private = [place for place, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
    return ".".join(parts[: private[-1]]) if private else None


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
