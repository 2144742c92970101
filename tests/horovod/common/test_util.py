import os

import pytest

from bireme.horovod.common import util


def test_torch_is_available_and_nothing_else():
    assert util.extension_available("torch")
    assert not util.extension_available("tensorflow")
    assert not util.extension_available("mxnet", verbose=True)
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod.tensorflow has not been built"):
        util.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "x")
    util.check_installed_version("pytorch", "1.0")


def test_what_is_built():
    assert util.gloo_built()
    assert not util.mpi_built(verbose=True)
    assert not util.ddl_built()
    assert not util.ccl_built()
    assert util.nccl_built() in (True, False)
    assert util.gpu_available("torch") in (True, False)
    assert not util.gpu_available("tensorflow")


def test_results_are_remembered():
    calls = []

    @util._cache
    def question(number, verbose=False):
        calls.append(number)
        return number

    assert [question(1), question(1), question(2), question(1, verbose=True)] == [1, 1, 2, 1]
    assert calls == [1, 2, 1]


def test_env_sets_variables_for_a_while():
    with util.env(HOROVOD_TEST_UTIL="1", HOROVOD_NOT=None):
        assert os.environ["HOROVOD_TEST_UTIL"] == "1"
    assert "HOROVOD_TEST_UTIL" not in os.environ


def test_op_comes_in_the_place_of_average():
    class Ops:
        Average, Sum = 0, 1

    choose = util.get_average_backwards_compatibility_fun(Ops)
    assert choose(None, None) == 0
    assert choose(5, None) == 5
    with pytest.warns(DeprecationWarning, match="replaced with `op`"):
        assert choose(None, False) == 1
    with pytest.warns(DeprecationWarning, match="replaced with `op`"):
        assert choose(None, True) == 0
    with pytest.raises(ValueError, match="supersedes"):
        choose(0, True)


@pytest.mark.parametrize(
    ("items", "n", "parts"),
    [
        ([1, 2, 3, 4, 5], 2, [[1, 2, 3], [4, 5]]),
        ([1, 2], 3, [[1], [2], []]),
        ([], 1, [[]]),
        ([1, 2, 3, 4], 4, [[1], [2], [3], [4]]),
    ],
)
def test_lists_are_split_evenly(items, n, parts):
    assert util.split_list(items, n) == parts


def test_small_questions():
    assert [n for n in range(-1, 9) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert util.is_iterable("ab")
    assert not util.is_iterable(3)
