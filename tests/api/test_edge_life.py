"""TLS, reload, and the way up and down of the real program."""
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import time

import httpx
import openai
import pytest

from edge import Edge, Response, certificate, changed_demo, demo_model, eventually, long_demo

CHAT = {"model": "default", "messages": [{"role": "user", "content": "What is 2 + 3?"}],
        "temperature": 0, "max_tokens": 16}
ENDLESS = {"model": "default", "prompt": "What is 2 + 3?", "max_tokens": 100000,
           "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    made, key = certificate(folder)
    server = Edge(long_demo(), "--ssl-certfile", made, "--ssl-keyfile", key)
    server.files = made, key
    yield server
    server.close()


def client_of(server, **options):
    trusted = ssl.create_default_context(cafile=str(server.files[0])) if server.secure else True
    return openai.OpenAI(base_url=server.url + "/v1", api_key=options.pop("api_key", "none"),
                         max_retries=0, timeout=60, http_client=httpx.Client(verify=trusted))


def test_tls_every_shape(secure):
    with client_of(secure) as client:
        whole = client.chat.completions.create(**CHAT)
        streamed = list(client.chat.completions.create(**CHAT, stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in streamed if c.choices)
        assert text == whole.choices[0].message.content
        plain = client.completions.create(model="default", prompt="a", max_tokens=4, temperature=0)
        parts = client.completions.create(model="default", prompt="a", max_tokens=4, temperature=0,
                                          stream=True)
        assert "".join(c.choices[0].text for c in parts if c.choices) == plain.choices[0].text
        assert client.models.list().data
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("nope")


def test_tls_versions_and_plain_http(secure):
    for version, good in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True),
                          (ssl.TLSVersion.TLSv1_3, True)):
        context = ssl.create_default_context(cafile=str(secure.files[0]))
        context.minimum_version = context.maximum_version = version
        plain = socket.create_connection(("127.0.0.1", secure.port), timeout=10)
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert good and Response.read(connection).status == 200
        except (ssl.SSLError, ConnectionResetError):
            assert not good
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", secure.port), timeout=10) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while True:
            try:
                if not plain.recv(1000):
                    break
            except ConnectionResetError:
                break
    assert time.monotonic() - begin < 15  # half of --header-timeout


def test_tls_a_closing_client_cancels_its_generation(secure):
    with client_of(secure) as client:
        stream = iter(client.completions.create(**ENDLESS, stream=True))
        next(stream)
    assert secure.eventually(
        lambda: b'"running":0' in secure.request("GET", "/load").body.replace(b" ", b""))


def test_sighup_takes_new_keys_and_certificates_or_none(tmp_path):
    made, key = certificate(tmp_path)
    keys = tmp_path / "keys"
    keys.write_text("# people\nalice\n")
    server = Edge(demo_model(), "--ssl-certfile", made, "--ssl-keyfile", key,
                  "--api-key-file", keys)

    def status(name):
        return server.request("GET", "/v1/models", {"x-api-key": name}).status

    def served():
        with server.connect() as connection:
            return connection.getpeercert(binary_form=True)

    try:
        first = served()
        kept = server.connect()
        assert (status("alice"), status("bob")) == (200, 401)
        keys.write_text("")
        server.process.send_signal(signal.SIGHUP)
        assert server.logged("SIGHUP: nothing was changed")
        assert (status("alice"), status("bob")) == (200, 401)
        keys.write_text("bob\n")
        old_key = key.read_text()
        key.write_text("rubbish")
        server.process.send_signal(signal.SIGHUP)
        assert server.eventually(
            lambda: sum("nothing was changed" in line for line in list(server.log)) == 2)
        assert (status("alice"), status("bob")) == (200, 401) and served() == first
        key.write_text(old_key)
        renewed, renewed_key = certificate(tmp_path, "renewed")
        made.write_text(renewed.read_text())
        key.write_text(renewed_key.read_text())
        server.process.send_signal(signal.SIGHUP)
        assert server.logged("SIGHUP: 1 API keys")
        assert (status("alice"), status("bob")) == (401, 200) and served() != first
        kept.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: bob\r\n\r\n")
        assert Response.read(kept).status == 200
        assert "bob" not in "".join(server.log)
    finally:
        server.close()


