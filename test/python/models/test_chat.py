# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from rlx_mlir.errors import ChatTemplateError, InputError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.models.tokenizer import Tokenizer

HELLO = [{"role": "user", "content": "Hello <b> é"}]


def test_smollm2_template(smollm2_path: Path) -> None:
    with GGUFFile(smollm2_path) as file:
        template = ChatTemplate.from_metadata(file.metadata)
        tokenizer = Tokenizer.from_metadata(file.metadata)
    assert (template.bos_token, template.eos_token) == ("<|im_start|>", "<|im_end|>")
    text = template.render(HELLO)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello <b> é<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.tokenize(text, special=True)
    assert (ids.count(1), ids.count(2)) == (3, 2)
    conversation = [{"role": "system", "content": "Be brief."}, *HELLO, {"role": "assistant", "content": "Hi"}]
    assert template.render(conversation, add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello <b> é<|im_end|>\n"
        "<|im_start|>assistant\nHi<|im_end|>\n"
    )


def test_blocks_leave_no_blanks() -> None:
    template = ChatTemplate(
        "{%- for m in messages %}\n    {% if true %}\n{{ m.role }}: {{ m.content }}\n    {% endif %}\n{% endfor %}"
    )
    assert template.render(HELLO) == "user: Hello <b> é\n"


def test_helpers() -> None:
    assert ChatTemplate("{{ messages[0] | tojson }}").render(HELLO) == '{"role": "user", "content": "Hello <b> é"}'
    assert re.fullmatch(r"\d{4}-\d\d", ChatTemplate("{{ strftime_now('%Y-%m') }}").render([]))
    assert (
        ChatTemplate("{% for m in 'abc' %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m }}{% endfor %}").render([])
        == "a"
    )
    assert ChatTemplate("a{% generation %}b{{ bos_token }}{% endgeneration %}", bos_token="<s>").render([]) == "ab<s>"
    assert ChatTemplate("{{ tools | length }}").render([], tools=[1, 2]) == "2"
    scope = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"
    assert ChatTemplate(scope).render([]) == "21", "a scope of its own, as in transformers"


def test_variables_that_transformers_defines() -> None:
    assert ChatTemplate("{{ tools is none }} {{ documents is none }} {{ other is defined }}").render([]) == (
        "True True False"
    )


def test_tojson_is_transformers() -> None:
    def show(arguments: str) -> str:
        return ChatTemplate(f"{{{{ tools | tojson({arguments}) }}}}").render([], tools={"b": "é", "a": [1]})

    assert show("") == '{"b": "é", "a": [1]}'
    assert show("separators=(',', ':')") == '{"b":"é","a":[1]}'
    assert show("ensure_ascii=true, sort_keys=true") == '{"a": [1], "b": "\\u00e9"}'
    assert show("true") == '{"b": "\\u00e9", "a": [1]}', "the first argument, as there"
    assert show("indent=1") == '{\n "b": "é",\n "a": [\n  1\n ]\n}'


PARTS = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]


def test_parts_of_a_content() -> None:
    plain = ChatTemplate("{% for m in messages %}{{ '<' + m['content'] | trim + '>' }}{% endfor %}")
    assert not plain.reads_parts
    assert plain.render(PARTS) == "<a b>"
    looks = "{% for p in m.content %}[{{ p.text }}]{% endfor %}"
    looks = "{% if m.content is string %}{{ m.content }}{% else %}" + looks + "{% endif %}"
    reads = ChatTemplate("{% for m in messages %}" + looks + "{% endfor %}")
    assert reads.reads_parts
    assert reads.render(PARTS) == "[a][b]"
    assert reads.render(HELLO) == "Hello <b> é"
    with pytest.raises(InputError, match="part 0 of message 0 is of type 'image', but models read text alone"):
        plain.render([{"role": "user", "content": [{"type": "image"}]}])
    with pytest.raises(InputError, match="part 0 of message 0 must have a 'text', but has type"):
        plain.render([{"role": "user", "content": [{"type": "text"}]}])
    with pytest.raises(InputError, match="the content of message 0 must be a text, but is of type bytes"):
        plain.render([{"role": "user", "content": b"x"}])


