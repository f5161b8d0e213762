"""A TCP proxy that holds, cuts, changes or slows what passes, at a byte that a test names."""
import select
import socket
import threading
import time

from edge import reset

HOLD, CUT, FLIP, SLOW = "hold", "cut", "flip", "slow"


def received(source):
    """What has come. It returns to Python now and then, because a connection that is closed stays
    open for as long as a thread waits in the system for its bytes."""
    while not select.select([source], [], [], 0.02)[0]:
        pass
    return source.recv(16384)


class Harm:
    """What happens to the first connection on which `at` bytes have passed in direction `way`:
    "down" is from the target to whoever connected, "up" the other. HOLD stops there until
    release(); CUT resets both sides; FLIP changes that byte; SLOW passes `size` bytes every
    `pause` seconds from there on."""

    def __init__(self, kind, at=0, way="down", size=1000, pause=0.002):
        self.kind, self.at, self.way, self.size, self.pause = kind, at, way, size, pause
        self.begun, self.go_on = threading.Event(), threading.Event()

    def release(self):
        self.go_on.set()

    def wait(self, seconds=30):
        assert self.begun.wait(seconds), f"nothing reached byte {self.at} {self.way}"


class Proxy:
    """Passes all connections on to `target`, (host, port), which may be changed."""

    def __init__(self, target, host="127.0.0.1"):
        self.target, self.harm = target, None
        self.passed = {"up": 0, "down": 0}  # bytes of the latest connection
        self.connections = 0
        self.listener = socket.create_server((host, 0), backlog=64)
        self.host, self.port = self.listener.getsockname()
        self.open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, timeout=5)
                far.settimeout(None)
            except OSError:
                reset(near)
                continue
            self.connections += 1
            self.open += [near, far]
            counts = self.passed = {"up": 0, "down": 0}
            for way, source, sink in (("up", near, far), ("down", far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(way, source, sink, counts),
                                 daemon=True).start()

    def _pump(self, way, source, sink, counts):
        try:
            while data := received(source):
                for part in self._harmed(way, data, source, sink, counts):
                    sink.sendall(part)
                    counts[way] += len(part)
            sink.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):
            reset(source)
            reset(sink)

    def _harmed(self, way, data, source, sink, counts):
        harm = self.harm
        if harm is None or harm.way != way or counts[way] + len(data) <= harm.at:
            yield data
            return
        n = max(0, harm.at - counts[way])
        first = not harm.begun.is_set()
        if harm.kind == SLOW:
            harm.begun.set()
            for begin in range(0, len(data), harm.size):
                time.sleep(harm.pause)
                yield data[begin:begin + harm.size]
        elif not first:
            yield data
        elif harm.kind == FLIP:
            harm.begun.set()
            yield data[:n] + bytes([data[n] ^ 0x41]) + data[n + 1:]
        else:
            if n:
                yield data[:n]
            harm.begun.set()
            if harm.kind == CUT:
                reset(source)
                reset(sink)
                raise OSError("cut")
            harm.go_on.wait()
            yield data[n:]

    def close(self):
        if self.harm:
            self.harm.release()
        self.listener.close()
        for connection in self.open:
            reset(connection)
