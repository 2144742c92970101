import inspect

from bireme.core.values import SlotValues
from bireme.sim.values import FloatValues


def test_the_simulators_arithmetic_offers_all_that_the_core_asks_for():
    wanted = [name for name in vars(SlotValues) if not name.startswith("_")]
    assert len(wanted) == 16
    for name in wanted:
        asked = inspect.signature(getattr(SlotValues, name)).parameters
        offered = inspect.signature(getattr(FloatValues, name)).parameters
        assert list(asked) == list(offered), name
