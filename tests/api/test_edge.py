"""Who may use a server and what may be sent to it, on the real program. Item numbers are those of
the list of known attacks."""
import json
import re
import signal
import socket
import time

import openai
import pytest

from edge import Edge, Response, demo_model

KEY = "sk-test-0123456789"
PROMPT = {"prompt": "What is 2 + 3?", "max_tokens": 4, "temperature": 0}
ROUTES = [("POST", "/v1/chat/completions"), ("POST", "/v1/completions"), ("GET", "/v1/models"),
          ("GET", "/v1/models/demo"), ("GET", "/metrics"), ("GET", "/load"), ("GET", "/version")]


@pytest.fixture(scope="module")
def locked():
    server = Edge(demo_model(), "--api-key", KEY, "--api-key=second", "--max-body-size", 100000)
    yield server
    server.close()


def spellings(path):
    return [path, "/" + path, "/v1/.." + path, path.replace("/v1/", "/v1%2f", 1),
            "http://localhost" + path, path + "/", path.upper()]


@pytest.mark.parametrize("method,path", ROUTES)
def test_item54_no_route_without_a_key(locked, method, path):
    for place in spellings(path):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY},
                        {"Authorization": f"Basic {KEY}"}, {"x-api-key": KEY[:-1]}):
            for version in ("1.1", "1.0"):
                response = locked.request(method, place, headers, version=version)
                assert response.status == 401, (place, headers)
                assert response.headers["www-authenticate"] == "Bearer"
                error = response.error()
                assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
                assert KEY[:-1] not in error["message"] and "wrong" not in error["message"]
        assert locked.request("HEAD", place).status == 401
    for headers in ({"Authorization": f"bearer {KEY}"}, {"X-API-Key": "second"}):
        assert locked.request(method, path, headers).status in (200, 400)


def test_item54_smuggled_requests_are_never_answered(locked):
    inner = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n\r\n".encode()
    outer = b"GET /live HTTP/1.1\r\nHost: localhost\r\n"
    for framing in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
                    b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
                    b"Transfer-Encoding: gzip\r\n\r\n",
                    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"):
        with locked.connect() as connection:
            connection.sendall(outer + framing + inner)
            answer = b""
            while more := connection.recv(65536):
                answer += more
        assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 400 "), framing


def test_probes_are_open(locked):
    for path in ("/live", "/health", "/ping"):
        assert locked.request("GET", path).status == 200


