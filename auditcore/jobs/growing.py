"""Tables that grow as a job works. In: rows of one place at a time. Out: one Parquet table, made without holding it.

A sweep over layers, artifacts and attributes makes millions of predictions. Each part is a file of its own until the
parts hold as many rows as the table; then all are folded into it, row group by row group. So a row is written
a few times at most, however many parts there are, and what lies in memory is one part.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter, read_metadata

from auditcore import disk
from auditcore.store import Run


class Growing:
    """One table of a run. keys: the columns whose values tell one place from another."""

    def __init__(self, run: Run, table: str, keys: Sequence[str]):
        self.path = run.path / f"{table}.parquet"
        self.keys = tuple(keys)
        self.folder = run.path / "parts" / table

    def add(self, frame: pd.DataFrame, where: Mapping[str, Any]) -> None:
        """Add the rows of one place; those that a killed attempt left there are replaced.

        where: the value of every key, equal in all rows of `frame`. At least half of all rows stand in the table at
        once, the others after `fold`.
        """
        name = hashlib.sha256(json.dumps([str(where[key]) for key in self.keys]).encode()).hexdigest()[:16]
        waiting = self._waiting()
        again = [part for part in waiting if part.stem.endswith(name)]
        part = again[0] if again else self.folder / f"{len(waiting):06d}-{name}.parquet"
        disk.write_parquet(part, frame)
        there = read_metadata(self.path).num_rows if self.path.exists() else 0
        if sum(read_metadata(one).num_rows for one in self._waiting()) >= there:
            self.fold()

    def fold(self) -> None:
        """Put every part that waits into the table, in the order they came."""
        waiting = self._waiting()
        if not waiting:
            return
        files = [ParquetFile(path) for path in (self.path, *waiting) if path.exists()]
        schema = pa.unify_schemas([f.schema_arrow.remove_metadata() for f in files], promote_options="permissive")
        new = {place for part in files[-len(waiting) :] for place in self._places(part.read_row_group(0))}
        with disk.atomic(self.path) as temporary, ParquetWriter(temporary, schema, compression="zstd") as out:
            for file in files[: -len(waiting)]:
                for number in range(file.num_row_groups):
                    out.write_table(self._without(file.read_row_group(number), new).cast(schema))
            for file in files[-len(waiting) :]:
                out.write_table(file.read().select(schema.names).cast(schema))
        # Renamed first: a kill while it is removed leaves no part that looks as if it waited.
        self.folder.rename(self.folder.with_name(f".done-{secrets.token_hex(4)}"))
        for grave in self.folder.parent.glob(".done-*"):
            shutil.rmtree(grave)
        if not any(self.folder.parent.iterdir()):
            self.folder.parent.rmdir()

    def _places(self, rows: pa.Table) -> set[tuple[Any, ...]]:
        found = rows.group_by(self.keys).aggregate([])
        return set(zip(*(found[key].to_pylist() for key in self.keys), strict=True))

    def _without(self, rows: pa.Table, places: set[tuple[Any, ...]]) -> pa.Table:
        """Rows of no such place. A row group may hold several places."""
        if not self._places(rows) & places:
            return rows
        each = zip(*(rows[key].to_pylist() for key in self.keys), strict=True)
        return rows.filter(pa.array([place not in places for place in each]))

    def _waiting(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))
