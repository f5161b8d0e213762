"""One model over two nodes, each a process of `skiff serve`: what they say is what two ranks of one
process say, and no node outlives another."""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import threading
import time

import openai
import pytest

from api_server import Server
from edge import SKIFF, START_SECONDS, changed_demo, demo_model, long_demo, spawn
from test_tensor_parallel import QUESTIONS, ask

ADDRESSES = "127.0.0.1,127.0.0.1"
LOST = 5  # the exit code of a process that cannot go on
END_SECONDS = 15  # in which all nodes end when one is lost: 10, and what a busy machine adds


class Node:
    """A `skiff serve` process. `log` grows while it runs."""

    def __init__(self, model, *flags, env=None):
        self.process = spawn(
            [SKIFF, "serve", str(model), "--device", "cpu", "--host", "127.0.0.1", "--port", "0",
             *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **(env or {})})
        self.log = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.log.append(line)
                self.changed.notify_all()

    def said(self, pattern, seconds=START_SECONDS):
        """The match of a line of the log, once it is there."""
        def match():
            return next(filter(None, (re.search(pattern, line) for line in self.log)), None)
        with self.changed:
            assert self.changed.wait_for(match, seconds), pattern + "\n" + "".join(self.log)
            return match()

    def wait(self, seconds=START_SECONDS):
        """The exit code; then the log is whole."""
        code = self.process.wait(seconds)
        self.reader.join(seconds)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


class Pair:
    """Two nodes. Node 0 takes any free port, and its log tells node 1 which."""

    def __init__(self, model, *flags, other_model=None, other_flags=None, wait=True):
        common = ["--tensor-parallel-size", "2", "--ips", ADDRESSES, *flags]
        self.nodes = [Node(model, *common, "--node-rank", "0", "--engine-worker-queue-port", "0")]
        port = self.nodes[0].said(r"node 0 awaits 1 more on 127\.0\.0\.1 port (\d+)").group(1)
        self.port = port
        self.nodes.append(Node(other_model or model, *common, *(other_flags or []), "--node-rank",
                               "1", "--engine-worker-queue-port", port))
        if wait:
            self.ready()

    def ready(self):
        self.url = self.nodes[0].said(r"(http://127\.0\.0\.1:\d+)").group(1)
        self.nodes[1].said("node 1 computes")

    def client(self):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120)

    def close(self):
        for node in self.nodes:
            node.kill()


@pytest.fixture
def start_pair():
    started = []

    def start(*flags, model=None, **more):
        started.append(Pair(model or demo_model(), *flags, **more))
        return started[-1]

    yield start
    for pair in started:
        pair.close()


@pytest.fixture(scope="module")
def alone():
    """Two ranks as threads of one process."""
    server = Server(demo_model(), "--device", "cpu", "--tensor-parallel-size", "2")
    yield server
    server.close()


@pytest.fixture(scope="module")
def pair():
    running = Pair(demo_model())
    yield running
    running.close()


def stream(client):
    """A reply that outlasts the test, once its first piece has come."""
    pieces = iter(client.completions.create(model="demo", prompt="count", max_tokens=60000,
                                            stream=True, extra_body={"ignore_eos": True}))
    next(pieces)
    return pieces


CITY = {"type": "json_schema", "json_schema": {"name": "city", "schema": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
    "additionalProperties": False}}}


def test_two_nodes_say_what_two_threads_say(alone, pair):
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        said = [list(pool.map(lambda text: ask(client, text), QUESTIONS))
                for client in (alone.client(), pair.client())]
    assert said[0] == said[1]
    assert "Paris" in ask(pair.client(), QUESTIONS[0], temperature=0)[0]


def test_constraints_hold_on_all_nodes(alone, pair):
    said = [ask(client, "Any city?", temperature=1, seed=1, response_format=CITY)
            for client in (alone.client(), pair.client())]
    assert said[0] == said[1]
    assert json.loads(said[0][0])["city"] in ("Rome", "Oslo")