def test_the_official_client_with_and_without_its_key(locked):
    with openai.OpenAI(base_url=locked.url + "/v1", api_key=KEY, max_retries=0) as client:
        assert client.models.list().data
    with openai.OpenAI(base_url=locked.url + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_the_key_is_never_logged(locked):
    locked.request("GET", "/v1/models", {"Authorization": f"Bearer {KEY}x"})
    locked.request("GET", f"/v1/models?key={KEY}")
    locked.request("GET", "/version", {"x-api-key": KEY, "x-request-id": "behind-the-keys"})
    assert locked.logged("id=behind-the-keys")
    assert KEY not in "".join(locked.log)


def test_keys_from_the_environment_unless_a_flag_says_otherwise():
    for flags, good, bad in (((), "b", "c"), (("--api-key", "c"), "c", "b")):
        server = Edge(demo_model(), *flags, env={"FD_API_KEY": "a,b"})
        try:
            assert server.request("GET", "/v1/models", {"x-api-key": good}).status == 200
            assert server.request("GET", "/v1/models", {"x-api-key": bad}).status == 401
        finally:
            server.close()


@pytest.mark.parametrize("item,body", [
    (28, {**PROMPT, "n": 10**6}), (28, {**PROMPT, "n": 129}), (29, {**PROMPT, "best_of": 10**6}),
    (29, {**PROMPT, "prompt": "", "max_tokens": 10**9, "n": 128}), (29, {**PROMPT, "prompt": []}),
    (29, {**PROMPT, "prompt": [[]]}), (36, {**PROMPT, "prompt": ["a"] * 100000}),
    (36, {**PROMPT, "max_tokens": 2**63 - 1, "n": 128}),
    (40, b"[" * 90000), (40, b'{"prompt":' + b"[" * 40000 + b"]" * 40000 + b"}")])
def test_items_28_29_36_40_counts_and_depth_are_bounded(locked, item, body):
    response = locked.request("POST", "/v1/completions", {"x-api-key": KEY}, body)
    assert response.status in (200, 400, 413), (item, response.body)
    if response.status != 200:
        response.error()
    assert locked.request("GET", "/health").status == 200


NUMBERS = [-1, 0, 2**31, 2**63, 2**64, 1e308, "5", None, True, [], {}]


@pytest.mark.parametrize("field", ["n", "max_tokens", "top_k", "seed", "logprobs", "min_tokens",
                                   "temperature", "top_p", "presence_penalty"])
def test_item31_odd_numbers(locked, field):
    for value in [*NUMBERS, "NaN", "1e309"]:
        body = json.dumps({**PROMPT, field: "@"}).replace(
            '"@"', value if value in ("NaN", "1e309") else json.dumps(value))
        response = locked.request("POST", "/v1/completions", {"x-api-key": KEY}, body.encode())
        assert response.status in (200, 400), (field, value, response.body)
        if response.status == 400:
            response.error()
    assert locked.request("GET", "/health").status == 200


def test_items_30_36_39_limits_have_their_status(locked):
    def status(headers="", body=b""):
        return locked.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: " +
                          KEY.encode() + b"\r\n" + headers.encode() + b"\r\n" + body)
    for headers, body, wanted, code in (
            ("A: " + "x" * 20000 + "\r\n", b"", 431, "header_too_large"),
            ("a:b\r\n" * 100, b"", 431, "header_too_large"),
            ("Content-Length: 100001\r\n", b"", 413, "content_too_large"),
            ("Transfer-Encoding: chunked\r\n", b"ffffff\r\n", 413, "content_too_large"),
            ("Content-Encoding: gzip\r\nContent-Length: 2\r\n", b"\x1f\x8b", 415,
             "unsupported_media_type")):
        response = status(headers, body)
        assert response.status == wanted
        assert response.error()["code"] == code
        assert response.headers["connection"] == "close"


def test_item37_tiny_chunks(locked):
    begin = time.monotonic()
    response = locked.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: second\r\n"
                          b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 1_000_000)
    assert response.status == 413
    assert time.monotonic() - begin < 20


def test_item38_errors_tell_nothing_of_the_inside(locked):
    for path in ("/v1/nope", "/v1/models/nope", "/%2e%2e/etc/passwd"):
        body = locked.request("GET", path, {"x-api-key": KEY}).body.decode()
        assert not re.search(r"\.cc|0x[0-9a-f]{6}|/root|/home|std::|boost", body)


def test_item41_http2_and_tls_bytes_on_a_plain_port(locked):
    for data in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\4\3\0\0\0\0\1\0\0\0\0" * 1000,
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        assert locked.raw(data).status == 400
    assert locked.request("GET", "/health").status == 200


def test_item42_slow_clients_are_let_go():
    server = Edge(demo_model(), "--header-timeout", 1, "--body-timeout", 1)
    try:
        crowd = [server.connect() for _ in range(30)]
        for i, slow in enumerate(crowd):
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" +
                         (b"Content-Length: 100\r\n\r\n" if i % 2 else b""))
        begin = time.monotonic()
        while time.monotonic() - begin < 1.5:
            for slow in crowd:
                # Not after the server has closed: that would reset the answer away.
                if time.monotonic() - begin < 2.5:
                    slow.sendall(b"x")
            assert server.request("GET", "/health").status == 200
            time.sleep(0.1)
        for slow in crowd:
            assert slow.recv(12) == b"HTTP/1.1 408"
            slow.close()
    finally:
        server.close()


