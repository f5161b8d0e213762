"""What happens to a prefill or a decode server, at each stage of a request: the text is that of one
server, and whoever is left is well."""
import pytest

from fault_nodes import Asked, at_rest, body, endless, eventually
from fault_pair import HOLD, Harm

# Bytes into a connection: between blocks of a request of body(), behind a login. Where blocks go
# through memory, between what says where they lie.
BLOCKS = {"tcp": 400_000, "ipc,tcp": 400_000, "ipc": 1_000}
LONG = {"max_tokens": 600, "stream": True}
QUICK = [("kill", "blocks"), ("freeze", "blocks"), ("restart", "blocks")]
STAGES = ["greeting", "blocks", "decoding"]
WHOLE = [(fault, stage) for fault in ("kill", "freeze", "cable", "restart") for stage in STAGES]


def places(cases, *marks, shared=()):
    """Quick cases run on loopback, those of `shared` with blocks in memory of both, and all of them
    in namespaces with --all-faults."""
    return [pytest.param(place, *case) for place, list_ in (("loopback", cases), ("shared", shared))
            for case in list_] + [
        pytest.param("network", *case, marks=pytest.mark.whole_list) for case in marks]


def hold(pair, stage):
    """Stops the bytes from the prefill server at a stage; None while tokens are generated."""
    if stage == "decoding":
        return None
    pair.proxy.harm = Harm(
        HOLD, {"greeting": 0, "blocks": BLOCKS[pair.place.protocol]}[stage])
    return pair.proxy.harm


def asked_up_to(pair, stage, data):
    """A request that has come to the stage, and what holds it there."""
    harm = hold(pair, stage)
    if harm is None:
        return Asked(pair.decode, {**data, **LONG}).first(), None
    asked = Asked(pair.decode, data)
    harm.wait()
    return asked, harm


def harm_program(program, fault):
    {"kill": program.kill, "freeze": program.freeze, "cable": program.node.pull_cable,
     "restart": lambda: (program.kill(), program.start())}[fault]()


def mend_program(program, fault):
    {"kill": program.start, "freeze": program.thaw, "cable": program.node.plug_in,
     "restart": lambda: None}[fault]()


@pytest.mark.parametrize("place, fault, stage", places(
    QUICK, *WHOLE, shared=[*QUICK, ("kill", "decoding")]), indirect=["place"])
def test_a_prefill_server_that_fails_costs_computing_only(make_pair, right, place, fault, stage):
    pair = make_pair(place)
    data = body(f"prefill {fault} {stage}")
    asked, held = asked_up_to(pair, stage, data)
    harm_program(pair.prefill, fault)
    if held:
        held.release()
    asked.end()
    assert (asked.error, asked.finish) == (None, "length")
    assert asked.text == right({**data, **(LONG if held is None else {})})
    assert at_rest(pair.decode)
    assert bool(pair.decode.recomputed()) == (held is not None)
    mend_program(pair.prefill, fault)
    assert pair.works(right, f"again {fault} {stage}"), "".join(pair.decode.log)


@pytest.mark.parametrize("place, stage", places(
    [("blocks",)], *[(stage,) for stage in STAGES], shared=[("blocks",), ("decoding",)]),
    indirect=["place"])
def test_a_decode_server_that_is_killed_frees_the_other(make_pair, right, place, stage):
    pair = make_pair(place)
    asked, held = asked_up_to(pair, stage, body(f"decode killed {stage}"))
    pair.decode.kill()
    asked.end()
    assert asked.error.startswith("connection:") and asked.finish is None
    if held:
        held.release()
    assert at_rest(pair.prefill)
    pair.decode.start()
    assert pair.works(right, f"after a kill {stage}")


@pytest.mark.parametrize("place, stage", places(
    [("blocks",)], *[(stage,) for stage in STAGES], shared=[("blocks",), ("decoding",)]),
    indirect=["place"])
def test_a_decode_server_that_sleeps_past_its_lease_computes_by_itself(
        make_pair, right, place, stage):
    pair = make_pair(place)
    data = body(f"decode sleeps {stage}")
    asked, held = asked_up_to(pair, stage, data)
    pair.decode.freeze()
    assert at_rest(pair.prefill), "the lease outlives its time"
    assert eventually(lambda: pair.prefill.metric("fastdeploy:pd_connections") == 0)
    if held:
        held.release()
    pair.decode.thaw()
    asked.end()
    assert (asked.error, asked.finish) == (None, "length")
    assert asked.text == right({**data, **(LONG if held is None else {})})
    assert pair.works(right, f"after sleep {stage}")


@pytest.mark.whole_list
@pytest.mark.parametrize("stage", STAGES)
def test_a_decode_server_that_is_cut_off_loses_its_lease_and_its_client(
        make_pair, right, network, stage):
    pair = make_pair(network)
    asked, held = asked_up_to(pair, stage, body(f"decode cut off {stage}"))
    pair.decode.node.pull_cable()
    if held:
        held.release()
    assert at_rest(pair.prefill), "the lease outlives its time"
    asked.leave()
    pair.decode.node.plug_in()
    assert pair.works(right, f"after the cable {stage}")


@pytest.mark.parametrize("place, stage", places(
    [("blocks",), ("decoding",)], *[(stage,) for stage in STAGES], shared=[("blocks",)]),
    indirect=["place"])
def test_a_client_that_leaves_frees_both(make_pair, right, place, stage):
    pair = make_pair(place, wait=30)
    asked, held = asked_up_to(pair, stage, endless(f"client {stage}", 40))
    asked.leave()
    assert eventually(lambda: pair.decode.load() == 0)
    if held:
        held.release()
    assert pair.at_rest()
    assert pair.works(right, f"after a client {stage}")
