"""--config: flags of a server in a YAML file."""
import json

FILE = """# as vLLM and FastDeploy have it
served-model-name: [first, second]
max_model_len: 512
enable-prefix-caching: no
speculative-config:
  method: ngram
  num_speculative_tokens: 2
"""


def test_a_server_starts_as_its_file_says(start_server, tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text(FILE)
    server = start_server("--config", str(path))
    models = json.loads(server.get("/v1/models"))["data"]
    assert {"first", "second"} <= {model["id"] for model in models}
    assert all(model["max_model_len"] == 512 for model in models)


def test_the_command_line_wins(start_server, tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text(FILE)
    server = start_server("--config", str(path), "--served-model-name", "third", "--max-model-len", "256")
    models = json.loads(server.get("/v1/models"))["data"]
    names = {model["id"] for model in models}
    assert "third" in names and "first" not in names
    assert all(model["max_model_len"] == 256 for model in models)
