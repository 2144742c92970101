import threading

import numpy as np
import pytest

from bireme.kvstore.reduce.kernel import Plan

DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")


def plan(jobs, stream=False) -> Plan:
    """Jobs are pairs of lists of arrays: values and targets."""
    addresses = [array.ctypes.data for job in jobs for arrays in job for array in arrays]
    table = [(len(values), len(outs), values[0].size) for values, outs in jobs]
    return Plan(jobs[0][0][0].dtype.name if jobs else "float32", addresses, table, stream)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype, stream):
    values = [np.arange(9000).astype(dtype) + np.dtype(dtype).type(step) for step in range(3)]
    outs = [np.zeros(9000, dtype) for _ in range(2)]
    plan([(values, outs)], stream).run()
    assert all((out == values[0] + values[1] + values[2]).all() for out in outs)


@pytest.mark.parametrize("offset_bytes", [1, 2, 3, 4, 60])
def test_streaming_to_an_address_that_elements_straddle(offset_bytes):
    memory = np.zeros(4200, np.uint8)
    start = offset_bytes + (-memory.ctypes.data) % 64
    out = memory[start : start + 4000].view(np.float32)
    value = np.arange(1000, dtype=np.float32)
    plan([([value], [out])], stream=True).run()
    assert (out == value).all()
    assert memory[:start].sum() == 0
    assert memory[start + 4000 :].sum() == 0


def test_threads_share_one_plan():
    jobs = [
        ([np.full(size, step, np.float32)] * 2, [np.zeros(size, np.float32)])
        for step, size in enumerate([100_000, 1, 0, 300_000, 5])
    ]
    shared = plan(jobs)
    threads = [threading.Thread(target=shared.run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((outs[0] == 2 * step).all() for step, (_, outs) in enumerate(jobs))


def test_a_finished_plan_does_nothing():
    value, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    once = plan([([value], [out])])
    once.run()
    out[:] = 7
    once.run()
    assert (out == 7).all()


def test_no_jobs():
    plan([]).run()
