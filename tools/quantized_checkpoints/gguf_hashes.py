"""Prints the rows of gguf_blocks_test.cc: FNV-1a of random blocks as the gguf package dequantizes them.

    pip install gguf==0.19.0
    python gguf_hashes.py
"""
import gguf
import numpy as np

# Where a block of each type has float16 numbers.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
ROWS, COLS = 3, 512


def random_blocks(size, count, halves):
    """A linear congruential generator's bytes; float16 numbers are made small and positive."""
    state, out = 12345, bytearray()
    for _ in range(size * count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(state >> 16 & 255)
    for at in range(0, len(out), size):
        for half in halves:
            out[at + half + 1] = 0x2C
        if not halves:
            out[at] = 120 | out[at] & 7
    return np.frombuffer(bytes(out), np.uint8).reshape(ROWS, -1)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    values = gguf.dequantize(random_blocks(size, ROWS * COLS // elements, halves), kind)
    positions = ", ".join(map(str, halves))
    print(f'{{"{name}", {{{positions}}}, "{fnv((values.astype(np.float32) + np.float32(0)).tobytes())}"}},')
