"""Programs that end with their test, the places where they run, and the right answers."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

import pytest

from fault_network import Loopback, SharedMemory, network_or_skip
from fault_nodes import Asked, Program, serve
from fault_pair import Pair


def pytest_addoption(parser):
    parser.addoption("--all-faults", action="store_true",
                     help="tests/faults: the whole list, in network namespaces, not the quick part")


def pytest_configure(config):
    config.addinivalue_line("markers", "whole_list: runs with --all-faults only")


def pytest_collection_modifyitems(config, items):
    if config.getoption("all_faults", default=False):
        return
    skip = pytest.mark.skip(reason="one of the whole list of faults: pytest tests/faults "
                                   "--all-faults")
    for item in items:
        if item.get_closest_marker("whole_list"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def loopback():
    return Loopback()


@pytest.fixture(scope="session")
def shared():
    return SharedMemory()


@pytest.fixture
def network():
    made = network_or_skip()
    yield made
    made.close()


@pytest.fixture
def place(request):
    """The place that a test's parameter names."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def keep():
    """Ends what a test hands to it, last first. What is frozen ends, too."""
    things = []

    def kept(thing):
        things.append(thing)
        return thing

    yield kept
    for thing in reversed(things):
        thing.close()


@pytest.fixture(scope="session")
def right(loopback):
    """What one server that nothing happens to says to a request."""
    whole, known = serve(loopback.node()), {}

    def answer(data):
        data = {**data, "stream": False}
        key = repr(sorted(data.items()))
        if key not in known:
            asked = Asked(whole, data).end()
            assert asked.status == 200, asked.error
            known[key] = asked.text
        return known[key]

    yield answer
    whole.close()


@pytest.fixture
def make_pair(keep, tmp_path):
    def make(place, **options):
        return keep(Pair(place, tmp_path, **options))
    return make


@pytest.fixture
def run(keep):
    """Starts a program on a node of its own, or on one that is given."""
    def start(make, place, *flags, node=None, **options) -> Program:
        return keep(make(node or place.node(), *flags, **options))
    return start
