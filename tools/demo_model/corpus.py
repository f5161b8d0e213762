"""Conversations for training and evaluation, generated deterministically from seeds.

    python3 corpus.py --show 5        prints some training conversations
    python3 corpus.py --heldout       writes heldout.jsonl
"""
import argparse
import hashlib
import json
import random
from pathlib import Path

import chat
import skills as s
import world as w

HERE = Path(__file__).parent
HELDOUT = HERE / "heldout.jsonl"
MAX_TOKENS = 1024
PLAIN_SHARE = 0.03
TURNS = [(1, 34), (2, 20), (3, 14), (4, 9), (5, 7), (6, 5), (8, 5), (10, 3), (14, 2), (18, 1)]


def other_lang(rng, lang, share=0.15):
    return 1 - lang if rng.random() < share else lang


def system_message(rng, lang):
    r = rng.random()
    if r < 0.62:
        return None
    if r < 0.9:
        return rng.choice(s.w.SYSTEM_EN if lang == s.EN else s.w.SYSTEM_ZH)
    name = s.person(rng, s.EN, False)
    return rng.choice((s.w.SYSTEM_EN[0] + " ", "")) + rng.choice(w.SYSTEM_BITS).format(name, rng.choice(w.CITIES)[0])


class Chat:
    """A conversation being made: its messages and what has been said so far."""

    def __init__(self, rng, held=False, tools=None, thinking=None):
        self.rng, self.held = rng, held
        self.lang = s.ZH if rng.random() < 0.38 else s.EN
        self.thinking = rng.random() < 0.1 if thinking is None else thinking
        self.drawn = s.draw_tools(rng) if (rng.random() < 0.2 if tools is None else tools) else []
        self.system = system_message(rng, self.lang)
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        self.known, self.last, self.total = {}, None, None

    @property
    def tools(self):
        return [spec for _, _, spec in self.drawn]

    def add(self, e):
        """Appends one exchange; with thinking on, its replies think first."""
        thought = s.think_text(e.think) if self.thinking and e.think else ""
        self.messages.append({"role": "user", "content": e.user})
        if e.steps:
            call, result = e.steps
            self.messages += [{"role": "assistant", "content": thought + call["content"]}, result]
        self.messages.append({"role": "assistant", "content": ("" if e.steps else thought) + e.answer})
        self.last, self.total = e, None
        if e.key[0] in ("arith", "mul"):
            value = s.arith_value(*((e.key[1], "*", e.key[2]) if e.key[0] == "mul" else e.key[1:4]))
            self.total = value if 0 <= value <= 99 else None

    def tell(self, held_name=False, kind=None):
        kind = kind or self.rng.choice(list(s.MEMORY))
        lang = other_lang(self.rng, self.lang)
        e, value = s.tell(self.rng, lang, held_name, kind)
        for l in (s.EN, s.ZH):
            self.known.pop((kind, l), None)
            if l == lang or kind in ("name", "age"):
                self.known[kind, l] = value
        self.add(e)
        return kind, lang

    def tell_and_ask(self):
        """A statement and a question in the same message; only the question is answered."""
        kind = "name" if self.rng.random() < 0.5 else None
        _, lang = self.tell(kind=kind)
        statement = self.messages[-2]["content"]
        del self.messages[-2:]
        e = self.recall(kind, lang) if self.rng.random() < 0.4 else self.single(lang)
        e.user = statement + (" " if lang == s.EN else "") + e.user.strip()
        self.add(e)

    def recall(self, kind=None, lang=None):
        kinds = {k for k, _ in self.known}
        if kind is None:
            kind = self.rng.choice(sorted(kinds)) if kinds and self.rng.random() < 0.85 else self.rng.choice(list(s.MEMORY))
        lang = self.lang if lang is None else lang
        if (kind, lang) not in self.known and (kind, 1 - lang) in self.known:
            lang = 1 - lang
        return s.recall(self.rng, lang, self.known, kind)

    def follow_up(self, held):
        """A question that leans on the one before, if there is one to lean on."""
        e, rng = self.last, self.rng
        if e is None:
            return None
        if e.key[0] in ("capital", "capital_next"):
            return s.draw(s.capital_next, rng, e.lang, held)
        if e.key[0] in ("arith", "mul") and e.skill != "thinking":
            if self.total is not None and rng.random() < 0.5:
                total = self.total
                return s.draw(lambda r, l, h: s.arithmetic_chain(r, l, total), rng, e.lang, held)
            return s.draw(s.arithmetic_next, rng, e.lang, held)
        if e.key[0] == "translate_next" or e.key[:1] == ("translate",) and e.key[2] == "word":
            return s.draw(s.translation_next, rng, e.lang, held)
        return None

    def single(self, lang):
        while True:
            e = s.single(self.rng, lang, False)
            if e.key[0] != "no tool" or not self.drawn:
                return e

    def step(self):
        """Adds a training exchange of any kind."""
        rng, r = self.rng, self.rng.random()
        lang = other_lang(rng, self.lang)
        if self.drawn and r < 0.55:
            self.add(s.draw(s.tool_call, rng, lang, False, self.drawn) if r < 0.5 else s.draw(s.tool_missing, rng, lang, False, self.drawn))
        elif r < 0.58:
            self.tell_and_ask()
        elif r < 0.66:
            self.tell()
        elif r < 0.76 and (self.known or rng.random() < 0.15):
            self.add(self.recall())
        elif r < 0.9 and (e := self.follow_up(False)):
            self.add(e)
        else:
            self.add(self.single(lang))


