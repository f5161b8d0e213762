"""A headless Chromium for the tests of the web page, driven by the DevTools protocol over a pipe: no driver
and no package is needed. Where there is no Chromium, browser_program() says so."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

PATIENCE = 20  # seconds until a condition that never holds fails a test
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "Backspace": 8}
MODIFIERS = {"alt": 1, "ctrl": 2, "meta": 4, "shift": 8}
# Whatever the policy forbids is noted before any script of the page runs.
WATCH = """window.__violations = [];
document.addEventListener('securitypolicyviolation', (e) =>
  window.__violations.push(e.effectiveDirective + ' ' + e.blockedURI + ' ' + e.sample));"""


def browser_program():
    """The path of a Chromium, or None. CHROMIUM names another."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One process; each page is in a context of its own, so nothing is shared but the program."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="skiff_page_")
        read_commands, self.commands = os.pipe()
        answers, write_answers = os.pipe()

        def place_pipes():
            # Chromium reads commands from 3 and writes answers to 4; copies keep the two from colliding.
            a, b = os.dup(read_commands), os.dup(write_answers)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             "--disable-extensions", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-US",
             f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_answers)
        self.answers = os.fdopen(answers, "rb")
        self.count = 0
        self.replies = {}
        self.pages = {}
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        held = b""
        while data := self.answers.read1(1 << 20):
            *messages, held = (held + data).split(b"\0")
            with self.changed:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self.replies[message["id"]] = message
                    elif message.get("sessionId") in self.pages:
                        self.pages[message["sessionId"]].events.append(message)
                self.changed.notify_all()

    def send(self, method, session=None, **params):
        with self.changed:
            self.count += 1
            number = self.count
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        with self.changed:
            assert self.changed.wait_for(lambda: number in self.replies, PATIENCE), f"no answer to {method}"
            reply = self.replies.pop(number)
        assert "error" not in reply, (method, reply["error"])
        return reply["result"]

    def page(self, url=None, width=1200, height=780, language="en-US", dark=False, reduced=True, scale=1):
        return Page(self, url, width, height, language, dark, reduced, scale)

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Page:
    def __init__(self, browser, url, width, height, language, dark, reduced, scale):
        self.browser = browser
        self.events = []
        self.context = browser.send("Target.createBrowserContext")["browserContextId"]
        target = browser.send("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(domain + ".enable")
        self.send("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=width < 600)
        self.send("Emulation.setUserAgentOverride", userAgent="Mozilla/5.0 Chrome", acceptLanguage=language)
        self.media(dark, reduced)
        if url:
            self.open(url)

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def media(self, dark, reduced=True):
        self.send("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced else "no-preference"}])

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("document.body?.classList.contains('ready')")

    def reload(self):
        self.evaluate("document.body.classList.remove('ready')")
        self.send("Page.reload")
        self.wait("document.body?.classList.contains('ready')")

    def evaluate(self, code):
        result = self.send("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, (code, result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, code, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if value := self.evaluate(f"!!({code})"):
                    return value
            except AssertionError:
                pass  # the page is between two documents
            time.sleep(0.02)
        raise AssertionError(f"this never held: {code}\n{self.text('body')[:2000]}\n{self.errors()}")

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def count(self, selector):
        return self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    def click(self, selector):
        """A real click in the middle of an element."""
        self.wait(f"document.querySelector({json.dumps(selector)})?.getClientRects().length")
        x, y = self.evaluate(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect();
            return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def press(self, key, *modifiers):
        bits = sum(MODIFIERS[name] for name in modifiers)
        code = KEYS.get(key) or ord(key.upper())
        text = "\r" if key == "Enter" else key if len(key) == 1 and not bits else ""
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=bits,
                      code=key if len(key) > 1 else "Key" + key.upper(), text=text if kind == "keyDown" else "")

    def say(self, text):
        self.evaluate("document.getElementById('input').focus()")
        self.type(text)
        self.press("Enter")

    def screenshot(self, path):
        data = self.send("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        path.write_bytes(base64.b64decode(data))

    def errors(self):
        """Exceptions, violations of the policy, and complaints of the browser but those about a status."""
        found = [event["params"]["exceptionDetails"].get("exception", {}).get("description", "exception")
                 for event in self.events if event["method"] == "Runtime.exceptionThrown"]
        found += [event["params"]["entry"]["text"] for event in self.events if event["method"] == "Log.entryAdded"
                  and event["params"]["entry"]["level"] != "verbose" and event["params"]["entry"]["source"] != "network"]
        return found + self.evaluate("window.__violations ?? []")

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]

    def close(self):
        self.browser.send("Target.disposeBrowserContext", browserContextId=self.context)
        self.browser.pages.pop(self.session, None)
