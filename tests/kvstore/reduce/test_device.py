import pytest
import torch

from bireme.kvstore.reduce import DeviceReducer, HostReducer, Sum


class Recorder(HostReducer):
    def __init__(self) -> None:
        super().__init__()
        self.keys: list[object] = []

    def run(self, jobs) -> None:
        self.keys += [job.key for job in jobs]
        super().run(jobs)


def test_only_host_jobs_go_to_the_host():
    # The meta device stands for an accelerator: it follows shapes and devices without data.
    host = Recorder()
    on_host, there = torch.zeros(2), torch.zeros(2, device="meta")
    DeviceReducer(host).run(
        [
            Sum("host", [torch.ones(2)] * 2, [on_host]),
            Sum("device", [there, there, there], [there]),
            Sum("half", [there.half(), there.half()], [there.half(), there.half()]),
            Sum("pull", [there], [there, there]),
        ]
    )
    assert host.keys == ["host"]
    assert on_host.tolist() == [2, 2]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_on_cuda(dtype):
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())] * 2
    values = [torch.full((1000,), 2, dtype=dtype, device=device) for device in devices]
    outs = [torch.empty_like(value) for value in values] + [torch.empty(1000, dtype=dtype)]
    DeviceReducer(HostReducer()).run([Sum("k", values, outs)])
    assert all((out == 2 * len(values)).all() for out in outs)
