import argparse
import importlib
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bireme.errors import ConfigError

SCRIPT = "train_mnist.py"
ROOT = Path(__file__).resolve().parents[2]
MNIST = ROOT.parent / "shared" / "data" / "mnist"


def epochs(output):
    """Return (loss, train accuracy, test accuracy) of each epoch."""
    found = re.findall(
        r"^Epoch \d+: loss ([\d.]+), train accuracy ([\d.]+), test accuracy ([\d.]+)", output, re.M
    )
    return [tuple(map(float, line)) for line in found]


@pytest.mark.slow
def test_digits_are_learnt_on_unequal_contexts(run_example):
    output = run_example(SCRIPT, "--num-cpus", 2, "--work-load-list", "3,1", "--disp-batches", 10)
    assert "lenet on cpu(0), cpu(1): 1500 images to train, 297 to test" in output
    assert len(epochs(output)) == 10
    assert epochs(output)[-1][2] > 0.95
    assert output.count("shares 0.75 0.25") == 10
    assert "Speed:" in output


@pytest.mark.slow
def test_contexts_and_shares_do_not_change_what_is_learnt(run_example):
    common = (SCRIPT, "--network", "mlp", "--dtype", "float64", "--num-epochs", 3)
    one = epochs(run_example(*common))
    three = epochs(run_example(*common, "--num-cpus", 3, "--work-load-list", "3,1,2"))
    assert len(one) == len(three) == 3
    for here, there in zip(one, three, strict=True):
        assert here == pytest.approx(there, abs=2e-4)  # the last printed digit may round


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (
            ("--gc-type", "bf16", "--work-load-list", "auto", "--optimizer", "adam", "--lr", 0.005),
            0.9,
        ),
        (("--gc-type", "2bit", "--gc-threshold", 0.005, "--mom", 0, "--lr", 0.1), 0.7),
        (("--gc-type", "fp16", "--dtype", "bfloat16", "--lr-step-epochs", "8,9"), 0.85),
        (("--dtype", "float16", "--kv-store", "local", "--wd", 0), 0.9),
    ],
)
def test_options_reach_the_training(run_example, arguments, least):
    output = run_example(
        SCRIPT, "--network", "mlp", "--num-cpus", 2, "--num-epochs", 10, *arguments
    )
    assert epochs(output)[-1][2] > least


@pytest.mark.slow
def test_one_bit_learns_at_a_small_rate(run_example):
    # The code is plus or minus one whatever the gradient's size.
    common = (SCRIPT, "--network", "mlp", "--num-epochs", 20, "--num-cpus", 2)
    output = run_example(*common, "--gc-type", "1bit", "--gc-threshold", 0, "--lr", 5e-4)
    losses = [loss for loss, _, _ in epochs(output)]
    assert losses[-1] < losses[0] - 0.03


@pytest.mark.slow
def test_a_checkpoint_goes_on_as_if_nothing_had_happened(tmp_path, run_example):
    common = (SCRIPT, "--network", "mlp", "--num-epochs", 4)
    save = ("--model-prefix", tmp_path / "net", "--save-period", 2)
    whole = epochs(run_example(*common, *save))
    assert {path.name for path in tmp_path.glob("*.json")} == {"net-0002.json", "net-0004.json"}
    resumed = epochs(run_example(*common, *save, "--load-epoch", 2))
    assert resumed == whole[2:]


@pytest.mark.slow
def test_benchmark_needs_no_data(run_example):
    arguments = ("--benchmark", 1, "--network", "mlp", "--num-examples", 640, "--num-epochs", 1)
    output = run_example(SCRIPT, *arguments)
    assert "640 images to train, 64 to test" in output
    assert re.search(r"[1-9]\d* samples/s", output)


@pytest.mark.slow
@pytest.mark.mnist
@pytest.mark.timeout(120)
@pytest.mark.skipif(not MNIST.is_dir(), reason=f"MNIST's files are not in {MNIST}")
def test_mnist_is_learnt(run_example):
    # A third of the images once: all of them three times come above 98.5 %, in a minute or two.
    output = run_example(SCRIPT, "--data-dir", MNIST, "--num-examples", 20000, "--num-epochs", 1)
    assert "20000 images to train, 10000 to test" in output
    assert epochs(output)[-1][2] > 0.96


