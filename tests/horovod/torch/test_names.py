"""Every name of ``horovod.torch`` and its arguments, as scripts use them: a frozen surface."""

import inspect

import pytest

import bireme.horovod.torch as hvd

# Names, then what ours take beyond Horovod's; the arguments before them are Horovod's in order.
REDUCE = "average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set"
FULL = (
    "average=None, name=None, compression, op=None, prescale_factor=1.0, postscale_factor=1.0, "
    "process_set"
)
SCATTER = "name=None, op=0, process_set, prescale_factor=1.0, postscale_factor=1.0"
SCATTER_FULL = (
    "name=None, compression, op=0, process_set, prescale_factor=1.0, postscale_factor=1.0"
)
SIGNATURES = {
    "allreduce": f"tensor, {FULL}",
    "allreduce_async": f"tensor, {REDUCE}",
    "allreduce_": f"tensor, {REDUCE}",
    "allreduce_async_": f"tensor, {REDUCE}",
    "grouped_allreduce": f"tensors, {FULL}",
    "grouped_allreduce_async": f"tensors, {REDUCE}",
    "grouped_allreduce_": f"tensors, {REDUCE}",
    "grouped_allreduce_async_": f"tensors, {REDUCE}",
    "sparse_allreduce_async": "tensor, name, op, process_set",
    "allgather": "tensor, name=None, process_set",
    "allgather_async": "tensor, name=None, process_set",
    "grouped_allgather": "tensors, name=None, process_set",
    "grouped_allgather_async": "tensors, name=None, process_set",
    "broadcast": "tensor, root_rank, name=None, process_set",
    "broadcast_async": "tensor, root_rank, name=None, process_set",
    "broadcast_": "tensor, root_rank, name=None, process_set",
    "broadcast_async_": "tensor, root_rank, name=None, process_set",
    "alltoall": "tensor, splits=None, name=None, process_set",
    "alltoall_async": "tensor, splits=None, name=None, process_set",
    "reducescatter": f"tensor, {SCATTER_FULL}",
    "reducescatter_async": f"tensor, {SCATTER}",
    "grouped_reducescatter": f"tensors, {SCATTER_FULL}",
    "grouped_reducescatter_async": f"tensors, {SCATTER}",
    "join": "device=-1",
    "barrier": "process_set",
    "poll": "handle",
    "synchronize": "handle",
    "init": "comm=None, process_sets=None",
    "shutdown": "",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set",
    "allgather_object": "obj, name=None, process_set",  # process_set is ours
    "DistributedOptimizer": (
        "optimizer, named_parameters=None, compression, backward_passes_per_step=1, op=0, "
        "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, "
        "process_set"
    ),
    "SyncBatchNorm": (  # process_set is ours
        "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, process_set"
    ),
    "ProcessSet": "ranks_or_comm",
}
QUESTIONS = (
    "is_initialized size local_size cross_size rank local_rank cross_rank mpi_threads_supported "
    "mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built "
    "rocm_built"
).split()
VALUES = (
    "elastic Compression global_process_set Average Sum Adasum Min Max Product HorovodInternalError"
).split()


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_horovods(name):
    written = []
    for each in inspect.signature(getattr(hvd, name)).parameters.values():
        if each.default is inspect.Parameter.empty:
            written.append(each.name)
        elif each.default is hvd.global_process_set:
            written.append("process_set")
        elif each.default is hvd.Compression.none:
            written.append("compression")
        else:
            written.append(f"{each.name}={each.default!r}")
    assert ", ".join(written) == SIGNATURES[name]


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_have_no_arguments(name):
    assert not inspect.signature(getattr(hvd, name)).parameters


def test_every_name_is_there_and_no_other():
    # is_homogeneous is ours at the top; Horovod has it in mpi_ops only.
    assert set(hvd.__all__) == {*SIGNATURES, *QUESTIONS, *VALUES, "is_homogeneous"}
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert hvd._check_has_gpu() in (True, False)


def test_modules_hang_below_the_package():
    for name in ("mpi_ops", "compression", "functions", "optimizer", "sync_batch_norm", "elastic"):
        assert inspect.ismodule(getattr(hvd, name))
    assert hvd.elastic.TorchState
    assert hvd.elastic.ElasticSampler
    assert hvd.elastic.sampler.ElasticSampler is hvd.elastic.ElasticSampler
    assert hvd.elastic.state.get_handler_registry()


def test_methods_of_a_distributed_optimizer():
    from bireme.horovod.torch.averaging import AveragingOptimizer

    def arguments(name):
        return list(inspect.signature(getattr(AveragingOptimizer, name)).parameters)[1:]

    assert arguments("step") == ["closure"]
    assert arguments("zero_grad") == ["set_to_none"]  # Horovod takes none
    assert arguments("set_backward_passes_per_step") == ["passes"]
    assert arguments("synchronize") == arguments("skip_synchronize") == []
