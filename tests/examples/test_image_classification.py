import re

import numpy as np
import pytest

SCRIPT = "image_classification.py"
NAMES = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]


def write_cifar10(directory):
    """Write files of ten images each: one pattern per class, with noise."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 200, (10, 3, 4, 4)).repeat(8, axis=2).repeat(8, axis=3)
    for name in NAMES:
        pixels = patterns.reshape(10, 3072) + rng.integers(0, 56, (10, 3072))
        labels = np.arange(10)[:, None]
        np.concatenate([labels, pixels], axis=1).astype(np.uint8).tofile(directory / name)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vgg11", "resnet18"])
def test_benchmark_needs_no_data(run_example, network):
    sizes = ("--num-examples", 8, "--batch-size", 4, "--num-epochs", 1)
    output = run_example(SCRIPT, "--benchmark", 1, "--network", network, "--num-cpus", 2, *sizes)
    assert f"{network} on cpu(0), cpu(1): 8 images to train, 4 to test" in output
    assert re.search(r"[\d.]+ samples/s, shares 0.50 0.50", output)


@pytest.mark.slow
def test_files_of_cifar10_are_learnt(tmp_path, run_example):
    write_cifar10(tmp_path)
    sizes = ("--batch-size", 10, "--num-epochs", 4, "--lr", 0.003)
    output = run_example(SCRIPT, "--network", "vgg11", "--data-dir", tmp_path, *sizes)
    assert "50 images to train, 10 to test" in output
    losses = [float(loss) for loss in re.findall(r"^Epoch \d+: loss ([\d.]+)", output, re.M)]
    assert len(losses) == 4
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--data-dir, or pass --benchmark 1"),
        (("--data-dir", "/no/such"), "/no/such: not a directory"),
        (("--network", "lenet"), "invalid choice: 'lenet'"),
        (("--batch-size", "two"), "'two' is not an integer >= 1"),
    ],
)
def test_a_mistake_is_named(refusal, arguments, says):
    assert says in refusal(SCRIPT, *arguments)


def test_a_directory_without_the_files_is_named(tmp_path, refusal):
    assert "data_batch_1.bin" in refusal(SCRIPT, "--data-dir", tmp_path)
