"""`skiff chat`, into a pipe and at a terminal (a pseudo-terminal that this test types into)."""
import errno
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time

import pytest

GREEDY = ("--temperature", "0")
# Keeps talking for longer than any test, with the model long_demo.
TALKATIVE = (*GREEDY, "--min-tokens", "30000")
CAPITAL = "What is the capital of France?"
PARIS = "The capital of France is Paris."
PROMPT = r"> $"
WAIT = 60


class Terminal:
    """A chat that believes a person types. `screen` is all that it has printed."""

    def __init__(self, binary, model, home, *flags, env=None):
        self.screen = ""
        self.seen = 0
        self.code = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            kept = {k: v for k, v in os.environ.items() if k not in ("XDG_STATE_HOME", "NO_COLOR")}
            os.execve(binary, [binary, "chat", str(model), *flags],
                      {**kept, "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8",
                       **(env or {})})

    def _read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError as error:
                if error.errno != errno.EIO:  # the other side has closed
                    raise
                data = b""
            self.screen += data.decode(errors="replace")
            return bool(data)
        return True

    def until(self, pattern):
        """What was printed since the last call, up to and with the pattern."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            # Modes and cursor movements of the line editor are not what the tests are about.
            plain = re.sub(r"\x1b\[\?2004[hl]", "", self.screen[self.seen:])
            if re.search(pattern, plain):
                self.seen = len(self.screen)
                return plain
            assert self._read(0.2), f"it ended before {pattern!r}: {plain!r}"
        raise AssertionError(f"no {pattern!r} in {self.screen[self.seen:]!r}")

    def type(self, text):
        os.write(self.fd, text.encode())

    def say(self, line, until=r"tokens/s[^\n]*\n(.|\n)*> $"):
        self.type(line + "\r")
        return self.until(until)

    def wait(self):
        """The exit code."""
        end = time.monotonic() + WAIT
        while self.code is None and time.monotonic() < end:
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(skiff, demo, tmp_path):
    opened = []

    def start(*flags, model=demo, **options):
        chat = Terminal(skiff.binary, model, tmp_path, *(flags or GREEDY), **options)
        opened.append(chat)
        chat.until(PROMPT)
        return chat

    yield start
    for chat in opened:
        chat.close()


def history(tmp_path):
    return tmp_path / ".local/state/skiff/history"


# Into a pipe


def test_a_pipe_gets_only_answers(skiff, demo):
    done = skiff("chat", demo, *GREEDY, stdin=f"{CAPITAL}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, PARIS + "\n", "")


def test_a_pipe_keeps_no_history(skiff, demo, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    skiff.ok("chat", demo, *GREEDY, stdin=f"{CAPITAL}\n")
    assert not list(tmp_path.iterdir())


def test_lines_of_a_pipe_join(skiff, demo):
    joined = "What is the capital\\\nof France?\n"
    block = '"""\nWhat is the capital\nof France?\n"""\n'
    outputs = [skiff.ok("chat", demo, *GREEDY, stdin=text) for text in (joined, block)]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == 1


def test_one_message(skiff, demo):
    assert skiff.ok("chat", demo, *GREEDY, "--message", CAPITAL, stdin="ignored\n") == PARIS + "\n"


def test_a_message_that_cannot_be_answered_is_an_error(skiff, demo):
    done = skiff("chat", demo, "--message", "word " * 5000)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "maximum context length is 2048 tokens" in done.stderr


def test_bad_settings_are_refused_before_loading(skiff, demo):
    assert "temperature" in skiff.refused("chat", demo, "--temperature", "hot")
    assert "top-p" in skiff.refused("chat", demo, "--top-p", "7")


def test_a_system_message_is_part_of_what_is_saved(skiff, demo, tmp_path):
    saved = tmp_path / "chat.json"
    skiff.ok("chat", demo, "--system", "Be kind.", stdin=f"/save {saved}\n")
    assert json.loads(saved.read_text()) == {"messages": [{"role": "system", "content": "Be kind."}]}


def test_saved_files_serve_the_other_commands(skiff, demo, tmp_path):
    saved, page = tmp_path / "chat.json", tmp_path / "chat.md"
    skiff.ok("chat", demo, *GREEDY, stdin=f"{CAPITAL}\n/save {saved}\n/save {page}\n")
    messages = json.loads(saved.read_text())["messages"]
    assert [m["content"] for m in messages] == [CAPITAL, PARIS]
    assert PARIS in skiff.ok("tokenize", demo, "--chat", saved)
    line = json.loads(skiff.ok("predict", demo, "--data-file", saved))
    assert line["output"] == line["tgt"] == PARIS
    assert f"## user\n\n{CAPITAL}\n\n## assistant\n\n{PARIS}\n" in page.read_text()


def test_load_goes_on(skiff, demo, tmp_path):
    saved = tmp_path / "chat.json"
    skiff.ok("chat", demo, *GREEDY, stdin=f"My name is Barnaby.\n/save {saved}\n")
    answer = skiff.ok("chat", demo, *GREEDY, stdin=f"/load {saved}\nWhat is my name?\n")
    assert "Barnaby" in answer
    forgotten = skiff.ok("chat", demo, *GREEDY,
                         stdin=f"/load {saved}\n/reset\nWhat is my name?\n")
    assert "Barnaby" not in forgotten


@pytest.mark.parametrize("text", ["", "{", "[]", '{"messages": 5}', '{"messages": [{}]}',
                                  '{"messages": ' + "[" * 100])
def test_what_is_no_conversation_is_not_loaded(skiff, demo, tmp_path, text):
    broken = tmp_path / "broken.json"
    broken.write_text(text)
    done = skiff("chat", demo, *GREEDY, stdin=f"/load {broken}\n{CAPITAL}\n")
    assert done.stdout == PARIS + "\n"
    assert str(broken) in done.stderr


def test_an_output_that_is_closed_ends_it(skiff, demo):
    with open("/dev/full", "w") as full:
        done = subprocess.run([skiff.binary, "chat", str(demo)], input=f"{CAPITAL}\n" * 50,
                              text=True, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1
    assert "cannot write to stdout" in done.stderr


# At a terminal


def test_an_answer_with_figures(terminal):
    chat = terminal()
    assert "/help" in chat.screen
    said = chat.say(CAPITAL)
    assert PARIS in said
    assert re.search(r"\x1b\[2m\[\d+ tokens, first after \d+ ms, [\d.]+ tokens/s, "
                     r"context \d+/2048\]\x1b\[0m", said)
    chat.type("\x04")
    assert chat.wait() == 0


def test_no_color_is_heeded(terminal):
    chat = terminal(env={"NO_COLOR": "1"})
    assert "\x1b[2m" not in chat.screen + chat.say(CAPITAL)


def test_a_simple_terminal_gets_no_escape_codes(terminal):
    chat = terminal(*GREEDY, env={"TERM": "dumb"})
    assert PARIS in chat.say(CAPITAL)
    assert "\x1b" not in chat.screen


def test_ctrl_c_stops_only_the_answer(terminal, long_demo):
    chat = terminal(*TALKATIVE, model=long_demo)
    chat.type("Count to five.\r")
    chat.until(r"1, 2, 3")
    chat.type("\x03")
    assert "[stopped; " in chat.until(PROMPT)
    assert "1 exchange, 2 messages" in chat.say("/stats", PROMPT)
    chat.say("/set min_tokens 0", PROMPT)
    chat.say("/reset", PROMPT)
    assert PARIS in chat.say(CAPITAL)
    chat.say("/exit", r"\n")
    assert chat.wait() == 0


def test_ctrl_c_clears_the_line_and_twice_leaves(terminal):
    chat = terminal()
    chat.type("What is")
    chat.until("What is")
    chat.type("\x03")
    assert "Ctrl-C again" in chat.until(r"leaves[^\n]*\n(.|\n)*> $")
    assert PARIS in chat.say(CAPITAL)  # nothing is left of "What is"
    chat.type("\x03")
    chat.until(r"leaves[^\n]*\n(.|\n)*> $")
    chat.type("\x03")
    assert chat.wait() == 0


def test_several_lines(terminal, tmp_path):
    chat = terminal()
    chat.say("one\\", r"\. $")
    chat.say("two")
    chat.say('"""', r"\. $")
    chat.say("/three", r"\. $")
    chat.say('"""')
    chat.type("\x1b[200~four\rfive\x1b[31m\x1b[201~")
    chat.until("five")
    chat.say("")
    saved = tmp_path / "chat.json"
    chat.say(f"/save {saved}", PROMPT)
    asked = [m["content"] for m in json.loads(saved.read_text())["messages"] if m["role"] == "user"]
    assert asked == ["one\ntwo", "/three", "four\nfive[31m"]


