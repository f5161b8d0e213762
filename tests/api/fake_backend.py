"""A backend for tests of the router: it does what a test tells it and records what it got. Nothing
in it waits for a time; streams wait for gates that a test opens."""
import json
import re
import socketserver
import threading

from edge import reset


class FakeBackend:
    """`behave`: a function from a Call to nothing, which answers it. `healthy`, what it says of
    itself, and `answers`, whether it says anything, may be changed."""

    def __init__(self, behave=None, port=0):
        self.behave = behave or (lambda call: call.send(200, {"served_by": self.port}))
        self.healthy = self.answers = True
        self.calls, self.changed = [], threading.Condition()
        self.open = set()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                outer.open.add(self.connection)
                try:
                    while outer._serve(self):
                        pass
                except OSError:
                    pass
                finally:
                    outer.open.discard(self.connection)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads, request_queue_size = True, True, 128

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def _serve(self, handler):
        line = handler.rfile.readline()
        if not line:
            return False
        method, target, _ = line.decode().split(" ", 2)
        headers = {}
        while (field := handler.rfile.readline().decode().strip()):
            name, value = field.split(":", 1)
            headers[name.lower()] = value.strip()
        body = handler.rfile.read(int(headers.get("content-length", 0)))
        call = Call(handler, method, target, headers, body)
        if target == "/health":
            if not self.answers:
                return False
            call.send(200 if self.healthy else 503, {})
            return True
        with self.changed:
            self.calls.append(call)
            self.changed.notify_all()
        self.behave(call)
        return not call.closed

    def wait_for_calls(self, count, seconds=20):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.calls) >= count, seconds), len(self.calls)
        return self.calls

    def kill(self):
        """As kill -9 would: nobody listens any more, and every connection is reset."""
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.open):
            reset(connection, waited_on=True)

    close = kill


class Call:
    def __init__(self, handler, method, target, headers, body):
        self.handler, self.method, self.target = handler, method, target
        self.headers, self.body, self.closed = headers, body, False
        self.gate = threading.Event()

    def json(self):
        return json.loads(self.body)

    def write(self, data):
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def send(self, status, body, headers=""):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{headers}"
                   f"Content-Length: {len(data)}\r\n\r\n".encode() + data)

    def begin_stream(self, kind="text/event-stream"):
        self.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n".encode())

    def chunk(self, data):
        data = data if isinstance(data, bytes) else data.encode()
        self.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self):
        self.write(b"0\r\n\r\n")

    def client_left(self, seconds=20):
        """Whether the router has closed the connection; waits for that."""
        self.handler.connection.settimeout(seconds)
        try:
            return self.handler.connection.recv(1) == b""
        except ConnectionError:
            return True
        except OSError:
            return False


def events(text):
    return re.findall(r"^data: (.*)$", text, re.M)
