#!/usr/bin/env python3
"""Puts known faults into a copy of the source, one at a time, and demands that a test notices each.

  tools/mutants.py                 every mutant of tools/mutants.json
  tools/mutants.py fingerprint     those whose name has this in it; --list prints all names
  tools/mutants.py --match         only whether each has its text exactly once; builds nothing (part of make check)

A mutant is {name, file, old, new, target, filter}: in `file` the text `old`, which must be there exactly
once, becomes `new`; the test program `target` is built and run with `filter`, and has to fail. Before
that the same tests must pass without the change. A mutant whose text is gone is an error: whoever
changes the line moves the mutant along. The copy and its build lie in build/mutants and are kept, so
that a second run compiles one file and links one program for each mutant."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build/mutants"
LIMIT = 600  # seconds of one test run; one that hangs has noticed, too


def copy_tree():
    """The working tree's files into the copy; those that are alike keep their time."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, check=True, text=True).stdout
    wanted = set(filter(None, listed.split("\0")))
    for name in wanted:
        source, target = ROOT / name, COPY / name
        if not source.is_file():
            continue
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for source in (COPY / "src").rglob("*"):
        if source.is_file() and str(source.relative_to(COPY)) not in wanted:
            source.unlink()


def build(target, jobs):
    """Whether it compiled and linked; what was said."""
    folder = COPY / "build/cpu"
    if not (folder / "build.ninja").exists():
        shared = os.environ.get("SKIFF_SHARED_DIR", str(ROOT.parent / "shared"))
        subprocess.run(["cmake", "--preset", "cpu", "-DSKIFF_TESTS=ON", f"-DSKIFF_SHARED_DIR={shared}"],
                       cwd=COPY, check=True, capture_output=True)
    done = subprocess.run(["cmake", "--build", str(folder), f"-j{jobs}", "--target", target],
                          capture_output=True, text=True)
    return done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test(target, names):
    """"passes", "fails" or "runs no test"."""
    try:
        done = subprocess.run([str(COPY / "build/cpu/src" / target), f"--gtest_filter={names}",
                               "--gtest_brief=1"], cwd=COPY, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "fails"
    if "] 0 tests from" in done.stdout:
        return "runs no test"
    return "passes" if done.returncode == 0 else "fails"


def mismatch(mutant):
    """Why a mutant does not fit the working tree; empty: it does."""
    path = ROOT / mutant["file"]
    count = path.read_text().count(mutant["old"]) if path.exists() else 0
    return "" if count == 1 else f"stale: {mutant['file']} has its text {count} times and not once"


def match(mutants):
    """Prints the mutants that do not fit; the exit code."""
    stale = [(mutant["name"], why) for mutant in mutants if (why := mismatch(mutant))]
    for name, why in stale:
        print(f"{name:45} {why}")
    print(f"mutants: {len(mutants)} matched, {len(stale)} stale")
    return 1 if stale else 0


def apply(mutant):
    """The file's text before, or None where the mutant no longer fits."""
    path = COPY / mutant["file"]
    text = path.read_text() if path.exists() else ""
    if text.count(mutant["old"]) != 1:
        return None
    path.write_text(text.replace(mutant["old"], mutant["new"]))
    return text


def judge(mutant, jobs, clean):
    """What became of one mutant; "caught" is the good end. `clean` remembers what passes without it."""
    key = (mutant["target"], mutant["filter"])
    if key not in clean:
        built, said = build(mutant["target"], jobs)
        clean[key] = test(*key) if built else f"does not build: {said}"
    if clean[key] != "passes":
        return f"without any fault the test {clean[key]}"  # it fails, or there is none of that name
    before = apply(mutant)
    if before is None:
        return f"stale: {mutant['file']} does not have its text exactly once"
    try:
        built, said = build(mutant["target"], jobs)
        if not built:
            return f"the mutant does not build: {said}"
        return {"fails": "caught", "passes": "SURVIVED"}.get(test(*key), "runs no test")
    finally:
        (COPY / mutant["file"]).write_text(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="", help="part of the names of those that run")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--match", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    mutants = json.loads((ROOT / "tools/mutants.json").read_text())
    chosen = [mutant for mutant in mutants if options.part in mutant["name"]]
    if options.list:
        for mutant in chosen:
            print(f"{mutant['name']}  ({mutant['file']}; {mutant['target']} {mutant['filter']})")
        return 0
    if options.match:
        return match(chosen)
    copy_tree()
    clean, bad = {}, 0
    for mutant in chosen:
        start = time.monotonic()
        verdict = judge(mutant, options.jobs, clean)
        bad += verdict != "caught"
        print(f"{mutant['name']:45} {verdict}  ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"mutants: {len(chosen)} tried, {len(chosen) - bad} caught")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
