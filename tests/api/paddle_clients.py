"""The gRPC client of PaddleNLP's deployment tutorial, written anew from its description, and what
it stands on."""
import json
import queue
import uuid

import numpy
import tritonclient.grpc as triton


class Answers:
    """One stream of gRPC, and what came back on it."""

    def __init__(self, url, **options):
        headers = options.pop("headers", None)
        self.client = triton.InferenceServerClient(url, **options)
        self.arrived = queue.Queue()
        self.client.start_stream(lambda result, error: self.arrived.put((result, error)),
                                 headers=headers)

    def ask(self, payload, request_id="", model="model", **options):
        tensor = triton.InferInput("IN", [1], "BYTES")
        text = payload if isinstance(payload, str) else json.dumps(payload)
        tensor.set_data_from_numpy(numpy.array([text], dtype=numpy.object_))
        self.client.async_stream_infer(model, [tensor], request_id=request_id,
                                       outputs=[triton.InferRequestedOutput("OUT")], **options)

    def next(self, seconds=60):
        """(id of the request, decoded OUT or None, error)."""
        result, error = self.arrived.get(timeout=seconds)
        if error:
            return None, None, error
        tensor = result.as_numpy("OUT")
        text = None if tensor is None else json.loads(tensor.flatten()[0])
        return result.get_response().id, text, None

    def objects(self, seconds=60):
        """The objects of one request's answer, up to its end."""
        while True:
            _, out, error = self.next(seconds)
            assert error is None, error
            found = out[0] if isinstance(out, list) else out
            yield found
            if found.get("is_end") == 1 or "error_msg" in found:
                return

    def close(self, cancel=False):
        self.client.stop_stream(cancel_requests=cancel)
        self.client.close()


class ChatBot:
    """As the tutorial's: an object that has error_msg is an error, whatever it says."""

    def __init__(self, hostname, port, timeout=60):
        self.url, self.timeout = f"{hostname}:{port}", timeout

    def stream_generate(self, message, max_dec_len=1024, min_dec_len=1, topp=0.7, temperature=0.95,
                        frequency_score=0.0, penalty_score=1.0, presence_score=0.0, **more):
        key = "text" if isinstance(message, str) else "messages"
        request = {key: message, "req_id": str(uuid.uuid4()), "max_dec_len": max_dec_len,
                   "min_dec_len": min_dec_len, "topp": topp, "temperature": temperature,
                   "frequency_score": frequency_score, "penalty_score": penalty_score,
                   "presence_score": presence_score, "response_timeout": self.timeout, **more}
        answers = Answers(self.url)
        answers.ask([request], request_id=request["req_id"])
        for found in answers.objects(self.timeout):
            if "error_msg" in found:
                yield {"req_id": request["req_id"], "error_msg": found["error_msg"]}
                break
            token = found["result"] if "result" in found else found["token"]
            yield {"req_id": request["req_id"], "token": token, "token_ids": found["token_ids"],
                   "is_end": found["is_end"]}
        answers.close(cancel=True)

    def generate(self, message, **options):
        text, ids = "", []
        for found in self.stream_generate(message, **options):
            if "error_msg" in found:
                return found
            text += found["token"]
            ids += found["token_ids"]
        return {"req_id": found["req_id"], "results": text, "token_ids": ids}
