"""Draws a training step of a Horovod job: each rank's backward pass, and gradients on their way.

Runs the job of ``tests/integration/programs/overlapping_backward.py`` with two ranks and reads the
timelines that they write. Needs matplotlib (the ``bench`` extra). Usage::

    python benchmarks/draw_backward.py docs/images/backward.png
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "tests.integration.programs.overlapping_backward"
RANKS = 2
STEP = 3


def run(folder: str) -> None:
    """Train, so that ``folder`` holds timelines and the times of backward passes."""
    environment = os.environ | {
        "HOROVOD_TIMELINE": f"{folder}/trace.{{rank}}.json",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "OMP_NUM_THREADS": "1",
    }
    command = ["bireme", "run", "-np", str(RANKS), sys.executable, "-m", PROGRAM, folder]
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, check=True)


def reductions(path: Path) -> list[tuple[str, float, float]]:
    """Return the tensor, begin and end of each all-reduce, by the machine's clock."""
    first, *events = json.loads(path.read_text())
    origin_s = first["args"]["start_time_since_epoch_in_micros"] / 1e6
    rows = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    opened = defaultdict(list)
    found = []
    for event in events:
        if event["ph"] == "B":
            opened[event["tid"]].append(event)
        elif event["ph"] == "E":
            begun = opened[event["tid"]].pop()
            if begun["name"] == "ALLREDUCE":
                spans = (origin_s + each["ts"] / 1e6 for each in (begun, event))
                found.append((rows[event["pid"]].removeprefix("allreduce."), *spans))
    return found


def draw(axis: Any, folder: Path, rank: int, origin_s: float) -> None:
    """Draw what one rank did in the step."""
    began_s, ended_s, done_s = json.loads((folder / f"spans.{rank}.json").read_text())[STEP]
    found = [
        (name, low_s, high_s)
        for name, low_s, high_s in reductions(folder / f"trace.{rank}.json")
        if began_s <= low_s < done_s
    ]
    layers = sorted({int(name.split(".")[0]) for name, _, _ in found})
    for row, colour, low_s, high_s in (
        (len(layers), "#7a5195", began_s, ended_s),
        *((int(name.split(".")[0]), "#e1812c", *times) for name, *times in found),
    ):
        span = (1e3 * (low_s - origin_s), 1e3 * (high_s - low_s))
        axis.broken_barh([span], (row - 0.4, 0.8), color=colour, lw=0)
    axis.axvline(1e3 * (ended_s - origin_s), color="#7a5195", lw=1, ls=":")
    names = [f"layer {layer}" for layer in layers]
    axis.set_yticks(range(len(layers) + 1), [*names, "backward"], fontsize=8)
    axis.set_title(f"rank {rank}", loc="left", fontsize=10)


def main() -> None:
    """Run the job and draw its last step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    arguments = parser.parse_args()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    with tempfile.TemporaryDirectory() as name:
        run(name)
        folder = Path(name)
        starts = [json.loads((folder / f"spans.{r}.json").read_text()) for r in range(RANKS)]
        origin_s = min(spans[STEP][0] for spans in starts)
        figure, axes = pyplot.subplots(RANKS, 1, figsize=(10, 2.6 * RANKS), sharex=True)
        for rank, axis in enumerate(axes):
            draw(axis, folder, rank, origin_s)
    axes[-1].set_xlabel("milliseconds; orange: a layer's gradients are all-reduced")
    figure.tight_layout()
    figure.savefig(arguments.out, dpi=100)


if __name__ == "__main__":
    main()
