#!/usr/bin/env python3
"""Writes cases.json: templates, data, and what jinja2 makes of them.

The environment is the one of transformers' chat templates
(transformers/utils/chat_template_utils.py, _compile_jinja_template), rebuilt
here so that only jinja2 is needed:  pip install jinja2==3.1.6
Run in this folder:  python3 generate.py
"""
import json
from contextlib import contextmanager
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2026, 3, 9, 7, 5, 4)


class AssistantTracker(Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(lineno)

    def _support(self, caller):
        return caller()


def compile_template(source):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[AssistantTracker, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env.from_string(source)


DATA = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <there> & \"you\"\n"},
        {"role": "assistant", "content": "  Hello!  "},
        {"role": "user", "content": "你好，世界 🤗"},
    ],
    "tools": [{"type": "function", "function": {
        "name": "weather", "description": "It's the \"weather\" <now>",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}, "at": {"type": ["integer", "null"]}},
                       "required": ["zone"]}}}],
    "n": 7, "f": 2.5, "big": 12345678901234567890, "t": True, "none": None, "s": "a,b,,c", "w": "  one  two three ",
    "d": {"b": 1, "a": {"x": [1, 2.0, None, True]}, "items": "shadow", "Z": "z"}, "l": [3, 1, 2], "empty": [],
    "people": [{"name": "Bob", "age": 3}, {"name": "al", "age": 30}, {"name": "Cy", "age": 3}],
    "html": "<b>'x' & \"y\"</b>", "multi": "one\n\ntwo\n  three\n", "uni": "ÄßéИ字",
}

E = []


def add(*sources):
    E.extend(sources)


# White space.
add("  {% if t %}\n  a\n  {% endif %}\nb\n", "a {%- if t -%}  b  {%- endif -%}  c", "{{ 'x' }}\n{{ 'y' }}\n\n", "a\n  {{- ' b' -}}  \n c",
    "{% for i in l %}\n{{ i }}\n{% endfor %}\nend", "{% for i in l -%}\n  {{ i }}\n{%- endfor %}", "{{ n }}{%- if t %} x{% endif %}",
    "x {% if t -%}{{ n }} y{%- endif %} z", "{%- for i in l %}{{ i }} {% endfor %}|", "a\r\nb\rc\n", "  {%+ if t %}a{% endif +%}\nb",
    "{# c #}\nx{#- c -#}  y", "{# a #}  {# b #}\nz", "a\n\t {% set x = 1 %}\n b", "{{ '{{' }} {% raw %} {{ x }} {% if %}\n{% endraw %}\n!",
    "{%- raw -%}  {{ a }}  {%- endraw -%}  b", "\n\n", "\n", "", "a\n", "a\n\n", "{{ 1 -}}\n\n{{- 2 }}", "  {{ 1 }}  ", "x\n    {#- c #}\ny", "\u3000{%- if t %}\u00a0{%- endif %}a",
    "{{ '%}' }}{{ \"}}\" }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}", "a{%\n if t\n%}b{% endif %}c", "  {% raw %}\n x\n  {% endraw %}\n y",
    "{%- if t %}\n\n{%- endif %}\n\n  {%- set a = 1 %}\n\nq", "{{+ n }}", "a   {%- if false %}b{% else %}  c{% endif %}")
# Literals and operators.
add("{{ 1_000 }} {{ 0x1F }} {{ 1.5e3 }} {{ 1e-7 }} {{ 1e16 }} {{ 123456789.0 }} {{ 0.1 + 0.2 }}", r"{{ 'a\n\t\\\'\x41\u00e9\q' }}", '{{ "a" "b" \'c\' }}',
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}", "{{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ 1 ~ 2 + 3 }}", "{{ '-' * 5 }} {{ 3 * 'ab' }} {{ [1] * 3 }} {{ 'a' * -1 }}|",
    "{{ true + 1 }} {{ 1 == true }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ none == false }}", "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 'a') == (1, 'a') }}",
    "{{ 'b' in 'abc' }} {{ 2 in l }} {{ 'a' in d }} {{ 'q' not in d }} {{ not 1 in l }}", "{{ 1 and 2 }} {{ 0 or 'x' }} {{ not '' }} {{ none and 1 }} {{ [] or {} }}",
    "{{ 'y' if t else 'n' }} {{ 'y' if none }}| {{ 1 if false else 2 if false else 3 }}", "{{ (1,) }} {{ () }} {{ (1, 'a', none) }} {{ [1, [2.0, 'x\\'y']] }} {{ {'k': (1, 2), 3: none} }}",
    "{{ none }} {{ true }} {{ 1.0 }} {{ d }}", "{{ 'it\\'s' }} {{ ['it\\'s', 'q\"', 'b\\'\"', 'tab\\t', 'é', '\\x07'] }}", "{{ +5 }} {{ - 5 }} {{ --5 }} {{ -5|abs }} {{ not not t }}",
    "{{ big }} {{ big|tojson }} {{ big is integer }}", "{{ 1 if t else 2, 3 }}", "{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[:-1] }} {{ l[5:] }} {{ l[-2:2] }} {{ l[::2] }}",
    "{{ uni[0] }} {{ uni[-1] }} {{ uni[1:3] }} {{ uni[::-1] }} {{ uni[9] }}|", "{{ 'abc'[none:2] }} {{ (1,2,3)[1:] }} {{ range(5)[1:3]|list }}", "{{ l.0 }} {{ d.a.x.1 }}",
    "{{ 1 is defined and 2 is not none }} {{ 5 is divisibleby 5 }} {{ 'a' is in ['a'] }} {{ 3 is eq 3 }}", "{{ 1.5 is number }} {{ true is number }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ true is boolean }}")
