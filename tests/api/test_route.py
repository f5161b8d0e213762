"""`skiff route` in front of fake backends, which do exactly what each test says."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from edge import SKIFF, START_SECONDS, eventually, spawn
from fake_backend import FakeBackend, events

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"


class Router:
    def __init__(self, *flags, backends=(), port=0, up=None):
        urls = ["--backends", ",".join(b.url for b in backends)] if backends else []
        self.process = spawn(
            [SKIFF, "route", "--host", "127.0.0.1", "--port", str(port), *urls,
             "--health-check-interval-secs", "0.05", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log, self.port, self.bound = [], None, threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.bound.wait(START_SECONDS) and self.port, "".join(self.log)
        if backends and up != 0:
            self.wait_up(up or len(backends))

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"listening on \S+ port (\d+)", line):
                self.port = int(found.group(1))
                self.bound.set()
        self.bound.set()

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = json.dumps(body) if body is not None else None
        connection.request(method, path, data,
                           {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        response.connection = connection
        return response

    def post(self, body=None, headers=None, path=PATH):
        response = self.call("POST", path, body or CHAT, headers)
        response.text = response.read().decode()
        return response

    def served_by(self, body=None):
        return json.loads(self.post(body).text)["served_by"]

    def metric(self, pattern, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        text = self.call("GET", "/metrics", headers=headers).read().decode()
        return [float(v) for v in re.findall(f"^{pattern} (.*)$", text, re.M)]

    eventually = staticmethod(eventually)

    def wait_up(self, count):
        def up():
            try:
                return sum(b["healthy"] for b in self.registered()) == count
            except (KeyError, json.JSONDecodeError):
                return any("is up" in line for line in self.log)  # the keys are not ours
        assert self.eventually(up), "".join(self.log)

    def registered(self, role="mixed", key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return json.loads(self.call("GET", "/registered", headers=headers).read())[role]

    def register(self, backend, role="mixed", headers=None, **more):
        return self.post({"role": role, "host_ip": "127.0.0.1", "port": backend.port, **more},
                         headers, "/register")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def made():
    """Makes backends and routers that end with the test."""
    things = []

    def make(kind, *args, **options):
        things.append(kind(*args, **options))
        return things[-1]

    yield make
    for thing in reversed(things):
        thing.close()


def test_passes_bytes_and_headers_on(made):
    backend = made(FakeBackend)
    router = made(Router, backends=[backend])
    body = b'{ "model":"m",  "prompt":"\\u00e9 \xc3\xa9" }'
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=30)
    connection.request("POST", "/v1/completions?a=%20b", body, {
        "Content-Type": "application/json", "X-Request-Id": "mine", "X-Custom": "1",
        "Connection": "X-Secret", "X-Secret": "2", "X-Forwarded-For": "9.9.9.9",
        "Authorization": "Bearer own"})
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["x-request-id"] == "mine"
    assert json.loads(response.read()) == {"served_by": backend.port}
    call = backend.calls[-1]
    assert (call.method, call.target, call.body) == ("POST", "/v1/completions?a=%20b", body)
    assert call.headers["x-request-id"] == "mine"
    assert call.headers["x-custom"] == "1"
    assert call.headers["authorization"] == "Bearer own"
    assert call.headers["x-forwarded-for"] == "9.9.9.9, 127.0.0.1"
    assert "x-secret" not in call.headers
    connection.close()


def test_every_path_and_status_passes(made):
    backend = made(FakeBackend, lambda call: call.send(int(call.headers["x-status"]), b'{"a": 1}',
                                                       "Retry-After: 7\r\n"))
    router = made(Router, backends=[backend])
    for method, path in [("GET", "/v1/models"), ("POST", "/v1/messages"), ("POST", "/v1/responses"),
                         ("POST", "/api/chat"), ("GET", "/api/tags"), ("POST", "/tokenize"),
                         ("POST", "/v1/embeddings"), ("POST", "/")]:
        for status in (200, 400, 404, 429, 500):
            response = router.call(method, path, {} if method == "POST" else None,
                                   {"X-Status": str(status)})
            assert (response.status, response.read()) == (status, b'{"a": 1}')
            assert response.headers["retry-after"] == "7"


def test_streams_piece_by_piece(made):
    def stream(call):
        call.begin_stream()
        call.chunk("data: 1\n\n")
        assert call.gate.wait(20)
        call.chunk("data: [DONE]\n\n")
        call.end_stream()

    backend = made(FakeBackend, stream)
    router = made(Router, backends=[backend])
    response = router.call("POST", PATH, {**CHAT, "stream": True})
    assert response.headers["content-type"] == "text/event-stream"
    assert response.read1() == b"data: 1\n\n"  # while the backend still waits
    backend.calls[0].gate.set()
    assert response.read() == b"data: [DONE]\n\n"


def test_a_long_answer_is_whole_and_a_slow_client_slows_the_backend(made):
    data = os.urandom(1 << 20)
    sent = []

    def long(call):
        call.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * len(data)))
        for _ in range(64):
            call.write(data)
            sent.append(1)

    backend = made(FakeBackend, long)
    router = made(Router, backends=[backend])
    response = router.call("GET", "/file")
    assert response.status == 200
    # The backend gets stuck: nobody holds 64 MiB for a client that does not read.
    stuck = lambda: (n := len(sent), time.sleep(0.2), len(sent) == n)[2]
    assert router.eventually(stuck) and len(sent) < 60
    assert response.read() == 64 * data


def test_a_client_that_leaves_closes_the_backend(made):
    gone = threading.Event()

    def endless(call):
        call.begin_stream()
        call.chunk("data: 1\n\n")
        call.closed = True
        if call.client_left():
            gone.set()

    backend = made(FakeBackend, endless)
    router = made(Router, backends=[backend])
    response = router.call("POST", PATH, {**CHAT, "stream": True})
    assert response.read1() == b"data: 1\n\n"
    response.connection.sock and response.connection.sock.close()
    response.close()
    response.connection.close()
    assert gone.wait(20)
    assert router.eventually(lambda: router.metric(r"skiff_router_open_requests") == [0.0])


def test_another_backend_gets_what_one_cannot_take(made):
    busy = made(FakeBackend, lambda call: call.send(503, {"error": "full"}))
    good = made(FakeBackend)
    router = made(Router, "--policy", "round_robin", backends=[busy, good])
    assert {router.served_by() for _ in range(4)} == {good.port}
    assert len(busy.calls) >= 1
    assert router.metric("skiff_router_retries_total")[0] == len(busy.calls)
    good.behave = lambda call: call.send(503, {"error": "full, too"})
    response = router.post()
    assert response.status == 503 and "full" in response.text  # the last one's own words


def test_full_backends_hide_no_idle_one(made):
    full = [made(FakeBackend, lambda call: call.send(503, {"error": "full"}, "Retry-After: 9\r\n"))
            for _ in range(5)]
    idle = made(FakeBackend)
    router = made(Router, "--policy", "round_robin", "--max-retries", "1", backends=[*full, idle])
    statuses = [router.post().status for _ in range(8)]
    assert statuses[3:] == [200] * 5  # two of the five are asked for each request
    assert sum(len(backend.calls) for backend in full) == 5


def test_a_dead_backend_is_left_at_once_and_then_out(made):
    dead, good = made(FakeBackend), made(FakeBackend)
    router = made(Router, "--policy", "round_robin", "--health-check-interval-secs", "1000",
                  backends=[dead, good])
    dead.kill()
    assert {router.served_by() for _ in range(12)} == {good.port}
    assert [b["healthy"] for b in router.registered()] == [False, True]  # without any probe


def test_nothing_is_sent_twice_that_may_have_begun(made):
    def die(call):
        call.closed = True
        call.handler.connection.shutdown(socket.SHUT_RDWR)

    backends = [made(FakeBackend, die), made(FakeBackend, die)]
    router = made(Router, backends=backends)
    response = router.post()
    assert response.status == 502
    assert json.loads(response.text)["error"]["message"]
    assert sum(len(b.calls) for b in backends) == 1


@pytest.mark.parametrize("path, sign", [
    (PATH, '"error"'), ("/v1/messages", "event: error"), ("/v1/responses", "event: error")])
def test_a_backend_killed_within_a_stream_ends_it_with_an_error(made, path, sign):
    def half(call):
        call.begin_stream()
        call.chunk('data: {"a": 1}\n\ndata: {"half')
        call.closed = True
        call.gate.wait(20)

    backend = made(FakeBackend, half)
    router = made(Router, backends=[backend])
    response = router.call("POST", path, {**CHAT, "stream": True})
    first = response.read1().decode()
    backend.kill()
    backend.calls[0].gate.set()
    rest = response.read().decode()
    assert sign in rest and "closed" in rest
    assert json.loads(events(first + rest)[-1])
    assert router.metric("skiff_router_broken_answers_total") == [1.0]


def test_a_backend_killed_within_a_body_ends_the_connection(made):
    def half(call):
        call.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100000)
        call.closed = True
        call.handler.connection.shutdown(socket.SHUT_RDWR)

    router = made(Router, backends=[made(FakeBackend, half)])
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        router.call("GET", "/file").read()


def test_health_transitions(made):
    backend = made(FakeBackend)
    router = made(Router, backends=[backend])
    assert router.call("GET", "/ready").status == 200
    backend.healthy = False
    assert router.eventually(lambda: router.call("GET", "/ready").status == 503)
    response = router.post()
    assert response.status == 503 and "no available workers" in response.text
    assert response.headers["retry-after"]
    assert router.call("GET", "/health").status == 200  # the router itself is well
    backend.healthy = True
    assert router.eventually(lambda: router.call("GET", "/ready").status == 200)
    assert router.post().status == 200


def test_bad_requests_do_not_count_against_a_backend(made):
    backend = made(FakeBackend, lambda call: call.send(400, {"error": "no"}))
    router = made(Router, "--health-check-interval-secs", "1000", backends=[backend])
    for _ in range(50):
        assert router.post().status == 400
    assert router.call("GET", "/ready").status == 200
    assert router.metric(r"skiff_router_backend_failures_total\{.*\}") == [0.0]


def test_prompts_follow_their_beginnings(made):
    backends = [made(FakeBackend) for _ in range(3)]
    router = made(Router, backends=backends)
    for talk in range(6):
        messages = [{"role": "user", "content": f"{talk}" * 2000}]
        first = router.served_by({"messages": messages})
        for turn in range(4):
            messages += [{"role": "assistant", "content": "a" * 500},
                         {"role": "user", "content": f"{turn}" * 500}]
            assert router.served_by({"messages": messages}) == first
    cached, = router.metric("skiff_router_cached_tokens_total")
    total, = router.metric("skiff_router_prompt_tokens_total")
    assert cached > total / 2


def test_registration(made):
    router = made(Router)
    assert router.call("GET", "/ready").status == 503
    backend = made(FakeBackend)
    backend.healthy = False
    assert router.register(backend).status == 503  # asked before it is taken
    backend.healthy = True
    assert router.register(backend).status == 200
    assert router.register(backend).status == 200  # the same URL replaces
    assert json.loads(router.call("GET", "/registered_number").read()) == {
        "mixed": 1, "prefill": 0, "decode": 0}
    assert router.served_by() == backend.port
    assert router.register(backend, role="prefill").status == 400
    assert router.register(backend, is_paused=True).status == 200
    assert router.post().status == 503
    assert router.register(backend).status == 200
    assert router.post().status == 200


def test_a_router_that_starts_again_knows_its_instances_by_heartbeats(made):
    backend = made(FakeBackend)
    router = made(Router)
    assert router.register(backend).status == 200
    router.close()
    again = made(Router, port=router.port)
    assert again.post().status == 503
    assert again.register(backend).status == 200
    assert again.served_by() == backend.port


def test_keys(made, tmp_path):
    (tmp_path / "backend").write_text("inner\n")
    backend = made(FakeBackend)
    router = made(Router, "--api-key", "outer", "--admin-key", "boss", "--backend-key-file",
                  tmp_path / "backend", backends=[backend], up=0)
    key = {"Authorization": "Bearer outer"}
    assert router.eventually(lambda: router.call("GET", "/ready").status == 200)
    for headers in ({}, {"Authorization": "Bearer boss"}, {"x-api-key": "wrong"}):
        for method, path in (("POST", PATH), ("GET", "/metrics"), ("GET", "/nowhere")):
            assert router.call(method, path, CHAT if method == "POST" else None,
                               headers).status == 401
    assert backend.calls == []
    assert router.post(headers=key).status == 200
    assert backend.calls[0].headers["authorization"] == "Bearer inner"
    assert router.post(headers={"x-api-key": "outer"}).status == 200
    assert "x-api-key" not in backend.calls[1].headers
    assert router.register(backend, headers=key).status == 401
    assert router.register(backend, headers={"Authorization": "Bearer boss"}).status == 200
    assert router.call("GET", "/registered", headers=key).status == 401


def test_a_body_that_is_too_large_never_reaches_a_backend(made):
    backend = made(FakeBackend)
    router = made(Router, "--max-body-size", "2000", backends=[backend])
    assert router.post({"prompt": "x" * 3000}).status == 413
    assert backend.calls == []


def test_sigterm_finishes_what_runs(made):
    def wait(call):
        assert call.gate.wait(20)
        call.send(200, {"done": True})

    backend = made(FakeBackend, wait)
    router = made(Router, backends=[backend])
    answers = []
    thread = threading.Thread(target=lambda: answers.append(router.post()))
    thread.start()
    backend.wait_for_calls(1)
    router.process.send_signal(signal.SIGTERM)
    assert router.eventually(lambda: router.call("GET", "/ready").status == 503)
    assert router.post().status == 503
    assert router.process.poll() is None
    backend.calls[0].gate.set()
    thread.join(20)
    assert answers[0].status == 200 and answers[0].text == '{"done": true}'
    assert router.process.wait(20) == 0


def test_time_is_up(made):
    backend = made(FakeBackend, lambda call: (call.gate.wait(60), None))
    router = made(Router, "--request-timeout-secs", "0.5", backends=[backend])
    response = router.post()
    assert response.status == 504
    backend.calls[0].gate.set()


def test_a_backend_that_hangs_is_given_up(made):
    def half(call):
        call.begin_stream()
        call.chunk("data: 1\n\n")
        call.gate.wait(60)

    backend = made(FakeBackend, half)
    router = made(Router, "--stall-timeout-secs", "0.1", backends=[backend])
    response = router.call("POST", PATH, {**CHAT, "stream": True})
    assert response.read1() == b"data: 1\n\n"
    backend.answers = False
    assert "hangs" in response.read().decode()
    backend.calls[0].gate.set()


def test_a_backend_that_drains_finishes_its_answers(made):
    def wait(call):
        assert call.gate.wait(20)
        call.send(200, {"done": True})

    backend = made(FakeBackend, wait)
    router = made(Router, "--stall-timeout-secs", "0.1", backends=[backend])
    answers = []
    thread = threading.Thread(target=lambda: answers.append(router.post()))
    thread.start()
    backend.wait_for_calls(1)
    backend.healthy = False  # as a server says after SIGTERM
    assert router.eventually(lambda: router.call("GET", "/ready").status == 503)
    time.sleep(2.5)  # the router looks for answers to give up once in a second
    backend.calls[0].gate.set()
    thread.join(20)
    assert (answers[0].status, answers[0].text) == (200, '{"done": true}')


class TestPairs:
    @pytest.fixture
    def pair(self, made):
        prefill, decode = made(FakeBackend), made(FakeBackend)
        router = made(Router, "--splitwise")
        for backend, role, port in ((prefill, "prefill", 2334), (decode, "decode", 2335)):
            assert router.register(backend, role=role, connector_port=port,
                                   transfer_protocol=["tcp"], device_ids=["0"]).status == 200
        return router, prefill, decode

    def test_both_get_the_request_and_the_decode_instance_answers(self, pair):
        router, prefill, decode = pair
        assert router.served_by() == decode.port
        first, second = prefill.calls[0].json(), decode.calls[0].json()
        assert first == second
        assert first["messages"] == CHAT["messages"]
        assert first["request_id"] == prefill.calls[0].headers["x-request-id"]
        assert first["disaggregate_info"] == {
            "prefill_ip": "127.0.0.1", "decode_ip": "127.0.0.1", "prefill_connector_port": 2334,
            "decode_connector_port": 2335, "decode_device_ids": ["0"], "decode_rdma_ports": [],
            "transfer_protocol": "tcp", "decode_tp_size": 1}
        assert prefill.calls[0].headers["x-router-decode-url"] == decode.url

    def test_the_answer_waits_for_both(self, pair):
        router, prefill, decode = pair

        def gated(call):
            assert call.gate.wait(20)
            call.send(200, {})

        prefill.behave = gated
        answers = []
        thread = threading.Thread(target=lambda: answers.append(router.served_by()))
        thread.start()
        decode.wait_for_calls(1)
        prefill.wait_for_calls(1)
        assert answers == []
        prefill.calls[0].gate.set()
        thread.join(20)
        assert answers == [decode.port]

    def test_connections_are_used_again_whoever_answers_first(self, pair):
        router, prefill, decode = pair
        for first, second in ((prefill, decode), (decode, prefill)) * 3:
            second.behave = lambda call: (call.gate.wait(20), call.send(200, {"served_by": 1}))
            first.behave = lambda call: call.send(200, {"served_by": 1})
            answers = []
            thread = threading.Thread(target=lambda: answers.append(router.post().status))
            count = len(first.calls)
            thread.start()
            first.wait_for_calls(count + 1)
            second.wait_for_calls(count + 1)
            # The router has read the first one's answer: its load is no longer waiting.
            name = f'skiff_router_backend_waiting_tokens{{backend="{first.url}"'
            assert router.eventually(
                lambda: router.metric(re.escape(name) + r".*\}") == [0.0])
            second.calls[-1].gate.set()
            thread.join(20)
            assert answers == [200]

    def test_a_stream_comes_from_the_decode_instance(self, pair):
        router, _, decode = pair

        def stream(call):
            call.begin_stream()
            for i in range(3):
                call.chunk(f"data: {i}\n\n")
            call.end_stream()

        decode.behave = stream
        assert events(router.post({**CHAT, "stream": True}).text) == ["0", "1", "2"]

    def test_refusals_of_either_reach_the_client(self, pair):
        router, prefill, decode = pair
        decode.behave = lambda call: call.send(422, {"who": "decode"})
        assert router.post().status == 422
        decode.behave = lambda call: call.gate.wait(5)
        prefill.behave = lambda call: call.send(400, {"who": "prefill"})
        response = router.post()
        assert (response.status, json.loads(response.text)) == (400, {"who": "prefill"})
        for call in decode.calls:
            call.gate.set()

    def test_another_pair_is_tried(self, pair, made):
        router, prefill, decode = pair
        spare = made(FakeBackend)
        assert router.register(spare, role="prefill").status == 200
        prefill.behave = spare.behave = lambda call: call.send(
            503 if call.handler.server.server_address[1] == prefill.port else 200, {})
        assert {router.served_by() for _ in range(4)} == {decode.port}
        names = [call.json()["request_id"] for call in decode.calls]
        assert len(set(names)) == len(names)

    def test_a_prefill_instance_that_dies_costs_no_answer(self, pair):
        router, prefill, decode = pair

        def die(call):
            decode.wait_for_calls(1)
            call.closed = True
            call.handler.connection.shutdown(socket.SHUT_RDWR)

        prefill.behave = die
        assert router.served_by() == decode.port
        assert len(prefill.calls) == len(decode.calls) == 1  # nobody got it twice

    def test_a_prefill_instance_that_cannot_be_reached_costs_no_answer(self, made):
        prefill, decode = made(FakeBackend), made(FakeBackend)
        router = made(Router, "--splitwise", "--health-check-interval-secs", "1000")
        for backend, role in ((prefill, "prefill"), (decode, "decode")):
            assert router.register(backend, role=role).status == 200
        prefill.kill()
        assert router.served_by() == decode.port

    def test_a_prefill_instance_that_hangs_holds_no_answer_back(self, pair):
        router, prefill, decode = pair
        gate = threading.Event()
        prefill.behave = lambda call: (gate.wait(60), call.send(200, {}))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(router.served_by()))
        thread.start()
        prefill.wait_for_calls(1)
        prefill.healthy = False
        thread.join(20)
        gate.set()
        assert answers == [decode.port]

    def test_clients_may_not_say_where_keys_and_values_go(self, pair):
        router, prefill, decode = pair
        for name in ("disaggregate_info", "disaggregate\\u005finfo"):
            body = ('{"' + name + '": {"decode_ip": "6.6.6.6"}, "messages": []}').encode()
            connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=30)
            connection.request("POST", PATH, body, {"Content-Type": "application/json"})
            assert connection.getresponse().status == 400
            connection.close()
        assert prefill.calls == decode.calls == []
        assert router.post(path="/v1/messages").status == 400

    def test_without_one_of_both_nobody_is_asked(self, pair):
        router, prefill, decode = pair
        prefill.healthy = False
        assert router.eventually(lambda: router.call("GET", "/ready").status == 503)
        assert router.post().status == 503
        assert decode.calls == []
