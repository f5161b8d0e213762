"""The web page in a real browser: the program's own page and headers, with scripted answers where the demo model
has none of the kind. Every test ends with a look at what the browser complained about."""
import json
import urllib.request

import pytest

from edge import eventually
from page_browser import Browser, browser_program
from page_stub import Refusal, Stub, calls, page_of, text

ENDED = "document.getElementById('stop').hidden && !document.querySelector('.message.live')"
LAST = "[...document.querySelectorAll('.message.assistant')].at(-1)"


@pytest.fixture(scope="module")
def browser():
    program = browser_program()
    if program is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium; or set CHROMIUM)")
    running = Browser(program)
    yield running
    running.close()


@pytest.fixture(scope="module")
def own_page(server):
    return page_of(server.url)


@pytest.fixture
def stub(own_page):
    running = Stub(own_page)
    yield running
    running.close()


@pytest.fixture
def open_page(browser, stub):
    """Opens pages of the stub or of another address. None may have caused an error or asked a stranger."""
    pages = []

    def open_one(url=None, **options):
        pages.append((browser.page(url or stub.url, **options), url or stub.url))
        return pages[-1][0]

    yield open_one
    for page, url in pages:
        assert page.errors() == []
        strangers = {asked for asked in page.requests() if not asked.startswith((url, "data:", "blob:"))}
        assert strangers == set()
        page.close()


def ask(page, question, answer=None):
    page.say(question)
    page.wait(f"{LAST}?.querySelector('.foot button') && {ENDED}")
    if answer is not None:
        assert page.evaluate(f"{LAST}.querySelector(':scope > .body').innerText.trim()") == answer


def test_the_demo_model_talks_stops_and_answers_anew(server, open_page):
    page = open_page(server.url)
    ask(page, "What is the capital of France?")
    assert page.evaluate(f"{LAST}.querySelector(':scope > .body').innerText").strip()
    assert "tokens" in page.text(".message.assistant .figures")
    assert "tokens" in page.text("#context")
    page.evaluate(f"{LAST}.querySelector('[aria-label=\"Another answer\"]').click()")
    page.wait(f"document.querySelector('.versions')?.innerText.includes('2 of 2') && {ENDED}")
    # A long answer is stopped, and the server stops with it.
    page.evaluate("document.getElementById('open-settings').click()")
    page.evaluate("document.getElementById('set-top_k').focus()")
    page.type("50")
    page.press("Escape")
    page.say("Count from 1 to 50.")
    page.press("Escape")
    page.wait(ENDED)
    assert server.eventually(lambda: server.load() == 0)


def test_an_answer_streams_and_stops(stub, open_page):
    def endless(body):
        number = 0
        while True:
            number += 1
            yield from text(f"word{number} ", pause=0.01)

    stub.answer = endless
    page = open_page()
    page.say("Go on forever")
    page.wait(f"{LAST}?.innerText.includes('word3')")
    assert page.evaluate("document.getElementById('send').hidden && !document.getElementById('stop').hidden")
    page.wait(f"{LAST}.innerText.includes('tokens/s')")
    page.click("#stop")
    page.wait(f"{ENDED} && {LAST}.innerText.includes('Stopped.')")
    assert eventually(lambda: stub.left)  # the request ended with the answer
    assert "word3" in page.evaluate(f"{LAST}.innerText")
    # What was cut off can go on where it ended.
    stub.answer = lambda body: text("and done.")
    page.click('.message.assistant [aria-label="Continue the answer"]')
    page.wait(f"{ENDED} && {LAST}.innerText.includes('and done.')")
    body = stub.bodies[-1]
    assert body["continue_final_message"] and body["messages"][-1]["content"].startswith("word1 ")


