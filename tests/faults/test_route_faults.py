"""What happens to the router and to the servers behind it, at each stage of a request."""
import json
import re
import socket
import subprocess

import pytest

from fault_nodes import (PATIENCE, SKIFF, Asked, body, endless, eventually, route, serve)
from fault_pair import CUT, SLOW, Harm
from fault_proxy import Proxy
from test_pair_faults import harm_program, mend_program, places

LONG = {"max_tokens": 600, "stream": True}
FLAGS = ["--policy", "round_robin", "--stall-timeout-secs", "2", "--connect-timeout", "1"]


class Fleet:
    """A router and three servers, which it is told of."""

    def __init__(self, place, *flags, proxied=False):
        self.servers = [serve(place.node(), "--max-num-seqs", "8") for _ in range(3)]
        self.proxies = [Proxy((s.node.address, s.port), place.address) for s in self.servers] \
            if proxied else []
        ends = [(p.host, p.port) for p in self.proxies] or \
               [(s.node.address, s.port) for s in self.servers]
        urls = ",".join(f"http://{host}:{port}" for host, port in ends)
        self.router = route(place.node(), "--backends", urls, *FLAGS, *flags)
        assert self.up_to(3)

    def healthy(self):
        """URLs of the servers that get requests."""
        return re.findall(r'^skiff_router_backend_up\{backend="([^"]*)".*\} 1$',
                          self.router.call("GET", "/metrics")[1], re.M)

    def up_to(self, count):
        return eventually(lambda: len(self.healthy()) == count)

    def sent(self):
        """How often a request has been sent to a server."""
        return self.router.metric("skiff_router_backend_requests_total")

    def at_rest(self):
        return eventually(
            lambda: all(s.healthy() and s.load() == 0 for s in self.servers)) and eventually(
            lambda: self.router.metric("skiff_router_open_requests") == 0)

    def busy(self, known=()):
        """The index of the one server that has something to do, besides those that are known."""
        loads = []

        def one():
            loads[:] = [i for i, s in enumerate(self.servers) if i not in known and s.load() > 0]
            return len(loads) == 1
        assert eventually(one), loads
        return loads[0]

    def close(self):
        for one in (self.router, *self.servers, *self.proxies):
            one.close()


@pytest.fixture
def make_fleet(keep):
    return lambda *args, **options: keep(Fleet(*args, **options))


def stream_each(fleet, names):
    """A long stream on each server, in the order of the servers."""
    streams = {}
    for name in names:
        asked = Asked(fleet.router, endless(name)).first()
        streams[fleet.busy(streams)] = asked
    return [streams[i] for i in range(len(names))]


@pytest.mark.parametrize("place, fault", places(
    [("kill",), ("freeze",)], ("kill",), ("freeze",), ("cable",), ("restart",)),
    indirect=["place"])
def test_a_server_that_fails_within_a_stream_ends_that_stream_only(make_fleet, place, fault):
    fleet = make_fleet(place)
    streams = stream_each(fleet, [f"{fault} {i}" for i in range(3)])
    victim = fleet.servers[1]
    harm_program(victim, fault)
    streams[1].end()
    assert streams[1].status == 200 and streams[1].error and streams[1].finish is None
    for i in (0, 2):
        assert streams[i].seconds is None, "another stream ended with it"
    done = [Asked(fleet.router, body(f"{fault} beside {i}", 4)).end() for i in range(6)]
    assert all(one.status == 200 for one in done)
    for i in (0, 2):
        streams[i].leave()
    mend_program(victim, fault)
    assert fleet.up_to(3) and fleet.at_rest()
    assert fleet.router.metric("skiff_router_broken_answers_total") == 1


@pytest.mark.parametrize("place, fault", places(
    [("freeze",)], ("kill",), ("freeze",), ("cable",)), indirect=["place"])
def test_what_may_have_begun_is_not_repeated(make_fleet, place, fault):
    """The server fails with a whole request and before the first byte of its answer."""
    fleet = make_fleet(place)
    asked = Asked(fleet.router, {**endless(f"begun {fault}"), "stream": False})
    victim = fleet.busy()
    harm_program(fleet.servers[victim], fault)
    asked.end()
    assert asked.status in (502, 504) and asked.error
    assert fleet.sent() == 1
    mend_program(fleet.servers[victim], fault)
    assert fleet.up_to(3) and fleet.at_rest()


