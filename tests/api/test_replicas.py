"""Several replicas behind one port: the same answers as one, each with metrics of its own."""
import concurrent.futures
import subprocess
import threading
import urllib.request

import pytest
from api_server import Server
from edge import ROOT, SKIFF, long_demo


@pytest.fixture(scope="module")
def pair():
    running = Server(long_demo(), "--data-parallel-size", "2", "--admin-key", "operators-key")
    yield running
    running.close()


def metrics(server):
    """Values by name and engine, for families that have the label."""
    found = {}
    for line in server.get("/metrics").splitlines():
        if line.startswith("fastdeploy:engine_"):
            name, labels = line.split("{", 1)
            engine = labels.split('engine="')[1].split('"')[0]
            found[name.removeprefix("fastdeploy:engine_"), engine] = float(line.rsplit(" ", 1)[1])
    return found


def control(server, path):
    request = urllib.request.Request(server.url + path, b"{}", method="POST",
                                     headers={"Authorization": "Bearer operators-key",
                                              "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.status


class Endless(threading.Thread):
    """A streamed answer that ends when it is told to, or when the server ends it."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.begun, self.leave, self.error = threading.Event(), threading.Event(), None
        self.stream = server.client().completions.create(
            model="default", prompt="Count: 1, 2, 3,", max_tokens=60000, stream=True,
            extra_body={"ignore_eos": True})
        self.start()
        assert self.begun.wait(30)

    def run(self):
        try:
            for _ in self.stream:
                self.begun.set()
                if self.leave.is_set():
                    break
        except Exception as error:
            self.error = error
        self.stream.close()


def test_answers_are_those_of_one(server, pair):
    shared = "A story about a bear, a bee and a boat, told again and again. " * 4
    asked = [{"prompt": (shared if i % 3 else "") + f"Number {i}:", "max_tokens": 24, "seed": i,
              "temperature": i % 2, "n": 1 + i % 2, "logprobs": 2} for i in range(16)]

    def ask(of, request):
        reply = of.client().completions.create(model="default", **request)
        return [(c.text, c.finish_reason, c.logprobs.token_logprobs) for c in reply.choices]

    alone = [ask(server, request) for request in asked]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda request: ask(pair, request), asked)) == alone


def test_a_busy_replica_leaves_requests_to_the_other(pair):
    def running():
        found = metrics(pair)
        return [found["num_requests_running", engine] for engine in "01"]

    assert pair.eventually(lambda: running() == [0, 0])
    streams = [Endless(pair)]
    assert pair.eventually(lambda: sum(running()) == 1)
    busy = str(running().index(1))
    idle = "10"[int(busy)]
    before = metrics(pair)
    streams.append(Endless(pair))
    assert pair.eventually(lambda: running() == [1, 1])
    after = metrics(pair)
    assert after["prompt_tokens_total", idle] > before["prompt_tokens_total", idle]
    assert after["prompt_tokens_total", busy] == before["prompt_tokens_total", busy]
    text = pair.get("/metrics")
    assert 'vllm:num_requests_running{model_name="' in text
    for engine in "01":
        assert f'engine="{engine}"' in text
    for stream in streams:
        stream.leave.set()
        stream.join(30)
    assert pair.eventually(lambda: running() == [0, 0])


def test_a_pause_ends_what_runs_in_both(pair):
    streams = [Endless(pair), Endless(pair)]
    control(pair, "/v1/pause")
    for stream in streams:
        stream.join(30)
        assert stream.error is not None
    assert pair.eventually(lambda: all(metrics(pair)["num_requests_running", e] == 0 for e in "01"))
    control(pair, "/v1/resume")
    assert pair.client().completions.create(model="default", prompt="a", max_tokens=2).choices


def test_sigterm_lets_replies_of_both_finish(start_server):
    running = start_server("--data-parallel-size", "2")
    done = []

    def ask():
        done.append(running.client().completions.create(
            model="default", prompt="Count: 1, 2,", max_tokens=600, extra_body={"ignore_eos": True}))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert running.eventually(lambda: running.load() == 2 or len(done) == 2, 60)
    assert running.terminate() == 0
    for thread in threads:
        thread.join(30)
    assert [reply.usage.completion_tokens for reply in done] == [600, 600]


@pytest.mark.parametrize("flags, words", [
    (["--ports", "8000,8001"], ["--ports has 2 ports, but there are 1 replicas"]),
    (["--ips", "198.51.100.1,198.51.100.2"], ["--ips has no address of this node"]),
    (["--ips", "127.0.0.1,198.51.100.2"], ["2 nodes", "--data-parallel-size is 1"]),
])
def test_what_is_not_there_is_refused_at_once(flags, words):
    ended = subprocess.run([SKIFF, "serve", str(ROOT / "models/demo"), *flags],
                           capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    for word in words:
        assert word in ended.stderr


def test_a_node_runs_its_share(start_server):
    running = start_server("--ips", "198.51.100.1,127.0.0.1", "--data-parallel-size", "4")
    log = "".join(running.log)
    assert "node 1 of 2 (--ips) runs 2 of 4 replicas" in log
    assert "replica 1 of 2 runs on cpu" in log
    assert running.terminate() == 0
