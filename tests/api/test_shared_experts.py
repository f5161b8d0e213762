"""Replicas that share the experts of a mixture, behind one port: answers do not depend on company, and
are those of one engine but for the order of additions."""
import concurrent.futures
import json
import subprocess

import pytest
from api_server import Server
from edge import ROOT, SKIFF, changed_demo, long_demo
from test_replicas import Endless, control, metrics
from test_tensor_parallel import QUESTIONS, ask, check_blocks_of_the_file

SHARED = ["--device", "cpu", "--data-parallel-size", "2", "--enable-expert-parallel"]


@pytest.fixture(scope="module")
def pair():
    running = Server(long_demo(), *SHARED, "--enable-logprob", "--dtype", "float32",
                     "--served-model-name", "demo",
                     "--admin-key", "operators-key")
    yield running
    running.close()


@pytest.fixture(scope="module")
def alone(pair):
    return [ask(pair.client(), text) for text in QUESTIONS]


def running(server):
    found = metrics(server)
    return [found["num_requests_running", engine] for engine in "01"]


def test_the_log_says_what_a_replica_takes(pair):
    log = "".join(pair.log)
    assert "memory plan of each of 2 replicas" in log
    assert "replica 1 of 2 runs on cpu" in log and "its share of the experts" in log


@pytest.mark.parametrize("flags", [["--device", "cpu"], [*SHARED, "--tensor-parallel-size", "2"]])
def test_answers_are_those_of_one_engine_but_for_rounding(start_server, alone, flags):
    client = start_server(*flags, "--dtype", "float32", "--enable-logprob",
                          "--served-model-name", "demo",
                          model=long_demo()).client()
    for (text, logprobs), question in zip(alone, QUESTIONS):
        whole, expected = ask(client, question)
        assert text == whole
        assert logprobs == pytest.approx(expected, abs=1e-3)


def test_answers_are_the_same_in_company_and_on_either_replica(pair, alone):
    before = metrics(pair)
    client = pair.client()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for reply, text in zip(pool.map(lambda text: ask(client, text), QUESTIONS * 4),
                               QUESTIONS * 4):
            assert reply == alone[QUESTIONS.index(text)]
    after = metrics(pair)
    for engine in "01":
        assert after["generation_tokens_total", engine] > before["generation_tokens_total", engine]


@pytest.mark.parametrize("flags", [
    ["--swap-space", "0.01", "--block-size", "4", "--num-gpu-blocks-override", "520"],
    ["--threads", "3", "--max-num-batched-tokens", "8", "--max-num-seqs", "3"],
    ["--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 4})],
    ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": 2})],
    ["--no-enable-overlap-schedule"],
])
def test_answers_are_the_same_with_other_settings(start_server, alone, flags):
    client = start_server(*SHARED, "--enable-logprob", "--dtype", "float32", *flags).client()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert list(pool.map(lambda text: ask(client, text), QUESTIONS)) == alone


def test_an_idle_replica_makes_no_step_of_its_own(pair):
    assert pair.eventually(lambda: running(pair) == [0, 0])
    stream = Endless(pair)
    busy = str(running(pair).index(1))
    idle = "10"[int(busy)]
    before = metrics(pair)
    assert pair.eventually(lambda: metrics(pair)["steps_total", busy] >
                           before["steps_total", busy] + 20)
    assert metrics(pair)["steps_total", idle] == before["steps_total", idle]
    stream.leave.set()
    stream.join(30)
    assert pair.eventually(lambda: running(pair) == [0, 0])


def test_clients_that_leave_and_a_pause_end_what_runs(pair, alone):
    streams = [Endless(pair) for _ in range(4)]
    assert pair.eventually(lambda: running(pair) == [2, 2])
    for stream in streams[:3]:
        stream.leave.set()
        stream.join(30)
    assert pair.eventually(lambda: sum(running(pair)) == 1)
    assert ask(pair.client(), QUESTIONS[0]) == alone[0], "beside the one that is left"
    control(pair, "/v1/pause")
    streams[3].join(30)
    assert streams[3].error is not None
    assert pair.eventually(lambda: running(pair) == [0, 0])
    control(pair, "/v1/resume")
    assert ask(pair.client(), QUESTIONS[1]) == alone[1]


def test_sigterm_lets_a_reply_finish_while_the_other_replica_is_idle(start_server):
    server = start_server(*SHARED)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reply = pool.submit(server.client().completions.create, model="default",
                            prompt="Count: 1, 2,", max_tokens=400, extra_body={"ignore_eos": True})
        assert server.eventually(lambda: server.load() == 1, 60)
        assert server.terminate() == 0
        assert reply.result(30).usage.completion_tokens == 400


def test_blocks_of_the_file_are_found_only_by_as_many_replicas(start_server, tmp_path):
    one = ["--data-parallel-size", "2"]
    shared = [*one, "--enable-expert-parallel"]
    said = check_blocks_of_the_file(start_server, tmp_path,
                                    [(shared, False), (shared, True), (one, False)])
    assert said[0] == said[1]


def run(command, model, *flags):
    return subprocess.run([SKIFF, command, str(model), "--device", "cpu", *flags],
                          capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("flags, words", [
    (["-dp", "17", "-ep"], ["--data-parallel-size 17", "16 experts", "give fewer replicas"]),
    (["-dp", "9", "-tp", "2", "-ep"],
     ["--data-parallel-size 9", "8 experts on a rank", "give fewer replicas"]),
])
def test_what_does_not_go_together_is_refused(flags, words):
    ended = run("inspect", ROOT / "models/demo", *flags)
    assert ended.returncode == 1
    for word in words:
        assert word in ended.stderr


def test_inspect_shows_the_memory_of_a_replica():
    def weights(*flags):
        shown = run("inspect", ROOT / "models/demo", *flags)
        assert shown.returncode == 0, shown.stderr
        line = [line for line in shown.stdout.splitlines() if line.startswith("  weights")][-1]
        return shown.stdout, float(line.split()[1])

    text, shared = weights("-dp", "2", "-ep")
    assert "Memory plan of each of 2 replicas" in text
    whole = weights("-dp", "2")[1]
    assert whole / 2 < shared < whole
    text, of_rank = weights("-dp", "2", "-tp", "2", "-ep")
    assert "Memory plan of each of 2 ranks of each of 2 replicas" in text
    assert whole / 4 < of_rank < shared


def test_a_model_without_experts_has_plain_replicas():
    shown = run("inspect", ROOT / "tests/golden/llama", "-dp", "2", "-ep")
    assert shown.returncode == 0, shown.stderr
    assert "--enable-expert-parallel changes nothing" in shown.stderr
    assert "of each of 2 replicas" not in shown.stdout


def test_quantized_experts_are_served(start_server):
    model = changed_demo(moe_num_shared_experts=0)
    shown = run("inspect", model, "-dp", "2", "-ep", "--quantization", "wint8")
    assert shown.returncode == 0, shown.stderr
    server = start_server(*SHARED, "--quantization", "wint8", "--enable-logprob")
    assert "Paris" in ask(server.client(), QUESTIONS[0], temperature=0)[0]
