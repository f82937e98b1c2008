# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Guides: texts of random logits have the form that was asked for, and what is asked for is checked."""

from __future__ import annotations

import gc
import itertools
import json
import re
import sys
import threading
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_tokenizer import bpe, byte_vocabulary, spm

from rlx_mlir import budget
from rlx_mlir.errors import BudgetError, InputError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import structured
from rlx_mlir.models.choosing import Chooser
from rlx_mlir.models.sampling import Sampler
from rlx_mlir.models.structured import Guide, guide_of, json_guide, lark_guide, regex_guide
from rlx_mlir.models.tokenizer import Tokenizer, TokenType

pytest.importorskip("llguidance", reason="needs llguidance, of the extra 'structured'")

BYTES = byte_vocabulary()
END, END_OF_TURN, UNUSED, MERGED = 256, 257, 258, 259
"""Tokens of `small` that aren't bytes."""

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "of_age": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "of_age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    kinds = [TokenType.NORMAL] * 256 + [TokenType.CONTROL] * 2 + [TokenType.UNUSED, TokenType.NORMAL]
    tokens = ("<|end|>", "<|im_end|>", "<unused>", '{"')
    return bpe(*tokens, types=kinds, eos_id=END, merges=('{ "',), pre="gpt-2")


def byte(character: str) -> int:
    return BYTES.index(character)


def allowed(guide: Guide, tokenizer: Tokenizer) -> set[int]:
    found = guide.mask(tokenizer.vocab_size)
    assert found.dtype == np.bool_
    assert found.shape == (tokenizer.vocab_size,)
    return set(np.flatnonzero(found).tolist())


def feed(guide: Guide, tokenizer: Tokenizer, text: str) -> None:
    """Advances by the tokens of a text."""
    for index in tokenizer.tokenize(text, bos=False, continued=True):
        guide.advance(index)


def written(guide: Guide, tokenizer: Tokenizer, seed: int) -> str:
    """Text that random logits give, to the end."""
    chooser = Chooser(Sampler(temperature=1, top_k=0, top_p=1, seed=seed), guide=guide)
    random = np.random.default_rng(seed)
    ids: list[int] = []
    while not chooser.is_finished:
        token = chooser.choose((random.standard_normal(tokenizer.vocab_size) * 2).astype(np.float32))
        if token not in tokenizer.stop_ids:
            ids.append(token)
        assert len(ids) < 2000
    assert allowed(guide, tokenizer) <= tokenizer.stop_ids
    return b"".join(tokenizer.token_bytes(index) for index in ids).decode()


def check_person(text: str) -> None:
    """That a text is JSON, and fits PERSON, by hand."""
    person = json.loads(text)
    assert list(person) == ["name", "age", "of_age", "tags"]
    assert isinstance(person["name"], str)
    assert len(person["name"]) <= 6
    assert type(person["age"]) is int
    assert 0 <= person["age"] <= 150
    assert isinstance(person["of_age"], bool)
    assert 1 <= len(person["tags"]) <= 3
    assert set(person["tags"]) <= {"a", "bc"}


@pytest.mark.parametrize("seed", range(5))
def test_random_logits_give_json_of_a_schema(small: Tokenizer, seed: int) -> None:
    check_person(written(json_guide(small, PERSON), small, seed))


def test_random_logits_give_json_of_a_schema_with_sentencepiece() -> None:
    tokenizer = spm()
    for seed in range(3):
        check_person(written(json_guide(tokenizer, PERSON), tokenizer, seed))


