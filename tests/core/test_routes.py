from tests.core.nodes import infos, of, sent

from bireme.core.actions import Connect
from bireme.core.routes import Routes
from bireme.types.nodes import server, worker
from bireme.wire.messages import Attach

ATTACH = Attach(worker(0), 3, 1)


def test_all_servers_are_attached_before_it_is_complete():
    routes = Routes()
    assert len(of(routes.begin(list(infos(2, 2))), Connect)) == 2
    for rank in (0, 1):
        assert not routes.complete
        assert sent(routes.linked(5 + rank, server(rank), ATTACH, 0.0)) == [ATTACH]
        assert routes.link_to(rank) is None
        routes.attached(5 + rank)
        assert routes.link_to(rank) == 5 + rank
    assert routes.complete
    assert routes.next_deadline_s() is None
    assert routes.server_at(6) == 1


def test_a_lost_attach_is_sent_again():
    routes = Routes()
    routes.begin(list(infos(1, 1)))
    routes.linked(5, server(0), ATTACH, 0.0)
    assert routes.tick(ATTACH, 0.5) == []
    assert sent(routes.tick(ATTACH, routes.next_deadline_s())) == [ATTACH]


def test_a_lost_link_is_opened_again_and_again():
    routes = Routes()
    routes.begin(list(infos(1, 1)))
    routes.linked(5, server(0), ATTACH, 0.0)
    routes.attached(5)
    log, _ = lost = routes.lost(5, "reset", is_expected=True)
    assert of(lost, Connect)
    assert log.level == "debug"
    assert routes.lost(5, "reset") == []
    assert not routes.complete
    for time_s in (1.0, 2.0):
        routes.connect_failed(server(0), time_s)
        assert of(routes.tick(ATTACH, routes.next_deadline_s()), Connect)
    routes.linked(9, server(0), ATTACH, 3.0)
    assert routes.links() == [9]
