"""Read the Parquet files of a run back into typed results."""

from __future__ import annotations

from collections.abc import Iterator

from bcos_sdk.errors import InputError
from bcos_sdk.ray._parts import rows_in
from bcos_sdk.ray._record import file_names, read_record
from bcos_sdk.ray._rows import StoredRow, stored_row
from bcos_sdk.ray._schema import arrow_schema
from bcos_sdk.ray._storage import Folder

__all__ = ["read_rows"]


def read_rows(place: str) -> Iterator[StoredRow]:
    """Yield the rows of a folder or URL to which a run has written, in the order of its files, in constant memory.

    It also reads what `explain_dataset(…).write_parquet(…)` wrote. Files that do not count, because a run with
    `--overwrite` has just begun, are left out.
    """
    folder = Folder(str(place))
    record = read_record(folder)
    names = file_names(folder, record)
    if not names and record is None:
        raise InputError(f"{place} has no Parquet files", source=str(place), hint="Pass the folder of --out.")
    wanted = set(arrow_schema().names)
    for name in names:
        found = set(folder.parquet(name).schema_arrow.names)
        if missing := sorted(wanted - found):
            raise InputError(
                f"{name} in {place} has no column {', '.join(missing)}",
                source=str(place),
                hint="Pass files that bcos-sdk predict --engine ray or explain_dataset wrote.",
            )
        for row in rows_in(folder, name):
            yield stored_row(row)
