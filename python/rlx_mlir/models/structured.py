# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text of a given form: guides say which tokens may come next, by a JSON schema, a regular expression or a grammar.

Which tokens fit is computed by llguidance, of the extra ``structured``. Schemas and grammars may be a stranger's: their
size has a budget, and llguidance bounds what they grow to.
"""

from __future__ import annotations

import json
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from .. import budgets, checks
from ..boundary import foreign_errors
from ..errors import InputError, did_you_mean, shortened
from .tokenizer import Tokenizer, TokenType

if TYPE_CHECKING:
    import llguidance

Made = TypeVar("Made")


@runtime_checkable
class Guide(Protocol):
    """Says which tokens may come next, from the first one that is generated."""

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete, and nothing but a token that ends generation may follow."""
        ...

    def mask(self, size: int) -> npt.NDArray[np.bool_]:
        """Which of the ids below ``size`` may come next, bool ``[size]``.

        Those that end generation are among them where the text may end.
        """
        ...

    def advance(self, token: int) -> None:
        """Goes on behind a token; InputError where it may not come next."""
        ...

    def clone(self) -> Guide:
        """Another guide in the same state."""
        ...


#: Blanks between the parts of JSON. Without a bound, a model may write blanks until it has no tokens left.
_BLANKS = r"[ \t\r\n]{0,40}"
#: Bytes of stack for each byte of a grammar: llguidance follows references between rules by recursion, up to 10 KiB for
#: each, and a stack that is too small ends the process.
_STACK_FACTOR = 4096
_LEAST_STACK = 64 << 20
#: Characters of llguidance's messages that are kept: they repeat the grammar.
_LONGEST = 500
#: Keys of each form of `response_format`, the one that has to be there first.
_FORMS: Mapping[str, tuple[str, ...]] = {
    "text": (),
    "json_object": (),
    "json_schema": ("json_schema",),
    "regex": ("pattern",),
    "lark": ("grammar",),
}
_OPENAI_KEYS = ("schema", "name", "description", "strict")
_JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
#: Of a schema that stands by itself, one at least is there.
_SCHEMA_KEYS = frozenset(
    ("$defs", "$ref", "$schema", "allOf", "anyOf", "const", "enum", "items", "oneOf", "properties", "type")
)
#: Terminals of a grammar: what llguidance takes for terminals within each other grows with the third power of their
#: number, and nothing bounds it.
_MOST_TERMINALS = 512
_TERMINAL = re.compile(r"^\s*[?!]?_*[A-Z]\w*[^:\n]*:", re.MULTILINE)


def guide_of(response_format: Mapping[str, object] | None, tokenizer: Tokenizer) -> Guide | None:
    """The guide to text of a form; None for ``None`` and ``{"type": "text"}``, which are any text.

    Args:
        response_format: ``{"type": "json_object"}``; ``{"type": "json_schema", "json_schema": {"schema": {...}}}``, as
            OpenAI's interface has it; a JSON schema by itself; ``{"type": "regex", "pattern": "..."}``, which the whole
            text matches; or ``{"type": "lark", "grammar": "start: ..."}``.
        tokenizer: of the model.

    Raises InputError for what is none of these, names the keys that are wrong, and passes on what llguidance says of a
    schema or grammar, such as a word of JSON Schema that it doesn't know; BudgetError where one has more bytes than the
    budget `grammar_bytes`.
    """
    if response_format is None:
        return None
    form = checks.mapping("response_format", response_format, "a mapping")
    kind = form.get("type")
    if not isinstance(kind, str) or kind in _JSON_TYPES:
        if not _SCHEMA_KEYS & form.keys():
            raise InputError(
                f"'response_format' is a JSON schema, or has a 'type' of {', '.join(_FORMS)}, but got "
                f"{checks.shown(form)}"
            )
        return json_guide(tokenizer, form)
    if kind not in _FORMS:
        near = did_you_mean(kind, (*_FORMS, *_JSON_TYPES))
        raise InputError(
            f"the 'type' of 'response_format' is one of {', '.join(_FORMS)}, or of JSON's own, but is "
            f"{shortened(kind)}{near}"
        )
    _check_keys("'response_format'", form, ("type", *_FORMS[kind]), needed=_FORMS[kind])
    if kind == "text":
        return None
    if kind == "json_object":
        return json_guide(tokenizer, "json_object")
    if kind == "regex":
        return regex_guide(tokenizer, form["pattern"])
    if kind == "lark":
        return lark_guide(tokenizer, form["grammar"])
    inner = checks.mapping("json_schema", form["json_schema"], "a mapping with 'schema'")
    _check_keys("'json_schema' of 'response_format'", inner, _OPENAI_KEYS, needed=("schema",))
    return json_guide(tokenizer, inner["schema"])


