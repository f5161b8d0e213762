#!/usr/bin/env python3
"""A device that is lost in service ends the process: liveness fails first, the log says why, exit code 5.

usage: check_loss.py SKIFF MODEL [MORE FLAGS]

Device 0 is lost, or the one that SKIFF_TEST_FAULT_DEVICE numbers: with MORE FLAGS -dp 2 -tp 2 -ep that of any rank of any replica.
Needs a C compiler (or fault.so beside this file, see fault.c). Says so and ends well where there is no device.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from device import Serve, cuda, expect, finish, skip

HERE = os.path.dirname(os.path.abspath(__file__))


def fault_library(folder):
    if os.path.exists(os.path.join(HERE, "fault.so")):
        return os.path.join(HERE, "fault.so")
    if shutil.which("cc") is None:
        skip("no C compiler for fault.c")
    out = os.path.join(folder, "fault.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", os.path.join(HERE, "fault.c"), "-o", out, "-ldl", "-lpthread"],
                   check=True)
    return out


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    cuda()
    with tempfile.TemporaryDirectory() as folder:
        trigger = os.path.join(folder, "now")
        env = {"CUDA_INJECTION64_PATH": fault_library(folder), "SKIFF_TEST_FAULT": trigger}
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 8}).encode()
        with Serve(sys.argv[1], sys.argv[2], 8172, *sys.argv[3:], env=env) as server:
            expect(server.wait_for("/health", 200), "a server starts", server.text()[-2000:])
            expect(server.ask("/v1/completions", body) == 200, "it answers")
            open(trigger, "w").close()
            time.sleep(0.3)  # an idle engine asks the device for nothing, and learns nothing
            expect(server.process.poll() is None, "the process is there still")
            begin = time.monotonic()
            client = subprocess.Popen(
                [sys.executable, "-c", "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], data="
                 "sys.argv[2].encode(), headers={'Content-Type': 'application/json'}), timeout=20)",
                 server.url + "/v1/completions", body.decode()], stderr=subprocess.DEVNULL)
            expect(server.wait_for("/live", 503, 10), "liveness fails before the process ends")
            try:
                code = server.process.wait(20)
            except subprocess.TimeoutExpired:
                code = None
            expect(code == 5, f"exit code {code}, to be 5", server.text()[-2000:])
            expect(time.monotonic() - begin < 10, f"within {time.monotonic() - begin:.1f} s")
            expect(client.wait(30) != 0, "nobody is told a lie")
            words = ["the engine cannot go on", "code 5", "CUDA error while"]
            missing = [word for word in words if word not in server.text()]
            expect(not missing, "the log says why", f"missing {missing}: {server.text()[-2000:]}")
            print("          " + next((line for line in server.text().split("\n") if "cannot go on" in line), ""))
    finish()


if __name__ == "__main__":
    main()
