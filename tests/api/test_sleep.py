"""The life of a server's memory: sleep, wake-up and new weights, as an operator and clients see them."""
import json
import pathlib
import shutil
import struct
import threading
import urllib.error
import urllib.request

import pytest
from edge import Edge, demo_model, long_demo

ADMIN = {"Authorization": "Bearer operators-key"}
FLAGS = ("--admin-key", "operators-key", "--dynamic-load-weight", "--device", "cpu")


def call(server, method, path, body=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, method=method, headers={
        "Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def control(server, path, body=None, method="POST"):
    status, text, _ = call(server, method, path, body, ADMIN)
    return status, json.loads(text) if text.startswith("{") else text


def answer(server, tokens=12):
    status, text, _ = call(server, "POST", "/v1/completions", {
        "model": "default", "prompt": "one two three " * 40, "max_tokens": tokens,
        "temperature": 0, "ignore_eos": True})
    assert status == 200, text
    reply = json.loads(text)
    cached = (reply["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return reply["choices"][0]["text"], cached


def resident(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.fixture(scope="module")
def sleeper():
    running = Edge(long_demo(), *FLAGS)
    yield running
    running.close()


@pytest.fixture
def copy_of_demo(tmp_path):
    for file in demo_model().iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path / file.name)
    shutil.copy(long_demo() / "config.json", tmp_path / "config.json")
    return tmp_path


def negate(folder, wanted):
    """Flips the signs of a tensor, which changes what the model says."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + size])[wanted]
    width = {"F32": 4, "BF16": 2, "F16": 2}[entry["dtype"]]
    begin, end = (8 + size + at for at in entry["data_offsets"])
    for at in range(begin + width - 1, end, width):
        data[at] ^= 0x80
    path.write_bytes(data)


def test_a_server_sleeps_and_wakes(sleeper):
    before, _ = answer(sleeper)
    assert answer(sleeper)[1] > 0
    held = resident(sleeper)
    status, slept = control(sleeper, "/v1/sleep")
    assert status == 200 and slept["status"] == "success"
    released = slept["result"]["released_bytes"]
    assert slept["result"]["absent"] == ["weight", "kv_cache"]
    assert released["weight"] > 10 << 20 and released["kv_cache"] > 0
    assert resident(sleeper) < held - (released["weight"] >> 10) * 3 // 4
    assert control(sleeper, "/is_sleeping", method="GET")[1]["is_sleeping"] is True
    for probe in ("/health", "/ready"):
        assert call(sleeper, "GET", probe)[0] == 503
    assert call(sleeper, "GET", "/live")[0] == 200
    status, text, headers = call(sleeper, "POST", "/v1/completions", {"prompt": "x"})
    assert status == 503 and "sleeps" in text and int(headers["Retry-After"]) > 0
    status, refused = control(sleeper, "/v1/resume")
    assert status == 409 and "wakeup" in refused["error"]["message"]
    status, half = control(sleeper, "/v1/wakeup?tags=weight")
    assert status == 200 and half["result"]["absent"] == ["kv_cache"]
    assert call(sleeper, "GET", "/health")[0] == 503
    assert control(sleeper, "/wake_up?tags=kv_cache")[0] == 200
    assert call(sleeper, "GET", "/health")[0] == call(sleeper, "GET", "/ready")[0] == 200
    assert answer(sleeper) == (before, 0), "the same text, and nothing cached"


def test_what_is_wrong_is_named(sleeper):
    for path in ("/v1/sleep?tags=gradients", "/sleep?level=0", "/v1/sleep?mode=keep",
                 "/v1/wakeup?x=1"):
        assert control(sleeper, path)[0] == 400, path
    for body in ({"folder": "x"}, {"path": 3}, {"path": "/nowhere"}):
        assert control(sleeper, "/v1/update_weights", body)[0] == 400, body
    assert call(sleeper, "POST", "/v1/sleep")[0] == 401
    assert call(sleeper, "GET", "/health")[0] == 200


class Stream(threading.Thread):
    """A streamed answer; `error` is the error that it ended with, `tokens` the number of chunks."""

    def __init__(self, server, tokens):
        super().__init__(daemon=True)
        self.server, self.wanted = server, tokens
        self.begun, self.chunks, self.error = threading.Event(), 0, None
        self.start()
        assert self.begun.wait(30)

    def run(self):
        body = {"model": "default", "prompt": "Count:", "max_tokens": self.wanted, "stream": True,
                "ignore_eos": True, "stream_options": {"include_usage": True}}
        request = urllib.request.Request(self.server.url + "/v1/completions",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                self.error = chunk.get("error", self.error)
                if chunk.get("usage"):
                    self.chunks = chunk["usage"]["completion_tokens"]
                self.begun.set()
        self.begun.set()


def test_requests_under_way_end_or_finish(sleeper):
    endless = Stream(sleeper, 60000)
    status, slept = control(sleeper, "/v1/sleep?mode=wait&timeout=0.1")
    assert status == 200 and len(slept["result"]["aborted"]) == 1
    endless.join(30)
    assert "paused" in endless.error["message"]
    assert control(sleeper, "/v1/wakeup")[0] == 200
    finite = Stream(sleeper, 50)
    status, slept = control(sleeper, "/v1/sleep?mode=wait&timeout=60")
    assert status == 200 and slept["result"]["aborted"] == []
    finite.join(30)
    assert finite.error is None and finite.chunks == 50
    assert control(sleeper, "/v1/wakeup")[0] == 200


def test_new_weights(sleeper, copy_of_demo):
    before, _ = answer(sleeper)
    negate(copy_of_demo, "model.layers.0.self_attn.o_proj.weight")
    status, updated = control(sleeper, "/v1/update_weights", {
        "path": str(copy_of_demo), "version": "v2", "verify_checksum": True})
    assert status == 200, updated
    result = updated["result"]
    assert result["version"] == "v2" and len(result["checksum"]) == 64
    assert "model.layers.0.self_attn.o_proj.weight" in result["tensor_checksums"]
    other, cached = answer(sleeper)
    assert other != before and cached == 0
    assert control(sleeper, "/is_sleeping", method="GET")[1]["weights_version"] == "v2"
    # Another model is refused by the key that differs, a wrong sum and broken files before anything
    # is changed.
    config = json.loads((copy_of_demo / "config.json").read_text())
    (copy_of_demo / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 99}))
    status, refused = control(sleeper, "/v1/update_weights", {"path": str(copy_of_demo)})
    assert status == 400 and "num_hidden_layers" in refused["error"]["message"]
    assert "99" in refused["error"]["message"] and refused["error"]["param"] == "path"
    (copy_of_demo / "config.json").write_text(json.dumps(config))
    status, refused = control(sleeper, "/v1/update_weights",
                              {"path": str(copy_of_demo), "checksum": "00"})
    assert status == 400 and refused["error"]["param"] == "checksum"
    whole = (copy_of_demo / "model.safetensors").read_bytes()
    (copy_of_demo / "new").write_bytes(whole[:-2])
    (copy_of_demo / "new").rename(copy_of_demo / "model.safetensors")
    assert control(sleeper, "/v1/update_weights", {"path": str(copy_of_demo)})[0] == 400
    assert answer(sleeper)[0] == other, "the version until now is kept"
    assert control(sleeper, "/v1/update_weights",
                   {"path": str(long_demo()), "version": "v1"})[0] == 200
    assert answer(sleeper) == (before, 0)


def test_paused_stays_paused(sleeper):
    assert control(sleeper, "/v1/pause")[0] == 200
    assert control(sleeper, "/v1/update_weights", {"version": "again"})[0] == 200
    assert control(sleeper, "/v1/is_paused", method="GET")[1] == {"is_paused": True}
    assert control(sleeper, "/v1/resume")[0] == 200
    assert call(sleeper, "GET", "/health")[0] == 200


def test_fastdeploys_older_pair(copy_of_demo):
    server = Edge(copy_of_demo, *FLAGS)
    try:
        before, _ = answer(server)
        assert control(server, "/clear_load_weight", method="GET") == (200, "")
        negate(copy_of_demo, "model.layers.0.self_attn.o_proj.weight")
        assert control(server, "/update_model_weight", method="GET") == (200, "")
        other, cached = answer(server)
        assert other != before and cached == 0
    finally:
        server.close()


def test_without_the_flag_it_says_which():
    server = Edge(demo_model(), "--admin-key", "operators-key")
    try:
        for path in ("/v1/sleep", "/wakeup", "/v1/update_weights"):
            status, refused = control(server, path, {})
            assert status == 501 and "--dynamic-load-weight" in refused["error"]["message"]
        status, text = control(server, "/clear_load_weight", method="GET")
        assert status == 404 and "--dynamic-load-weight" in text
        assert control(server, "/is_sleeping", method="GET") == (200, {"is_sleeping": False})
    finally:
        server.close()
