"""Tables from a worker's side: rows by id, which live on servers only."""

from bireme.kvstore.tables.meeting import Meeting as Meeting
from bireme.kvstore.tables.options import TableOptions as TableOptions
from bireme.kvstore.tables.table import Batch as Batch
from bireme.kvstore.tables.table import Table as Table

__all__ = ("Batch", "Meeting", "Table", "TableOptions")
