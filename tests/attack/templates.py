"""Hostile chat templates: each would crash, hang or swell a server that does not bound them."""
BIG = "{% set b='a'*60000000 %}"


def repeat(count, body, before=""):
    """`body` count times, in two nested loops: range() itself is bounded."""
    inner = min(count, 100000)
    return (f"{before}{{% for o in range({max(1, count // inner)}) %}}"
            f"{{% for i in range({inner}) %}}{body}{{% endfor %}}{{% endfor %}}")


def chain(expression, first="'x'", count=100000, after="{{ ns.a|string|length }}"):
    """A value that holds the one before it, and so on."""
    return repeat(count, f"{{% set ns.a={expression} %}}",
                  f"{{% set ns=namespace(a={first}) %}}") + after


def uncharged(body, before=""):
    return BIG + before + "{% for i in range(100000) %}" + body + "{% endfor %}"


CRASHES = {
    "joiner": chain("joiner(ns.a)", count=300000, after=""),
    "joiner, printed": chain("joiner(ns.a)", count=100000, after="{{ ns.a() }}{{ ns.a() }}"),
    "changed": "{% set ns=namespace(p='x') %}{% for i in range(100000) %}{% for x in [1] %}"
               "{% set ns.c=loop.changed %}{% endfor %}{% if ns.c(ns.p) %}{% endif %}"
               "{% set ns.p=ns.c %}{% endfor %}",
}

RECURSION = {
    "cycler": chain("cycler(ns.a)"),
    "list": chain("[ns.a]"),
    "list as JSON": chain("[ns.a]", after="{{ ns.a|tojson|length }}"),
    "list compared": chain("[ns.a]", after="{% if ns.a==ns.a %}{% endif %}"),
    "tuple": chain("(ns.a,)"),
    "dict": chain("{'k':ns.a}"),
    "dict()": chain("dict(k=ns.a)", after="{{ ns.a|tojson|length }}"),
    "namespace": chain("namespace(a=ns.a)", after="{{ ns }}"),
    "itself": "{% set ns=namespace() %}{% set ns.a=ns %}{{ ns }}{{ ns.a|tojson }}{{ ns==ns.a }}",
    "list of itself": "{% set ns=namespace(a=[]) %}{% set ns.b=ns.a.append(ns.a) %}{{ ns.a }}",
    "select": chain("ns.a|select", first="[1]", after="{{ ns.a|list }}"),
    "map": chain("ns.a|map('string')", first="[1]", after="{{ ns.a|list }}"),
    "reverse": chain("ns.a|reverse", first="[1]", after="{{ ns.a|list }}"),
    "bound method": chain("ns.a.copy", first="{'a':1}", after="{{ ns.a }}"),
    "macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "two macros": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    "caller": "{% macro f() %}{{ caller() }}{% endmacro %}"
              "{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "parentheses": "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}",
    "brackets": "{{ " + "[" * 100000 + "]" * 100000 + " }}",
    "minus": "{{ " + "-" * 200000 + "1 }}",
    "not": "{{ " + "not " * 100000 + "1 }}",
    "filters": "{{ 'x'" + "|upper" * 100000 + " }}",
    "attributes": "{{ messages" + ".a" * 200000 + " }}",
    "sums": "{{ 1" + "+1" * 200000 + " }}",
    "joined": "{{ 'a'" + "~'a'" * 200000 + " }}",
    "conditions": "{{ " + "1 if 0 else " * 50000 + "1 }}",
    "blocks": "{% if 1 %}" * 30000 + "{% endif %}" * 30000,
    "powers": "{{ 1" + "**1" * 100000 + " }}",
}

