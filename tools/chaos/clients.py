"""Clients that behave, and many that do not. Each is a coroutine that ends by itself and records
each mistake of the server as a line in `world.wrong`."""
import asyncio
import collections
import json
import socket
import struct

from texts import garbage, malformed

REFUSALS = {429, 503}
# Seconds without a byte after which a request counts as hung. With --priority-ageing 20 the scheduler
# lets at most 80 later requests go before one of priority 2, and 64 more for want of memory, which at
# ten a second is 15 s.
PATIENCE = 60
AGEING = 20
CLIENT_ERRORS = {400, 404, 405, 408, 411, 413, 415, 422, 431, 501, 505}


class World:
    """What all clients share."""

    def __init__(self, port, bodies, answers, rng, slow):
        self.port, self.bodies, self.answers, self.rng, self.slow = port, bodies, answers, rng, slow
        self.counts, self.wrong = collections.Counter(), []
        self.draining, self.longest = False, collections.Counter()  # seconds, by priority

    def complain(self, text):
        self.wrong.append(text)

    def seconds(self, n):
        return n * self.slow

    async def connect(self, small_window=False):
        plain = socket.socket()
        plain.setblocking(False)
        if small_window:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        await asyncio.wait_for(
            asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port)),
            self.seconds(20))
        self.counts["connections"] += 1
        return await asyncio.open_connection(sock=plain, limit=1 << 22)


