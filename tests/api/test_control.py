"""Control endpoints: who may call them, and what clients see of a pause and of an abort."""
import json
import threading
import urllib.error
import urllib.request

import openai
import pytest
from edge import Edge, long_demo

ADMIN = {"Authorization": "Bearer operators-key"}
CLIENT = {"Authorization": "Bearer clients-key"}


def call(server, method, path, body=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, method=method, headers={
        "Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


@pytest.fixture(scope="module")
def controlled():
    running = Edge(long_demo(), "--admin-key", "operators-key", "--api-key", "clients-key")
    yield running
    running.close()


def control(server, method, path, body=None):
    status, text, _ = call(server, method, path, body, ADMIN)
    return status, json.loads(text) if text else None


def controlled_client(server, **options):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="clients-key", max_retries=0, timeout=60,
                         **options)


class Stream(threading.Thread):
    """A long streamed answer of the client's; `error` is how it ended."""

    def __init__(self, server, name, n=1):
        super().__init__(daemon=True)
        self.client = controlled_client(server, default_headers={"X-Request-Id": name})
        self.begun, self.error, self.n, self.id = threading.Event(), None, n, None
        self.start()
        assert self.begun.wait(30)

    def run(self):
        try:
            for chunk in self.client.completions.create(
                    model="default", prompt="Count:", max_tokens=60000, n=self.n, stream=True,
                    extra_body={"ignore_eos": True}):
                self.id = chunk.id
                self.begun.set()
        except openai.APIError as error:
            self.error = error
        self.begun.set()


def test_strangers_and_clients_do_not_control(controlled):
    for headers in ({}, {"Authorization": "Bearer clients-key"}, {"x-api-key": "wrong"}):
        for method, path in (("POST", "/v1/pause"), ("GET", "/v1/is_paused"),
                             ("POST", "/v1/abort_requests"), ("GET", "/update_model_weight")):
            assert call(controlled, method, path, {} if method == "POST" else None,
                        headers)[0] == 401, (method, path)
    assert control(controlled, "GET", "/v1/is_paused") == (200, {"is_paused": False})
    assert call(controlled, "GET", "/v1/models", headers=ADMIN)[0] == 401, "it opens nothing else"


def test_without_an_admin_key_there_is_nothing(server):
    for method, path in (("POST", "/v1/pause"), ("GET", "/v1/is_paused"),
                         ("POST", "/abort_requests"), ("POST", "/v1/sleep")):
        assert call(server, method, path, {} if method == "POST" else None)[0] == 404


def test_abort_by_name(controlled):
    first, second = Stream(controlled, "one"), Stream(controlled, "two", n=2)
    status, answer = control(controlled, "POST", "/v1/abort_requests",
                             {"req_ids": ["cmpl-one", "nobody"]})
    assert status == 200 and answer["status"] == "success"
    aborted = answer["result"]["aborted"]
    assert [one["req_id"] for one in aborted] == [first.id] == ["cmpl-one"]
    assert aborted[0]["generated_tokens"] > 0
    first.join(20)
    assert "aborted" in str(first.error) and second.is_alive()
    # vLLM's form: a bare name with the number of a choice, and an empty answer.
    status, text, _ = call(controlled, "POST", "/inference/v1/abort_requests",
                           {"request_ids": ["two_1"]}, ADMIN)
    assert (status, text) == (200, b"")
    second.join(20)
    assert "aborted" in str(second.error)
    assert controlled_load(controlled) == 0
    for body in ({}, {"req_ids": "one"}, {"req_ids": [""]}):
        assert control(controlled, "POST", "/v1/abort_requests", body)[0] == 400


def controlled_load(server):
    def running():
        status, text, _ = call(server, "GET", "/load", headers={"x-api-key": "clients-key"})
        return json.loads(text)["server_load"] if status == 200 else -1
    server.eventually(lambda: running() == 0, 20)
    return running()


def test_a_pause_may_wait(controlled):
    for query, param, status in (("mode=keep", "mode", 501), ("mode=never", "mode", 400),
                                 ("modus=wait", "modus", 400)):
        code, answer = control(controlled, "POST", f"/pause?{query}")
        assert (code, answer["error"]["param"]) == (status, param)
    assert control(controlled, "GET", "/is_paused") == (200, {"is_paused": False})
    short = controlled_client(controlled)
    text = []
    waits = threading.Thread(target=lambda: text.append(short.completions.create(
        model="default", prompt="Count:", max_tokens=1500, extra_body={"ignore_eos": True})))
    waits.start()
    controlled.eventually(lambda: json.loads(
        call(controlled, "GET", "/load", headers=CLIENT)[1])["server_load"] == 1, 20)
    status, answer = control(controlled, "POST", "/pause?mode=wait")
    assert status == 200 and answer["result"] == {"is_paused": True, "aborted": []}
    waits.join(20)
    assert text[0].usage.completion_tokens == 1500
    assert control(controlled, "POST", "/resume")[0] == 200
    stream = Stream(controlled, "endless")
    status, answer = control(controlled, "POST", "/pause?wait_for_inflight_requests=true&timeout=0.1")
    assert [one["req_id"] for one in answer["result"]["aborted"]] == ["cmpl-endless"]
    stream.join(20)
    assert control(controlled, "POST", "/resume")[0] == 200


def test_pause_and_resume(controlled):
    stream = Stream(controlled, "three")
    status, answer = control(controlled, "POST", "/v1/pause")
    assert status == 200
    assert [one["req_id"] for one in answer["result"]["aborted"]] == ["cmpl-three"]
    stream.join(20)
    assert "paused" in str(stream.error)
    assert control(controlled, "GET", "/v1/is_paused") == (200, {"is_paused": True})
    for path, body in (("/v1/completions", {"prompt": "x"}),
                       ("/v1/messages", {"max_tokens": 3, "messages": []})):
        status, text, headers = call(controlled, "POST", path, body,
                                     {"x-api-key": "clients-key"})
        assert status == 503 and int(headers["Retry-After"]) > 0
        assert "paused" in json.loads(text)["error"]["message"]
    assert call(controlled, "GET", "/health")[0] == 503
    assert call(controlled, "GET", "/live")[0] == 200
    assert control(controlled, "POST", "/v1/resume")[0] == 200
    assert call(controlled, "GET", "/health")[0] == 200
    reply = stream.client.completions.create(model="default", prompt="Count:", max_tokens=3)
    assert reply.usage.completion_tokens == 3


def test_forgotten_prefixes(controlled):
    client = openai.OpenAI(base_url=controlled.url + "/v1", api_key="clients-key", max_retries=0)

    def cached():
        usage = client.completions.create(model="default", prompt="one two three " * 100,
                                          max_tokens=1).usage
        return usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0

    cached()
    assert cached() > 0
    assert control(controlled, "POST", "/v1/reset_prefix_cache")[0] == 200
    assert cached() == 0
    assert cached() > 0


def test_what_is_not_there_says_why(controlled):
    for method, path in (("POST", "/v1/update_weights"), ("POST", "/v1/sleep"),
                         ("POST", "/v1/wakeup"), ("POST", "/rearrange_experts")):
        status, answer = control(controlled, method, path, {} if method == "POST" else None)
        assert status == 501 and answer["error"]["message"].startswith(path + ": "), path
    status, answer = control(controlled, "POST", "/controller/scheduler", {"reset": True})
    assert status == 200 and answer["code"] == 0
    assert control(controlled, "POST", "/controller/scheduler",
                   {"reset": True, "load_shards_num": 2})[0] == 501
