from bireme.horovod.torch import mpi_ops


def test_scripts_find_here_what_is_not_exported_at_the_top(hvd):
    assert mpi_ops.is_homogeneous()
    assert mpi_ops._basics.size() == 1
    assert mpi_ops._handle_map == {}
    assert mpi_ops.handle_average_backwards_compatibility(None, None) == mpi_ops.Average
    mpi_ops.check_installed_version("pytorch", "2.0")


def test_init_and_shutdown_are_those_of_the_process(hvd):
    mpi_ops.shutdown()
    assert not hvd.is_initialized()
    mpi_ops.init()
    assert mpi_ops.is_initialized()
    assert hvd.is_initialized()