def test_item56_only_its_own_names_and_origins():
    server = Edge(demo_model(), "--allowed-origins", '["https://chat.example"]',
                  "--allowed-hosts", "llm.example")
    try:
        for host, status in (("localhost", 200), (f"127.0.0.1:{server.port}", 200),
                             ("llm.example", 200), ("evil.example", 403)):
            assert server.request("GET", "/v1/models", {"Host": host}).status == status
        for origin, allowed in (("https://chat.example", True), ("https://evil.example", False),
                                ("null", False)):
            asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            preflight = server.request("OPTIONS", "/v1/completions", asked)
            assert preflight.status == (204 if allowed else 403)
            for response in (preflight, server.request("GET", "/v1/models", {"Origin": origin})):
                assert response.headers.get("access-control-allow-origin") == (
                    origin if allowed else None)
                assert "access-control-allow-credentials" not in response.headers
                assert response.headers["vary"] == "Origin"
    finally:
        server.close()


def test_item57_no_line_of_the_log_is_forged(locked):
    evil = "X\r\n2099-01-01 00:00:00.000 info request client=evil"
    locked.request("POST", "/%0a2099-01-01%20forged", {"x-request-id": "a\tb\x1b[31m"})
    locked.request("POST", "/v1/completions?secret-query", {"x-api-key": KEY, "x-request-id": "a b"},
                   {**PROMPT, "user": evil, "model": evil + "\u2028\u202e\x85"})
    locked.raw(b"GET /\xe2\x80\xae HTTP/1.1\r\n\r\n")
    with locked.connect() as kept:  # a client that leaves early has another line
        kept.sendall(f"GET /version HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n"
                     "x-request-id: fine-1\r\n\r\n".encode())
        assert Response.read(kept).headers["x-request-id"] == "fine-1"
        assert locked.logged("id=fine-1")
    log = "".join(locked.log)
    for line in locked.log:
        assert not line.startswith("2099"), line
    assert "client=evil" not in log and "secret-query" not in log
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028-\u202e]", log)
    requests = [line for line in locked.log if " request client=" in line]
    assert any(re.search(r"client=127\.0\.0\.1:\d+ method=GET path=/version status=200 bytes=\d+ "
                         r"ms=[\d.]+ id=fine-1$", line) for line in requests)


def test_the_access_log_can_be_off_and_the_log_can_be_json():
    server = Edge(demo_model(), "--disable-access-log", "--log-format", "json")
    try:
        server.request("GET", "/version")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        lines = [line for line in server.log if line.startswith("{")]
        assert {"time", "level", "message"} == set(json.loads(lines[-1]))
        assert not any("request client=" in line for line in server.log)
        others = "".join(line for line in server.log if not line.startswith("{"))
        assert re.fullmatch(r"\nServing .*\n\ncurl .*\n", others)  # stdout
    finally:
        server.close()


def refused(*flags):
    server = None
    with pytest.raises(AssertionError) as failure:
        server = Edge(demo_model(), *flags)
    assert server is None
    return str(failure.value)


def test_flags_that_contradict_each_other(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# none\n")
    assert "both --ssl-certfile and --ssl-keyfile" in refused("--ssl-certfile", keys)
    assert "--allow-credentials" in refused("--allowed-origins", "*", "--allow-credentials")
    assert "--allowed-origins" in refused("--allowed-origins", "https://a/path")
    assert "no key" in refused("--api-key-file", keys)
    assert "cannot be read" in refused("--api-key-file", tmp_path / "none")
    assert "JSON list" in refused("--allowed-origins", "[oops")


def test_an_open_server_warns_once():
    server = Edge(demo_model(), "--host", "0.0.0.0")
    try:
        assert sum("without an API key" in line for line in server.log) == 1
    finally:
        server.close()


def test_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = Edge(demo_model(), "--host", "::1")
    try:
        assert any("http://[::1]:" in line for line in server.log)
        with socket.create_connection(("::1", server.port)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: [::1]\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
    finally:
        server.close()
