"""Tables of results in other processes and on disks: pickled as Arrow's bytes, which needs pyarrow."""

from __future__ import annotations

import copyreg
from typing import Any

from anabranch._native import Table


class KeptTable:
    """A table that was pickled: as :class:`anabranch.Table`, by pyarrow."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._table = _pyarrow().ipc.open_stream(data).read_all()

    @property
    def columns(self) -> list[str]:
        """The columns' names, in their order."""
        names: list[str] = self._table.column_names
        return names

    @property
    def metadata(self) -> dict[str, str]:
        """What is said of the whole: the scenario's text, the seed, the version."""
        return {key.decode(): value.decode() for key, value in (self._table.schema.metadata or {}).items()}

    def __len__(self) -> int:
        rows: int = self._table.num_rows
        return rows

    def __repr__(self) -> str:
        return f"<anabranch.Table: {len(self)} rows, {len(self.columns)} columns>"

    def __arrow_c_schema__(self) -> object:
        return self._table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptTable, (self._data,)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ModuleNotFoundError as error:
        said = "tables are pickled by pyarrow, which is not installed: pip install pyarrow, or pickle dict(result)"
        raise ModuleNotFoundError(said, name="pyarrow") from error
    return pyarrow


def _reduced(table: Table) -> tuple[Any, ...]:
    pyarrow = _pyarrow()
    rows, sink = pyarrow.table(table), pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return KeptTable, (sink.getvalue().to_pybytes(),)


def register() -> None:
    """Tables are pickled so."""
    copyreg.pickle(Table, _reduced)
