"""What deploy/ says holds for whole programs: every metric that it asks for is there, and every flag that it gives."""
import json
import re

import pytest

from edge import ROOT, Edge, long_demo
from test_route import Router
from test_shared_queue import Redis

DASHBOARD = ROOT / "deploy/grafana/skiff.json"


def queries(node):
    """Every expression of the dashboard."""
    if isinstance(node, dict):
        if "expr" in node:
            yield node["expr"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from queries(child)


def names_in(text):
    return set(re.findall(r"\b(?:fastdeploy:|vllm:|process_|skiff_router_)\w+", text))


@pytest.fixture(scope="module")
def told():
    """The names of all series that a router and a server with everything switched on tell."""
    redis = Redis()
    router = Router()
    server = Edge(long_demo(), "--data-parallel-size", "2", "--speculative-method", "ngram",
                  "--scheduler-name", "global", "--scheduler-port", redis.port,
                  "--router", f"127.0.0.1:{router.port}")
    router.wait_up(1)
    body = {"model": "default", "prompt": "2 + 3 =", "max_tokens": 4}
    assert router.post(body, path="/v1/completions").status == 200
    text = server.request("GET", "/metrics").body
    text = text.decode() if isinstance(text, bytes) else text
    text += router.call("GET", "/metrics").read().decode()
    for one in (server, router):
        one.close()
    redis.kill()
    return set(re.findall(r"^([a-zA-Z_:][\w:]*)[{ ]", text, re.M))


def test_every_query_of_the_dashboard_finds_something(told):
    dashboard = json.loads(DASHBOARD.read_text())
    found = list(queries(dashboard))
    assert len(found) > 80
    for query in found:
        assert names_in(query), query
        assert names_in(query) <= told, names_in(query) - told
    for variable in dashboard["templating"]["list"]:
        assert names_in(variable["query"]) <= told


def test_every_alert_finds_something(told):
    alerts = re.findall(r"^\| [^|]+ \| `(.*)` \|$", (ROOT / "deploy/README.md").read_text(), re.M)
    assert len(alerts) >= 8
    for alert in alerts:
        assert names_in(alert) and names_in(alert) <= told, alert


def test_panels_lie_beside_each_other_and_have_names_of_their_own():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(p["gridPos"]["y"], p["gridPos"]["x"], p["gridPos"]["w"], p["gridPos"]["h"])
              for p in panels]
    cells = [(y + dy, x + dx) for y, x, w, h in places for dy in range(h) for dx in range(w)]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert max(x for _, x in cells) < 24


@pytest.mark.parametrize("folder, pattern", [("helm", "*.yaml"), ("helm", "*.tpl"),
                                             ("compose", "*.yaml")])
def test_every_flag_is_one(folder, pattern):
    known = set(re.findall(r"^\| `--([\w-]+)`", (ROOT / "docs/parameters.md").read_text(), re.M))
    others = {"from-literal", "scale"}  # kubectl's and docker's
    files = list((ROOT / "deploy" / folder).rglob(pattern))
    assert files
    for file in files:
        for flag in re.findall(r"--([a-z][a-z-]+)", file.read_text()):
            assert flag.removeprefix("no-") in known | others, f"{file}: --{flag}"