@pytest.mark.parametrize("name", ["smollm2_path", pytest.param("gemma3_path", marks=pytest.mark.slow)])
def test_random_logits_give_json_with_real_vocabularies(name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(name)
    with GGUFFile(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    for seed in range(2):
        check_person(written(json_guide(tokenizer, PERSON), tokenizer, seed))
    guide = json_guide(tokenizer, "json_object")
    for index in tokenizer.tokenize('{"a": [1, {"b": null}], "ü": "\\n"}', bos=False, continued=True):
        assert index in allowed(guide, tokenizer)
        guide.advance(index)
    assert guide.is_finished


@pytest.mark.parametrize(
    "text",
    ["{}", '{"a":1}', '{ "a" : [true, null, -1.5e3, "\\n\u4f60"] }', "{" + " " * 40 + "}", '{\n  "b": {}\n}'],
)
def test_objects_that_are_accepted(small: Tokenizer, text: str) -> None:
    json.loads(text)
    guide = json_guide(small, "json_object")
    feed(guide, small, text)
    assert guide.is_finished
    assert allowed(guide, small) == {END, END_OF_TURN}


@pytest.mark.parametrize("text", ["[", "1", " ", "{" + " " * 41, '{"a":1,}', "{'", '{"a" 1', '{"a":01', '{"\n'])
def test_objects_that_are_refused(small: Tokenizer, text: str) -> None:
    guide = json_guide(small, "json_object")
    with pytest.raises(InputError, match="a token must be one that the form of the text allows next, but is "):
        feed(guide, small, text)
    assert not guide.is_finished


def test_masks_of_a_regular_expression_by_hand(small: Tokenizer) -> None:
    """A token may come next where the text goes on to one of all those that Python's expression matches."""
    pattern = r'a(b|c)?(\{"){0,2}'
    texts = map("".join, itertools.chain(*(itertools.product('abc{"', repeat=size) for size in range(7))))
    words = {text for text in texts if re.fullmatch(pattern, text)}
    assert len(words) == 9
    tokens = {token: small.token_bytes(token).decode() for token in [*map(byte, 'abc{"'), MERGED]}
    starts = {(): ""}
    for _ in range(7):
        longer: dict[tuple[int, ...], str] = {}
        for ids, text in starts.items():
            guide = regex_guide(small, pattern)
            for token in ids:
                guide.advance(token)
            following = {token for token, more in tokens.items() if any(w.startswith(text + more) for w in words)}
            ends = {END, END_OF_TURN} if text in words else set()
            assert allowed(guide, small) == following | ends, text
            longer |= {(*ids, token): text + tokens[token] for token in following}
        starts = longer
    assert not starts


def test_special_tokens_are_no_text(small: Tokenizer) -> None:
    guide = regex_guide(small, "[<|a-z_>]+")
    names = {END, END_OF_TURN, UNUSED}
    assert not names & allowed(guide, small)
    feed(guide, small, "<|im_")
    assert names & allowed(guide, small) == {END, END_OF_TURN}
    guide.advance(END_OF_TURN)
    assert guide.is_finished
    guide.advance(END)  # again: nothing follows
    with pytest.raises(InputError, match="allows next, but is 97"):
        guide.advance(97)


def test_grammars_reach_special_tokens_by_name(small: Tokenizer) -> None:
    guide = lark_guide(small, 'start: "a" <|im_end|>')
    feed(guide, small, "a")
    assert END_OF_TURN in allowed(guide, small)
    guide.advance(END_OF_TURN)
    assert guide.is_finished


def test_lark(small: Tokenizer) -> None:
    guide = lark_guide(small, 'start: sum\nsum: NUMBER | sum "+" NUMBER\nNUMBER: /[0-9]{1,2}/')
    feed(guide, small, "12+3")
    assert allowed(guide, small) == {*map(byte, "0123456789+"), END, END_OF_TURN}
    with pytest.raises(InputError, match=r"the Lark grammar: .*expecting rule, token or statement"):
        lark_guide(small, json.dumps({"grammars": [{"lark_grammar": 'start: "b"'}]}))


def test_tokens_of_equal_text_are_allowed_alike() -> None:
    tokenizer = bpe("plain", types=[TokenType.NORMAL] * 256 + [TokenType.USER_DEFINED], eos_id=0)
    twins = Tokenizer([*tokenizer.tokens, "a"], kind="gpt2", pre="gpt-2", types=[*tokenizer.types, 4], eos_id=0)
    assert allowed(regex_guide(twins, "[ab]x"), twins) == {byte("a"), byte("b"), 257}


def test_vocabularies_that_name_no_end() -> None:
    tokenizer = bpe()
    assert not tokenizer.stop_ids
    guide = regex_guide(tokenizer, "ab?")
    feed(guide, tokenizer, "a")
    assert allowed(guide, tokenizer) == {byte("b")}
    feed(guide, tokenizer, "b")
    assert guide.is_finished
    assert allowed(guide, tokenizer) == set()


def test_masks_of_other_sizes(small: Tokenizer) -> None:
    """Padded logits have ids without a text, which are never allowed."""
    guide = regex_guide(small, "[a-z]")
    whole = guide.mask(small.vocab_size)
    for size in (0, 1, byte("b"), 255, 256, small.vocab_size + 1, small.vocab_size + 100):
        found = guide.mask(size)
        assert found.shape == (size,)
        common = min(size, small.vocab_size)
        np.testing.assert_array_equal(found[:common], whole[:common])
        assert not found[common:].any()


def test_clones_are_apart(small: Tokenizer) -> None:
    guide = json_guide(small, PERSON)
    feed(guide, small, '{"name":"x')
    twin = guide.clone()
    feed(guide, small, '","age":1')
    assert byte("y") in allowed(twin, small)
    feed(twin, small, 'y","age":')
    assert allowed(twin, small) >= set(map(byte, "123456789"))
    assert byte(",") in allowed(guide, small)


def test_a_wrong_token_changes_nothing(small: Tokenizer) -> None:
    guide = regex_guide(small, "abc")
    feed(guide, small, "a")
    for token in (byte("c"), END, MERGED, 10**6):
        with pytest.raises(InputError, match=f"allows next, but is {token}"):
            guide.advance(token)
    with pytest.raises(InputError, match="'token' is a whole number of at least 0, but got -1"):
        guide.advance(-1)
    assert allowed(guide, small) == {byte("b")}


def test_a_vocabulary_is_read_once_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = bpe(eos_id=0)
    read: list[str] = []

    class Texts(structured._Texts):
        def __init__(self, tokenizer: Tokenizer) -> None:
            read.append("once")
            super().__init__(tokenizer)

    monkeypatch.setattr(structured, "_Texts", Texts)
    guides = [regex_guide(tokenizer, "ab"), json_guide(tokenizer, "json_object")]
    assert read == ["once"]
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is not None  # guides need it
    guides.clear()
    gc.collect()
    assert gone() is None


FORMS: list[tuple[dict[str, Any], str]] = [
    ({"type": "json_object"}, "{"),
    ({"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "null"}}}, "n"),
    ({"type": "array"}, "["),
    ({"enum": [True]}, "t"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 7}}}, "7"),
    ({"type": ["null", "boolean"]}, "ntf"),
    ({"type": "regex", "pattern": "x|y"}, "xy"),
    ({"type": "lark", "grammar": 'start: "q"'}, "q"),
    (types.MappingProxyType({"type": "object", "properties": types.MappingProxyType({})}), "{"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("form", "starts"), FORMS)
def test_forms(small: Tokenizer, form: dict[str, Any], starts: str) -> None:
    guide = guide_of(form, small)
    assert guide is not None
    assert allowed(guide, small) - {MERGED} == set(map(byte, starts))


def test_any_text_has_no_guide(small: Tokenizer) -> None:
    assert guide_of(None, small) is None
    assert guide_of({"type": "text"}, small) is None


def circular() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema}
    return schema


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("json_object", "'response_format' is a mapping, by name, but got 'json_object'"),
        ({1: 2}, "'response_format' is a mapping, by name, but got {1: 2}"),
        ({}, r"'response_format' is a JSON schema, or has a 'type' of text, json_object, json_schema.*, but got \{\}"),
        ({"type": 3.5, "a": 1}, "the JSON schema: "),
        ({"a": 1}, "'response_format' is a JSON schema, or has a 'type' of text, .*, but got {'a': 1}"),
        (
            {"type": "json-object"},
            "the 'type' of 'response_format' is one of text, json_object, json_schema, regex, lark, or of JSON's own, "
            r"but is 'json-object' \(did you mean 'json_object'\?\)",
        ),
        ({"type": "regex"}, "'response_format' needs the key 'pattern', but has type"),
        ({"type": "regex", "patern": "a"}, r"'response_format' has no key 'patern' \(did you mean 'pattern'\?\)"),
        ({"type": "json_object", "schema": {}}, "'response_format' has no key 'schema'; it has type"),
        ({"type": "regex", "pattern": 3}, "'pattern' is a regular expression, but got 3"),
        ({"type": "regex", "pattern": "\ud800"}, "'pattern' is a regular expression, but got"),
        ({"type": "regex", "pattern": "a("}, "the regular expression: .*unclosed group"),
        ({"type": "regex", "pattern": "a(?=b)"}, "the regular expression: .*look-around"),
        ({"type": "lark", "grammar": None}, "'grammar' is a Lark grammar, but got None"),
        ({"type": "lark", "grammar": "begin: 1"}, "the Lark grammar: "),
        ({"type": "lark", "grammar": "start: start"}, "the Lark grammar: NoExtension"),
        ({"type": "json_schema"}, "'response_format' needs the key 'json_schema', but has type"),
        (
            {"type": "json_schema", "json_schema": []},
            r"'json_schema' is a mapping with 'schema', by name, but got \[\]",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n"}},
            "'json_schema' of 'response_format' needs the key 'schema', but has name",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": {}, "stric": 1}},
            r"'json_schema' of 'response_format' has no key 'stric' \(did you mean 'strict'\?\)",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": 3}},
            "'schema' is a JSON schema: a mapping, by name, but got 3",
        ),
        ({"type": "array", "uniqueItems": True}, "the JSON schema: .*Unimplemented keys: .*uniqueItems"),
        ({"type": "string", "format": "nothing"}, "the JSON schema: .*Unknown format: nothing"),
        ({"$ref": "#"}, "the JSON schema: NoExtension"),
        ({"$ref": "https://example.com/a.json"}, "the JSON schema: .*does not fetch resources"),
        ({"const": float("nan")}, "the schema isn't JSON: ValueError: "),
        ({"const": {1, 2}}, r"the schema isn't JSON: TypeError: \{1, 2\} isn't a value of JSON"),
        ({"const": "\ud800"}, "the JSON schema: "),
        ({"type": "integer", "minimum": 10**400}, "the JSON schema: "),
        (circular(), "the schema isn't JSON: ValueError: Circular reference"),
        (nested(100_000), "the schema isn't JSON: RecursionError: it is nested too deeply"),
        (nested(200), "the JSON schema: .*recursion limit"),
    ],
)
def test_forms_are_checked(small: Tokenizer, form: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        guide_of(form, small)
    assert len(str(caught.value)) < 1000


def test_the_tokenizer_is_checked() -> None:
    with pytest.raises(InputError, match="'tokenizer' is a Tokenizer, but got None"):
        json_guide(None, "json_object")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'schema' is a JSON schema: a mapping, by name, but got 'json'"):
        json_guide(bpe(), "json")


def test_sizes_have_a_budget(small: Tokenizer) -> None:
    with pytest.raises(BudgetError, match="the regular expression needs 65,537, but the budget 'grammar_bytes'"):
        regex_guide(small, "a" * 65_537)
    with budget(grammar_bytes=10):
        regex_guide(small, "a" * 10)
        with pytest.raises(BudgetError, match="the Lark grammar needs 12, but the budget 'grammar_bytes'"):
            lark_guide(small, 'start: "abc"')
        with pytest.raises(BudgetError, match="the JSON schema needs 18"):
            json_guide(small, "json_object")


CHAINS = {
    "references": {
        "$defs": {
            **{f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(1400)},
            "d1400": {"type": "null"},
        },
        "$ref": "#/$defs/d0",
    },
    "nested items": {
        "$defs": {
            **{f"d{i}": {"items": {"items": {"items": {"$ref": f"#/$defs/d{i + 1}"}}}} for i in range(800)},
            "d800": {"type": "null"},
        },
        "$ref": "#/$defs/d0",
    },
}


@pytest.mark.parametrize("name", CHAINS)
def test_long_chains_of_references_have_a_stack(small: Tokenizer, name: str) -> None:
    """These end the process on a stack of 8 MiB."""
    schema = CHAINS[name]
    guide = json_guide(small, schema)
    feed(guide, small, "[[[")
    guide.clone()


def test_long_chains_of_rules_have_a_stack(small: Tokenizer) -> None:
    rules = "".join(f"r{i}: r{i + 1}\n" for i in range(4000))
    guide = lark_guide(small, f'start: r0\n{rules}r4000: "a"')
    assert allowed(guide, small) == {byte("a")}
    terminals = "".join(f'T{i}: (T{i + 1} "b")*\n' for i in range(512))
    with pytest.raises(InputError, match="a Lark grammar must have at most 512 terminals, but has 513"):
        lark_guide(small, f'start: T0\n{terminals}T512: "a"')


def test_limits_of_llguidance_are_errors(small: Tokenizer) -> None:
    guide = json_guide(small, {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(1200)}})
    with pytest.raises(InputError, match=r"token .* can't be followed: .*items"):
        feed(guide, small, '{"p1')


def test_the_size_of_stacks_of_other_threads_stays(small: Tokenizer) -> None:
    before = threading.stack_size()
    regex_guide(small, "a")
    assert threading.stack_size() == before


@pytest.fixture
def without_llguidance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)


@pytest.mark.usefixtures("without_llguidance")
def test_a_missing_package_is_named(small: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"needs the package llguidance, .*: pip install 'rlx-mlir\[structured\]'"):
        guide_of({"type": "json_object"}, small)
    assert guide_of({"type": "text"}, small) is None
