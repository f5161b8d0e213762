"""What strangers can cost a server, and what its owner has all the same."""
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import pytest

from edge import SKIFF, Edge, Response, demo_model, long_demo

JSON = {"Content-Type": "application/json"}
PROMPT = {"prompt": "a", "max_tokens": 1}


def refused(*words, env=None, seconds=30):
    """The one line of a start that is refused."""
    done = subprocess.run([SKIFF, *map(str, words)], env={**os.environ, **(env or {})},
                          capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def small():
    server = Edge(demo_model(), "--max-connections", 4, "--api-key", "owner")
    yield server
    server.close()


@pytest.mark.parametrize("keys", ["", ",", " , "])
def test_a_variable_without_a_key_refuses_the_start(keys):
    line = refused("serve", demo_model(), "--host", "127.0.0.1", "--port", "0",
                   env={"FD_API_KEY": keys})
    assert "FD_API_KEY" in line


def test_probes_take_no_body(small):
    for path in ("/live", "/health", "/ping"):
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16777216\r\n\r\n"
        assert small.raw(head.encode()).status == 413
        assert small.request("GET", path).status == 200


def test_silent_connections_make_room(small):
    crowd = [socket.create_connection(("127.0.0.1", small.port)) for _ in range(12)]
    try:
        crowd[3].sendall(b"GET /live HT")
        for _ in range(5):
            begin = time.monotonic()
            assert small.request("GET", "/live").status == 200
            assert small.request("GET", "/v1/models", {"x-api-key": "owner"}).status == 200
            assert time.monotonic() - begin < 10  # a third of --header-timeout
    finally:
        for one in crowd:
            one.close()


def test_uploads_leave_room_for_probes(small):
    head = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: owner\r\n"
            b"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n")
    crowd = []

    def uploads():
        crowd.append(small.connect())
        crowd[-1].sendall(head)
        if crowd[-1].recv(12) == b"HTTP/1.1 100":
            return True
        crowd.pop().close()  # connections of the test before may not be gone yet
        return False

    try:
        for _ in range(4):
            assert small.eventually(uploads)
        for _ in range(5):
            assert small.request("GET", "/live").status == 200
            assert small.request("GET", "/health").status == 200
            assert small.request("GET", "/v1/models", {"x-api-key": "owner"}).status == 503
    finally:
        for one in crowd:
            one.close()
    assert small.eventually(
        lambda: small.request("GET", "/v1/models", {"x-api-key": "owner"}).status == 200)


def test_a_page_of_another_origin_can_do_nothing():
    server = Edge(demo_model())
    try:
        for headers, status in (
                (JSON, 200), ({**JSON, "Origin": f"http://localhost:{server.port}"}, 403),
                ({**JSON, "Origin": "http://localhost"}, 200),  # as Host says
                ({**JSON, "Origin": "https://evil.example"}, 403), ({**JSON, "Origin": "null"}, 403),
                ({**JSON, "Sec-Fetch-Site": "cross-site"}, 403), ({}, 200),
                ({"Content-Type": "text/plain"}, 415),
                ({"Content-Type": "text/plain", "Origin": "https://evil.example"}, 403),
                ({"Content-Type": "application/x-www-form-urlencoded"}, 415)):
            answer = server.request("POST", "/v1/completions", headers, PROMPT)
            assert answer.status == status, headers
            if status != 200:
                message = answer.error()["message"]
                assert ("--allowed-origins" if status == 403 else "application/json") in message
    finally:
        server.close()


def test_the_second_sigterm_ends_a_server_that_hangs(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("key\n")
    server = Edge(demo_model(), "--api-key-file", keys)
    try:
        keys.unlink()
        os.mkfifo(keys)  # reading it again waits for a writer
        server.process.send_signal(signal.SIGHUP)
        time.sleep(1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 3
        assert time.monotonic() - begin < 5  # 1.2 s and a busy machine
    finally:
        server.close()


def test_two_sigterms_still_tell_the_clients():
    server = Edge(long_demo())
    try:
        with server.connect() as stream:
            body = json.dumps({"prompt": "a", "max_tokens": 100000, "ignore_eos": True, "n": 16,
                               "stream": True}).encode()
            stream.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                           % (len(body), body))
            assert stream.recv(12) == b"HTTP/1.1 200"
            server.process.send_signal(signal.SIGTERM)
            assert server.logged("stopping:")  # two of a kind at once would be one
            server.process.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            answer = b""
            while more := stream.recv(65536):
                answer += more
        assert b"shutting down" in answer
        assert server.process.wait(20) == 3
        assert time.monotonic() - begin < 10
        assert server.logged("some replies were cut off")  # in good order
    finally:
        server.close()


def test_sigterm_during_an_upload_is_answered():
    server = Edge(demo_model())
    try:
        with server.connect() as upload:
            upload.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
                           + b" " * 100000)
            assert server.request("GET", "/live").status == 200  # the upload was accepted before
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            answer = Response.read(upload)
            assert answer.status == 503 and answer.headers["connection"] == "close"
            assert "retry-after" in answer.headers
        assert server.process.wait(20) == 0
    finally:
        server.close()


def test_the_open_file_limit_is_checked_at_the_start():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = ["bash", "-c", 'ulimit -n "$0"; exec "$@"']
    command = [SKIFF, "serve", str(demo_model()), "--host", "127.0.0.1", "--port", "0"]
    low = subprocess.run([*program, "40", *command], capture_output=True, text=True, timeout=30)
    assert low.returncode == 1 and "ulimit -n" in low.stderr.strip().splitlines()[-1]
    server = subprocess.Popen([*program, "64", *command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    try:
        log = ""
        while "Serving " not in log:
            log += (line := server.stdout.readline())
            assert line, log
        assert "--max-connections 4096 does not fit the open-file limit of 64" in log
    finally:
        server.kill()
        server.wait()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json",
                                  "tokenizer_config.json", "model.safetensors"])
def test_a_fifo_in_a_model_folder_is_refused(tmp_path, name):
    model = pathlib.Path(demo_model())
    for file in model.iterdir():
        (tmp_path / file.name).symlink_to(file)
    place = tmp_path / name
    if place.is_symlink():
        place.unlink()
    os.mkfifo(place)
    line = refused("predict", tmp_path, "--prompt", "a", "--max-tokens", "1")
    assert name in line and "not a regular file" in line
