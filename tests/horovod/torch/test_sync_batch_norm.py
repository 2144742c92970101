import pytest
import torch

from bireme.horovod.torch import sync_batch_norm


def test_of_one_process_it_is_torchs_own(hvd):
    torch.manual_seed(0)
    ours, theirs = hvd.SyncBatchNorm(3), torch.nn.BatchNorm2d(3)
    x = torch.randn(4, 3, 2, 2)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)
    ours.eval()
    theirs.eval()
    assert torch.equal(ours(x), theirs(x))


def test_inputs_that_do_not_fit_are_value_errors(hvd):
    with pytest.raises(ValueError, match="at least 2D input"):
        hvd.SyncBatchNorm(3)(torch.ones(3))
    with pytest.raises(ValueError, match="expected 3 channels, got 4"):
        hvd.SyncBatchNorm(3)(torch.ones(2, 4))


@pytest.mark.parametrize("shape", [(6, 3), (5, 3, 2), (4, 3, 2, 2), (2, 3, 2, 1, 2)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_the_shared_arithmetic_equals_torchs(hvd, monkeypatch, shape, affine, momentum):
    # Forced through the path of several processes: with one, both must agree.
    monkeypatch.setattr(
        sync_batch_norm.SyncBatchNorm, "_alone", lambda *_: pytest.fail("not shared")
    )
    monkeypatch.setattr(hvd.global_process_set, "size", lambda: 2)
    torch.manual_seed(0)
    options = {"affine": affine, "momentum": momentum, "dtype": torch.float64}
    theirs = torch.nn.BatchNorm1d(3, **options)
    theirs._check_input_dim = lambda _: None
    options.pop("dtype")
    ours = hvd.SyncBatchNorm(3, **options).double()
    for _ in range(2):
        x = torch.randn(shape, dtype=torch.float64)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        weights = torch.randn(shape, dtype=torch.float64)
        (ours(a) * weights).sum().backward()
        (theirs(b) * weights).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)
    assert int(ours.num_batches_tracked) == 2
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


def test_16_bit_inputs_are_summed_in_float32(hvd, monkeypatch):
    monkeypatch.setattr(hvd.global_process_set, "size", lambda: 2)
    x = torch.randn(64, 2).to(torch.bfloat16)
    result = hvd.SyncBatchNorm(2)(x)
    assert result.dtype is torch.bfloat16
    torch.testing.assert_close(
        result.float(), torch.nn.BatchNorm1d(2)(x.float()), atol=2e-2, rtol=2e-2
    )


def test_an_empty_batch_takes_part(hvd, monkeypatch):
    monkeypatch.setattr(hvd.global_process_set, "size", lambda: 2)
    norm = hvd.SyncBatchNorm(2)
    x = torch.empty(0, 2, requires_grad=True)
    norm(x).sum().backward()
    assert x.grad.shape == (0, 2)
    assert torch.equal(norm.running_mean, torch.zeros(2))
