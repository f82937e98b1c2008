# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates: messages to the text that a model was trained on.

Templates are Jinja programs from a file that somebody else wrote, so they run in Jinja's immutable sandbox (no
attributes that start with an underscore, no changes to what they are given), bounded in steps, text and memory; see
`rlx_mlir.models.sandbox`. What they see is what transformers shows them: `messages`, `tools` and `documents` (None
where there are none), `add_generation_prompt`, `bos_token` and `eos_token`, `raise_exception`, `strftime_now`, its
filter `tojson`, the tags `break`, `continue` and `generation`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import budgets
from ..boundary import foreign_errors, required
from ..errors import ChatTemplateError, InputError

if TYPE_CHECKING:
    from jinja2 import Template, nodes

    from .sandbox import Environment

Message = Mapping[str, object]

_NUMBER = re.compile(r"[0-9A-Fa-f_]+")
#: Characters of a format of dates that are more than any has.
_DATE = 1000
#: An answer that no template writes by itself.
_ANSWER = "(rlx: an answer)"


class _Refused(Exception):
    """`raise_exception` was called by the template."""


def _raise_exception(message: object) -> None:
    raise _Refused(str(message)[:500])


def date_format(format: object) -> str:
    """A format of dates of a template; ValueError for one that is too long."""
    if len(str(format)) > _DATE:
        raise ValueError(f"a format of dates has at most {_DATE} characters")
    return str(format)


def _strftime_now(format: object) -> str:
    return datetime.datetime.now().strftime(date_format(format))


@cache
def _environment() -> Environment:
    from .sandbox import environment

    made = environment()
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


class ChatTemplate:
    """One chat template, compiled.

    Attributes:
        source: its text.
        bos_token, eos_token: texts that the template may put in.
        variables: names that it reads.
        reads_parts: whether it looks at the parts of a content that is a list; else their texts are joined for it.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "", origin: str = "") -> None:
        """Compiles the template; `origin` is the file that it is from, for errors.

        Raises ChatTemplateError with the line where it does not parse, BudgetError where it is too long.
        """
        jinja2 = required("jinja2", "chat templates", ChatTemplateError)
        from .sandbox import metered

        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        self._what = f"the chat template of {origin}" if origin else "the chat template"
        budgets.check("template_bytes", len(source), self._what)
        budgets.check("digits", max(map(len, _NUMBER.findall(source)), default=0), self._what)
        with metered(self._what), foreign_errors(f"{self._what} does not compile", ChatTemplateError):
            try:
                tree = _environment().parse(source)
                self.reads_parts = _reads_parts(tree)
                self.variables = _variables(tree)
                self._template: Template = _environment().from_string(tree)
            except jinja2.TemplateSyntaxError as error:
                where = f"{self._what} does not parse, line {error.lineno}: {error.message}"
                raise ChatTemplateError(where[:500]) from None

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, origin: str = "") -> ChatTemplate:
        """The template in a GGUF file's metadata; ChatTemplateError where there is none. `origin` is the file."""
        source = metadata.get("tokenizer.chat_template")
        if not isinstance(source, str):
            raise ChatTemplateError(
                f"{origin or 'the file'} has no chat template (metadata 'tokenizer.chat_template'): "
                "it can continue a text, without chat"
            )
        bos, eos = (_special(metadata, name, origin) for name in ("bos", "eos"))
        return cls(source, bos_token=bos, eos_token=eos, origin=origin)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: object) -> str:
        """The text for ``messages``; to be tokenised with ``special=True``, and ``bos=False`` where it has a BOS.

        Args:
            messages: mappings with a "role" ("system", "user", "assistant", ...) and mostly a "content": a text, or a
                list of parts ``{"type": "text", "text": …}``, which are joined by blanks for templates that don't look
                at parts.
            add_generation_prompt: end with the start of the assistant's turn.
            variables: whatever else the template reads, such as ``tools`` and ``documents``, which are None by default.

        Raises InputError for messages of another form, ChatTemplateError where the template refuses or fails,
        BudgetError where it takes more steps or makes more text than a budget allows.
        """
        from .sandbox import metered

        given = self._checked(messages)
        shown = {
            "tools": None,
            "documents": None,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "add_generation_prompt": add_generation_prompt,
            **variables,
            "messages": given,
        }
        with metered(self._what), foreign_errors(f"{self._what} fails", ChatTemplateError):
            try:
                return self._template.render(shown)
            except _Refused as error:
                raise ChatTemplateError(f"{self._what} refuses the messages: {error}") from None

    def after_answer(self, messages: Sequence[Message], **variables: Any) -> str:
        """The text that goes on behind an answer: the end of the assistant's turn, ``messages``, and the start of the
        next answer. It is what stands behind an answer in a conversation, so a session that ends with one is fed it.

        Args:
            messages: what comes after the answer, see `render`.
            variables: as for `render`.

        Raises as `render` does, and ChatTemplateError where the template doesn't write answers as they are.
        """
        before = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
        _, found, rest = self.render([*before, *self._checked(messages)], **variables).partition(_ANSWER)
        if not found:
            raise ChatTemplateError(f"{self._what} must write answers as they are, so that a conversation can go on")
        return rest

    def _checked(self, messages: object) -> list[dict[str, object]]:
        """The messages, as the template gets them."""
        if (
            isinstance(messages, str | bytes | Mapping)
            or not isinstance(messages, Iterable)
            or getattr(messages, "ndim", 1) != 1  # numbers are iterable arrays for Python, too
        ):
            raise InputError(f"messages must be a list of mappings, but are of type {type(messages).__name__}")
        found = []
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                shown = repr(message)
                raise InputError(f"message {index} must be a mapping with a 'role', but is {shown[:200]}")
            own = dict(message)
            content = own.get("content")
            if isinstance(content, bytes | bytearray):
                raise InputError(
                    f"the content of message {index} must be a text, but is of type {type(content).__name__}"
                )
            if isinstance(content, list | tuple) and content and all(map(_is_part, content)):
                texts = [_text_of(part, f"part {number} of message {index}") for number, part in enumerate(content)]
                own["content"] = list(content) if self.reads_parts else " ".join(texts)
            found.append(own)
        return found


