# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates of strangers: none runs for ever or takes gigabytes, and real ones don't notice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import rlx_mlir as rlx
from rlx_mlir.errors import BudgetError, RlxError
from rlx_mlir.fuzz import campaign, templates
from rlx_mlir.fuzz.campaign import Plan
from rlx_mlir.models import sandbox
from rlx_mlir.models.chat import ChatTemplate

SEED = int(os.environ.get("RLX_TEST_SEED", "0"))
DOUBLE = "{{% set ns = namespace(s={0}, t={0}) %}}{{% for i in range(100) %}}{1}{{% endfor %}}{2}"
LISTS = "{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}"
TUPLES = "{% set ns.s = (ns.s, ns.s) %}"
BIG = "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}BODY{% endfor %}"

# What takes too much, and the budget that says so.
TOO_MUCH = {
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}": "template_steps",
    "{% for x in range(100000) if x.a and x.b %}{% endfor %}" * 90: "template_steps",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}": "template_steps",
    "{{ range(2000000) }}": "template_steps",
    "{{a}}" * 100_000: "template_steps",
    BIG.replace("BODY", "{% if 'y' in s %}{% endif %}"): "template_steps",
    BIG.replace("BODY", "{% set t = s.count('y') %}"): "template_steps",
    BIG.replace("BODY", "{% if s == s ~ '' %}{% endif %}"): "template_output",
    BIG.replace("BODY", "{% set t = s[1:] %}"): "template_output",
    BIG.replace("BODY", "{% set t = s.upper() %}"): "template_output",
    "{{ ('a' * 8000000).rfind('b' ~ 'a' * 4000000) }}": "template_steps",
    "{{ ('a' * 8000000) | trim('b' ~ 'a' * 4000000) }}": "template_steps",
    DOUBLE.format("[1]", LISTS, "{{ ns.s }}"): "template_steps",
    DOUBLE.format("[1]", LISTS, "{{ ns.s == ns.t }}"): "template_steps",
    DOUBLE.format("[1]", LISTS, "{{ ns.s | tojson }}"): "template_steps",
    DOUBLE.format("[1]", LISTS, "{{ [ns.s].index(ns.t) }}"): "template_steps",
    DOUBLE.format("(1,)", TUPLES, "{{ {ns.s: 1} }}"): "template_steps",
    DOUBLE.format("(1,)", TUPLES, "{{ {}.get(ns.s) }}"): "template_steps",
    DOUBLE.format("(1,)", TUPLES, "{{ {}[ns.s] }}"): "template_steps",
    DOUBLE.format("'x'", "{% set ns.s = ns.s ~ ns.s %}", ""): "template_output",
    DOUBLE.format("'x'", "{% set ns.s = ns.s + ns.s %}", ""): "template_output",
    DOUBLE.format("'x'", "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}", ""): "template_output",
    DOUBLE.format("9", "{% set ns.s = ns.s * ns.s %}", ""): "digits",
    "{% for i in range(100000) %}" + "x" * 1000 + "{% endfor %}": "template_output",
    "{% set y %}{% for i in range(100000) %}" + "x" * 1000 + "{% endfor %}{% endset %}": "template_output",
    "{{ 'x' * 2000000000 }}": "template_output",
    "{{ ([1] * 2000000000) | length }}": "template_output",
    "{{ messages | tojson(indent=900000000) }}": "template_output",
    "{% set w = 'x' * 9000000 %}{{ messages | tojson(separators=(w, w)) }}": "template_output",
    "{{ 'x' | center(2000000000) }}": "template_output",
    "{{ missing | indent(2000000000) }}": "template_output",
    "{{ none | indent(width=2000000000) }}": "template_output",
    "{{ 'x'.ljust(2000000000) }}": "template_output",
    "{{ 'x\n' | indent(2000000000) }}": "template_output",
    "{{ '%2000000000d' % 1 }}": "template_output",
    "{{ '%*d' % (2000000000, 1) }}": "template_output",
    "{{ '%.2000000000f' | format(1.5) }}": "template_output",
    "{{ '{:{w}}'.format(1, w=2000000000) }}": "template_output",
    "{% set w = 'x' * 1000000 %}{{ range(100000) | join(w) }}": "template_output",
    "{% set w = 'x' * 1000000 %}{{ w.join(['a'] * 1000) }}": "template_output",
    "{% set w = 'x' * 10000 %}{{ w | replace('x', w) }}": "template_output",
    "{% set w = 'x' * 10000 %}{{ w.replace('', w) }}": "template_output",
    "{{ 'ab' | batch(2000000000, 'x') | list }}": "template_output",
    "{{ 'ab' | slice(2000000000, 'x') | list }}": "template_output",
    "{{ ('a' * 9000000).split('a') | length }}": "template_output",
    "{{ ('\n' * 9000000).splitlines() | length }}": "template_output",
    "{{ ('<' * 5000000) | e }}": "template_output",
    "{{ ['\x01' * 9000000] }}": "template_output",
    "{{ 2 ** 100000000000 }}": "digits",
    "{{ 1.5 | round(1000000000, 'ceil') }}": "digits",
    "{{ ('f' * 9000000) | int(0, 16) }}": "digits",
    "{{ " + "1" * 5000 + " }}": "digits",
    " " * 1_100_000: "template_bytes",
}


