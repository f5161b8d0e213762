"""Several servers share their requests through a real Redis server (skipped where there is none)."""
import concurrent.futures
import json
import shutil
import signal
import socket
import subprocess
import time

import openai
import pytest

from edge import SKIFF, Edge, demo_model, eventually, long_demo, metric_of, spawn

ENDLESS = {"model": "default", "prompt": "Count: 1, 2, 3,", "max_tokens": 20000, "stream": True,
           "extra_body": {"ignore_eos": True}}
SHORT = {"model": "default", "prompt": "What is 2 + 3?", "max_tokens": 16, "temperature": 0}
# Takes seconds, and is whole if it has all of its tokens.
LONG = {**SHORT, "max_tokens": 2000, "extra_body": {"ignore_eos": True}}
LEASE = 3


class Redis:
    def __init__(self, *flags):
        if not shutil.which("redis-server"):
            pytest.skip("redis-server is not installed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.flags, self.process = flags, None
        self.start()

    def start(self):
        self.process = spawn(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             *self.flags], stdout=subprocess.DEVNULL)
        assert eventually(lambda: self.cli("PING") != "")

    def cli(self, *words):
        return subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True,
                              text=True, check=False, errors="replace").stdout

    def kill(self):
        self.process.kill()
        self.process.wait()


class Instance(Edge):
    """One of the servers; it computes one request at a time."""

    def __init__(self, redis, *flags, model=None):
        super().__init__(model or long_demo(), "--max-num-seqs", "1", "--threads", "1", "--no-webui",
                         "--served-model-name", "demo", "--scheduler-name", "global",
                         "--scheduler-port", redis.port, "--scheduler-lease", LEASE,
                         "--scheduler-min-load-score", 1, *flags)
        assert self.logged("the shared queue at")

    def client(self, key="none"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=120)

    def complete(self, **request):
        return self.client().completions.create(**request)

    def metric(self, name):
        body = self.request("GET", "/metrics").body
        return metric_of(body.decode() if isinstance(body, bytes) else body,
                         f"fastdeploy:shared_queue_{name}")

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        super().close()


class Busy:
    """An answer that keeps an instance busy until close()."""

    def __init__(self, instance):
        self.stream = instance.complete(**ENDLESS)
        next(iter(self.stream))

    def close(self):
        self.stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture(scope="module")
def redis():
    running = Redis()
    yield running
    running.kill()


@pytest.fixture
def start(redis, request):
    """Starts instances that share requests with each other, and with none of another test."""
    started = []

    def begin(*flags, at=redis):
        started.append(Instance(at, "--scheduler-topic", request.node.name, *flags))
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture(scope="module")
def pair(redis):
    servers = [Instance(redis) for _ in range(2)]
    yield servers
    for one in servers:
        one.close()


def in_background(call):
    return concurrent.futures.ThreadPoolExecutor(1).submit(call)


def texts(stream):
    return [chunk.choices[0].text for chunk in stream if chunk.choices]


def test_what_finds_no_room_is_computed_elsewhere(pair):
    a, b = pair
    alone = b.complete(**SHORT).choices[0]
    assert (a.metric("put_total"), b.metric("taken_total")) == (0, 0), "there was room"
    with Busy(a):
        whole = a.complete(**SHORT)
        assert (whole.choices[0].text, whole.choices[0].finish_reason) == (
            alone.text, alone.finish_reason)
        assert whole.usage.completion_tokens == b.complete(**SHORT).usage.completion_tokens
        streamed = texts(a.complete(**SHORT, stream=True))
        assert "".join(streamed) == alone.text
        assert len(streamed) > 2, "pieces pass as they are made"
        chat = a.client().chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hello"}], max_tokens=4)
        assert chat.choices[0].message.content
        with pytest.raises(openai.BadRequestError, match="temperature"):
            a.complete(**{**SHORT, "temperature": -1})
    # The client of a stream may close its connection behind the last event, before the stream's end.
    assert b.metric("taken_total") == 4 and a.metric("answered_total") in (3, 4)
    assert b.metric("held") == a.metric("waiting") == 0