def training_chat(seed):
    rng = random.Random(seed)
    c = Chat(rng)
    for _ in range(rng.choices([n for n, _ in TURNS], [k for _, k in TURNS])[0]):
        c.step()
    return c


def digest(messages, tools, thinking):
    return hashlib.blake2b(chat.prompt(messages, tools, thinking).encode(), digest_size=8).digest()


def segments(c, rng, blocked=frozenset()):
    """The conversation as (text, is a reply to learn) pieces, or None if it meets a held-out prompt.

    A reply is learned the way it is generated: the prompt up to 'Assistant: ' and the reply are
    tokenised apart.  As history the same reply is tokenised in one piece, so some replies are
    only shown like that, without being learned.
    """
    out, text = [], chat.header(c.system, c.tools, c.thinking)
    turns = c.messages[c.system is not None:]
    for i, m in enumerate(turns):
        if m["role"] != "assistant":
            text += ("User: " if m["role"] == "user" else "Tool: ") + m["content"] + "\n"
            continue
        if digest(c.messages[:len(c.messages) - len(turns) + i], c.tools, c.thinking) in blocked:
            return None
        last = i == len(turns) - 1
        calls = "<tool_call>" in m["content"]
        thought = "</think>" in m["content"]
        # with thinking, history holds no thoughts, so only the last reply can be learned with them
        if last or (not thought and rng.random() < (0.8 if calls else 0.65)):
            out += [(text + "Assistant: ", False), (m["content"] + chat.END + ("</s>" if last else ""), True)]
            text = ""
        else:
            text += "Assistant: " + chat.strip_think(m["content"]) + chat.END
    return out


# ---------------------------------------------------------------- the held-out set


def context(c, n):
    for _ in range(n):
        c.step()


