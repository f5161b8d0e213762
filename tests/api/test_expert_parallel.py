"""Ranks that have a mixture's experts whole: what test_tensor_parallel.py does not ask of both ways to
cut experts. What cannot be shared out is said by name."""
import subprocess

from edge import ROOT, SKIFF, changed_demo
from test_tensor_parallel import QUESTIONS, ask, check_blocks_of_the_file

EXPERTS = ["--device", "cpu", "--tensor-parallel-size", "2", "--enable-expert-parallel",
           "--enable-logprob"]


def test_quantized_experts_are_served(start_server):
    server = start_server(*EXPERTS, "--quantization", "wint8")
    assert "Paris" in ask(server.client(), QUESTIONS[0], temperature=0)[0]


def test_blocks_of_the_file_are_found_only_by_groups_cut_alike(start_server, tmp_path):
    by_width = ["--tensor-parallel-size", "2"]
    whole = [*by_width, "--enable-expert-parallel"]
    said = check_blocks_of_the_file(start_server, tmp_path,
                                    [(whole, False), (whole, True), (by_width, False)])
    assert said[0] == said[1]


def inspect(model, *flags):
    return subprocess.run([SKIFF, "inspect", str(model), "--device", "cpu", *flags],
                          capture_output=True, text=True, timeout=120)


def test_a_width_that_does_not_divide_fits_with_whole_experts():
    model = changed_demo(moe_intermediate_size=101, moe_num_shared_experts=0)
    by_width = inspect(model, "-tp", "2")
    assert by_width.returncode != 0
    assert "101 columns of the experts' width" in by_width.stderr
    assert "--enable-expert-parallel" in by_width.stderr
    whole = inspect(model, "-tp", "2", "--enable-expert-parallel")
    assert whole.returncode == 0, whole.stderr
    assert "Memory plan of each of 2 ranks" in whole.stdout


def test_a_model_without_experts_takes_the_flag_with_a_warning():
    run = inspect(ROOT / "tests/golden/llama", "-tp", "2", "-ep")
    assert run.returncode == 0, run.stderr
    assert "--enable-expert-parallel changes nothing" in run.stderr


def test_one_rank_has_all_experts_and_says_so(start_server):
    server = start_server("--device", "cpu", "--enable-expert-parallel")
    assert any("--enable-expert-parallel changes nothing with one rank" in line
               for line in server.log)
