"""Sleep, wake-up and new weights of servers with several ranks, several replicas, and what drafts, as
an operator and clients see them."""
import concurrent.futures
import json
import shutil
import subprocess

import pytest
from edge import SKIFF, Edge, demo_model, long_demo, metric_of
from test_sleep import FLAGS, Stream, answer, call, control, negate, resident

RANKS = ("--tensor-parallel-size", "2")
REPLICAS = ("--data-parallel-size", "2")
DRAFTS = ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}')
FORMS = {"ranks": RANKS, "experts": (*RANKS, "--enable-expert-parallel"), "replicas": REPLICAS,
         "replicas-that-share-experts": (*REPLICAS, "--enable-expert-parallel"),
         "replicas-of-ranks": (*RANKS, *REPLICAS), "mtp": DRAFTS, "mtp-on-ranks": (*RANKS, *DRAFTS)}


def copy_of_demo(folder):
    shutil.copytree(demo_model(), folder)
    shutil.copy(long_demo() / "config.json", folder / "config.json")
    return folder


@pytest.fixture(scope="module", params=FORMS, ids=str)
def group(request, tmp_path_factory):
    """A server, its flags, and its folder."""
    here = copy_of_demo(tmp_path_factory.mktemp("weights") / "one")
    flags = FORMS[request.param]
    running = Edge(here, *FLAGS, *flags)
    yield running, flags, here
    running.close()


def answers(server):
    """What several requests at the same time get, which all replicas take part in."""
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        texts = {text for text, _ in pool.map(lambda _: answer(server, tokens=24), range(6))}
    assert len(texts) == 1
    return texts.pop()


def test_a_group_sleeps_and_wakes(group):
    server, _, _ = group
    before = answers(server)
    held = resident(server)
    status, slept = control(server, "/v1/sleep")
    assert status == 200, slept
    released = slept["result"]["released_bytes"]
    assert slept["result"]["absent"] == ["weight", "kv_cache"]
    assert released["weight"] > 10 << 20 and released["kv_cache"] > 0
    assert resident(server) < held - (released["weight"] >> 10) * 3 // 4
    assert call(server, "GET", "/health")[0] == call(server, "GET", "/ready")[0] == 503
    assert call(server, "GET", "/live")[0] == 200
    metrics = call(server, "GET", "/metrics")[1]
    assert metric_of(metrics, "fastdeploy:num_requests_running") == 0
    status, text, headers = call(server, "POST", "/v1/completions", {"prompt": "x"})
    assert status == 503 and "sleeps" in text and int(headers["Retry-After"]) > 0
    assert control(server, "/wake_up?tags=weight")[0] == 200
    assert call(server, "GET", "/health")[0] == 503
    assert control(server, "/wake_up?tags=kv_cache")[0] == 200
    assert call(server, "GET", "/health")[0] == 200
    assert answer(server, tokens=24) == (before, 0), "the same text, and nothing cached"
    assert answers(server) == before


def test_requests_under_way_end_everywhere(group):
    server, _, _ = group
    endless = [Stream(server, 60000) for _ in range(3)]
    status, slept = control(server, "/v1/sleep?mode=wait&timeout=0.1")
    assert status == 200 and len(slept["result"]["aborted"]) == 3
    for stream in endless:
        stream.join(30)
        assert "paused" in stream.error["message"]
    assert control(server, "/v1/wakeup")[0] == 200
    finite = [Stream(server, 50) for _ in range(3)]
    status, slept = control(server, "/v1/sleep?mode=wait&timeout=60")
    assert status == 200 and slept["result"]["aborted"] == []
    for stream in finite:
        stream.join(30)
        assert stream.error is None and stream.chunks == 50
    assert control(server, "/v1/wakeup")[0] == 200


def test_new_weights_are_those_of_a_fresh_server(group, tmp_path):
    server, flags, here = group
    other = copy_of_demo(tmp_path / "two")
    negate(other, "model.layers.0.self_attn.o_proj.weight")
    fresh = Edge(other, *FLAGS, *flags)
    try:
        theirs = answers(fresh)
    finally:
        fresh.close()
    before = answers(server)
    assert before != theirs
    for asleep in (False, True):
        if asleep:
            assert control(server, "/v1/sleep")[0] == 200
        status, updated = control(server, "/v1/update_weights", {"path": str(other), "version": "2"})
        assert status == 200, updated
        if asleep:
            assert control(server, "/v1/wakeup")[0] == 200
        assert answer(server, tokens=24) == (theirs, 0)
        assert answers(server) == theirs
        assert control(server, "/v1/update_weights", {"path": str(here), "version": "1"})[0] == 200
        assert answers(server) == before
    # What is wrong on the way to one rank changes nothing on any.
    path = other / "model.safetensors"
    data = path.read_bytes()
    path.with_name("new").write_bytes(data.replace(b"model.layers.1.input_layernorm",
                                                   b"model.layers.1.input_layerXorm"))
    path.with_name("new").rename(path)
    status, refused = control(server, "/v1/update_weights", {"path": str(other)})
    assert status == 400 and "layernorm" in refused["error"]["message"]
    assert answers(server) == before
    assert control(server, "/v1/sleep")[0] == 200
    assert control(server, "/v1/update_weights", {"path": str(other)})[0] == 400
    assert control(server, "/is_sleeping", method="GET")[1]["absent"] == ["weight", "kv_cache"]
    assert control(server, "/v1/wakeup")[0] == 200
    assert answers(server) == before


def test_clear_and_load_again(group):
    server, _, here = group
    before = answers(server)
    assert control(server, "/clear_load_weight", method="GET") == (200, "")
    negate(here, "model.layers.0.self_attn.o_proj.weight")
    assert control(server, "/update_model_weight", method="GET") == (200, "")
    text, cached = answer(server, tokens=24)
    assert text != before and cached == 0
    assert answers(server) == text
    # A tensor that is missing lets the whole group sleep on, with its name as the reason.
    path = here / "model.safetensors"
    whole = path.read_bytes()
    assert control(server, "/clear_load_weight", method="GET") == (200, "")
    path.write_bytes(whole.replace(b"model.layers.1.input_layernorm",
                                   b"model.layers.1.input_layerXorm"))
    status, why = control(server, "/update_model_weight", method="GET")
    assert status == 404 and "layernorm" in why
    assert control(server, "/is_sleeping", method="GET")[1]["is_sleeping"] is True
    path.write_bytes(whole)
    assert control(server, "/update_model_weight", method="GET") == (200, "")
    assert answers(server) == text


@pytest.mark.parametrize("flags, word", [
    (("--splitwise-role", "prefill"), "--splitwise-role"),
    (("--tensor-parallel-size", "2", "--ips", "127.0.0.1,127.0.0.2", "--node-rank", "0"), "--ips")])
def test_what_it_does_not_go_with_is_said_at_once(flags, word):
    done = subprocess.run([SKIFF, "serve", str(demo_model()), "--port", "0", *FLAGS, *flags],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "--dynamic-load-weight" in done.stderr and word in done.stderr
    assert "loading" not in done.stderr