def test_what_a_test_has_started_ends_with_the_tests():
    """Whatever went wrong between the start and whoever was to end it."""
    script = "import edge; print(edge.spawn(['sleep', '1000']).pid, flush=True); raise SystemExit(1)"
    done = subprocess.run([sys.executable, "-c", script], cwd=pathlib.Path(__file__).parent,
                          capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    assert eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists())


def test_a_port_in_use_is_found_before_loading():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(AssertionError) as failure:
            Edge(demo_model(), "--port", taken.getsockname()[1])
    assert "--port" in str(failure.value) and "memory plan" not in str(failure.value)


def test_probes_while_the_model_loads():
    """Random weights of 200 layers take a while to make."""
    server = Edge(changed_demo(num_hidden_layers=200, moe_layer_end_index=199), "--load-format",
                  "dummy", "--api-key", "k", wait="bound")
    try:
        seen = set()
        while not server.ready.is_set():
            assert server.request("GET", "/live").status == 200
            health = server.request("GET", "/health")
            seen.add(health.status)
            if health.status == 503:
                assert "loading" in health.error()["message"] and health.headers["retry-after"]
            work = server.request("POST", "/v1/completions", {"x-api-key": "k"},
                                  {"prompt": "a", "max_tokens": 1})
            assert work.status in (200, 503)
            assert server.request("GET", "/v1/models").status == 401
        assert 503 in seen
        assert server.request("GET", "/health").status == 200
    finally:
        server.close()


def test_sigterm_drains(tmp_path):
    server = Edge(long_demo(), "--shutdown-timeout", "60")
    server.files = None
    try:
        kept = server.connect()
        with client_of(server) as client:
            stream = iter(client.completions.create(**{**ENDLESS, "max_tokens": 3000}, stream=True))
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            assert server.eventually(lambda: server.request("GET", "/health").status == 503)
            assert server.request("GET", "/live").status == 200
            assert server.request("GET", "/ping").status == 503
            kept.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Length: 14\r\n\r\n{\"prompt\":\"a\"}")
            refused = Response.read(kept)
            assert refused.status == 503 and refused.headers["connection"] == "close"
            assert refused.headers["retry-after"] and refused.error()["code"] == "unavailable"
            rest = list(stream)
            assert rest[-1].choices[0].finish_reason == "length"
        assert server.process.wait(30) == 0
        assert not any("cut off" in line and "stopped" in line for line in server.log)
    finally:
        server.close()


def test_what_does_not_finish_in_time_ends_with_an_error():
    server = Edge(long_demo(), "--timeout-graceful-shutdown", "1")
    server.files = None
    try:
        with client_of(server) as client:
            stream = iter(client.completions.create(**ENDLESS, n=8, stream=True))
            next(stream)
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(openai.APIError, match="shutting down"):
                list(stream)
            assert server.process.wait(30) == 3
            assert time.monotonic() - begin < 15
    finally:
        server.close()


def test_sighup_while_loading_and_draining_harms_nothing():
    server = Edge(demo_model(), "--load-format", "dummy", wait="bound")
    server.files = None
    try:
        server.process.send_signal(signal.SIGHUP)
        assert server.ready.wait(60)
        assert server.logged("SIGHUP: 0 API keys")
        with client_of(server) as client:
            stream = iter(client.completions.create(**{**ENDLESS, "max_tokens": 100}, stream=True))
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGHUP)
            assert list(stream)[-1].choices[0].finish_reason == "length"
        assert server.process.wait(30) == 0
    finally:
        server.close()


def test_sigterm_while_loading_ends_at_once():
    server = Edge(demo_model(), "--load-format", "dummy", wait="bound")
    try:
        if server.ready.is_set():
            pytest.skip("the model was loaded before the signal could be sent")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) in (143, 0)
    finally:
        server.close()
