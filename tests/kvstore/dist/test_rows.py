import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.errors import UnsupportedError
from bireme.kvstore.dist.rows import as_rows


@pytest.mark.parametrize("shape", [(5,), (5, 3), (4, 2, 3), (0,), (3, 0)])
def test_same_as_to_sparse(shape):
    value = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0)).float()
    ours, theirs = as_rows(value), value.to_sparse(1).coalesce()
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert torch.equal(ours.indices(), theirs.indices())


def test_rows_over_slots_and_servers():
    def work(session):
        with session.store("dist_sync") as store:
            value = torch.arange(60.0).view(20, 3)
            store.init("k", value)
            rows = store.row_sparse_pull("k", row_ids=torch.tensor([19, 0, 7, 7]))
            assert rows.indices().tolist() == [[0, 7, 19]]
            assert torch.equal(rows.values(), value[[0, 7, 19]])
            store.init("wide", torch.zeros(2, 100))
            with pytest.raises(UnsupportedError, match="BIREME_SLICE_BYTES"):
                store.row_sparse_pull("wide", row_ids=torch.tensor([1]))
            store.init("empty", torch.zeros(3, 0))
            assert store.row_sparse_pull("empty", row_ids=torch.tensor([1])).shape == (3, 0)

    run_threads(1, 2, work, slice_bytes=48)
