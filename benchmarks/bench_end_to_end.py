"""Trains VGG-11 and ResNet-18 on slow links: our stores beside DistributedDataParallel.

Four hosts, network namespaces with links of 200 Mbit/s both ways (``tc tbf``), one worker on each;
our servers are on the same machines, so that both sides have the same links and nothing more. The
data is synthetic, in CIFAR-10's shape. All variants take turns in one run, on the same links.

All processes share this machine's processors. So batches are small: the network and not the
computing shall be what a step waits for, as on fast machines with a slow network. Computing is
the same on both sides, and is printed beside.

Needs root; ``--plot`` needs matplotlib (the ``docs`` extra). Usage::

    chrt -r 5 python benchmarks/bench_end_to_end.py --plot docs/images/end_to_end.png
"""

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from net_job import HERE, Job, JobError, bireme_job, gloo_job
from netns import ClusterError, cluster

NUM_HOSTS = 4
BATCH = {"vgg11": 8, "resnet18": 4}
"""Samples of each worker in one step."""
TITLES = {"vgg11": "VGG-11", "resnet18": "ResNet-18"}
SERVERS = ("dist_sync", "dist_sync, fp16", "dist_sync, fp16 gradients", "dist_sync, 2bit")
OURS = (*SERVERS, "allreduce")
PEER = ("DDP", "DDP, fp16 hook", "DDP, PowerSGD hook")

Seconds = dict[str, list[float]]


def measure(sides: dict[str, Job], model: str, rounds: int, steps: int) -> tuple[int, Seconds]:
    """Return the number of parameters, and the seconds of a step of each variant by round."""
    owner = dict.fromkeys(SERVERS, "servers") | {"allreduce": "allreduce"}
    owner |= dict.fromkeys(PEER, "ddp")
    for side in sides.values():
        size = int(side.ask("prepare", name=model, batch_size=BATCH[model])[0]["parameters"])
    for variant, side in owner.items():
        # The first steps of PowerSGD are not compressed, and DDP orders its buckets in its second.
        sides[side].ask("steps", variant=variant, count=3 if side == "ddp" else 1)
    seconds: Seconds = {variant: [] for variant in owner}
    for number in range(rounds):
        for variant in sorted(owner, reverse=bool(number % 2)):
            side = sides[owner[variant]]
            seconds[variant].append(side.seconds("steps", variant=variant, count=steps))
    return size, seconds


def rates(model: str, seconds: Seconds) -> dict[str, float]:
    """Return the samples that all workers together train on in a second, by variant."""
    samples = NUM_HOSTS * BATCH[model]
    return {variant: samples / statistics.median(each) for variant, each in seconds.items()}


def plot(results: dict[str, dict[str, float]], rate_mbit: float, path: str) -> None:
    """Draw samples per second as bars."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        1, len(results), figsize=(4.6 * len(results), 3.4), squeeze=False
    )
    for axis, (model, found) in zip(grid[0], results.items(), strict=True):
        names = list(found)
        colours = ["#1f6f8b" if name in OURS else "#b0b0b0" for name in names]
        bars = axis.barh(range(len(names)), list(found.values()), color=colours)
        axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.invert_yaxis()
        axis.set_xlim(0, 1.15 * max(found.values()))
        axis.set_title(f"{TITLES[model]}, batch {NUM_HOSTS} x {BATCH[model]}", fontsize=10)
        axis.set_xlabel("samples/s", fontsize=8)
        axis.tick_params(axis="x", labelsize=8)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.suptitle(f"{NUM_HOSTS} hosts, {rate_mbit:g} Mbit/s links", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both models and print a table."""
    parser = argparse.ArgumentParser(description="Our stores beside DDP on slow links.")
    parser.add_argument("--rate", type=float, default=200, help="Mbit/s of each link, each way")
    parser.add_argument("--models", nargs="+", choices=sorted(BATCH), default=list(BATCH))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="steps of a variant in its turn")
    parser.add_argument("--mtu", type=int, default=9000, help="largest packet; see netns.py")
    parser.add_argument("--plot", help="write a plot to this file")
    arguments = parser.parse_args(argv)
    console = Console(width=120)
    table = Table(title=f"{NUM_HOSTS} hosts, {arguments.rate:g} Mbit/s: samples/s")
    for name in ("model", "parameters", "variant", "s per step", "samples/s", "times DDP"):
        table.add_column(name, justify="left" if name in ("model", "variant") else "right")
    load_before, started_s = os.getloadavg()[0], time.monotonic()
    results: dict[str, dict[str, float]] = {}
    try:
        with contextlib.ExitStack() as stack:
            net = stack.enter_context(cluster([arguments.rate] * NUM_HOSTS, arguments.mtu))
            sides = {
                "servers": stack.enter_context(
                    bireme_job(net.hosts, net.hosts, HERE / "e2e_bireme.py")
                ),
                "allreduce": stack.enter_context(
                    gloo_job(net.hosts, HERE / "e2e_allreduce.py", {"MASTER_PORT": "29960"})
                ),
                "ddp": stack.enter_context(gloo_job(net.hosts, HERE / "e2e_ddp.py")),
            }
            for model in arguments.models:
                size, seconds = measure(sides, model, arguments.rounds, arguments.steps)
                results[model] = rates(model, seconds)
                for variant, rate in results[model].items():
                    table.add_row(
                        TITLES[model],
                        f"{size / 1e6:.1f} M",
                        variant,
                        f"{statistics.median(seconds[variant]):.2f}",
                        f"{rate:.1f}",
                        f"{rate / results[model]['DDP']:.2f}",
                    )
                table.add_section()
    except (ClusterError, JobError) as error:
        print(error, file=sys.stderr)
        return 1
    console.print(table)
    console.print(
        f"medians of {arguments.rounds} rounds of {arguments.steps} steps; load average "
        f"{load_before:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores; "
        f"{time.monotonic() - started_s:.0f} s"
    )
    if arguments.plot:
        plot(results, arguments.rate, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
