"""What a client does with 429, how fast a hang-up frees what it held, and timeouts."""
import threading
import time

import httpx
import openai
import pytest

MODEL = "demo"
SHORT = {"model": MODEL, "prompt": "The capital of", "temperature": 0, "max_tokens": 4}
# Sixteen times the context of 65,536: runs longer than any test here, whatever the machine.
ENDLESS = {"model": MODEL, "prompt": "1, 2, 3,", "temperature": 1, "n": 16,
           "extra_body": {"ignore_eos": True}}
# The engine stops within a step, a few milliseconds here; the bound is for a busy machine.
SOON = 5.0


class Traffic:
    """When each answer came, its status and what Retry-After said."""

    def __init__(self):
        self.answers = []

    def client(self, server, retries):
        http = openai.DefaultHttpxClient(event_hooks={"response": [self._keep]})
        return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=retries,
                             timeout=60, http_client=http)

    def _keep(self, response: httpx.Response):
        self.answers.append((time.monotonic(), response.status_code,
                             response.headers.get("retry-after")))

    def statuses(self):
        return [status for _, status, _ in self.answers]


def held(server, client):
    """A stream that occupies the only place."""
    stream = client.completions.create(**ENDLESS, stream=True)
    next(iter(stream))
    assert server.load() >= 1
    return stream


@pytest.fixture
def holder(narrow_server):
    assert narrow_server.eventually(lambda: narrow_server.load() == 0)
    with narrow_server.client() as client:
        yield client


def test_full_is_a_rate_limit_error(narrow_server, holder):
    stream = held(narrow_server, holder)
    for options in ({}, {"stream": True}):
        with pytest.raises(openai.RateLimitError) as caught:
            narrow_server.client().completions.create(**SHORT, **options)
        assert caught.value.status_code == 429
        assert int(caught.value.response.headers["retry-after"]) >= 1
    stream.close()


def test_a_client_waits_as_long_as_it_is_told_and_then_succeeds(narrow_server, holder):
    stream = held(narrow_server, holder)
    traffic = Traffic()
    replies = []
    with traffic.client(narrow_server, retries=5) as client:
        waiting = threading.Thread(target=lambda: replies.append(client.completions.create(**SHORT)))
        waiting.start()
        assert narrow_server.eventually(lambda: traffic.statuses() == [429])
        stream.close()
        waiting.join(timeout=30)
    assert traffic.statuses() == [429, 200]
    (refused, _, told), (answered, _, _) = traffic.answers
    # Left to itself openai-python would try again after half a second.
    assert int(told) <= answered - refused < int(told) + 5
    assert replies[0].choices[0].text


def test_a_client_gives_up_after_its_retries(narrow_server, holder):
    stream = held(narrow_server, holder)
    traffic = Traffic()
    with traffic.client(narrow_server, retries=1) as client:
        with pytest.raises(openai.RateLimitError):
            client.completions.create(**SHORT)
    assert traffic.statuses() == [429, 429]
    gap = traffic.answers[1][0] - traffic.answers[0][0]
    assert gap >= int(traffic.answers[0][2])
    stream.close()


@pytest.mark.parametrize("hang_up", ["close", "client"])
def test_hanging_up_frees_the_place_quickly(narrow_server, holder, hang_up):
    stream = held(narrow_server, holder)
    stream.close() if hang_up == "close" else holder.close()
    seconds = narrow_server.seconds_until(lambda: narrow_server.load() == 0)
    assert seconds is not None and seconds < SOON
    with narrow_server.client() as client:
        assert client.completions.create(**SHORT).choices[0].text  # no 429


def test_leaving_a_loop_frees_the_place(narrow_server, holder):
    with holder.completions.create(**ENDLESS, stream=True) as stream:
        for _, chunk in zip(range(3), stream):
            assert chunk.choices
    assert narrow_server.seconds_until(lambda: narrow_server.load() == 0) < SOON


def test_a_timeout_frees_the_place(narrow_server, holder):
    impatient = holder.with_options(timeout=0.3)
    start = time.monotonic()
    with pytest.raises(openai.APITimeoutError):
        impatient.completions.create(**ENDLESS)
    assert time.monotonic() - start < 10
    assert narrow_server.seconds_until(lambda: narrow_server.load() == 0) < SOON


def test_a_timeout_is_tried_again(long_server):
    """The second try finds room even if the first is not gone yet."""
    before = long_server.metric("fastdeploy:requests_number")
    with long_server.client() as client, pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3, max_retries=1).completions.create(**ENDLESS)
    assert long_server.eventually(lambda: long_server.load() == 0)
    assert long_server.metric("fastdeploy:requests_number") - before == 2


def test_a_read_timeout_does_not_cut_a_stream_that_flows(narrow_server, holder):
    patient = holder.with_options(timeout=httpx.Timeout(60, read=2.0))
    start = time.monotonic()
    stream = patient.completions.create(**ENDLESS, stream=True)
    for _ in stream:
        if time.monotonic() - start > 3:
            break
    stream.close()
    assert narrow_server.eventually(lambda: narrow_server.load() == 0)
