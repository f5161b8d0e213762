"""What bad input gets: one line that names the file, field or flag, and a non-zero exit."""
import json
import pathlib
import shutil
import socket
import struct

import pytest


@pytest.fixture
def copy(demo, tmp_path):
    """A copy of the demo model that a test may spoil."""
    target = tmp_path / "model"
    shutil.copytree(demo, target)
    return target


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


def predict(skiff, folder, *more):
    return skiff.refused("predict", folder, "--prompt-token-ids", "1,2,3", "--max-tokens", 1, *more)


def read_header(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + length]), data[8 + length:]


def write_header(path, header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture
def weights(copy):
    return copy / "model.safetensors"


def test_truncated_file(skiff, copy, weights):
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors" in predict(skiff, copy)


@pytest.mark.parametrize("length", [0, 1, 1 << 40, (1 << 64) - 1])
def test_lying_header_length(skiff, copy, weights, length):
    weights.write_bytes(struct.pack("<Q", length) + weights.read_bytes()[8:])
    assert "model.safetensors" in predict(skiff, copy)


def test_overlapping_ranges(skiff, copy, weights):
    header, body = read_header(weights)
    names = [n for n in header if n != "__metadata__"]
    same = [n for n in names if header[n]["shape"] == header[names[0]]["shape"]]
    other = same[1] if len(same) > 1 else names[1]
    size = header[other]["data_offsets"][1] - header[other]["data_offsets"][0]
    begin = header[names[0]]["data_offsets"][0]
    header[other]["data_offsets"] = [begin, begin + size]
    write_header(weights, header, body)
    assert "overlap" in predict(skiff, copy)


def test_range_outside_the_file(skiff, copy, weights):
    header, body = read_header(weights)
    last = max((n for n in header if n != "__metadata__"),
               key=lambda n: header[n]["data_offsets"][1])
    begin, end = header[last]["data_offsets"]
    header[last]["data_offsets"] = [begin, end + (end - begin)]
    header[last]["shape"][0] *= 2
    write_header(weights, header, body)
    assert last in predict(skiff, copy)


def test_duplicate_key(skiff, copy, weights):
    header, body = read_header(weights)
    name, value = next((n, v) for n, v in header.items() if n != "__metadata__")
    text = json.dumps(header)
    text = text[:-1] + f", {json.dumps(name)}: {json.dumps(value)}}}"
    write_header(weights, text.encode(), body)
    assert "duplicate" in predict(skiff, copy)


def test_shape_that_does_not_match_its_bytes(skiff, copy, weights):
    header, body = read_header(weights)
    name = next(n for n in header if n != "__metadata__")
    header[name]["shape"][0] += 1
    write_header(weights, header, body)
    assert name in predict(skiff, copy)


def test_missing_and_unknown_tensors(skiff, copy, weights):
    header, body = read_header(weights)
    name = next(n for n in header if "input_layernorm" in n)
    header["model.surprise.weight"] = header.pop(name)
    write_header(weights, header, body)
    message = predict(skiff, copy)
    assert name in message or "model.surprise.weight" in message


def test_missing_shard(skiff, copy, weights):
    header, _ = read_header(weights)
    names = [n for n in header if n != "__metadata__"]
    weights.rename(copy / "model-00001-of-00002.safetensors")
    index = {n: "model-00001-of-00002.safetensors" for n in names}
    index[names[-1]] = "model-00002-of-00002.safetensors"
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert "model-00002-of-00002.safetensors" in predict(skiff, copy)


def test_shard_outside_the_folder(skiff, copy, weights):
    header, _ = read_header(weights)
    index = {n: "../../../etc/passwd" for n in header if n != "__metadata__"}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert "index.json" in predict(skiff, copy)


def test_no_weights(skiff, copy, weights):
    weights.unlink()
    assert "safetensors" in predict(skiff, copy)


def test_unknown_architecture(skiff, copy):
    edit_config(copy, architectures=["LlamaForCausalLN"])
    message = predict(skiff, copy)
    assert "LlamaForCausalLN" in message and "LlamaForCausalLM" in message


@pytest.mark.parametrize("key,value", [
    ("hidden_size", 0), ("hidden_size", -4), ("hidden_size", 1 << 40), ("hidden_size", "wide"),
    ("num_hidden_layers", 0), ("num_hidden_layers", 10**9), ("num_attention_heads", 0),
    ("num_key_value_heads", 7), ("head_dim", 3), ("vocab_size", -1), ("moe_k", 1000),
    ("rms_norm_eps", "small"), ("hidden_act", "sine"), ("hidden_size", ...),
])
def test_bad_config(skiff, copy, key, value):
    edit_config(copy, **{key: value})
    predict(skiff, copy)


def test_config_is_not_json(skiff, copy):
    (copy / "config.json").write_text("{]")
    assert "config.json" in predict(skiff, copy)
    (copy / "config.json").unlink()
    assert "config.json" in predict(skiff, copy)


def test_tokenizer_without_merges(skiff, copy):
    path = copy / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    del tokenizer["model"]["merges"]
    path.write_text(json.dumps(tokenizer))
    message = skiff.refused("predict", copy, "--prompt", "hello")
    assert "tokenizer.json" in message and "merges" in message


def test_token_ids_need_no_tokenizer(skiff, copy):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).unlink()
    out = json.loads(skiff.ok("predict", copy, "--prompt-token-ids", "1,2,3", "--max-tokens", 2,
                              "--ignore-eos"))
    assert len(out["token_ids"]) == 2