def test_many_requests_at_one_door(pair):
    a, b = pair
    before = b.metric("taken_total")
    asked = [{**SHORT, "prompt": f"Number {i}:", "max_tokens": 64,
              "extra_body": {"ignore_eos": True}} for i in range(24)]
    alone = [b.complete(**request).choices[0].text for request in asked]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(lambda request: a.complete(**request), asked))
    assert [reply.choices[0].text for reply in replies] == alone
    assert b.metric("taken_total") > before
    assert a.metric("came_back_total") == a.metric("broken_total") == 0


def test_a_client_that_leaves_ends_it_elsewhere(pair):
    a, b = pair
    with Busy(a):
        stream = a.complete(**ENDLESS)
        next(iter(stream))
        assert b.metric("held") == 1
        stream.close()
        assert eventually(lambda: b.metric("held") == 0)
    load = lambda: json.loads(b.request("GET", "/load").body)["server_load"]
    assert eventually(lambda: load() == 0)


def holder_of(servers):
    """The one of them that computes a request of another one, and the rest."""
    assert eventually(lambda: any(one.metric("held") for one in servers))
    return sorted(servers, key=lambda one: -one.metric("held"))


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_lost_instance_computed_comes_back_once(start, fault):
    a, b, c = [start() for _ in range(3)]
    alone = b.complete(**LONG)
    with Busy(a):
        answer = in_background(lambda: a.complete(**LONG))
        lost, other = holder_of([b, c])
        lost.process.send_signal(fault)
        assert eventually(lambda: other.metric("held") == 1), "it comes back"
        lost.process.send_signal(signal.SIGCONT)  # whatever it says now is not heard
        reply = answer.result(120)
        assert reply.choices[0].text == alone.choices[0].text
        assert reply.usage.completion_tokens == 2000
        assert (a.metric("came_back_total"), a.metric("answered_total")) == (1, 1)
        assert other.metric("taken_total") >= 1
        if fault == signal.SIGSTOP:
            assert eventually(lambda: lost.metric("held") == 0)
        assert a.complete(**SHORT).choices[0].text


def test_a_stream_that_has_begun_is_not_repeated(start):
    a, b = start(), start()
    whole = texts(b.complete(**{**LONG, "stream": True}))
    with Busy(a):
        got = []
        with pytest.raises(openai.APIError, match="is gone"):
            for chunk in a.complete(**{**LONG, "stream": True}):
                got.append(chunk.choices[0].text)
                if len(got) == 20:
                    b.process.send_signal(signal.SIGKILL)
        assert len(got) < len(whole)
        assert "".join(whole).startswith("".join(got)), "no text twice, none lost in between"
        assert (a.metric("broken_total"), a.metric("came_back_total")) == (1, 0)


def test_the_second_loss_is_an_error(start):
    a, b, c = [start() for _ in range(3)]
    with Busy(a):
        answer = in_background(lambda: a.complete(**LONG))
        lost, other = holder_of([b, c])
        lost.process.send_signal(signal.SIGKILL)
        assert eventually(lambda: other.metric("held") == 1)
        other.process.send_signal(signal.SIGKILL)
        with pytest.raises(openai.InternalServerError) as refused:
            answer.result(60)
        assert refused.value.status_code == 502


def test_without_redis_each_serves_alone(start):
    own = Redis()
    try:
        a, b = start(at=own), start(at=own)
        busy = Busy(a)
        waiting = in_background(lambda: a.complete(**SHORT))  # computed by b
        assert waiting.result(60).choices[0].text
        with Busy(b):
            waiting = in_background(lambda: a.complete(**SHORT))
            assert eventually(lambda: a.metric("waiting") == 1)
            own.kill()
            assert eventually(lambda: (a.metric("connected"), a.metric("waiting")) == (0, 0))
            later = in_background(lambda: a.complete(**SHORT))
            assert next(iter(busy.stream)), "what runs goes on"
            busy.close()
            assert waiting.result(60).choices[0].text == later.result(60).choices[0].text
        own.start()
        assert eventually(lambda: a.metric("connected") == b.metric("connected") == 1)
        taken = b.metric("taken_total")
        with Busy(a):
            assert a.complete(**SHORT).choices[0].text
        assert b.metric("taken_total") == taken + 1
    finally:
        own.kill()


