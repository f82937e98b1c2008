# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates."""

from __future__ import annotations

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
        ("{% for i in range(1000000) %}{% endfor %}", "fails: OverflowError"),
    ],
)
def test_failing_templates(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        ChatTemplate(source).render(HELLO)


def test_broken_template_names_its_line() -> None:
    with pytest.raises(ChatTemplateError, match="does not parse, line 2: unexpected '}'"):
        ChatTemplate("{% if true %}\n{{ } }}{% endif %}")


def test_messages_are_checked() -> None:
    with pytest.raises(InputError, match="message 1 must be a mapping with a 'role', but is 'hi'"):
        ChatTemplate("").render([*HELLO, "hi"])  # type: ignore[list-item]


def test_metadata_is_checked() -> None:
    with pytest.raises(ChatTemplateError, match="the file has no chat template"):
        ChatTemplate.from_metadata({})
    metadata = {"tokenizer.chat_template": "x", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.bos_token_id": 1}
    with pytest.raises(ChatTemplateError, match=r"the bos id must be in \[0, 1\), but is 1"):
        ChatTemplate.from_metadata(metadata)
