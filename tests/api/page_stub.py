"""A server that serves the program's own page, with its headers, and scripted answers: what a small model does
not do of itself (long answers, thinking, calls, failures), the page can then be seen to handle."""
import http.server
import json
import threading
import time
import urllib.request

MODELS = [{"id": "skiff-stub", "object": "model", "max_model_len": 32768}, {"id": "other", "object": "model"}]
KEPT = ("Content-Security-Policy", "Content-Type", "Referrer-Policy", "X-Content-Type-Options", "ETag",
        "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy")


def page_of(url):
    request = urllib.request.Request(url + "/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read(), {name: response.headers[name] for name in KEPT}


class Refusal:
    def __init__(self, status, message, **headers):
        self.status, self.message, self.headers = status, message, headers


def text(content, size=12, pause=0.0, reasoning=""):
    """The deltas of an answer in pieces of `size` characters, as many tokens."""
    for name, whole in (("reasoning_content", reasoning), ("content", content)):
        for at in range(0, len(whole), size):
            yield {name: whole[at:at + size]}
            if pause:
                time.sleep(pause)


def calls(*functions):
    """The deltas of tool calls, each (name, arguments), with the arguments in pieces."""
    for index, (name, arguments) in enumerate(functions):
        yield {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function",
                               "function": {"name": name, "arguments": ""}}]}
        for at in range(0, len(arguments), 5):
            yield {"tool_calls": [{"index": index, "function": {"arguments": arguments[at:at + 5]}}]}


class Stub:
    """`answer` makes the deltas of an answer, or a Refusal, from the body of a request. `bodies` are those bodies;
    `left` counts clients that left before the end."""

    def __init__(self, page):
        self.page, self.page_headers = page
        self.answer = lambda body: text("Hello.")
        self.finish = "stop"
        self.bodies, self.headers, self.left = [], [], 0
        self.key = None
        self.cut_after = None  # deltas after which the connection breaks
        self.started = time.monotonic()
        self.metrics = lambda seconds: {}
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                stub.get(self)

            def do_POST(self):
                stub.post(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def reply(self, handler, body, status=200, headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in (headers or {"Content-Type": "application/json"}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def refuse(self, handler, refusal):
        self.reply(handler, {"error": {"message": refusal.message}}, refusal.status,
                   {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in refusal.headers.items()}})

    def get(self, handler):
        if handler.path == "/":
            return self.reply(handler, self.page, 200, self.page_headers)
        if handler.path == "/health":
            return self.reply(handler, b"")
        if self.key and handler.headers.get("Authorization") != f"Bearer {self.key}":
            return self.refuse(handler, Refusal(401, "no key"))
        if handler.path == "/v1/models":
            return self.reply(handler, {"object": "list", "data": MODELS})
        if handler.path == "/config-info":
            return self.reply(handler, {"model": "/models/skiff-stub", "version": "0.1.0", "device": "cpu", "dtype": "bfloat16",
                                        "max_model_len": 32768, "max_num_seqs": 64,
                                        "sampling_defaults": {"temperature": 0.8, "top_p": 0.95, "max_tokens": None}})
        if handler.path == "/metrics":
            lines = [f'fastdeploy:{name}{{model_name="skiff-stub"}} {value}\n'
                     for name, value in self.metrics(time.monotonic() - self.started).items()]
            return self.reply(handler, "".join(lines).encode(), 200, {"Content-Type": "text/plain"})
        return self.reply(handler, {"error": {"message": "no such route"}}, 404)

    def post(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.bodies.append(body)
        self.headers.append(handler.headers)
        if self.key and handler.headers.get("Authorization") != f"Bearer {self.key}":
            return self.refuse(handler, Refusal(401, "no key"))
        deltas = self.answer(body)
        if isinstance(deltas, Refusal):
            return self.refuse(handler, deltas)
        try:
            self.stream(handler, deltas)
        except (BrokenPipeError, ConnectionResetError):
            self.left += 1
            handler.close_connection = True

    def stream(self, handler, deltas):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()

        def event(data):
            data = f"data: {data}\n\n".encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        tokens = 0
        for tokens, delta in enumerate(deltas, 1):
            usage = {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}
            event(json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": usage}))
            if tokens == self.cut_after:
                handler.wfile.flush()
                handler.connection.shutdown(2)
                handler.close_connection = True
                return
        event(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]}))
        event("[DONE]")
        handler.wfile.write(b"0\r\n\r\n")
