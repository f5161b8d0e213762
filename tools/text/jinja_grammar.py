"""Random small templates from a grammar of the language: typed expressions, mostly sound, now and
then of the wrong type, inside every kind of statement. The same seed gives the same templates."""
import random

VARIABLES = {
    "s": "Hello, World", "t": "  spaced\tout \n", "u": "Grüße ßtraße 世界 🎉 Ёж", "e": "",
    "html": "<a href=\"x\">Tom & 'Jerry'</a> <!-- c --> &lt;", "w": "a-b c--d well-known e.g. foo_bar",
    "multi": "one\n\n  two\r\nthree\n", "num": "42", "fnum": "-3.5e2",
    "i": 7, "neg": -3, "zero": 0, "big": 1234567890123, "f": 2.5, "g": -0.1, "h": 1e21, "one": 1.0,
    "yes": True, "no": False, "nothing": None,
    "ints": [3, 1, 2, 1], "floats": [0.5, -1.25, 3.0], "strs": ["pear", "Apple", "fig", "apple", ""],
    "mixed": [1, "a", None, True, 2.5, [1, 2], {"k": "v"}], "empty": [], "pairs": [["a", 1], ["b", 2]],
    "nested": [[1, [2, 3]], [], [[4]]],
    "d": {"b": 1, "a": {"x": [1, {"y": "z"}]}, "C": None, "items": "shadow", "_p": 5},
    "ed": {}, "counts": {"x": 3, "Y": 1, "z": 2},
    "users": [{"name": "bob", "age": 30, "tags": ["x", "y"]}, {"name": "Al", "age": 25},
              {"name": "cy", "age": 30, "tags": []}, {"name": "BOB", "age": 1, "a": {"b": 2}}],
    "messages": [{"role": "system", "content": " Be brief. "},
                 {"role": "user", "content": "Hi <b> & \"you\"\n"},
                 {"role": "assistant", "content": None, "tool_calls": [
                     {"function": {"name": "f", "arguments": {"x": 1.5, "y": "é\u2028"}}}]},
                 {"role": "tool", "content": "{\"a\": [1, 2]}"}],
    "max64": 18446744073709551615,
}
BY_TYPE = {
    "str": ["s", "t", "u", "e", "html", "w", "multi", "num", "fnum"],
    "int": ["i", "neg", "zero", "big"], "float": ["f", "g", "h", "one"], "bool": ["yes", "no"],
    "list": ["ints", "floats", "strs", "mixed", "empty", "pairs", "nested", "users", "messages"],
    "ints": ["ints"], "strs": ["strs"], "dicts": ["users", "messages"], "dict": ["d", "ed", "counts"],
    "any": ["nothing", "max64", "yes", "i", "f", "s", "ints", "d", "users", "t", "missing"],
}
FORMATS = ["%s", "%5s|", "%-6s|", "%r", "%.2s", "%s-%s", "%%", "%5%"]
NUMBER_FORMATS = ["%d", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%x", "%X", "%#x", "%o", "%f", "%.2f", "%8.3f|",
                  "%e", "%.1e", "%g", "%G", "%i", "%.3d", "%#o", "%c", "%+08.2f", "%s"]
