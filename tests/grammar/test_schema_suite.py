"""The JSON-Schema-Test-Suite, draft 2020-12: no bad instance is accepted, and what is refused or
too strict is listed in suite_ratchet.json, which shrinks and does not grow.

`SKIFF_RATCHET=write pytest tests/grammar` writes the list anew.
"""
import json
import os
import pathlib

RATCHET = pathlib.Path(__file__).parent / "suite_ratchet.json"


def groups(suite):
    for path in sorted(suite.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield f"{path.stem}: {group['description']}", group


def test_no_bad_instance_is_accepted(constrain, suite):
    refused, strict, wrong, right = {}, [], [], 0
    for name, group in groups(suite):
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in group["tests"]]
        verdicts = constrain("json-schema", json.dumps(group["schema"]), texts)
        if isinstance(verdicts, dict):
            refused[name] = verdicts["error"][:100]
            continue
        for test, verdict in zip(group["tests"], verdicts):
            if verdict["accepts"] and not test["valid"]:
                wrong.append(f"{name}: {test['description']}")
            elif test["valid"] and not verdict["accepts"]:
                strict.append(f"{name}: {test['description']}")
            else:
                right += 1
    assert not wrong, "bad instances accepted:\n" + "\n".join(wrong)
    if os.environ.get("SKIFF_RATCHET") == "write":
        RATCHET.write_text(json.dumps({"refused": refused, "too_strict": strict}, indent=1,
                                      ensure_ascii=False) + "\n", encoding="utf-8")
    known = json.loads(RATCHET.read_text(encoding="utf-8"))
    assert right > 400
    assert set(refused) <= set(known["refused"]), set(refused) - set(known["refused"])
    assert set(strict) <= set(known["too_strict"]), set(strict) - set(known["too_strict"])