def test_keys_edit_the_line(terminal):
    chat = terminal()
    # Left three times, a letter deleted and typed again; letters of several bytes and columns.
    assert PARIS in chat.say("What is the capital of Franxe?\x1b[D\x1b[D\x7fc")
    chat.type("你好é\x7f\x7f\x7f")
    assert PARIS in chat.say(CAPITAL)


def test_completion_and_the_nearest_command(terminal):
    chat = terminal()
    chat.type("/sta\t")
    assert "0 exchanges" in chat.say("", PROMPT)
    assert "did you mean /undo?" in chat.say("/undoo", PROMPT)
    assert "did you mean temperature?" in chat.say("/set temprature 1", PROMPT)
    assert "[0, 100]" in chat.say("/set temperature 101", PROMPT)


def test_history_across_sessions(terminal, tmp_path):
    first = terminal()
    first.say(CAPITAL)
    first.type("\x04")
    assert first.wait() == 0
    file = history(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == CAPITAL + "\n"
    second = terminal()
    assert PARIS in second.say("\x1b[A")  # arrow up
    assert file.read_text() == (CAPITAL + "\n") * 2


def test_no_history(terminal, tmp_path):
    chat = terminal("--no-history", *GREEDY)
    chat.say(CAPITAL)
    assert not history(tmp_path).exists()


def test_regen_and_undo(terminal):
    chat = terminal()
    chat.say(CAPITAL)
    again = chat.say("/regen")
    assert PARIS in again and "temperature is 0" in again
    assert "forgotten: " + CAPITAL in chat.say("/undo", PROMPT)
    assert "0 exchanges, 0 messages" in chat.say("/stats", PROMPT)


def test_the_context_overflows_aloud(terminal):
    chat = terminal(*GREEDY, "--max-model-len", "64")
    said = ""
    for _ in range(5):
        said += chat.say(CAPITAL)
    assert "the oldest exchange is forgotten" in said
    assert said.count("Paris") >= 5


@pytest.mark.parametrize("answering", [False, True])
def test_sigterm_leaves_cleanly(terminal, long_demo, answering):
    chat = terminal(*TALKATIVE, model=long_demo)
    if answering:
        chat.type("Count to five.\r")
        chat.until("1, 2, 3")
    os.kill(chat.pid, signal.SIGTERM)
    assert chat.wait() == 0
    assert chat.screen.count("\x1b[?2004h") == chat.screen.count("\x1b[?2004l")


def test_ctrl_z_suspends_and_the_line_is_still_there(terminal):
    chat = terminal()
    chat.type("What is the capital ")
    chat.until("capital ")
    chat.type("\x1a")
    assert os.WIFSTOPPED(os.waitpid(chat.pid, os.WUNTRACED)[1])
    os.kill(chat.pid, signal.SIGCONT)
    assert PARIS in chat.say("of France?")


def test_a_models_escape_codes_do_not_reach_the_terminal(terminal, tmp_path, demo, skiff):
    """Random weights draw from the whole vocabulary, control characters included."""
    chat = Terminal(skiff.binary, demo, tmp_path, "--load-format", "dummy", "--temperature", "100",
                    "--seed", "3", "--max-tokens", "500", env={"NO_COLOR": "1"})
    try:
        chat.until(PROMPT)
        said = chat.say("hi")
        answer = said[said.index("\n"):said.index("tokens/s")]
        assert re.search("[\u2400-\u2421]", answer)  # it did try
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]", answer)
    finally:
        chat.close()