def test_token_id_outside_the_vocabulary(skiff, demo):
    assert "99999999" in skiff.refused("predict", demo, "--prompt-token-ids", "1,99999999")


def test_unknown_flag_gets_the_nearest_match(skiff, demo):
    assert "--max-tokens" in skiff.refused("predict", demo, "--max-tokenz", 3)
    assert "--max-model-len" in skiff.refused("serve", demo, "--max_model_lem", 30)


@pytest.mark.parametrize("flag,value", [
    ("--max-tokens", "many"), ("--max-tokens", "-1"), ("--temperature", "-1"),
    ("--top-p", "2"), ("--dtype", "float8"), ("--device", "abacus"), ("--threads", "-2"),
])
def test_bad_flag_value(skiff, demo, flag, value):
    message = skiff.refused("predict", demo, "--prompt", "x", flag, value)
    assert flag in message and value in message


def test_known_flag_that_cannot_apply_warns_once(skiff, demo):
    done = skiff("predict", demo, "--prompt-token-ids", "1,2", "--max-tokens", 1,
                 "--tensor_parallel_size", 1, "--enable-eplb")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("enable-eplb") == 1


def test_port_in_use(skiff, demo):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = skiff.refused("serve", demo, "--host", "127.0.0.1", "--port", port)
    assert str(port) in message and "--port" in message


def test_too_little_memory_is_refused_before_loading(skiff, tmp_path, demo):
    (tmp_path / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 16384, "intermediate_size": 53248,
        "num_attention_heads": 128, "num_key_value_heads": 8, "num_hidden_layers": 126,
        "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "hidden_act": "silu"}))
    done = skiff("predict", tmp_path, "--load-format", "dummy", "--prompt-token-ids", "1,2",
                 timeout=10)
    assert done.returncode == 1
    assert "GiB" in done.stderr and "skiff: " in done.stderr


def test_prompt_longer_than_the_context(skiff, demo):
    ids = ",".join(["5"] * 600)
    message = skiff.refused("predict", demo, "--prompt-token-ids", ids, "--max-model-len", 256)
    assert "256" in message and "600" in message


def test_data_file_errors_name_the_line(skiff, demo, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"src": "hello", "tgt": ""}\n{"tgt": 3}\n')
    message = skiff.refused("predict", demo, "--data-file", data)
    assert "data.jsonl" in message and "2" in message
    data.write_text('{"src": ["hello", "again"], "tgt": [3]}\n')
    message = skiff.refused("predict", demo, "--data-file", data)
    assert "data.jsonl: line 1" in message and "tgt" in message
    assert "nowhere.jsonl" in skiff.refused("predict", demo, "--data-file", "nowhere.jsonl")


def test_no_such_model(skiff):
    assert "/no/such/model" in skiff.refused("serve", "/no/such/model")


def test_help_teaches(skiff):
    assert "serve" in skiff.ok("--help")
    for command in ("serve", "predict", "chat", "bench", "tokenize", "inspect"):
        text = skiff.ok(command, "--help")
        assert "skiff " + command in text and len(text.splitlines()) > 8


def test_inspect_reads_config_only(skiff, copy, weights):
    weights.unlink()
    text = skiff.ok("inspect", copy)
    assert "Ernie4_5_MoeForCausalLM" in text and "block" in text.lower()


def test_no_core_dump_paths(skiff, tmp_path):
    """Files that are folders, empty, or not text are refused as well."""
    model = tmp_path / "m"
    model.mkdir()
    (model / "config.json").mkdir()
    predict(skiff, model)
    shutil.rmtree(model / "config.json")
    (model / "config.json").write_bytes(bytes(range(256)))
    predict(skiff, model)
    assert pathlib.Path(model / "config.json").exists()
