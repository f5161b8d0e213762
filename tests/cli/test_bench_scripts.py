"""Scripts under bench/ that measure other engines beside this one, as far as they run without a GPU and without them."""
import json
import os
import socket
import subprocess
import sys

import pytest
from edge import ROOT

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 256, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "torch_dtype": "bfloat16"}
QWEN = {**SMALL, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": False}
ERNIE = {**SMALL, "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "tie_word_embeddings": True,
         "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 2, "moe_layer_start_index": 1}


def run(*words, **environment):
    done = subprocess.run([str(w) for w in words], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("config", [QWEN, ERNIE], ids=["qwen2", "ernie"])
def test_a_made_checkpoint_loads_and_generates(skiff, tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    run(sys.executable, "bench/make_weights.py", tmp_path / "config.json", tmp_path / "made", "--shards", "2")
    reply = json.loads(skiff.ok("predict", str(tmp_path / "made"), "--prompt-token-ids", "5,6,7", "--max-tokens", "4", "--ignore-eos"))
    assert len(reply["token_ids"]) == 4
    assert json.loads((tmp_path / "made/config.json").read_text())["head_dim"] == 16


def test_the_served_comparison_measures_this_engine_alone(skiff, demo, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = run("bench/peers/vllm/serve.sh", tmp_path, demo, "20", PEER="none", SKIFF=skiff.binary, PORT=str(port), PROMPT_VOCAB="1000",
              INPUT="16", OUTPUT="4", MAX_LEN="128", MAX_SEQS="16", SECONDS_OF_LOAD="1")
    assert "| 20 | requests answered | 20 of 20 | – |" in out
    report = json.loads((tmp_path / "demo.skiff.20.json").read_text())
    assert report["failed"] == 0 and report["prompt_tokens"] == 20 * 16 and report["completion_tokens"] == 20 * 4


def test_ratios_above_one_say_that_this_engine_is_ahead(tmp_path):
    row = {"p50": 10, "p90": 20, "p99": 30}
    for engine, factor in ("skiff", 1), ("vllm", 2):
        times = {key: {p: ms * factor for p, ms in row.items()} for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")}
        report = {"sent": 9, "succeeded": 9, "failed": 0, "refused": 0, "reopened": factor, "first_error": "",
                  "requests_per_second": 8 / factor, "output_tokens_per_second": 80 / factor, **times}
        (tmp_path / f"m.{engine}.12.json").write_text(json.dumps(report))
        (tmp_path / f"m.{engine}.tokens.json").write_text(json.dumps([[1, 2], [3, factor]]))
    out = run(sys.executable, "bench/peers/vllm/table.py", "served", tmp_path, "m", "12")
    assert "| 12 | requests/s | 8.0 | 4.0 | 2.00 |" in out
    assert "10.0 / 20.0 / 30.0 | 20.0 / 40.0 / 60.0 | 2.00 / 2.00 / 2.00 |" in out
    assert "9 of 9, 2 sent again" in out
    assert "the first is the same for 2, of all tokens 3 of 4" in out