def test_what_runs_elsewhere_survives_a_redis_that_forgets(start):
    own = Redis()
    try:
        a, b = start(at=own), start(at=own)
        alone = b.complete(**LONG).choices[0].text
        with Busy(a):
            answer = in_background(lambda: a.complete(**LONG))
            assert eventually(lambda: b.metric("held") == 1)
            own.cli("FLUSHALL")
            assert answer.result(120).choices[0].text == alone
            assert a.metric("came_back_total") <= 1
    finally:
        own.kill()


def test_a_few_requests_stay_where_they_came(start):
    a, b = [start("--scheduler-min-load-score", 50) for _ in range(2)]
    with Busy(a):
        answer = in_background(lambda: a.complete(**SHORT))
        assert eventually(lambda: a.metric("waiting") == 1)
        time.sleep(LEASE)
        assert not answer.done()
    assert answer.result(60).choices[0].text
    assert (a.metric("put_total"), b.metric("taken_total")) == (1, 0)


def test_keys_stay_where_they_were_checked(start, redis, request):
    flags = ["--scheduler-min-load-score", 50, "--api-key", "first-key", "--api-key", "second-key"]
    a = start(*flags)
    busy = a.client("first-key").completions.create(**ENDLESS)
    next(iter(busy))
    answer = in_background(lambda: a.client("second-key").completions.create(**SHORT))
    own = f":{request.node.name}:"
    keys = lambda: [key for key in redis.cli("--scan").split() if ":request:" in key and own in key]
    assert eventually(keys)
    held = redis.cli("HGETALL", keys()[0])
    assert "What is 2 + 3?" in held and "second-key" not in held
    busy.close()
    assert answer.result(60).choices[0].text


def test_bounds_on_what_waits(start):
    a = start("--scheduler-min-load-score", 50, "--scheduler-max-size", 1, "--scheduler-ttl", 2)
    with Busy(a):
        first = in_background(lambda: a.complete(**SHORT))
        assert eventually(lambda: a.metric("waiting") == 1)
        second = in_background(lambda: a.complete(**SHORT))  # waits in the instance itself
        with pytest.raises(openai.InternalServerError) as refused:
            first.result(60)
        assert refused.value.status_code == 503 and "--scheduler-ttl" in str(refused.value)
    assert second.result(60).choices[0].text
    assert a.metric("put_total") == 1


def test_the_way_down(start):
    a, b = start(), start()
    with Busy(a):
        alone = a.complete(**LONG)  # by b
        answer = in_background(lambda: a.complete(**LONG))
        assert eventually(lambda: b.metric("held") == 1)
        b.process.send_signal(signal.SIGTERM)
        assert answer.result(120).choices[0].text == alone.choices[0].text
        assert b.process.wait(60) == 0
        waits = in_background(lambda: a.complete(**SHORT))
        assert eventually(lambda: a.metric("waiting") == 1)
        a.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.InternalServerError) as refused:
            waits.result(60)
        assert refused.value.status_code == 503 and refused.value.response.headers["retry-after"]


def test_what_is_refused_at_the_start(redis):
    def start_of(*flags):
        done = subprocess.run([SKIFF, "serve", str(demo_model()), "--port", "0", *map(str, flags)],
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    own = Redis("--requirepass", "secret")
    try:
        shared = ["--scheduler-name", "global", "--scheduler-port", own.port]
        code, said = start_of(*shared)
        assert code == 1 and "NOAUTH" in said
        code, said = start_of(*shared, "--scheduler-password", "wrong")
        assert code == 1 and "wrong" not in said.replace("invalid username-password", "")
    finally:
        own.kill()
    code, said = start_of("--scheduler-name", "splitwise")
    assert code == 2 and "skiff route" in said
    code, said = start_of("--scheduler-name", "global", "--splitwise-role", "prefill")
    assert code == 2