UNCHARGED = {
    "startswith": uncharged("{% if ''.startswith(b) %}{% endif %}"),
    "int": uncharged("{% set z=b|int %}"),
    "float": uncharged("{% set z=b|float %}"),
    "keywords": uncharged("{% set z=f(**d) %}", "{% macro f() %}{% endmacro %}{% set d={'k':b} %}"),
    "dict(**d)": uncharged("{% set z=dict(**d) %}", "{% set d={b:1} %}"),
    "max": uncharged("{% set z=[b,b]|max %}"),
    "key": uncharged("{% set z=x[b] %}", "{% set x={'a':1} %}"),
    "in dict": uncharged("{% if b in x %}{% endif %}", "{% set x={'a':1} %}"),
    "made dict": uncharged("{% set z={b:1} %}"),
    "equal": uncharged("{% if b==c %}{% endif %}", "{% set c='a'*60000000 %}"),
    "less": uncharged("{% if b<c %}{% endif %}", "{% set c='a'*60000000 %}"),
    "in": uncharged("{% if 'b' in b %}{% endif %}"),
    "find": uncharged("{% set z=b.find('b') %}"),
    "count": uncharged("{% set z=b.count('b') %}"),
    "upper": uncharged("{% set z=b|upper %}"),
    "length": uncharged("{% set z=b|length %}"),
    "trim": uncharged("{% set z=b|trim %}"),
    "strip": uncharged("{% set z=b.strip('a') %}"),
    "replace": uncharged("{% set z=b|replace('b','c') %}"),
    "slice": uncharged("{% set z=b[59999990:] %}"),
    "index": uncharged("{% set z=b[-1] %}"),
    "escape": uncharged("{% set z=b|e %}"),
    "tojson": uncharged("{% set z=b|tojson %}"),
    "words": uncharged("{% set z=b|wordcount %}"),
    "format": uncharged("{% set z='%s'|format(b) %}"),
    "attr": uncharged("{% set z=messages|attr(b) %}"),
    "map": uncharged("{% set z=messages|map(attribute=b)|list %}"),
    "sort": uncharged("{% set z=[b,b,b]|sort %}"),
    "unique": uncharged("{% set z=[b,b,b]|unique|list %}"),
    "namespace": uncharged("{% set z=namespace(d) %}", "{% set d={b:1} %}"),
    "isdigit": uncharged("{% if b.isdigit() %}{% endif %}"),
    "splitlines": uncharged("{% set z=b.splitlines() %}"),
    "strftime": uncharged("{% set z=strftime_now(b) %}"),
    "joiner": uncharged("{% set z=joiner(b)() %}"),
    "is in": uncharged("{% if b is in x %}{% endif %}", "{% set x=[1] %}"),
    "default": uncharged("{% set z=b|default(b, true) %}"),
}

MEMORY = {
    "namespace of a long key": "{% set d={'A'*60000000:1} %}{% for i in range(1000) %}"
                               "{% set n=namespace(d) %}{% endfor %}",
    "kept namespaces": "{% set ns=namespace(l=[]) %}{% set d={'A'*60000000:1} %}"
                       "{% for i in range(100) %}{% set ns.l=ns.l+[namespace(d)] %}{% endfor %}",
    "kept dicts": "{% set ns=namespace(l=[]) %}{% set d={'A'*60000000:1} %}"
                  "{% for i in range(100) %}{% set ns.l=ns.l+[dict(d)] %}{% endfor %}",
    "doubled": "{% set ns=namespace(s='ab') %}{% for i in range(60) %}{% set ns.s=ns.s~ns.s %}"
               "{% endfor %}",
    "multiplied": "{{ ('a'*1000000)*1000000 }}",
    "list multiplied": "{% set x=[1]*1000000000 %}",
    "centered": "{{ 'a'|center(4000000000) }}",
    "padded": "{{ '%4000000000d'|format(1) }}",
    "indented": "{{ ('\n'*1000000)|indent(100000) }}",
    "power": "{{ 9**9**9 }}",
    "batch": "{% set x=[1]|batch(1000000000, 0)|list %}",
}

LEAK = ("{% set ns=namespace() %}{% for x in ['A'*60000000] %}{% set ns.c=loop.changed %}"
        "{% endfor %}{% if ns.c(ns.c) %}{% endif %}")

PARSE = {
    "macro parameters": "{% macro m(" + ",".join(f"p{i}" for i in range(120000)) + ") %}{% endmacro %}",
    "named arguments": "{{ dict(" + ",".join(f"p{i}=1" for i in range(100000)) + ") }}",
    "blocks": "".join(f"{{% block b{i} %}}{{% endblock %}}" for i in range(25000)),
    "call parameters": "{% call(" + ",".join(f"p{i}" for i in range(120000)) + ") f() %}{% endcall %}",
    "targets": "{% for " + ",".join(f"p{i}" for i in range(150000)) + " in [] %}{% endfor %}",
    "elif": "{% if 0 %}" + "{% elif 0 %}" * 60000 + "{% endif %}",
    "dict of names": "{{ {" + ",".join(f"'p{i}':1" for i in range(80000)) + "}|length }}",
    "sets": "".join(f"{{% set v{i}=1 %}}" for i in range(50000)),
}

HANG = uncharged("{% if ''.startswith(b) %}{% endif %}")
