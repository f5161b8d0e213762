"""What one request may ask of its replies beyond text: grouping, padding, ids, the best of many."""
import json
import urllib.request

MODEL = "demo"
STORY = {"model": MODEL, "prompt": "The capital of France", "max_tokens": 24, "temperature": 0,
         "ignore_eos": True}


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()


def events(server, path, body):
    lines = post(server, path, {**body, "stream": True}).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [line for line in lines[:-2]], [json.loads(line[6:]) for line in lines[:-2]]


def test_events_gather_as_many_tokens_as_asked(server):
    _, single = events(server, "/v1/completions", STORY)
    _, grouped = events(server, "/v1/completions",
                        {**STORY, "max_streaming_response_tokens": 10, "return_token_ids": True})
    counts = [len(e["choices"][0]["completion_token_ids"]) for e in grouped]
    assert counts[:2] == [10, 10] and sum(counts) == 24
    assert ("".join(e["choices"][0]["text"] for e in grouped)
            == "".join(e["choices"][0]["text"] for e in single))
    assert len(single) > len(grouped)


def test_a_chat_stream_gathers_too(server):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0}
    whole = json.loads(post(server, "/v1/chat/completions", body))
    _, grouped = events(server, "/v1/chat/completions",
                        {**body, "max_streaming_response_tokens": 100})
    assert grouped[0]["choices"][0]["delta"]["role"] == "assistant"
    assert grouped[1]["choices"][0]["delta"]["content"] == whole["choices"][0]["message"]["content"]
    assert len(grouped) == 3


def test_obfuscated_events_do_not_tell_their_length(server):
    body = {**STORY, "stream_options": {"include_obfuscation": True, "include_usage": True}}
    lines, parsed = events(server, "/v1/completions", body)
    assert all("obfuscation" in event for event in parsed)
    assert len({len(line) for line in lines[1:-2]}) <= 2
    _, plain = events(server, "/v1/completions", STORY)
    assert all("obfuscation" not in event for event in plain)


def test_best_of_returns_the_likeliest(server):
    body = {**STORY, "temperature": 1, "seed": 11, "max_tokens": 12, "logprobs": 0}
    all_of_them = json.loads(post(server, "/v1/completions", {**body, "n": 6}))
    mean = {c["text"]: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
            for c in all_of_them["choices"]}
    best = json.loads(post(server, "/v1/completions", {**body, "n": 2, "best_of": 6}))
    assert [c["index"] for c in best["choices"]] == [0, 1]
    ranked = sorted((c["text"] for c in all_of_them["choices"]), key=lambda t: -mean[t])
    assert [c["text"] for c in best["choices"]] == ranked[:2]
    assert best["usage"]["completion_tokens"] == all_of_them["usage"]["completion_tokens"]


def test_best_of_shows_log_probabilities_only_if_asked(server):
    body = {**STORY, "temperature": 1, "seed": 3, "best_of": 3}
    reply = json.loads(post(server, "/v1/completions", body))
    assert len(reply["choices"]) == 1 and reply["choices"][0]["logprobs"] is None


def test_token_ids_come_with_their_text(server):
    reply = json.loads(post(server, "/v1/chat/completions", {
        "model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0, "return_token_ids": True}))
    message = reply["choices"][0]["message"]
    assert len(message["prompt_token_ids"]) == reply["usage"]["prompt_tokens"]
    assert len(message["completion_token_ids"]) == reply["usage"]["completion_tokens"]
    assert "What is the capital of France?" in message["prompt_tokens"]
    assert message["content"] in message["completion_tokens"]


def test_config_info_tells_settings_and_no_keys(server):
    info = json.loads(server.get("/config-info"))
    assert info["max_model_len"] > 0 and info["num_blocks"] > 0 and info["dtype"]
    assert info["parameters"]["enable-logprob"] == "true"
    assert not any("api-key" == name for name in info["parameters"])


def test_stop_strings_wait_for_min_tokens(server):
    plain = json.loads(post(server, "/v1/completions", STORY))["choices"][0]["text"]
    stop = plain[:2]
    cut = json.loads(post(server, "/v1/completions", {**STORY, "stop": [stop]}))
    assert cut["choices"][0]["text"] == ""
    late = json.loads(post(server, "/v1/completions", {**STORY, "stop": [stop], "min_tokens": 6}))
    assert late["choices"][0]["text"].startswith(stop)
    assert late["usage"]["completion_tokens"] >= 6
