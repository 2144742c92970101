"""Time to 97 % held-out accuracy for each consistency model, with one worker four times slower.

Four workers and one server on this machine, small convolutional nets, SGD, one thread each. A
step is stretched by sleeping to a fixed time (20 ms; 80 ms on the last worker), which stands for
the device's computation, so that workers do not fight for the cores; the share of steps that took
longer by themselves is shown as "late". Worker 0 measures the accuracy of its own parameters every
eight steps, while others compute. A run ends at the goal, or when its time is up.

``--write`` puts table and plot into docs/ and needs matplotlib (``pip install .[docs]``).

Usage::

    python benchmarks/bench_consistency.py --mnist-dir DIR --seeds 3
    python benchmarks/bench_consistency.py --mnist-dir DIR --seeds 3 --write
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "consistency.md"
IMAGE = PAGE.parent / "images" / "consistency.svg"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

NUM_WORKERS = 4
SLOWNESS = 4
STEP_S = 0.02
BATCH_SIZE = 16
GOAL = 0.97
BUDGET_S = {"digits": 40.0, "mnist": 75.0}
LR = {"digits": 0.4, "mnist": 0.6}


@dataclass(frozen=True)
class Model:
    name: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    one_by_one: bool = False
    """Pushes are steps of their own, so that the learning rate is lower by the workers."""

    def lr(self, data: str) -> float:
        return LR[data] / NUM_WORKERS if self.one_by_one else LR[data]


def local(**options: Any) -> dict[str, Any]:
    return {"local": {"every": 16, **options}}


NESTEROV = {"outer": "nesterov", "lr": 0.7, "momentum": 0.5}

MODELS = [
    Model("sync", "dist_sync"),
    Model("bounded, s = 1", "dist_bounded", {"staleness": 1}, one_by_one=True),
    Model("bounded, s = 3", "dist_bounded", {"staleness": 3}, one_by_one=True),
    Model("async", "dist_async", one_by_one=True),
    Model("async, compensated", "dist_async", {"delay_compensation": 0.04}, one_by_one=True),
    Model("local average", "dist_local", local()),
    Model("local Nesterov", "dist_local", local(**NESTEROV)),
    Model("local elastic", "dist_local", local(outer="elastic")),
    Model("local streaming", "dist_local", local(**NESTEROV, fragments=2, delay=2)),
    Model("local average, no waiting", "dist_local", local(staleness=None)),
    Model("local elastic, no waiting", "dist_local", local(outer="elastic", staleness=None)),
]


def run(model: Model, data: str, folder: str, seed: int) -> dict[str, Any]:
    """Run one job; return worker 0's curve, and every worker's steps."""
    with tempfile.TemporaryDirectory() as out:
        job = {
            "data": data,
            "folder": folder,
            "kind": model.kind,
            "options": model.options,
            "lr": model.lr(data),
            "batch_size": BATCH_SIZE,
            "seed": seed,
            "step_s": STEP_S,
            "slowness": SLOWNESS,
            "budget_s": BUDGET_S[data],
            "target": GOAL,
            "out": out,
        }
        command = [sys.executable, "-m", "bireme", "run", "-n", str(NUM_WORKERS), sys.executable]
        ended = subprocess.run(
            [*command, str(HERE / "consistency_job.py"), json.dumps(job)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=BUDGET_S[data] + 120,
            check=False,
        )
        if ended.returncode:
            raise SystemExit(ended.stdout[-2000:] + ended.stderr[-4000:])
        found = [
            json.loads((Path(out) / f"{rank}.json").read_text()) for rank in range(NUM_WORKERS)
        ]
    curve = found[0]["curve"]
    return {
        "curve": curve,
        "seconds": curve[-1][0] if curve[-1][1] >= GOAL else None,
        "best": max(each for _, each in curve),
        "steps": [each["steps"] for each in found],
        "late": statistics.mean(each["late"] for each in found),
    }


def cells(model: Model, data: str, runs: list[dict[str, Any]]) -> list[str]:
    """Return a row of the table: medians over seeds, and the range of the times."""
    times = sorted(run["seconds"] for run in runs if run["seconds"] is not None)
    if len(times) == len(runs):
        shown = f"{statistics.median(times):.1f} s"
        if len(times) > 1:
            shown += f" ({times[0]:.1f} to {times[-1]:.1f})"
    else:
        best = statistics.median(run["best"] for run in runs)
        shown = f"not in {BUDGET_S[data]:.0f} s ({best:.1%})"
    fast, slow = (statistics.median(run["steps"][rank] for run in runs) for rank in (0, -1))
    late = statistics.mean(run["late"] for run in runs)
    return [model.name, f"{model.lr(data):g}", shown, f"{fast:.0f}", f"{slow:.0f}", f"{late:.0%}"]


HEAD = ["model", "lr", "time to 97 %", "steps of worker 0", "of the slow one", "late"]


def draw(results: dict[str, dict[str, list[dict[str, Any]]]], path: Path) -> None:
    """Plot the median run of each model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "bireme"
    figure, axes = pyplot.subplots(1, len(results), figsize=(6 * len(results), 5), squeeze=False)
    colours = pyplot.get_cmap("tab20").colors
    for axis, (data, models) in zip(axes[0], results.items(), strict=True):
        for number, (name, runs) in enumerate(models.items()):
            ordered = sorted(runs, key=lambda run: run["seconds"] or float("inf"))
            curve = ordered[len(ordered) // 2]["curve"]
            seconds = [second for second, _ in curve]
            values = list(itertools.accumulate((value for _, value in curve), max))
            style = {"sync": "-", "bounded": "--", "async": "-."}.get(
                name.split()[0].strip(","), ":"
            )
            axis.plot(seconds, values, style, label=name, color=colours[2 * number % 20], lw=1.6)
        axis.axhline(GOAL, color="grey", lw=0.8)
        axis.set(
            title=data, xlabel="seconds", ylabel="best held-out accuracy so far", ylim=(0.8, 1.0)
        )
        axis.grid(alpha=0.3)
    names, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(names, labels, fontsize=8, loc="lower center", ncols=3 * len(results))
    figure.tight_layout(rect=(0, 0.2 / len(results), 1, 1))
    path.parent.mkdir(exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=metadata, dpi=100)


def write_page(tables: dict[str, list[list[str]]], num_seeds: int, note: str) -> None:
    """Put the tables between the page's marks."""
    lines = [BEGIN, ""]
    for data, rows in tables.items():
        lines += [f"**{data}**, {num_seeds} seed(s), medians:", ""]
        lines += ["| " + " | ".join(HEAD) + " |", "| " + " | ".join("---" for _ in HEAD) + " |"]
        lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
    lines += [note, ""] if note else []
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + "\n".join(lines) + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mnist-dir", default="", help="holds MNIST's four files; digits only without"
    )
    parser.add_argument(
        "--data", choices=("digits", "mnist"), action="append", help="default: both"
    )
    parser.add_argument("--models", default="", help="only models whose name contains this")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--json", default="", help="keep results here; runs that are there are not run"
    )
    parser.add_argument("--plot", default="", help="also draw to this file (needs matplotlib)")
    parser.add_argument(
        "--write", action="store_true", help="write docs/consistency.md and its plot"
    )
    parser.add_argument("--note", default="", help="a sentence for below the page's tables")
    args = parser.parse_args()
    console = Console()
    wanted = args.data or (["digits", "mnist"] if args.mnist_dir else ["digits"])
    kept = Path(args.json) if args.json else None
    known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    tables: dict[str, list[list[str]]] = {}
    for data in wanted:
        table = Table(*HEAD, title=f"{data}: {NUM_WORKERS} workers, one {SLOWNESS} times slower")
        results[data], tables[data] = {}, []
        for model in MODELS:
            if args.models not in model.name:
                continue
            runs = []
            for seed in range(args.seeds):
                name = f"{data} {model.name} {seed}"
                if name not in known:
                    known[name] = run(model, data, args.mnist_dir, seed)
                    if kept is not None:
                        kept.write_text(json.dumps(known))
                runs.append(known[name])
            results[data][model.name] = runs
            tables[data].append(cells(model, data, runs))
            table.add_row(*tables[data][-1])
            console.print(*tables[data][-1], sep="  ")
        console.print(table)
    if args.plot:
        draw(results, Path(args.plot))
    if args.write:
        draw(results, IMAGE)
        write_page(tables, args.seeds, args.note)


if __name__ == "__main__":
    main()
