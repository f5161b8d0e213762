"""The router in front of servers that speak TLS, and what an operator tells all of them at once."""
import json
import signal
import ssl
import subprocess

import openai
import pytest

from edge import SKIFF, Edge, certificate, long_demo
from fake_backend import FakeBackend
from test_route import CHAT, Router

ENDLESS = {"model": "default", "prompt": "Count: 1, 2, 3,", "max_tokens": 60000, "stream": True,
           "extra_body": {"ignore_eos": True}}


class SecureBackend(FakeBackend):
    """A fake backend behind TLS."""

    def __init__(self, made, key, behave=None):
        super().__init__(behave)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made, key)
        accept = self.server.get_request

        def wrapped():
            connection, address = accept()
            connection.settimeout(20)
            return context.wrap_socket(connection, server_side=True,
                                       do_handshake_on_connect=False), address

        self.server.get_request = wrapped
        self.url = f"https://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def routed(signed):
    """Starts a router in front of backends, which it trusts by the certificate of `signed`."""
    routers = []

    def start(*flags, **options):
        routers.append(Router("--backend-ca-file", signed[0], *flags, **options))
        return routers[-1]

    yield start
    for router in routers:
        router.close()


def client(router, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{router.port}/v1", api_key=key, max_retries=0,
                         timeout=60)


def test_bodies_and_streams_pass(signed, routed):
    data = b"x" * (6 << 20)

    def behave(call):
        if call.target == "/v1/files":
            return call.send(200, {"got": len(call.body)})
        call.begin_stream("text/plain")
        for start in range(0, len(data), 1 << 16):
            call.chunk(data[start:start + (1 << 16)])
        call.end_stream()

    backend = SecureBackend(*signed, behave=behave)
    router = routed(backends=[backend])
    assert router.registered()[0]["url"] == backend.url
    for _ in range(3):
        assert json.loads(router.post({"text": "y" * (3 << 20)}, path="/v1/files").text)["got"] > 3 << 20
        assert router.post().text == data.decode()
    backend.close()


def test_one_connection_serves_many_requests(signed, routed):
    backend = SecureBackend(*signed)
    router = routed(backends=[backend])
    assert {router.post().status for _ in range(20)} == {200}
    assert len(backend.open) <= 2, "TLS's greeting is made once"
    backend.close()


def test_an_answer_that_breaks_off_is_not_whole(signed, routed):
    def behave(call):
        call.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf")
        call.closed = True
        call.handler.connection.shutdown(2)  # without the farewell of TLS

    backend = SecureBackend(*signed, behave=behave)
    router = routed(backends=[backend])
    with pytest.raises(Exception, match="Incomplete|closed"):
        router.post()
    backend.close()


def test_a_stranger_gets_nothing(tmp_path, signed, routed):
    stranger = SecureBackend(*certificate(tmp_path, "stranger"))
    router = routed(backends=[stranger], up=0)
    assert router.eventually(lambda: any("no TLS" in line for line in router.log))
    assert router.post().status == 503
    assert not stranger.calls
    plain = FakeBackend()
    plain.url = plain.url.replace("http:", "https:")
    other = routed(backends=[plain], up=0)
    assert other.eventually(lambda: any("no TLS" in line for line in other.log))
    for one in (stranger, plain):
        one.close()


def start_of(*flags):
    return subprocess.run([SKIFF, "route", "--port", "0", *flags], capture_output=True, text=True,
                          timeout=30, check=False)


def test_a_bad_list_of_certificates_is_refused(tmp_path):
    (tmp_path / "ca.pem").write_text("nothing")
    done = start_of("--backends", "https://127.0.0.1:1", "--backend-ca-file", tmp_path / "ca.pem")
    assert done.returncode == 1 and "--backend-ca-file" in done.stdout + done.stderr


def test_servers_admin_key_wants_one_of_the_router(tmp_path):
    (tmp_path / "boss").write_text("boss\n")
    done = start_of("--backends", "http://127.0.0.1:1", "--backend-admin-key-file",
                    tmp_path / "boss")
    assert done.returncode == 2 and "--admin-key-file" in done.stdout + done.stderr


def test_the_servers_admin_key_replaces_the_operators(tmp_path):
    (tmp_path / "boss").write_text("boss\n")
    backend = FakeBackend(lambda call: call.send(200, {"result": {"aborted": []}}))
    router = Router("--admin-key", "operator", "--backend-admin-key-file", tmp_path / "boss",
                    backends=[backend])
    try:
        told = lambda key: router.post({"abort_all": True}, {"Authorization": f"Bearer {key}"},
                                       "/v1/abort_requests")
        assert told("boss").status == 401
        assert told("operator").status == 200
        asked = [call for call in backend.calls if call.target == "/v1/abort_requests"]
        assert [call.headers["authorization"] for call in asked] == ["Bearer boss"]
    finally:
        router.close()
        backend.close()


def test_real_servers_register_and_are_told_together(signed, routed):
    made, key = signed
    # The default policy draws servers by chance; in turn, both get some of the streams.
    router = routed("--admin-key", "boss", "--policy", "round_robin")
    keys = made.parent / "boss"
    keys.write_text("boss\n")
    servers = [Edge(long_demo(), "--ssl-certfile", made, "--ssl-keyfile", key, "--no-webui",
                    "--threads", "1", "--admin-key", "boss", "--router", f"127.0.0.1:{router.port}",
                    "--router-key-file", keys) for _ in range(2)]
    try:
        healthy = lambda: [one for one in router.registered(key="boss") if one["healthy"]]
        assert router.eventually(lambda: len(healthy()) == 2), "".join(router.log)
        assert {one["scheme"] for one in healthy()} == {"https"}
        direct = openai.OpenAI(base_url=servers[0].url + "/v1", api_key="none",
                               http_client=openai.DefaultHttpxClient(verify=False))
        chat = {**CHAT, "model": "default", "temperature": 0, "max_tokens": 8}
        with client(router) as routes:
            assert (routes.chat.completions.create(**chat).choices[0].message
                    == direct.chat.completions.create(**chat).choices[0].message)

        streams = [client(router).completions.create(**ENDLESS) for _ in range(4)]
        for stream in streams:
            next(iter(stream))
        busy = lambda: sum(one["running"] > 0 for one in router.registered(key="boss"))
        assert busy() == 2, "both servers compute"
        told = lambda key, path="/v1/abort_requests": router.post(
            {"abort_all": True, "req_ids": []}, {"Authorization": f"Bearer {key}"}, path)
        assert told("stranger").status == 401
        answer = told("boss")
        result = json.loads(answer.text)["result"]
        assert len(result["aborted"]) == 4 and not result["failed"]
        for stream in streams:
            with pytest.raises(openai.APIError):
                for _ in stream:
                    pass

        servers[0].process.send_signal(signal.SIGKILL)
        servers[0].process.wait()
        result = json.loads(told("boss").text)["result"]
        assert result["aborted"] == [] and len(result["failed"]) == 1
        vllm = router.post({"request_ids": ["none"]}, {"Authorization": "Bearer boss"},
                           "/abort_requests")
        assert vllm.status == 200
    finally:
        for one in servers:
            one.close()
