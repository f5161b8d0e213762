"""Attacks below the protocol: connections, headers, probes, keys and origins."""
import os
import resource
import socket
import struct
import time

import templates
from attack import TRUST, Attack
from target import MODEL, chat, user

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MIB = 1 << 20
KEY = "an-owner-key-of-some-length"


def owner_refused(scene, until):
    """How many chats of the key's owner are not answered 200 until `until`, and of how many."""
    asked = refused = 0
    while time.monotonic() < until:
        asked += 1
        refused += scene.target.post(CHAT, chat(max_tokens=2), 10).status != 200
        time.sleep(0.1)
    return refused, asked


def probe_bodies(scene):
    """16 MiB for probes and for routes that are closed to who sends them."""
    places = [("POST", "/ping"), ("GET", "/live"), ("GET", "/health"), ("POST", TEXT),
              ("GET", "/metrics"), ("POST", "/nowhere")]
    until = time.monotonic() + min(scene.count(20, 4), scene.left())
    piece = b" " * MIB

    def hold(i):
        while time.monotonic() < until:
            method, path = places[i % len(places)] if i % 2 else places[0]
            try:
                with scene.target.connect(3) as plain:
                    plain.sendall(scene.target.head(method, path, 16 * MIB,
                                                    {"Authorization": None}))
                    for _ in range(15):
                        plain.sendall(piece)
                    time.sleep(1)
            except OSError:
                time.sleep(0.1)

    def work(i):
        return owner_refused(scene, until) if i == 0 else hold(i)
    refused, asked = scene.together(work, scene.count(72, 40), workers=80)[0] or (1, 1)
    scene.note(f"owner {refused} of {asked} refused, {scene.target.peak():.0f} MiB")
    scene.expect(refused == 0, f"{refused} of {asked} chats of the key's owner refused")


