from bireme.collective.bank.looking import Looking


def looks(looking, count, paid):
    """Return how many of ``count`` times it looked."""
    number = 0
    for _ in range(count):
        if looking.limit_s():
            number += 1
            looking.ended(paid)
    return number


def test_it_looks_as_long_as_it_pays():
    looking = Looking(1e-5)
    assert looks(looking, 1000, paid=True) == 1000
    assert looking.limit_s() == 1e-5


def test_where_it_does_not_pay_it_looks_now_and_then():
    looking = Looking(1e-5)
    looks(looking, 100, paid=False)
    assert 20 < looks(looking, 1000, paid=False) < 50


def test_it_looks_again_when_it_pays_again():
    looking = Looking(1e-5)
    looks(looking, 1000, paid=False)
    looks(looking, 100, paid=True)
    assert looks(looking, 100, paid=True) == 100


def test_without_cores_it_never_looks():
    assert looks(Looking(0.0), 1000, paid=True) == 0
