"""All-reduces in place are known again, and what comes in between is nobody's error."""

import pytest
import torch

from bireme.horovod.session import CURRENT


def reduced(hvd, tensor, **how):
    return hvd.synchronize(hvd.allreduce_async_(tensor, **how))


def test_only_a_name_is_remembered(hvd):
    reduced(hvd, torch.ones(3), name="a", op=hvd.Sum)
    reduced(hvd, torch.ones(3), op=hvd.Sum)
    assert [name for name, _, _ in CURRENT._repeats] == ["a"]


@pytest.mark.parametrize("count", [1, 4])
def test_however_often_it_repeats_the_result_is_that_of_now(hvd, count):
    for number in range(count):
        tensor = torch.full((3,), float(number))
        result = reduced(hvd, tensor, name="a", op=hvd.Sum, prescale_factor=2.0)
        assert result is tensor
        assert tensor.tolist() == [2.0 * number] * 3


def test_a_shutdown_by_another_thread_right_after_a_submission_is_no_error_of_it(hvd, monkeypatch):
    number_of = CURRENT.number_of

    def overtaken(key, pending):
        number = number_of(key, pending)
        # As `Session.stop` does.
        CURRENT.pending.clear()
        return number

    monkeypatch.setattr(CURRENT, "number_of", overtaken)
    assert isinstance(hvd.allreduce_async_(torch.ones(3), name="a", op=hvd.Sum), int)
    assert not CURRENT._repeats
