#!/usr/bin/env python3
"""Makes the pictures of the web page in docs/images: the program's page in a real browser, with scripted answers.
    SKIFF_BIN=build/cpu/skiff .venv/bin/python tests/api/page_screenshots.py [FOLDER]
"""
import math
import pathlib
import shutil
import subprocess
import sys
import time

from api_server import Server
from edge import ROOT, demo_model
from page_browser import Browser, browser_program
from page_stub import Stub, page_of, text

LIMIT = 150_000  # bytes of a picture

QUESTION = "Write a Python function that returns the first n primes, and tell me how its cost grows."
THOUGHT = "A sieve needs an upper bound for the n-th prime. For n ≥ 6, n (ln n + ln ln n) is one.\n\nI should show the cost in a table."
ANSWER = """A **sieve of Eratosthenes** is short and fast, once there is an upper bound for the *n*-th prime:

```python
from math import ceil, log

def primes(n: int) -> list[int]:
    bound = 15 if n < 6 else ceil(n * (log(n) + log(log(n))))
    sieve = bytearray([1]) * (bound + 1)
    for i in range(2, int(bound**0.5) + 1):
        if sieve[i]:
            sieve[i * i :: i] = bytes(len(range(i * i, bound + 1, i)))
    return [i for i in range(2, bound + 1) if sieve[i]][:n]
```

With *b* for the bound, about *n* ln *n*:

| Step | Time | Memory |
|:-----|-----:|-------:|
| Sieve | *b* log log *b* | *b* bytes |
| Reading it out | *b* | 8 *n* bytes |

So doubling `n` a little more than doubles the work.
"""
CHINESE = "写一首关于大海的短诗"
POEM = "**潮**\n\n浪把月光一页页翻开，\n又轻轻合上。\n岸边的小舟不说话，\n只等风来。\n"


def load_of(seconds):
    """A load that comes and goes, a little further with each question."""
    load_of.step += 1
    wave = max(0.03, 0.5 + 0.45 * math.sin(load_of.step / 21) + 0.2 * math.sin(load_of.step / 6) + 0.06 * math.sin(load_of.step / 2))
    running = round(1 + 15 * wave)
    load_of.tokens += (seconds - load_of.last) * 900 * wave
    load_of.last = seconds
    return {"generation_tokens_total": int(load_of.tokens), "num_requests_running": running,
            "num_requests_waiting": max(0, running - 14), "gpu_cache_usage_perc": 0.12 + 0.45 * wave,
            "time_to_first_token_seconds_sum": 21.4, "time_to_first_token_seconds_count": 214, "requests_number": 214,
            "prefix_cache_hits_total": 31, "prefix_cache_queries_total": 100}


load_of.tokens, load_of.last, load_of.step = 180000.0, 0.0, 40


def answered(page):
    page.wait("document.getElementById('stop').hidden && document.querySelector('.message.assistant:last-child .figures')?.innerText")


def talk(stub, page):
    stub.answer = lambda body: text(POEM, 2, 0.012)
    page.say(CHINESE)
    answered(page)
    time.sleep(0.3)
    page.click("#new-chat")
    stub.answer = lambda body: text(ANSWER, 4, 0.008, THOUGHT)
    page.say(QUESTION)
    answered(page)


def fill_plots(page):
    """Asks many times at once for what would take minutes: the page asks when it comes into view."""
    for _ in range(150):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        time.sleep(0.12)


def shoot(page, path):
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    page.evaluate("document.activeElement?.blur(); document.getElementById('toasts').replaceChildren()")
    time.sleep(0.3)
    page.screenshot(path)
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--strip", "--speed", "1", "--force", "--output", path, path], check=True)
    if path.stat().st_size > LIMIT:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes, more than {LIMIT}: apt-get install pngquant")
    print(path, path.stat().st_size, "bytes")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/images")
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(demo_model())
    stub = Stub(page_of(server.url))
    server.close()
    stub.metrics = load_of
    browser = Browser(browser_program())
    try:
        light = browser.page(stub.url, 1240, 820, scale=1.5)
        talk(stub, light)
        shoot(light, folder / "page_light.png")
        dark = browser.page(stub.url, 1240, 820, dark=True, scale=1.5)
        talk(stub, dark)
        dark.click("#open-server")
        fill_plots(dark)
        shoot(dark, folder / "page_dark.png")
        phone = browser.page(stub.url, 360, 720, language="zh-CN", scale=2)
        stub.answer = lambda body: text(POEM, 2, 0.012)
        phone.say(CHINESE)
        answered(phone)
        shoot(phone, folder / "page_phone.png")
    finally:
        browser.close()
        stub.close()


if __name__ == "__main__":
    main()
