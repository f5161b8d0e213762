"""The request log and the spans of real requests."""
import http.server
import json
import threading

import pytest
from edge import Edge, long_demo, metric_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP over HTTP. `spans` grows; with `status` other than 200 it refuses them."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans, self.headers, self.resources, self.status = [], [], [], 200
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/traces"
        if self.server.status == 200:
            for part in body["resourceSpans"]:
                self.server.resources.append(part["resource"])
                for scope in part["scopeSpans"]:
                    self.server.spans += scope["spans"]
        self.server.headers.append(self.headers)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder, collector = tmp_path_factory.mktemp("journal"), Collector()
    running = Edge(long_demo(), "--request-log", folder / "requests.jsonl",
                   "--otlp-traces-endpoint", collector.url,
                   env={"OTEL_EXPORTER_OTLP_HEADERS": "x-team=blue%20team, authorization=Bearer%20t",
                        "OTEL_SERVICE_NAME": "chat-server"})
    running.collector, running.file = collector, folder / "requests.jsonl"
    yield running
    running.close()


def post(server, path, body, **headers):
    return server.request("POST", path, {"Content-Type": "application/json", **headers}, body)


def line_of(server, request_id):
    found = []

    def there():
        found[:] = [line for line in map(json.loads, server.file.read_text().splitlines())
                    if line["request_id"] == request_id]
        return found
    assert server.eventually(there), f"no line for {request_id}"
    assert len(found) == 1
    return found[0]


def span_of(server, trace_id):
    found = []

    def there():
        found[:] = [span for span in server.collector.spans if span["traceId"] == trace_id]
        return found
    assert server.eventually(there), f"no span of {trace_id}"
    assert len(found) == 1
    return found[0], {a["key"]: next(iter(a["value"].values())) for a in found[0]["attributes"]}


SECRET = "a sentence that no log may hold"


def test_a_line_for_each_request(watched):
    reply = post(watched, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": SECRET}], "max_tokens": 5, "temperature": 0,
        "guided_choice": ["yes indeed", "no"]}, **{"X-Request-Id": "choice"})
    assert reply.status == 200
    usage = json.loads(reply.body)["usage"]
    line = line_of(watched, "choice")
    assert line["id"] == "chatcmpl-choice" and line["route"] == "/v1/chat/completions"
    assert line["status"] == 200 and line["constraint"] == "choice"
    assert line["masks"] > 0 and line["mask_us"] >= 0
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["completion_tokens"] == usage["completion_tokens"]
    assert 0 <= line["queue_ms"] <= line["ttft_ms"] <= line["total_ms"]
    assert line["aborted_by"] is None and line["tool_calls"] == 0
    assert SECRET not in watched.file.read_text()


def test_refused_requests_have_lines_and_strangers_have_none(watched):
    assert post(watched, "/v1/completions", {"prompt": 3}, **{"X-Request-Id": "bad"}).status == 400
    assert line_of(watched, "bad")["status"] == 400
    assert post(watched, "/nowhere", {}, **{"X-Request-Id": "nowhere"}).status == 404
    assert post(watched, "/v1/completions", {"prompt": "x", "max_tokens": 1},
                **{"X-Request-Id": "after"}).status == 200
    line_of(watched, "after")
    assert "nowhere" not in watched.file.read_text()


def test_a_client_that_leaves(watched):
    body = json.dumps({"prompt": "x", "max_tokens": 60000, "ignore_eos": True, "stream": True}).encode()
    with watched.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: leaves\r\n"
                           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(100)
    line = line_of(watched, "leaves")
    assert line["aborted_by"] == "client" and line["finish"] == ["abort"]


def test_spans_continue_the_callers_trace(watched):
    reply = post(watched, "/v1/chat/completions",
                 {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 3, "temperature": 0,
                  "frequency_penalty": 0.5, "presence_penalty": -0.25, "repetition_penalty": 2, "seed": 42},
                 traceparent=f"00-{TRACE}-{SPAN}-01", **{"X-Request-Id": "traced"})
    assert reply.status == 200
    usage = json.loads(reply.body)["usage"]
    span, values = span_of(watched, TRACE)
    assert span["parentSpanId"] == SPAN and span["name"].startswith("chat ")
    assert int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"])
    assert values["gen_ai.operation.name"] == "chat"
    assert values["gen_ai.response.id"] == "chatcmpl-traced"
    assert values["gen_ai.usage.input_tokens"] == str(usage["prompt_tokens"])
    assert values["gen_ai.usage.output_tokens"] == str(usage["completion_tokens"])
    assert values["gen_ai.request.temperature"] == 0
    assert values["gen_ai.request.frequency_penalty"] == 0.5
    assert values["gen_ai.request.presence_penalty"] == -0.25
    assert values["skiff.request.repetition_penalty"] == 2 and values["gen_ai.request.seed"] == "42"
    assert values["http.response.status_code"] == "200"
    assert line_of(watched, "traced")["trace_id"] == TRACE
    resource = {a["key"]: a["value"]["stringValue"] for a in watched.collector.resources[0]["attributes"]}
    assert resource["service.name"] == "chat-server"
    assert watched.collector.headers[0]["x-team"] == "blue team"
    assert SECRET not in json.dumps(watched.collector.spans)


def test_a_caller_that_records_nothing_gets_no_span(watched):
    other = TRACE[::-1]
    for flags, trace in (("00", other), ("01", TRACE.replace("4", "5"))):
        post(watched, "/v1/completions", {"prompt": "x", "max_tokens": 1},
             traceparent=f"00-{trace}-{SPAN}-{flags}")
    span_of(watched, TRACE.replace("4", "5"))
    assert all(span["traceId"] != other for span in watched.collector.spans)


def test_a_collector_that_refuses_costs_no_request(watched):
    def metric(name):
        return metric_of(watched.request("GET", "/metrics").body.decode(), f"fastdeploy:{name}")
    assert watched.eventually(lambda: metric("trace_spans_sent_total") > 0)
    watched.collector.status = 503
    before = metric("trace_spans_dropped_total")
    assert post(watched, "/v1/completions", {"prompt": "x", "max_tokens": 1}).status == 200
    assert watched.eventually(lambda: metric("trace_spans_dropped_total") > before)
    assert watched.logged("spans were not sent")
    watched.collector.status = 200
    assert metric("requests_by_route_total") > 0
    assert metric("constraint_masks_total") > 0
