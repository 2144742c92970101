"""MXNet's side of the local store benchmark: its ``local`` store, pushed and pulled.

Runs in MXNet's interpreter (see ``mxnet_peer.py``).
"""

import time

import mxnet as mx
import numpy as np

from mxnet_peer import serve

_case = {}


def setup(shapes: list, dtype: str, num_contexts: int, shared_outs: bool, seed: int) -> float:
    """Make a store and the arrays of one case, in place of the last one."""
    _case.clear()
    generator = np.random.default_rng(seed)
    started_s = time.perf_counter()
    store = mx.kv.create("local")
    keys = list(range(len(shapes)))
    contexts = [mx.cpu(index) for index in range(num_contexts)]
    values = [
        [mx.nd.array(generator.random(shape, np.float32), ctx, dtype) for ctx in contexts]
        for shape in shapes
    ]
    zeros = [[mx.nd.zeros(shape, ctx, dtype) for ctx in contexts] for shape in shapes]
    store.init(keys, [each[0] for each in zeros])
    outs = values if shared_outs else zeros
    mx.nd.waitall()
    _case.update(store=store, keys=keys, values=values, outs=outs)
    return time.perf_counter() - started_s


def step(op: str, repeats: int) -> float:
    """Return the seconds of one push and pull, the mean of ``repeats``."""
    store, keys, values, outs = (_case[name] for name in ("store", "keys", "values", "outs"))
    mx.nd.waitall()
    started_s = time.perf_counter()
    for _ in range(repeats):
        if op == "push+pull":
            store.push(keys, values)
            store.pull(keys, outs)
        else:
            store.pushpull(keys, values)
        mx.nd.waitall()
    return (time.perf_counter() - started_s) / repeats


if __name__ == "__main__":
    serve({"setup": setup, "step": step})