def json_guide(tokenizer: Tokenizer, schema: Mapping[str, object] | str) -> Guide:
    """The guide to JSON that fits a schema, a mapping; of "json_object", to any object.

    Properties come in the order that the schema has. Between parts of the text up to 40 blanks and line breaks are
    allowed; characters of strings stand for themselves, other than by ``\\u``. Raises as `guide_of` does.
    """
    if isinstance(schema, str) and schema == "json_object":
        schema = {"type": "object"}
    checks.mapping("schema", schema, "a JSON schema: a mapping")
    with foreign_errors("the schema isn't JSON"):
        text = json.dumps(schema, allow_nan=False, default=_plain)

    blanks = {"whitespace_pattern": _BLANKS}
    return _guide(
        tokenizer, "the JSON schema", text, lambda lib: lib.LLMatcher.grammar_from_json_schema(text, overrides=blanks)
    )


def regex_guide(tokenizer: Tokenizer, pattern: str) -> Guide:
    """The guide to text that matches a regular expression as a whole; it has no look-around and no back references.

    Raises as `guide_of` does.
    """
    checks.text("pattern", pattern, "a regular expression")
    return _guide(tokenizer, "the regular expression", pattern, lambda lib: lib.LLMatcher.grammar_from_regex(pattern))


def lark_guide(tokenizer: Tokenizer, grammar: str) -> Guide:
    """The guide to text of a grammar from its rule ``start``, as llguidance reads Lark. Raises as `guide_of` does."""
    checks.text("grammar", grammar, "a Lark grammar")
    terminals = sum(1 for _ in _TERMINAL.finditer(grammar))
    if terminals > _MOST_TERMINALS:
        raise InputError(f"a Lark grammar must have at most {_MOST_TERMINALS} terminals, but has {terminals}")
    wrapped = json.dumps({"grammars": [{"lark_grammar": grammar}]})  # a text that is JSON would be read as this form
    return _guide(tokenizer, "the Lark grammar", grammar, lambda lib: wrapped)


def _check_keys(where: str, form: Mapping[str, object], known: tuple[str, ...], *, needed: tuple[str, ...]) -> None:
    for key in form:
        if key not in known:
            raise InputError(
                f"{where} has no key {shortened(key)}{did_you_mean(key, known)}; it has {', '.join(known)}"
            )
    for key in needed:
        if key not in form:
            raise InputError(f"{where} needs the key '{key}', but has {', '.join(form) or 'none'}")


def _plain(value: object) -> object:
    """What JSON can write of a mapping that isn't a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{checks.shown(value)} isn't a value of JSON")


class _GrammarGuide:
    """A guide by llguidance's matcher."""

    def __init__(self, tokenizer: Tokenizer, matcher: llguidance.LLMatcher) -> None:
        self._tokenizer = tokenizer  # the matcher refers to it weakly
        self._matcher = matcher

    @property
    def is_finished(self) -> bool:
        return bool(self._matcher.is_stopped())

    def mask(self, size: int) -> npt.NDArray[np.bool_]:
        checks.whole("size", size)
        count = min(size, self._tokenizer.vocab_size)
        with foreign_errors("which tokens may come next can't be computed"):
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        _check_matcher("which tokens may come next can't be computed", self._matcher)
        allowed = np.zeros(size, np.uint8)
        allowed[:count] = np.unpackbits(bits, count=count, bitorder="little")
        return allowed.view(np.bool_)

    def advance(self, token: int) -> None:
        checks.whole("token", token)
        if self.is_finished and token in self._tokenizer.stop_ids:
            return
        fits = token < self._tokenizer.vocab_size and self._matcher.try_consume_tokens([int(token)]) == 1
        if not fits and token in self._tokenizer.stop_ids and self.mask(token + 1)[token]:  # named by the grammar
            fits = self._matcher.consume_token(int(token))
        _check_matcher(f"token {token} can't be followed", self._matcher)
        if not fits:
            raise InputError(f"a token must be one that the form of the text allows next, but is {shortened(token)}")

    def clone(self) -> _GrammarGuide:
        return _GrammarGuide(self._tokenizer, self._matcher.deep_copy())


