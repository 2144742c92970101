import io

import pytest
import torch
from rich.console import Console
from torch import nn

from bireme import Module
from bireme.train.display import EpochTable, ProgressBar

DATA = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.long))] * 3


def console_of(*, terminal, width=100):
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, color_system=None
    )


def fit(batch=(), epoch=(), num_contexts=1, data=DATA, **options):
    torch.manual_seed(0)
    contexts = [f"cpu({index})" for index in range(num_contexts)]
    loads = [3, 1] if num_contexts == 2 else None
    module = Module(nn.Linear(2, 2), nn.functional.cross_entropy, contexts, loads)
    module.fit(data, num_epoch=2, batch_end_callback=batch, epoch_end_callback=epoch, **options)


@pytest.mark.parametrize("width", [80, 140])
def test_the_bar_moves_and_goes_away(width):
    console = console_of(terminal=True, width=width)
    fit(ProgressBar(console))
    shown = console.file.getvalue()
    for part in ("epoch 1/2", "epoch 2/2", "3/3", "loss ", "samples/s"):
        assert part in shown
    assert ("accuracy" in shown) == (width == 140)
    # Hidden as often as shown again, and the last bar's line is erased.
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 2
    assert shown.endswith("\x1b[1A\x1b[2K")


def test_data_of_unknown_length_has_a_bar_too():
    class Endless:
        def __iter__(self):
            return iter(DATA)

    console = console_of(terminal=True)
    fit(ProgressBar(console), data=Endless())
    shown = console.file.getvalue()
    assert "epoch 2/2" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")


def test_the_cursor_comes_back_after_an_error():
    console = console_of(terminal=True)

    def fail(end):
        raise KeyError("stop")

    with pytest.raises(KeyError):
        fit([ProgressBar(console), fail])
    shown = console.file.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1


def test_elsewhere_there_is_a_plain_line_now_and_then():
    console = console_of(terminal=False)
    times = iter(range(100))
    fit(ProgressBar(console, plain_every_s=4, clock=lambda: float(next(times))))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("epoch 2/2  batch 1/3  loss ")
    quiet = console_of(terminal=False)
    fit(ProgressBar(quiet, clock=lambda: 0.0))
    assert quiet.file.getvalue() == ""


def test_the_table_grows_by_a_row_per_epoch():
    console = console_of(terminal=False)
    fit(epoch=EpochTable(console), num_contexts=2, eval_data=DATA, eval_metric=["acc", "loss"])
    lines = console.file.getvalue().splitlines()
    headings = lines[0].split()
    assert headings == [
        "epoch",
        "loss",
        "accuracy",
        "eval",
        "loss",
        "eval",
        "accuracy",
        "samples/s",
        "cpu(0)",
        "cpu(1)",
    ]
    rows = [line.split() for line in lines[2:]]
    assert [row[0] for row in rows] == ["1/2", "2/2"]
    assert rows[0][-2:] == ["75.0%", "25.0%"]
    assert len({len(line.rstrip()) for line in lines}) == 1


def test_one_context_has_no_share_and_no_evaluation_no_column():
    console = console_of(terminal=False)
    fit(epoch=EpochTable(console))
    assert console.file.getvalue().splitlines()[0].split() == [
        "epoch",
        "loss",
        "accuracy",
        "samples/s",
    ]


def test_many_contexts_are_not_cut_short():
    console = console_of(terminal=False, width=40)
    fit(epoch=EpochTable(console), num_contexts=7)
    headings, _, *rows = (line.split() for line in console.file.getvalue().splitlines())
    assert headings[-7:] == [f"cpu({index})" for index in range(7)]
    # Batches of 4 leave the last three contexts without samples.
    assert [row[-7:] for row in rows] == [["25.0%"] * 4 + ["0.0%"] * 3] * 2
