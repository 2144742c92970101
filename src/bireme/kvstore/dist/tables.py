"""The tables of one store: their numbers, their names, and how their workers agree."""

from typing import Protocol

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.dist.agreement import Agreement
from bireme.kvstore.dist.directory import Directory
from bireme.kvstore.tables import Meeting, Table, TableOptions
from bireme.node.worker import WorkerClient
from bireme.wire.messages import JobConfig

__all__ = ("StoreTables",)

# Every table has a store number of its own, far above those of stores.
_FIRST = 1 << 40
_BITS = 16


class _Store(Protocol):
    """What a store says of itself."""

    @property
    def type(self) -> str: ...
    @property
    def local_steps(self) -> object: ...
    def _refuse_closed(self) -> None: ...


class StoreTables:
    """Makes the tables of a store and numbers them in the order of creation.

    Args:
        store: Theirs.
        client: The worker's link to the job.
        directory: The store's, for its number and consistency.
        agreement: Of the store's workers.
        config: The job's limits.
    """

    def __init__(
        self,
        store: _Store,
        client: WorkerClient,
        directory: Directory,
        agreement: Agreement,
        config: JobConfig,
    ) -> None:
        self._store = store
        self._client = client
        self._directory = directory
        self._config = config
        self._meeting = Meeting(
            client.rank,
            config.num_workers,
            agreement.sum,
            agreement.share_outcome,
            store._refuse_closed,
        )
        self._tables: list[Table] = []

    def __len__(self) -> int:
        return len(self._tables)

    def make(self, options: TableOptions) -> Table:
        """Make a table; every worker makes the same ones in the same order.

        Raises:
            ConfigError: Another worker declares it in another way, or the name is taken.
            UnsupportedError: The store exchanges weights after local steps.
        """
        if self._store.local_steps is not None:
            raise UnsupportedError(
                f"a {self._store.type!r} store exchanges weights, and a table's rows live on "
                "servers only; give the table a 'dist_async' or 'dist_sync' store of its own"
            )
        if any(table.options.name == options.name for table in self._tables):
            raise ConfigError(f"this store has a table {options.name!r} already")
        table = Table(
            self._client,
            _FIRST + (self._directory.number << _BITS) + len(self._tables),
            options,
            consistency=self._directory.consistency,
            staleness=self._directory.staleness,
            config=self._config,
            meeting=self._meeting,
        )
        self._tables.append(table)
        return table
