"""Attacks on start, end and resources: signals, damaged files, lack of memory, hostile folders, flags."""
import json
import os
import random
import resource
import shutil
import signal
import stat
import threading
import time

from attack import Attack
from target import MODEL, Target, chat

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def prompts(count):
    """Prompts of two to three blocks, different from their first block on."""
    return [[4 + (i * 131 + k * 17) % 4000 for k in range(140 + i % 20)] for i in range(count)]


def answer(target, ids, tokens=16, seconds=60):
    reply = target.post(TEXT, {"prompt": ids, "max_tokens": tokens, "temperature": 0,
                               "ignore_eos": True}, seconds)
    return reply.json()["choices"][0]["text"] if reply.status == 200 else reply.status


def stream_text(data):
    """(text of a stream's bytes, whether it ended well, whether it has an error event)."""
    text, ended, failed = "", False, False
    for line in data.decode(errors="replace").splitlines():
        if line == "data: [DONE]":
            ended = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            failed = failed or "error" in event
            for choice in event.get("choices", []):
                text += choice.get("text") or ""
                ended = ended or bool(choice.get("finish_reason"))
    return text, ended, failed


def drain(signals):
    """SIGTERM, once or twice, while streams run: whole replies, or true beginnings and an error."""
    def run(scene):
        target, count, tokens = scene.target, scene.count(48, 16), 60
        asked = prompts(count)
        expected = [answer(target, ids, tokens) for ids in asked]
        got = [None] * count

        def stream(i):
            got[i] = target.post(TEXT, {"prompt": asked[i], "max_tokens": tokens, "stream": True,
                                        "temperature": 0, "ignore_eos": True}, 60)
        threads = [threading.Thread(target=stream, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        for _ in range(signals - 1):
            target.signal(signal.SIGTERM)
            time.sleep(0.2)
        seconds, code = target.terminate(70 if signals == 1 else 15)
        for thread in threads:
            thread.join()
        whole = 0
        for reply, text in zip(got, expected):
            if reply.status != 200:
                scene.expect(reply.status in (0, 503), f"a stream was answered {reply.status}")
                continue
            said, ended, failed = stream_text(reply.body)
            whole += said == text
            scene.expect(text.startswith(said), "a stream is no beginning of the true text")
            scene.expect(said == text or failed, "a stream was cut without an error event")
        scene.note(f"{whole} of {count} whole, code {code} after {seconds:.1f} s")
        scene.expect(code in ((0,) if signals == 1 else (0, 3)), f"code {code} after {seconds:.1f} s")
        if signals == 1:
            begun = sum(reply.status == 200 for reply in got)
            scene.expect(whole == begun, f"{begun - whole} of {begun} streams are not whole")
    return run


def upload_drain(scene):
    """SIGTERM while a body is coming: the client gets an answer, and the process ends."""
    body = json.dumps({"prompt": "a " * 100000, "max_tokens": 1}).encode()
    with scene.target.connect(20) as plain:
        plain.sendall(scene.target.head("POST", TEXT, len(body)) + body[:1000])
        time.sleep(0.3)
        scene.target.signal(signal.SIGTERM)
        time.sleep(0.3)
        got = b""
        try:
            plain.sendall(body[1000:])
            while more := plain.recv(65536):
                got += more
        except OSError:
            pass
    scene.expect(got.startswith(b"HTTP/1.1 "), "an upload under way at SIGTERM gets no answer")
    seconds, code = scene.target.await_end(time.monotonic(), 15)
    scene.expect(code == 0, f"code {code} after {seconds:.1f} s")
    scene.note(got.split(b"\r\n", 1)[0].decode() or "no answer")


def tiers(scene):
    """SIGKILL, flipped bits and a truncated file never change a token."""
    folder = scene.folder / "kv"
    flags = ["--kvcache-storage-backend", "file", "--kvcache-storage-path", folder,
             "--kvcache-storage-size", "0.05"]
    asked, rng = prompts(scene.count(30, 8)), random.Random(1)
    target = Target(scene.skiff, flags)
    expected = [answer(target, ids) for ids in asked]
    for harm in ("nothing", "bits", "end", "head"):
        target.kill()
        file = max(folder.iterdir(), key=lambda one: one.stat().st_size)
        size = file.stat().st_size
        with open(file, "r+b") as data:
            if harm == "bits":
                for _ in range(2000):
                    data.seek(rng.randrange(size))
                    data.write(bytes([rng.randrange(256)]))
            elif harm == "end":
                data.truncate(size // 2 + 17)
            elif harm == "head":
                data.write(rng.randbytes(64))
        target = Target(scene.skiff, flags)
        equal = sum(answer(target, ids) == text for ids, text in zip(asked, expected))
        scene.expect(equal == len(asked), f"{harm}: {len(asked) - equal} of {len(asked)} differ")
    target.kill()
    for name, make in (("link", lambda at: at.symlink_to(folder)),
                       ("open to others", lambda at: (at.mkdir(), at.chmod(0o777))),
                       ("file", lambda at: at.write_text("x"))):
        place = scene.folder / f"kv-{name.replace(' ', '-')}"
        make(place)
        code, said = scene.command("serve", MODEL, "--host", "127.0.0.1", "--port", "0", "--threads",
                                   "1", "--kvcache-storage-backend", "file",
                                   "--kvcache-storage-path", place, seconds=5)
        scene.expect(code == 1, f"a folder that is {name}: code {code}")
        scene.expect(said.count("\n") < 40, f"a folder that is {name}: {said.count(chr(10))} lines")


def no_memory(scene):
    """Hardly any memory is left while large jobs run: each fails by itself. An engine that cannot even plan
    its next step may end the process, with its reason and code 5; an exception that nobody caught may not."""
    text = json.dumps({"prompt": "one two three " * 300000}).encode()
    ids = json.dumps({"tokens": [7] * 1000000}).encode()
    # The reply of the first is built where all replies are written.
    jobs = [(CHAT, chat(n=8, max_tokens=scene.count(400, 100), logprobs=True, top_logprobs=20,
                        ignore_eos=True)),
            ("/tokenize", text), ("/detokenize", ids),
            (TEXT, {"prompt": "a " * 900, "max_tokens": 1, "prompt_logprobs": 20}),
            (TEXT, {"prompt": ["a b c"] * 8, "n": 4, "max_tokens": 60, "logprobs": 20})]
    for spare in (64, 32, 16, 8, 4):  # MiB
        if not scene.left():
            break
        target = Target(scene.skiff)
        target.limit(resource.RLIMIT_DATA, target.writable() + (spare << 20))
        statuses = scene.together(lambda i, at=target: at.post(*jobs[i % len(jobs)], 15).status, 10,
                                  workers=5)
        if target.alive():
            target.limit(resource.RLIMIT_DATA, resource.RLIM_INFINITY)
            time.sleep(0.5)
            scene.expect(target.post(CHAT, chat(), 20).status == 200,
                         f"{spare} MiB: does not work again")
            scene.note(f"{spare} MiB: alive, statuses {sorted(set(map(str, statuses)))}")
        else:
            code, words = target.process.returncode, target.last_words()
            scene.expect(code == 5 and "ending with code 5" in words, f"{spare} MiB: {words}")
            scene.note(f"{spare} MiB: code {code}")
        target.kill()


def fifos(folder, names):
    for name in names:
        path = folder / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)


def copy_of_model(scene, name):
    folder = scene.folder / name
    folder.mkdir()
    for file in MODEL.iterdir():
        if file.is_file():
            if file.stat().st_size > 1 << 20:
                os.symlink(file, folder / file.name)
            else:
                shutil.copy(file, folder / file.name)
                (folder / file.name).chmod(stat.S_IRUSR | stat.S_IWUSR)
    return folder


def edited(folder, name, **changes):
    path = folder / name
    value = json.loads(path.read_text())
    value.update(changes)
    path.write_text(json.dumps(value))


def folders(scene):
    """Model folders that nobody should be able to hang or crash a start with."""
    numbers = [0, 1, -1, 2 ** 31 - 1, 2 ** 31, 2 ** 63 - 1, 1e300, None, "a", [], {}, True, 0.5]
    fields = ["max_position_embeddings", "vocab_size", "hidden_size", "num_hidden_layers",
              "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
              "moe_num_experts", "moe_k", "moe_intermediate_size", "rope_theta", "eos_token_id"]
    cases = [("config.json", field, number) for field in fields for number in numbers]
    if scene.quick:
        cases = cases[::23] + [("config.json", "max_position_embeddings", 1)]
    for i, (file, field, number) in enumerate(cases):
        if scene.left() < 5:
            break
        folder = copy_of_model(scene, f"model{i}")
        edited(folder, file, **{field: number})
        for command in (("inspect", folder),
                        ("predict", folder, "--load-format", "dummy", "--prompt-token-ids", "5,6,7",
                         "--max-tokens", "1", "--threads", "1", "--num-gpu-blocks-override", "40")):
            code, said = scene.command(*command, seconds=10,
                                       preexec_fn=lambda: resource.setrlimit(
                                           resource.RLIMIT_AS, (4 << 30, 4 << 30)))
            scene.expect(code in (0, 1, 2), f"{command[0]}, {field} {number!r}: code {code}")
        shutil.rmtree(folder)
    scene.note(f"{i + 1} of {len(cases)} numbers")
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                 "chat_template.jinja", "special_tokens_map.json", "model.safetensors.index.json",
                 "model.safetensors"):
        folder = copy_of_model(scene, f"fifo-{name}")
        fifos(folder, [name])
        for command in ("inspect", "tokenize"):
            code, _ = scene.command(command, folder, seconds=4)
            scene.expect(code is not None, f"{command} hangs on a FIFO named {name}")


def flags(scene):
    """Starts with odd flags: a line and a code, never a crash or a hang."""
    odd = ["-1", "0", "1", "99999999999999999999", "1e400", "nan", "", "x", "[]", "{}",
           "/dev/zero", "-", "--", "é" * 300]
    names = ["max-model-len", "max-num-seqs", "max-num-batched-tokens", "block-size", "threads",
             "num-gpu-blocks-override", "gpu-memory-utilization", "swap-space", "max-concurrency",
             "max-waiting-tokens", "max-body-size", "max-header-size", "max-connections",
             "header-timeout", "api-key-file", "ssl-certfile", "chat-template", "allowed-origins",
             "allowed-hosts", "graph-optimization-config", "seed", "dtype", "device", "workers"]
    rng, tried = random.Random(3), 0
    for name, value in rng.sample([(n, v) for n in names for v in odd], scene.count(120, 6)):
        if scene.left() < 4:
            break
        tried += 1
        code, said = scene.command("serve", MODEL, "--host", "127.0.0.1", "--port", "0",
                                   f"--{name}={value}", seconds=2)
        # A server that starts has to be killed, and says that it serves or still loads.
        scene.expect(code in (None, 0, 1, 2), f"--{name}={value}: code {code}")
    scene.note(f"{tried} starts")


ATTACKS = [
    Attack("t13", "SIGTERM with streams", drain(1), ends=True, judge_clients=False),
    Attack("t13b", "SIGTERM twice with streams", drain(2), ends=True, judge_clients=False),
    Attack("t20b", "SIGTERM in an upload", upload_drain, ends=True, judge_clients=False, quick=True),
    Attack("t14", "killed, with a damaged cache file", tiers, alone=True),
    Attack("t16", "no memory is left", no_memory, alone=True),
    Attack("t17", "hostile model folders", folders, alone=True, quick=True),
    Attack("t23", "odd flags", flags, alone=True),
]
