"""Prefill and decode on different servers: tokens are those of one server, whatever fails."""
import http.client
import json
import re
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from api_server import Server
from edge import demo_model

TEXT = "The lighthouse keeper counts the boats that come home before the storm. " * 8
COMMON = ["--block-size", "16", "--enable-logprob", "--max-num-batched-tokens", "64"]


def comm_port(server):
    for line in server.log:
        if found := re.search(r"handed out on 127\.0\.0\.1 port (\d+)", line):
            return int(found.group(1))
    raise AssertionError("".join(server.log))


def prefill_server():
    return Server(demo_model(), "--splitwise-role", "prefill", "--pd-comm-port", "0", *COMMON)


@pytest.fixture(scope="module")
def whole():
    running = Server(demo_model(), *COMMON)
    yield running
    running.close()


@pytest.fixture(scope="module")
def prefill():
    running = prefill_server()
    yield running
    running.close()


@pytest.fixture(scope="module")
def decode(prefill):
    running = Server(demo_model(), "--splitwise-role", "decode", "--innode-prefill-ports",
                     str(comm_port(prefill)), *COMMON)
    yield running
    running.close()


def post(server, body, path="/v1/completions"):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def refusal(server, body):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, body)
    return caught.value.code, json.loads(caught.value.read())["error"]


def body(i, **more):
    return {"model": "default", "prompt": f"{i} {TEXT}", "max_tokens": 24, "seed": i,
            "temperature": 1.2, **more}


def choices(answer):
    return [{key: choice[key] for key in ("index", "text", "finish_reason", "logprobs")}
            for choice in answer["choices"]]


KINDS = [{}, {"n": 3}, {"logprobs": 3}, {"stop": ["e", "."]}, {"temperature": 0},
         {"frequency_penalty": 1, "min_tokens": 8}, {"prompt_logprobs": 1}, {"max_tokens": 1}]


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_tokens_are_those_of_one_server(whole, decode, kind):
    wanted = body(100 + kind, **KINDS[kind])
    assert choices(post(decode, wanted)) == choices(post(whole, wanted))


