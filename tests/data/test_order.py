from bireme.data.order import epoch_order

PINNED = [7, 3, 5, 6, 4, 0, 2, 1]


def test_the_order_is_pinned():
    # Workers of other versions and platforms must find the same.
    assert epoch_order(8, 3, 1, shuffle=True).tolist() == PINNED
    assert epoch_order(3, 3, 1, shuffle=False).tolist() == [0, 1, 2]
    assert epoch_order(0, 3, 1, shuffle=True).tolist() == []


def test_epochs_and_seeds_differ():
    orders = {
        tuple(epoch_order(50, seed, epoch, shuffle=True).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9
    assert all(sorted(order) == list(range(50)) for order in orders)
