"""What a training run shows on a terminal: a bar for the epoch that runs, a row for each done.

Pass these to :meth:`bireme.Module.fit`; users know them as ``bireme.callbacks.ProgressBar`` and
``bireme.callbacks.EpochTable``.
"""

import time
from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from bireme.train.events import BatchEnd, EpochEnd

__all__ = ("EpochTable", "ProgressBar")

WIDE = 110


class ProgressBar:
    """Shows the running epoch: a bar on a terminal, a plain line now and then elsewhere.

    A batch callback. Give it and :class:`EpochTable` the same ``console``, so that rows appear
    above the bar.

    Args:
        console: Where to draw; standard output by default.
        plain_every_s: Where the console is no terminal, seconds between two lines at least.
        clock: Returns the time in seconds.

    Example:
        >>> bar = ProgressBar()
        >>> # module.fit(data, num_epoch=3, batch_end_callback=bar)
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        plain_every_s: float = 10.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._console = console if console is not None else Console(highlight=False)
        self._plain_every_s, self._clock = plain_every_s, clock
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._epoch: int | None = None
        self._epoch_s = self._plain_s = clock()
        self._num_samples = 0

    def __call__(self, end: BatchEnd) -> None:
        """Show that a batch is done."""
        now_s = self._clock()
        if end.epoch != self._epoch:
            self.close()
            self._epoch, self._epoch_s, self._num_samples = end.epoch, now_s, 0
            first_samples = end.num_samples
        else:
            first_samples = 0
        # The first batch of an epoch is done before the clock starts, so it does not count.
        self._num_samples += end.num_samples - first_samples
        if self._console.is_terminal:
            self._draw(end, self._speed(now_s))
        elif now_s - self._plain_s >= self._plain_every_s:
            self._plain_s = now_s
            of = "" if end.num_batches is None else f"/{end.num_batches}"
            self._console.print(
                f"epoch {end.epoch + 1}/{end.num_epoch}  batch {end.batch + 1}{of}  "
                f"{_shown(end)}  {self._speed(now_s)}",
                markup=False,
                soft_wrap=True,
            )

    def close(self) -> None:
        """Take the bar away; called by ``fit`` at its end, also after an error."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @property
    def _is_wide(self) -> bool:
        """Whether there is room for the metrics beside the loss."""
        return self._console.width >= WIDE

    def _speed(self, now_s: float) -> str:
        duration_s = now_s - self._epoch_s
        if duration_s <= 0 or not self._num_samples:
            return ""
        return f"{self._num_samples / duration_s:,.0f} samples/s"

    def _draw(self, end: BatchEnd, speed: str) -> None:
        if self._progress is None:
            self._progress = Progress(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(bar_width=24 if self._is_wide else 16),
                TextColumn("{task.completed}{task.fields[of]}"),
                TextColumn("[dim]{task.fields[values]}[/dim]"),
                TextColumn("[cyan]{task.fields[speed]}[/cyan]"),
                TimeRemainingColumn(compact=True),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task(
                "",
                total=end.num_batches,
                epoch=f"{end.epoch + 1}/{end.num_epoch}",
                of="" if end.num_batches is None else f"/{end.num_batches}",
                values="",
                speed="",
            )
            self._progress.start()
        values = _shown(end) if self._is_wide else f"loss {end.loss:.4f}"
        self._progress.update(self._task, completed=end.batch + 1, speed=speed, values=values)
        if end.batch + 1 == end.num_batches:
            self.close()


class EpochTable:
    """Writes a row for each epoch: loss, metrics, samples/s, and the share of each context.

    An epoch callback. ``eval`` columns appear where there is ``eval_data``.

    Args:
        console: Where to write; standard output by default.

    Example:
        >>> table = EpochTable()
        >>> # module.fit(data, num_epoch=3, epoch_end_callback=table)
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console if console is not None else Console(highlight=False)
        self._headings: list[str] = []

    def __call__(self, end: EpochEnd) -> None:
        """Write one row; the headings too where they are new."""
        cells = _cells(end)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        headings = [heading for heading, _ in cells]
        table.show_header = headings != self._headings
        self._headings = headings
        widths = [max(len(heading), len(value), 7) for heading, value in cells]
        for heading, width in zip(headings, widths, strict=True):
            table.add_column(heading, justify="right", min_width=width, no_wrap=True)
        table.add_row(*(value for _, value in cells))
        # With many contexts a row may be wider than the console: better broken than cut short.
        needed = sum(widths) + 3 * len(widths)
        self._console.print(table, width=max(needed, self._console.width), crop=False)


def _cells(end: EpochEnd) -> list[tuple[str, str]]:
    """Return heading and content of each column."""
    cells = [("epoch", f"{end.epoch + 1}/{end.num_epoch}"), ("loss", f"{end.loss:.4f}")]
    cells += [(name, _number(name, value)) for name, value in end.metrics.items() if name != "loss"]
    cells += [(f"eval {name}", _number(name, value)) for name, value in end.evaluation.items()]
    cells.append(("samples/s", f"{end.samples_per_s:,.0f}"))
    contexts = end.module.context
    if len(contexts) > 1:
        shares = zip(contexts, end.sample_shares, strict=True)
        cells += [(str(context), f"{share:.1%}") for context, share in shares]
    return cells


def _number(name: str, value: float) -> str:
    return f"{value:.2%}" if "accuracy" in name else f"{value:.4f}"


def _shown(end: BatchEnd) -> str:
    values = {"loss": end.loss} | end.metrics
    return "  ".join(f"{name} {_number(name, value)}" for name, value in values.items())
