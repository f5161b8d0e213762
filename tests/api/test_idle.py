"""A server that nobody asks anything uses no processor."""
import http.client
import os
import time


def busy_seconds(pid):
    """User and system time of a process so far: fields 14 and 15 of /proc/PID/stat (proc(5))."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_less_than_one_percent_when_idle(narrow_server):
    """After work, and with a connection kept open: nothing may be left that polls."""
    with narrow_server.client() as client:
        client.completions.create(model="demo", prompt="The capital of", max_tokens=16)
    assert narrow_server.eventually(lambda: narrow_server.load() == 0)
    kept = http.client.HTTPConnection("127.0.0.1", narrow_server.port)
    kept.request("GET", "/health")
    assert kept.getresponse().read() == b""
    pid = narrow_server.process.pid
    shares, seconds = [], 5
    for _ in range(3):  # what polls does so each time; what the work before left to do ends
        before = busy_seconds(pid)
        time.sleep(seconds)
        shares.append((busy_seconds(pid) - before) / seconds)
        if shares[-1] < 0.01:
            break
    kept.close()
    assert shares[-1] < 0.01, f"{shares} of a core"