def test_template_may_refuse() -> None:
    template = ChatTemplate("{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}ok")
    assert template.render(HELLO) == "ok"
    with pytest.raises(ChatTemplateError, match="the chat template refuses the messages: user first"):
        template.render([{"role": "system", "content": ""}])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ messages[0].content.nope.nope }}", "fails: UndefinedError"),
        ("{{ 1 / 0 }}", "fails: ZeroDivisionError"),
        ("{{ messages.append(1) }}", "fails: SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "fails: SecurityError"),
        ("{% break %}", "does not compile: SyntaxError"),
        ("{% macro m(a, a) %}{% endmacro %}", "does not compile: SyntaxError: duplicate argument"),
        ("{% for x in [1] %}" * 21 + "{% endfor %}" * 21, "does not compile: SyntaxError"),
        ("{% if x %}" * 3000, "does not compile: RecursionError: it is nested too deeply"),
        ("{% autoescape true %}{% endautoescape %}", "'autoescape' isn't there in chat templates"),
        ("{{ 'x' | urlize }}", "No filter named 'urlize'"),
        ("{{ (1).to_bytes(9) }}", "fails: SecurityError"),
        ("{{ range(10 ** 30) }}", "fails: OverflowError"),
        ("{{ strftime_now('%d' * 1000) }}", "fails: ValueError"),
    ],
)
def test_failing_templates(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        ChatTemplate(source).render(HELLO)


def test_broken_template_names_its_line() -> None:
    with pytest.raises(ChatTemplateError, match="does not parse, line 2: unexpected '}'"):
        ChatTemplate("{% if true %}\n{{ } }}{% endif %}")


def test_messages_are_checked() -> None:
    for wrong in (None, "hi", {"role": "user"}, 5):
        with pytest.raises(InputError, match="messages must be a list of mappings, but are of type"):
            ChatTemplate("").render(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="message 1 must be a mapping with a 'role', but is 'hi'"):
        ChatTemplate("").render([*HELLO, "hi"])  # type: ignore[list-item]


def test_what_comes_behind_an_answer() -> None:
    """It is what stands behind one in a conversation, whatever the template does to the first messages."""
    more = [{"role": "user", "content": "more (rlx: an answer)"}]
    source = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>{% endfor %}[assistant]"
    template = ChatTemplate(f"<s>you are kind</s>{source}")
    whole = template.render([*HELLO, {"role": "assistant", "content": "hi!"}, *more])
    assert whole == template.render(HELLO) + "hi!" + template.after_answer(more)
    assert template.after_answer(more) == "</s>[user]more (rlx: an answer)</s>[assistant]"
    for source in ("{{ messages[-1].content }}", "{% for m in messages %}{{ m.content | upper }}{% endfor %}"):
        with pytest.raises(ChatTemplateError, match="must write answers as they are"):
            ChatTemplate(source).after_answer([{"role": "user", "content": "more"}])


def test_errors_name_the_file() -> None:
    metadata = {"tokenizer.chat_template": "{{ 1 / 0 }}"}
    with pytest.raises(ChatTemplateError, match=r"the chat template of a/m\.gguf fails: ZeroDivisionError"):
        ChatTemplate.from_metadata(metadata, origin="a/m.gguf").render(HELLO)
    with pytest.raises(ChatTemplateError, match=r"a/m\.gguf has no chat template"):
        ChatTemplate.from_metadata({}, origin="a/m.gguf")


def test_metadata_is_checked() -> None:
    with pytest.raises(ChatTemplateError, match="the file has no chat template"):
        ChatTemplate.from_metadata({})
    metadata = {"tokenizer.chat_template": "x", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.bos_token_id": 1}
    with pytest.raises(ChatTemplateError, match=r"the bos id must be in \[0, 1\), but is 1"):
        ChatTemplate.from_metadata(metadata)


def test_what_templates_of_channels_are_written_with() -> None:
    """Macros that call themselves and read what isn't given, records that loops change, and messages behind a message:
    what gpt-oss's template has, with the marks of its messages."""
    source = """
{%- macro type_of(spec, depth=0) -%}
    {%- if spec.type is iterable and spec.type is not string and spec.type is not mapping -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.type == "array" -%}
        {%- set inner = type_of(spec['items'], depth + 1) -%}{{- inner + "[]" }}
    {%- else -%}{{- spec.type }}{%- endif -%}
{%- endmacro -%}
{%- macro head() -%}
    {%- if effort is not defined %}{%- set effort = "medium" %}{%- endif %}
    {{- "Year " + strftime_now("%Y") + ", effort " + effort }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" + head() + "<|end|>" }}
{%- for tool in tools or [] %}
    {%- for name, spec in tool.function.parameters.properties.items() %}
        {{- name + ("" if name in tool.function.parameters.required else "?") + ": " + type_of(spec) }}
        {{- ", default " + spec.default | tojson if spec.default is defined else "" }};
    {%- endfor %}
{%- endfor %}
{%- set last = namespace(call=none) %}
{%- for message in messages %}
    {%- set later = namespace(final=false) %}
    {%- for other in messages[loop.index:] %}
        {%- if other.role == "assistant" and "tool_calls" not in other %}{%- set later.final = true %}{%- endif %}
    {%- endfor %}
    {%- if "tool_calls" in message %}
        {%- set call = message.tool_calls[0].function %}{%- set last.call = call.name %}
        {{- "" if later.final else "<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
        {{- call.name + call.arguments | tojson + "<|call|>" }}
    {%- else %}
        {{- "<|start|>" + (last.call or "") + message.role + "<|message|>" + message.content + "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|start|>assistant" }}{%- endif %}"""
    properties = {
        "a": {"type": "array", "items": {"type": "string"}},
        "b": {"type": ["number", "null"], "default": "é"},
    }
    tools = [{"type": "function", "function": {"parameters": {"properties": properties, "required": ["a"]}}}]
    call = {"function": {"name": "f", "arguments": {"a": ["<|end|>"]}}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call], "thinking": "so"},
        {"role": "tool", "content": "7"},
    ]
    text = ChatTemplate(source).render(messages, tools=tools)
    year = datetime.date.today().year
    assert text == (
        f'<|start|>system<|message|>Year {year}, effort medium<|end|>a: string[];b?: number | null, default "é";'
        '<|start|>user<|message|>hi<|end|><|channel|>analysis<|message|>so<|end|>f{"a": ["<|end|>"]}<|call|>'
        "<|start|>ftool<|message|>7<|end|><|start|>assistant"
    )
