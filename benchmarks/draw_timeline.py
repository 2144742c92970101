"""Draws some seconds of one worker's timeline: what it computes and waits for, sends and receives.

Reads a file that ``BIREME_TIMELINE`` made, such as one of ``bench_overlap.py --trace``. Needs
matplotlib (the ``bench`` extra). Usage::

    python benchmarks/draw_timeline.py trace.worker0.json overlap.png \\
        --rows "without overlap:4:5" "with overlap:6:7"

A row is a title and two steps by number: what lies between their ends is drawn.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]

SHADES = {"forward": "#4878a8", "backward": "#7a5195", "wait": "#dddddd", "step": "#e1812c"}
ROWS = {"compute": 3, "sent": 2, "received": 1}
LABELS = {
    "compute": "computes\n(grey: waits,\norange: step)",
    "sent": "pushes leave",
    "received": "values arrive",
}


class Trace:
    """The events of one worker, in seconds."""

    def __init__(self, path: str) -> None:
        events: list[Event] = json.loads(Path(path).read_text())["traceEvents"]
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and "tid" in e}
        self.spans = [
            (lanes[e["tid"]], e["name"], e["ts"] / 1e6, e["dur"] / 1e6)
            for e in events
            if e["ph"] == "X"
        ]
        begun = {e["id"]: e for e in events if e["ph"] == "b"}
        # A slice is on its way until it has left; what is drawn is when that was.
        self.left = [(begun[e["id"]]["name"], e["ts"] / 1e6) for e in events if e["ph"] == "e"]
        self.come = [(e["name"], e["ts"] / 1e6) for e in events if e["ph"] == "i"]

    def steps(self) -> list[tuple[float, float]]:
        """Return begin and end of every call of ``step``."""
        return [(at, at + dur) for lane, name, at, dur in self.spans if name == "step"]

    def order(self) -> list[str]:
        """Return the modules in the order of their forward."""
        names = [name.removeprefix("forward ") for _, name, _, _ in self.spans if "forward" in name]
        return list(dict.fromkeys(names))


def depth_of(name: str, order: Sequence[str]) -> float | None:
    """Return where in the network a slice or gradient belongs: 0 first, 1 last."""
    found = re.search(r"(?:\w+/|backward |forward )([\w.]+?)(?:\.\w+)?(?:\[|$| and)", name)
    if found is None or not order:
        return None
    module = found[1].removesuffix(".weight").removesuffix(".bias")
    return order.index(module) / max(1, len(order) - 1) if module in order else None


def draw(trace: Trace, axis: Any, begin_s: float, end_s: float) -> None:
    """Draw what happened from ``begin_s`` to ``end_s``."""
    from matplotlib import colormaps

    order, colours = trace.order(), colormaps["viridis"]
    for lane, name, at, dur in trace.spans:
        if lane != "compute" or at + dur < begin_s or at > end_s:
            continue
        kind = name.split(" ")[0]
        low, high = max(at, begin_s), min(at + dur, end_s)
        depth = depth_of(name, order)
        colour = SHADES[kind] if depth is None else colours(depth)
        height = 0.8 if kind in ("forward", "backward") else 0.5
        axis.broken_barh(
            [(low - begin_s, high - low)], (3.5 - height / 2, height), color=colour, lw=0
        )
        if kind == "backward":
            axis.broken_barh([(low - begin_s, high - low)], (3.9, 0.08), color="black", lw=0)
    for row, moments in (("sent", trace.left), ("received", trace.come)):
        for name, at in moments:
            depth = depth_of(name, order)
            if begin_s <= at <= end_s and depth is not None:
                x = at - begin_s
                axis.vlines(x, ROWS[row] + 0.1, ROWS[row] + 0.9, color=colours(depth), lw=1)
    axis.set_yticks([each + 0.5 for each in ROWS.values()], [LABELS[each] for each in ROWS])
    axis.set_xlim(0, end_s - begin_s)
    axis.set_ylim(1, 4.1)


def main() -> None:
    """Draw one file, or two above each other on the same scale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("out")
    parser.add_argument("--rows", nargs="+", required=True, metavar="TITLE:FIRST:LAST")
    arguments = parser.parse_args()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    trace = Trace(arguments.trace)
    steps = trace.steps()
    rows = [each.rsplit(":", 2) for each in arguments.rows]
    figure, axes = pyplot.subplots(len(rows), 1, figsize=(12, 2.6 * len(rows)), sharex=True)
    longest = max(steps[int(last)][1] - steps[int(first)][1] for _, first, last in rows)
    for axis, (title, first, last) in zip(axes if len(rows) > 1 else [axes], rows, strict=True):
        begin_s, end_s = steps[int(first)][1], steps[int(last)][1]
        draw(trace, axis, begin_s, end_s)
        axis.axvline(end_s - begin_s, color="black", lw=1)
        axis.set_xlim(0, longest * 1.02)
        axis.set_title(f"{title}: {end_s - begin_s:.2f} s", loc="left", fontsize=10)
    axes_below = axes[-1] if len(rows) > 1 else axes
    axes_below.set_xlabel(
        "seconds; colour: place in the network, dark first, light last; black bar: backward"
    )
    figure.tight_layout()
    figure.savefig(arguments.out, dpi=100)


if __name__ == "__main__":
    main()
