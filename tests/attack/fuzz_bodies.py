"""Mutated bodies of every route: types swapped, numbers extreme, nesting, huge lists, odd text,
duplicate keys, broken bytes."""
import copy
import json

from target import chat

TEXTS = ["", "a", "\0", "\ud800", "\ufffe", "\u0301" * 300, "\U0001F389" * 10, "a" * 100000,
         "<|end_of_sentence|>", "-1", "1e999", "null", "\\", "\"", "\r\n\r\n", "{{ 1/0 }}", "ｱ" * 1000,
         "\u202e", "א" * 50, "auto", "json_object", "user", "x" * 1025]
NUMBERS = [0, -1, 1, 2, 0.5, -0.0, 1e-6, 1e-300, 1e300, 127, 128, 129, 4095, 4096, 2 ** 31 - 1, 2 ** 31,
           -2 ** 31, 2 ** 53, 2 ** 63 - 1, 2 ** 63, 2 ** 64, -2 ** 63 - 1, 1e19, 3.0, 10 ** 30]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "1", "tool_call_id": "a"},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
GENERAL = {
    "model": "default", "max_tokens": 4, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1,
    "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1, "seed": 1, "n": 2,
    "best_of": 2, "logit_bias": {"5": 1, "6": -100}, "bad_words": ["a", "b c"],
    "bad_words_token_ids": [[5], [6, 7]], "priority": 1, "timeout": 5, "min_tokens": 1,
    "stop": ["x", "yz"], "stop_token_ids": [7], "include_stop_str_in_output": True, "ignore_eos": True,
    "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "max_streaming_response_tokens": 2, "prompt_logprobs": 2, "return_token_ids": True,
    "skip_special_tokens": False, "request_id": "abc", "cache_salt": "s", "cache_prompt": False,
    "prompt_token_ids": [5, 6, 7], "completion_token_ids": [8], "truncate_prompt_tokens": 3,
    "add_special_tokens": True, "user": "u", "metadata": {"a": 1}, "logits_processors_args": {
        "logit_bias": {"5": 2}}, "response_format": {"type": "text"}, "max_completion_tokens": 3,
}
ROUTES = {
    "/v1/chat/completions": {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2,
                             "tools": [{"type": "function", "function": {
                                 "name": "f", "parameters": {"type": "object"}}}],
                             "tool_choice": "auto", "documents": [{"title": "t"}],
                             "chat_template_kwargs": {"enable_thinking": False},
                             "reasoning_effort": "low", "add_generation_prompt": True,
                             "continue_final_message": False, "disable_chat_template": False,
                             "parse_special_tokens": True, **GENERAL},
    "/v1/completions": {"prompt": ["a b", "c"], "echo": True, "logprobs": 2, **GENERAL},
    "/tokenize": {"prompt": "a b c", "add_special_tokens": True, "return_token_strs": True},
    "/v1/tokenize": {"messages": MESSAGES, "add_generation_prompt": True, "return_token_strs": True},
    "/detokenize": {"tokens": [5, 6, 7]},
}


class Bodies:
    def __init__(self, rng):
        self.rng = rng

    def value(self, depth=0):
        """Any JSON value."""
        rng = self.rng
        kind = rng.randrange(8 if depth < 4 else 5)
        if kind == 0:
            return rng.choice([None, True, False])
        if kind in (1, 2):
            return rng.choice(NUMBERS)
        if kind in (3, 4):
            return rng.choice(TEXTS)
        if kind == 5:
            return [self.value(depth + 1) for _ in range(rng.choice([0, 1, 3]))]
        if kind == 6:
            return self.times([self.value(4)], rng.choice([10, 100, 2049, 20000]))
        return {rng.choice(TEXTS): self.value(depth + 1) for _ in range(rng.choice([0, 1, 3]))}

    def holders(self, root):
        """Every (container, key) in a tree, as deep as a body may be nested and at most 20,000."""
        out, todo = [], [(root, 0)]
        while todo and len(out) < 20000:
            value, depth = todo.pop()
            places = (list(value) if isinstance(value, dict)
                      else range(len(value)) if isinstance(value, list) else ())
            for place in places:
                out.append((value, place))
                if depth < 66:
                    todo.append((value[place], depth + 1))
        return out

    @staticmethod
    def times(old, count):
        """`old` as often as still makes a body that is taken."""
        try:
            size = len(json.dumps(old)) + 1
        except RecursionError:
            return old
        return old * min(count, (2 << 20) // size)

    def mutate(self, tree):
        rng = self.rng
        holder, key = rng.choice(self.holders(tree) or [(tree, None)])
        if key is None:
            return  # an empty tree
        old, kind = holder[key], rng.randrange(8)
        if kind in (0, 1, 2):
            holder[key] = self.value()
        elif kind == 3 and isinstance(old, list):
            holder[key] = self.times(old, rng.choice([0, 2, 100, 1025, 5000]))
        elif kind == 3 and isinstance(old, str):
            holder[key] = self.times(old, rng.choice([2, 1000, 100000]))
        elif kind == 4:
            holder[key] = [old]
        elif kind == 5:
            for _ in range(rng.choice([2, 63, 65, 2000])):
                old = rng.choice([[old], {"a": old}])
            holder[key] = old
        elif kind == 6 and isinstance(old, dict):
            for i in range(rng.choice([10, 1023, 1025, 5000])):
                old[f"{i}"] = rng.choice(NUMBERS)
        elif isinstance(holder, dict):
            del holder[key]

    def case(self):
        rng = self.rng
        path = rng.choice(list(ROUTES))
        full = copy.deepcopy(ROUTES[path])
        needed = [name for name in ("messages", "prompt", "tokens") if name in full]
        kept = rng.sample(list(full), min(len(full), rng.choice([1, 2, 4, 8])))
        body = {name: full[name] for name in {*needed, *kept}}
        for _ in range(rng.choice([1, 1, 2, 3, 6])):
            self.mutate(body)
        if rng.random() < 0.9 and "completions" in path and isinstance(body.get("max_tokens"), int):
            body["max_tokens"] = min(body["max_tokens"], 8)
        return "POST", path, self.written(body)

    def written(self, body):
        """As bytes: with duplicate keys, odd white space or damage now and then."""
        rng = self.rng
        try:
            data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        except RecursionError:
            data = b"[" * 3000
        kind = rng.random()
        if kind < 0.05 and data.startswith(b"{") and len(data) > 2:
            data = data[:-1] + b"," + data[1:]
        elif kind < 0.10:
            at = rng.randrange(len(data))
            data = data[:at] + rng.randbytes(rng.choice([1, 2, 8])) + data[at + 1:]
        elif kind < 0.13:
            data = data[:rng.randrange(len(data))]
        elif kind < 0.15:
            data = b"\xef\xbb\xbf" + b" \r\n\t" * 1000 + data
        return data[:15 << 20]


def always_served():
    return "POST", "/v1/chat/completions", json.dumps(chat(max_tokens=2)).encode()
