"""A port for each replica (--ports, as FastDeploy's multi_api_server has them), and ports for metrics."""
import json
import re
import subprocess
import urllib.request

import openai
import pytest

from edge import ROOT, SKIFF, Edge, eventually, long_demo
from test_replicas import Endless
from test_route import Router

PROMPT = "What is 2 + 3?"


class Ports(Edge):
    """`skiff serve` at several ports: `at` has them in the order of the log, `port` is the last."""

    def __init__(self, *flags, count):
        super().__init__(long_demo(), "--no-webui", *flags)
        assert eventually(lambda: len(self.at) == count), "".join(self.log)

    @property
    def at(self):
        found = (re.search(r"listening on \S+ port (\d+)", line) for line in list(self.log))
        return [int(one.group(1)) for one in found if one]

    def get(self, port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return response.read().decode()

    def metric(self, port, name):
        family = self.get(port, "/metrics")
        return float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", family, re.M).group(1))

    def client_at(self, port):
        return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0,
                             timeout=60)


def say(client, **more):
    return client.completions.create(**{"model": "default", "prompt": PROMPT, "max_tokens": 12,
                                        "temperature": 0, **more}).choices[0].text


@pytest.fixture(scope="module")
def each():
    running = Ports("--data-parallel-size", "2", "--ports", "0,0", "--metrics-ports", "0,0",
                    "--num-servers", "2", "--grpc-port", "0", count=4)
    yield running
    running.close()


def test_the_log_says_what_each_is_for(each):
    log = "".join(each.log)
    for words in ("replica 0", "replica 1", "metrics and probes of replica 0",
                  "metrics and probes of replica 1"):
        assert re.search(rf"port \d+: {words}\n", log), log


def test_what_comes_in_at_a_port_is_computed_by_its_replica(each, server):
    right = say(server.client())
    generated = "fastdeploy:generation_tokens_total"
    before = [each.metric(port, generated) for port in each.at]
    for _ in range(3):
        assert say(each.client_at(each.at[1])) == right
    after = [each.metric(port, generated) for port in each.at]
    assert after[0] == before[0] and after[2] == before[2]
    assert after[1] > before[1] and after[3] == after[1]
    assert say(each.client_at(each.at[0])) == right
    assert each.metric(each.at[0], generated) > before[0]


def test_a_busy_replica_keeps_what_came_in_at_its_port(each):
    class At:
        client = staticmethod(lambda: each.client_at(each.at[0]))
    stream = Endless(At)
    running = "fastdeploy:num_requests_running"
    assert eventually(lambda: each.metric(each.at[0], running) == 1)
    assert each.metric(each.at[1], running) == each.metric(each.at[3], running) == 0
    assert 'vllm:num_requests_running{model_name="default",engine="0"}' not in each.get(
        each.at[1], "/metrics")
    say(each.client_at(each.at[0]))
    stream.leave.set()
    stream.join(20)
    assert eventually(lambda: each.metric(each.at[0], running) == 0)


def test_ports_of_metrics_have_nothing_else(each):
    assert each.get(each.at[2], "/health") == ""
    assert json.loads(each.get(each.at[3], "/config-info"))["data_parallel_size"] == 2
    with pytest.raises(openai.NotFoundError):
        say(each.client_at(each.at[2]))


def test_one_port_may_have_its_metrics_elsewhere():
    running = Ports("--metrics-port", "0", count=2)
    try:
        say(running.client_at(running.at[0]))
        number = "fastdeploy:requests_number"
        assert running.metric(running.at[0], number) == running.metric(running.at[1], number) == 1
    finally:
        running.close()


def test_each_port_registers_with_a_router():
    router = Router("--policy", "fd_metrics_score")
    running = Ports("--data-parallel-size", "2", "--ports", "0,0", "--metrics-ports", "0,0",
                    "--router", f"127.0.0.1:{router.port}", count=4)
    try:
        known = lambda: {(b["port"], b["metrics_port"]) for b in router.registered()}
        assert eventually(lambda: known() == {(running.at[0], running.at[2]),
                                              (running.at[1], running.at[3])}), known()
        through = openai.OpenAI(base_url=f"http://127.0.0.1:{router.port}/v1", api_key="none",
                                max_retries=0, timeout=60)
        assert eventually(lambda: all(b["healthy"] for b in router.registered()))
        assert say(through) == say(running.client_at(running.at[1]))
    finally:
        running.close()
        router.close()


@pytest.mark.parametrize("flags, words", [
    (["--ports", "8000,8001,8002"], "--ports has 3 ports, but there are 2 replicas"),
    (["--ports", "8000,8001", "--metrics-ports", "8800"], "--metrics-ports has 1 ports"),
    (["--ports", "8000,8001", "--num-servers", "4"], "--num-servers is 4"),
    (["--num-servers", "2"], "--num-servers needs --ports"),
    (["--ports", "8000,eight"], "which is no port"),
])
def test_what_does_not_fit_is_refused_at_once(flags, words):
    done = subprocess.run([SKIFF, "serve", str(ROOT / "models/demo"), "-dp", "2", *flags],
                          capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and words in done.stderr, done.stderr
