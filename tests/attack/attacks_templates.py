"""Attacks by a request's own chat_template."""
import time

import templates
from attack import TRUST, Attack
from target import chat, user

PATH = "/v1/chat/completions"


def asked(template, **kwargs):
    return chat(chat_template=template, **({"chat_template_kwargs": kwargs} if kwargs else {}))


def each_of(*tables):
    """Every template of these tables is a job; the server survives each."""
    def run(scene):
        every = {name: text for table in tables for name, text in table.items()}
        done = 0
        for name, text in every.items():
            if not scene.left():
                break
            scene.job(name, PATH, asked(text))
            done += 1
        scene.note(f"{done} of {len(every)} templates")
    return run


def refused(scene):
    """Without --trust-request-chat-template none of them is looked at."""
    every = {**templates.CRASHES, "hang": templates.HANG, "leak": templates.LEAK,
             **templates.MEMORY, "honest": "{{ messages[0].content }}"}
    for name, text in every.items():
        if not scene.left():
            break
        for path in (PATH, "/tokenize"):
            reply = scene.job(f"{name} at {path}", path, asked(text), statuses=(400,))
            if reply and reply.status == 400 and b"chat_template" not in reply.body:
                scene.wrong(f"{name}: the refusal does not name chat_template")
    scene.job("null is no template", PATH, chat(chat_template=None), statuses=(200,))


def leak(scene):
    count = scene.count(20, 4)
    before = scene.target.rss()
    for i in range(count):
        scene.job("leak", PATH, asked(templates.LEAK))
        if not scene.left():
            break
    grown = scene.target.rss() - before
    scene.note(f"{grown:.0f} MiB after {i + 1}")
    scene.expect(grown < 100, f"{grown:.0f} MiB stay after {i + 1} templates")


def workers_gone(scene):
    """Both workers are given a template that would run for hours; then the rest is asked for."""
    hanging = [scene.target.connect(60) for _ in range(2)]
    request = scene.target.post_bytes(PATH, asked(templates.HANG))
    for plain in hanging:
        plain.sendall(request)
    for path, body in (("/v1/models", None), ("/metrics", None), ("/tokenize", {"prompt": "a"}),
                       (PATH, chat())):
        reply = scene.target.post(path, body, 8) if body else scene.target.fetch(path, 8)
        if scene.stand_up():
            break
        scene.expect(reply.status == 200, f"{path}: {reply.status or 'no answer'} "
                                          f"after {reply.seconds:.1f} s")
    target = scene.target
    again = [target.connect(60) for _ in range(2)]
    for plain in again:
        plain.sendall(request)
    time.sleep(0.5)
    target.signal(15)
    time.sleep(0.5)
    seconds, code = target.terminate(10)
    scene.note(f"two SIGTERM: code {code} after {seconds:.1f} s")
    scene.expect(code in (0, 3), f"two SIGTERM did not end it: code {code} after {seconds:.1f} s")
    target.kill()
    for plain in hanging + again:
        plain.close()


def odd_messages(scene):
    """What any client may send to the model's own template."""
    deep = "x"
    for _ in range(55):
        deep = [deep]
    odd = {
        "long": user("x" * 2000000),
        "marks": user("\u0301" * 300000),
        "many": user("") * 20000,
        "deep": [{"role": "user", "content": "a", "k" * 1000: deep}],
        "parts": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 50000}],
    }
    for name, messages in odd.items():
        if scene.left():
            scene.job(f"{name} messages", "/tokenize", {"messages": messages})


ATTACKS = [
    Attack("t00", "templates without trust", refused, quick=True),
    Attack("t01", "joiner, changed chains", each_of(templates.CRASHES), TRUST, peak=1024,
           judge_clients=False, quick=True),
    Attack("t21", "recursion shapes", each_of(templates.RECURSION), TRUST, peak=1024,
           judge_clients=False),
    Attack("t02", "memory of templates", each_of(templates.MEMORY), TRUST, peak=1024,
           judge_clients=False),
    Attack("t02b", "leak by loop.changed", leak, TRUST, peak=512, judge_clients=False, quick=True),
    Attack("t03", "uncharged work", each_of(templates.UNCHARGED), TRUST, peak=1024,
           judge_clients=False),
    Attack("t04", "quadratic parsing", each_of(templates.PARSE), TRUST, peak=1024,
           judge_clients=False),
    Attack("t05", "all workers hang", workers_gone, TRUST, ends=True, judge_clients=False,
           quick=True),
    Attack("t25", "odd messages", odd_messages, peak=1024),
]
