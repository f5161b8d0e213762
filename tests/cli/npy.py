"""Reads the float32 matrices that `skiff predict --dump-logits` writes (NumPy format 1.0)."""
import array
import ast
import struct


def read(path):
    """A list of rows, each an array of floats."""
    with open(path, "rb") as f:
        assert f.read(8) == b"\x93NUMPY\x01\x00"
        (length,) = struct.unpack("<H", f.read(2))
        header = ast.literal_eval(f.read(length).decode())
        values = array.array("f")
        values.frombytes(f.read())
    assert header["descr"] == "<f4" and not header["fortran_order"]
    rows, cols = header["shape"]
    assert len(values) == rows * cols
    return [values[r * cols:(r + 1) * cols] for r in range(rows)]