# Undefined.
add("[{{ missing }}] {{ missing is defined }} {{ missing|default('d') }} {{ missing|length }} {% for x in missing %}x{% else %}none{% endfor %}", "{{ missing ~ 'a' }} {{ missing == missing2 }} {{ missing == '' }} {{ 'a' in missing }}",
    "{{ missing.a }}", "{{ missing + 'a' }}", "{{ 'a' + missing }}", "{{ missing['a'] }}", "{{ missing() }}", "{{ d.nope }}|{{ d.nope is undefined }}|{{ d['nope'] }}", "{{ d.nope.more }}", "{{ messages[9] }}|{{ messages[9].role }}",
    "{{ missing < 1 }}", "{{ -missing }}", "{{ missing|tojson }}", "{{ missing|upper }}|{{ missing|join(',') }}|{{ missing|list }}|{{ missing|string }}", "{{ missing|int }}", "{{ none.a }}|", "{{ none.a.b }}", "{{ missing is string }} {{ missing is mapping }} {{ missing is iterable }} {{ missing is sequence }} {{ missing is none }}",
    "{{ [missing] }} {{ missing or 'x' }} {{ not missing }}")
# Errors.
add("{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ none + 'x' }}", "{{ 1 / 0 }}", "{{ 5 % 0 }}", "{{ 'a' < 1 }}", "{{ l.append(4) }}", "{{ d.update({}) }}", "{{ 'x'.nope() }}", "{{ 5() }}", "{{ raise_exception('stop ' ~ n) }}", "{{ 'x'|nope }}", "{{ 'x' is nope }}",
    "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1,2,3]] %}{% endfor %}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{{ 'a }}", "{{ (1 }}", "{{ 1 2 }}", "{% for x %}{% endfor %}", "{% set 1 = 2 %}", "{% break %}", "{{ ]  }}", "{{ a b }}", "{% nope %}", "{{ 5|length }}", "{{ none|length }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% set d.x = 1 %}", "{{ [1,'a']|sort }}", "{{ ''.__class__.__mro__ }}", "{{ 'a'.__class__ }}|", "{{ range(200000)|length }}", "{{ {[1]: 2} }}", "{{ ''.join([1]) }}", "{{ 'a'.index('b') }}", "{{ 'a'.split('') }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % 'x' }}", "{{ '%s' % ('x', 'y') }}", "{{ range(1,2,0) }}", "{{ {} | tojson(nope=1) }}", "{{ undefined_fn(1) }}", "{% include 'x' %}", "{{ l|first|nope }}", "{{ 5[0] }}|", "{{ [1][1:'a'] }}", "{{ dict(1) }}")
