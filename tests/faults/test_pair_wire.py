"""What is cut, changed or slowed between a prefill and a decode server, and two that do not fit."""
import itertools
import pathlib
import re
import socket
import time

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


# Where blocks go through memory: the name of the socket, what says where blocks lie, and what says
# that the memory is mapped and blocks are taken.
NAMED = [(CUT, "down", 130), (FLIP, "down", 130), (CUT, "down", 1_000), (FLIP, "down", 1_000),
         (FLIP, "down", 1_050), (FLIP, "up", 4_000), (CUT, "up", 4_300)]


@pytest.mark.parametrize("place, kind, way, at", places(
    [(CUT, "down", 60), (CUT, "down", 400_000), (FLIP, "down", 5_000), (FLIP, "up", 900)],
    *[(CUT, "down", at) for at in CUTS], *[(CUT, "up", at) for at in (0, 60, 600, 4_000)],
    *[(FLIP, "down", at) for at in DOWN], *[(FLIP, "up", at) for at in UP],
    *[(SLOW, way, 0) for way in ("up", "down")], shared=NAMED), indirect=["place"])
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


@pytest.mark.parametrize("place, kind, reason", places(
    [(CUT, "gone"), (FLIP, "damaged"), (HOLD, "late")],
    (CUT, "gone"), (FLIP, "damaged"), (HOLD, "late")), indirect=["place"])
def test_what_follows_the_last_full_block_is_computed_if_it_does_not_come(
        make_pair, right, place, kind, reason):
    """The second of two prompts of one length, 1,000 bytes before its end."""
    pair = make_pair(place)
    whole = pair.bytes_of(body("rest a"))
    pair.proxy.harm = Harm(kind, 2 * whole - 1_000)
    data = body("rest b")
    asked = Asked(pair.decode, data).end()
    pair.proxy.harm.release()
    assert pair.proxy.harm.begun.is_set()
    assert (asked.error, asked.text) == (None, right(data))
    (why, tokens), = pair.decode.recomputed().items()
    assert why == reason and 0 < tokens < 16, "all full blocks came"
    assert pair.at_rest()
    assert pair.works(right, f"after a rest {kind}")


def damage(program):
    """Changes a byte of each page of the memory that the program shares."""
    maps = pathlib.Path(f"/proc/{program.process.pid}/maps").read_text()
    pieces = re.findall(r"^(\w+)-(\w+) .*memfd:skiff-blocks", maps, re.M)
    assert pieces
    with open(f"/proc/{program.process.pid}/mem", "r+b", buffering=0) as memory:
        for begin, end in pieces:
            for at in range(int(begin, 16) + 77, int(end, 16), 4096):
                memory.seek(at)
                byte = memory.read(1)
                memory.seek(at)
                memory.write(bytes([byte[0] ^ 1]))


def test_what_changes_in_shared_memory_is_computed(make_pair, right, shared):
    pair = make_pair(shared, wait=20, lease=20, prefill=["--pd-buffer-size", "0.05"])
    pair.proxy.harm = Harm(HOLD, 1_000)
    data = body("damaged", 40)
    asked = Asked(pair.decode, data)
    pair.proxy.harm.wait()
    assert eventually(lambda: pair.prefill.load() == 0), "all blocks are there"
    time.sleep(0.5)
    damage(pair.prefill)
    pair.proxy.harm.release()
    assert (asked.end().error, asked.text) == (None, right(data))
    assert pair.decode.recomputed().get("damaged", 0) > 0
    assert pair.at_rest()
    assert pair.works(right, "after damage")


def test_each_way_is_logged_and_counted(make_pair, right, loopback, shared):
    for place, way, says in ((loopback, "tcp", "over TCP"),
                             (shared, "shared_memory", "through shared memory")):
        pair = make_pair(place)
        for i in range(2):
            data = body(f"way {way} {i}", 20)
            assert Asked(pair.decode, data).end().text == right(data)
        assert pair.decode.logged(f"blocks come {says}")
        for side in (pair.decode, pair.prefill):
            counted = re.findall(r'pd_transferred_blocks_total\{.*?way="(\w+)".*\} (\d+)',
                                 side.call("GET", "/metrics")[1])
            assert {name for name, blocks in counted if int(blocks) > 0} >= {way}, counted
            if way == "tcp":
                assert ("shared_memory", "0") in counted


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