@pytest.mark.parametrize("place", places([()], ()), indirect=["place"])
def test_a_server_that_cannot_be_reached_costs_no_request(make_fleet, right, place):
    fleet = make_fleet(place, "--health-check-interval-secs", "1000")
    fleet.servers[0].kill()
    for i in range(12):
        data = body(f"unreached {i}", 2)
        asked = Asked(fleet.router, data).end()
        assert (asked.status, asked.text) == (200, right(data)), asked.error
    assert len(fleet.healthy()) == 2  # without a probe
    assert fleet.router.metric("skiff_router_retries_total") == 3


@pytest.mark.whole_list
def test_a_server_that_was_cut_off_costs_no_request(make_fleet, right, network):
    fleet = make_fleet(network)
    fleet.servers[0].node.pull_cable()
    assert fleet.up_to(2)
    for i in range(6):
        data = body(f"cut off {i}", 2)
        assert Asked(fleet.router, data).end().text == right(data)
    fleet.servers[0].node.plug_in()
    assert fleet.up_to(3) and fleet.at_rest()


def test_without_servers_requests_are_refused_at_once(make_fleet, loopback):
    fleet = make_fleet(loopback)
    for server in fleet.servers:
        server.kill()
    assert eventually(lambda: fleet.router.call("GET", "/ready")[0] == 503)
    asked = Asked(fleet.router, body("nobody")).end()
    assert asked.status == 503 and "no available workers" in asked.error
    assert fleet.router.healthy()
    fleet.servers[2].start()
    assert eventually(lambda: Asked(fleet.router, body("back", 2)).end().status == 200)


@pytest.mark.parametrize("place, at", places(
    [(3_000,)], *[(at,) for at in (0, 30, 150, 400, 3_000, 30_000)]), indirect=["place"])
def test_an_answer_that_is_cut_is_never_taken_for_whole(make_fleet, right, place, at):
    fleet = make_fleet(place, "--health-check-interval-secs", "1000", "--policy", "random",
                       proxied=True)
    for proxy in fleet.proxies:
        proxy.harm = Harm(CUT, at=at)
    data = {**body(f"cut {at}", 2), "max_tokens": 200, "stream": True}
    for i in range(3):
        asked = Asked(fleet.router, data).end()
        if asked.error is None:
            assert (asked.text, asked.finish) == (right(data), "length")
            continue
        assert asked.status == 502 or asked.status == 200 and asked.finish is None
        assert right(data).startswith(asked.text)
    assert any(proxy.harm.begun.is_set() for proxy in fleet.proxies)
    assert fleet.at_rest()


@pytest.mark.whole_list
def test_a_slow_way_to_a_server_is_only_slow(make_fleet, right, network):
    fleet = make_fleet(network, proxied=True)
    for proxy in fleet.proxies:
        proxy.harm = Harm(SLOW, size=64, pause=0.001)
    data = {**body("slow", 2), "max_tokens": 100, "stream": True}
    for i in range(3):
        assert Asked(fleet.router, data).end().text == right(data)


class Registered:
    """A router where servers register, and two servers that do."""

    def __init__(self, place, tmp_path, key="boss", server_key="boss"):
        admin, own = tmp_path / "admin", tmp_path / "server"
        admin.write_text(key + "\n")
        own.write_text(server_key + "\n")
        self.router = route(place.node(), "--admin-key-file", admin, *FLAGS)
        self.servers = [serve(place.node(), "--router", f"{self.router.node.address}:"
                              f"{self.router.port}", "--router-key-file", own) for _ in range(2)]

    def count(self):
        """How many servers the router would send requests to."""
        status, text = self.router.call("GET", "/registered", headers={
            "Authorization": "Bearer boss"})
        return sum(one["healthy"] and not one["is_paused"]
                   for one in json.loads(text)["mixed"]) if status == 200 else 0

    def close(self):
        for one in (self.router, *self.servers):
            one.close()


@pytest.mark.parametrize("place, fault", places(
    [("restart",)], ("restart",), ("freeze",), ("cable",)), indirect=["place"])
