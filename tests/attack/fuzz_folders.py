"""Mutated model folders through `skiff inspect`, `skiff tokenize` and a short `skiff predict`."""
import json
import os
import pathlib
import shutil
import struct

from fuzz_bodies import Bodies
from target import MODEL, ROOT

SMALL = 1 << 20
TINY = [ROOT / "tests/golden", ROOT / "tests/quantized"]
PREDICT = ("--prompt-token-ids", "5,6,7", "--max-tokens", "2", "--threads", "1",
           "--num-gpu-blocks-override", "8", "--max-num-seqs", "2", "--max-num-batched-tokens", "64",
           "--max-model-len", "64")
NAMES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
         "special_tokens_map.json", "chat_template.jinja", "model.safetensors",
         "model.safetensors.index.json", "tokenizer.model", "added_tokens.json", "vocab.json",
         "quantize_config.json", "hf_quant_config.json", "act_scales.json", "weight_scales.json", "model.gguf"]


class Folders:
    def __init__(self, rng, work):
        self.rng, self.work, self.bodies = rng, pathlib.Path(work), Bodies(rng)
        self.models = [MODEL] + [path for tiny in TINY for path in sorted(tiny.iterdir())
                                 if any((path / file).exists() for file in ("config.json", "model.gguf"))]

    def case(self):
        """(folder, commands to run on it)."""
        rng = self.rng
        folder = self.work / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        source = rng.choice(self.models)
        for file in source.iterdir():
            if not file.is_file():
                continue
            if file.name.endswith(".st") or file.stat().st_size > SMALL:
                if file.name == "model.safetensors" and rng.random() < 0.1:
                    shutil.copy(file, folder / file.name)
                    os.chmod(folder / file.name, 0o600)
                else:
                    os.symlink(file, folder / file.name)
            else:
                shutil.copy(file, folder / file.name)
                os.chmod(folder / file.name, 0o600)
        if not (folder / "tokenizer.json").exists():
            shutil.copy(MODEL / "tokenizer.json", folder / "tokenizer.json")
            os.chmod(folder / "tokenizer.json", 0o600)
        for _ in range(rng.choice([1, 1, 2, 4])):
            self.mutate(folder)
        load = () if rng.random() < 0.5 else ("--load-format", "dummy")
        return folder, [("inspect", folder), ("tokenize", folder, "--chat"), ("tokenize", folder),
                        ("predict", folder, *load, *PREDICT)]

    def mutate(self, folder):
        rng = self.rng
        files = [file for file in sorted(folder.iterdir())]
        file = rng.choice(files)
        if rng.random() < 0.5:
            file = folder / "config.json"
        kind = rng.random()
        if kind < 0.06:
            self.odd_file(folder / rng.choice(NAMES))
        elif file.name.endswith(".json") and file.is_file() and kind < 0.85:
            self.json_file(file)
        elif file.name.endswith(".safetensors") and file.is_file():
            self.safetensors(file)
        elif file.is_file() and not file.is_symlink():
            self.bytes(file)

    def odd_file(self, path):
        if path.is_dir() and not path.is_symlink():
            return
        path.unlink(missing_ok=True)
        kind = self.rng.randrange(6)
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            path.symlink_to(path)
        elif kind == 2:
            path.symlink_to("/dev/zero")
        elif kind == 3:
            path.mkdir()
        elif kind == 4:
            path.write_bytes(b"")
        else:
            path.symlink_to("/nowhere")

    def json_file(self, file):
        try:
            tree = json.loads(file.read_text())
        except (ValueError, OSError, RecursionError):
            return
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            self.bodies.mutate(tree)
        data = self.bodies.written(tree)
        if file.is_symlink():
            file.unlink()
        file.write_bytes(data)

    def bytes(self, file):
        data, rng = bytearray(file.read_bytes()), self.rng
        for _ in range(rng.choice([1, 4, 50])):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data[:rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)

    def safetensors(self, file):
        """Its header changed: offsets, shapes, types, lengths."""
        data, rng = file.read_bytes(), self.rng
        if len(data) < 9:
            return
        size = struct.unpack("<Q", data[:8])[0]
        try:
            header = json.loads(data[8:8 + size])
        except (ValueError, RecursionError):
            return
        kind = rng.random()
        if kind < 0.7:
            self.bodies.mutate(header)
            head = self.bodies.written(header)
        else:
            head = data[8:8 + size]
        length = len(head) if kind < 0.9 else rng.choice([0, 1, 2 ** 63, 2 ** 64 - 1, len(data) * 2, 7])
        tail = data[8 + size:]
        if rng.random() < 0.2:
            tail = tail[:rng.randrange(len(tail) + 1)]
        if file.is_symlink():
            file.unlink()
        file.write_bytes(struct.pack("<Q", length) + head + tail)