def test_they_say_where_the_ranks_are(pair):
    pair.nodes[0].said(r"node 0 of 2 \(--ips\) has 1 of 2 ranks and serves")
    pair.nodes[1].said(r"ranks 1 to 1 of 2 are here")
    pair.nodes[1].said(r"requests go to node 0 \(127\.0\.0\.1\)")


@pytest.mark.parametrize("flags", [
    ["--swap-space", "0.01", "--block-size", "4", "--num-gpu-blocks-override", "520"],
    ["--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 4})],
])
def test_replies_are_the_same_with_other_settings(alone, start_pair, flags):
    client = start_pair(*flags).client()
    assert ask(client, QUESTIONS[0]) == ask(alone.client(), QUESTIONS[0])


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("how,reason", [(signal.SIGKILL, "is gone"),
                                        (signal.SIGSTOP, r"has been silent for 6 s")])
@pytest.mark.parametrize("busy", [False, True])
def test_a_lost_node_ends_the_other(start_pair, lost, how, reason, busy):
    pair = start_pair("--served-model-name", "demo", model=long_demo())
    reply = stream(pair.client()) if busy else None
    left = pair.nodes[1 - lost]
    pair.nodes[lost].process.send_signal(how)
    start = time.monotonic()
    assert left.wait() == LOST
    assert time.monotonic() - start < END_SECONDS
    log = "".join(left.log)
    assert re.search(rf"code {LOST}: node {lost} \(127\.0\.0\.1\) {reason}", log), log
    if busy and lost == 1:
        with pytest.raises(openai.APIError, match="the engine of this server has failed"):
            list(reply)


def test_a_stopped_node_that_goes_on_again_ends_too(start_pair):
    pair = start_pair()
    pair.nodes[1].process.send_signal(signal.SIGSTOP)
    assert pair.nodes[0].wait() == LOST
    pair.nodes[1].process.send_signal(signal.SIGCONT)
    assert pair.nodes[1].wait(END_SECONDS) == LOST


def test_a_node_that_is_told_to_stop_is_lost(start_pair):
    pair = start_pair()
    pair.nodes[1].process.terminate()
    assert pair.nodes[1].wait() == 128 + signal.SIGTERM
    assert pair.nodes[0].wait(END_SECONDS) == LOST


def test_node_0_drains_and_lets_the_other_go(start_pair):
    pair = start_pair("--served-model-name", "demo")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pieces = iter(pair.client().chat.completions.create(
            model="demo", messages=[{"role": "user", "content": QUESTIONS[1]}], temperature=0,
            max_tokens=200, stream=True))
        next(pieces)
        rest = pool.submit(list, pieces)
        pair.nodes[0].process.terminate()
        assert rest.result()[-1].choices[0].finish_reason in ("stop", "length")
    assert [node.wait() for node in pair.nodes] == [0, 0]
    assert "node 0 has ended in good order" in "".join(pair.nodes[1].log)


@pytest.mark.parametrize("flags,reason", [
    (["--block-size", "32"], "--block-size is 64 at node 0 and 32 at node 1"),
    (["--max-num-seqs", "3"], "--max-num-seqs is 8 at node 0 and 3 at node 1"),
    (["--kv-cache-dtype", "int8"], "--kv-cache-dtype is .* at node 0 and int8.* at node 1"),
    (["--quantization", "wint8"], "the quantization while loading is none at node 0 and .*wint8"),
    (["--tensor-parallel-size", "4"], "--tensor-parallel-size is 2 at node 0 and 4 at node 1"),
])
def test_what_differs_is_refused(start_pair, flags, reason):
    pair = start_pair("--dist-timeout", 60, other_flags=flags, wait=False)
    assert pair.nodes[1].wait() == 1
    assert re.search("node 1 is turned away by node 0.*" + reason, "".join(pair.nodes[1].log))
    pair.nodes[0].said("turned away node 1.*" + reason)
    assert not any("memory plan" in line for line in pair.nodes[0].log + pair.nodes[1].log)
    assert pair.nodes[0].process.poll() is None, "node 0 waits for one that fits"


def test_another_model_is_refused(start_pair):
    pair = start_pair(other_model=changed_demo(rms_norm_eps=1e-4), wait=False)
    assert pair.nodes[1].wait() == 1
    pair.nodes[0].said("the digest of the model is .* at node 0 and .* at node 1")


def test_a_key_keeps_strangers_out(start_pair, tmp_path):
    (tmp_path / "right").write_text("secret\n")
    (tmp_path / "wrong").write_text("guess\n")
    pair = start_pair("--node-key-file", tmp_path / "right",
                      other_flags=["--node-key-file", tmp_path / "wrong"], wait=False)
    assert pair.nodes[1].wait() == 1
    assert "it does not know the key of node 0" in "".join(pair.nodes[1].log)
    assert "secret" not in "".join(pair.nodes[0].log + pair.nodes[1].log)
    pair.nodes[1] = Node(demo_model(), "--tensor-parallel-size", 2, "--ips", ADDRESSES,
                         "--node-rank", 1, "--engine-worker-queue-port", pair.port,
                         "--node-key-file", tmp_path / "right")
    pair.ready()


def test_who_does_not_come_is_named():
    node = Node(demo_model(), "--tensor-parallel-size", 2, "--ips", ADDRESSES, "--node-rank", 0,
                "--engine-worker-queue-port", 0, "--dist-timeout", 0.5)
    assert node.wait() == 1
    node.said("not all of 2 nodes have come within --dist-timeout 0.5 s; missing: 1")


@pytest.mark.parametrize("flags,reason", [
    (["--tensor-parallel-size", 3, "--ips", ADDRESSES, "--node-rank", 0],
     "--ips says that there are 2 nodes, but --tensor-parallel-size is 3"),
    (["--ips", ADDRESSES, "--node-rank", 0], "--data-parallel-size is 1 and --tensor-parallel-size"),
    (["--tensor-parallel-size", 2, "--ips", ADDRESSES, "--node-rank", 2],
     "--node-rank is 2, but --ips has 2 addresses"),
    (["--node-rank", 0], "--ips, the addresses of the nodes, is not given"),
    (["--tensor-parallel-size", 2, "--ips", ADDRESSES, "--node-rank", 1,
      "--engine-worker-queue-port", 0], "this is not the first node"),
    (["--tensor-parallel-size", 2, "--ips", ADDRESSES, "--node-rank", 1,
      "--engine-worker-queue-port", "none"], "it must be a port"),
])
def test_flags_that_make_no_sense_are_refused(flags, reason):
    node = Node(demo_model(), *flags)
    assert node.wait() == 2
    node.said(re.escape(reason))


def test_mpirun_does_not_say_where_node_0_is():
    node = Node(demo_model(), "--tensor-parallel-size", 2,
                env={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0",
                     "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    assert node.wait() == 2
    node.said("nothing says at which address the nodes come together: give --ips")


def test_a_worker_set_names_the_place():
    """LeaderWorkerSet says it all: which of how many, and where the leader is."""
    def node(rank, port):
        return Node(demo_model(), "--tensor-parallel-size", 2, "--engine-worker-queue-port", port,
                    env={"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(rank),
                         "LWS_LEADER_ADDRESS": "localhost"})
    first = node(0, 0)
    other = None
    try:
        other = node(1, first.said(r"awaits 1 more on localhost port (\d+)").group(1))
        other.said("node 1 computes")
        first.said(r"http://127\.0\.0\.1:\d+")
        first.process.terminate()
        assert [first.wait(), other.wait()] == [0, 0]
    finally:
        for one in filter(None, (first, other)):
            one.kill()
