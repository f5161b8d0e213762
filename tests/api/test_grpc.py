"""The gRPC port: KServe v2 with PaddleNLP's requests, and gRPC's health checks."""
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys

import grpc
import pytest
import tritonclient.grpc as triton
from edge import Edge, ROOT, certificate, demo_model, eventually, long_demo
from paddle_clients import Answers, ChatBot
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

ASK = "What is the capital of France?"
PARIS = "The capital of France is Paris."
ENDLESS = {"max_dec_len": 60000, "min_dec_len": 60000}
INFER = "/inference.GRPCInferenceService/ModelInfer"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"


class GrpcServer(Edge):
    def __init__(self, *flags, model=None):
        super().__init__(model or demo_model(), "--grpc-port", 0, *flags)
        found = [re.search(r"gRPC on \S+ port (\d+)", line) for line in self.log]
        self.grpc = f"127.0.0.1:{next(int(one.group(1)) for one in found if one)}"

    def running(self):
        return json.loads(self.request("GET", "/load").body)["server_load"]


@pytest.fixture(scope="module")
def start():
    started = []

    def run(*flags, **options):
        try:
            started.append(GrpcServer(*flags, **options))
        except AssertionError as error:
            if "has no gRPC" in str(error):
                pytest.skip("this build has no gRPC")
            raise
        return started[-1]

    yield run
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def server(start):
    return start("--max-model-len", 65536, "--max-body-size", 1 << 20, model=long_demo())


def ask(text=ASK, **more):
    return [{"text": text, "req_id": "r", "temperature": 0, "max_dec_len": 30, **more}]


def raw_request(payload, model="model", typed=False):
    """A ModelInferRequest, as tritonclient makes none."""
    text = json.dumps(payload).encode()
    request = service_pb2.ModelInferRequest(model_name=model, id="7")
    tensor = request.inputs.add(name="IN", datatype="BYTES", shape=[1])
    if typed:
        tensor.contents.bytes_contents.append(text)
    else:
        request.raw_input_contents.append(len(text).to_bytes(4, "little") + text)
    return request


def call(address, method, message, channel=None, **options):
    channel = channel or grpc.insecure_channel(address)
    with channel:
        return channel.unary_unary(method)(message, timeout=20, **options)


def refusal(*args, **options):
    with pytest.raises(grpc.RpcError) as error:
        call(*args, **options)
    return error.value.code(), error.value.details()


def test_tutorial_chat(server):
    host, port = server.grpc.split(":")
    bot = ChatBot(host, int(port))
    assert bot.generate(ASK, temperature=0)["results"] == PARIS
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"},
               {"role": "user", "content": ASK}]
    pieces = list(bot.stream_generate(history, temperature=0, max_dec_len=20))
    assert len(pieces) > 1 and pieces[-1]["is_end"] == 1
    assert "`topp` must be in [0, 1]" in bot.generate(ASK, topp=2)["error_msg"]


def test_who_serves_what(server):
    client = triton.InferenceServerClient(server.grpc)
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("model") and client.is_model_ready(long_demo().name, "1")
    assert not client.is_model_ready("other") and not client.is_model_ready("model", "2")
    assert client.get_server_metadata().name == "skiff"
    metadata = client.get_model_metadata("model", as_json=True)
    assert metadata["inputs"] == [{"name": "IN", "datatype": "BYTES", "shape": ["1"]}]
    assert metadata["outputs"] == [{"name": "OUT", "datatype": "BYTES", "shape": ["1"]}]
    config = client.get_model_config("model").config
    assert config.model_transaction_policy.decoupled and config.max_batch_size == 0
    assert config.input[0].data_type == config.output[0].data_type == model_config_pb2.TYPE_STRING
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        client.get_model_metadata("other")
    with pytest.raises(InferenceServerException, match="UNIMPLEMENTED"):
        client.get_inference_statistics()
    client.close()


