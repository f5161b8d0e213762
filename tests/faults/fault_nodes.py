"""The programs of a test: `skiff serve` and `skiff route` on nodes, and requests under way."""
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import edge
from edge import SKIFF, START_SECONDS, long_demo, metric_of, spawn

# An answer that was to come late has come by then on any machine; each test's own deadlines, which
# are flags of the programs, are a few seconds.
PATIENCE = 45

COMMON = ["--block-size", "16", "--max-num-batched-tokens", "64", "--threads", "1", "--no-webui"]
SENTENCE = "The lighthouse keeper counts the boats that come home before the storm. "


def prompt(name, sentences=40):
    return f"{name} {SENTENCE * sentences}"


def body(name, sentences=40, **more):
    return {"model": "default", "prompt": prompt(name, sentences), "max_tokens": 24,
            "temperature": 0, "ignore_eos": True, **more}


def endless(name, sentences=4, **more):
    return body(name, sentences, max_tokens=60000, stream=True, **more)


class Program:
    """A `skiff` process on a node. `log` grows while it runs."""

    def __init__(self, node, *words):
        self.node, self.words = node, [str(word) for word in words]
        self.port = self.block_port = None
        self.start()

    def start(self):
        """Starts the process; once it has run, on the ports that it had."""
        words = list(self.words)
        for flag, port in (("--port", self.port), ("--pd-comm-port", self.block_port)):
            if port:
                words[words.index(flag) + 1] = str(port)
        self.log, self.ready, self.up = [], threading.Event(), False
        self.process = spawn(self.node.command(SKIFF, *words), text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        threading.Thread(target=self._read, args=(self.process, self.log, self.ready),
                         daemon=True).start()
        self.ready.wait(START_SECONDS)
        if not self.up:
            self.close()
            raise AssertionError("it did not start:\n" + "".join(self.log))

    def _read(self, process, log, ready):
        for line in process.stdout:
            log.append(line)
            if found := re.search(r"listening on \S+ port (\d+)", line):
                self.port = int(found.group(1))
                self.up = self.words[0] == "route"
            if found := re.search(r"handed out on \S+ port (\d+)", line):
                self.block_port = int(found.group(1))
            self.up = self.up or line.startswith("Serving ")
            if self.up:
                ready.set()
        ready.set()

    def signal(self, which):
        self.process.send_signal(which)

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self):
        """SIGSTOP, and waits until all of its threads stand still."""
        self.signal(signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat")
        assert eventually(lambda: stat.read_text().rsplit(") ", 1)[1][0] == "T")

    def thaw(self):
        self.signal(signal.SIGCONT)

    close = kill

    def connect(self, seconds=PATIENCE):
        return http.client.HTTPConnection(self.node.address, self.port, timeout=seconds)

    def call(self, method, path, data=None, headers=None):
        """(status, text); status 0 if no answer came."""
        connection = self.connect()
        try:
            connection.request(method, path, json.dumps(data) if data is not None else None,
                               {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as problem:
            return 0, str(problem)
        finally:
            connection.close()

    def healthy(self):
        return self.call("GET", "/health")[0] == 200

    def metric(self, name):
        return metric_of(self.call("GET", "/metrics")[1], name)

    def load(self):
        return json.loads(self.call("GET", "/load")[1])["server_load"]

    def logged(self, text, seconds=PATIENCE):
        return eventually(lambda: any(text in line for line in list(self.log)), seconds)

    def recomputed(self):
        """Tokens by reason."""
        text = self.call("GET", "/metrics")[1]
        found = re.findall(r'^fastdeploy:pd_recomputed_tokens_total\{.*?reason="(\w+)".*?\} (\S+)',
                           text, re.M)
        return {reason: float(value) for reason, value in found if float(value) > 0}


def eventually(holds, seconds=PATIENCE):
    return edge.eventually(holds, seconds)


def serve(node, *flags, model=None):
    """`ADDRESS` among the flags stands for that of the node."""
    flags = [node.address if flag == "ADDRESS" else flag for flag in flags]
    return Program(node, "serve", model or long_demo(), "--host", node.address, "--port", "0",
                   *COMMON, *flags)


def route(node, *flags):
    return Program(node, "route", "--host", node.address, "--port", "0",
                   "--health-check-interval-secs", "0.2", "--health-check-timeout-secs", "1",
                   *flags)


def at_rest(*programs):
    """Nothing runs, waits, is leased or reserved any more."""
    def rests(one):
        return one.healthy() and one.load() == 0 and one.metric("fastdeploy:pd_leases") == 0
    return eventually(lambda: all(rests(one) for one in programs))


class Asked:
    """A request under way. `text` is what the model has said so far."""

    def __init__(self, program, data, path="/v1/completions", headers=None):
        self.status, self.text, self.error, self.finish = None, "", None, None
        self.events, self.sock = 0, None
        self.began = time.monotonic()
        self.seconds = None
        self.connection = program.connect(PATIENCE)
        self.streams = data.get("stream", False)
        self._first, self._stop = threading.Event(), False
        self._thread = threading.Thread(target=self._run, args=(data, path, headers or {}),
                                        daemon=True)
        self._thread.start()

    def _run(self, data, path, headers):
        try:
            self.connection.request("POST", path, json.dumps(data),
                                    {"Content-Type": "application/json", **headers})
            self.sock = self.connection.sock
            response = self.connection.getresponse()
            self.status = response.status
            if self.streams and response.status == 200:
                self._take_events(response)
            else:
                self._take_whole(response)
        except (OSError, http.client.HTTPException, AttributeError, ValueError) as problem:
            self.error = self.error or f"connection: {problem or type(problem).__name__}"
        finally:
            self.seconds = time.monotonic() - self.began
            self._first.set()

    def _take_whole(self, response):
        answer = json.loads(response.read())
        if response.status != 200:
            self.error = json.dumps(answer)
            return
        self.usage = answer["usage"]
        self.text = answer["choices"][0]["text"]
        self.finish = answer["choices"][0]["finish_reason"]

    def _take_events(self, response):
        whole = False
        for line in response:
            whole = whole or line.startswith(b"data: [DONE]")
            if not line.startswith(b"data: ") or whole:
                continue
            event = json.loads(line[6:])
            if "error" in event:
                self.error = event["error"]["message"]
                continue
            self.events += 1
            for choice in event["choices"]:
                self.text += choice["text"]
                self.finish = choice["finish_reason"] or self.finish
            self._first.set()
        if not whole and not self.error:
            self.error = "connection: the stream ended before its end"

    def first(self):
        """Waits for the first piece of a stream."""
        assert self._first.wait(PATIENCE) and self.seconds is None, (self.status, self.error)
        return self

    def end(self):
        """Waits for the end of the answer, whatever it is."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the request hangs"
        return self

    def leave(self):
        """The client goes without a word."""
        assert eventually(lambda: self.sock is not None)
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.connection.close()
        self.end()
