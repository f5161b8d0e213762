"""A router in front of pairs of prefill and decode servers, of which one fails."""
import json

import pytest

from fault_nodes import Asked, at_rest, body, endless, eventually, route, serve
from fault_pair import write_key
from test_pair_faults import harm_program, mend_program, places

LONG = {"max_tokens": 600, "stream": True}


class Pairs:
    """A router, and servers of both roles that register."""

    def __init__(self, place, folder, prefills=1, decodes=1):
        key = write_key(folder)
        self.router = route(place.node(), "--splitwise", "--admin-key-file", key,
                            "--stall-timeout-secs", "2", "--connect-timeout", "1")
        self.flags = ["--router", f"{self.router.node.address}:{self.router.port}",
                      "--router-key-file", key, "--pd-comm-key-file", key]
        self.prefills = [serve(
            place.node(), "--splitwise-role", "prefill", "--pd-comm-port", "0", "--pd-comm-host",
            "ADDRESS", "--pd-lease", "2", *self.flags) for _ in range(prefills)]
        self.decodes = [serve(place.node(), "--splitwise-role", "decode", "--pd-wait", "2",
                              *self.flags) for _ in range(decodes)]
        self.key = key.read_text().strip()
        assert self.up_to(prefills, decodes)

    def up_to(self, prefills, decodes):
        def known():
            status, text = self.router.call("GET", "/registered", headers={
                "Authorization": f"Bearer {self.key}"})
            if status != 200:
                return False
            listed = json.loads(text)
            return [sum(one["healthy"] and not one["is_paused"] for one in listed[role])
                    for role in ("prefill", "decode")] == [prefills, decodes]
        return eventually(known)

    def fetched(self):
        return sum(d.metric("fastdeploy:pd_transferred_blocks_total") for d in self.decodes)

    def at_rest(self):
        return at_rest(*self.prefills, *self.decodes) and eventually(
            lambda: self.router.metric("skiff_router_open_requests") == 0)

    def works(self, right, name):
        before, tries = self.fetched(), iter(range(10000))

        def once():
            data = body(f"{name} {next(tries)}", 4)
            asked = Asked(self.router, data).end()
            assert asked.error is None and asked.text == right(data)
            return self.fetched() > before
        return eventually(once) and self.at_rest()

    def close(self):
        for one in (self.router, *self.prefills, *self.decodes):
            one.close()


@pytest.fixture
def make_pairs(keep, tmp_path):
    return lambda place, *counts: keep(Pairs(place, tmp_path, *counts))


@pytest.mark.parametrize("place, fault", places(
    [("kill",), ("freeze",)], ("kill",), ("freeze",), ("cable",), ("restart",)),
    indirect=["place"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prefill_server_that_fails_with_a_prompt_loses_no_answer(
        make_pairs, right, place, fault, stream):
    """It stands still when both get the request, and then fails."""
    pairs = make_pairs(place)
    prefill, decode = pairs.prefills[0], pairs.decodes[0]
    data = body(f"with prompt {fault} {stream}", stream=stream)
    prefill.freeze()
    asked = Asked(pairs.router, data)
    assert eventually(lambda: decode.load() == 1)
    if fault != "freeze":
        harm_program(prefill, fault)
    asked.end()
    assert (asked.error, asked.status, asked.finish) == (None, 200, "length")
    assert asked.text == right(data)
    assert eventually(lambda: at_rest(decode))
    mend_program(prefill, "freeze" if fault == "cable" else fault)
    if fault == "cable":
        prefill.node.plug_in()
    assert pairs.up_to(1, 1)
    assert pairs.works(right, f"again {fault} {stream}"), "".join(decode.log)


@pytest.mark.parametrize("place, fault", places(
    [("kill",)], ("kill",), ("freeze",), ("cable",)), indirect=["place"])
def test_a_prefill_server_that_fails_while_decoding_is_not_missed(make_pairs, right, place, fault):
    pairs = make_pairs(place)
    data = {**body(f"decoding {fault}", 4), **LONG}
    asked = Asked(pairs.router, data).first()
    harm_program(pairs.prefills[0], fault)
    assert asked.end().text == right(data) and asked.error is None
    mend_program(pairs.prefills[0], fault)
    assert pairs.up_to(1, 1) and pairs.works(right, f"again {fault}")


@pytest.mark.parametrize("place, fault", places(
    [("kill",)], ("kill",), ("freeze",), ("cable",)), indirect=["place"])
def test_a_decode_server_that_fails_ends_its_stream_with_an_error(make_pairs, right, place, fault):
    pairs = make_pairs(place)
    asked = Asked(pairs.router, endless(f"stream {fault}")).first()
    harm_program(pairs.decodes[0], fault)
    asked.end()
    assert asked.status == 200 and asked.error and asked.finish is None
    assert at_rest(pairs.prefills[0])
    mend_program(pairs.decodes[0], fault)
    assert pairs.up_to(1, 1) and pairs.works(right, f"again {fault}")


@pytest.mark.whole_list
@pytest.mark.parametrize("fault", ["kill", "cable"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_of_two_pairs_the_one_that_can_be_reached_answers(make_pairs, right, network, role, fault):
    pairs = make_pairs(network, 2, 2)
    victim = (pairs.prefills if role == "prefill" else pairs.decodes)[0]
    harm_program(victim, fault)
    for i in range(6):
        data = body(f"two {role} {fault} {i}", 4)
        asked = Asked(pairs.router, data).end()
        if asked.status == 200:
            assert asked.text == right(data)
            continue
        # A connection that waited when the cable was pulled: the request may have begun.
        assert fault == "cable" and asked.status in (502, 504), asked.error
    mend_program(victim, fault)
    assert pairs.up_to(2, 2) and pairs.works(right, f"again {role} {fault}")


def test_an_address_where_no_blocks_are_is_told(keep, loopback):
    """The blocks are at loopback, and the router is told of another interface."""
    prefill = keep(serve(loopback.node(), "--splitwise-role", "prefill", "--pd-comm-port", "0",
                         "--router", "127.0.0.1:9", "--router-advertise", "192.0.2.1"))
    assert prefill.logged("nobody reaches them there")


@pytest.mark.whole_list
def test_a_restarted_router_knows_its_pairs_again(make_pairs, right, network):
    pairs = make_pairs(network)
    pairs.router.kill()
    pairs.router.start()
    assert pairs.up_to(1, 1)
    assert pairs.works(right, "router again")
