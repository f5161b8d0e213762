"""What the others see while a server is attacked. A program of its own for each, because Python's lock
would let an attack's threads disturb the clock of the one who measures.

  watch.py trivial             a server that answers 200 and does nothing else; prints its port
  watch.py probe PORT TRIVIAL  asks /live and /health in turn every 100 ms, and the trivial server too
  watch.py client PORT         short chats and streams, one after the other

Each measure is a line of JSON with the time of the monotonic clock. The program ends with its stdin."""
import json
import os
import socket
import sys
import threading
import time

PERIOD = 0.1
PATIENCE = 5.0  # seconds; who gets no answer in this time has waited so long, at least
CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0, "max_tokens": 8}
STREAM = {"prompt": "Once upon a time", "max_tokens": 32, "ignore_eos": True, "temperature": 0,
          "stream": True}


def say(**fields):
    """`at` is when the exchange ended, unless it is given."""
    print(json.dumps({"at": time.monotonic(), **fields}), flush=True)


def request(method, path, body=None):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if key := os.environ.get("ATTACK_KEY"):
        head += f"Authorization: Bearer {key}\r\n"
    data = b"" if body is None else json.dumps(body).encode()
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + b"\r\n" + data


def exchange(port, data):
    """(status, milliseconds to the first byte, the longest silence between two pieces, to the end)."""
    start = last = time.monotonic()
    first = gap = 0.0
    status, got = 0, b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
            plain.sendall(data)
            while time.monotonic() < start + 4 * PATIENCE:
                more = plain.recv(65536)
                now = time.monotonic()
                if not more:
                    break
                if not got:
                    first = now - start
                else:
                    gap = max(gap, now - last)
                last, got = now, got[:64] + more
        status = int(got.split(b" ", 2)[1])
    except (OSError, IndexError, ValueError):
        gap = max(gap, time.monotonic() - last)
    return status, first * 1e3, gap * 1e3, (time.monotonic() - start) * 1e3


def trivial():
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            plain, _ = server.accept()
            with plain:
                plain.settimeout(1)
                try:
                    plain.recv(4096)
                    plain.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                except OSError:
                    pass


def probe(port, reference):
    routes, turn = ["/live", "/health"], 0
    while True:
        start = time.monotonic()
        noise = exchange(reference, request("GET", "/"))[3]
        turn ^= 1
        status, _, _, took = exchange(port, request("GET", routes[turn]))
        say(kind="probe", status=status, ms=took, noise=noise)
        time.sleep(max(0.0, start + PERIOD - time.monotonic()))


def client(port):
    """`at` is when a request began: one that an attack has slowed down must not count for the next."""
    while True:
        began = time.monotonic()
        status, _, _, took = exchange(port, request("POST", "/v1/chat/completions", CHAT))
        say(kind="chat", status=status, ms=took, at=began)
        began = time.monotonic()
        status, first, gap, _ = exchange(port, request("POST", "/v1/completions", STREAM))
        say(kind="gap", status=status, ms=max(first, gap), at=began)
        time.sleep(0.05)


def main():
    # The process ends with the one that started it, however that one ended.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    what, *ports = sys.argv[1:]
    {"trivial": trivial, "probe": probe, "client": client}[what](*map(int, ports))


if __name__ == "__main__":
    main()