def test_edit_and_another_answer_keep_what_was_there(stub, open_page):
    stub.answer = lambda body: text(f"answer {len(stub.bodies)} to {body['messages'][-1]['content']}")
    page = open_page()
    ask(page, "first", "answer 1 to first")
    page.press("ArrowUp")  # in the empty box
    page.wait("document.activeElement.closest('.editing')")
    page.evaluate("document.activeElement.select()")
    page.type("second")
    page.press("Enter")
    page.wait(f"{ENDED} && {LAST}?.innerText.includes('answer 2 to second')")
    page.click('.message.assistant [aria-label="Another answer"]')
    page.wait(f"{ENDED} && {LAST}.innerText.includes('answer 3 to second')")
    assert [len(body["messages"]) for body in stub.bodies] == [1, 1, 1]
    page.click('.message.user [aria-label="Previous version"]')
    page.wait("document.querySelector('#thread').innerText.includes('answer 1 to first')")
    assert "second" not in page.text("#thread")


def test_thinking_is_folded_with_its_time(stub, open_page):
    stub.answer = lambda body: text("It is **4**.", 4, 0.02, "two and two " * 8)
    page = open_page()
    page.say("2 + 2?")
    page.wait("document.querySelector('.thought')?.open && document.querySelector('.thought').innerText.includes('two and two')")
    page.wait(ENDED)
    assert page.text(".thought summary").startswith("Thought for ")
    assert page.evaluate("!document.querySelector('.thought').open")
    assert page.text(".message.assistant > .body strong") == "4"
    ask(page, "And 3 + 3?")
    assert all("reasoning_content" not in message for message in stub.bodies[-1]["messages"])