def reset(writer):
    """Closes with RST instead of FIN."""
    plain = writer.get_extra_info("socket")
    if plain is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def post(body, path="/v1/completions"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data


def parse(data):
    """Status and body of a whole reply; (0, b"") for nothing."""
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1."):
        return 0, b""
    if b"transfer-encoding: chunked" in head.lower():
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            n = int(size or b"0", 16)
            whole, body = whole + body[:n], body[n + 2:]
            if n == 0:
                break
        body = whole
    return int(head.split()[1]), body


def tokens_of(body, streamed):
    """Returns the completion's tokens, and the error if the reply has one."""
    if not streamed:
        return json.loads(body)["choices"][0]["completion_token_ids"], None
    tokens, done = [], False
    for line in body.decode().split("\n"):
        if line == "data: [DONE]":
            done = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            if "error" in event:
                return tokens, event["error"]["message"]
            for choice in event["choices"]:
                tokens += choice.get("completion_token_ids") or []
    return tokens, None if done else "the stream ended without [DONE]"


async def read_all(reader, world, pause=0.0, piece=1 << 16):
    """Until the server closes; slowly, if there is a pause."""
    data = b""
    while more := await asyncio.wait_for(reader.read(piece), world.seconds(PATIENCE)):
        data += more
        if pause:
            await asyncio.sleep(pause)
    return data


def judge(world, number, streamed, data, who):
    status, body = parse(data)
    world.counts[f"{who}: {status}"] += 1
    if status == 200:
        tokens, error = tokens_of(body, streamed)
        want = world.answers[number]
        if error is not None and not world.draining:
            world.complain(f"{who}: request {number} ended with {error}")
        if tokens != want[:len(tokens)] if error else tokens != want:
            world.complain(f"{who}: request {number} got {tokens}, alone {want}")
    elif status not in REFUSALS and not (status == 0 and world.draining):
        world.complain(f"{who}: request {number} was answered {status}: {body[:200]}")


async def well_behaved(world, slowly=False):
    """Asks, reads all, and compares every token."""
    number, streamed = world.rng.randrange(len(world.bodies)), world.rng.random() < 0.6
    body = {**world.bodies[number], "stream": streamed}
    if world.rng.random() < 0.15:
        body["cache_salt"] = world.rng.choice(["one", "two"])
    if world.rng.random() < 0.2:
        body["priority"] = world.rng.randrange(-2, 3)
    reader, writer = await world.connect(small_window=slowly)
    writer.write(post(body))
    pause = world.rng.uniform(0.005, 0.05) if slowly else 0.0
    begin = asyncio.get_running_loop().time()
    try:
        data = await read_all(reader, world, pause, 300 if slowly else 1 << 16)
    except asyncio.TimeoutError:
        world.complain(f"request {number} hung: {[*body.items()][1:]}")
        return
    priority = body.get("priority", 0)
    taken = asyncio.get_running_loop().time() - begin
    world.longest[priority] = max(world.longest[priority], taken)
    writer.close()
    judge(world, number, streamed, data, "slow reader" if slowly else "client")


async def slow_reader(world):
    await well_behaved(world, slowly=True)


async def never_reads(world):
    """Asks for much, then reads nothing for a while, and leaves."""
    body = {**world.rng.choice(world.bodies), "stream": True, "n": 4, "logprobs": 5, "seed": 1,
            "temperature": 1.0}
    reader, writer = await world.connect(small_window=True)
    writer.transport.pause_reading()
    writer.write(post(body))
    await asyncio.sleep(world.rng.uniform(0.2, 3))
    (reset(writer) if world.rng.random() < 0.5 else writer.close())
    world.counts["clients that never read"] += 1


async def killed(world):
    """Goes away in the middle of its stream, or before it began."""
    body = {**world.rng.choice(world.bodies), "stream": True, "n": world.rng.choice([1, 1, 3]),
            "temperature": 1.0, "seed": 1}
    reader, writer = await world.connect()
    writer.write(post(body))
    await writer.drain()
    for _ in range(world.rng.randrange(8)):
        if not await asyncio.wait_for(reader.read(400), world.seconds(60)):
            break
    await asyncio.sleep(world.rng.uniform(0, 0.02))
    (reset(writer) if world.rng.random() < 0.5 else writer.close())
    world.counts["clients killed"] += 1


async def sends_garbage(world):
    reader, writer = await world.connect()
    writer.write(garbage(world.rng))
    if world.rng.random() < 0.3:
        writer.write_eof()
    data = await read_all(reader, world)
    status = parse(data)[0]
    writer.close()
    world.counts[f"garbage: {status}"] += 1
    if status not in CLIENT_ERRORS | REFUSALS | {0}:
        world.complain(f"garbage was answered {status}")


async def half_open(world):
    """Stops in the middle of its request; the server must not wait for ever."""
    whole = post(world.rng.choice(world.bodies))
    reader, writer = await world.connect()
    writer.write(whole[:world.rng.randrange(len(whole))])
    if world.rng.random() < 0.5:
        await asyncio.sleep(world.rng.uniform(0, 1))
        reset(writer)
        world.counts["half open, left"] += 1
        return
    data = await read_all(reader, world)  # ends by the server's own bounds
    writer.close()
    status = parse(data)[0]
    world.counts[f"half open: {status}"] += 1
    if status not in CLIENT_ERRORS | REFUSALS | {0}:
        world.complain(f"half a request was answered {status}")


async def bad_request(world):
    reader, writer = await world.connect()
    path = world.rng.choice(["/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/no"])
    body = malformed(world.rng)
    writer.write(post(body, path))
    status, answer = parse(await read_all(reader, world))
    writer.close()
    world.counts[f"malformed: {status}"] += 1
    if status not in CLIENT_ERRORS | REFUSALS:
        world.complain(f"{body[:80]} to {path} was answered {status}: {answer[:200]}")
    elif "message" not in json.loads(answer).get("error", {}):
        world.complain(f"{status} without an error's message: {answer[:200]}")


async def connects(world):
    """Many connections that say nothing and go."""
    for _ in range(50):
        reader, writer = await world.connect()
        (reset(writer) if world.rng.random() < 0.5 else writer.close())
    await asyncio.sleep(0.05)


async def looks_on(world):
    """Probes keep answering."""
    path = world.rng.choice(["/live", "/metrics", "/load", "/v1/models"])
    reader, writer = await world.connect()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    status, _ = parse(await read_all(reader, world))
    writer.close()
    if status != 200 and not (status == 503 and path != "/live"):
        world.complain(f"{path} was answered {status}")
    await asyncio.sleep(0.05)


async def long_stream(world, number, begun):
    """Reads a stream to its end; appends to `begun` once it has begun. True if it was whole."""
    reader, writer = await world.connect()
    writer.write(post({**world.bodies[number], "stream": True}))
    data = await asyncio.wait_for(reader.read(1 << 16), world.seconds(60))
    begun.append(number)
    data += await read_all(reader, world)
    writer.close()
    judge(world, number, True, data, "long stream")
    return b"data: [DONE]" in data and b'"error":{' not in data


MIX = ([well_behaved] * 8 + [slow_reader] * 2 + [killed] * 5 + [never_reads, sends_garbage] * 2 +
       [half_open, bad_request, bad_request, connects, looks_on])


async def play(world, until):
    """One client after the other."""
    loop = asyncio.get_running_loop()
    while loop.time() < until and not world.wrong:
        kind = world.rng.choice(MIX)
        try:
            await kind(world)
        except ConnectionError as error:
            world.counts[f"{kind.__name__}: {type(error).__name__}"] += 1
            if kind in (well_behaved, slow_reader, looks_on) and not world.draining:
                world.complain(f"{kind.__name__} was cut off: {error}")
        except (TimeoutError, asyncio.TimeoutError):
            world.complain(f"{kind.__name__} hung")
        except ValueError as error:
            world.complain(f"{kind.__name__} could not read the answer: {error}")