def hostile_bytes(scene):
    """Requests that a server must refuse, or answer once and plainly."""
    good = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = b'{"prompt":"a"}'
    bad = [
        b"\x00" * 100, b"GET", b"\r\n" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET  /live HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET /live HTTP/1.1\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: localhost\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
        b"GET /live HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 30000 + b"\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /live HTTP/1.1\nHost: localhost\n\n",
        good + b"Content-Length: -1\r\n\r\n", good + b"Content-Length: 1e3\r\n\r\n",
        good + b"Content-Length: 99999999999999999999\r\n\r\n" + body,
        good + b"Content-Length: 14, 14\r\n\r\n" + body,
        good + b"Content-Length: 14\r\nContent-Length: 15\r\n\r\n" + body,
        good + b"Content-Length: 14\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
        good + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        good + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        good + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        good + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        good + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 100000 + b"\r\n",
        good + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        good + b"Content-Encoding: gzip\r\nContent-Length: 14\r\n\r\n" + body,
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", b"TRACE /live HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://evil/live HTTP/1.1\r\nHost: evil\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ]
    for data in bad:
        reply = scene.target.raw(data, scene.count(1.5, 0.4))
        if scene.stand_up():
            scene.wrong(f"crash by {data[:60]!r}")
        scene.expect(reply.status == 0 or 400 <= reply.status < 600 or b"/live" in data,
                     f"{data[:60]!r}: {reply.status}")
        scene.expect(reply.head.count("HTTP/1.1 200") <= 1, f"{data[:60]!r}: two answers")
        if not scene.left():
            break
    with scene.target.connect(3) as plain:
        plain.sendall(b"POST /tokenize HTTP/1.0\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                      b"Content-Type: application/json\r\nContent-Length: 14\r\n\r\n")
        time.sleep(0.3)
        plain.sendall(body)
        first = plain.recv(4096)
    scene.expect(b" 100 " not in first.split(b"\r\n")[0], "HTTP/1.0 gets 100 Continue")
    scene.expect("\r\ndate: " in scene.target.fetch("/live").head.lower(), "no Date header")


def slow(scene):
    """Readers of one byte, half requests, resets: descriptors and blocks come back."""
    target, fds = scene.target, scene.target.fds()
    size = scene.count(200, 60)
    readers = []
    for _ in range(size):
        plain = target.connect(5, window=2048)
        plain.sendall(target.post_bytes(TEXT, {"prompt": "a", "max_tokens": 300, "stream": True,
                                               "ignore_eos": True}))
        readers.append(plain)
    halves = [target.connect(5) for _ in range(scene.count(500, 100))]
    for plain in halves:
        plain.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: local")
    for _ in range(scene.count(300, 60)):
        plain = target.connect(5)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plain.sendall(target.post_bytes(TEXT, {"prompt": "a", "max_tokens": 50, "stream": True}))
        plain.close()
    until = time.monotonic() + min(8, scene.left())
    while time.monotonic() < until:
        for plain in readers:
            try:
                plain.recv(1)
            except OSError:
                pass
        time.sleep(0.2)
    most = target.fds()
    for plain in readers + halves:
        plain.close()
    until = time.monotonic() + 10
    while target.fds() > fds + 4 and time.monotonic() < until:
        time.sleep(0.2)
    scene.note(f"descriptors {fds}, {most}, {target.fds()}")
    scene.expect(target.fds() <= fds + 4, f"{target.fds()} descriptors, {fds} before")
    until = time.monotonic() + 15
    while running(target) > 2 and time.monotonic() < until:  # the watchers' own may run
        time.sleep(0.2)
    scene.expect(running(target) <= 2, f"{running(target)} sequences run for nobody")


def running(target):
    reply = target.fetch("/load")
    return reply.json()["server_load"] if reply.status == 200 else 0


def silent(scene):
    """Connections that say nothing fill the table."""
    idle = [scene.target.connect(5) for _ in range(64)]
    time.sleep(0.5)
    good = sum(scene.target.fetch("/live", 2).status == 200 for _ in range(20))
    chats = sum(scene.target.post(CHAT, chat(max_tokens=2), 5).status == 200 for _ in range(5))
    scene.note(f"/live {good} of 20, chats {chats} of 5 with 64 silent connections of 64")
    scene.expect(good == 20, f"/live answers {good} of 20 while silent connections fill the table")
    scene.expect(chats == 5, f"{chats} of 5 chats while silent connections fill the table")
    for plain in idle:
        plain.close()


def no_descriptors(scene):
    """More connections than the process may have open files."""
    lines = len(scene.target.log)
    scene.target.limit(resource.RLIMIT_NOFILE, 64)
    many = []
    for _ in range(120):
        try:
            many.append(scene.target.connect(2))
        except OSError:
            break
    time.sleep(3)
    logged = len(scene.target.log) - lines
    for plain in many:
        plain.close()
    time.sleep(1)
    scene.expect(scene.target.post(CHAT, chat(), 10).status == 200, "does not work again")
    scene.note(f"{logged} lines of log in 3 s without a free descriptor")
    scene.expect(logged <= 20, f"{logged} lines of log in 3 s without a free descriptor")


def drive_by(scene):
    """What a web page of another site can make a browser send to a server on loopback."""
    crash = chat(chat_template=templates.CRASHES["joiner"])
    for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json", None):
            for body in (chat(), crash):
                reply = scene.target.post(CHAT, body, 10, {"Origin": origin, "Content-Type": kind})
                if scene.stand_up():
                    return scene.wrong(f"crash by a page of {origin}")
                scene.expect(reply.status in (400, 401, 403, 415),
                             f"Origin {origin}, {kind}: {reply.status or 'no answer'}")
    for kind in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded"):
        reply = scene.target.post(CHAT, chat(), 10, {"Content-Type": kind})
        scene.expect(reply.status == 415, f"a POST of {kind}: {reply.status}")
    own = f"127.0.0.1:{scene.target.port}"
    for headers in ({}, {"Origin": f"http://{own}", "Host": own}, {"Content-Type": "application/json; charset=utf-8"}):
        scene.expect(scene.target.post(CHAT, chat(), 10, headers).status == 200,
                     f"an honest request with {headers} is refused")


def keys(scene):
    routes = [("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/load"), ("GET", "/config-info"),
              ("GET", "/version"), ("POST", CHAT), ("POST", TEXT), ("POST", "/tokenize"),
              ("POST", "/detokenize"), ("GET", "/nowhere"), ("GET", "//v1/models"),
              ("GET", "/live/../v1/models"), ("GET", "/v1/models?x=/live")]
    wrong = [None, "Bearer ", "Bearer x", f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Basic {KEY}", KEY,
             "Bearer " + "a" * 5000, f"bearer\t{KEY}\x00", f"Bearer {KEY.upper()}"]
    for method, path in routes:
        for key in wrong:
            head = scene.target.head(method, path, 2 if method == "POST" else None,
                                     {"Authorization": key})
            reply = scene.target.raw(head + (b"{}" if method == "POST" else b""), 5)
            scene.expect(reply.status in (400, 401, 404, 431), f"{path}, {key!r}: {reply.status}")
            scene.expect(b"object" not in reply.body, f"{path}, {key!r} tells something")
            if not scene.left():
                return
    told = "".join(scene.target.log) + scene.target.fetch("/config-info").body.decode()
    scene.expect(KEY not in told, "the key is in the log or in /config-info")
    for value in ("", ",", " "):
        code, said = scene.command("serve", MODEL, "--host", "127.0.0.1", "--port", "0",
                                   "--threads", "1", env={**os.environ, "FD_API_KEY": value},
                                   seconds=3)
        scene.expect(code == 1, f"FD_API_KEY={value!r} opens the server (code {code})")
        scene.expect("FD_API_KEY" in said, f"FD_API_KEY={value!r}: the refusal does not name it")


def hidden_leaver(scene):
    """Bytes sent behind a request must not hide that its client has left."""
    request = scene.target.post_bytes(TEXT, {"prompt": "a", "max_tokens": 1900, "ignore_eos": True})
    request = request.replace(b"Connection: close\r\n", b"")
    for _ in range(8):
        plain = scene.target.connect(5)
        plain.sendall(request + b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
        time.sleep(0.05)
        plain.close()
    time.sleep(1.5)
    left = running(scene.target)
    scene.expect(left <= 3, f"{left} sequences run for clients that left behind pipelined bytes")


def heavy_when_full(scene):
    """Exactly --max-waiting-tokens wait: who comes then is refused without work on I/O threads."""
    target = scene.target
    long_one = target.connect(60)
    long_one.sendall(target.post_bytes(TEXT, {"prompt": "a", "max_tokens": 2000, "stream": True,
                                              "ignore_eos": True}))
    time.sleep(0.3)
    waiting = target.connect(60)
    waiting.sendall(target.post_bytes(TEXT, {"prompt_token_ids": [5] * 100, "prompt": "",
                                             "max_tokens": 1500, "stream": True}))
    time.sleep(0.3)
    honest = ("{% for i in range(100000) %}{% for k in range(6) %}{% set x=i*k %}{% endfor %}"
              "{% endfor %}")
    statuses = scene.together(
        lambda i: target.post(CHAT, {"messages": user("Hi"), "max_tokens": 2000,
                                     "chat_template": honest}, 10).status, 8)
    scene.note(f"statuses {sorted(set(map(str, statuses)))}")
    long_one.close()
    waiting.close()


ATTACKS = [
    Attack("t07", "bodies for open probes", probe_bodies, key=KEY, peak=256, quick=True),
    Attack("t10", "hostile bytes", hostile_bytes, quick=True),
    Attack("t11", "slow, half and reset connections", slow, judge_clients=False),
    Attack("t15", "silent connections fill the table", silent, ("--max-connections", "64"),
           quick=True, judge_clients=False),
    Attack("t15b", "no descriptor is left", no_descriptors, ends=True, judge_clients=False),
    Attack("t18", "heavy templates when full", heavy_when_full,
           (*TRUST, "--max-waiting-tokens", "100", "--max-num-seqs", "1"), others=False,
           judge_clients=False),
    Attack("t19", "keys", keys, key=KEY, quick=True),
    Attack("t20", "pipelined bytes hide a leaver", hidden_leaver, quick=True, judge_clients=False),
    Attack("t27", "web pages of others", drive_by, quick=True),
]
