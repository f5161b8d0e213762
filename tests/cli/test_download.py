"""`skiff download` from a local mirror that breaks off, lies and redirects."""
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff"))
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB


class Mirror(http.server.ThreadingHTTPServer):
    """Files by path. `seen` has (path, Range) of every request, `cuts` how often a path breaks off, `claims`
    the Content-Length of a path that has less."""

    def __init__(self, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.files, self.redirects, self.cuts, self.seen, self.ranges = {}, {}, {}, [], True
        self.claims, self.refusals = {}, {}
        self.authorized = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"{self.scheme}://localhost:{self.server_port}"

    def hub(self, files, **changes):
        listing = [{"rfilename": name, "size": len(data),
                    "lfs": {"sha256": hashlib.sha256(data).hexdigest()}, **changes.get(name, {})}
                   for name, data in files.items()]
        self.files["/api/models/org/m/revision/main"] = json.dumps({"siblings": listing}).encode()
        for name, data in files.items():
            self.files[f"/org/m/resolve/main/{name}"] = data


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        mirror, path = self.server, self.path.split("?")[0]
        mirror.seen.append((path, self.headers.get("Range")))
        mirror.authorized.append((path, self.headers.get("Authorization")))
        if path in mirror.redirects:
            return self.answer(302, b"", Location=mirror.redirects[path])
        data = mirror.files.get(path)
        if data is None and path in mirror.refusals:
            return self.answer(mirror.refusals[path], b"no")
        if data is None:
            return self.answer(404, b"no")
        if path in mirror.claims:
            self.head(200, mirror.claims[path])
            self.wfile.write(data)
            self.wfile.flush()
            self.close_connection = True
            return self.connection.shutdown(2)
        first, status, extra = 0, 200, {}
        wanted = self.headers.get("Range")
        if wanted and mirror.ranges:
            first, status = int(wanted[len("bytes="):-1]), 206
            extra["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        body = data[first:]
        if mirror.cuts.get(path, 0) > 0:
            mirror.cuts[path] -= 1
            self.head(status, len(body), **extra)
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            return self.connection.shutdown(2)
        self.answer(status, body, **extra)

    do_HEAD = do_GET

    def head(self, status, length, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def answer(self, status, body, **headers):
        self.head(status, len(body), **headers)
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def mirror():
    running = Mirror()
    yield running
    running.shutdown()


def download(mirror, folder, *flags, name="org/m", seconds=60):
    return subprocess.run([BINARY, "download", name, "--mirror", mirror.url, "--output", str(folder),
                           *flags], capture_output=True, text=True, timeout=seconds)


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in pathlib.Path(folder).rglob("*") if p.is_file())


def test_a_hub(mirror, tmp_path):
    mirror.hub({"config.json": b"{}", "sub/model.safetensors": WEIGHTS})
    done = download(mirror, tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "2 files fetched, 0 there already, 0 failed" in done.stdout
    assert files_in(tmp_path / "m") == ["config.json", "sub/model.safetensors"]
    assert (tmp_path / "m/sub/model.safetensors").read_bytes() == WEIGHTS
    mirror.seen.clear()
    again = download(mirror, tmp_path / "m")
    assert "0 files fetched, 2 there already" in again.stdout
    assert len(mirror.seen) == 1, "only the list was read"
    (tmp_path / "m/config.json").write_bytes(b"[]")
    assert "1 files fetched, 1 there already" in download(mirror, tmp_path / "m").stdout
    assert (tmp_path / "m/config.json").read_bytes() == b"{}"


def test_a_hub_without_a_list(mirror, tmp_path):
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    for name, data in {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors.index.json": index,
                       "model-1.safetensors": WEIGHTS, "model-2.safetensors": b"two"}.items():
        mirror.files[f"/org/m/resolve/v1/{name}"] = data
    done = download(mirror, tmp_path / "m", "--revision", "v1")
    assert done.returncode == 0, done.stderr
    assert len(files_in(tmp_path / "m")) == 5
    mirror.files["/org/m/resolve/v1/modules.json"] = b"[]"  # a model that is pooled has it
    mirror.files["/org/m/resolve/v1/1_Pooling/config.json"] = b"{}"
    mirror.refusals["/org/m/resolve/v1/vocab.json"] = 403  # as object stores answer
    assert "7 files fetched" in download(mirror, tmp_path / "m", "--revision", "v1").stdout
    missing = download(mirror, tmp_path / "n", "--revision", "v2")
    assert missing.returncode == 1 and "has no model org/m" in missing.stderr


def test_a_model_that_needs_authorization(mirror, tmp_path):
    mirror.refusals["/api/models/org/m/revision/main"] = 401
    closed = download(mirror, tmp_path / "m")
    assert closed.returncode == 1
    assert "answered 401" in closed.stderr and "--token-file" in closed.stderr


def test_a_folder_with_a_list_of_md5(mirror, tmp_path):
    listed = {"model.pdiparams": WEIGHTS, "config.json": b"{}"}
    mirror.files["/static/3.0/M/model/file_list.txt"] = "".join(
        f"{name}:{hashlib.md5(data).hexdigest()}\n" for name, data in listed.items()).encode()
    for name, data in listed.items():
        mirror.files[f"/static/3.0/M/model/{name}"] = data
    done = download(mirror, tmp_path / "m", "--layout", "folder", name="static/3.0/M/model")
    assert done.returncode == 0, done.stderr
    assert files_in(tmp_path / "m") == sorted(listed)


def test_a_file_larger_than_the_memory(mirror, tmp_path):
    """Memory is needed for pieces of it alone: no machine has room for 512 TB."""
    mirror.hub({"w": WEIGHTS}, w={"size": 1 << 49})
    mirror.claims["/org/m/resolve/main/w"] = 1 << 49
    done = download(mirror, tmp_path / "m", "--max-size", "1048576", "--retries", "0")
    assert done.returncode == 1 and "bad_alloc" not in done.stderr, done.stderr
    assert (tmp_path / "m/w.part").read_bytes() == WEIGHTS


def test_a_connection_that_breaks_is_taken_up_again(mirror, tmp_path):
    mirror.hub({"w": WEIGHTS})
    path = "/org/m/resolve/main/w"
    mirror.cuts[path] = 2
    done = download(mirror, tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m/w").read_bytes() == WEIGHTS
    ranges = [r for p, r in mirror.seen if p == path]
    assert ranges[0] is None and all(r for r in ranges[1:]) and len(ranges) == 3
    # A later process goes on where the earlier one has stopped.
    mirror.cuts[path] = 1
    assert download(mirror, tmp_path / "n", "--retries", "0").returncode == 1
    part = tmp_path / "n/w.part"
    assert 0 < part.stat().st_size < len(WEIGHTS) and not (tmp_path / "n/w").exists()
    size = part.stat().st_size
    assert download(mirror, tmp_path / "n").returncode == 0
    assert mirror.seen[-1] == (path, f"bytes={size}-")
    assert files_in(tmp_path / "n") == ["w"] and (tmp_path / "n/w").read_bytes() == WEIGHTS


def test_a_mirror_without_ranges_starts_over(mirror, tmp_path):
    mirror.hub({"w": WEIGHTS})
    mirror.ranges = False
    mirror.cuts["/org/m/resolve/main/w"] = 1
    assert download(mirror, tmp_path / "m").returncode == 0
    assert (tmp_path / "m/w").read_bytes() == WEIGHTS


def test_a_wrong_checksum_leaves_no_file(mirror, tmp_path):
    mirror.hub({"w": WEIGHTS, "good": b"x"})
    mirror.files["/org/m/resolve/main/w"] = WEIGHTS[:-1] + b"!"
    done = download(mirror, tmp_path / "m")
    assert done.returncode == 1 and "SHA-256" in done.stderr and "1 failed" in done.stdout
    assert files_in(tmp_path / "m") == ["good"]


def test_a_file_of_another_size_is_refused(mirror, tmp_path):
    mirror.hub({"w": WEIGHTS})
    mirror.files["/org/m/resolve/main/w"] = WEIGHTS + b"more"
    done = download(mirror, tmp_path / "m")
    assert done.returncode == 1 and "its list says" in done.stderr
    assert not (tmp_path / "m/w").exists()


def test_redirects_are_followed_and_get_no_token(mirror, tmp_path):
    other = Mirror()
    mirror.hub({"w": WEIGHTS})
    del mirror.files["/org/m/resolve/main/w"]
    mirror.redirects["/org/m/resolve/main/w"] = other.url + "/elsewhere?sign=1"
    other.files["/elsewhere"] = WEIGHTS
    (tmp_path / "token").write_text("secret\n")
    done = download(mirror, tmp_path / "m", "--token-file", str(tmp_path / "token"))
    assert done.returncode == 0, done.stderr
    assert all(value == "Bearer secret" for _, value in mirror.authorized)
    assert other.authorized == [("/elsewhere", None)]
    mirror.redirects["/org/m/resolve/main/w"] = "/org/m/resolve/main/w"
    ring = download(mirror, tmp_path / "n")
    assert ring.returncode == 1 and "redirects more than" in ring.stderr
    other.shutdown()


@pytest.mark.parametrize("name", ["../w", "/etc/w", "a/../../w", "a\\w", "x:y"])
def test_names_do_not_leave_the_folder(mirror, tmp_path, name):
    mirror.files["/api/models/org/m/revision/main"] = json.dumps(
        {"siblings": [{"rfilename": name}]}).encode()
    done = download(mirror, tmp_path / "m")
    assert done.returncode == 1 and "no name inside a folder" in done.stderr
    assert files_in(tmp_path) == []


def test_sizes_are_bounded(mirror, tmp_path):
    small = ("--max-size", "0.001")  # room for one of the two
    mirror.hub({"v": WEIGHTS, "w": WEIGHTS})
    done = download(mirror, tmp_path / "m", *small)
    assert done.returncode == 1 and "--max-size" in done.stderr and files_in(tmp_path) == []
    done = download(mirror, tmp_path / "m", *small, "--include", "v")
    assert done.returncode == 0, done.stderr
    # A list that does not tell sizes cannot hide them.
    mirror.hub({"v": WEIGHTS, "w": WEIGHTS}, v={"size": None}, w={"size": None})
    done = download(mirror, tmp_path / "n", *small)
    assert done.returncode == 1 and "more than --max-size leaves" in done.stderr
    assert files_in(tmp_path / "n") == ["v"]
    done = download(mirror, tmp_path / "o", "--include", "*.json")
    assert done.returncode == 1 and "no such files" in done.stderr


def test_servers_are_verified(mirror, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl command to make a certificate with")
    made, key = tmp_path / "made.pem", tmp_path / "made.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "2", "-keyout", key, "-out", made, "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    secure = Mirror((made, key))
    secure.hub({"w": WEIGHTS})
    trusted = ("--ca-file", str(made), "--retries", "0")
    done = download(secure, tmp_path / "m", *trusted)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m/w").read_bytes() == WEIGHTS
    unknown = download(secure, tmp_path / "n", "--retries", "0")
    assert unknown.returncode == 1 and "certificate verify failed" in unknown.stderr
    # The certificate is for localhost.
    other = subprocess.run([BINARY, "download", "org/m", "--mirror", f"https://127.0.0.1:{secure.server_port}",
                            "--output", str(tmp_path / "n"), *trusted], capture_output=True, text=True)
    assert other.returncode == 1 and "certificate verify failed" in other.stderr
    # What was asked for over https is not taken over http.
    secure.redirects["/org/m/resolve/main/w"] = mirror.url + "/w"
    mirror.files["/w"] = WEIGHTS
    lowered = download(secure, tmp_path / "n", *trusted)
    assert lowered.returncode == 1 and "redirects from https" in lowered.stderr
    assert files_in(tmp_path / "n") == []
    secure.shutdown()


def test_two_at_a_time_do_not_mix(mirror, tmp_path):
    mirror.hub({"w": WEIGHTS})
    running = [subprocess.Popen([BINARY, "download", "org/m", "--mirror", mirror.url, "--output",
                                 str(tmp_path / "m")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True) for _ in range(3)]
    codes = []
    for process in running:
        _, errors = process.communicate(timeout=60)
        codes.append(process.returncode)
        assert process.returncode == 0 or "another download" in errors
    assert 0 in codes
    assert (tmp_path / "m/w").read_bytes() == WEIGHTS and files_in(tmp_path / "m") == ["w"]


STATIC = "deepseek-ai/DeepSeek-R1-MTP/weight_only_int4"
ADVICE = "use the checkpoint deepseek-ai/DeepSeek-R1 with --quantization wint4"


def test_a_static_model_is_named_as_such(mirror, tmp_path):
    done = download(mirror, tmp_path / "m", name=STATIC)
    assert done.returncode == 1 and ADVICE in done.stderr and not mirror.seen
    folder = f"static/3.0.0.b4/{STATIC}/model"
    mirror.files[f"/{folder}/file_list.txt"] = f"w:{hashlib.md5(WEIGHTS).hexdigest()}\n".encode()
    mirror.files[f"/{folder}/w"] = WEIGHTS
    done = download(mirror, tmp_path / "m", "--layout", "folder", name=folder)
    assert done.returncode == 0 and ADVICE in done.stdout + done.stderr
    assert (tmp_path / "m/w").read_bytes() == WEIGHTS
    for name in (STATIC, f"/nowhere/{STATIC}/node1"):
        done = subprocess.run([BINARY, "serve", name], capture_output=True, text=True)
        assert done.returncode == 1 and ADVICE in done.stderr


def test_a_folder_with_a_graph_is_told_from_a_checkpoint(tmp_path):
    """Known by its name or not, and also where a file for each rank lies in a folder of its own."""
    known, other = tmp_path / STATIC / "model", tmp_path / "exported"
    for folder in known, other:
        (folder / "rank_0").mkdir(parents=True)
        (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
        (folder / "rank_0/model.pdmodel").write_bytes(b"graph")
    for folder, advice in (known, ADVICE), (other, "rank_0/model.pdmodel is an inference graph for Paddle"):
        for words in ["serve", folder], ["quantize", folder, "--to", "gptq", "--out", tmp_path / "out"]:
            done = subprocess.run([BINARY, *words], capture_output=True, text=True)
            assert done.returncode == 1 and advice in done.stderr, (words, done.stderr)
    (other / "model.safetensors").write_bytes(b"no header")
    done = subprocess.run([BINARY, "serve", other], capture_output=True, text=True)
    assert done.returncode == 1 and "inference graph" not in done.stderr


def test_the_command_line_teaches(tmp_path):
    for words, text in ((["download"], "needs the model's name"),
                        (["download", "a/b"], "no address is built in"),
                        (["download", "a/b", "--mirror", "ftp://x"], "http://"),
                        (["download", "../b", "--mirror", "http://x"], "no name of a model")):
        done = subprocess.run([BINARY, *words], capture_output=True, text=True)
        assert done.returncode == 2 and text in done.stderr, words
    help_text = subprocess.run([BINARY, "download", "--help"], capture_output=True, text=True).stdout
    assert "--mirror" in help_text
