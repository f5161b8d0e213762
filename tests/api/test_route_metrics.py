"""The policy of `skiff route` that goes by what servers tell of themselves."""
from fake_backend import FakeBackend
from test_route import Router, made  # noqa: F401 (a fixture)


def gauges(running, waiting=0):
    return (f"fastdeploy:num_requests_running {running}\n"
            f"fastdeploy:num_requests_waiting {waiting}\n").encode()


class Server(FakeBackend):
    """Tells these gauges, and who has served a request. `tells` may be changed."""

    def __init__(self, running, waiting=0):
        self.tells = gauges(running, waiting)
        super().__init__(self.answer)

    def answer(self, call):
        if call.target == "/metrics":
            call.send(200 if self.tells else 500, self.tells)
        else:
            call.send(200, {"served_by": self.port})

    def asked_for_metrics(self):
        return sum(call.target == "/metrics" for call in self.calls)


def test_metrics_are_asked_for_at_their_own_port(made):
    idle_by_mistake, metrics, other = made(Server, 0), made(Server, 50), made(Server, 5)
    router = made(Router, "--policy", "fd_metrics_score")
    assert router.register(idle_by_mistake, metrics_port=metrics.port).status == 200
    assert router.register(other, metrics_port=str(other.port)).status == 200
    assert [one["metrics_port"] for one in router.registered()] == [metrics.port, other.port]
    assert router.eventually(
        lambda: {router.served_by() for _ in range(5)} == {other.port})
    assert metrics.asked_for_metrics() > 0 and other.asked_for_metrics() > 0
    assert idle_by_mistake.asked_for_metrics() == 0
    assert router.register(other, metrics_port=70000).status == 400
