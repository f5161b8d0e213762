"""What tests of whole programs share: waiting, metrics, a server whose port is known before its model
is loaded, raw sockets, certificates made on the spot."""
import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIFF = os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff"))
START_SECONDS = 120


def eventually(holds, seconds=20):
    """Whether `holds()` within this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


def spawn(words, **options):
    """A process that ends with this one at the latest: also where a test failed before it had handed the
    process to whoever ends it."""
    process = subprocess.Popen(words, **options)

    def end():
        if process.poll() is None:
            process.kill()
            process.wait()

    atexit.register(end)
    return process


def metric_of(text, name):
    """The sum over labels of a metric in the text of /metrics, 0 if it is not there."""
    lines = [line for line in text.splitlines() if re.match(re.escape(name) + r"[{ ]", line)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def reset(connection, waited_on=False):
    """Ends a connection with RST. One that a thread waits on is shut down first: it would stay open for
    as long as the thread waits."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if waited_on:
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    except OSError:
        pass


def demo_model():
    model = ROOT / "models/demo"
    if not (model / "model.safetensors").exists():
        pytest.skip("models/demo is not there")
    return model


@functools.cache
def changed_demo(**changes):
    """The demo model with other values in its config.json."""
    source, folder = demo_model(), pathlib.Path(tempfile.mkdtemp(prefix="skiff-changed-demo-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for file in source.iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def long_demo():
    """The demo model with room for 65,536 tokens: an answer that outlasts any test, however fast
    the machine is."""
    return changed_demo(max_position_embeddings=65536)


class Edge:
    """`skiff serve` of any model, over HTTP or HTTPS. `log` grows while it runs."""

    def __init__(self, model, *flags, env=None, wait="ready"):
        self.secure = "--ssl-certfile" in flags
        self.process = spawn(
            [SKIFF, "serve", str(model), "--host", "127.0.0.1", "--port", "0", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **(env or {})})
        self.log, self.port, self.serves = [], None, False
        self.bound, self.ready = threading.Event(), threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        (self.ready if wait == "ready" else self.bound).wait(START_SECONDS)
        if self.port is None or wait == "ready" and not self.serves:
            self.close()
            raise AssertionError("the server did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"listening on \S+ port (\d+)", line):
                self.port = int(found.group(1))
                self.bound.set()
            if line.startswith("Serving "):
                self.serves = True
                self.ready.set()
        self.bound.set()
        self.ready.set()

    @property
    def url(self):
        return f"{'https' if self.secure else 'http'}://127.0.0.1:{self.port}"

    def connect(self, seconds=20):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=seconds)
        if not self.secure:
            return plain
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(plain, server_hostname="localhost")

    def raw(self, data, seconds=20):
        """What comes back for these bytes until the server closes, or has sent one whole reply."""
        with self.connect(seconds) as connection:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused early; the answer may still be there
            return Response.read(connection, data.startswith(b"HEAD"))

    def request(self, method, path, headers=None, body=None, version="1.1"):
        lines = [f"{method} {path} HTTP/{version}"]
        headers = {"Host": "localhost", **(headers or {})}
        if body is not None:
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Length"] = len(body)
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))

    eventually = staticmethod(eventually)

    def logged(self, text, seconds=20):
        return eventually(lambda: any(text in line for line in list(self.log)), seconds)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @classmethod
    def read(cls, connection, head_only=False):
        data = b""
        while b"\r\n\r\n" not in data:
            data += (more := cls._more(connection))
            if not more:
                return cls(0, {}, data)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}
        if head_only:
            return cls(int(lines[0].split()[1]), headers, body)
        wanted = int(headers.get("content-length", 0))
        while len(body) < wanted or headers.get("transfer-encoding") and not body.endswith(b"0\r\n\r\n"):
            if not (more := cls._more(connection)):
                break
            body += more
        return cls(int(lines[0].split()[1]), headers, body)

    @staticmethod
    def _more(connection):
        try:
            return connection.recv(65536)
        except (ConnectionResetError, ssl.SSLError):
            return b""

    def error(self):
        error = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


def certificate(folder, name="localhost"):
    """A self-signed certificate for localhost and 127.0.0.1: (certificate, key)."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl command to make a certificate with")
    folder = pathlib.Path(folder)
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", key,
                    "-out", made, "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, capture_output=True)
    return made, key
