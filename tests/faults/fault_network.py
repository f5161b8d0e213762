"""Nodes for whole programs: network namespaces joined by a bridge, whose cables can be pulled, or
plain loopback where no cable is pulled."""
import atexit
import itertools
import os
import shutil
import subprocess

import pytest

_numbers = itertools.count()


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Node:
    """A place for programs. `namespace` is None on loopback."""

    def __init__(self, address, namespace=None, cut=None):
        self.address, self.namespace, self._cut = address, namespace, cut

    def command(self, *words):
        """`ip netns exec` replaces itself by the program, so the process id is the program's."""
        return [*(["ip", "netns", "exec", self.namespace] if self.namespace else []), *words]

    def pull_cable(self):
        """The node keeps its address and hears nothing more, as if its cable were pulled at the
        switch: no packet tells the other side."""
        self._cut("down")

    def plug_in(self):
        self._cut("up")


class Loopback:
    """`protocol` is the way of blocks: all bytes of which a test counts or harms go over TCP."""
    address = "127.0.0.1"  # the test's own
    protocol = "tcp"

    def node(self):
        return Node("127.0.0.1")

    def close(self):
        pass


class SharedMemory(Loopback):
    """Blocks go through memory, and what says where they lie over the connection."""
    protocol = "ipc"


class Network:
    """A switch (a bridge in a namespace of its own) and nodes at it; the test is at `address`."""
    protocol = "ipc,tcp"  # no memory is shared between namespaces

    def __init__(self):
        number = next(_numbers)
        self.tag = f"skf{os.getpid() % 100000}{chr(97 + number % 26)}"
        self.subnet = f"10.{198 + os.getpid() % 50}.{number % 250}"
        self.count, self.namespaces = 1, []
        self.address = f"{self.subnet}.1"
        atexit.register(self.close)
        self._add_namespace(f"{self.tag}-sw")
        self.switch = self.namespaces[0]
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        self.own_end = f"{self.tag}0"
        ip("link", "add", self.own_end, "type", "veth", "peer", "name", "port0", "netns",
           self.switch)
        self._plug("port0")
        ip("addr", "add", f"{self.address}/24", "dev", self.own_end)
        ip("link", "set", self.own_end, "up")

    def _add_namespace(self, name):
        ip("netns", "add", name)
        self.namespaces.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def _plug(self, port):
        ip("-n", self.switch, "link", "set", port, "master", "br0")
        ip("-n", self.switch, "link", "set", port, "up")

    def node(self):
        self.count += 1
        name, port = f"{self.tag}-{self.count}", f"port{self.count}"
        address = f"{self.subnet}.{self.count}"
        self._add_namespace(name)
        ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
           name)
        self._plug(port)
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        return Node(address, name, lambda state: ip("-n", self.switch, "link", "set", port, state))

    def close(self):
        """Ends all that was made; the interfaces end with their namespaces."""
        for name in self.namespaces:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        if self.namespaces:
            subprocess.run(["ip", "link", "delete", self.own_end], capture_output=True)
        self.namespaces = []


def why_no_network():
    """Why namespaces cannot be made here; None if they can."""
    if not shutil.which("ip"):
        return "there is no ip command (iproute2)"
    name = f"skf{os.getpid() % 100000}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return f"no network namespaces: {made.stderr.strip()}" if made.returncode else None


def network_or_skip():
    if reason := why_no_network():
        pytest.skip(reason)
    return Network()
