"""What the checks on a CUDA device share: its driver, called directly, and a server under test. Plain Python."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

GIB = 1 << 30


def cuda():
    """The driver, or the end of the check where there is no device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        skip("no CUDA driver")
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        skip("no CUDA device")
    return driver


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def devices(driver, least):
    """The number of devices; says so and ends well where there are fewer than `least`."""
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value < least:
        skip(f"{count.value} CUDA devices, not {least}")
    return count.value


class Hog:
    """Another process's memory on device 0, as far as skiff can tell."""

    def __init__(self, driver):
        self.driver, self.held = driver, []
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.must(driver.cuDeviceGet(ctypes.byref(device), 0))
        self.must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self.must(driver.cuCtxSetCurrent(context))

    @staticmethod
    def must(code):
        if code != 0:
            raise RuntimeError(f"CUDA driver error {code}")

    def free(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must(self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value

    def take(self, leave):
        """All but `leave` bytes; to the last that can be had where that is 0."""
        piece = 64 * GIB
        while piece >= 1 << 20:
            room = self.free() - leave
            memory = ctypes.c_void_p()
            if room >= piece and self.driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(piece)) == 0:
                self.held.append(memory)
            else:
                piece //= 2

    def give_back(self):
        while self.held:
            self.must(self.driver.cuMemFree_v2(self.held.pop()))


class Serve:
    """skiff serve, until the end of a `with`."""

    def __init__(self, binary, model, port, *flags, env=None):
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile("w+")
        command = [binary, "serve", model, "--host", "127.0.0.1", "--port", str(port), *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(env or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def ask(self, path, body=None, timeout=20):
        """The status, or 0 where nobody answers."""
        request = urllib.request.Request(self.url + path, data=body,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                reply.read()
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def answer(self, path, body, timeout=60):
        """The JSON of a good reply to this JSON, or None."""
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                return json.load(reply)
        except OSError:
            return None

    def wait_for(self, path, status, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if self.ask(path) == status:
                return True
            time.sleep(0.02)
        return False


failures = []


def expect(good, what, more=""):
    print(("ok      " if good else "FAILED  ") + what)
    if not good:
        failures.append(what)
        if more:
            print(more)


def finish():
    print(f"{len(failures)} failed" if failures else "all good")
    sys.exit(1 if failures else 0)
