import re

import numpy as np
import pytest

SCRIPT = "image_classification.py"
NAMES = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]


def write_cifar10(directory):
    """Write files of ten images each whose brightness tells the class, with a little noise."""
    rng = np.random.default_rng(0)
    for name in NAMES:
        labels = np.arange(10, dtype=np.uint8)[:, None]
        pixels = labels * 24 + rng.integers(0, 8, (10, 3072), dtype=np.uint8)
        np.concatenate([labels, pixels.astype(np.uint8)], axis=1).tofile(directory / name)


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
    sizes = ("--batch-size", 10, "--num-epochs", 4, "--lr", 0.01)
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
