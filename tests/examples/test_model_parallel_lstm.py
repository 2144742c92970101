import re

import pytest

SCRIPT = "model_parallel_lstm.py"


def perplexities(output):
    return [float(value) for value in re.findall(r"held-out perplexity ([\d.]+)", output)]


@pytest.mark.slow
def test_perplexity_on_held_out_text_falls_well_below_the_start(run_example):
    output = run_example(SCRIPT, "--num-cpus", 2, "--num-epochs", 4)
    assert "lstm0 on cpu(0), lstm1 on cpu(1)" in output
    start, *epochs = perplexities(output)
    assert 70 < start < 80  # the alphabet has 76 characters, and nothing is learnt yet
    assert len(epochs) == 4
    assert epochs[-1] < 13
    assert epochs == sorted(epochs, reverse=True)


@pytest.mark.slow
def test_the_number_of_contexts_and_chunks_does_not_change_the_model(tmp_path, run_example):
    text = tmp_path / "text"
    text.write_text("a bireme has two banks of oars; " * 60, encoding="utf-8")
    common = ("--num-layers", 4, "--num-hidden", 8, "--num-epochs", 2, "--text", text)
    one = run_example(SCRIPT, *common, "--num-cpus", 1, "--chunks", 1)
    three = run_example(SCRIPT, *common, "--num-cpus", 3, "--chunks", 5)
    assert "lstm0 on cpu(0), lstm1 on cpu(0), lstm2 on cpu(1), lstm3 on cpu(2)" in three
    assert len(perplexities(one)) == 3
    assert perplexities(three) == pytest.approx(perplexities(one), abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--num-cpus", 3), "3 contexts for 2 layers"),
        (("--gpus", "0,x"), "0,x"),
        (("--gpus", "99"), "gpu(99), but this machine has"),
        (("--lr", "-1"), "'-1' is not a number > 0"),
        (("--num-epochs", "0"), "'0' is not an integer >= 1"),
        (("--text", "/no/such/file"), "/no/such/file"),
        (("--batch-size", "100000"), "too few for batches of 100000"),
        (("--learning-rate", "1"), "unrecognized arguments"),
    ],
)
def test_a_mistake_ends_in_one_line_and_status_2(refusal, arguments, says):
    assert says in refusal(SCRIPT, *arguments)