@pytest.mark.parametrize("source", TOO_MUCH, ids=lambda text: str(text)[:50])
def test_too_much_is_a_budget(source: str) -> None:
    with rlx.budget(template_steps=300_000), pytest.raises(BudgetError, match="the chat template needs") as caught:
        ChatTemplate(source).render(templates.MESSAGES)
    assert caught.value.budget == TOO_MUCH[source]


@pytest.mark.slow
def test_memory(tmp_path: Path) -> None:
    """Each in a process that may take 256 MiB, with the default budgets."""
    worker = campaign.make_worker("templates")
    try:
        for number, source in enumerate(TOO_MUCH):
            path = tmp_path / f"{number}.jinja"
            path.write_text(source)
            answer = worker.run({"file": str(path), "limits": {}})
            assert answer["status"] == "refused", (source[:80], answer)
    finally:
        worker.close()


def test_budgets_can_be_raised_and_lowered() -> None:
    source = "{% for i in range(3000) %}{% endfor %}"
    with rlx.budget(template_steps=2000), pytest.raises(BudgetError):
        ChatTemplate(source).render([])
    with rlx.budget(template_steps=20_000):
        assert ChatTemplate(source).render([]) == ""


def test_a_jinja_that_compiles_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sandbox._Generator, "blockvisit")
    with pytest.raises(RlxError, match=r"jinja2 .* compiles templates in a way that can't be bounded: \['tick'\]"):
        sandbox.environment.__wrapped__()


# Written in the manner of the templates of Llama 3, Qwen 3 and Gemma 3.
CHATS: dict[str, str] = {
    "llama": """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}{%- set system = "" %}{%- endif %}
{{- "<|head|>system<|/head|>\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system + "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception("one call only") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\\n\\n' }}{%- endif %}""",
    "qwen": """{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and message.content is string and not(message.content.startswith('<r>')
      and message.content.endswith('</r>')) %}{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}
    {%- else %}{%- set content = '' %}{%- endif %}
    {%- set thought = '' %}
    {%- if '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ thought ~ '|' ~ content ~ '<|im_end|>' ~ '\\n' }}
    {%- for k, v in message.items() if k not in ['role', 'content'] %}{{ k ~ '=' ~ (v | string | length) }}{% endfor %}
{%- endfor %}""",
    "gemma": """{{ bos_token }}
{%- for message in messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start>' + role + '\\n' }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end>\\n' }}
{%- endfor -%}""",
    "macros": """{%- macro show(value, deep=0) %}
{%- if value is mapping %}{% for k in value | dictsort %}
{{ '  ' * deep }}{{ k[0] }}:{{ show(k[1], deep + 1) }}{% endfor %}
{%- elif value is iterable and value is not string %}{{ value | map('string') | join(', ') }}
{%- else %}{{ "%s/%-4d|{}".format(value) % ('a', deep) }}{% endif %}
{%- endmacro %}{% for m in messages %}{{ show(m) }}{{ loop.cycle('odd', 'even') }}
{{ m.role | upper | replace('U', 'u') }}
{%- if loop.nextitem is defined and loop.nextitem.role == 'user' %}{% continue %}{% endif %}{{ loop.changed(m.role) }}
{%- endfor %}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ (messages | last).role.title() }}
{{- messages | groupby('role') | map(attribute='grouper') | list }}{{ [3, 1, 2] | sort | sum }}{{ 7 // 2 ** 1 % 5 }}""",
}


def plain(source: str, **variables: Any) -> str:
    """What Jinja alone makes of a template, set up as transformers does."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, indent=indent, ensure_ascii=False)
    return environment.from_string(source).render(bos_token="<s>", eos_token="", documents=None, **variables)


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "f", "x": [1, "é"]}}]])
@pytest.mark.quick(5)
def test_real_templates_are_as_without_bounds(name: str, tools: Any) -> None:
    messages = [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "Hello <b> é"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYo"},
        {"role": "user", "content": "and?"},
    ]
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}
    for chat in (messages, messages[1:], [*messages, call], messages * 100):
        own = ChatTemplate(CHATS[name], bos_token="<s>").render(chat, tools=tools)
        assert own == plain(CHATS[name], messages=chat, tools=tools, add_generation_prompt=True)


def test_random_templates(tmp_path: Path) -> None:
    report = campaign.run(Plan("templates", seed=SEED, count=150, out=tmp_path))
    assert not report.findings, report.to_dict()
    assert report.statuses["ok"] > 5


def test_cases_replay(tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_text("{{ 1 }}")
    assert campaign.replay(path)["status"] == "ok"