# Scopes and loops.
add("{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=0, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }} {{ ns.y }} {{ ns.z }}|{{ ns['x'] }}", "{% set ns = namespace({'a': 1}) %}{{ ns.a }} {{ ns }}", "{% if t %}{% set y = 2 %}{% endif %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}",
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.previtem.role if loop.previtem is defined else '-' }} {{ loop.nextitem.role if loop.nextitem is defined else '-' }} {{ loop.cycle('a', 'b') }} {{ loop.depth }};{% endfor %}", "{% for i in [1,1,2] %}{{ loop.changed(i) }} {% endfor %}", "{% for i in range(10) if i % 2 %}{{ loop.index }}:{{ i }} {% else %}none{% endfor %}", "{% for i in empty %}x{% else %}none{% endfor %}", "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}{{ d['items'] }}", "{% for k, v in d|items %}{{ k }} {% endfor %}", "{% for c in uni %}{{ c }}.{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b, c in [[1, 2, 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in [1, [2, [3]], 4] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% set q = 3 %}{% endwith %}{{ a is defined }}{{ q is defined }}", "{% set x %}a {{ n }}{% endset %}[{{ x }}]", "{% set x | upper | trim %} a {{ n }}{% endset %}[{{ x }}]", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}", "{% generation %}g{{ n }}{% set z = 1 %}{% endgeneration %}{{ z is defined }}", "{% block b %}x{{ n }}{% endblock %}", "{% print n %}{% print 'a', 'b' %}",
    "{{ x }}{% set x = 1 %}{{ x }}", "{% for i in [1] %}{% set n = 9 %}{{ n }}{% endfor %}{{ n }}", "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{% set loop = 5 %}{{ loop }}{% for i in [1] %}{{ loop.index }}{% endfor %}{{ loop }}", "{% for i in l|sort %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% set x = namespace() %}{% set x.a %}cap{% endset %}{{ x.a }}")
# Macros.
add("{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='y') }} {{ m() }}|", "{% macro m() %}{{ n }}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}", "{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ n }}{% endcall %}", "{% macro m(x) %}{{ caller(x, x * 2) }}{% endmacro %}{% call(a, b) m(4) %}{{ a }}-{{ b }}{% endcall %}", "{% macro m(a) %}{{ a }} {{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}", "{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }}", "{% macro m() %}  a\n{% endmacro %}{{ m()|trim }}|{{ m() | length }}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro a() %}A{% endmacro %}{% macro b() %}{{ a() }}B{% endmacro %}{{ b() }}{{ b.name }}", "{% macro m(items) %}{% for i in items %}{{ i }}{% if not loop.last %}|{% endif %}{% endfor %}{% endmacro %}{{ m(*[l]) }} {{ m(**{'items': l}) }}")
# Methods.
add("{{ w.strip() }}|{{ w.lstrip() }}|{{ w.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ w.split() }}|{{ s.split(',') }}|{{ s.split(',', 1) }}|{{ s.split(',', maxsplit=1) }}|{{ s.rsplit(',', 1) }}|{{ w.split(none, 1) }}|{{ w.rsplit(none, 1) }}", "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'abc'.startswith('b', 1) }} {{ 'a-b'.replace('-', '+') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '.') }}", "{{ 'hello wORLD it\\'s'.title() }} {{ 'hELLO'.capitalize() }} {{ uni.upper() }} {{ uni.lower() }} {{ 'aB'.swapcase() }}", "{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('z') }} {{ 'abcb'.count('b') }} {{ uni.find('И') }} {{ 'abcabc'.index('c', 3) }}", "{{ 'ab'.join(['1', '2', '3']) }} {{ ', '.join(d) }}", "{{ 'pre_x'.removeprefix('pre_') }} {{ 'x.py'.removesuffix('.py') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }}", "{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }}", "{{ multi.splitlines() }} {{ 'a\\r\\nb\\x0bc'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}", "{{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ 'ab'.center(5, '*') }} {{ 'abc'.center(6, '*') }}", "{{ d.keys()|list }} {{ d.values()|list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.keys() }}", "{{ '{} and {}'.format(1, 'b') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=2) }} {{ '{{}}'.format() }}", "{{ l.index(2) }} {{ l.count(3) }} {{ (1, 2).count(1) }}", "{{ 'a b c'.split(' ')[-1] }} {{ messages[-1]['content'].strip().split('，')[0] }}", "{{ ''.split() }} {{ ''.split(',') }} {{ ' a '.split(' ') }}")
# Filters.
add("{{ d|tojson }}", "{{ tools|tojson(indent=4) }}", "{{ tools|tojson(indent=2, sort_keys=true) }}", "{{ uni|tojson }} {{ uni|tojson(ensure_ascii=true) }} {{ '🤗\\x7f\\x01'|tojson(ensure_ascii=true) }} {{ html|tojson }}", "{{ d|tojson(separators=(',', ':')) }} {{ [1.0, 1e20, 0.1, -0.0]|tojson }} {{ []|tojson(indent=2) }} {{ {}|tojson }} {{ {1: 2, none: 3, true: 4}|tojson }}", "{{ (1, 2)|tojson }} {{ 'a\\tb\\n\\\\\"'|tojson }} {{ l|tojson(indent='\\t') }}",
    "{{ l|sort }} {{ l|sort(reverse=true) }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A', 'c']|sort(case_sensitive=true) }} {{ people|sort(attribute='age,name')|map(attribute='name')|join(' ') }}", "{{ l|first }} {{ l|last }} {{ l|min }} {{ l|max }} {{ l|sum }} {{ people|sum(attribute='age') }} {{ empty|first }}| {{ ['b','A']|min }} {{ people|max(attribute='age') }}", "{{ l|join }} {{ l|join(', ') }} {{ people|join('-', attribute='name') }} {{ [1, none, 'a']|join('/') }} {{ 'abc'|join('.') }}", "{{ people|map(attribute='name')|list }} {{ l|map('string')|list }} {{ ['a']|map('upper')|list }} {{ people|map(attribute='x', default='?')|list }} {{ [' a ']|map('trim')|first }} {{ [[1,2],[3]]|map('length')|list }}", "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|rejectattr('role', 'eq', 'user')|map(attribute='role')|list }} {{ [1,0,2]|select|list }} {{ [1,2,3]|select('odd')|list }} {{ [1,2,3]|reject('gt', 2)|list }} {{ people|selectattr('age')|list|length }} {{ people|selectattr('zip', 'defined')|list }}",
    "{{ '  x '|trim }}| {{ 'xxaxx'|trim('x') }} {{ html|escape }} {{ html|e|length }} {{ html|safe }} {{ 'hello (wORLD) x-y'|title }} {{ 'hELLO'|capitalize }} {{ 'a'|upper }}{{ 5|upper }} {{ 'ab'|reverse }} {{ l|reverse|list }}", "{{ multi|indent }}|{{ multi|indent(2, true) }}|{{ multi|indent(2, blank=true) }}|{{ 'a\\nb'|indent('> ') }}|{{ ''|indent(2, true) }}|", "{{ 'x'|default('y') }} {{ ''|default('y', true) }} {{ none|default('y') }} {{ none|default('y', true) }} {{ missing|d }}|", "{{ '42'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ '0x1A'|int(base=16) }} {{ true|int }} {{ ' 7 '|int }} {{ none|int }} {{ '1.5'|float }} {{ 'x'|float }} {{ 2|float }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(method='ceil') }} {{ 2.19|round(1, 'floor') }} {{ 5|round }} {{ 1234|round(-2) }} {{ -5|abs }} {{ -5.5|abs }}", "{{ d|dictsort|map('first')|list }} {{ {'a': 2, 'b': 1}|dictsort(by='value') }} {{ {'a': 2, 'B': 1}|dictsort(reverse=true) }}", "{{ [1,2,1,3,2]|unique|list }} {{ ['a','A','b']|unique|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}", "{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}{% for k, v in people|groupby('age') %}{{ k }}{{ v|length }}{% endfor %}", "{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}", "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, leeway=0) }}", "{{ 'a b c d'|wordcount }} {{ 'ab'|center(6) }}| {{ 'a b/c?d=é'|urlencode }} {{ {'a b': 1}|urlencode }} {{ '%s-%05.2f'|format('x', 3.14159) }} {{ '%(a)s'|format(a=1) }}", "{{ 'abc'|length }} {{ d|length }} {{ uni|count }} {{ 'ab'|list }} {{ d|list }} {{ 'a-b'|replace('-', '+') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 15|replace(1, 2) }} {{ d|attr('get') is callable }} {{ d|string|length }}",
    "{{ '%d %5d|%-5d|%05d %+d %x %X %o %#x' % (1, 2, 3, 4, 5, 255, 255, 8, 255) }}", "{{ '%s %r %.2s %10s|%-5s|%%' % ('a', 'b', 'xyz', 'r', 'l') }}", "{{ '%f %.1f %e %g %g %g %G' % (1.5, 2.25, 12345.678, 0.0001, 1e10, 100000.0, 1e-10) }}", "{{ '%(a)s %(b)03d' % {'a': 1, 'b': 2} }} {{ '%c%c' % ('a', 66) }} {{ '%*d' % (5, 42) }} {{ '%s' % [1, 2] }} {{ '%s' % none }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%A, %B %e, %y %I:%M %p %j %U %W %w %u %-d %%') }} {{ strftime_now('%c|%x|%X|%D|%F|%T|%R|%G-%V') }}")
# Tests.
add("{{ 'a' is string }} {{ d is mapping }} {{ l is sequence }} {{ d is sequence }} {{ 'a' is sequence }} {{ 5 is sequence }} {{ l is iterable }} {{ 5 is iterable }} {{ none is none }} {{ t is true }} {{ false is false }} {{ 1 is true }}", "{{ 3 is odd }} {{ 4 is even }} {{ 4 is divisibleby(2) }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 1 is sameas 1 }} {{ 1 is sameas true }} {{ 1 is ne 2 }} {{ 3 is gt 2 }} {{ 2 is le(2) }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ range is callable }} {{ 5 is callable }}", "{{ (l|map('string')) is sequence }} {{ range(3) is sequence }} {{ range(3) }} {{ range(1, 9, 2) }} {{ range(5, 0, -2)|list }}", "{{ x is defined if false else 'q' }} {{ 'a' is not defined or t }} {{ not missing is defined }}", "{{ [] is defined }} {{ d.a is mapping }} {{ d.b is not string }} {{ 'x' is escaped }}", "{{ 1 in [1.0] }} {{ true in [1] }} {{ none in [none] }} {{ (1,2) in [(1,2)] }} {{ [1] == (1,) }} {{ {'a':1} == {'a':1.0} }}")
# Others.
add("{% set g = l|map('string') %}{{ g|join(',') }}[{{ g|join(',') }}]", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% set j = joiner('; ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'q': 1}, r=2) }}", "{{ d.items()|list|length }} {{ d.items() }}", "{{ [1, 2, 3][1] }}{{ {'a': 5}.a }}{{ {'a': 5}['a'] }}{{ 'x'.upper().lower() }}{{ (1, 2)[0] }}", "{{ messages|map(attribute='content')|map('trim')|join('|') }}", "{{ messages[1:]|length }} {{ messages[0]['role'] }} {{ messages[::-1][0].role }}", "{{ d.a.x[1] }} {{ d['a']['x']|last }} {{ d.Z }}", "{{ [[1, 2], [3, 4]]|sum(start=[]) }}", "{{ people|map(attribute='name')|map('lower')|sort|join(' ') }}", "{{ 'a' if 'b' in 'abc' and (1, 2)|length == 2 else 'c' }}", "{{ [1,2,3]|map('string')|map('int')|sum }}", "{% if messages[0].role == 'system' and messages[0]['content'] is string %}{{ messages[0].content }}{% elif x %}{% else %}no{% endif %}", "{% set m = messages %}{% if m|length > 2 %}{% set m = m[2:] %}{% endif %}{{ m|length }}", "{{ -1 ** 2 }} {{ 2 + 3 ~ 4 }} {{ 10 - 2 - 3 }} {{ 100 / 10 / 5 }} {{ not true == false }}", "{{ (n > 5) | string + '!' }} {{ n > 5 and 'big' or 'small' }}", "{{ 'a' ~ ('b' if n else 'c') ~ 'd' }}", "{{- '<|x|>' + '\\n' + messages[0]['content'] | trim + '<|y|>' -}}", "{{ 1.0 * 3 }} {{ 10 / 2 }} {{ 3.0 }} {{ 1e3 }} {{ 1 / 3 }} {{ 100000000000000000000.0 }} {{ 1.5e-5 }}", "{{ 'é' * 3 }} {{ 'a' < 'é' }} {{ ['é'] }} {{ '\\u200b'|trim|length }}", "{{ t | tojson }} {{ none | tojson }} {{ 'x' | tojson | length }}", "{{ lipsum is defined }}" if False else "{{ 0 }}", "{{ namespace(a=1).a }}", "{{ [] | first is defined }} {{ ([]|last) is undefined }}", "{% for i in range(3) %}{{ loop }}{% endfor %}", "{{ [1,2]|length == 2 }} {{ 'abc'|length > 2 }}", "{{ d.b if d.b is defined else 0 }}", "{%- set x = {'a': [1, 2, {'b': 'c'}]} -%}{{ x.a[2].b }} {{ x['a'][2]['b'] }} {{ x.a.2.b }}", "{{ s.split(',')[0] }} {{ s.split(',')|length }} {{ s.split(',')|select|join('.') }}")

cases = []
for source in E:
    case = {"template": source}
    try:
        case["want"] = compile_template(source).render(**DATA)
    except Exception as e:  # noqa: BLE001: any error of jinja2 is an error
        case["error"] = type(e).__name__ + ": " + str(e)
    cases.append(case)

whole = json.load(open("models.json", encoding="utf-8"))
models = []
for m in whole["templates"]:
    t = compile_template("\n".join(m["lines"]))
    for name, data in whole["data"].items():
        out = {"model": m["name"], "data": name}
        try:
            out["want"] = t.render(**data)
        except Exception as e:  # noqa: BLE001
            out["error"] = type(e).__name__ + ": " + str(e)
        models.append(out)

with open("cases.json", "w", encoding="utf-8") as f:
    json.dump({"data": DATA, "now": NOW.isoformat(), "cases": cases, "models": models}, f, ensure_ascii=False, indent=1)
    f.write("\n")
print(len(cases), "constructs,", len(models), "whole renderings")