def test_answers_of_one_stream_interleave(server):
    answers, seen, whole = Answers(server.grpc), [], {}
    names = [f"r{i}" for i in range(4)]
    for name in names:
        answers.ask(ask(req_id=name, max_dec_len=40, min_dec_len=40), request_id=name)
    indices = {name: [] for name in names}
    while len(whole) < len(names):
        name, out, error = answers.next()
        assert error is None and len(out) == 1 and out[0]["req_id"] == name
        assert "error_msg" not in out[0] and "result" not in out[0]
        seen.append(name)
        indices[name].append(out[0]["send_idx"])
        if out[0]["is_end"]:
            whole[name] = out[0]["tokens_all"]
    answers.close()
    assert all(indices[name] == list(range(40)) for name in names)
    assert len(set(whole.values())) == 1
    # The second request began before the first had ended.
    assert seen.index(names[1]) < len(seen) - 1 - seen[::-1].index(names[0])


def test_final_marks_and_stop_without_cancel(server):
    answers = Answers(server.grpc)
    answers.ask(ask(), request_id="a", enable_empty_final_response=True)
    answers.close()  # waits for what is under way
    results = [answers.arrived.get_nowait()[0] for _ in range(answers.arrived.qsize())]
    marks = [r.get_response().parameters["triton_final_response"].bool_param for r in results]
    assert marks == [False] * (len(marks) - 1) + [True]
    assert results[-1].as_numpy("OUT") is None
    assert json.loads(results[-2].as_numpy("OUT")[0])[0]["is_end"] == 1


def test_cancel_and_vanish_free_every_place(server):
    answers = Answers(server.grpc)
    for name in ("x", "y", "z"):
        answers.ask(ask(req_id=name, **ENDLESS), request_id=name)
    assert server.eventually(lambda: server.running() == 3)
    answers.close(cancel=True)
    assert server.eventually(lambda: server.running() == 0)
    script = (f"import sys, time; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); "
              f"from paddle_clients import Answers; a = Answers({server.grpc!r}); "
              f"a.ask({ask(**ENDLESS)!r}); time.sleep(100)")
    with subprocess.Popen([sys.executable, "-c", script]) as client:
        assert server.eventually(lambda: server.running() == 1)
        client.send_signal(signal.SIGKILL)
    assert server.eventually(lambda: server.running() == 0)


def test_errors_leave_the_stream_open(server):
    answers = Answers(server.grpc)
    answers.ask(ask(), request_id="a", model="other")
    error = answers.next()[2]
    assert "`other` does not exist" in error.message()
    for payload, why in ((ask(topp=2), "`topp`"), (ask() * 2, "query num 2"), ([], "query num 0"),
                         ("{", "JSON"), (ask(eos_token_ids=[10 ** 9]), "vocabulary")):
        answers.ask(payload, request_id="b")
        name, out, error = answers.next()
        assert error is None and name == "b"
        assert why in out["error_msg"] and out["error_code"] == 200, out
    answers.ask(ask(), request_id="c")
    assert list(answers.objects())[-1]["tokens_all"] == PARIS
    answers.close()


