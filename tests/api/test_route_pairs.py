"""A router in front of a real pair: one server computes prompts, the other generates."""
import json

import pytest

from api_server import Server
from edge import demo_model
from test_disaggregation import COMMON, TEXT, post
from test_route import Router


@pytest.fixture(scope="module")
def pair():
    router = Router("--splitwise")
    flags = ["--router", f"127.0.0.1:{router.port}", "--no-webui", *COMMON]
    servers = [Server(demo_model(), "--splitwise-role", "prefill", "--pd-comm-port", "0", *flags),
               Server(demo_model(), "--splitwise-role", "decode", *flags)]
    known = lambda: json.loads(router.call("GET", "/registered_number").read()) == {
        "mixed": 0, "prefill": 1, "decode": 1}
    assert router.eventually(known), "".join(router.log)
    yield router, *servers
    for one in (*servers, router):
        one.close()


@pytest.fixture(scope="module")
def whole():
    running = Server(demo_model(), *COMMON)
    yield running
    running.close()


@pytest.mark.parametrize("more", [{}, {"n": 2}, {"logprobs": 2}, {"max_tokens": 1}])
def test_answers_are_those_of_one_server(pair, whole, more):
    router, prefill, decode = pair
    body = {"model": "default", "prompt": f"{json.dumps(more)} {TEXT}", "max_tokens": 24, "seed": 5,
            "temperature": 1.2, **more}
    before = decode.metric("fastdeploy:pd_transferred_blocks_total")
    response = router.post(body, path="/v1/completions")
    assert response.status == 200, response.text
    answer, right = json.loads(response.text), post(whole, body)
    assert answer["choices"] == right["choices"]
    blocks = decode.metric("fastdeploy:pd_transferred_blocks_total") - before
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 < blocks <= cached // 16 + 1


def test_streams_come_from_the_decode_server(pair):
    router, prefill, decode = pair
    before = decode.metric("fastdeploy:generation_tokens_total")
    response = router.post({"model": "default", "prompt": f"stream {TEXT}", "max_tokens": 9,
                            "ignore_eos": True, "stream": True}, path="/v1/completions")
    assert response.text.rstrip().endswith("data: [DONE]")
    assert decode.metric("fastdeploy:generation_tokens_total") - before == 9