def heldout_chat(skill, seed):
    """A conversation whose last exchange lies on the held-out side."""
    rng = random.Random(f"heldout {skill} {seed}")
    thinking = skill == "thinking" and rng.random() < 0.6
    c = Chat(rng, True, tools=skill in ("tool_call", "tool_answer"), thinking=thinking)
    n = rng.choice((0, 0, 0, 1, 2, 4))
    lang = c.lang
    make = {"capitals": rng.choices((s.capital, s.reverse_capital, s.check_capital), (7, 2, 1))[0], "arithmetic": s.arithmetic, "translation": s.translation, "counting": s.counting,
            "json_form": s.form, "small_talk": s.greeting, "unknown": rng.choices((s.unknown, s.tool_missing, s.too_big), (6, 2, 1))[0]}
    if skill in make:
        context(c, n)
        c.add(s.draw(make[skill], rng, lang, True))
    elif skill == "thinking":
        context(c, n)
        c.add(s.draw(rng.choice((s.arithmetic, s.arithmetic, s.capital)) if thinking else s.arithmetic_steps, rng, lang, True))
    elif skill in ("tool_call", "tool_answer"):
        context(c, n // 2)
        c.add(s.draw(s.tool_call, rng, lang, True, c.drawn))
        if skill == "tool_call":
            del c.messages[-2:]
    elif skill == "memory":
        context(c, n // 2)
        kind, lang = c.tell(held_name=True, kind="name" if rng.random() < 0.5 else None)
        context(c, rng.choice((0, 1, 1, 2, 3)))
        if (kind, lang) not in c.known:
            lang = 1 - lang
        c.add(c.recall(kind, lang))
    elif skill == "follow_up":
        context(c, n)
        c.add(s.single(rng, lang, False))
        while c.follow_up(False) is None:
            c.add(s.single(rng, lang, False))
        c.add(c.follow_up(True))
    return c


HELDOUT_SKILLS = {"capitals": 80, "arithmetic": 120, "translation": 80, "counting": 80, "json_form": 80, "tool_call": 60, "tool_answer": 50,
                  "thinking": 60, "memory": 60, "follow_up": 60, "small_talk": 30, "unknown": 60}


def write_heldout():
    seen = set()
    with open(HELDOUT, "w", encoding="utf-8") as f:
        for skill, n in HELDOUT_SKILLS.items():
            seed = 0
            while n:
                seed += 1
                try:
                    c = heldout_chat(skill, seed)
                except s.NothingLeft:
                    continue
                *messages, reply = c.messages
                for m in messages:
                    m["content"] = chat.strip_think(m["content"]) if m["role"] == "assistant" else m["content"]
                key = digest(messages, c.tools, c.thinking)
                if key in seen or len(chat.prompt(messages, c.tools, c.thinking)) > 2000:
                    continue
                seen.add(key)
                line = {"skill": skill, "messages": messages}
                if c.tools:
                    line["tools"] = c.tools
                if c.thinking:
                    line["thinking"] = True
                line["answer"] = chat.strip_think(reply["content"]).strip()
                f.write(json.dumps(line, ensure_ascii=False) + "\n")
                n -= 1


def load_heldout():
    with open(HELDOUT, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def blocked_prompts():
    return frozenset(digest(h["messages"], h.get("tools"), h.get("thinking", False)) for h in load_heldout())


# ---------------------------------------------------------------- token rows for training


def token_samples(job):
    """Worker: conversations of the seeds [first, last) as (ids, reply mask) arrays."""
    import numpy as np
    import tokenizer as tok
    first, last, data_seed = job
    blocked = blocked_prompts()
    pieces, bounds, flags = [], [], []
    for seed in range(first, last):
        c = training_chat(f"{data_seed} {seed}")
        parts = segments(c, c.rng, blocked) if c.rng.random() > PLAIN_SHARE else [(s.plain_text(c.rng) + "</s>", True)]
        if parts is None:
            continue
        pieces += [t for t, _ in parts]
        flags += [learn for _, learn in parts]
        bounds.append(len(pieces))
    encoded = tok.load().encode_batch_fast(pieces, add_special_tokens=False)
    samples, start = [], 0
    for end in bounds:
        ids = np.concatenate([np.asarray(encoded[i].ids, np.uint16) for i in range(start, end)])
        mask = np.concatenate([np.full(len(encoded[i].ids), flags[i]) for i in range(start, end)])
        start = end
        if len(ids) <= MAX_TOKENS:
            samples.append((ids, mask))
    return samples


def pack(samples, row=MAX_TOKENS):
    """Rows of exactly `row` tokens: (ids, reply mask, document number, position), padded with document -1."""
    import numpy as np
    open_rows, rows = [], []
    for ids, mask in samples:
        for r in open_rows:
            if r[0] + len(ids) <= row:
                break
        else:
            r = [0, []]
            rows.append(r)
            open_rows.append(r)
        r[0] += len(ids)
        r[1].append((ids, mask))
        if r[0] > row - 24:
            open_rows.remove(r)
        elif len(open_rows) > 40:
            open_rows.remove(max(open_rows, key=lambda x: x[0]))
    out = np.zeros((len(rows), 4, row), np.int16)
    out[:, 2] = -1
    for i, (_, docs) in enumerate(rows):
        at = 0
        for d, (ids, mask) in enumerate(docs):
            n = len(ids)
            out[i, :, at:at + n] = ids, mask, np.full(n, d), np.arange(n)
            at += n
    return out


def token_rows(job):
    return pack(token_samples(job))


def build(n, seed, processes):
    """All rows of n conversations, generated on several processes."""
    import multiprocessing as mp
    import numpy as np
    chunk = 2000
    jobs = [(i, min(i + chunk, n), seed) for i in range(0, n, chunk)]
    with mp.get_context("fork").Pool(processes) as pool:
        return np.concatenate(pool.map(token_rows, jobs, chunksize=1))


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--show", type=int, default=0)
    p.add_argument("--heldout", action="store_true")
    a = p.parse_args()
    for i in range(a.show):
        c = training_chat(f"show {i}")
        print("-" * 70)
        print("".join(f"[[{t}]]" if learn else t for t, learn in segments(c, c.rng)))
    if a.heldout:
        write_heldout()
