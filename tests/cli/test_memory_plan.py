"""The memory plan against the memory that a run takes: everything that steps use is in it."""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import time

import pytest

WIDE = {"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "vocab_size": 4096,
        "intermediate_size": 12288, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "max_position_embeddings": 4096, "torch_dtype": "float32"}
PROCESS = 48 << 20  # the program, its libraries, tokenizer, threads, and what strings and lists take


@pytest.fixture
def wide(tmp_path, demo):
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(demo / file, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    return tmp_path


def prompts(count, length):
    for i in range(count):
        yield "--prompt-token-ids"
        yield ",".join(str((i * 31 + 7 * k) % 4000) for k in range(length))


def most_resident(pid):
    """VmHWM of a process that lives, in bytes. Its rusage would begin with what the parent held at the fork."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    except OSError:
        found = None
    return int(found.group(1)) << 10 if found else 0


def run(args, limit=None):
    """(exit code, stderr, most resident bytes) of the program."""
    binary = os.environ.get("SKIFF_BIN", pathlib.Path(__file__).resolve().parents[2] / "build/cpu/skiff")
    bound = (lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))) if limit else None
    with tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([binary, *map(str, args)], stdout=subprocess.DEVNULL, stderr=err,
                                   preexec_fn=bound)
        peak = 0
        while process.poll() is None:
            peak = max(peak, most_resident(process.pid))
            time.sleep(0.002)
        err.seek(0)
        return process.returncode, err.read(), peak


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_takes_what_the_plan_says(wide, dtype):
    code, err, peak = run(["predict", wide, "--load-format", "dummy", "--threads", 2, "--dtype", dtype,
                           "--device", "cpu", "--max-num-batched-tokens", 2048, "--max-num-seqs", 24,
                           "--max-model-len", 128, *prompts(21, 97), "--max-tokens", 1])
    assert code == 0, err
    planned = float(re.search(r"total +([\d.]+) GiB", err).group(1)) * 2**30
    assert peak < planned + PROCESS, f"{peak / 2**20:.0f} MiB resident, {planned / 2**20:.0f} planned"
    assert peak > planned / 2, "the plan is wasteful"


def test_memory_that_cannot_be_had_is_refused_in_a_line(wide):
    for limit in range(160, 900, 60):
        code, err, _ = run(["predict", wide, "--load-format", "dummy", "--threads", 1, "--device", "cpu",
                            "--max-num-batched-tokens", 2048, "--max-num-seqs", 1, *prompts(1, 2000),
                            "--max-tokens", 1], limit << 20)
        assert code in (0, 1), f"{limit} MiB: exit code {code}: {err[-400:]}"
        assert "terminate called" not in err
        if code == 0:
            return
    assert False, "never enough"
