"""A real server with the official client, for tests of the API."""
import json
import signal
import time
import urllib.request

import openai

from edge import Edge, metric_of


class Server(Edge):
    """A `skiff serve` process on a free port, and the official client of it."""

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0,
                             timeout=60, **options)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return response.read().decode()

    def metric(self, name):
        return metric_of(self.get("/metrics"), name)

    def load(self):
        """Sequences that run or wait."""
        return json.loads(self.get("/load"))["server_load"]

    def seconds_until(self, holds, seconds=10):
        """How long it took until `holds()`; None if it never did. Asks every millisecond."""
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            if holds():
                return time.monotonic() - start
            time.sleep(0.001)
        return None

    def terminate(self, seconds=60):
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)