@pytest.mark.slow
def test_a_refusal_is_one_line_and_status_2():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / SCRIPT), "--data-dir", "/no/such"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "train_mnist.py: error: /no/such: no such directory\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--network", "alexnet"), "invalid choice: 'alexnet'"),
        (("--gpus", "0,0"), "named twice"),
        (("--gpus", "98,99"), "gpu(98), but this machine has"),
        (("--num-cpus", "0"), "'0' is not an integer >= 1"),
        (("--work-load-list", "3,1"), "one number per context (1)"),
        (("--work-load-list", "3,x", "--num-cpus", 2), "got '3,x'"),
        (("--kv-store", "nothing"), "'nothing'"),
        (("--optimizer", "nothing"), "no optimizer 'nothing'"),
        (("--optimizer", "adam", "--mom", "0.9"), "no argument 'momentum'"),
        (("--gc-threshold", "0.5"), "means nothing to --gc-type none"),
        (("--gc-type", "2bit", "--gc-threshold", "0"), "threshold"),
        (("--gc-type", "4bit"), "invalid choice: '4bit'"),
        (("--dtype", "int8"), "invalid choice: 'int8'"),
        (("--lr", "nan"), "'nan' is not a number > 0"),
        (("--wd", "-1"), "'-1' is not a number >= 0"),
        (("--lr-step-epochs", "3,2"), "increasing order"),
        (("--load-epoch", "1"), "--load-epoch needs --model-prefix"),
        (("--load-epoch", "3", "--model-prefix", "x", "--num-epochs", "3"), "nothing to do"),
        (("--load-epoch", "1", "--model-prefix", "/no/such"), "/no/such-0001"),
        (("--benchmark", "1", "--data-dir", "x"), "leave out --data-dir"),
        (("--benchmark", "2"), "invalid choice: 2"),
        (("--batch", "2"), "unrecognized arguments"),
    ],
)
def test_a_mistake_is_named(refusal, arguments, says):
    assert says in refusal(SCRIPT, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (("--kv-store", "dist_bounded", "--staleness", 2, "--lr", 0.02), 0.9),
        (
            (
                "--kv-store",
                "dist_local",
                "--local-steps",
                4,
                "--outer",
                "nesterov",
                "--fragments",
                2,
                "--delay",
                1,
            ),
            0.85,
        ),
    ],
)
def test_two_workers_that_do_not_wait_for_every_step(arguments, least):
    command = [
        *(sys.executable, "-m", "bireme", "run", "-n", "2", sys.executable),
        *(ROOT / "examples" / SCRIPT, "--network", "mlp", "--num-epochs", "12"),
        *arguments,
    ]
    ended = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.partition("| ")[2] for line in ended.stdout.splitlines()]
    found = epochs("\n".join(lines))
    assert len(found) == 24
    assert found[-1][2] > least


@pytest.mark.slow
@pytest.mark.parametrize(("loads", "shown"), [("3,1", r"\[96, 32\]"), ("auto", r"\[\d+, \d+\]")])
def test_workers_share_batches(loads, shown):
    job = ("-m", "bireme", "run", "-n", "2", sys.executable, str(ROOT / "examples" / SCRIPT))
    arguments = ("--kv-store", "dist_sync", "--network", "mlp", "--num-epochs", "2")
    done = subprocess.run(
        [sys.executable, *job, *arguments, "--work-load-list", loads],
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    assert len(re.findall(rf"workers' samples of a batch {shown}", done.stdout)) == 4


@pytest.mark.parametrize(
    ("given", "num_cpus", "num_workers", "expected"),
    [
        ("3,1", 1, 1, (None, [3.0, 1.0])),
        ("3,1", 1, 2, ([3.0, 1.0], None)),
        ("3,1", 2, 3, (None, [3.0, 1.0])),
        ("auto", 1, 2, ("auto", None)),
        ("auto", 2, 2, ("auto", "auto")),
        (None, 1, 2, (None, None)),
        ("3,1", 2, 2, None),
    ],
)
def test_what_a_list_means(monkeypatch, given, num_cpus, num_workers, expected):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    training = importlib.import_module("training")
    args = argparse.Namespace(work_load_list=given, gpus=None, num_cpus=num_cpus)
    store = types.SimpleNamespace(num_workers=num_workers, meets_in_rounds=True, type="dist_sync")
    if expected is None:
        with pytest.raises(ConfigError, match="may mean the 2 workers or the 2 contexts"):
            training._work_loads(args, store)
    else:
        assert training._work_loads(args, store) == expected