SPECS = ["", ":", ":>8", ":<8", ":^9", ":*^9", ":8", ":.3", "!r", "!s:>9", "!r:^12"]
NUMBER_SPECS = [":d", ":5d", ":05d", ":+d", ": d", ":x", ":#x", ":X", ":b", ":#b", ":o", ":,", ":_", ":.2f", ":8.2f",
                ":+.1e", ":g", ":G", ":%", ":.1%", ":>10", ":=+8d", ":e", ":.4", ":.3g", ":08.3f", ":,.2f",
                ":c", ":n", ":010,", ":_x", ":F", ":#o", ":<6", ":^7.1f", ":.0f", ":#.3g", ":s"]


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = []       # [(name, type)] set by the template
        self.macros = []      # [(name, number of parameters)]
        self.loops = 0
        self.nesting = 0

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    # Expressions. Each method returns source text of the type it is named after.

    def expr(self, kind=None, depth=3):
        kind = kind or self.pick("str", "str", "int", "float", "bool", "list", "dict", "any", "dicts")
        if self.chance(0.03):
            kind = self.pick("str", "int", "list", "dict", "any")
        if depth <= 0 or self.chance(0.2):
            return self.leaf(kind)
        text = getattr(self, "make_" + kind)(depth - 1)
        return f"({text})" if self.chance(0.95) else text

    def leaf(self, kind):
        own = [name for name, its in self.names if its == kind]
        if own and self.chance(0.4):
            return self.r.choice(own)
        literals = {
            "str": lambda: self.string(), "int": lambda: str(self.r.randint(0, 12)),
            "float": lambda: self.pick("1.5", "0.1", "2e3", "1e-7", "3.0", "100.0"),
            "bool": lambda: self.pick("true", "false", "True", "False"),
            "list": lambda: self.pick("[]", "[1, 'a']", "(1, 2)", "range(4)", "['b', 'a']", "()"),
            "ints": lambda: self.pick("[2, 1]", "range(1, 6, 2)", "[1]"),
            "strs": lambda: self.pick("['b', 'A', 'c']", "['x']"),
            "dict": lambda: self.pick("{}", "{'a': 1, 'b': [2]}", "{1: 'x', 'y': none}"),
            "dicts": lambda: "[{'a': 1}, {'a': 2}]", "any": lambda: self.pick("none", "1", "''"),
        }
        if self.loops and kind == "int" and self.chance(0.3):
            return self.pick("loop.index", "loop.index0", "loop.revindex", "loop.length", "loop.depth")
        if self.loops and kind == "bool" and self.chance(0.3):
            return self.pick("loop.first", "loop.last", "loop.changed(i)")
        return literals[kind]() if self.chance(0.4) else self.r.choice(BY_TYPE[kind])

    def string(self):
        return self.pick("'a'", "'b c'", '"q\'s"', r"'\n'", "''", "'<|im_start|>'", "'é世'", r"'\t\x41\u00e9'", "'x' 'y'",
                         "'a,b,c'", "'Z'", "'l'", "' '")

    def make_str(self, n):
        e = self.expr
        make = self.r.choice([
            lambda: f"{e('str', n)} ~ {e(None, n)}", lambda: f"{e('str', n)} + {e('str', n)}",
            lambda: f"{e('str', n)} * {self.r.randint(-1, 3)}", lambda: f"{e('str', n)}{self.slice()}",
            lambda: f"{e('str', n)}[{self.r.randint(-3, 3)}]",
            lambda: f"{e('str', n)}.{self.str_method(n)}",
            lambda: f"{e('str', n)} | {self.str_filter(n)}",
            lambda: f"{e(None, n)} | string", lambda: f"{e(self.pick('list', 'dict', 'dicts', 'any'), n)} | tojson{self.json_args()}",
            lambda: f"{e('list', n)} | join({e('str', 0)})", lambda: f"{e('str', 0)}.join({e('strs', n)})",
            lambda: f"'{self.pick(*FORMATS)}' % {e(None, n)}", lambda: f"'{self.pick(*NUMBER_FORMATS)}' % {e(self.pick('int', 'float'), n)}",
            lambda: f"'%s:%s' % ({e(None, n)}, {e(None, n)})", lambda: f"'%(b)s %(a)s' % {e('dict', n)}",
            lambda: f"'{{{self.pick('', '0')}{self.pick(*SPECS)}}}'.format({e(None, n)})",
            lambda: f"'{{{self.pick(*NUMBER_SPECS)}}}'.format({e(self.pick('int', 'float', 'int', 'bool'), n)})",
            lambda: f"'{{}}{{x.a}}{{x[b]}}{{1:>{{2}}}}'.format(1, 2, 3, x={e('dict', n)})"
            if self.chance(0.3) else f"'{{0}}-{{1}}-{{k}}'.format({e(None, n)}, {e(None, n)}, k={e('str', n)})",
            lambda: f"{e('str', n)} if {e('bool', n)} else {e('str', n)}", lambda: f"{e('str', n)} or {e('str', n)}",
            lambda: f"{e('dicts', n)} | map(attribute={self.pick(repr('name'), repr('role'), repr('a.b'))}) | join('/')",
            lambda: f"{e('any', n)} | default({e('str', 0)}{self.pick('', ', true')})",
            lambda: f"{e('list', n)} | pprint" if self.chance(0.5) else f"{e('dict', n)} | pprint",
            lambda: f"{e('dict', n)} | xmlattr" if self.chance(0.4) else f"{e('dict', n)} | urlencode",
            lambda: f"{e(self.pick('int', 'float'), n)} | filesizeformat{self.pick('', '(true)')}",
        ])
        return make()

    def str_method(self, n):
        arg = lambda: self.expr("str", min(n, 1))
        return self.r.choice([
            lambda: "upper()", lambda: "lower()", lambda: "title()", lambda: "capitalize()", lambda: "swapcase()",
            lambda: "casefold()", lambda: f"strip({self.pick('', arg())})", lambda: f"lstrip({self.pick('', arg())})",
            lambda: f"rstrip({self.pick('', arg())})", lambda: f"replace({arg()}, {arg()})",
            lambda: f"replace({arg()}, {arg()}, {self.r.randint(-1, 2)})", lambda: f"center({self.r.randint(0, 15)}, '*')",
            lambda: f"ljust({self.r.randint(0, 15)})", lambda: f"rjust({self.r.randint(0, 15)}, '.')",
            lambda: f"zfill({self.r.randint(0, 9)})", lambda: f"removeprefix({arg()})", lambda: f"removesuffix({arg()})",
            lambda: f"expandtabs({self.pick('', '4')})", lambda: "format(1)", lambda: "__class__", lambda: "nosuch",
        ])()

    def str_filter(self, n):
        arg = lambda: self.expr("str", min(n, 1))
        flag = lambda: self.pick("true", "false")
        return self.r.choice([
            lambda: "upper", lambda: "lower", lambda: "title", lambda: "capitalize", lambda: "trim", lambda: f"trim({arg()})",
            lambda: f"replace({arg()}, {arg()})", lambda: f"indent({self.pick('', '2', '3, true', 'width=1, blank=true', repr('> '))})",
            lambda: f"truncate({self.r.randint(3, 15)}, {flag()}, {self.pick(repr('...'), repr('…'))}, {self.r.randint(0, 4)})",
            lambda: f"center({self.r.randint(0, 20)})", lambda: "escape", lambda: "e", lambda: "safe", lambda: "forceescape",
            lambda: "urlencode", lambda: "striptags", lambda: f"wordwrap({self.r.randint(1, 12)}, {flag()})",
            lambda: f"wordwrap({self.r.randint(1, 9)}, break_on_hyphens={flag()}, wrapstring='/')", lambda: "reverse",
            lambda: "string", lambda: "first", lambda: "last", lambda: f"format({self.expr(None, 0)})", lambda: "pprint",
            lambda: f"attr({self.pick(repr('upper'), repr('__class__'))})", lambda: "nosuch" if self.chance(0.2) else "upper",
        ])()

    def json_args(self):
        return self.r.choice(["", "", "(indent=2)", "(ensure_ascii=true)", "(sort_keys=true)", "(separators=(',', ':'))",
                              "(indent=0)", "(indent='\\t')", "(true, 1)"])

    def slice(self):
        part = lambda: self.pick("", "", "0", "1", "2", "-1", "-2", "5", "none")
        return f"[{part()}:{part()}{self.pick('', '', ':', ':2', ':-1', ':-2', ':1')}]"

    def make_int(self, n):
        e = self.expr
        return self.r.choice([
            lambda: f"{e('int', n)} {self.pick('+', '-', '//', '%')} {e('int', n)}", lambda: f"{e('int', 0)} * {self.r.randint(-3, 9)}",
            lambda: f"-{e('int', n)}", lambda: f"{e('int', n)} | abs", lambda: f"{e(self.pick('str', 'list', 'dict'), n)} | length",
            lambda: f"{e(self.pick('str', 'float', 'any'), n)} | int{self.pick('', '(9)', '(default=1, base=16)')}",
            lambda: f"{self.r.randint(-3, 3)} ** {self.r.randint(0, 5)}", lambda: f"{e('ints', n)} | {self.pick('sum', 'max', 'min', 'first', 'last')}",
            lambda: f"{e('str', n)}.{self.pick('find', 'rfind', 'count', 'index')}({e('str', 0)}{self.pick('', ', 1', ', -3, 5')})",
            lambda: f"{e('str', n)} | wordcount", lambda: f"{e('list', n)}.{self.pick('count', 'index')}({e('int', 0)})",
            lambda: f"{e('bool', n)} + {e('int', n)}", lambda: f"{e('dicts', n)} | sum(attribute='age')",
            lambda: f"{e('int', n)} if {e('bool', n)}" if self.chance(0.2) else f"{e('int', n)} if {e('bool', n)} else {e('int', n)}",
        ])()

    def make_float(self, n):
        e = self.expr
        number = lambda: e(self.pick("int", "float"), n)
        return self.r.choice([
            lambda: f"{number()} / {number()}", lambda: f"{e('float', n)} {self.pick('+', '-', '*', '//', '%')} {number()}",
            lambda: f"{number()} | round({self.pick('', '1', '2', '-1', repr(0) + ', ' + repr('ceil'), '1, ' + repr('floor'))})",
            lambda: f"{e(self.pick('str', 'int'), n)} | float{self.pick('', '(0.5)')}", lambda: f"{e('float', n)} ** 2",
            lambda: f"-{e('float', n)}", lambda: f"{e('float', n)} | abs", lambda: "floats | sum",
        ])()

    def make_bool(self, n):
        e = self.expr
        tests = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence",
                 "iterable", "true", "false", "callable", "escaped"]
        return self.r.choice([
            lambda: f"{e(None, n)} is {self.pick('', 'not ')}{self.r.choice(tests)}",
            lambda: f"{e('int', n)} is {self.pick('odd', 'even', 'divisibleby 3', 'divisibleby(2)', 'gt 1', 'eq(2)', 'in [1, 2]')}",
            lambda: f"{e('str', n)} is {self.pick('lower', 'upper', 'filter', 'test', 'in strs', 'eq s')}",
            lambda: f"{e(self.pick('int', 'float'), n)} {self.pick('<', '>', '<=', '>=', '==', '!=')} {e(self.pick('int', 'float'), n)}",
            lambda: f"{e('str', n)} {self.pick('<', '==', '!=', 'in', 'not in')} {e('str', n)}",
            lambda: f"{e(None, 0)} {self.pick('in', 'not in')} {e(self.pick('list', 'dict'), n)}",
            lambda: f"not {e(None, n)}", lambda: f"{e('bool', n)} {self.pick('and', 'or')} {e('bool', n)}",
            lambda: f"{e('str', n)}.{self.pick('isalpha', 'isdigit', 'isspace', 'isupper', 'islower', 'isalnum', 'istitle', 'isnumeric', 'isdecimal', 'isidentifier', 'isascii', 'isprintable')}()",
            lambda: f"{e('str', n)}.{self.pick('startswith', 'endswith')}({self.pick(e('str', 0), '(' + e('str', 0) + ', ' + e('str', 0) + ')')})",
            lambda: f"{e(None, n)} == {e(None, n)}", lambda: f"1 < {e('int', n)} <= 7", lambda: f"{e('list', n)} < {e('list', n)}",
            lambda: f"{e(None, n)} is {self.pick('sameas none', 'sameas true', 'eq none')}",
        ])()

    def make_list(self, n):
        e = self.expr
        return self.r.choice([
            lambda: f"[{e(None, n)}, {e(None, n)}]", lambda: f"({e(None, n)},)", lambda: f"{e('list', n)} + {e('list', n)}",
            lambda: f"{e('list', n)}{self.slice()}", lambda: f"{e('list', n)} * {self.r.randint(-1, 2)}",
            lambda: f"{e('str', n)} | list", lambda: f"{e('str', n)}.{self.pick('split', 'rsplit')}({self.pick('', repr(','), repr(' ') + ', 1', 'none, 1', e('str', 0))})",
            lambda: f"{e('str', n)}.splitlines({self.pick('', 'true')})", lambda: f"{e('str', n)}.{self.pick('partition', 'rpartition')}({e('str', 0)})",
            lambda: f"{e('list', n)} | reverse | list", lambda: f"{e('strs', n)} | sort{self.pick('', '(true)', '(case_sensitive=true)')}",
            lambda: f"{e('list', n)} | unique | list", lambda: f"{e('ints', n)} | sort(reverse={e('bool', 0)})",
            lambda: f"{e('dicts', n)} | sort(attribute={self.pick(repr('name'), repr('age'), repr('age,name'))})",
            lambda: f"{e('list', n)} | batch({self.r.randint(1, 4)}{self.pick('', ', ' + repr('-'))}) | list",
            lambda: f"{e('list', n)} | slice({self.r.randint(1, 4)}{self.pick('', ', 0')}) | list",
            lambda: f"{e('dict', n)} | dictsort{self.pick('', '(true)', '(by=' + repr('value') + ')', '(reverse=true)')}",
            lambda: f"{e('dict', n)}.{self.pick('keys', 'values', 'items')}() | list", lambda: f"{e('dict', n)} | items | list", lambda: f"{e('dict', n)} | list",
            lambda: f"{e('list', n)} | {self.pick('select', 'reject')}({self.pick(repr('string'), repr('none'), repr('number'), '', repr('defined'))}) | list",
            lambda: f"{e('ints', n)} | {self.pick('select', 'reject')}({self.pick(repr('odd'), repr('>') + ', 1', repr('eq') + ', 2', repr('divisibleby') + ', 2')}) | list",
            lambda: f"{e('dicts', n)} | {self.pick('selectattr', 'rejectattr')}({self.pick(repr('age'), repr('tags') + ', ' + repr('defined'), repr('role') + ', ' + repr('in') + ', [' + repr('user') + ']', repr('age') + ', ' + repr('gt') + ', 26')}) | list",
            lambda: f"{e('dicts', n)} | map(attribute='name'{self.pick('', ', default=' + repr('?'))}) | list",
            lambda: f"{e('strs', n)} | map({self.pick(repr('upper'), repr('length'), repr('replace') + ', ' + repr('p') + ', ' + repr('_'), repr('first'))}) | list",
            lambda: f"{e('dicts', n)} | groupby({self.pick(repr('age'), repr('name'), repr('role'), repr('zz') + ', default=0')})",
            lambda: f"range({self.r.randint(0, 5)}, {self.r.randint(0, 9)}, {self.pick('1', '2', '-1')}) | list",
            lambda: f"{e('any', n)} or {e('list', n)}", lambda: f"{e('list', n)} | {self.pick('min', 'max', 'first', 'last')}",
        ])()

    def make_ints(self, n):
        return self.pick(f"{self.expr('ints', n)} | map('abs') | list", f"[{self.expr('int', n)}, {self.expr('int', n)}]",
                         f"range({self.r.randint(0, 5)})", f"{self.expr('ints', n)}[::-1]")

    def make_strs(self, n):
        return self.pick(f"{self.expr('str', n)}.split()", f"[{self.expr('str', n)}, {self.expr('str', n)}]",
                         f"{self.expr('strs', n)} | map('lower') | list", f"{self.expr('str', n)} | list")

    def make_dicts(self, n):
        return self.pick(f"{self.expr('dicts', n)}{self.slice()}", f"[{self.expr('dict', n)}, {self.expr('dict', n)}]",
                         f"{self.expr('dicts', n)} | selectattr('name', 'defined') | list")

    def make_dict(self, n):
        e = self.expr
        return self.pick(f"{{'a': {e(None, n)}, {e(self.pick('str', 'int'), n)}: {e(None, n)}}}", f"dict(a={e(None, n)}, b={e(None, n)})",
                         f"dict({e('dict', n)}, z={e(None, n)})", f"{e('dicts', n)}[{self.pick('0', '1', '-1')}]",
                         f"dict({e('dict', n)}.items())", f"{e('dict', n)}.copy()")

    def make_any(self, n):
        e = self.expr
        key = lambda: self.pick("a", "b", "x", "name", "role", "content", "items", "nosuch", "_p", "get")
        return self.r.choice([
            lambda: f"{e('dict', n)}.{self.pick('a', 'b', 'nosuch', '_p', 'C')}", lambda: f"{e('dict', n)}[{self.pick(repr('a'), repr('zz'), '0', repr('items'))}]",
            lambda: f"{e('dict', n)}.get({self.pick(repr('a'), repr('q'), '1')}{self.pick('', ', 0')})", lambda: f"{e('list', n)}[{self.r.randint(-3, 3)}]",
            lambda: f"{e('list', n)}.{self.r.randint(0, 2)}", lambda: f"{e('dicts', n)}[0].{self.pick('name', 'content', 'zz')}",
            lambda: f"{e(None, n)} and {e(None, n)}", lambda: f"{e(None, n)} or {e(None, n)}", lambda: f"d.missing", lambda: "missing.x" if self.chance(0.2) else "d.zz",
            lambda: f"{e(None, n)} if {e('bool', n)}", lambda: f"{e('any', n)} | default({e(None, n)}{self.pick('', ', true')})",
            lambda: f"d.a.x[1].y", lambda: f"{e('any', n)} {self.pick('+', '-', '*', '/', '%', '//')} {e('any', n)}",
            lambda: f"{e('any', n)}[{self.pick('0', repr('a'), '1:')}]", lambda: f"{e('dict', n)}.{key()} is defined",
        ])()

    # Statements.

    def gap(self):
        return self.pick("", "", "", " ", "\n", "\n  ", "  \n", "text ", "x\n\t", "\r\n", "y")

    def tag(self, inner):
        left, right = self.pick("", "", "", "-", "+"), self.pick("", "", "", "-", "+")
        return f"{{%{left} {inner} {right}%}}"

    def output(self):
        left, right = self.pick("", "", "", "-"), self.pick("", "", "", "-")
        return f"{{{{{left} {self.expr()} {right}}}}}"

    def block(self, n, length=None):
        names, macros = list(self.names), list(self.macros)
        out = self.gap() + "".join(self.statement(n) + self.gap() for _ in range(length or self.r.randint(1, 3)))
        self.names, self.macros = names, macros
        return out

    def name(self, kind):
        name = f"v{len(self.names)}"
        self.names.append((name, kind))
        return name

    def statement(self, n):
        if n <= 0 or self.chance(0.35):
            return self.output()
        kinds = ["set", "set", "if", "if", "for", "for", "for", "macro", "macro", "call", "filter", "with", "setblock", "namespace", "raw",
                 "comment", "recursive", "print", "generation", "joiner", "cycler", "block", "raise"]
        return getattr(self, "put_" + self.r.choice(kinds))(n - 1)

    def put_set(self, n):
        kind = self.pick("str", "int", "list", "dict", "bool", "any")
        if self.chance(0.15):
            value = f"{self.expr()}, {self.expr()}"
            return self.tag(f"set {self.name('any')}, {self.name('any')} = {value}")
        value = self.expr(kind)
        return self.tag(f"set {self.name(kind)} = {value}")

    def put_if(self, n):
        out = self.tag(f"if {self.expr('bool')}") + self.block(n)
        if self.chance(0.3):
            out += self.tag(f"elif {self.expr()}") + self.block(n)
        if self.chance(0.4):
            out += self.tag("else") + self.block(n)
        return out + self.tag("endif")

    def put_for(self, n):
        kind = self.pick("ints", "strs", "dicts", "list", "str")
        item = {"ints": "int", "strs": "str", "dicts": "dict", "list": "any", "str": "str"}[kind]
        iterable = self.expr(kind, 2)
        names = list(self.names)
        target = self.name(item)
        if self.chance(0.15):
            iterable, target = self.pick("d.items()", "pairs", "counts | dictsort", "users | groupby('age')"), f"{target}, {self.name('any')}"
        condition = f" if {self.expr('bool', 1)}" if self.chance(0.2) else ""
        self.loops += 1
        body = self.block(n)
        if self.chance(0.4):
            body += self.pick("{{ loop.index }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.previtem }}", "{{ loop.nextitem is defined }}",
                              "{{ ', ' if not loop.last }}", "{% if loop.index > 2 %}{% break %}{% endif %}", "{{ loop }}",
                              "{% if loop.first %}{% continue %}{% endif %}z", "{{ loop.changed(1) }}", "{{ loop.revindex0 }}")
        self.loops -= 1
        self.names = names
        otherwise = self.tag("else") + self.block(n) if self.chance(0.2) else ""
        return self.tag(f"for {target} in {iterable}{condition}") + body + otherwise + self.tag("endfor")

    def put_recursive(self, n):
        return ("{% for item in nested recursive %}{{ loop.depth }}:{% if item is iterable %}[{{ loop(item) }}]{% else %}{{ item }}"
                + self.pick("", "{{ loop.depth0 }}", "{{ ',' if not loop.last }}") + "{% endif %}{% endfor %}")

    def put_macro(self, n):
        name = f"m{self.r.randint(0, 9)}"
        outer, loops = list(self.names), self.loops
        self.loops = 0
        parameters = [self.name("any") for _ in range(self.r.randint(0, 3))]
        signature = [p if i < len(parameters) - 1 or self.chance(0.5) else f"{p}={self.expr(None, 1)}" for i, p in enumerate(parameters)]
        body = self.block(n)
        if self.chance(0.4):
            body += self.pick("{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ caller(1) if caller }}", "{{ varargs | length }}{{ kwargs }}")
        self.names, self.loops = outer, loops
        out = self.tag(f"macro {name}({', '.join(signature)})") + body + self.tag("endmacro")
        self.macros.append((name, len(parameters)))
        return out + "{{ " + self.invocation() + " }}" if self.chance(0.8) else out

    def invocation(self):
        if not self.macros:
            return "nosuch()"
        name, count = self.r.choice(self.macros)
        args = [self.expr(None, 1) for _ in range(max(0, count + self.pick(-1, 0, 0, 0, 1)))]
        if self.chance(0.2):
            args.append(f"{self.pick('v0', 'v1', 'other')}={self.expr(None, 0)}")
        if self.chance(0.05):
            args.append("*ints")
        return f"{name}({', '.join(args)})"

    def put_call(self, n):
        if not self.macros:
            return self.put_macro(n)
        target = self.pick("", "", "(x)", "(x=5)")
        return self.tag(f"call{target} {self.invocation()}") + self.block(0) + self.pick("", "{{ x }}") + self.tag("endcall")

    def put_filter(self, n):
        return self.tag(f"filter {self.str_filter(0)}{self.pick('', ' | upper')}") + self.block(n) + self.tag("endfilter")

    def put_with(self, n):
        names = list(self.names)
        values = [self.expr(None, 1), self.expr(None, 1)]
        bindings = [f"{self.name('any')} = {v}" for v in values]
        out = self.tag(f"with {', '.join(bindings)}") + self.block(n) + self.tag("endwith")
        self.names = names
        return out

    def put_setblock(self, n):
        body = self.block(n)
        chain = self.pick("", "", " | trim", " | upper | replace('A', 'b')")
        return self.tag(f"set {self.name('str')}{chain}") + body + self.tag("endset")

    def put_namespace(self, n):
        name = f"ns{self.r.randint(0, 3)}"
        return (self.tag(f"set {name} = namespace(a={self.expr('int', 1)}, b=[])") + "{% for q in " + self.expr("ints", 1) + " %}"
                + self.tag(f"set {name}.a = {name}.a + q") + self.block(0) + "{% endfor %}{{ " + name + ".a }}"
                + self.pick("", "{{ " + name + " }}", "{{ " + name + ".nosuch }}"))

    def put_raw(self, n):
        return "{%" + self.pick("", "-") + " raw " + self.pick("", "-") + "%}" + self.pick("{{ x }}", " {% if %} ", "\n  {#\n") + self.tag("endraw")

    def put_comment(self, n):
        return self.pick("{# c #}", "{#- {{ x }} -#}", "{# a\nb #}\n", "  {#+ c +#}\n")

    def put_print(self, n):
        return self.tag(f"print {self.expr()}, {self.expr()}")

    def put_generation(self, n):
        return self.tag("generation") + self.block(n) + self.tag("endgeneration")

    def put_joiner(self, n):
        return "{% set j = joiner('" + self.pick(", ", "|") + "') %}{% for q in " + self.expr("list", 1) + " %}{{ j() }}{{ q }}{% endfor %}"

    def put_cycler(self, n):
        return "{% set c = cycler('a', 1, none) %}{% for q in range(4) %}{{ c.next() }}{{ c.current }}{% endfor %}{{ c.reset() }}{{ c.next() }}"

    def put_block(self, n):
        self.nesting += 1
        names = self.names
        self.names = []
        out = self.tag(f"block b{self.nesting}{self.r.randint(0, 10**6)}") + self.block(0) + self.tag("endblock")
        self.names = names
        return out

    def put_raise(self, n):
        return self.output() if self.chance(0.8) else "{{ raise_exception('no') }}"


def template(seed):
    grammar = Grammar(seed)
    if seed % 4 == 0:  # one expression alone
        return "{{ " + grammar.expr(None, 3) + " }}"
    return grammar.gap() + "".join(grammar.statement(2) + grammar.gap() for _ in range(grammar.r.randint(1, 4)))
