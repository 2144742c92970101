"""Times tables on servers: rows pulled and pushed a second, for several sizes of a batch.

One worker; one server, then two. Each batch holds distinct ids, drawn evenly from a table whose
rows were all touched before, with SGD; medians over rounds. Beside it, on the same rows: torch's
``Embedding(sparse=True)`` in one process (a lookup; a backward pass with a step), which is what a
worker would do if the table fitted it and nobody else had it; and, if asked, MXNet 1.9.1's
row-sparse key in ``dist_sync``, whose table must fit its server.

Usage::

    python benchmarks/bench_embedding.py
    python benchmarks/bench_embedding.py --arithmetic
    python benchmarks/bench_embedding.py --mxnet-python /path/to/mxnet/bin/python
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mxnet_peer import Peer, ensure_mxnet

HERE = Path(__file__).resolve().parent
DIM = 32
BATCHES = (1_000, 10_000, 100_000)

Seconds = dict[str, float]


def medians(rounds: int, once: Callable[[int], tuple[float, float]]) -> Seconds:
    """Return the medians of the seconds that ``once`` returns: of a pull and of a push."""
    found = [once(number) for number in range(rounds + 1)][1:]
    pulls, pushes = zip(*found, strict=True)
    return {"pull": statistics.median(pulls), "push": statistics.median(pushes)}


def batch_of(number: int, size: int, num_rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randperm(num_rows, generator=generator)[:size]


def inside(num_rows: int, rounds: int) -> None:
    """Be the worker of a job; print a line for each size."""
    import bireme
    from bireme.kvstore.dist.store import DistStore
    from bireme.kvstore.tables import TableOptions

    torch.set_num_threads(1)
    with bireme.kvstore.create("dist_sync") as store:
        assert isinstance(store, DistStore)
        table = store.table(TableOptions("t", DIM))
        table.set_optimizer(bireme.OptimizerSpec("sgd", {"lr": 0.1}))
        for ids in torch.arange(num_rows).split(50_000):
            table.push(ids, torch.ones(len(ids), DIM))
        table.flush()
        for size in BATCHES:
            grads = torch.ones(size, DIM)

            def once(number: int, size: int = size, grads: torch.Tensor = grads) -> tuple:
                ids = batch_of(number, size, num_rows)
                begun_s = time.perf_counter()
                table.pull(ids)
                pulled_s = time.perf_counter()
                table.push(ids, grads)
                table.flush()
                return pulled_s - begun_s, time.perf_counter() - pulled_s

            print(json.dumps(medians(rounds, once)), flush=True)


def ours(num_servers: int, num_rows: int, rounds: int) -> list[Seconds]:
    command = [sys.executable, "-m", "bireme", "run", "-n", "1", "-s", str(num_servers)]
    script = [sys.executable, __file__, "--inside"]
    numbers = ["--rows", str(num_rows), "--rounds", str(rounds)]
    done = subprocess.run(
        [*command, *script, *numbers],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    return [json.loads(line) for line in lines]


def plain(num_rows: int, rounds: int) -> list[Seconds]:
    """Time torch's own embedding in this process."""
    torch.set_num_threads(1)
    torch.sparse.check_sparse_tensor_invariants.disable()
    layer = torch.nn.Embedding(num_rows, DIM, sparse=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def once_of(size: int) -> Callable[[int], tuple[float, float]]:
        grads = torch.ones(size, DIM)

        def once(number: int) -> tuple[float, float]:
            ids = batch_of(number, size, num_rows)
            begun_s = time.perf_counter()
            out = layer(ids)
            pulled_s = time.perf_counter()
            optimizer.zero_grad()
            out.backward(grads)
            optimizer.step()
            return pulled_s - begun_s, time.perf_counter() - pulled_s

        return once

    return [medians(rounds, once_of(size)) for size in BATCHES]


def arithmetic(num_rows: int, rounds: int) -> Table:
    """Return what a server's part costs without the wire: rows a second of one core's time."""
    from bireme.node.tables.index import RowIndex
    from bireme.node.tables.partial import TablePartial
    from bireme.node.tables.rows import TableRows
    from bireme.update import OptimizerSpec
    from bireme.update.rowwise import RowOptimizer
    from bireme.wire.tables import TableSpec

    torch.set_num_threads(1)
    shown = Table(title=f"thousand rows a second of one core, {num_rows} rows of {DIM} float32")
    for column in ("", *(f"{what} {size}" for what in ("read", "update") for size in BATCHES)):
        shown.add_column(column, justify="right" if column else "left")
    shown.add_column("bytes a row", justify="right")
    for name in ("SGD", "Adagrad", "Adam"):
        optimizer = RowOptimizer(OptimizerSpec(name, {"lr": 0.1}), DIM, torch.float32)
        rows = TableRows(TableSpec(dim=DIM))
        rows.use(optimizer, keep_state=False)

        def update(
            ids: torch.Tensor, rows: TableRows = rows, rule: RowOptimizer = optimizer
        ) -> None:
            index = RowIndex()
            index.add(ids.numpy())
            rows.update(TablePartial(index, torch.ones(len(ids), DIM)), rule, 1)

        for ids in torch.arange(num_rows).split(50_000):
            update(ids)
        found = []
        for size in BATCHES:
            spent = []
            for number in range(rounds):
                ids = batch_of(number, size, num_rows)
                begun_s = time.process_time()
                rows.read(ids.numpy())
                read_s = time.process_time()
                update(ids)
                spent.append((read_s - begun_s, time.process_time() - read_s))
            found.append([f"{size / min(each) / 1000:.0f}" for each in zip(*spent, strict=True)])
        reads, updates = zip(*found, strict=True)
        shown.add_row(name, *reads, *updates, f"{rows.nbytes / len(rows):.0f}")
    return shown


def mxnet(python: Path, num_servers: int, num_rows: int, rounds: int) -> list[Seconds]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shared = {
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": str(num_servers),
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_INTERFACE": "lo",
        "DMLC_NODE_HOST": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
    }
    with contextlib.ExitStack() as stack:
        peers = []
        for role in ["worker", "scheduler"] + ["server"] * num_servers:
            program = HERE / "mxnet_embedding.py"
            peers.append(Peer(python, program, environ={**shared, "DMLC_ROLE": role}))
        for peer in reversed(peers):
            stack.callback(peer.close)
        peers[0].ask("prepare", rows=num_rows, dim=DIM)
        return [peers[0].ask("measure", batch=size, rounds=rounds + 1, seed=1) for size in BATCHES]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mxnet-python", help="an interpreter that imports MXNet 1.9.1")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--arithmetic", action="store_true", help="a server's part alone")
    args = parser.parse_args(argv)
    if args.arithmetic:
        Console().print(arithmetic(args.rows, args.rounds))
        return 0
    if args.inside:
        inside(args.rows, args.rounds)
        return 0
    sides = {f"bireme, {n} server(s)": ours(n, args.rows, args.rounds) for n in (1, 2)}
    sides["torch in process, sparse"] = plain(args.rows, args.rounds)
    if args.mxnet_python:
        python = ensure_mxnet(args.mxnet_python)
        sides["MXNet, 1 server"] = mxnet(python, 1, args.rows, args.rounds)
    table = Table(title=f"thousand rows a second, {args.rows} rows of {DIM} float32, SGD")
    for column in ("", *(f"{what} {size}" for what in ("pull", "push") for size in BATCHES)):
        table.add_column(column, justify="right" if column else "left")
    for name, found in sides.items():
        speeds = [
            f"{size / each[what] / 1000:.0f}"
            for what in ("pull", "push")
            for size, each in zip(BATCHES, found, strict=True)
        ]
        table.add_row(name, *speeds)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
