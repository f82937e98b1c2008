# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizers of `tokenizer.json` in bundles: ids of librlx_runtime.so are those of the library `tokenizers`."""

from __future__ import annotations

import base64
import functools
import io
import json
import random
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiny_models
from bundles import rewritten
from c_api import CError
from c_runtime import Opened
from descriptions import Change, set_at
from sentencepiece import sentencepiece_model_pb2
from test_json_tokenizer import MADE, byte_level, pieces, read, write
from test_text_section import PARTS, PLAIN, SAMPLE, compare, opened, texts
from tokenizers import AddedToken, Tokenizer, normalizers

from rlx_mlir.errors import TokenizerError, UnsupportedError
from rlx_mlir.frontends.huggingface import FolderMetadata
from rlx_mlir.models import character_map, json_section
from rlx_mlir.models.bundle import TEXT
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.models.json_tokenizer import JsonTokenizer
from rlx_mlir.models.normal_form import tables
from rlx_mlir.models.text_section import VERSION, ChatForm
from rlx_mlir.models.text_section import described as described_text
from rlx_mlir.runtime.encoding import encode

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def _split(pattern: dict[str, str]) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def _steps(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _qwen(document: dict[str, Any]) -> None:
    """As of Qwen: composed texts, pieces by an expression."""
    document["normalizer"] = {"type": "NFC"}
    document["pre_tokenizer"] = _steps(_split({"Regex": _QWEN}), _BYTES)


def _digits(document: dict[str, Any]) -> None:
    digits = {"type": "Digits", "individual_digits": True}
    document["pre_tokenizer"] = _steps(digits, {**_BYTES, "use_regex": True})


def _runs(document: dict[str, Any]) -> None:
    """Runs of digits and of punctuation, and a text to cut at; whole pieces are tokens where there are some."""
    steps = ({"type": "Digits", "individual_digits": False}, {"type": "Punctuation", "behavior": "Contiguous"})
    document["pre_tokenizer"] = _steps(*steps, _split({"String": ". "}), _BYTES)
    document["model"]["ignore_merges"] = True


def _alone(document: dict[str, Any]) -> None:
    """Each mark of punctuation is a piece; merges are texts, as older files have them."""
    document["pre_tokenizer"] = _steps({"type": "Punctuation", "behavior": "Isolated"}, _BYTES)
    model = document["model"]
    model["merges"] = [own if isinstance(own, str) else " ".join(own) for own in model["merges"]]


def _without_bytes(document: dict[str, Any]) -> None:
    document["model"] |= {"byte_fallback": False, "fuse_unk": False}


def _fused(document: dict[str, Any]) -> None:
    document["model"] |= {"byte_fallback": False, "fuse_unk": True}


def _composed(document: dict[str, Any]) -> None:
    document["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, document["normalizer"]]}


def _normalized(*steps: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        old = [document["normalizer"]] if document.get("normalizer") else []
        document["normalizer"] = {"type": "Sequence", "normalizers": [*({"type": step} for step in steps), *old]}

    return change


def _of_bytes(document: dict[str, Any]) -> None:
    """Unigrams, of which characters that they lack become bytes."""
    model = document["model"]
    model["byte_fallback"] = True
    model["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]


@functools.cache
def _characters(rule: str) -> str:
    """SentencePiece's table of characters of a rule, in base64."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([SAMPLE]), model_writer=written, model_type="unigram", vocab_size=200,
        hard_vocab_limit=False, normalization_rule_name=rule, minloglevel=2,
    )  # fmt: skip
    own = sentencepiece_model_pb2.ModelProto()
    own.ParseFromString(written.getvalue())
    return base64.b64encode(own.normalizer_spec.precompiled_charsmap).decode()


def _precompiled(rule: str, *more: dict[str, Any]) -> dict[str, Any]:
    own = {"type": "Precompiled", "precompiled_charsmap": _characters(rule)}
    return {"type": "Sequence", "normalizers": [own, *more]}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


_METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}


def xlm(document: dict[str, Any]) -> None:
    """As of XLM-R, and older ones of T5."""
    document["normalizer"] = _precompiled("nmt_nfkc")
    document["pre_tokenizer"] = _steps({"type": "WhitespaceSplit"}, _METASPACE)


def t5(document: dict[str, Any]) -> None:
    """As of T5, as transformers writes it now."""
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    document["normalizer"] = _precompiled("nmt_nfkc", strip, _replace({"Regex": " {2,}"}, "\u2581"))
    document["pre_tokenizer"] = _METASPACE


def _albert(document: dict[str, Any]) -> None:
    """Quotes become others before characters do, which are folded; spaces that are many become one."""
    quotes = [_replace({"String": "``"}, '"'), _replace({"String": "''"}, '"')]
    strip = {"type": "Strip", "strip_left": True, "strip_right": False}
    own = _precompiled("nmt_nfkc_cf", strip, _replace({"Regex": r"\s{2,}"}, " "))["normalizers"]
    document["normalizer"] = {"type": "Sequence", "normalizers": [*quotes, {"type": "Lowercase"}, *own]}


def _mapped(document: dict[str, Any]) -> None:
    """Bytes of characters that became others."""
    document["normalizer"] = _precompiled("nfkc")


_KINDS: dict[str, tuple[str, Change | None]] = {
    **{name: (name, None) for name in MADE},
    "lower": ("byte-level", _normalized("NFKC", "Lowercase")),
    "parts": ("byte-level", _normalized("NFD")),
    "compatible": ("gemma", _normalized("NFKD")),
    "alike": ("always", _normalized("Lowercase", "NFKC")),
    "unigram-bytes": ("unigram", _of_bytes),
    "unigram-lower": ("unigram", _normalized("NFKC", "Lowercase")),
    "xlm": ("unigram", xlm),
    "t5": ("unigram", t5),
    "albert": ("unigram", _albert),
    "mapped": ("byte-level", _mapped),
    "qwen": ("byte-level", _qwen),
    "digits": ("byte-level", _digits),
    "runs": ("byte-level", _runs),
    "alone": ("byte-level", _alone),
    "unknown": ("gemma", _without_bytes),
    "fused": ("normalizer", _fused),
    "composed": ("gemma", _composed),
}
#: Users' tokens and control tokens that take spaces, are within others, or are found in composed texts.
_ADDED = (
    *(AddedToken("<|left|>", lstrip=True, special=True), AddedToken("<|right|>", rstrip=True, special=True)),
    *(AddedToken("word", single_word=True), AddedToken("<w", single_word=True, lstrip=True, normalized=False)),
    *(AddedToken("<both>", lstrip=True, rstrip=True, normalized=False), AddedToken("<bo", normalized=False)),
    *(
        AddedToken("caf\u00e9", normalized=True),
        AddedToken("<to", normalized=True),
        AddedToken("\n\n", normalized=False),
    ),
)
_ADDED_TEXTS = (
    *("word", "<w", "_", "\u200d", "\u2160", "Word", "\u24d0", "\u0130\u03a3", "\ufb01", "\u00a8", "\u3000"),
    "<|left|>",
    "<|right|>",
    "<both>",
    "<bo",
    "cafe\u0301",
    "caf\u00e9",
    "<to",
    "<tool>",
    "<s>",
    "</s>",
    "\n\n",
)


def _made(name: str) -> dict[str, Any]:
    """The description of a kind, with more tokens."""
    base, change = _KINDS[name]
    document = json.loads(MADE[base]().to_str())
    if change is not None:
        change(document)
    made = Tokenizer.from_str(json.dumps(document))
    made.add_tokens(list(_ADDED))
    found: dict[str, Any] = json.loads(made.to_str())
    return found


def _cases(seed: int, count: int) -> list[str]:
    """Texts with those tokens in them, and with letters whose marks are in any order."""
    rng, found = random.Random(seed), texts(seed, count)
    marks = [chr(code) for code in range(0x300, 0x370)] + ["\u0323", "\u0327", "\u05b0", "\u0e38", "\u3099", "\u0344"]
    while len(found) < 2 * count:
        parts = [
            rng.choice(
                (rng.choice(_ADDED_TEXTS), rng.choice(PARTS), " ", rng.choice("aeioukAE\u1100\u1161\u11a8\uac00\u304b"))
            )
            + "".join(rng.choices(marks, k=rng.choice((0, 0, 1, 2, 4))))
            for _ in range(rng.randint(1, 10))
        ]
        found.append("".join(parts))
    return found


@pytest.mark.parametrize("name", _KINDS)
def test_ids_are_those_of_the_library(tiny_bundle: Path, tmp_path: Path, name: str) -> None:
    document = _made(name)
    folder = write(tmp_path / "f", document, bos_token="<s>")
    tokenizer = read(folder)
    own = opened(tiny_bundle, tmp_path, FolderMetadata(folder, {}))
    compare(own, tokenizer, [*_cases(1, 150), *_ADDED_TEXTS])
    made = Tokenizer.from_str(json.dumps(document))
    for text in _cases(2, 20):
        assert own.tokenize(text, 3) == made.encode(text, add_special_tokens=False).ids, repr(text)


def test_texts_are_composed_as_the_library_does(tiny_bundle: Path, tmp_path: Path) -> None:
    """Of every character, alone and behind a letter with a mark: its pieces say what it has become."""
    folder = write(tmp_path / "f", _made("qwen"), bos_token="<s>")
    tokenizer = read(folder)
    own = opened(tiny_bundle, tmp_path, FolderMetadata(folder, {}))
    rng = random.Random(0)
    parted = [chr(code) for code in range(0x110000) if unicodedata.decomposition(chr(code))[:1] not in ("", "<")]
    marks = [chr(code) for code in range(0x110000) if unicodedata.combining(chr(code))]
    for _ in range(60):
        text = "".join(
            rng.choice((rng.choice(parted), rng.choice("aeAk"))) + "".join(rng.choices(marks, k=2)) for _ in range(40)
        )
        assert own.tokenize(text) == tokenizer.tokenize(text), repr(text)


#: Characters that stand together by each of Unicode's rules, and some that don't.
_TOGETHER = (
    *("\u0300", "\u0301", "\u0344", "\u200d", "\u0915", "\u0958", "\u094d", "\u093c", "\u0903", "\u0600", "\u0d4e"),
    *("\xa9", "\xae", "\u203c", "\u2122", "\U0001f600", "\U0001f1e6", "\u1100", "\u1161", "\u11a8", "\uac00", "\uac01"),
    *(
        "a",
        "\uff41",
        "\uff76",
        "\uff9e",
        "\u3131",
        "\ufb01",
        "\u00bd",
        "\r",
        "\n",
        "\0",
        "\x01",
        "\u200b",
        "\u00ad",
        "\ufdfa",
    ),
    *("\u2581", " ", "\u3000", "\u0e33", "\u0eb3", "\U00016d63", "\U00016d67", "\u1cf5", "\ue000", "\U000e0001"),
)


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc_cf"])
def test_characters_become_what_the_library_says(tiny_bundle: Path, tmp_path: Path, rule: str) -> None:
    """Of clusters of any characters: bytes of the text are those that a vocabulary of bytes gives tokens to."""
    document = _made("byte-level")
    document["normalizer"] = _precompiled(rule)
    document["model"]["merges"] = []
    own = opened(tiny_bundle, tmp_path, FolderMetadata(write(tmp_path / "f", document, bos_token="<s>"), {}))
    library = Tokenizer.from_str(json.dumps(document))
    rng = random.Random(rule)
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000 and (code < 0x3400 or rng.random() < 0.02):
            text = chr(code) + "".join(rng.choices(_TOGETHER, k=2))
            assert own.tokenize(text, 3) == library.encode(text, add_special_tokens=False).ids, repr(text)
    for _ in range(3000):
        text = "".join(rng.choices(_TOGETHER, k=rng.randint(1, 6)))
        assert own.tokenize(text, 3) == library.encode(text, add_special_tokens=False).ids, repr(text)


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (None, "must be the size of a trie"),
        ("AAA", "must be the size of a trie"),
        (base64.b64encode(bytes([8, 0, 0, 0, 0, 0, 0, 0])).decode(), "must be the size of a trie"),
        (base64.b64encode(bytes([4, 0, 0, 0, 0, 0, 0, 0, 255])).decode(), "must be UTF-8"),
        # Of an entry for the byte 1, whose text is behind all of them.
        (base64.b64encode(struct.pack("<5I", 16, 0, 2 << 10 | 1 << 8 | 1, 0, 9)).decode(), "a text at byte"),
        (
            base64.b64encode(struct.pack("<5I", 16, 0, 2 << 10 | 1 << 8 | 1, 0, 0) + b"a" * 256).decode(),
            "more than 255 bytes",
        ),
    ],
)
def test_tables_of_characters_that_are_broken(packed: str | None, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        character_map.described(packed)


def test_tries_that_share_their_units_end() -> None:
    """Each node's children are all of the others."""
    units = [0, *((byte ^ 0) << 10 | byte for byte in range(1, 256))]
    with pytest.raises(TokenizerError, match="more entries than units"):
        character_map.described(base64.b64encode(struct.pack("<257I", 1024, *units)).decode())


def test_tables_compose_every_character() -> None:
    """Parts that are put together are the character again, or what the library makes of it."""
    bound, parts, compositions, _ = tables("NFC")
    assert (bound, tables("NFD")[0], tables("NFKC")[0]) == (0x300, 0xC0, 0xA0)
    assert isinstance(parts, bytes)
    assert isinstance(compositions, bytes)
    assert len(parts) > 8000
    assert tables("NFKD")[2] == b""
    assert len(compositions) > 3 * 4 * 900
    assert normalizers.NFC().normalize_str("e\u0301") == "\u00e9"


def _refused(change: Change, base: Callable[[], Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(base().to_str())
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "base", "message"),
    [
        (set_at("normalizer", to={"type": "StripAccents"}), byte_level, "the normalizer is {'type': 'StripAccents'}"),
        (set_at("pre_tokenizer", to={**_BYTES, "add_prefix_space": True}), byte_level, "the pre-tokenizer is"),
        (set_at("pre_tokenizer", to=_split({"Regex": "a"})), byte_level, "don't become bytes at last"),
        (set_at("pre_tokenizer", to=_steps(_BYTES, _split({"Regex": "a"}))), byte_level, "goes on behind 'ByteLevel'"),
        (set_at("pre_tokenizer", to=_steps(_split({"Regex": "(?<=a)b"}), _BYTES)), byte_level, "the pattern "),
        (set_at("model", "end_of_word_suffix", to="</w>"), byte_level, "the model has 'end_of_word_suffix'"),
        (set_at("normalizer", to=None), lambda: pieces("gemma"), "spaces don't become U"),
        (set_at("model", "unk_id", to=None), MADE["unigram"], "has no unknown token"),
    ],
)
def test_what_only_python_does_is_said(
    tiny_bundle: Path, tmp_path: Path, change: Change, base: Callable[[], Any], message: str
) -> None:
    """The bundle takes ids then."""
    folder = write(tmp_path / "f", _refused(change, base), bos_token="<s>")
    tokenizer = read(folder)
    assert isinstance(tokenizer, JsonTokenizer)
    with pytest.raises(UnsupportedError) as raised:
        json_section.described(tokenizer)
    assert message in str(raised.value)
    with pytest.raises(CError, match="texts can't become ids of tokens: "):
        opened(tiny_bundle, tmp_path, FolderMetadata(folder, {})).tokenize(SAMPLE)


def _words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


#: Of one entry: the byte `a` becomes the text from one byte to another.
_ONE = (97, 1 << 8)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (["characters", _words(*_ONE, 0), b"b", b""], "entries of a map of characters are four numbers each"),
        (["characters", _words(97, 0, 0, 1), b"b", b""], "1 to 5 bytes, but one has 0"),
        (["characters", _words(97, 6 << 8, 0, 1), b"b", b""], "1 to 5 bytes, but one has 6"),
        (["characters", _words(*_ONE, 1, 0), b"b", b""], "becomes a text of UTF-8 of at most 255 bytes"),
        (["characters", _words(*_ONE, 0, 2), b"b", b""], "becomes a text of UTF-8 of at most 255 bytes"),
        (["characters", _words(*_ONE, 0, 1), "\u00e9".encode(), b""], "becomes a text of UTF-8 of at most 255 bytes"),
        (["characters", _words(*_ONE, 0, 256), b"b" * 256, b""], "becomes a text of UTF-8 of at most 255 bytes"),
        (["characters", b"", b"", _words(9, 9, 1, 9, 9, 1)], "classes of characters come in order"),
        (["characters", b"", b"", _words(9, 8, 1)], "classes of characters come in order"),
        (["characters", b"", b"", _words(9, 9, 2048)], "classes of characters come in order"),
        (["squeeze", 1, 1], "a form of texts is characters, replace or strip, but is 'squeeze'"),
        (["strip", 1], "a form of texts \\(name, two operands\\)"),
    ],
)
def test_forms_of_texts_that_are_wrong(tiny_bundle: Path, tmp_path: Path, form: list[Any], message: str) -> None:
    """A bundle's section says them in place of the form that was written there."""
    document = _made("byte-level")
    document["normalizer"] = _precompiled("nmt_nfkc")
    tokenizer = read(write(tmp_path / "f", document, bos_token="<s>"))
    assert isinstance(tokenizer, JsonTokenizer)

    def other(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        return form if part[:1] == ["characters"] else [other(own) for own in part]

    words = json_section.described(tokenizer)
    changed = other(words)
    assert changed != words
    section = encode([VERSION, changed, "no chat"])
    path = rewritten(tiny_bundle, tmp_path / "wrong.rlx", lambda content: content.update({TEXT: section}))
    with pytest.raises(CError, match=message):
        Opened(path).tokenize(SAMPLE)


def test_sections_of_version_1_are_read(tiny_bundle: Path, tmp_path: Path) -> None:
    """They have neither rules nor dates."""
    metadata = {**tiny_models.vocabulary(), "tokenizer.chat_template": PLAIN}
    words = ChatForm.of(ChatTemplate(PLAIN)).words
    section = encode([1, described_text(metadata)[:-1], words[:-1]])
    old = Opened(rewritten(tiny_bundle, tmp_path / "old.rlx", lambda content: content.update({TEXT: section})))
    new = opened(tiny_bundle, tmp_path, metadata)
    assert old.tokenize(SAMPLE) == new.tokenize(SAMPLE)
    old.session().say("user", "Hi")


def test_sections_of_version_2_are_read(tiny_bundle: Path, tmp_path: Path) -> None:
    """Their rules have the form NFC, or none, and say nothing of words."""
    for name in ("qwen", "always"):
        folder = write(tmp_path / name, _made(name), bos_token="<s>")
        (tmp_path / f"new-{name}").mkdir()
        new = opened(tiny_bundle, tmp_path / f"new-{name}", FolderMetadata(folder, {}))
        tokenizer = read(folder)
        assert isinstance(tokenizer, JsonTokenizer)
        words = json_section.described(tokenizer)
        rules = words[-1]
        assert isinstance(rules, list)
        added = [[text, index, flags & 15] for text, index, flags in rules[0]]
        forms = rules[1][0][1:] if rules[1] else None
        section = encode([2, [*words[:-1], [added, forms, *rules[2:-1]]], "no chat"])
        path = rewritten(
            tiny_bundle, tmp_path / f"{name}.rlx", lambda content, own=section: content.update({TEXT: own})
        )
        old = Opened(path)
        for text in (SAMPLE, "cafe\u0301 \u1100\u1161", "<both>"):
            assert old.tokenize(text) == new.tokenize(text)
        assert old.tokenize("words") != new.tokenize("words")  # of which `word` is cut out
