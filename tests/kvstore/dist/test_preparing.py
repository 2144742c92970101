import torch
from tests.integration.jobs import run_threads


def test_values_are_lent_only_where_no_result_is_written_over_another_value():
    def work(session):
        with session.store("dist") as store:
            memory = torch.arange(4.0)
            first, second = memory[:2], memory[2:]
            store.init(["a", "b"], [torch.zeros(2), torch.zeros(2)])
            # Crosswise: each result lands where the other value lay.
            for _ in range(3):
                memory.copy_(torch.arange(4.0))
                store.pushpull(["a", "b"], [first, second], out=[second, first])
                assert memory.tolist() == [2.0, 3.0, 0.0, 1.0]
            memory.copy_(torch.arange(4.0))
            store.pushpull(["a", "b"], [first, second])
            assert memory.tolist() == [0.0, 1.0, 2.0, 3.0]

    run_threads(1, 1, work)


def test_a_key_that_appears_twice_gets_both_values():
    def work(session):
        with session.store("dist") as store:
            store.init("a", torch.zeros(2))
            outs = [torch.empty(2), torch.empty(2)]
            for _ in range(3):
                store.pushpull(["a", "a"], [torch.ones(2), 2 * torch.ones(2)], out=outs)
                assert [out.tolist() for out in outs] == [[3.0, 3.0], [3.0, 3.0]]

    run_threads(1, 1, work)
