import pytest
import torch

from bireme import compress
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore import DeviceStore

GRADS = (0.4, 0.1, 0.2, 0.3, -0.7, 0, 0, 2.0, 0, 0, 0, 0)
STORED = (0, 2, 2, 4, 2, 2, 2, 4, 6, 8, 8, 8)


@pytest.fixture
def store():
    with DeviceStore() as store:
        yield store


def ones(value: float = 1.0) -> torch.Tensor:
    return torch.full((4,), float(value))


class TestHomes:
    def test_keys_are_spread_by_size(self, store):
        sizes = {"a": 10, "b": 40, "c": 30, "d": 5}
        store.init(list(sizes), [torch.zeros(size) for size in sizes.values()])
        assert store.home("a") is None
        store.push("d", [torch.ones(5), torch.ones(5)])
        assert {key: store.home(key) for key in sizes} == {"b": 0, "c": 1, "a": 1, "d": 0}

    def test_later_keys_fill_up(self, store):
        store.init("a", torch.zeros(100))
        store.push("a", [torch.ones(100)] * 2)
        store.init(["b", "c"], [torch.zeros(10)] * 2)
        store.push(["b", "c"], [[torch.ones(10)] * 2] * 2)
        assert [store.home(key) for key in "abc"] == [0, 1, 1]

    def test_one_device_places_nothing(self, store):
        store.init("a", torch.zeros(2))
        store.push("a", torch.ones(2))
        assert store.home("a") is None

    def test_number_of_devices_may_change(self, store):
        store.init([0, 1, 2], [ones(0)] * 3)
        for num_devices in (3, 1, 4, 2):
            store.push([0, 1, 2], [[ones()] * num_devices] * 3)
            assert torch.equal(store.pull(2), ones(num_devices))


class TestCompression:
    def test_two_bit_sequence_of_two_workers(self, store):
        store.init(0, ones(0))
        store.set_updater(lambda key, merged, stored: stored.add_(2 * merged))
        store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        seen = []
        for grad in GRADS:
            store.push(0, [ones(grad), ones(grad)])
            assert (store.pull(0) == store.pull(0)[0]).all()
            seen.append(store.pull(0)[0].item())
        assert seen == list(STORED)

    def test_init_and_row_sparse_values_are_not_compressed(self, store):
        store.set_gradient_compression({"type": "2bit"})
        store.init(["d", "r"], [torch.full((3, 2), 0.3), torch.full((3, 2), 0.3).to_sparse(1)])
        assert store.pull("d")[0, 0].item() == pytest.approx(0.3)
        store.push(["d", "r"], [[torch.full((3, 2), 0.3).to_sparse(1)] * 2] * 2)
        assert store.pull("d")[0, 0].item() == pytest.approx(0.6)
        assert store.pull("r").to_dense()[0, 0].item() == pytest.approx(0.6)

    def test_pushpull(self, store):
        store.init(0, ones(0))
        store.set_gradient_compression({"type": "2bit"})
        values = [ones(0.7), ones(0.2)]
        store.pushpull(0, values)
        assert all(torch.equal(value, ones(0.5)) for value in values)

    def test_switching_off_drops_residuals(self, store):
        store.init(0, ones(0))
        store.set_gradient_compression({"type": "2bit"})
        store.push(0, ones(0.4))
        store.set_gradient_compression(None)
        store.push(0, ones(0.4))
        assert torch.equal(store.pull(0), ones(0.4))
        store.set_gradient_compression({"type": "2bit"})
        store.push(0, ones(0.2))
        assert torch.equal(store.pull(0), ones(0))

    def test_a_compressor_of_ones_own(self, store):
        store.init(0, ones(0))
        store.set_gradient_compression(compress.ErrorFeedback(compress.TwoBit(0.25)))
        store.push(0, ones(0.3))
        assert torch.equal(store.pull(0), ones(0.25))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
    def test_unsupported_type_changes_nothing(self, store, dtype):
        store.init([0, 1], [ones(), ones().to(dtype)])
        store.set_gradient_compression({"type": "2bit"})
        with pytest.raises(UnsupportedError):
            store.push([0, 1], [ones(5), ones(5).to(dtype)])
        assert [value[0].item() for value in store.pull([0, 1])] == [1, 1]

    @pytest.mark.parametrize(
        "bad", [{"type": "3bit"}, {}, {"type": "2bit", "threshold": -1}, "2bit", 3]
    )
    def test_bad_parameters_leave_the_old_setting(self, store, bad):
        store.init(0, ones(0))
        store.set_gradient_compression({"type": "2bit"})
        with pytest.raises(ConfigError):
            store.set_gradient_compression(bad)
        store.push(0, ones(0.7))
        assert torch.equal(store.pull(0), ones(0.5))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestCuda:
    def test_value_moves_to_the_devices(self, store):
        store.init(0, torch.zeros(1000))
        store.pushpull(0, [torch.ones(1000, device="cuda")] * 2, torch.empty(1000, device="cuda"))
        assert store.pull(0).is_cuda
        assert (store.pull(0) == 2).all()

    def test_streams_are_ordered(self, store):
        store.init(0, torch.zeros(1 << 22, device="cuda"))
        writer, reader = torch.cuda.Stream(), torch.cuda.Stream()
        for number in range(20):
            with torch.cuda.stream(writer):
                store.push(0, torch.full((1 << 22,), float(number), device="cuda"))
            with torch.cuda.stream(reader):
                value = store.pull(0)
                assert (value == number).all()
