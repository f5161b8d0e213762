"""What the real program does with too much work, too little time, and an engine that hangs."""
import ctypes
import os
import pathlib
import signal
import subprocess
import threading
import time

import openai
import pytest

from edge import SKIFF, Edge, demo_model, long_demo

ENDLESS = {"model": "default", "prompt": "What is 2 + 3?", "max_tokens": 100000,
           "extra_body": {"ignore_eos": True}}
SHORT = {"model": "default", "prompt": "What is 2 + 3?", "max_tokens": 4, "temperature": 0}


def refused(server, reason):
    lines = [line for line in server.get("/metrics").splitlines()
             if line.startswith("fastdeploy:requests_refused_total") and f'reason="{reason}"' in line]
    assert len(lines) == 1
    return float(lines[0].rsplit(" ", 1)[1])


def test_waiting_tokens_and_time_are_bounded(start_server):
    """One place in the batch, held by an endless stream: one more may wait, for three seconds."""
    server = start_server("--max-num-seqs", "1", "--max-waiting-tokens", "8",
                          "--max-waiting-time", "3", model=long_demo())
    with server.client() as client:
        stream = iter(client.completions.create(**ENDLESS, stream=True))
        next(stream)
        outcome = {}

        def wait():
            begin = time.monotonic()
            with server.client() as other, pytest.raises(openai.RateLimitError) as caught:
                other.completions.create(**SHORT)
            outcome.update(seconds=time.monotonic() - begin, error=caught.value)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert server.eventually(lambda: server.load() == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(**SHORT)
        assert "prompt tokens" in caught.value.message
        assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
        waiting.join(20)
        assert 2.9 < outcome["seconds"] < 15
        assert outcome["error"].code == "timeout" and "waited 3 s" in outcome["error"].message
        assert next(stream).choices  # who had the place keeps it
    assert refused(server, "waiting_tokens") == 1 and refused(server, "waiting_time") == 1


def test_request_timeout_in_every_shape(start_server):
    server = start_server("--request-timeout", "2", model=long_demo())
    with server.client() as client:
        begin = time.monotonic()
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(**ENDLESS)
        assert caught.value.status_code == 504 and caught.value.code == "timeout"
        assert 1.9 < time.monotonic() - begin < 15
        seen = []
        with pytest.raises(openai.APIError, match="not done within its timeout of 2 s"):
            for chunk in client.completions.create(**ENDLESS, stream=True):
                seen.append(chunk)
        assert seen
        body = {**ENDLESS, "extra_body": {"ignore_eos": True, "timeout": 0.2}}
        with pytest.raises(openai.InternalServerError, match="0.2 s"):
            client.completions.create(**body)
        # Its client does not try again by itself: there would be more than four refusals below.
        with pytest.raises(openai.InternalServerError):
            client.with_options(max_retries=3).completions.create(**body)
        assert client.completions.create(**SHORT).choices[0].text
    assert server.eventually(lambda: server.load() == 0)
    assert refused(server, "timeout") == 4
    assert server.metric("process_resident_memory_bytes") > 1 << 20
    assert server.metric("process_open_fds") > 3


def test_a_second_signal_cuts_off_with_its_own_exit_code():
    server = Edge(long_demo(), "--timeout-graceful-shutdown", "60")
    try:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            stream = iter(client.completions.create(**ENDLESS, n=8, stream=True))
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            assert server.eventually(lambda: server.request("GET", "/health").status == 503)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(openai.APIError, match="shutting down"):
                list(stream)
        assert server.process.wait(20) == 3
        assert server.logged("some replies were cut off")
    finally:
        server.close()


class Frozen:
    """One thread of a child process, stopped as a debugger stops it. ptrace belongs to the thread
    that calls it."""

    SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000

    def __init__(self, process, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.tid = None
        while self.tid is None and process.poll() is None:  # a thread names itself
            for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
                if (task / "comm").read_text().strip() == name:
                    self.tid = int(task.name)
        for request in (self.SEIZE, self.INTERRUPT):
            if self.libc.ptrace(request, self.tid, 0, 0) != 0:
                pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")

    def reap(self):
        """A traced thread that died stays until its tracer looks, and its process with it."""
        try:
            os.waitpid(self.tid, os.WNOHANG | self.WALL)
        except ChildProcessError:
            pass


def test_an_engine_that_hangs_fails_liveness_logs_stacks_and_ends():
    server = Edge(demo_model(), "--watchdog-timeout", "4")
    try:
        frozen = Frozen(server.process, "engine")
        answers = []
        work = threading.Thread(target=lambda: answers.append(server.request(
            "POST", "/v1/completions", body={"prompt": "a", "max_tokens": 4})))
        work.start()
        assert server.request("GET", "/live").status == 200
        assert server.eventually(lambda: server.request("GET", "/live").status == 503)
        assert server.request("GET", "/health").status == 503
        assert server.eventually(lambda: frozen.reap() or server.process.poll() is not None)
        assert server.process.returncode == 4
        work.join(10)
        assert answers[0].status == 500
        assert "the engine of this server has failed" in answers[0].body.decode()
        log = "".join(server.log)
        assert "made no step for" in log and "all threads" in log
        assert f"thread {frozen.tid} engine (t)\n    did not answer" in log
        assert "EventQueue::wait_until" in log  # where the output thread is
    finally:
        server.process.kill()
        server.eventually(lambda: frozen.reap() or server.process.poll() is not None)


def test_a_stopped_process_is_not_taken_for_one_that_hangs():
    server = Edge(demo_model(), "--watchdog-timeout", "2", "--max-num-seqs", "2")
    try:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            stream = iter(client.completions.create(**{**ENDLESS, "max_tokens": 500}, stream=True))
            next(stream)
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(5)
            server.process.send_signal(signal.SIGCONT)
            assert list(stream)[-1].choices[0].finish_reason == "length"
        assert server.process.poll() is None
        assert not any("made no step" in line for line in server.log)
    finally:
        server.close()


def test_contradicting_limits_are_refused_at_start():
    for flags, wanted in ((["--max-waiting-time", "0"], "[1, 604800]"),
                          (["--max-waiting-time", "9", "--request-timeout", "5"], "[1, 5]"),
                          (["--max-waiting-tokens", "-3"], "--max-waiting-tokens"),
                          (["--max-concurrency", "0"], "[1, 1000000]"),
                          (["--watchdog-timeout", "-1"], "--watchdog-timeout")):
        done = subprocess.run([SKIFF, "serve", str(demo_model()), *flags], capture_output=True,
                              text=True, timeout=20)
        assert done.returncode == 2 and wanted in done.stderr, (flags, done.stderr)


def test_flags_of_the_older_scheduler_warn_and_serve():
    server = Edge(demo_model(), "--kv-cache-ratio", "0.6", "--static-decode-blocks", "2",
                  env={"ENABLE_V1_KVCACHE_SCHEDULER": "0"})
    try:
        assert server.request("POST", "/v1/completions",
                              body={"prompt": "a", "max_tokens": 2}).status == 200
        for text in ("one pool of blocks, given on demand", "--kv-cache-ratio 0.6",
                     "2 blocks for each running sequence"):
            assert sum(text in line for line in list(server.log)) == 1, text
    finally:
        server.close()
