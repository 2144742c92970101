"""Saving and loading the rows of one server, a few at a time, as a worker tells it to.

A server that wrote a large table in one go would not answer meanwhile and be taken for dead; so
the worker that saves asks for some rows after the other
(:mod:`bireme.kvstore.tables.saving`). Called by :mod:`bireme.node.tables.values`.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bireme.errors import BiremeError, ConfigError, DataError, StateError
from bireme.node.tables import hashing
from bireme.node.tables.cell import TableCell
from bireme.node.tables.parts import PartReader, PartWriter, kind_of
from bireme.node.tables.rows import TableRows

__all__ = ("TableFiles",)

Body = Mapping[str, Any]


class TableFiles:
    """Carries out what belongs to the saving and loading of one table.

    Args:
        table: The table's part on this server.

    Guarantees:
        Loading fills rows beside the present ones, which stay until all are there. An error or an
        ``abort`` leaves rows and files as they were.
    """

    def __init__(self, table: TableCell) -> None:
        self._table = table
        self._writer: PartWriter | None = None
        self._readers: list[PartReader] = []
        self._fresh: TableRows | None = None
        self._with_state = True
        self._doers: dict[str, Callable[[Body], dict[str, object]]] = {
            "report": lambda _: table.report(),
            "save_begin": self._save_begin,
            "save_rows": self._save_rows,
            "save_end": self._save_end,
            "load_begin": self._load_begin,
            "load_rows": self._load_rows,
            "load_end": self._load_end,
            "abort": lambda _: self._abort(),
        }

    def command(self, body: Body) -> dict[str, object]:
        """Do what ``body["op"]`` says and return the answer.

        Raises:
            ConfigError: The body cannot be read, or a file is damaged or does not fit the table.
            StateError: Nothing has been begun.
        """
        doer = self._doers.get(str(body.get("op")))
        if doer is None:
            raise ConfigError(f"a table has no operation {body.get('op')!r:.40}")
        try:
            return doer(body)
        except DataError as error:
            # The worker, far away, passed the path: for it, it is an argument that is wrong.
            raise ConfigError(str(error)) from error
        except BiremeError:
            raise
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ConfigError(f"a table cannot do {body!r:.120}: {error!r}") from error
        except OSError as error:
            raise ConfigError(
                f"server {self._table.spec.index} cannot use a file of table "
                f"{self._table.slot[0]}: {error}; the folder must be one that every server sees"
            ) from error

    def _save_begin(self, body: Body) -> dict[str, object]:
        self._abort()
        rows, spec = self._table.rows, self._table.spec
        name = f"{body['stem']}.{spec.index:05d}.safetensors"
        path = os.path.join(os.fsdecode(body["folder"]), name)
        about = {"dim": spec.dim, "index": spec.index, "num_slots": spec.num_slots}
        about["version"] = self._table.version
        self._writer = PartWriter(path, rows.described(), len(rows), about)
        return {"rows": len(rows), "file": name}

    def _save_rows(self, body: Body) -> dict[str, object]:
        if self._writer is None:
            raise StateError("no saving has been begun")
        begin = int(body["begin"])
        end = min(int(body["end"]), len(self._table.rows))
        if begin < end:
            self._writer.write(begin, self._table.rows.columns(begin, end))
        return {}

    def _save_end(self, _body: Body) -> dict[str, object]:
        if self._writer is None:
            raise StateError("no saving has been begun")
        writer, self._writer = self._writer, None
        writer.finish()
        return {}

    def _load_begin(self, body: Body) -> dict[str, object]:
        self._abort()
        fresh = TableRows(self._table.spec)
        if self._table.optimizer is not None:
            fresh.use(self._table.optimizer, keep_state=False)
        readers = [
            PartReader(os.path.join(os.fsdecode(body["folder"]), name)) for name in body["files"]
        ]
        for reader in readers:
            self._check(reader, fresh)
        self._fresh, self._readers, self._with_state = fresh, readers, bool(body["state"])
        return {"rows": [reader.num_rows for reader in readers]}

    def _check(self, reader: PartReader, rows: TableRows) -> None:
        kinds = reader.kinds()
        for name, column in rows.described().items():
            if name in kinds and kinds[name] != kind_of(column):
                raise ConfigError(
                    f"{reader.path} holds {name!r} as {kinds[name]}, and the table has "
                    f"{kind_of(column)}"
                )

    def _load_rows(self, body: Body) -> dict[str, object]:
        if self._fresh is None:
            raise StateError("no loading has been begun")
        reader, spec = self._readers[int(body["part"])], self._table.spec
        about = reader.about
        if about["num_slots"] == spec.num_slots and about["index"] != spec.index:
            return {}
        columns = reader.read(int(body["begin"]), int(body["end"]))
        ids = np.ascontiguousarray(columns["ids"])
        homes = np.empty(len(ids), np.int64)
        hashing.homes(ids, spec.num_slots, homes)
        mine = homes == spec.index
        columns = {
            name: each[mine]
            for name, each in columns.items()
            if self._with_state or not name.startswith("state.")
        }
        # Rounds go on from where this job is, so that old rows are older than new ones.
        columns["last"] = columns["last"] + (self._table.version - int(about["version"]))
        self._fresh.take(columns)
        return {}

    def _load_end(self, _body: Body) -> dict[str, object]:
        if self._fresh is None:
            raise StateError("no loading has been begun")
        self._table.rows, self._fresh, self._readers = self._fresh, None, []
        return {"rows": len(self._table.rows)}

    def _abort(self) -> dict[str, object]:
        if self._writer is not None:
            self._writer.abandon()
        self._writer, self._fresh, self._readers = None, None, []
        return {}