def test_blocks_came_from_the_other_server(prefill, decode):
    before = decode.metric("fastdeploy:pd_transferred_blocks_total")
    answer = post(decode, body(1))
    tokens = answer["usage"]["prompt_tokens"]
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == tokens - 1 and cached % 16 > 0, "what follows the last full block came, too"
    after = decode.metric("fastdeploy:pd_transferred_blocks_total")
    assert after - before == cached // 16 + 1
    assert decode.metric("fastdeploy:pd_transferred_bytes_total") > 0
    assert prefill.eventually(lambda: prefill.metric("fastdeploy:pd_leases") == 0)
    assert prefill.metric("fastdeploy:pd_transferred_blocks_total") > cached // 16
    assert prefill.metric("fastdeploy:pd_prompts_total") > 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_router_sends_the_same_body_to_both(whole, prefill, decode, path):
    wanted = body(2)
    if "chat" in path:
        wanted["messages"] = [{"role": "user", "content": wanted.pop("prompt")}]
    right = post(whole, wanted, path)
    wanted["disaggregate_info"] = {
        "prefill_ip": "127.0.0.1", "prefill_connector_port": str(comm_port(prefill)),
        "decode_ip": "127.0.0.1", "decode_connector_port": 1, "transfer_protocol": "rdma"}
    asked = prefill.metric("fastdeploy:pd_prompts_total")
    answers = {}
    threads = [threading.Thread(target=lambda s=s: answers.update({s: post(s, wanted, path)}))
               for s in (prefill, decode)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers[prefill]["usage"]["completion_tokens"] == 1
    told = [answers[decode]["choices"], right["choices"]]
    assert [c[0].get("text") or c[0]["message"]["content"] for c in told][0] == \
        (told[1][0].get("text") or told[1][0]["message"]["content"])
    details = answers[decode]["usage"]["prompt_tokens_details"]
    assert details["cached_tokens"] == right["usage"]["prompt_tokens"] - 1
    assert prefill.metric("fastdeploy:pd_prompts_total") == asked


def test_vllms_fields(whole, prefill, decode):
    wanted = body(3)
    right = choices(post(whole, wanted))
    post(prefill, {**wanted, "kv_transfer_params": {"do_remote_decode": True}})
    wanted["kv_transfer_params"] = {"do_remote_prefill": True, "remote_host": "localhost",
                                    "remote_port": comm_port(prefill)}
    answer = post(decode, wanted)
    assert choices(answer) == right
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_each_role_refuses_what_is_not_its_half(whole, prefill, decode):
    info = {"prefill_ip": "127.0.0.1", "prefill_connector_port": 2334}
    status, error = refusal(prefill, body(4))
    assert status == 400 and "--splitwise-role prefill" in error["message"]
    status, error = refusal(whole, body(4, disaggregate_info=info))
    assert status == 400 and "--splitwise-role mixed" in error["message"]
    for wrong in ({}, 5, {**info, "prefill_ip": "example.org"}, {**info, "prefill_ip": 7},
                  {**info, "prefill_connector_port": 0},
                  {**info, "prefill_connector_port": "12x"}):
        status, error = refusal(decode, body(4, disaggregate_info=wrong))
        assert status == 400 and error["param"] == "disaggregate_info", wrong
    status, error = refusal(decode, body(4, kv_transfer_params={"do_remote_decode": True}))
    assert status == 400 and error["param"] == "kv_transfer_params"


def test_a_killed_prefill_server_costs_computing_only(whole):
    prefill = prefill_server()
    decode = Server(demo_model(), "--splitwise-role", "decode", "--prefill-peers",
                    f"127.0.0.1:{comm_port(prefill)}", *COMMON)
    try:
        for i in (5, 6):
            assert choices(post(decode, body(i))) == choices(post(whole, body(i)))
            prefill.process.kill()
            prefill.process.wait()
        assert decode.metric("fastdeploy:pd_recomputed_tokens_total") > 0
        decode.get("/health")  # raises unless the server is well
    finally:
        prefill.close()
        decode.close()


def test_a_client_that_leaves_ends_the_lease(prefill, decode):
    """Nobody computes this prompt, so the decode server waits."""
    info = {"prefill_ip": "127.0.0.1", "prefill_connector_port": comm_port(prefill)}
    client = http.client.HTTPConnection("127.0.0.1", decode.port, timeout=60)
    client.request("POST", "/v1/completions", json.dumps(body(7, disaggregate_info=info)),
                   {"Content-Type": "application/json"})
    assert prefill.eventually(lambda: prefill.metric("fastdeploy:pd_leases") == 1)
    assert decode.load() == 1
    client.close()
    assert prefill.eventually(lambda: prefill.metric("fastdeploy:pd_leases") == 0)
    assert decode.eventually(lambda: decode.load() == 0)


@pytest.mark.parametrize("patience,code", [(60, 0), (1, 3)])
def test_a_prefill_server_that_stops_hands_out_what_it_promised(decode, patience, code):
    """Nobody computes this prompt, so the decode server holds its lease while its client waits."""
    prefill = Server(demo_model(), "--splitwise-role", "prefill", "--pd-comm-port", "0",
                     "--timeout-graceful-shutdown", str(patience), *COMMON)
    client = http.client.HTTPConnection("127.0.0.1", decode.port, timeout=60)
    try:
        info = {"prefill_ip": "127.0.0.1", "prefill_connector_port": comm_port(prefill)}
        client.request("POST", "/v1/completions", json.dumps(body(8, disaggregate_info=info)),
                       {"Content-Type": "application/json"})
        assert prefill.eventually(lambda: prefill.metric("fastdeploy:pd_leases") == 1)
        prefill.process.terminate()
        if code == 0:
            with pytest.raises(subprocess.TimeoutExpired):
                prefill.process.wait(1.5)
            client.close()
        assert prefill.process.wait(15) == code
    finally:
        client.close()
        prefill.close()
    assert decode.eventually(lambda: decode.load() == 0)


def test_groups_of_other_sizes(whole, prefill):
    """Two ranks generate from what one has computed: they round otherwise in bfloat16, by far less than
    keys of a wrong head would change."""
    decode = Server(demo_model(), "--splitwise-role", "decode", "--innode-prefill-ports",
                    str(comm_port(prefill)), "--tensor-parallel-size", "2", *COMMON)
    try:
        for i in range(40, 44):
            asked = body(i, temperature=0, logprobs=3, max_tokens=4)
            ours, right = (post(one, asked)["choices"][0]["logprobs"]["top_logprobs"][0]
                           for one in (decode, whole))
            for token in ours.keys() & right.keys():
                assert abs(ours[token] - right[token]) < 0.05, (ours, right)
            assert len(ours.keys() & right.keys()) >= 2
        assert decode.metric("fastdeploy:pd_transferred_blocks_total") > 0
        assert decode.metric("fastdeploy:pd_recomputed_tokens_total") == 0
    finally:
        decode.close()
