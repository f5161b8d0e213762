"""The engine and the process that it lives in: its end, its signals, its children."""
import signal
import subprocess
import time

import pytest

from .conftest import DEMO, start_script

# Far above what the end takes, which is one step of the engine.
END_SECONDS = 10

HEAD = f"""
import os, signal, sys, threading, time
from skiff import LLM, SamplingParams, ForkedError
llm = LLM({str(DEMO)!r})
endless = SamplingParams(max_tokens=1900, ignore_eos=True)
def work():
    llm.generate(["Once"] * 512, endless, use_tqdm=False)
"""


def finish(process, seconds=END_SECONDS):
    """(exit code, stdout, stderr) of a process that has this long from now."""
    start = time.monotonic()
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert time.monotonic() - start < seconds, (out, err)
    return process.returncode, out, err


def wait_for(process, word):
    for line in process.stdout:
        if word in line:
            return
    pytest.fail(process.stderr.read())


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"])
def test_the_process_ends_with_work_in_flight(end):
    process = start_script(HEAD + f"""
threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print("busy")
{end}
""")
    wait_for(process, "busy")
    code, _, err = finish(process)
    assert code == 3, err


def test_ctrl_c_wakes_a_wait_and_the_engine_serves_on():
    process = start_script(HEAD + """
try:
    print("busy")
    work()
except KeyboardInterrupt:
    print("interrupted")
output = llm.generate("Item 3 is", SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)[0]
print(len(output.outputs.token_ids), "tokens after it")
""")
    wait_for(process, "busy")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (0, "interrupted\n4 tokens after it\n"), err


def test_ctrl_c_ends_the_process_if_nobody_catches_it():
    process = start_script(HEAD + 'print("busy")\nwork()\n')
    wait_for(process, "busy")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code in (1, -signal.SIGINT) and "KeyboardInterrupt" in err


def test_a_child_of_fork_is_refused_and_the_parent_serves_on():
    process = start_script(HEAD + """
child = os.fork()
if child == 0:
    try:
        llm.generate("A", use_tqdm=False)
    except ForkedError as error:
        print("refused:", error)
        sys.exit(0)
    sys.exit(9)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status))
print(llm.generate("A", SamplingParams(max_tokens=2), use_tqdm=False)[0].finished)
""")
    code, out, err = finish(process, 20)
    lines = out.splitlines()
    assert code == 0 and lines[0].startswith("refused: this process is a child"), err
    assert lines[1:] == ["child 0", "True"]


def test_a_second_engine_before_and_after_the_first_ends():
    process = start_script(HEAD + f"""
short = SamplingParams(temperature=0, max_tokens=6)
second = LLM({str(DEMO)!r})
threads = [threading.Thread(target=one.generate, args=("A", short, False)) for one in (llm, second)]
for thread in threads: thread.start()
for thread in threads: thread.join()
first = llm.generate("A", short, use_tqdm=False)[0].outputs.token_ids
llm.close()
third = LLM({str(DEMO)!r})
for one in (second, third):
    assert one.generate("A", short, use_tqdm=False)[0].outputs.token_ids == first
print("equal")
""")
    code, out, err = finish(process, 20)
    assert (code, out) == (0, "equal\n"), err