def _check_matcher(what: str, matcher: llguidance.LLMatcher) -> None:
    """Raises InputError with what llguidance says, where it gave up."""
    if matcher.is_error():
        said = " ".join(matcher.get_error().split())
        raise InputError(f"{what}: {said if len(said) <= _LONGEST else f'{said[:_LONGEST]}…'}")


def _library() -> ModuleType:
    try:
        import llguidance
    except ImportError:
        raise InputError(
            "'response_format' needs the package llguidance, which isn't installed: pip install 'rlx-mlir[structured]'"
        ) from None
    return llguidance


def _guide(tokenizer: Tokenizer, what: str, text: str, grammar: Callable[[ModuleType], str]) -> Guide:
    """The guide that llguidance makes of a grammar; the first mask is computed here, so that its errors are, too."""
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"'tokenizer' is a Tokenizer, but got {checks.shown(tokenizer)}")
    size = len(text.encode())
    budgets.check("grammar_bytes", size, what)
    library = _library()
    vocabulary = _vocabulary(tokenizer, library)

    def build() -> llguidance.LLMatcher:
        limits = library.LLParserLimits(verbose_errors=False)
        matcher: llguidance.LLMatcher = library.LLMatcher(vocabulary, grammar(library), log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return matcher

    with foreign_errors(what):
        matcher: llguidance.LLMatcher = _on_stack(max(_LEAST_STACK, _STACK_FACTOR * size), build)
    _check_matcher(what, matcher)
    return _GrammarGuide(tokenizer, matcher)


_stack_size = threading.Lock()


def _on_stack(size: int, function: Callable[[], Made]) -> Made:
    """What a function gives, called on a stack of so many bytes; only those that it uses take memory."""
    found: list[Made] = []
    raised: list[BaseException] = []

    def call() -> None:
        try:
            found.append(function())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, name="rlx-grammar", daemon=True)
    with _stack_size:
        before = threading.stack_size(size)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


_vocabularies: weakref.WeakKeyDictionary[Tokenizer, llguidance.LLTokenizer] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _vocabulary(tokenizer: Tokenizer, library: ModuleType) -> llguidance.LLTokenizer:
    """llguidance's tree of a vocabulary, made once for each tokenizer."""
    with _making:
        found = _vocabularies.get(tokenizer)
        if found is None:
            texts = _Texts(tokenizer)
            with foreign_errors("llguidance can't read the vocabulary"):
                found = library.LLTokenizer(library.TokenizerWrapper(texts), eos_token=texts.ends)
            _vocabularies[tokenizer] = found
        return found


class _Texts:
    """A vocabulary as llguidance reads it.

    Tokens that aren't text are special: a grammar reaches them by name only. Where no token ends generation, there is
    one more, behind the others, that stands for the end.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        no_text = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED)
        special = {index for index, kind in enumerate(tokenizer.types) if kind in no_text} | tokenizer.stop_ids
        self.tokens = [tokenizer.token_bytes(index, special=True) for index in range(tokenizer.vocab_size)]
        self.ends = sorted(tokenizer.stop_ids)
        if not self.ends:
            self.ends = [len(self.tokens)]
            special.add(len(self.tokens))
            self.tokens.append(b"<end of generation>")
        self.special_token_ids = sorted(special)
        self.eos_token_id = self.ends[0]
        self.bos_token_id = tokenizer.bos_id
        self._tokenizer = weakref.ref(tokenizer)  # it keeps what is made of this

    def __call__(self, text: bytes) -> list[int]:
        """Ids of text that has to come next."""
        tokenizer = self._tokenizer()
        return [] if tokenizer is None else tokenizer.tokenize(text.decode(), bos=False, continued=True)


__all__ = ["Guide", "guide_of", "json_guide", "lark_guide", "regex_guide"]
