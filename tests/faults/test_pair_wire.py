"""What is cut, changed or slowed between a prefill and a decode server, and two that do not fit."""
import itertools
import socket

import pytest

from edge import changed_demo

from fault_nodes import Asked, at_rest, body, eventually, serve
from fault_pair import CUT, FLIP, HOLD, SLOW, Harm, write_key
from test_pair_faults import places

CUTS = [0, 30, 60, 100, 5_000, 400_000]
# From the prefill server: magic, version and nonce of its Hello, its Welcome, the first Block with
# its key, checksum and bytes. To it: the Login's proof and facts, an Open with keys and prompt, Reads.
DOWN = [6, 10, 20, 47, 60, 84, 88, 92, 100, 140, 200, 5_000, 50_001, 400_000]
UP = [2, 8, 40, 90, 200, 400, 600, 900, 1_500, 2_500, 4_000]


@pytest.mark.parametrize("place, kind, way, at", places(
    [(CUT, "down", 60), (CUT, "down", 400_000), (FLIP, "down", 5_000), (FLIP, "up", 900)],
    *[(CUT, "down", at) for at in CUTS], *[(CUT, "up", at) for at in (0, 60, 600, 4_000)],
    *[(FLIP, "down", at) for at in DOWN], *[(FLIP, "up", at) for at in UP],
    *[(SLOW, way, 0) for way in ("up", "down")]), indirect=["place"])
def test_harm_on_the_way_changes_no_token(make_pair, right, place, kind, way, at):
    pair = make_pair(place)
    pair.proxy.harm = Harm(kind, at, way, size=20_000, pause=0.01)
    data = body(f"harm {kind} {way} {at}", 20)
    asked = Asked(pair.decode, data).end()
    assert (asked.error, asked.text) == (None, right(data))
    assert pair.at_rest()
    assert pair.proxy.harm.begun.is_set()
    if kind == CUT:
        assert pair.decode.recomputed()
    if kind == SLOW:
        assert pair.fetched() > 0
    pair.proxy.harm = None
    assert pair.works(right, f"after harm {kind} {way} {at}"), "".join(pair.decode.log)


@pytest.mark.parametrize("what, says", [
    ("model", "model"), ("key", "--pd-comm-key-file"), ("block size", "block")])
def test_two_that_do_not_fit_say_so_and_work_alone(make_pair, right, loopback, tmp_path, what,
                                                   says):
    options = {}
    if what == "model":
        options["prefill_model"] = changed_demo(max_position_embeddings=65536, rms_norm_eps=1e-4)
    if what == "key":
        options["prefill_key"] = write_key(tmp_path, "other", "what-one-knows")
    if what == "block size":
        options["prefill"] = ["--block-size", "32"]
    pair = make_pair(loopback, **options)
    for i in range(2):
        data = body(f"{what} {i}", 4)
        asked = Asked(pair.decode, data).end()
        assert (asked.error, asked.text) == (None, right(data))
    assert pair.decode.logged("refuses:") and pair.decode.logged(says)
    assert pair.prefill.logged("was refused")
    assert pair.fetched() == 0 and "refused" in pair.decode.recomputed()
    assert pair.at_rest()


def test_a_port_in_use_is_named(loopback, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AssertionError, match=f"--pd-comm-port.*port {port}.*in use"):
            serve(loopback.node(), "--splitwise-role", "prefill", "--pd-comm-port", port)


@pytest.mark.parametrize("place, side", places([("prefill",)], ("prefill",), ("decode",)),
                         indirect=["place"])
def test_a_full_cache_costs_computing_only(make_pair, right, place, side):
    """The buffer of the prefill server holds less than one prompt; or the decode server's memory
    less than two of the eight that arrive at once."""
    small = {"prefill": {"prefill": ["--pd-buffer-size", "0.002"]},
             "decode": {"decode": ["--num-gpu-blocks-override", "64"]}}
    pair = make_pair(place, **small[side])
    wanted = [body(f"full {side} {i}", 20) for i in range(8)]
    under_way = [Asked(pair.decode, data) for data in wanted]
    for asked, data in zip(under_way, wanted):
        assert (asked.end().error, asked.text) == (None, right(data))
    assert pair.at_rest()
    assert pair.works(right, f"after full {side}")


@pytest.mark.whole_list
def test_a_peer_with_another_model_after_a_restart_is_refused(make_pair, right, network):
    """The program at the other end is replaced during a transfer."""
    pair = make_pair(network)
    pair.proxy.harm = Harm(HOLD, 400_000)
    data = body("replaced", 40)
    asked = Asked(pair.decode, data)
    pair.proxy.harm.wait()
    pair.prefill.kill()
    other = pair.prefill.words.copy()
    other[1] = str(changed_demo(max_position_embeddings=65536, rms_norm_eps=1e-4))
    pair.prefill.words = other
    pair.prefill.start()
    pair.proxy.harm.release()
    assert asked.end().text == right(data)
    numbers = itertools.count()

    def refused():
        data = body(f"replaced {next(numbers)}", 4)
        assert Asked(pair.decode, data).end().text == right(data)
        return "refused" in pair.decode.recomputed()
    assert eventually(refused)
    assert at_rest(pair.decode)
