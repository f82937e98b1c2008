# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates: messages to the text that a model was trained on.

Templates are Jinja programs from a file that somebody else wrote, so they run in Jinja's immutable sandbox: no
attributes that start with an underscore, no changes to what they are given, no ranges above 100,000.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ChatTemplateError, InputError

if TYPE_CHECKING:
    from jinja2 import Environment, Template

Message = Mapping[str, Any]


class _Refused(Exception):
    """`raise_exception` was called by the template."""


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, sort_keys: bool = False) -> str:
    """Unlike Jinja's own filter, leaves non-ASCII and HTML characters as they are: models were trained on that."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys)


def _environment() -> Environment:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %} ... {% endgeneration %}`` marks what the assistant says, for training: plain text here."""

        tags = {"generation"}  # noqa: RUF012 - the name and form that jinja2 asks for

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """One chat template, compiled.

    Attributes:
        source: its text.
        bos_token, eos_token: texts that the template may put in.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        """Compiles the template; ChatTemplateError with the line where it does not parse."""
        from jinja2 import TemplateError, TemplateSyntaxError

        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        try:
            self._template: Template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(f"the chat template does not parse, line {error.lineno}: {error.message}") from None
        except (TemplateError, RecursionError, MemoryError) as error:
            raise ChatTemplateError(f"the chat template does not compile: {error}") from None

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> ChatTemplate:
        """The template in a GGUF file's metadata; ChatTemplateError where there is none."""
        source = metadata.get("tokenizer.chat_template")
        if not isinstance(source, str):
            raise ChatTemplateError(
                "the file has no chat template (metadata 'tokenizer.chat_template'): "
                "it can continue a text, without chat"
            )
        return cls(source, bos_token=_special(metadata, "bos"), eos_token=_special(metadata, "eos"))

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text for ``messages``; to be tokenised with ``special=True``, and ``bos=False`` where it has a BOS.

        Args:
            messages: mappings with a "role" ("system", "user", "assistant", ...) and mostly a "content".
            add_generation_prompt: end with the start of the assistant's turn.
            variables: whatever else the template reads, such as ``tools``.

        Raises InputError for messages of another form, ChatTemplateError where the template refuses or fails.
        """
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InputError(f"message {index} must be a mapping with a 'role', but is {message!r}")
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                bos_token=self.bos_token,
                eos_token=self.eos_token,
                add_generation_prompt=add_generation_prompt,
                **variables,
            )
        except _Refused as error:
            raise ChatTemplateError(f"the chat template refuses the messages: {error}") from None
        except Exception as error:  # whatever a program from a file can raise
            raise ChatTemplateError(f"the chat template fails: {type(error).__name__}: {error}") from error


def _special(metadata: Mapping[str, Any], name: str) -> str:
    index = metadata.get(f"tokenizer.ggml.{name}_token_id")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(index, int) or not isinstance(tokens, list):
        return ""
    if not 0 <= index < len(tokens):
        raise ChatTemplateError(f"the {name} id must be in [0, {len(tokens)}), but is {index}")
    return str(tokens[index])