def test_one_call_one_answer(server):
    for typed in (False, True):
        data = call(server.grpc, INFER, raw_request(ask(), typed=typed).SerializeToString())
        response = service_pb2.ModelInferResponse.FromString(data)
        assert response.id == "7" and response.outputs[0].name == "OUT"
        assert bool(response.raw_output_contents) != typed
        text = (response.outputs[0].contents.bytes_contents[0] if typed
                else response.raw_output_contents[0][4:])
        assert json.loads(text)[0]["tokens_all"] == PARIS
    mixed = raw_request(ask(), typed=True)
    mixed.raw_input_contents.append(b"\0\0\0\0")
    for request, code in ((raw_request(ask(topp=2)), grpc.StatusCode.INVALID_ARGUMENT),
                          (raw_request(ask(), model="other"), grpc.StatusCode.NOT_FOUND),
                          (mixed, grpc.StatusCode.INVALID_ARGUMENT)):
        assert refusal(server.grpc, INFER, request.SerializeToString())[0] is code
    assert refusal(server.grpc, INFER, b"\x0b\xff")[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal(server.grpc, "/x.Y/Z", b"")[0] is grpc.StatusCode.UNIMPLEMENTED


def test_large_and_compressed_messages_are_refused(server):
    large = raw_request(ask("x" * (1 << 20))).SerializeToString()
    assert refusal(server.grpc, INFER, large)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    bomb = raw_request(ask("x" * (1 << 19))).SerializeToString()
    code, why = refusal(server.grpc, INFER, bomb, compression=grpc.Compression.Gzip)
    assert code is grpc.StatusCode.UNIMPLEMENTED and "gzip" in why
    assert call(server.grpc, CHECK, b"") == b"\x08\x01"


def test_keys(start):
    server = start("--api-key", "right", "--api-key", "other", "--max-concurrency", 1,
                   "--max-model-len", 65536, model=long_demo())
    message = raw_request(ask()).SerializeToString()
    for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", "right"),)):
        code, why = refusal(server.grpc, INFER, message, metadata=metadata)
        assert code is grpc.StatusCode.UNAUTHENTICATED and "API key" in why
    for metadata in ((("authorization", "Bearer right"),), (("x-api-key", "other"),)):
        assert call(server.grpc, INFER, message, metadata=metadata)
    client = triton.InferenceServerClient(server.grpc)
    assert client.is_server_live() and client.is_server_ready()
    with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
        client.is_model_ready("model")
    client.close()
    # No more requests at a time than the server takes.
    answers = Answers(server.grpc, headers={"authorization": "Bearer right"})
    answers.ask(ask(**ENDLESS), request_id="long")
    assert answers.next()[1][0]["is_end"] == 0
    code, why = refusal(server.grpc, INFER, message, metadata=(("x-api-key", "right"),))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "max concurrency is 1" in why
    answers.close(cancel=True)


def test_who_watches_without_a_key_is_bounded(start):
    server = start("--api-key", "right")
    unknown = b"\x0a\x04none"
    with grpc.insecure_channel(server.grpc) as channel:
        open_calls = [channel.unary_stream(WATCH)(unknown, timeout=60) for _ in range(64)]
        assert all(next(one) == b"\x08\x03" for one in open_calls)
        for service in (unknown, b""):
            with pytest.raises(grpc.RpcError) as refused:
                next(channel.unary_stream(WATCH)(service, timeout=60))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        open_calls[0].cancel()
        assert eventually(lambda: not watch_is_refused(channel))


def watch_is_refused(channel):
    call = channel.unary_stream(WATCH)(b"", timeout=60)
    try:
        next(call)
    except grpc.RpcError:
        return True
    call.cancel()
    return False


def test_tls(start, tmp_path):
    made, key = certificate(tmp_path)
    server = start("--ssl-certfile", made, "--ssl-keyfile", key)
    trust = grpc.ssl_channel_credentials(made.read_bytes())
    assert call(server.grpc, CHECK, b"", grpc.secure_channel(server.grpc, trust)) == b"\x08\x01"
    assert refusal(server.grpc, CHECK, b"")[0] is grpc.StatusCode.UNAVAILABLE


def test_health_and_a_graceful_end(start):
    server = start(model=long_demo())
    assert call(server.grpc, CHECK, b"\x0a\x1einference.GRPCInferenceService") == b"\x08\x01"
    assert refusal(server.grpc, CHECK, b"\x0a\x01x")[0] is grpc.StatusCode.NOT_FOUND
    answers = Answers(server.grpc)
    answers.ask(ask(min_dec_len=3000, max_dec_len=3000), request_id="a")
    assert answers.next()[2] is None
    with grpc.insecure_channel(server.grpc) as channel:
        health = channel.unary_stream(WATCH)(b"", timeout=120)
        assert next(health) == b"\x08\x01"
        server.process.send_signal(signal.SIGTERM)
        assert next(health) == b"\x08\x02"
        answers.ask(ask(), request_id="late")
        late = {"late": None}
        last = None
        while last is None or None in late.values():
            name, out, error = answers.next()
            assert error is None
            if name == "late":
                late[name] = out
            elif out[0]["is_end"]:
                last = out[0]
        assert "shutting down" in late["late"]["error_msg"]
        assert last["tokens_all_num"] == 3000
    assert server.process.wait(60) == 0


def frame(kind, flags, stream, payload=b""):
    """One frame of HTTP/2."""
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
            + payload)