def test_a_router_that_fails_leaves_nothing_running(keep, right, place, fault, tmp_path):
    fleet = keep(Registered(place, tmp_path))
    assert eventually(lambda: fleet.count() == 2)
    asked = Asked(fleet.router, endless(f"router {fault}")).first()
    harm_program(fleet.router, fault)
    if fault == "restart":
        asked.end()
        assert asked.error.startswith("connection:") and asked.finish is None
    else:
        asked.leave()
        mend_program(fleet.router, fault)
    assert eventually(lambda: all(s.healthy() and s.load() == 0 for s in fleet.servers))
    assert eventually(lambda: fleet.count() == 2), "".join(fleet.servers[0].log)
    data = body(f"after router {fault}", 2)
    assert Asked(fleet.router, data).end().text == right(data)


@pytest.mark.whole_list
def test_a_router_that_sleeps_goes_on_where_it_was(keep, right, network, tmp_path):
    fleet = keep(Registered(network, tmp_path))
    assert eventually(lambda: fleet.count() == 2)
    data = {**body("sleep", 2), **LONG}
    asked = Asked(fleet.router, data).first()
    fleet.router.freeze()
    assert all(server.healthy() for server in fleet.servers)
    fleet.router.thaw()
    assert asked.end().text == right(data) and asked.finish == "length"


def test_a_registration_with_a_wrong_key_is_refused(keep, loopback, tmp_path):
    fleet = keep(Registered(loopback, tmp_path, server_key="guess"))
    for server in fleet.servers:
        assert server.logged("answered 401") and server.healthy()
    assert fleet.count() == 0
    assert Asked(fleet.router, body("nobody")).end().status == 503


def test_a_wrong_key_for_the_servers_reaches_the_client_as_401(keep, loopback, tmp_path):
    (tmp_path / "inner").write_text("right\n")
    (tmp_path / "wrong").write_text("wrong\n")
    server = keep(serve(loopback.node(), "--api-key-file", tmp_path / "inner"))
    router = keep(route(loopback.node(), "--backends", f"http://127.0.0.1:{server.port}",
                        "--backend-key-file", tmp_path / "wrong"))
    assert eventually(lambda: router.call("GET", "/ready")[0] == 200)
    assert Asked(router, body("key")).end().status == 401
    assert router.call("GET", "/ready")[0] == 200


def test_a_port_in_use_is_named(loopback):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = subprocess.run([SKIFF, "route", "--host", "127.0.0.1", "--port", str(port)],
                             capture_output=True, text=True, timeout=PATIENCE)
    said = run.stdout + run.stderr
    assert run.returncode not in (0, None) and str(port) in said and "in use" in said


@pytest.mark.whole_list
def test_full_servers_say_so_through_the_router(keep, network):
    servers = [keep(serve(network.node(), "--max-concurrency", "1")) for _ in range(2)]
    router = keep(route(network.node(), *FLAGS, "--backends", ",".join(
        f"http://{s.node.address}:{s.port}" for s in servers)))
    assert eventually(lambda: router.call("GET", "/ready")[0] == 200)
    assert eventually(lambda: router.metric("skiff_router_backend_up") == 2)
    streams = [Asked(router, endless(f"full {i}")).first() for i in range(2)]
    refused = Asked(router, body("one too many")).end()
    assert refused.status == 429, refused.error
    for asked in streams:
        asked.leave()
    assert eventually(lambda: Asked(router, body("room again", 2)).end().status == 200)


def test_a_client_that_leaves_frees_its_server(make_fleet, loopback):
    fleet = make_fleet(loopback)
    for stage in ("before", "within"):
        asked = Asked(fleet.router, {**endless(f"leaves {stage}"), "stream": stage == "within"})
        fleet.busy()
        if stage == "within":
            asked.first()
        asked.leave()
        assert fleet.at_rest()


def test_a_restarted_server_costs_no_request(make_fleet, right, loopback):
    """Connections that waited ended with the server that was there before."""
    fleet = make_fleet(loopback, "--health-check-interval-secs", "1000")
    for i in range(6):
        assert Asked(fleet.router, body(f"warm {i}", 2)).end().status == 200
    for server in fleet.servers:
        server.kill()
        server.start()
    for i in range(6):
        data = body(f"restarted {i}", 2)
        assert Asked(fleet.router, data).end().text == right(data)
