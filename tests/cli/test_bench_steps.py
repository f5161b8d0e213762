"""`skiff bench steps`: time against rows, as a table and as a file."""
import csv


def test_table_and_file_agree(skiff, demo, tmp_path):
    path = tmp_path / "steps.csv"
    text = skiff.ok("bench", "steps", demo, "--rows", "1,4..12:4,64", "--context", 20, "--beside", 8,
                    "--repetitions", 3, "--max-num-seqs", 12, "--csv", path)
    rows = list(csv.DictReader(path.open()))
    counts = {kind: [int(r["rows"]) for r in rows if r["kind"] == kind]
              for kind in ("decode", "prompt", "mixed")}
    assert counts == {"decode": [1, 4, 8, 12], "prompt": [1, 4, 8, 12, 64], "mixed": [12, 64]}
    for row in rows:
        ms = float(row["ms"])
        assert ms > 0 and float(row["above_percent"]) >= 0
        assert abs(float(row["rows_per_second"]) * ms / 1e3 / int(row["rows"]) - 1) < 1e-3
        assert f"{ms:.3f}" in text
    assert "checked" in text


def test_kinds_that_are_named_are_measured(skiff, demo):
    text = skiff.ok("bench", "steps", demo, "--rows", "4", "--repetitions", 1, "--context", 20, "--max-num-seqs", 4,
                    "--kinds", "prompt,decode")
    assert "decode: " in text and "prompt: " in text and "\nmixed: " not in text
    for kinds in ("", "decode,none"):
        assert "--kinds" in skiff.refused("bench", "steps", demo, "--rows", "4", "--kinds", kinds)


def test_bad_lists_are_refused(skiff, demo, tmp_path):
    for rows in ("0", "8..4", "1,x", ""):
        assert "--rows" in skiff.refused("bench", "steps", demo, "--rows", rows)
    assert "--csv" in skiff.refused("bench", "steps", demo, "--rows", "1", "--csv", tmp_path)
    assert "--context" in skiff.refused("bench", "steps", demo, "--rows", "1", "--context", 1 << 20)