def _is_part(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("type"), str)


def _text_of(part: Mapping[str, object], what: str) -> str:
    if part["type"] != "text":
        raise InputError(f"{what} is of type '{part['type']}', but models read text alone")
    if not isinstance(part.get("text"), str):
        raise InputError(f"{what} must have a 'text', but has {', '.join(map(str, part))}")
    return str(part["text"])


def _reads_parts(tree: nodes.Template) -> bool:
    """Whether a template asks what kind of thing a content is, or goes through it."""
    from jinja2 import nodes

    def of_content(node: nodes.Node) -> bool:
        return any(
            (isinstance(each, nodes.Name) and each.name == "content")
            or (isinstance(each, nodes.Getattr) and each.attr == "content")
            or (isinstance(each, nodes.Getitem) and isinstance(each.arg, nodes.Const) and each.arg.value == "content")
            for each in (node, *node.find_all((nodes.Name, nodes.Getattr, nodes.Getitem)))
        )

    tests = (each for each in tree.find_all(nodes.Test) if each.name in ("string", "iterable", "sequence", "mapping"))
    return any(map(of_content, tests)) or any(of_content(loop.iter) for loop in tree.find_all(nodes.For))


def _variables(tree: nodes.Template) -> frozenset[str]:
    """Names that a template reads anywhere, whether it sets them itself or not."""
    from jinja2 import nodes

    return frozenset(own.name for own in tree.find_all(nodes.Name) if own.ctx == "load")


def _special(metadata: Mapping[str, object], name: str, origin: str) -> str:
    index = metadata.get(f"tokenizer.ggml.{name}_token_id")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(index, int) or not isinstance(tokens, list):
        return ""
    if not 0 <= index < len(tokens):
        where = f"{origin}: " if origin else ""
        raise ChatTemplateError(f"{where}the {name} id must be in [0, {len(tokens)}), but is {index}")
    return str(tokens[index])
