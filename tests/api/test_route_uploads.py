"""Requests through `skiff route` that are no JSON, and methods that change things: backends judge
them, once it is known that no web page of a stranger sends them."""
import http.client
import json
import os

import pytest

from fake_backend import FakeBackend
from test_route import Router, made  # noqa: F401 (a fixture)

KEY = {"Authorization": "Bearer k"}
FORM = "multipart/form-data; boundary=b"
PAGE_TYPES = ["text/plain", FORM, "application/x-www-form-urlencoded"]


def send(router, method, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=30)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    status, text = response.status, response.read().decode()
    connection.close()
    return status, text


@pytest.mark.parametrize("method, kind", [
    ("POST", FORM), ("POST", "application/octet-stream"), ("POST", "audio/wav"),
    ("PUT", "application/octet-stream"), ("PUT", FORM), ("PATCH", "application/json-patch+json")])
def test_uploads_pass_as_bytes(made, method, kind):
    backend = made(FakeBackend)
    router = made(Router, backends=[backend])
    body = os.urandom(2 << 20)
    assert send(router, method, "/v1/files", body, {**KEY, "Content-Type": kind})[0] == 200
    call = backend.calls[-1]
    assert (call.method, call.target, call.body) == (method, "/v1/files", body)
    assert call.headers["content-type"] == kind


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_change_without_a_body_says_so(made, method):
    backend = made(FakeBackend)
    router = made(Router, backends=[backend])
    assert send(router, method, "/v1/x", None, KEY)[0] == 200
    assert backend.calls[-1].headers["content-length"] == "0"


def test_a_page_cannot_send_forms_through_the_router(made):
    backend = made(FakeBackend)
    router = made(Router, backends=[backend])
    here = f"http://127.0.0.1:{router.port}"
    for kind in PAGE_TYPES:
        for headers, status in (
                ({}, 415), ({"Authorization": "Basic dTpw"}, 415), ({"Cookie": "a=b"}, 415),
                ({"Origin": "https://evil.example"}, 403),
                ({**KEY, "Origin": "https://evil.example"}, 403),
                ({**KEY, "Sec-Fetch-Site": "cross-site"}, 403),
                (KEY, 200), ({"X-Api-Key": "k"}, 200), ({"Origin": here}, 200)):
            got, text = send(router, "POST", "/v1/files", b"x", {**headers, "Content-Type": kind})
            assert got == status, (kind, headers, text)
            if status == 415:
                assert "Authorization: Bearer" in json.loads(text)["error"]["message"]
    assert len(backend.calls) == 3 * len(PAGE_TYPES)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_page_cannot_change_things_through_the_router(made, method):
    backend = made(FakeBackend)
    router = made(Router, backends=[backend])
    evil = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert send(router, method, "/v1/files", b"x", evil)[0] == 403
    assert backend.calls == []


def test_the_routers_own_paths_take_json_only(made):
    router = made(Router, backends=[made(FakeBackend)])
    body = json.dumps({"role": "mixed", "host_ip": "127.0.0.1", "port": 1})
    for path in ("/register", "/v1/abort_requests"):
        for kind in PAGE_TYPES + ["application/octet-stream"]:
            got, text = send(router, "POST", path, body, {**KEY, "Content-Type": kind})
            assert got == 415 and "application/json" in text, (path, kind)


def test_the_size_of_an_upload_is_bounded(made):
    backend = made(FakeBackend)
    router = made(Router, "--max-body-size", 4096, backends=[backend])
    for method in ("POST", "PUT", "PATCH"):
        assert send(router, method, "/v1/files", bytes(4096), {**KEY, "Content-Type": FORM})[0] == 200
        assert send(router, method, "/v1/files", bytes(4097), {**KEY, "Content-Type": FORM})[0] == 413
    assert len(backend.calls) == 3


def test_an_upload_goes_to_another_backend_where_one_has_no_room(made):
    full = made(FakeBackend, lambda call: call.send(503, {"error": "full"}))
    good = made(FakeBackend)
    router = made(Router, "--policy", "round_robin", backends=[full, good])
    body = os.urandom(100_000)
    for _ in range(2):
        assert send(router, "PUT", "/v1/files", body, {**KEY, "Content-Type": FORM})[0] == 200
    assert [call.body for call in good.calls] == [body, body]
    assert full.calls