def test_tools_are_sent_and_their_results_given_by_hand(stub, open_page):
    page = open_page()
    page.click("#open-settings")
    for box, value in (("tools", '[{"name": "get_weather", "parameters": {"type": "object"}}]'), ("system", "Be brief.")):
        page.evaluate(f"document.getElementById('set-{box}').focus()")
        page.type(value)
    stub.finish = "tool_calls"
    stub.answer = lambda body: calls(("get_weather", '{"city": "Boston"}'), ("get_weather", '{"city": "Bonn"}'))
    page.say("The weather in Boston and Bonn?")
    page.wait("document.querySelectorAll('.results textarea').length === 2")
    first = stub.bodies[0]
    assert first["tools"] == [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    assert json.loads(page.evaluate("document.querySelector('.call pre').textContent")) == {"city": "Boston"}
    stub.finish = "stop"
    stub.answer = lambda body: text("Warm and cold.")
    page.evaluate("document.querySelectorAll('.results textarea')[0].focus()")
    page.type("21")
    page.evaluate("document.querySelectorAll('.results textarea')[1].focus()")
    page.type("4")
    page.click(".results .primary")
    page.wait(f"{ENDED} && {LAST}.innerText.includes('Warm and cold.')")
    sent = stub.bodies[-1]["messages"][2:]
    assert [call["function"]["arguments"] for call in sent[0]["tool_calls"]] == ['{"city": "Boston"}', '{"city": "Bonn"}']
    assert sent[1:] == [{"role": "tool", "content": "21", "tool_call_id": "call_0"},
                        {"role": "tool", "content": "4", "tool_call_id": "call_1"}]


def test_settings_are_sent_as_they_are_and_empty_ones_not(stub, open_page):
    page = open_page()
    ask(page, "plain", "Hello.")
    assert set(stub.bodies[0]) == {"model", "messages", "stream", "stream_options"}
    page.click("#open-settings")
    assert page.evaluate("document.getElementById('set-temperature').placeholder") == "0.8"
    for box, value in (("temperature", "0.5"), ("top_k", "20"), ("seed", "7"), ("stops", "END\n\\n\\n"),
                       ("schema", '{"type": "object"')):
        page.evaluate(f"document.getElementById('set-{box}').focus()")
        page.type(value)
    assert page.text("#bad-schema").startswith("The JSON Schema is not valid")
    page.say("does not go out")
    page.wait(f"{LAST}.querySelector('.trouble')?.innerText.includes('JSON Schema')")
    assert len(stub.bodies) == 1
    page.evaluate("document.getElementById('set-schema').focus()")
    page.type("}")
    assert page.text("#bad-schema") == ""
    page.evaluate("const m = document.getElementById('model'); m.value = 'other'; m.dispatchEvent(new Event('change'))")
    page.click(".trouble button")
    page.wait(f"{ENDED} && {LAST}.innerText.includes('Hello.')")
    body = stub.bodies[1]
    assert (body["temperature"], body["top_k"], body["seed"], body["model"]) == (0.5, 20, 7, "other")
    assert body["stop"] == ["END", "\n\n"]
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


PAYLOAD = """<script>window.hacked = 1</script>
<img src=x onerror="window.hacked = 2">

[click](javascript:window.hacked=3) ![see](https://evil.example/x.png?secret) [data](data:text/html,x)

| <b>a</b> | [x](vbscript:x) |
|---|---|
| <svg onload="window.hacked=4"> | ![](//evil.example/y.png) |

```html"><script>window.hacked = 5</script>
</code></pre><script>window.hacked = 6</script>
```

> <iframe src="https://evil.example"></iframe> [ok](https://ok.example/a?b=1&c=2)
"""


def test_what_a_model_writes_stays_text(stub, open_page):
    stub.answer = lambda body: text(PAYLOAD, 3)
    page = open_page()
    ask(page, PAYLOAD)
    stub.answer = lambda body: calls(("<img src=x onerror=window.hacked=7>", PAYLOAD))
    ask(page, "again")
    assert page.evaluate("window.hacked ?? null") is None
    assert page.count("#thread script, #thread img, #thread iframe, #thread svg:not(.icon)") == 0
    links = page.evaluate("[...document.querySelectorAll('#thread a')].map(a => [a.href, a.rel, a.target])")
    assert {link[0] for link in links} == {
        "https://evil.example/", "https://evil.example/x.png?secret", "https://ok.example/a?b=1&c=2"}
    assert all(link[1:] == ["noopener noreferrer", "_blank"] for link in links)
    # Even script that got in could not run or speak to others.
    blocked = page.evaluate("""(async () => { const s = document.createElement('script');
        try { s.text = 'window.hacked = 8'; document.body.append(s); } catch { }
        try { document.body.innerHTML = '<b>'; } catch { }
        return await fetch('https://evil.example/').then(() => 'sent', () => window.hacked ?? 'blocked'); })()""")
    assert blocked == "blocked"
    assert any("connect-src" in violation for violation in page.evaluate("window.__violations"))
    page.evaluate("window.__violations.length = 0")
    page.events = [event for event in page.events if event["method"] not in ("Log.entryAdded", "Network.requestWillBeSent")]


MARKDOWN = """# Title
A *word*, **two words**, `code * here`, ~~gone~~ and 2 * 3 * 4.
Next line with snake_case_name and https://example.org/a_b.

1. one
   - nested **bold**

     more of it
2. two

> quoted
> twice

| a | b \\| c |
|:--|--:|
| `x|y` | **1** |

~~~py
if a < b:
    pass

~~~
***
- [link](https://example.org/(x)) end
"""
SHAPE = ("h3 p em strong code del a ol li p ul li p strong p li p blockquote p table thead tr th th tbody tr td code td strong "
         "figure figcaption span pre code span span span hr ul li p a").split()


def test_markdown_is_the_same_however_it_arrives(stub, open_page):
    page = open_page()
    shapes, texts = [], []
    for size in (1, 2, 7, 10000):
        stub.answer = lambda body, size=size: text(MARKDOWN, size)
        ask(page, f"in pieces of {size}")
        shapes.append(page.evaluate(f"""[...{LAST}.querySelector(':scope > .body').querySelectorAll('*')]
            .map(e => e.localName).filter(n => !['div', 'button', 'svg', 'use'].includes(n))"""))
        texts.append(page.evaluate(f"{LAST}.querySelector(':scope > .body').textContent"))
    assert shapes[0] == SHAPE
    assert all(shape == shapes[0] for shape in shapes) and len(set(texts)) == 1
    assert "2 * 3 * 4" in texts[0] and "snake_case_name" in texts[0] and "b | c" in texts[0]
    assert page.evaluate("document.querySelector('figure code').textContent") == "if a < b:\n    pass\n\n"
    assert page.evaluate("[...document.querySelectorAll('#thread .body a')].slice(0, 2).map(a => a.href)") == [
        "https://example.org/a_b", "https://example.org/(x)"]


# Watches how much is put into the page while an answer arrives, and the longest time without a turn of the page's own.
METER = """(() => {
  const meter = window.meter = { written: 0, longest: 0 };
  let start = performance.now();
  Array.from({ length: 300000 }, (_, i) => String(i * 7919 % 300000)).sort();
  meter.pace = performance.now() - start;  // what this machine takes for a fixed piece of work just now
  const size = (node) => node.textContent.length;
  new MutationObserver((changes) => { for (const { addedNodes } of changes) for (const node of addedNodes) meter.written += size(node); })
    .observe(document.getElementById('thread'), { childList: true, subtree: true });
  let last = performance.now();
  setInterval(() => { const now = performance.now(); meter.longest = Math.max(meter.longest, now - last); last = now; }, 1);
})()"""
PIECES = {"paragraph": "words and words ", "stars": "*a _b [c ", "code": "x = f(x)\n", "blocks": "- an *item* of a list\n\n"}


@pytest.mark.parametrize("kind", PIECES)
def test_200_kilobytes_stay_smooth(kind, stub, open_page):
    piece = PIECES[kind]
    whole = ("```py\n" if kind == "code" else "") + piece * (200_000 // len(piece))
    stub.answer = lambda body: text(whole, 1000, 0.002)
    page = open_page()
    page.evaluate(METER)
    page.say("long")
    page.wait(f"{LAST}?.innerText.length > 1000 && {ENDED}")
    length = page.evaluate(f"{LAST}.querySelector(':scope > .body').textContent.length")
    assert length > 120_000
    meter = page.evaluate("window.meter")
    # Nothing is drawn again and again: what is undecided at the end of each part is at most LOOKAHEAD characters.
    assert meter["written"] < 5 * len(whole)
    assert meter["longest"] < 1000 + 10 * meter["pace"], "ms"


def test_a_reload_keeps_chats_and_choices(stub, open_page):
    page = open_page()
    ask(page, "What is kept?", "Hello.")
    page.click("#theme")
    page.click("#theme")
    page.click("#language")
    page.reload()
    assert page.text(".message.user > .body") == "What is kept?"
    assert page.text(".message.assistant > .body") == "Hello."
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.click("#language")
    page.click("#new-chat")
    ask(page, "Another chat", "Hello.")
    assert page.count("#chats .chat") == 2
    page.press("k", "ctrl")
    page.type("kept")
    page.wait("document.querySelectorAll('#chats .chat').length === 1")
    page.click("#chats .chat")
    page.wait("document.querySelector('.message.user').innerText.includes('What is kept?')")
    page.evaluate("document.querySelector('#chats [aria-label=\"Delete chat\"]').click()")
    page.wait("!document.querySelector('#chats .chat')")
    page.click(".toast .link")
    page.wait("document.querySelectorAll('#chats .chat').length === 1")


def test_export_and_import(stub, open_page, tmp_path):
    page = open_page()
    ask(page, "Question", "Hello.")
    page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path),
              browserContextId=page.context)
    page.click("#export")
    assert eventually(lambda: list(tmp_path.glob("skiff-chats-*.json")))
    file = json.loads(next(tmp_path.glob("skiff-chats-*.json")).read_text())
    assert [node["content"] for node in file["chats"][0]["nodes"]] == ["Question", "Hello."]
    # A file may hold anything; only what the page knows of chats comes in.
    file["chats"].append({"title": "odd", "nodes": [
        {"id": "a", "parent": "", "role": "user", "content": "<img src=x onerror=alert(1)>"},
        {"id": "b", "parent": "b", "role": "user", "content": "own parent"}, {"id": "c", "parent": "a", "role": "admin"},
        {"id": "a", "parent": "a", "role": "user", "content": "same id"}, 5, None]})
    file["chats"] += [7, {"nodes": "x"}]
    odd = tmp_path / "odd.json"
    odd.write_text(json.dumps(file))
    other = open_page()
    root = other.send("DOM.getDocument")["root"]["nodeId"]
    node = other.send("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    other.send("DOM.setFileInputFiles", nodeId=node, files=[str(odd)])
    other.wait("document.querySelectorAll('#chats .chat').length === 2")
    other.evaluate("[...document.querySelectorAll('#chats .chat')].find(e => e.innerText === 'odd').click()")
    other.wait("document.querySelector('.message.user')?.innerText.includes('<img')")
    assert other.count(".message") == 1


def test_errors_say_what_the_server_said(stub, open_page):
    page = open_page()
    stub.answer = lambda body: Refusal(400, "temperature must be a number in [0, 1000000], but is -1")
    page.say("a")
    page.wait(f"{LAST}?.innerText.includes('The server answered 400: temperature must be')")
    stub.answer = lambda body: Refusal(429, "8 requests are under way", Retry_After="30")
    page.click(".trouble button")
    page.wait(f"{LAST}.innerText.includes('busy: 8 requests are under way') && {LAST}.innerText.includes('best in 30 s')")
    stub.answer = lambda body: text("first second third", 6, 0.1)
    stub.cut_after = 3
    page.click(".trouble button")
    page.wait(f"{LAST}.querySelector('.trouble')?.innerText.includes('connection')")
    assert "first second" in page.evaluate(f"{LAST}.innerText")
    stub.cut_after = None
    stub.close()  # the server is gone
    page.click(".trouble button")
    page.wait("document.getElementById('banner').innerText.includes('does not answer')")
    page.wait(f"{LAST}.querySelector('.trouble')")


def test_a_key_is_asked_for_and_kept_for_the_tab_only(stub, open_page):
    stub.key = "sk-page"
    page = open_page()
    page.wait("document.querySelector('#banner input')")
    page.type("wrong")
    page.press("Enter")
    page.wait("document.getElementById('banner').innerText.includes('does not take this')")
    page.type("sk-page")
    page.press("Enter")
    page.wait("!document.getElementById('banner').hasChildNodes()")
    ask(page, "with the key", "Hello.")
    assert stub.headers[-1]["Authorization"] == "Bearer sk-page"
    kept = page.evaluate("JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)])")
    assert "sk-page" not in json.dumps(json.loads(kept)[0]) and "sk-page" in kept
    # A copied request has no key in it.
    page.evaluate("navigator.clipboard.writeText = (copied) => { window.copied = copied; return Promise.resolve(); }")
    page.click('[aria-label="Copy as curl"]')
    copied = page.wait("window.copied") and page.evaluate("window.copied")
    assert "$KEY" in copied and "sk-page" not in copied
    assert f"curl '{stub.url}/v1/chat/completions'" in copied


def test_a_locked_server_gives_the_page_and_nothing_else(start_server, open_page):
    locked = start_server("--api-key", "sk-real")
    page = open_page(locked.url)
    page.wait("document.querySelector('#banner input')")
    page.type("sk-real")
    page.press("Enter")
    page.wait("document.getElementById('model').value")
    ask(page, "What is 2 + 3?")


def test_the_page_can_be_switched_off(start_server):
    server = start_server("--no-webui")
    request = urllib.request.Request(server.url + "/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        assert b"<" not in response.read()


def test_all_of_it_by_keyboard(stub, open_page):
    page = open_page()
    focus = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
    outline = "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement.parentElement).boxShadow"
    ask(page, "first", "Hello.")
    page.evaluate("document.getElementById('skip').focus()")
    seen = [page.evaluate(focus)]
    for _ in range(40):
        page.press("Tab")
        seen.append(page.evaluate(focus))
        assert page.evaluate("document.activeElement === document.body") or page.evaluate(outline) != "nonenone", seen
        if page.evaluate("document.activeElement.id") == "send":
            break
    for name in ("Skip to the message box", "Search chats", "Export all chats", "Model", "Server", "Settings",
                 "Conversation", "Copy", "Edit", "Another answer", "Copy as curl", "Ask anything"):
        assert any(name in text for text in seen), (name, seen)
    page.evaluate("document.getElementById('open-settings').focus()")
    page.press("Enter")
    page.wait("!document.getElementById('settings').hidden && document.activeElement.ariaLabel === 'Close'")
    page.press("Escape")
    page.wait("document.getElementById('settings').hidden && document.activeElement.id === 'input'")
    page.press("o", "ctrl", "shift")
    page.wait("document.querySelector('.welcome') && document.activeElement.id === 'input'")
    page.type("second")
    page.press("Enter")
    page.wait(f"{ENDED} && {LAST}?.innerText.includes('Hello.')")
    page.wait("document.getElementById('live').textContent === 'Answer: Hello.'")
    assert page.count("button:not([aria-label]):empty, input:not([aria-label]):not([id]), [tabindex]:not([tabindex='0'])") == 0


def contrast(page, selector):
    """Between the colour of an element's text and what lies behind it (WCAG 2.2)."""
    def luminance(colour):
        parts = [part / 255 for part in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear))
    front, back = page.evaluate(f"""(() => {{ let e = document.querySelector({json.dumps(selector)});
        const numbers = (c) => c.match(/[\\d.]+/g).map(Number);
        const front = numbers(getComputedStyle(e).color);
        let back = [0, 0, 0, 0];
        for (; e && (back[3] ?? 1) === 0; e = e.parentElement) back = numbers(getComputedStyle(e).backgroundColor);
        return [front.slice(0, 3), back.slice(0, 3)]; }})()""")
    light, dark = sorted((luminance(front), luminance(back)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_down_only_and_text_is_legible(dark, stub, open_page):
    stub.answer = lambda body: text(MARKDOWN + "\n" + "unbroken" * 40 + "\n\n`" + "code" * 60 + "`\n\n```\n" + "x" * 200 + "\n```\n", 50)
    page = open_page(width=360, height=720, dark=dark)
    ask(page, "wide" * 40)
    wide = """[...document.querySelectorAll('body, #app, #main, #scroller, #thread, .composer, .bar')]
        .filter(e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > 361).map(e => e.id || e.className)"""
    assert page.evaluate(wide) == []
    for panel in ("menu", "open-settings", "open-server"):
        page.click("#" + panel)
        page.wait("!document.getElementById('scrim').hidden && document.getElementById('main').inert")
        assert page.evaluate("""[...document.querySelectorAll('.panel:not([hidden]), body.chats-open #sidebar')]
            .filter(e => e.scrollWidth > e.clientWidth + 1).length""") == 0
        page.press("Escape")
        page.wait("document.getElementById('scrim').hidden")
    for selector in (".message.user > .body", ".message.assistant > .body", ".figures", ".bar h1", ".code code", "#context"):
        assert contrast(page, selector) >= 4.5, selector
    # The page follows the system until its user chooses.
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.media(dark=not dark)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_chinese_by_the_browser_and_no_text_left_behind(stub, open_page):
    page = open_page(language="zh-CN")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert page.evaluate("document.getElementById('input').placeholder") == "想问点什么？"
    page.click("#open-settings")
    words = page.text("#sidebar") + page.text("#settings")
    for english in ("New chat", "Search", "Temperature", "Settings", "undefined", "null"):
        assert english not in words


def test_the_load_is_plotted(server, open_page):
    page = open_page(server.url)
    page.click("#open-server")
    page.wait("document.querySelectorAll('.plot').length === 3 && document.querySelector('.facts dd')")
    ask(page, "What is the capital of France?")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait("document.querySelector('.plot .stroke').getAttribute('d').includes('L')")
    assert "demo" in page.text("#server") and page.text("#server .problem") == ""
    assert page.evaluate("document.querySelectorAll('.plot')[2].getAttribute('aria-label')").startswith("KV cache in use")


def test_no_motion_where_none_is_wanted(browser, stub, open_page):
    stub.answer = lambda body: text("slow " * 200, 5, 0.02)
    page = open_page()
    page.say("Hello")
    page.wait(f"{LAST}?.innerText.includes('slow')")
    moving = "document.getAnimations().length"
    assert page.evaluate(moving) == 0
    page.media(dark=False, reduced=False)
    page.wait(moving + " > 0")
    page.press("Escape")
    page.wait(ENDED)
