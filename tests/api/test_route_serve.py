"""The router in front of real servers: they register, share prefixes, and may be killed."""
import json
import signal

import openai
import pytest

from edge import Edge, long_demo
from test_route import CHAT, Router

ENDLESS = {"model": "default", "prompt": "What is 2 + 3?", "max_tokens": 60000, "stream": True,
           "ignore_eos": True}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    key = tmp_path_factory.mktemp("keys") / "admin"
    key.write_text("boss\n")
    router = Router("--admin-key", "boss")
    flags = ["--router", f"127.0.0.1:{router.port}", "--router-key-file", key, "--no-webui",
             "--threads", "1", "--max-num-seqs", "4"]
    servers = [Edge(long_demo(), *flags) for _ in range(2)]
    known = lambda: json.loads(router.call("GET", "/registered_number").read())["mixed"] == 2
    assert router.eventually(known), "".join(router.log)
    yield router, servers
    for one in [*servers, router]:
        one.close()


def healthy(router):
    return {b["port"] for b in router.registered(key="boss") if b["healthy"] and not b["is_paused"]}


def client(router):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{router.port}/v1", api_key="none",
                         max_retries=0, timeout=60)


def test_the_answer_is_that_of_a_server(fleet):
    router, servers = fleet
    chat = {**CHAT, "model": "default", "temperature": 0, "max_tokens": 8}
    direct = openai.OpenAI(base_url=servers[0].url + "/v1", api_key="none").chat.completions.create(
        **chat)
    with client(router) as routed:
        assert routed.chat.completions.create(**chat).choices[0].message == direct.choices[0].message
        streamed = routed.chat.completions.create(**chat, stream=True)
        text = "".join(c.choices[0].delta.content or "" for c in streamed if c.choices)
        assert text == direct.choices[0].message.content
        assert [m.id for m in routed.models.list()]


def test_a_client_that_leaves_ends_the_generation(fleet):
    router, servers = fleet
    response = router.call("POST", "/v1/completions", ENDLESS)
    assert response.read1()
    response.close()
    response.connection.close()

    def idle(server):
        reply = server.request("GET", "/load")
        return json.loads(reply.body)["server_load"] == 0

    assert router.eventually(lambda: all(idle(server) for server in servers))


def test_a_router_that_has_no_address_yet_is_waited_for():
    """As where both start at the same time, and the router's name is not known yet."""
    server = Edge(long_demo(), "--host", "0.0.0.0", "--router", "router.invalid:9000")
    try:
        assert server.logged("no address of this machine leads there", 60)
        assert server.request("GET", "/health").status == 200
    finally:
        server.close()


def test_kill_and_leave(fleet):
    router, servers = fleet
    response = router.call("POST", "/v1/completions", ENDLESS)
    assert response.read1()
    busy = next(b["port"] for b in router.registered(key="boss") if b["running"])
    victim, other = sorted(servers, key=lambda server: server.port != busy)
    victim.process.send_signal(signal.SIGKILL)
    rest = response.read().decode()
    assert json.loads(rest.strip().splitlines()[-1].removeprefix("data: "))["error"]["message"]
    assert router.eventually(lambda: healthy(router) == {other.port})
    assert router.post({**CHAT, "model": "default", "max_tokens": 4}).status == 200
    # The other one says good-bye: the router sends it nothing more at once.
    other.process.send_signal(signal.SIGTERM)
    assert router.eventually(lambda: healthy(router) == set())
    assert other.process.wait(30) == 0
    assert router.post().status == 503
