import torch
from tests.collective.bank.crew import Crew

from bireme.collective.bank.elements import Reduction
from bireme.collective.exchange import OneMachine


def test_one_machine_takes_every_call_of_the_interface():
    with Crew(2) as crew:

        def work(bank):
            exchange = OneMachine(bank)
            mine = torch.full((2,), bank.rank + 1.0)
            first = mine.clone()
            exchange.all_reduce(first, Reduction.SUM, 10)
            second = mine.clone()
            exchange.reduce(second, 0, Reduction.MAX, 10)
            part = torch.empty(1)
            exchange.reduce_scatter(list(mine.split(1)), part, Reduction.SUM, 10)
            third = mine.clone()
            exchange.broadcast(third, 1, 10)
            both = [torch.empty(2), torch.empty(2)]
            exchange.all_gather(mine, both, 10)
            rooted = [torch.empty(2), torch.empty(2)] if bank.rank == 0 else None
            exchange.gather(mine, rooted, 0, 10)
            given = torch.empty(2)
            exchange.scatter(rooted, given, 0, 10)
            crossed = [torch.empty(1), torch.empty(1)]
            exchange.all_to_all(list(mine.split(1)), crossed, 10, are_equal=True)
            exchange.barrier(10)
            return [each.tolist() for each in (first, second, part, third, *both, given, *crossed)]

        one, two = crew.run(work)
        assert one == [[3, 3], [2, 2], [3], [2, 2], [1, 1], [2, 2], [1, 1], [1], [2]]
        assert two == [[3, 3], [2, 2], [3], [2, 2], [1, 1], [2, 2], [2, 2], [1], [2]]
