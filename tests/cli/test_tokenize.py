"""skiff tokenize: JSON strings in, arrays of ids out, and back."""
import base64
import json
import pathlib
import subprocess

import pytest

MADE = pathlib.Path(__file__).resolve().parents[1] / "text/made"


def lines(values):
    return "".join(json.dumps(v) + "\n" for v in values)


def answers(text):
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.fixture
def hard():
    return json.loads((MADE.parent / "hard_strings.json").read_text())


def test_round_trip(skiff, demo, hard):
    ids = skiff.ok("tokenize", demo, "--no-special", stdin=lines(hard))
    assert len(answers(ids)) == len(hard)
    decoded = skiff.ok("tokenize", demo, "--decode", "--special", stdin=ids)
    plain = [i for i, text in enumerate(hard) if "<" not in text]  # special tokens may take spaces
    assert len(plain) > 500
    assert [answers(decoded)[i] for i in plain] == [hard[i] for i in plain]


def test_special_tokens_around_a_text(skiff):
    model = MADE / "unigram-bytes.json"
    with_start, without = (answers(skiff.ok("tokenize", model, *flag, stdin='"up to"\n'))[0] for flag in ([], ["--no-special"]))
    assert with_start == [1, *without]
    back = skiff.ok("tokenize", model, "--decode", "--no-special", stdin=json.dumps(with_start))
    assert answers(back) == ["up to"]
    assert answers(skiff.ok("tokenize", model, "--decode", stdin=json.dumps(with_start)))[0].startswith("<s>")


def test_a_folder_with_only_a_tokenizer(skiff, tmp_path):
    ranks = b"".join(base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256))
    (tmp_path / "qwen.tiktoken").write_bytes(ranks)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "QWenTokenizer"}')
    for model in (tmp_path, tmp_path / "qwen.tiktoken"):
        assert answers(skiff.ok("tokenize", model, stdin='"a\\u00e9<|im_start|>"\n')) == [[97, 195, 169, 257]]


def test_a_rank_file_of_nobody_knows_what(skiff, tmp_path):
    ranks = b"".join(base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256))
    (tmp_path / "tokenizer.model").write_bytes(ranks)
    message = skiff.refused("tokenize", tmp_path, stdin='"a"\n')
    assert "256 ranks" in message and "tokenizer.json" in message


def test_no_newline_at_the_end_and_no_lines(skiff, demo):
    once = skiff.ok("tokenize", demo, stdin='"a"\n"b"\n')
    assert skiff.ok("tokenize", demo, stdin='"a"\n"b"') == once
    assert skiff.ok("tokenize", demo, stdin="") == ""


@pytest.mark.parametrize("flags, bad, says", [
    ([], "7", "expected a JSON string"), ([], "{", "not valid JSON"), ([], "", "not valid JSON"),
    (["--decode"], '"a"', "expected an array"), (["--decode"], "[-1]", "-1 is not a token id"),
    (["--decode"], "[99999999]", "99999999 is not a token id"), (["--decode"], "[1.5]", "1.5 is not a token id"),
])
def test_errors_name_the_line(skiff, demo, flags, bad, says):
    good = "[1]" if flags else '"a"'
    done = skiff("tokenize", demo, *flags, stdin=f"{good}\n{good}\n{bad}\n{good}\n")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 2  # the answers before it are there
    assert "line 3: " in done.stderr and says in done.stderr


def test_a_missing_model(skiff, tmp_path):
    assert "no such" in skiff.refused("tokenize", tmp_path / "nowhere")
    assert "no tokenizer.json, tokenizer.model, *.tiktoken" in skiff.refused("tokenize", tmp_path)


def test_long_lines_and_many_lines(skiff, demo):
    text = "Once upon a time. " * 60000
    one = answers(skiff.ok("tokenize", demo, "--no-special", stdin=lines([text])))[0]
    assert answers(skiff.ok("tokenize", demo, "--decode", stdin=json.dumps(one) + "\n")) == [text]
    many = skiff.ok("tokenize", demo, "--no-special", stdin=lines(["ab"] * 50000))
    assert many.count("\n") == 50000


def test_answers_before_it_waits(skiff, demo):
    """A program at the other end of a pipe may wait for each answer."""
    with subprocess.Popen([skiff.binary, "tokenize", str(demo)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as run:
        for text in ("a", "b c"):
            run.stdin.write(json.dumps(text) + "\n")
            assert json.loads(run.stdout.readline())
        run.stdin.close()
        assert run.wait(timeout=20) == 0


