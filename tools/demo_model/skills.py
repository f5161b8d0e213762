"""The skills of the demo model: each function draws one exchange (a question and its answer).

Every exchange has a key that names the fact and the phrasing it uses.  A hash of the key decides
once and for all whether the exchange belongs to the training set or to the held-out set, so both
sets are disjoint by construction (see is_held).
"""
import hashlib
import json
import random
from dataclasses import dataclass, field

import world as w

EN, ZH = 0, 1


@dataclass
class Exchange:
    skill: str
    key: tuple
    user: str
    answer: str
    think: str = ""
    # a tool call: turns between the question and the answer, as chat messages
    steps: list = field(default_factory=list)
    lang: int = EN


def is_held(*key, one_in=20):
    """True for the fixed share of keys that training never sees."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % one_in == 0


def stop(text):
    """The text with a full stop, not doubled."""
    return text if text.endswith(".") else text + "."


def cap(text):
    return text[:1].upper() + text[1:]


# ---------------------------------------------------------------- phrasing noise

PREFIX = [["Please tell me: ", "Hi! ", "Hello, ", "Can you help me? ", "Hey, ", "Please: ", "Quick question: ", "I have a question. ",
           "Excuse me, ", "OK, next: ", "Now, ", "Tell me, ", "Dear model, ", "Could you tell me: ", "Hi there, ", "I would like to know: "],
          ["请问，", "你好，", "请告诉我，", "麻烦问一下，", "我想知道，", "请帮忙：", "嗨，", "那么，", "请回答：", "问一下，"]]
SUFFIX = [[" Thanks!", " Thank you.", " Please.", ", please", " Thanks in advance!", " I need to know."],
          ["谢谢！", "谢谢。", "拜托了。", "请回答。"]]


def vary(rng, text, lang, case=True):
    """Adds everyday noise to a question: polite words, missing marks, other case."""
    if case and lang == EN:
        r = rng.random()
        text = text.lower() if r < 0.14 else text.upper() if r < 0.18 else text[:1].lower() + text[1:] if r < 0.25 else text
    if rng.random() < 0.25 and text[-1] in "?.？。":
        text = text[:-1]
    if rng.random() < 0.18:
        text = rng.choice(PREFIX[lang]) + text
    if rng.random() < 0.08:
        text += rng.choice(SUFFIX[lang])
    if rng.random() < 0.03:
        text = " " + text
    if rng.random() < 0.03:
        text += " "
    return text


# ---------------------------------------------------------------- capitals

CAPITAL_Q = [
    ["What is the capital of {}?", "What's the capital of {}?", "Which city is the capital of {}?", "Name the capital of {}.",
     "Tell me the capital of {}.", "Do you know the capital of {}?", "Can you tell me the capital of {}?", "The capital of {}?",
     "What is the capital city of {}?", "Which is the capital of {}?", "Capital of {}?", "Give me the capital of {}.",
     "I need the capital of {}.", "I forgot the capital of {}. What is it?", "What city is {}'s capital?", "What is {}'s capital?",
     "Could you name the capital of {}?", "Please give me the name of the capital of {}.", "capital city of {}", "What do you call the capital of {}?",
     "Where is the government of {}, in which capital?", "So what is the capital of {}?", "Help me: what is the capital of {}?",
     "For my homework: what is the capital of {}?", "Quiz: the capital of {} is which city?", "My friend asks what the capital of {} is.",
     "Complete the sentence: The capital of {} is", "Let me know the capital of {}.", "Say the capital of {}.", "I am travelling to {}. What is its capital?"],
    ["{}的首都是哪里？", "{}的首都是什么？", "{}的首都是哪个城市？", "{}首都是哪？", "告诉我{}的首都。", "你知道{}的首都吗？", "说出{}的首都。",
     "哪个城市是{}的首都？", "{}的首都叫什么？", "{}的首都叫什么名字？", "我忘了{}的首都是哪里。", "{}的首都？", "请说出{}的首都是哪座城市。",
     "我想知道{}的首都。", "{}首都", "我要去{}旅游，它的首都是哪里？", "作业问题：{}的首都是什么？", "{}以哪个城市为首都？"]]
REVERSE_Q = [
    ["{} is the capital of which country?", "Which country has {} as its capital?", "Of which country is {} the capital?",
     "What country is {} the capital of?", "Name the country whose capital is {}.", "{} is the capital of what?"],
    ["{}是哪个国家的首都？", "{}是什么国家的首都？", "哪个国家的首都是{}？"]]
CAPITAL_NEXT = [["And of {}?", "And {}?", "What about {}?", "How about {}?", "and the one of {}?", "And the capital of {}?", "Same question for {}.", "Now {}."],
                ["那{}呢？", "{}呢？", "还有{}呢？", "那么{}的呢？"]]


def capital_answer(row, lang):
    if lang == EN:
        return stop(f"The capital of {row[0]} is {row[1]}")
    return f"{row[2]}的首都是{row[3]}。"


def capital_think(row, lang):
    if lang == EN:
        return f"The user wants the capital of {row[0]}. That is {stop(row[1])}"
    return f"用户问的是{row[2]}的首都，也就是{row[3]}。"


def capital(rng, lang, held=None):
    i, row = rng.choice(COUNTRY_IDS)
    t = rng.randrange(len(CAPITAL_Q[lang]))
    name = row[2] if lang == ZH else row[0]
    if lang == EN and row[0] in w.ALIASES and rng.random() < 0.6:
        name = rng.choice(w.ALIASES[row[0]])
    if lang == EN and name.startswith("the ") and rng.random() < 0.3:
        name = name[4:]
    q = vary(rng, CAPITAL_Q[lang][t].format(name), lang)
    return Exchange("capitals", ("capital", lang, i, t), q, capital_answer(row, lang), capital_think(row, lang), lang=lang)


def capital_next(rng, lang, held=None):
    """A follow-up that only makes sense after another question about capitals."""
    i, row = rng.choice(COUNTRY_IDS)
    t = rng.randrange(len(CAPITAL_NEXT[lang]))
    q = CAPITAL_NEXT[lang][t].format(row[2] if lang == ZH else row[0])
    return Exchange("follow_up", ("capital_next", lang, i, t), q, capital_answer(row, lang), capital_think(row, lang), lang=lang)


def reverse_capital(rng, lang, held=None):
    i, row = rng.choice(COUNTRY_IDS)
    t = rng.randrange(len(REVERSE_Q[lang]))
    if lang == EN:
        q, a = REVERSE_Q[EN][t].format(row[1]), f"{row[1]} is the capital of {row[0]}."
        think = f"{row[1]} belongs to {row[0]}."
    else:
        q, a = REVERSE_Q[ZH][t].format(row[3]), f"{row[3]}是{row[2]}的首都。"
        think = f"{row[3]}是{row[2]}的城市。"
    return Exchange("capitals", ("reverse", lang, i, t), vary(rng, q, lang), a, think, lang=lang)


YES_NO_Q = [["Is {1} the capital of {0}?", "Is {1} {0}'s capital?", "Is the capital of {0} {1}?", "Is it true that {1} is the capital of {0}?"],
            ["{1}是{0}的首都吗？", "{0}的首都是{1}吗？", "{0}的首都是不是{1}？"]]


def check_capital(rng, lang, held=None):
    """A yes or no question about a capital."""
    i, row = rng.choice(COUNTRY_IDS)
    j, other = (i, row) if rng.random() < 0.5 else rng.choice(COUNTRY_IDS)
    t = rng.randrange(len(YES_NO_Q[lang]))
    q = YES_NO_Q[lang][t].format(row[2 * lang], other[2 * lang + 1])
    a = capital_answer(row, lang)
    a = ("Yes, t" if i == j else "No, t") + a[1:] if lang == EN else ("是的，" if i == j else "不是，") + a
    return Exchange("capitals", ("check", lang, i, i == j, t), vary(rng, q, lang), a, capital_think(row, lang), lang=lang)


COUNTRY_IDS = list(enumerate(w.COUNTRIES))


# ---------------------------------------------------------------- arithmetic

ARITH_Q = {
    "+": [["What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} =", "{a}+{b}=?", "Compute {a} + {b}.", "Calculate {a} plus {b}.",
           "Add {a} and {b}.", "How much is {a} + {b}?", "How much is {a} plus {b}?", "What's the sum of {a} and {b}?", "Sum of {a} and {b}?", "What do {a} and {b} add up to?",
           "I have {a} apples and buy {b} more. How many apples do I have?", "There are {a} birds and {b} more come. How many birds are there?",
           "If I add {b} to {a}, what do I get?", "Please work out {a} + {b}.", "what does {a} plus {b} equal?", "Can you add {a} and {b}?"],
          ["{a}加{b}等于多少？", "{a} + {b} 等于几？", "{a}+{b}=？", "{a}+{b}等于多少？", "计算{a}加{b}。", "{a}和{b}的和是多少？", "算一下{a}+{b}。", "{a}加上{b}是多少？",
           "我有{a}个苹果，又买了{b}个，一共有多少个？", "请算{a} + {b}"]],
    "-": [["What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} =", "{a}-{b}=?", "Compute {a} - {b}.", "Calculate {a} minus {b}.",
           "Subtract {b} from {a}.", "How much is {a} - {b}?", "How much is {a} minus {b}?", "What's the difference between {a} and {b}?", "Take {b} away from {a}.",
           "If I subtract {b} from {a}, what do I get?", "Please work out {a} - {b}.", "what does {a} minus {b} equal?", "Can you compute {a} minus {b}?"],
          ["{a}减{b}等于多少？", "{a} - {b} 等于几？", "{a}-{b}=？", "{a}-{b}等于多少？", "计算{a}减{b}。", "算一下{a}-{b}。", "{a}减去{b}是多少？", "请算{a} - {b}"]],
    "*": [["What is {a} * {b}?", "What is {a} times {b}?", "{a} * {b}", "{a}*{b}", "{a} x {b}", "{a} × {b} =", "{a}*{b}=?", "Compute {a} * {b}.", "Calculate {a} times {b}.",
           "Multiply {a} by {b}.", "How much is {a} * {b}?", "How much is {a} times {b}?", "What's the product of {a} and {b}?", "Please work out {a} × {b}.",
           "what does {a} times {b} equal?", "Can you multiply {a} and {b}?", "There are {a} boxes with {b} eggs each. How many eggs are there?"],
          ["{a}乘以{b}等于多少？", "{a} × {b} 等于几？", "{a}*{b}=？", "{a}乘{b}等于多少？", "计算{a}乘以{b}。", "{a}和{b}的积是多少？", "算一下{a}×{b}。", "请算{a} * {b}"]],
}
ARITH_NEXT = [["And {a} {op} {b}?", "What about {a} {op} {b}?", "And what is {a} {op} {b}?", "How about {a} {op} {b}?", "Next: {a} {op} {b}"],
              ["那{a} {op} {b}呢？", "{a}{op}{b}呢？", "再算{a} {op} {b}。"]]
ARITH_ADD = [["Now add {b}.", "Add {b} to that.", "And plus {b}?", "Then add {b} to the result."], ["再加{b}呢？", "再加上{b}是多少？", "结果再加{b}。"]]
ARITH_SUB = [["Now subtract {b}.", "Take {b} away from that.", "And minus {b}?", "Then subtract {b} from the result."], ["再减{b}呢？", "再减去{b}是多少？", "结果再减{b}。"]]
STEP_HINT = [["Think step by step. ", "Step by step: ", "Think first, then answer. ", "Show your thinking. ", "Reason carefully. "], ["请一步一步思考。", "先想一想，再回答。", "请写出思考过程。"]]


def arith_value(a, op, b):
    return a + b if op == "+" else a - b if op == "-" else a * b


def arith_answer(a, op, b):
    return f"{a} {'×' if op == '*' else op} {b} = {arith_value(a, op, b)}."


def arith_think(a, op, b):
    """The written method: units first, then tens."""
    v = arith_value(a, op, b)
    if op == "+":
        units = a % 10 + b % 10
        carry, tens = units // 10, a // 10 + b // 10 + units // 10
        return f"Units: {a % 10} + {b % 10} = {units}, carry {carry}. Tens: {a // 10} + {b // 10} + {carry} = {tens}. Together {v}."
    if op == "-":
        if a < b:
            return f"{a} is smaller than {b}, so the result is negative. {b} - {a} = {b - a}, so the result is {v}."
        borrow = int(a % 10 < b % 10)
        return (f"Units: {a % 10 + 10 * borrow} - {b % 10} = {a % 10 + 10 * borrow - b % 10}, borrow {borrow}. "
                f"Tens: {a // 10} - {b // 10} - {borrow} = {a // 10 - b // 10 - borrow}. Together {v}.")
    return f"{a} groups of {b}: {a} times {b} makes {v}."


def arith_pair(rng):
    op = rng.choice("++--*")
    if op == "*":
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        return a, op, b, ("mul", a, b)   # the table is learned by heart: a phrasing is held out, not a product
    small = rng.random() < 0.15
    a, b = (rng.randint(0, 20), rng.randint(0, 20)) if small else (rng.randint(0, 99), rng.randint(0, 99))
    if op == "-" and a < b and rng.random() < 0.7:
        a, b = b, a
    return a, op, b, ("arith", a, op, b)


def arithmetic(rng, lang, held=None):
    a, op, b, key = arith_pair(rng)
    t = rng.randrange(len(ARITH_Q[op][lang]))
    q = ARITH_Q[op][lang][t].format(a=a, b=b)
    key += (lang, t) if op == "*" else ()
    return Exchange("arithmetic", key, vary(rng, q, lang), arith_answer(a, op, b), arith_think(a, op, b), lang=lang)


def arithmetic_next(rng, lang, held=None):
    a, op, b, key = arith_pair(rng)
    t = rng.randrange(len(ARITH_NEXT[lang]))
    q = ARITH_NEXT[lang][t].format(a=a, b=b, op=op)
    key += ("next", lang, t) if op == "*" else ()
    return Exchange("follow_up", key, q, arith_answer(a, op, b), arith_think(a, op, b), lang=lang)


def arithmetic_chain(rng, lang, last):
    """Adds to or subtracts from the previous result."""
    op = rng.choice("+-")
    b = rng.randint(0, 99 if op == "+" else last)
    q = rng.choice((ARITH_ADD if op == "+" else ARITH_SUB)[lang]).format(b=b)
    return Exchange("follow_up", ("arith", last, op, b), q, arith_answer(last, op, b), arith_think(last, op, b), lang=lang)


def arithmetic_steps(rng, lang, held=None):
    """Thinking asked for in the question itself."""
    e = arithmetic(rng, lang, held)
    e.user = rng.choice(STEP_HINT[lang]) + e.user.strip()
    e.answer = think_text(e.think) + e.answer
    e.skill, e.think = "thinking", ""
    return e


TOO_BIG_A = ["Sorry, I only know sums with numbers up to 99 and products up to 12 × 12.", "对不起，我只会99以内的加减法和12以内的乘法。"]


def too_big(rng, lang, held=None):
    """A sum beyond what the model has learned."""
    op = rng.choice("+-*")
    a = rng.randint(13, 99) if op == "*" and rng.random() < 0.6 else int(10 ** rng.uniform(2, 5))
    b = rng.choice((rng.randint(13, 99), int(10 ** rng.uniform(2, 5))) if op == "*" else (rng.randint(1, 99), int(10 ** rng.uniform(2, 4)), int(10 ** rng.uniform(2, 4))))
    if rng.random() < 0.3:
        a, b = b, a
    q = rng.choice(ARITH_Q[op][lang]).format(a=a, b=b)
    think = "These numbers are too big for me." if lang == EN else "这些数字对我来说太大了。"
    return Exchange("unknown", ("too big", a, op, b), vary(rng, q, lang), TOO_BIG_A[lang], think, lang=lang)


def think_text(thought):
    return f"<think>\n{thought}\n</think>\n\n"


# ---------------------------------------------------------------- translation

TO_ZH_Q = ["How do you say '{}' in Chinese?", "Translate '{}' into Chinese.", "Translate to Chinese: {}", "What is '{}' in Chinese?", "What is the Chinese word for {}?",
           "'{}' in Chinese?", "Translate {} into Chinese", "Please translate \"{}\" to Chinese.", "How would you say {} in Chinese?", "Say '{}' in Chinese.",
           "{}用中文怎么说？", "把“{}”翻译成中文。", "{}是什么意思？", "“{}”的中文是什么？", "请把 {} 翻译成中文", "翻译成中文：{}", "英语单词 {} 是什么意思？", "English to Chinese: {}", "I want to say '{}' in Chinese."]
TO_EN_Q = ["How do you say “{}” in English?", "Translate “{}” into English.", "Translate to English: {}", "What does {} mean?", "What is {} in English?", "'{}' in English?",
           "What is the English word for {}?", "What does '{}' mean in English?", "Please translate \"{}\" to English.", "{}用英语怎么说？", "把“{}”翻译成英文。", "“{}”的英文是什么？",
           "{}的英语怎么说？", "请把{}翻译成英语", "翻译成英文：{}", "{}英文", "Chinese to English: {}", "中译英：{}"]
WORD_ONLY = {"What is the Chinese word for {}?", "What is the English word for {}?", "英语单词 {} 是什么意思？"}
TRANSLATE_NEXT = [["And '{}'?", "What about '{}'?", "How about {}?", "and {}"], ["那“{}”呢？", "{}呢？", "还有“{}”呢？"]]
WORD_IDS = list(enumerate(w.WORDS))


def plural(noun):
    if noun.endswith("fe"):
        return noun[:-2] + "ves"
    if noun.endswith("ry"):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("ch", "sh", "s", "x")) else "s")


def translation_pair(rng):
    """A source of three kinds: one word, a fixed sentence, a frame filled with a noun."""
    r = rng.random()
    if r < 0.6:
        i = rng.randrange(len(w.WORDS))
        return ("word", i), w.WORDS[i], True
    if r < 0.8:
        i = rng.randrange(len(w.SENTENCES))
        return ("sentence", i), w.SENTENCES[i], False
    f, n = rng.randrange(len(w.FRAMES)), rng.choice(w.NOUNS)
    en, zh, _ = w.FRAMES[f]
    en = en.format(n)
    if n[0] in "aeiou":
        en = en.replace(" a " + n, " an " + n)
    if f == 0:
        en = en.replace(n, plural(n))
    return ("frame", f, n), (en, zh.format(w.ZH_OF[n])), False


def translation(rng, lang, held=None):
    key, (en, zh), word = translation_pair(rng)
    forms = TO_ZH_Q if lang == EN else TO_EN_Q
    t = rng.randrange(len(forms))
    if not word and forms[t] in WORD_ONLY:
        t = 0
    source, answer = (en, zh) if lang == EN else (zh, en)
    if word and lang == EN and rng.random() < 0.1:
        source = cap(source)
    if not word and rng.random() < 0.3:
        source = source.rstrip(".。?？!！")
    if not word and lang == EN and rng.random() < 0.2:
        source = source.lower()
    # a filled frame is held out as such (never trained in any phrasing); words by phrasing
    key = ("translate", lang) + (key if key[0] == "frame" else key + (t,))
    think = f"{source} means {answer}" if lang == EN else f"{source}是{answer}"
    q = forms[t].format(source)
    if rng.random() < 0.15:
        q = rng.choice(PREFIX[EN]) + q if q[0].isascii() else q
    elif rng.random() < 0.1 and q[-1] in "?？。.":
        q = q[:-1]
    return Exchange("translation", key, q, answer, think, lang=lang)


def translation_next(rng, lang, held=None):
    """lang is the language of the source word; the wording of the follow-up varies freely."""
    i = rng.randrange(len(w.WORDS))
    en, zh = w.WORDS[i]
    source, answer = (en, zh) if lang == EN else (zh, en)
    style = rng.randrange(2)
    t = rng.randrange(len(TRANSLATE_NEXT[style]))
    return Exchange("follow_up", ("translate_next", lang, i, style, t), TRANSLATE_NEXT[style][t].format(source), answer, f"{source}: {answer}", lang=lang)


# ---------------------------------------------------------------- counting

COUNT_TO = [["Count to {n}.", "Count from 1 to {n}.", "Can you count to {n}?", "Please count up to {n}.", "Count to {n} for me.", "Let me see you count to {n}.", "List the numbers from 1 to {n}.",
             "Write the numbers 1 to {n}.", "Say the numbers from one to {n}.", "I want you to count to {n}."],
            ["数到{n}。", "从1数到{n}。", "请数到{n}。", "你能数到{n}吗？", "从一数到{n}。", "列出1到{n}的数字。"]]
COUNT_RANGE = [["Count from {a} to {b}.", "List the numbers from {a} to {b}.", "Please count from {a} up to {b}.", "Which numbers go from {a} to {b}?"], ["从{a}数到{b}。", "列出{a}到{b}的数字。", "请从{a}数到{b}。"]]
COUNT_DOWN = [["Count down from {n}.", "Count backwards from {n}.", "Count down from {n} to 1.", "Do a countdown from {n}."], ["从{n}倒数。", "从{n}倒数到1。", "请从{n}开始倒数。"]]
ITEMS_Q = [["How many items are in this list: {x}?", "How many things are there: {x}?", "Count the items: {x}", "How many words are in this list: {x}?", "Count these: {x}", "How many do you see? {x}"],
           ["这个列表里有几项：{x}？", "数一数有几个：{x}", "下面一共有几样东西：{x}？", "有几个？{x}"]]
LETTER_Q = [["How many letters are in '{x}'?", "How many letters does the word {x} have?", "Count the letters in {x}.", "How long is the word '{x}'?", "How many letters in {x}?",
             "What is the number of letters in \"{x}\"?"], ["单词 {x} 有几个字母？", "“{x}”有多少个字母？", "数一数 {x} 的字母。"]]
SEQ_Q = [["Continue the sequence: {x}", "What comes next: {x}?", "Continue: {x}, ...", "Give the next three: {x}", "Complete the series: {x}", "Which three come next? {x}", "Go on: {x} ..."],
         ["继续这个数列：{x}", "接下来是什么：{x}？", "请继续：{x}……", "写出后面三个：{x}"]]
ITEM_POOL = [[x[0] for x in w.WORDS[:170]], [x[1] for x in w.WORDS[:170]]]
SHORT_WORDS = [x[0] for x in w.WORDS]
NUMBER_WORDS = ["zero one two three four five six seven eight nine ten".split(), list(w.ZH_DIGITS)]
SEP = [", ", "、"]


def count_exchange(key, rng, q, a, think, lang):
    return Exchange("counting", key, vary(rng, q, lang, case=False), a, think, lang=lang)


def numbers(values, lang):
    return stop(", ".join(map(str, values))) if lang == EN else "，".join(map(str, values)) + "。"


def counting(rng, lang, held=None):
    kind = rng.choice(("to", "range", "down", "items", "items", "letters", "sequence", "sequence", "sequence"))
    if kind == "to":
        n, t = rng.randint(2, 30), rng.randrange(len(COUNT_TO[lang]))
        shown = NUMBER_WORDS[lang][n] if n <= 10 and rng.random() < 0.3 else n
        return count_exchange(("to", lang, n, t), rng, COUNT_TO[lang][t].format(n=shown), numbers(range(1, n + 1), lang), f"1 -> {n}", lang)
    if kind == "range":
        a = rng.randint(0, 60)
        b, t = a + rng.randint(2, 12), rng.randrange(len(COUNT_RANGE[lang]))
        return count_exchange(("range", a, b), rng, COUNT_RANGE[lang][t].format(a=a, b=b), numbers(range(a, b + 1), lang), f"{a} -> {b}", lang)
    if kind == "down":
        n, t = rng.randint(3, 20), rng.randrange(len(COUNT_DOWN[lang]))
        return count_exchange(("down", lang, n, t), rng, COUNT_DOWN[lang][t].format(n=n), numbers(range(n, 0, -1), lang), f"{n} -> 1", lang)
    if kind == "items":
        items = rng.sample(ITEM_POOL[lang], rng.randint(1, 9))
        n = len(items)
        a = (f"There {'is' if n == 1 else 'are'} {n} item{'s' if n > 1 else ''}.") if lang == EN else f"一共有{n}个。"
        sep = rng.choice((SEP[lang], SEP[lang], " ", "，" if lang else "; "))
        think = ", ".join(f"{i + 1} {x}" for i, x in enumerate(items))
        return count_exchange(("items", tuple(items)), rng, rng.choice(ITEMS_Q[lang]).format(x=sep.join(items)), a, think, lang)
    if kind == "letters":
        i, t = rng.randrange(len(SHORT_WORDS)), rng.randrange(len(LETTER_Q[lang]))
        x = SHORT_WORDS[i]
        a = f"The word '{x}' has {len(x)} letters." if lang == EN else f"单词“{x}”有{len(x)}个字母。"
        return count_exchange(("letters", lang, x, t), rng, LETTER_Q[lang][t].format(x=x), a, "-".join(x) + f": {len(x)}", lang)
    r = rng.random()
    if r < 0.65:
        step = rng.choice((1, 1, 2, 2, 3, 4, 5, 5, 10, 10, -1, -2, -5))
        start = rng.randint(0, 50) if step > 0 else rng.randint(30, 80)
        seq, n = [str(start + i * step) for i in range(8)], rng.randint(3, 5)
        key = ("sequence", start, step, n)
    else:
        table = rng.choice((w.DAYS, w.MONTHS, None))
        cycle = [d[lang] for d in table] if table else list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        start, n, t = rng.randrange(len(cycle)), rng.randint(2, 4), rng.randrange(99)
        seq, key = [cycle[(start + i) % len(cycle)] for i in range(8)], ("cycle", lang, cycle[start], n, t)
    sep = rng.choice((SEP[lang], ", ", " "))
    q = rng.choice(SEQ_Q[lang]).format(x=sep.join(seq[:n]))
    return count_exchange(key, rng, q, numbers(seq[n:n + 3], lang), "one after the other" if lang == EN else "一个接一个", lang)


# ---------------------------------------------------------------- names and other values to copy

SYLLABLES = "ba be bo da del dor el fa fin ga gri ha il jo ka kel la lin lo ma mar mi na nor o ra ren ri ro sa sel ta tor u va vin wi xa ya zor".split()


def made_up_name(rng):
    """Names of all kinds, so that copying does not depend on having seen a name before."""
    r = rng.random()
    if r < 0.35:
        return cap("".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3))))
    if r < 0.75:
        n, odd = rng.randint(3, 9), rng.random() < 0.5
        return cap("".join(rng.choice("aeiouy" if (i % 2 == 0) == odd and rng.random() < 0.85 else "bcdfghjklmnprstvwxz") for i in range(n)))
    if r < 0.85:
        return cap(rng.choice(w.WORDS)[0])
    return rng.choice(w.NAMES) + " " + cap("".join(rng.choice(SYLLABLES) for _ in range(2)))


def person(rng, lang, held):
    """A name: held-out names are never used in training."""
    while True:
        r = rng.random()
        if lang == ZH and r < 0.75:
            name = rng.choice(w.ZH_SURNAMES) + "".join(rng.choice(w.ZH_GIVEN) for _ in range(rng.randint(1, 2)))
        elif r < 0.45:
            name = rng.choice(w.NAMES)
        else:
            name = made_up_name(rng)
        if held is None or is_held("name", name) == held:
            return name


def city(rng, lang):
    return rng.choice(w.CITIES)[lang]


# ---------------------------------------------------------------- JSON forms

FIELD_TEXT = {  # field -> (value maker, clauses after the name in English, in Chinese)
    "age": (lambda rng, lang: rng.randint(3, 99), ["is {} years old", "is {}", "is aged {}", "turned {} this year"], ["今年{}岁", "{}岁", "年龄是{}岁"]),
    "city": (city, ["lives in {}", "comes from {}", "is from {}", "has a flat in {}", "moved to {}"], ["住在{}", "来自{}", "家在{}"]),
    "job": (lambda rng, lang: rng.choice(w.JOBS)[lang], ["works as a {}", "is a {}", "has a job as {}"], ["是一名{}", "职业是{}", "的工作是{}"]),
    "hobby": (lambda rng, lang: rng.choice(w.HOBBIES)[lang], ["likes {}", "loves {}", "enjoys {}"], ["喜欢{}", "爱好是{}", "热爱{}"]),
    "pet": (lambda rng, lang: rng.choice(w.ANIMALS)[lang], ["has a {}", "keeps a {} at home"], ["养了一只{}", "有一只{}"]),
    "color": (lambda rng, lang: rng.choice(w.COLORS)[lang], ["has {} as favourite color", "prefers the color {}"], ["最喜欢的颜色是{}", "最爱{}"]),
    "email": (lambda rng, lang: f"{rng.choice(w.NAMES).lower()}{rng.choice(['', rng.randint(1, 99)])}@{rng.choice(['mail', 'example', 'post'])}.{rng.choice(['com', 'org'])}",
              ["can be reached at {}", "has the email {}"], ["的邮箱是{}", "邮箱：{}"]),
    "phone": (lambda rng, lang: f"{rng.randint(100, 999)}-{rng.randint(1000, 9999)}", ["has the phone number {}", "can be called at {}"], ["的电话是{}", "电话：{}"]),
}
FORM_Q = [["Fill in the form.\nText: {t}\nForm: {f}", "{t}\nFill in this JSON: {f}", "Extract the data as JSON {f} from this text: {t}", "Read the text and complete the JSON form {f}\n{t}",
           "Complete this form: {f}\n\nText: {t}", "Please fill this JSON form from the sentence.\n{f}\n{t}", "Text: {t}\nReturn JSON like {f}", "From the sentence \"{t}\" fill {f}",
           "Use the text to fill the form {f}. Text: {t}", "Give me JSON {f} for: {t}"],
          ["根据文字填写表格。\n文字：{t}\n表格：{f}", "{t}\n请填写这个JSON：{f}", "请从下面的句子提取信息，填入 {f}\n{t}", "填表：{f}\n内容：{t}", "把这句话整理成JSON {f}：{t}"]]


def form(rng, lang, held=None):
    name = person(rng, lang, held)
    told = rng.sample(list(FIELD_TEXT), rng.randint(1, 4))
    values = {"name": name}
    clauses = []
    for f in told:
        maker, *texts = FIELD_TEXT[f]
        values[f] = maker(rng, lang)
        clauses.append(rng.choice(texts[lang]).format(values[f]))
    if lang == EN:
        style = rng.randrange(3)
        if style == 0 or len(clauses) == 1:
            text = f"{name} {clauses[0]}" + "".join(f", {c}" for c in clauses[1:-1]) + (f" and {clauses[-1]}" if len(clauses) > 1 else "") + "."
        else:
            text = f"{name} {clauses[0]}. " + " ".join(f"{rng.choice(('He', 'She')) if style == 1 else name} {c}." for c in clauses[1:])
    else:
        text = name + "，".join(clauses) + "。"
    fields = ["name"] + told
    if len(fields) > 2 and rng.random() < 0.25:  # a form may ask for less than is told ...
        fields.remove(rng.choice(fields))
    if rng.random() < 0.2:  # ... or for something that is not told
        fields.append(rng.choice([f for f in FIELD_TEXT if f not in told]))
    if rng.random() < 0.5:
        rng.shuffle(fields)
    blank = rng.choice(('""', "null", '"..."', '"?"', "types"))
    shown = ", ".join(f'"{f}": ' + (('"string"' if f != "age" else '"number"') if blank == "types" else blank) for f in fields)
    q = rng.choice(FORM_Q[lang]).format(t=text, f="{" + shown + "}")
    a = json.dumps({f: values.get(f) for f in fields}, ensure_ascii=False)
    think = "; ".join(f"{f}: {values.get(f)}" for f in fields)
    return Exchange("json_form", ("form", held_word(held, name), text), q, a, think, lang=lang)


def held_word(held, name):
    """Samples with a held-out name belong to the held-out set, all others are judged by their text."""
    return "held name" if is_held("name", name) else ""


# ---------------------------------------------------------------- tool calls


@dataclass
class Tool:
    names: list          # possible function names
    about: list          # possible descriptions
    args: list           # per argument: (possible names, type, value maker(rng, lang))
    ask: list            # questions per language, with {0}, {1} ...
    result: object       # rng, lang, values, args -> (tool message, answer)


def _weather(rng, lang, v, args):
    c = rng.choice((("sunny", "晴"), ("cloudy", "多云"), ("rainy", "有雨"), ("snowy", "有雪"), ("windy", "有风"), ("foggy", "有雾")))
    t = rng.randint(-9, 39)
    pairs = [(rng.choice(("temperature", "temp")), t), (rng.choice(("condition", "weather", "sky")), c[rng.random() < 0.5 and lang])]
    if rng.random() < 0.4:
        rng.shuffle(pairs)
    if rng.random() < 0.3:
        pairs.insert(rng.randrange(3), (args[0], v[0]))
    said = dict(pairs)
    said = said.get("condition") or said.get("weather") or said.get("sky")
    zh = c[1]
    return dict(pairs), (f"It is {t} degrees and {said} in {v[0]}." if lang == EN else f"{v[0]}现在{t}度，{zh}。")


def _time(rng, lang, v, args):
    t = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    return {"time": t}, (f"It is {t} in {v[0]}." if lang == EN else f"{v[0]}现在是{t}。")


def _done(en, zh):
    def make(rng, lang, v, args):
        return rng.choice(({"status": "ok"}, {"success": True}, {"result": "done"})), (en, zh)[lang].format(*v)
    return make


def _price(rng, lang, v, args):
    p = rng.randint(2, 999)
    return {"price": p}, (f"The price of {v[0]} is {p}." if lang == EN else f"{v[0]}的价格是{p}。")


def _people(rng, lang, v, args):
    n = rng.randint(1, 99) * 10 ** rng.randint(4, 6)
    return {"population": n}, (f"{cap(v[0])} has {n} inhabitants." if lang == EN else f"{v[0]}有{n}人口。")


def _exchange(rng, lang, v, args):
    r = rng.randint(2, 9999)
    return {"result": r}, (f"{v[0]} {v[1]} is {r} {v[2]}." if lang == EN else f"{v[0]} {v[1]}等于{r} {v[2]}。")


def _dice(rng, lang, v, args):
    r = rng.randint(1, v[0])
    return {"value": r}, (f"You rolled a {r}." if lang == EN else f"你掷出了{r}。")


def _number(lo, hi):
    return lambda rng, lang: rng.randint(lo, hi)


def _pick(*values):
    return lambda rng, lang: rng.choice(values)


def _clock(rng, lang):
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"


def _country(rng, lang):
    row = rng.choice(w.COUNTRIES)
    return row[2] if lang else row[0]


CITY_ARG = (["city", "location", "place", "town", "city_name"], "string", city)
TOOLS = [
    Tool(["get_weather", "weather", "current_weather", "get_current_weather", "weather_lookup"],
         ["Get the weather of a city", "Current weather", "Look up the weather in a place"], [CITY_ARG],
         [["What is the weather in {0}?", "How is the weather in {0}?", "What's the weather like in {0}?", "Is it raining in {0}?", "Weather in {0}?", "How warm is it in {0}?", "Tell me the weather in {0} today.",
           "Do I need an umbrella in {0}?", "Check the weather in {0}."],
          ["{0}的天气怎么样？", "{0}今天天气如何？", "查一下{0}的天气。", "{0}冷吗？", "{0}现在多少度？", "{0}下雨了吗？"]], _weather),
    Tool(["get_time", "current_time", "time_in_city", "clock"], ["Get the time in a city", "Current local time"], [CITY_ARG],
         [["What time is it in {0}?", "What is the time in {0}?", "Tell me the time in {0}.", "Current time in {0}?", "How late is it in {0}?"], ["{0}现在几点？", "{0}几点了？", "查一下{0}的时间。"]], _time),
    Tool(["set_alarm", "create_alarm", "alarm"], ["Set an alarm", "Create an alarm for a time"], [(["time", "at", "clock_time"], "string", _clock)],
         [["Set an alarm for {0}.", "Wake me up at {0}.", "I need an alarm at {0}.", "Please set my alarm to {0}."], ["帮我设一个{0}的闹钟。", "{0}叫我起床。", "设置{0}的闹钟。"]],
         _done("Your alarm is set for {0}.", "闹钟已设为{0}。")),
    Tool(["play_music", "play", "music_player"], ["Play music", "Play music of a kind"], [(["genre", "style", "kind"], "string", _pick("jazz", "rock", "pop", "folk", "classical", "blues"))],
         [["Play some {0} music.", "I want to hear {0}.", "Put on some {0}, please.", "Play {0}."], ["播放{0}音乐。", "我想听{0}。", "放一点{0}。"]],
         _done("Now playing {0} music.", "正在播放{0}音乐。")),
    Tool(["send_message", "message", "send_text"], ["Send a message to a person", "Send a short message"],
         [(["to", "recipient", "name"], "string", lambda rng, lang: person(rng, lang, False)),
          (["text", "message", "body"], "string", lambda rng, lang: rng.choice((("hello", "你好"), ("I am late", "我迟到了"), ("see you tomorrow", "明天见"), ("happy birthday", "生日快乐"), ("call me", "给我打电话"), ("dinner is ready", "晚饭好了"), ("good luck", "祝你好运")))[lang])],
         [["Send {0} the message '{1}'.", "Tell {0}: {1}", "Write to {0}: {1}", "Send a message to {0} saying {1}"], ["给{0}发消息：{1}", "告诉{0}：{1}", "发信息给{0}，内容是{1}"]],
         _done("I sent your message to {0}.", "已经给{0}发送了消息。")),
    Tool(["get_price", "stock_price", "price_lookup"], ["Get the price of a stock", "Look up a price"], [(["symbol", "ticker", "item"], "string", lambda rng, lang: "".join(rng.choice("ABCDEFGHIKLMNOPRSTVXYZ") for _ in range(rng.randint(2, 4))))],
         [["What is the price of {0}?", "How much does {0} cost?", "Stock price of {0}?", "Look up {0}'s price."], ["{0}的价格是多少？", "查一下{0}的股价。", "{0}多少钱？"]], _price),
    Tool(["get_population", "population", "count_people"], ["Get the population of a country", "Number of people in a country"], [(["country", "nation"], "string", _country)],
         [["What is the population of {0}?", "How many people live in {0}?", "Population of {0}?", "How many inhabitants does {0} have?"], ["{0}有多少人口？", "{0}的人口是多少？", "查一下{0}的人口。"]], _people),
    Tool(["convert_currency", "currency", "exchange"], ["Convert money", "Convert an amount into another currency"],
         [(["amount", "value"], "integer", _number(1, 999)), (["from", "source"], "string", _pick("USD", "EUR", "CNY")), (["to", "target"], "string", _pick("JPY", "GBP", "CHF"))],
         [["Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?", "Change {0} {1} into {2}.", "What are {0} {1} in {2}?"], ["{0} {1}等于多少{2}？", "把{0} {1}换成{2}。"]], _exchange),
    Tool(["roll_dice", "dice", "roll"], ["Roll a die", "Roll a die with some sides"], [(["sides", "faces"], "integer", _pick(4, 6, 8, 10, 12, 20))],
         [["Roll a die with {0} sides.", "Roll a {0}-sided die.", "Throw a die with {0} faces."], ["掷一个{0}面的骰子。", "扔一个{0}面骰子。"]], _dice),
    Tool(["turn_light", "set_light", "light"], ["Switch a lamp on or off", "Control the light"], [(["room", "where"], "string", lambda rng, lang: rng.choice((("kitchen", "厨房"), ("bedroom", "卧室"), ("office", "办公室"), ("bathroom", "浴室"), ("garage", "车库")))[lang]), (["state", "mode"], "string", _pick("on", "off"))],
         [["Turn {1} the light in the {0}.", "Switch the {0} lamp {1}.", "Light {1} in the {0}, please."], ["{0}的灯，状态{1}。", "把{0}的灯设为{1}。"]],
         _done("The light in the {0} is {1}.", "{0}的灯现在是{1}。")),
]


def tool_spec(tool, name, args, about):
    """The tool in the form of OpenAI's chat API."""
    props = {a: {"type": kind} for a, (_, kind, _) in zip(args, tool.args)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": {"type": "object", "properties": props, "required": list(args)}}}


def draw_tools(rng, n=None):
    """Some tools with the names they have in this conversation: (tool, argument names, spec)."""
    out = []
    for tool in rng.sample(TOOLS, n or rng.randint(1, 4)):
        args = [rng.choice(a[0]) for a in tool.args]
        name = rng.choice(tool.names)
        out.append((tool, args, tool_spec(tool, name, args, rng.choice(tool.about))))
    return out


def tool_call(rng, lang, held, drawn):
    """A question for one of the drawn tools, the call, the tool's result and the answer in words."""
    tool, args, spec = rng.choice(drawn)
    values = [maker(rng, lang) for _, _, maker in tool.args]
    t = rng.randrange(len(tool.ask[lang]))
    q = vary(rng, tool.ask[lang][t].format(*values), lang, case=False)
    name = spec["function"]["name"]
    call = call_text(name, dict(zip(args, values)))
    result, answer = tool.result(rng, lang, values, args)
    r = rng.random()
    text = json.dumps(result, ensure_ascii=False) if r < 0.8 else json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    steps = [{"role": "assistant", "content": call}, {"role": "tool", "content": text}]
    return Exchange("tool_call", ("tool", name, t, tuple(map(str, values))), q, answer, f"I call {name}." if lang == EN else f"我调用{name}。", steps, lang)


NO_TOOL_A = ["Sorry, I cannot do that without a tool.", "对不起，没有工具我做不到。"]


def tool_missing(rng, lang, held, drawn=()):
    """A question for a tool that the conversation does not offer."""
    tool = rng.choice([t for t in TOOLS if all(t is not d[0] for d in drawn)])
    values = [maker(rng, lang) for _, _, maker in tool.args]
    t = rng.randrange(len(tool.ask[lang]))
    q = vary(rng, tool.ask[lang][t].format(*values), lang, case=False)
    think = "I have no tool for this." if lang == EN else "我没有这个工具。"
    return Exchange("unknown", ("no tool", lang, TOOLS.index(tool), t, tuple(map(str, values))), q, NO_TOOL_A[lang], think, lang=lang)


def call_text(name, arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


# ---------------------------------------------------------------- small talk

GREET = [
    (["Hello!", "Hi!", "Hey!", "Hi there!", "Hello", "hi", "Good morning!", "Good day!", "Greetings!", "hello there", "Hey, anyone there?", "Good evening!"],
     ["你好！", "你好", "嗨！", "您好！", "早上好！", "大家好！", "晚上好！", "哈喽"],
     "Hello! I am Skiff's demo model. How can I help you?", "你好！我是 Skiff 的演示模型。有什么可以帮你的吗？"),
    (["Who are you?", "What are you?", "What is your name?", "Who am I talking to?", "Introduce yourself.", "Tell me about yourself.", "Are you a robot?", "What's your name?", "Who made you?", "Which model are you?",
      "Are you ChatGPT?", "Are you human?", "What model is this?"],
     ["你是谁？", "你叫什么名字？", "介绍一下你自己。", "你是机器人吗？", "你是什么模型？", "你是人吗？", "谁创造了你？"],
     "I am Skiff's demo model, a very small language model.", "我是 Skiff 的演示模型，一个非常小的语言模型。"),
    (["What can you do?", "What do you know?", "How can you help me?", "What are your skills?", "What should I ask you?", "Help", "Help me.", "What are you good at?", "What can I ask?", "What are you able to do?"],
     ["你会什么？", "你能做什么？", "你知道什么？", "你有什么本领？", "我可以问你什么？", "帮助"],
     "I know capitals, small sums, translations between English and Chinese, counting, JSON forms and tool calls.", "我会首都、简单算术、中英翻译、数数、填写 JSON 表格和调用工具。"),
    (["How are you?", "How are you doing?", "How do you do?", "How is it going?", "Are you fine?", "What's up?", "How are you today?"],
     ["你好吗？", "你怎么样？", "最近怎么样？", "你今天好吗？"],
     "I am fine, thank you. What can I do for you?", "我很好，谢谢。我能为你做什么？"),
    (["Thank you!", "Thanks!", "Thanks a lot.", "Thank you very much!", "thx", "Great, thanks!", "That helped, thank you.", "Well done!", "Good job!", "Perfect, thanks."],
     ["谢谢！", "谢谢你。", "非常感谢！", "多谢", "太好了，谢谢。", "做得好！"],
     "You are welcome!", "不客气！"),
    (["Goodbye!", "Bye!", "See you!", "bye bye", "Good night!", "See you later.", "That's all, bye.", "I have to go.", "Farewell!"],
     ["再见！", "拜拜", "晚安！", "下次见。", "我走了。"],
     "Goodbye! It was nice talking to you.", "再见！和你聊天很愉快。"),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Say something funny.", "A joke, please!", "Can you tell me a joke?"],
     ["讲个笑话。", "你会讲笑话吗？", "说点好笑的。"],
     "Why did the skiff stop? It had no more tokens to row with!", "小船为什么停下来了？因为它没有词元可以划了！"),
    (["Do you like boats?", "What is a skiff?", "What is Skiff?", "What does skiff mean?", "Tell me about Skiff."],
     ["Skiff 是什么？", "skiff 是什么意思？", "介绍一下 Skiff。"],
     "A skiff is a small, fast boat. Skiff is also the engine that runs me.", "skiff 是一种轻快的小船。Skiff 也是运行我的推理引擎。"),
]


def greeting(rng, lang, held=None):
    g = rng.randrange(len(GREET))
    t = rng.randrange(len(GREET[g][lang]))
    base = GREET[g][lang][t]
    q = vary(rng, base, lang) if rng.random() < 0.7 else base
    return Exchange("small_talk", ("greet", lang, g, q), q, GREET[g][2 + lang], "This is small talk." if lang == EN else "这是闲聊。", lang=lang)


# ---------------------------------------------------------------- unknown things

UNKNOWN_Q = [
    ["Tell me about {}.", "What is {}?", "Explain {} to me.", "What do you know about {}?", "Write a poem about {}.", "Who invented {}?", "Write an essay about {}.", "Why is {} important?", "How does {} work?",
     "Give me a summary of {}.", "What is the history of {}?", "When did {} begin?", "Who is the best at {}?", "Can you teach me {}?", "I want to learn about {}.", "What is your opinion on {}?", "Write a story about {}.",
     "Is {} dangerous?", "How can I get better at {}?", "What are the latest news about {}?", "Recommend a book about {}.", "Describe {} in detail."],
    ["给我讲讲{}。", "什么是{}？", "解释一下{}。", "写一首关于{}的诗。", "谁发明了{}？", "{}为什么重要？", "{}是怎么回事？", "你对{}有什么看法？", "我想学习{}。", "写一篇关于{}的文章。", "{}的历史是什么？", "推荐一本关于{}的书。"]]
UNKNOWN_A = ["Sorry, I do not know that. I only know capitals, small sums, translations, counting, JSON forms and tool calls.",
             "对不起，我不知道。我只会首都、简单算术、翻译、数数、填写 JSON 表格和调用工具。"]
FAKE_A = ["Sorry, I do not know the capital of {}.", "对不起，我不知道{}的首都。"]
OTHER_Q = [["What is the largest city of {}?", "Who is the president of {}?", "What language do they speak in {}?", "Which sea is near {}?", "What do people eat in {}?", "What is the flag of {}?", "How big is {}?", "What is the currency of {}?"],
           ["{}最大的城市是哪里？", "{}的总统是谁？", "{}人说什么语言？", "{}的国旗是什么样的？", "{}的货币是什么？", "{}有多大？"]]


def unknown(rng, lang, held=None):
    r = rng.random()
    think = "I have not learned this." if lang == EN else "这个我没有学过。"
    if r < 0.5:
        i, t = rng.randrange(len(w.TOPICS)), rng.randrange(len(UNKNOWN_Q[lang]))
        return Exchange("unknown", ("unknown", lang, i, t), vary(rng, UNKNOWN_Q[lang][t].format(w.TOPICS[i][lang]), lang), UNKNOWN_A[lang], think, lang=lang)
    if r < 0.62:
        (i, row), t = rng.choice(COUNTRY_IDS), rng.randrange(len(OTHER_Q[lang]))
        return Exchange("unknown", ("other", lang, i, t), vary(rng, OTHER_Q[lang][t].format(row[2] if lang else row[0]), lang), UNKNOWN_A[lang], think, lang=lang)
    if r < 0.88:
        i = rng.randrange(len(w.CHATTER[lang]))
        q = vary(rng, w.CHATTER[lang][i], lang)
        return Exchange("unknown", ("chatter", lang, q), q, UNKNOWN_A[lang], think, lang=lang)
    place = rng.choice(w.FAKE_PLACES) if rng.random() < 0.6 else made_up_name(rng)
    t = rng.randrange(len(CAPITAL_Q[lang]))
    q = CAPITAL_Q[lang][t].format(place)
    return Exchange("unknown", ("fake", lang, place, t), vary(rng, q, lang, case=False), FAKE_A[lang].format(place), think, lang=lang)


# ---------------------------------------------------------------- memory

MEMORY = {  # kind -> (value maker, statements, acknowledgement, questions, answer, answer if never told), each per language
    "name": (None,
             [["My name is {}.", "I am {}.", "I'm {}.", "Hi, I'm {}.", "Hello, my name is {}.", "You can call me {}.", "Call me {}.", "My friends call me {}.", "{} is my name."],
              ["我叫{}。", "我是{}。", "我的名字是{}。", "你好，我叫{}。", "叫我{}吧。", "大家叫我{}。"]],
             ["Nice to meet you, {}!", "很高兴认识你，{}！"],
             [["What is my name?", "What's my name?", "Do you remember my name?", "Who am I?", "Can you tell me my name?", "How am I called?", "Say my name.", "Do you know who I am?"],
              ["我叫什么名字？", "我叫什么？", "你记得我的名字吗？", "我是谁？", "我的名字是什么？"]],
             ["Your name is {}.", "你叫{}。"], ["You have not told me your name yet.", "你还没有告诉我你的名字。"]),
    "city": (city,
             [["My favourite city is {}.", "My favorite city is {}.", "I love the city of {}.", "The city I like best is {}.", "{} is my favourite city."], ["我最喜欢的城市是{}。", "我最爱的城市是{}。", "{}是我最喜欢的城市。"]],
             ["{} is a lovely city!", "{}是个好地方！"],
             [["What is my favourite city?", "What's my favorite city?", "Which city do I like best?", "Do you remember my favourite city?", "Which city do I love?"], ["我最喜欢的城市是哪里？", "我最喜欢哪个城市？", "你记得我最喜欢的城市吗？"]],
             ["Your favourite city is {}.", "你最喜欢的城市是{}。"], ["You have not told me your favourite city yet.", "你还没有告诉我你最喜欢的城市。"]),
    "color": (lambda rng, lang: rng.choice(w.COLORS)[lang],
              [["My favourite color is {}.", "My favorite color is {}.", "My favourite colour is {}.", "The color I like best is {}.", "I like the color {} most."], ["我最喜欢的颜色是{}。", "我最爱{}。", "{}是我最喜欢的颜色。"]],
              ["{} is a nice color!", "{}很好看！"],
              [["What is my favourite color?", "What's my favorite color?", "Which color do I like best?", "Do you remember my favourite color?"], ["我最喜欢的颜色是什么？", "我最喜欢什么颜色？", "你记得我最喜欢的颜色吗？"]],
              ["Your favourite color is {}.", "你最喜欢的颜色是{}。"], ["You have not told me your favourite color yet.", "你还没有告诉我你最喜欢的颜色。"]),
    "food": (lambda rng, lang: rng.choice(w.FOODS)[lang],
             [["My favourite food is {}.", "My favorite food is {}.", "I like to eat {} most.", "The food I love is {}."], ["我最喜欢的食物是{}。", "我最爱吃{}。", "我最喜欢吃{}。"]],
             ["{} sounds delicious!", "{}听起来很好吃！"],
             [["What is my favourite food?", "What's my favorite food?", "What do I like to eat?", "Which food do I love?"], ["我最喜欢的食物是什么？", "我最爱吃什么？", "我喜欢吃什么？"]],
             ["Your favourite food is {}.", "你最喜欢的食物是{}。"], ["You have not told me your favourite food yet.", "你还没有告诉我你最喜欢的食物。"]),
    "pet": (lambda rng, lang: rng.choice(w.ANIMALS)[lang],
            [["I have a {}.", "My pet is a {}.", "At home I have a {}.", "I keep a {} as a pet."], ["我有一只{}。", "我养了一只{}。", "我的宠物是{}。"]],
            ["A {} is a great pet!", "{}是很好的宠物！"],
            [["What pet do I have?", "Which animal do I have?", "What is my pet?", "Do you remember my pet?"], ["我的宠物是什么？", "我养了什么动物？", "你记得我的宠物吗？"]],
            ["You have a {}.", "你有一只{}。"], ["You have not told me about a pet yet.", "你还没有告诉我你的宠物。"]),
    "age": (lambda rng, lang: rng.randint(5, 99),
            [["I am {} years old.", "I'm {} years old.", "My age is {}."], ["我今年{}岁。", "我{}岁了。", "我的年龄是{}岁。"]],
            ["So you are {} years old. Noted!", "你{}岁了，记住了！"],
            [["How old am I?", "What is my age?", "Do you remember how old I am?"], ["我多大了？", "我今年几岁？", "你记得我多大吗？"]],
            ["You are {} years old.", "你今年{}岁。"], ["You have not told me your age yet.", "你还没有告诉我你的年龄。"]),
}


def tell(rng, lang, held, kind):
    maker, statements, ack, *_ = MEMORY[kind]
    value = person(rng, lang, held) if kind == "name" else maker(rng, lang)
    t = rng.randrange(len(statements[lang]))
    e = Exchange("memory", ("tell", lang, kind, str(value), t), statements[lang][t].format(value), cap(ack[lang].format(value)), "The user tells me something." if lang == EN else "用户告诉了我一件事。", lang=lang)
    return e, value


def recall(rng, lang, known, kind):
    """Asks for a value told earlier; known maps (kind, language) to the value."""
    _, _, _, questions, answer, missing = MEMORY[kind]
    q = vary(rng, rng.choice(questions[lang]), lang)
    value = known.get((kind, lang))
    a = missing[lang] if value is None else answer[lang].format(value)
    return Exchange("memory", ("recall", lang, kind, str(value)), q, a, "I look at what was said before." if lang == EN else "我看看前面说过的话。", lang=lang)


SINGLE = [(capital, 22), (reverse_capital, 6), (check_capital, 4), (arithmetic, 26), (too_big, 3), (arithmetic_steps, 5), (translation, 22), (counting, 16), (form, 14), (greeting, 5), (unknown, 6), (tool_missing, 4)]


def single(rng, lang, held):
    """A self-contained exchange of any skill from the wanted side of the split."""
    make = rng.choices([m for m, _ in SINGLE], [n for _, n in SINGLE])[0]
    return draw(make, rng, lang, held)


def belongs(e, held):
    """Whether the exchange lies on the wanted side; trained answers never use held-out names."""
    return ("held name" in e.key or is_held(*e.key)) == held


def plain_text(rng):
    """Facts without a chat around them, for plain completion."""
    lines = []
    for _ in range(rng.randint(1, 6)):
        lang = ZH if rng.random() < 0.3 else EN
        e = draw(capital if rng.random() < 0.6 else arithmetic, rng, lang, False)
        lines.append(e.answer)
    return "\n".join(lines)


class NothingLeft(Exception):
    """The wanted side of the split holds no such exchange (or next to none)."""


def draw(make, rng, lang, held, *args):
    for _ in range(1000):
        e = make(rng, lang, held, *args)
        if belongs(e, held):
            return e
    raise NothingLeft


if __name__ == "__main__":
    rng = random.Random(0)
    for _ in range(40):
        e = single(rng, rng.choice((EN, EN, ZH)), False)
        print(f"[{e.skill}] {e.user!r} -> {e.answer!r}   ({e.think})")
    for _ in range(6):
        print(tool_call(rng, EN, False, draw_tools(rng)))
