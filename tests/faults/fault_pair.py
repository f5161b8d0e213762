"""A prefill and a decode server, each on a node of its own, with a proxy between them."""
from fault_nodes import Asked, Program, at_rest, body, eventually, serve
from fault_proxy import CUT, FLIP, HOLD, SLOW, Harm, Proxy

__all__ = ["CUT", "FLIP", "HOLD", "SLOW", "Harm", "Pair", "write_key"]


def write_key(folder, name="key", secret="what-both-know"):
    file = folder / name
    file.write_text(secret + "\n")
    return file


class Pair:
    """Deadlines of seconds, so that tests see both sides of them."""

    def __init__(self, place, folder, wait=2, lease=2, prefill=(), decode=(), prefill_model=None,
                 prefill_key=None, decode_key=None):
        key = write_key(folder)
        self.place = place
        ways = ["--cache-transfer-protocol", place.protocol]
        self.prefill = serve(
            place.node(), "--splitwise-role", "prefill", "--pd-comm-port", "0", "--pd-comm-host",
            "ADDRESS", "--pd-lease", lease, "--pd-comm-key-file", prefill_key or key, *ways,
            *prefill, model=prefill_model)
        self.proxy = Proxy((self.prefill.node.address, self.prefill.block_port), place.address)
        self.decode: Program = serve(
            place.node(), "--splitwise-role", "decode", "--pd-wait", wait, "--prefill-peers",
            f"{place.address}:{self.proxy.port}", "--pd-comm-key-file", decode_key or key, *ways, *decode)

    def fetched(self):
        return self.decode.metric("fastdeploy:pd_transferred_blocks_total")

    def bytes_of(self, data):
        """How many bytes come from the prefill server for this request, a greeting included."""
        asked = Asked(self.decode, data).end()
        assert asked.status == 200 and self.fetched() > 0, asked.error
        return self.proxy.passed["down"]

    def at_rest(self):
        return at_rest(self.prefill, self.decode)

    def works(self, right, name):
        """The two work together: blocks come again, sooner or later."""
        before, tries = self.fetched(), iter(range(10000))

        def once():
            data = body(f"{name} {next(tries)}", 4)
            assert Asked(self.decode, data).end().text == right(data)
            return self.fetched() > before
        return eventually(once) and self.at_rest()

    def close(self):
        self.decode.close()
        self.prefill.close()
        self.proxy.close()