def header(name, value):
    """A header field as HPACK writes it without its tables."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def test_http2_floods_leave_others_served(server):
    """CVE-2023-44487 (streams opened and reset), CVE-2024-28182 (a header without an end), pings."""
    head = b"".join(header(*pair) for pair in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", INFER.encode()),
        (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc")))
    more = b"".join(header(b"x-%03d" % i, b"y" * 100) for i in range(140))
    floods = (
        (frame(1, 4, 2 * i + 1, head) + frame(3, 0, 2 * i + 1, b"\0\0\0\x08")
         for i in range(4000)),
        (frame(1, 0, 1, head), *[frame(9, 0, 1, more)] * 400),
        [frame(6, 0, 0, b"12345678") * 1000] * 20,
    )
    for flood in floods:
        host, port = server.grpc.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as attacker:
            try:
                attacker.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
                for piece in flood:
                    attacker.sendall(piece)
            except OSError:
                pass  # the server had enough
            assert call(server.grpc, CHECK, b"") == b"\x08\x01"
    assert server.running() == 0


def test_port_in_use_is_an_error(server):
    port = server.grpc.split(":")[1]
    done = subprocess.run([*server.process.args[:3], "--host", "127.0.0.1", "--port", "0",
                           "--grpc-port", port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_the_proto_file_is_true():
    """Every field of inference.proto has the number that clients know."""
    text = (ROOT / "src/serve/grpc/inference.proto").read_text()
    known = {}
    for module in (service_pb2, model_config_pb2):
        for name, message in module.DESCRIPTOR.message_types_by_name.items():
            for one in (message, *message.nested_types):
                known[one.name] = {field.name: field.number for field in one.fields}
    stack, checked = [], 0
    for line in text.splitlines():
        line = line.split("//")[0].strip()
        if found := re.match(r"(message|oneof|enum|service)\s+(\w+)\s*{", line):
            stack.append(found[2] if found[1] == "message" else stack[-1] if stack else None)
        if (found := re.match(r"[\w<>, ]+ (\w+) = (\d+);", line)) and stack[-1] in known:
            assert known[stack[-1]][found[1]] == int(found[2]), (stack[-1], found[1])
            checked += 1
        if line.endswith("}"):
            stack.pop()
    assert checked > 60


def test_calls_have_lines_in_the_request_log(start, tmp_path):
    log = tmp_path / "requests.jsonl"
    server = start("--max-model-len", 65536, "--request-log", log, model=long_demo())
    assert call(server.grpc, INFER, raw_request(ask(req_id="whole")).SerializeToString())
    answers = Answers(server.grpc)
    answers.ask(ask(**ENDLESS, req_id="left"))
    assert answers.next()[1]
    answers.client.stop_stream(cancel_requests=True)

    def lines():
        return {line["id"]: line for line in map(json.loads, log.read_text().splitlines())}
    assert server.eventually(lambda: {"whole", "left"} <= lines().keys())
    whole, left = lines()["whole"], lines()["left"]
    assert whole["route"] == INFER and whole["finish"] in (["stop"], ["length"])
    assert whole["completion_tokens"] > 0 and 0 <= whole["ttft_ms"] <= whole["total_ms"]
    assert whole["aborted_by"] is None and whole["status"] is whole["method"] is None
    assert left["route"].endswith("/ModelStreamInfer")
    assert left["aborted_by"] == "client" and left["finish"] == ["abort"]
    assert ASK not in log.read_text()
