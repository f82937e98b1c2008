# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts of bundles without Python: ids and prompts of librlx_runtime.so are those of the Python package."""

from __future__ import annotations

import datetime
import json
import random
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import tokenizers
from bundles import rewritten
from c_api import CError
from c_runtime import BEHIND, NO_BEGIN, SPECIAL, Opened
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models.bundle import TEXT
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.text_patterns import members, parsed
from rlx_mlir.models.text_section import ChatForm, text_section
from rlx_mlir.models.tokenizer import PRE_TOKENIZERS, Tokenizer, TokenType

DATA = Path(__file__).parents[1] / "data"
SAMPLE = (
    "The cat sat on the mat, and the dog's bone wasn't there: 12345 bones, 3.14159 miles!\n\nHello   world\t\ttabs "
    "I'll we've THEY'RE don'T \u017fo Grüße aus Köln. Привет, мир. 你好世界。 こんにちは 안녕하세요 مرحبا "
    "שלום नमस्ते สวัสดี \u2581 \U0001f9a5\U0001f469\u200d\U0001f4bb e\u0301 \u01c5 x\u00b2 \u0661\u0662\u0663 "
    "IV \u2163 $5 + 3 = 8 <tag> `code` /path\n"
)
#: What texts are made of, beside pieces of the sample and any characters.
PARTS = (
    *(" ", "  ", "   ", "\n", "\r\n", "\n\n ", "\t", "\u00a0", "\u3000", "\u2028", "\x1f", "\x00", "\x85"),
    *(
        "'s",
        "'S",
        "'\u017f",
        "'ll",
        "'LL",
        "'t",
        "'",
        "a",
        "Z",
        "\u00e9",
        "e\u0301",
        "\u01c5",
        "\u02b0",
        "\u00df",
        "\u212a",
    ),
    *(
        "0",
        "12",
        "345",
        "6789",
        "\u0663",
        "\u00bd",
        "\u2163",
        "!",
        "?!",
        "...",
        "\u3002",
        "\uff01",
        "$",
        "+",
        "\u20ac",
        "_",
    ),
    *(
        "\u4f60\u597d",
        "\u3053",
        "\ud55c",
        "\u0915\u094d",
        "\U0001f9a5",
        "\u200d",
        "\ufe0f",
        "\U000e0001",
        "\uffff",
        "\U0010ffff",
    ),
    *("\u2581", "\u2581\u2581", "<|end|>", "<|im_end|>", "<user>", "<use", "r>", "<0x0A>", "<unk>", "\u0378", "\ue000"),
)


def texts(seed: int, count: int) -> list[str]:
    rng, found = random.Random(seed), ["", " ", "a", "\n", SAMPLE]
    while len(found) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.2:
                begin = rng.randrange(len(SAMPLE))
                parts.append(SAMPLE[begin : begin + rng.randint(1, 20)])
            elif kind < 0.3:
                code = rng.randrange(0x110000 if rng.random() < 0.5 else 0x3000)
                parts.append("" if 0xD800 <= code < 0xE000 else chr(code))
            else:
                parts.append(rng.choice(PARTS) * rng.choice((1, 1, 1, 2, 5)))
        found.append("".join(parts))
    return found


def opened(tiny_bundle: Path, target: Path, metadata: Mapping[str, Any]) -> Opened:
    """The bundle with another vocabulary."""

    def change(content: dict[str, bytes]) -> None:
        content[TEXT] = text_section(metadata)

    return Opened(rewritten(tiny_bundle, target / "own.rlx", change))


def compare(own: Opened, tokenizer: Tokenizer, cases: list[str]) -> None:
    """Ids of texts, with any flags; and bytes of tokens."""
    for text in cases:
        assert own.tokenize(text) == tokenizer.tokenize(text), repr(text)
        assert own.tokenize(text, SPECIAL | NO_BEGIN) == tokenizer.tokenize(text, bos=False, special=True), repr(text)
        assert own.tokenize(text, BEHIND) == tokenizer.tokenize(text, bos=False, continued=True), repr(text)
    for index in range(tokenizer.vocab_size):
        assert own.token_bytes(index) == tokenizer.token_bytes(index)
        assert own.token_bytes(index, SPECIAL) == tokenizer.token_bytes(index, special=True)


# Tokenizers ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def byte_level() -> dict[str, Any]:
    """A vocabulary of byte-level BPE that was trained on the sample, with control tokens and users'."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(vocab_size=700, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    trained.train_from_iterator([SAMPLE] * 3, trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    own = {
        "<|begin|>": 3,
        "<|end|>": 3,
        "<|im_end|>": 3,
        "<user>": 4,
        "<use": 4,
        "plain text \u4f60": 4,
        "": 5,
        "<unk>": 2,
    }
    types = [int(TokenType.NORMAL)] * len(tokens) + list(own.values())
    tokens += own
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": tokens.index("<|begin|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
    }


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_byte_level_ids_are_those_of_python(
    tiny_bundle: Path, tmp_path: Path, byte_level: dict[str, Any], pre: str
) -> None:
    metadata = {**byte_level, "tokenizer.ggml.pre": pre}
    tokenizer = Tokenizer.from_metadata(metadata)
    compare(opened(tiny_bundle, tmp_path, metadata), tokenizer, texts(len(pre), 400))


def test_bytes_without_tokens_are_left_out(tiny_bundle: Path, tmp_path: Path, byte_level: dict[str, Any]) -> None:
    """And merges that several pairs have the same token of."""
    tokens = list(byte_level["tokenizer.ggml.tokens"])
    tokens[tokens.index("\u0100")] = "<was zero>"  # the byte 0
    merges = [*byte_level["tokenizer.ggml.merges"], "a b", "ab c", "b c", "a bc"]
    tokens += ["ab", "bc", "abc"]
    types = [*byte_level["tokenizer.ggml.token_type"], 1, 1, 1]
    metadata = {**byte_level, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges}
    metadata |= {"tokenizer.ggml.token_type": np.array(types, np.int32), "tokenizer.ggml.pre": "gpt-2"}
    tokenizer = Tokenizer.from_metadata(metadata)
    cases = ["\x00", "a\x00b", "\x00\x00 \x00", "abc", "aabcc", "abcabcbcab", *texts(7, 50)]
    compare(opened(tiny_bundle, tmp_path, metadata), tokenizer, cases)


def sentences(*, with_bytes: bool, prefix: bool) -> dict[str, Any]:
    """A vocabulary of SentencePiece: pieces of the sample with random scores, of which some are equal."""
    rng, text = random.Random(3), SAMPLE.replace(" ", "\u2581").replace("\n", "")
    pieces = {text[begin : begin + size] for begin in range(0, len(text), 2) for size in (2, 3, 4, 6)}
    letters = sorted(set(text) - ({"x", "你"} if with_bytes else {"x", "你", "好"}))
    own = {"<unk>": 2, "<s>": 3, "</s>": 3, "<user>": 4, "\u2581\u2581": 4, "<|im_end|>": 3, "<unused0>": 5}
    if with_bytes:
        own |= {f"<0x{byte:02X}>": 6 for byte in range(256)}
    tokens = [*own, *sorted(pieces - own.keys() - set(letters)), *letters]
    types = [*own.values(), *[int(TokenType.NORMAL)] * (len(tokens) - len(own))]
    scores = [0.0 if kind != 1 else float(rng.randrange(-60, 0)) for kind in types]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.add_space_prefix": prefix,
    }


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("with_bytes", [True, False])
def test_sentencepiece_ids_are_those_of_python(
    tiny_bundle: Path, tmp_path: Path, with_bytes: bool, prefix: bool
) -> None:
    metadata = sentences(with_bytes=with_bytes, prefix=prefix)
    tokenizer = Tokenizer.from_metadata(metadata)
    compare(opened(tiny_bundle, tmp_path, metadata), tokenizer, texts(5 + prefix, 300))


def test_no_token_has_to_stand_for_what_is_unknown(tiny_bundle: Path, tmp_path: Path) -> None:
    """As in Gemma's vocabulary, whose `<unk>` is a control token: what is unknown becomes bytes, if there are any."""
    for with_bytes in (True, False):
        metadata = sentences(with_bytes=with_bytes, prefix=False)
        metadata["tokenizer.ggml.token_type"][0] = int(TokenType.CONTROL)
        if with_bytes:
            compare(opened(tiny_bundle, tmp_path, metadata), Tokenizer.from_metadata(metadata), texts(9, 300))
        else:
            own = opened(tiny_bundle, tmp_path, metadata)
            with pytest.raises(CError, match=r"texts can't become ids of tokens: .*unk is not defined"):
                own.tokenize("a")


def test_ids_of_a_real_vocabulary(tiny_bundle: Path, tmp_path: Path, smollm2_path: Path) -> None:
    with GGUFFile(smollm2_path) as file:
        own, tokenizer = opened(tiny_bundle, tmp_path, file.metadata), Tokenizer.from_metadata(file.metadata)
    for case in json.loads((DATA / "smollm2_tokens.json").read_text()):
        assert own.tokenize(case["text"]) == case["plain"]
        assert own.tokenize(case["text"], SPECIAL) == tokenizer.tokenize(case["text"], special=True)
    for text in texts(11, 1000):
        assert own.tokenize(text) == tokenizer.tokenize(text), repr(text)


@pytest.mark.slow
def test_ids_of_gemma(tiny_bundle: Path, tmp_path: Path, gemma3_path: Path) -> None:
    with GGUFFile(gemma3_path) as file:
        own, tokenizer = opened(tiny_bundle, tmp_path, file.metadata), Tokenizer.from_metadata(file.metadata)
    for text in texts(12, 1000):
        assert own.tokenize(text) == tokenizer.tokenize(text), repr(text)


def test_long_runs_take_their_time(tiny_bundle: Path, tmp_path: Path, byte_level: dict[str, Any]) -> None:
    metadata = {**byte_level, "tokenizer.ggml.pre": "llama-bpe"}
    own, tokenizer = opened(tiny_bundle, tmp_path, metadata), Tokenizer.from_metadata(metadata)
    for part in (" ", "\n", "a", "1", "\U0001f9a5", " a", "'s"):
        assert own.tokenize(part * 20_000) == tokenizer.tokenize(part * 20_000)


def test_tokenizers_that_are_not_written_say_why(tiny_bundle: Path, tmp_path: Path) -> None:
    own = opened(tiny_bundle, tmp_path, {"tokenizer.ggml.model": "gpt2"})
    with pytest.raises(CError, match="texts can't become ids of tokens: the file has no vocabulary"):
        own.tokenize("a")


# Patterns -----------------------------------------------------------------------------------------


def test_classes_have_the_characters_that_they_name() -> None:
    """Of characters that have been there for long, Python knows the same."""
    ends = members(r"\p{L}")
    inside = {code for low, high in zip(ends[::2], ends[1::2], strict=True) for code in range(low, high + 1)}
    old = [code for code in range(0x250) if unicodedata.category(chr(code)) != "Cn"]
    assert {code for code in old if code in inside} == {
        code for code in old if unicodedata.category(chr(code))[0] == "L"
    }
    assert list(ends) == sorted(ends)
    assert members("[^a]") == (0, 96, 98, 0xD7FF, 0xE000, 0x10FFFF)
    assert parsed("(?i:k)") == (1, (1, (0, 75, 75, 107, 107, 0x212A, 0x212A)))


@pytest.mark.parametrize("expression", ["a+?", "(a)", "a(?=b)", "[a", "(?:a", "a)", "^a", "*"])
def test_expressions_that_no_pre_tokenizer_has(expression: str) -> None:
    with pytest.raises(UnsupportedError, match=r"the pattern .* must have"):
        parsed(expression)


# Chats --------------------------------------------------------------------------------------------

LLAMA3 = (
    "{% for m in messages %}{% set c = '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>' %}"
    "{% if loop.index0 == 0 %}{% set c = bos_token + c %}{% endif %}{{ c }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<' + role + '>' + m['content'] | trim + '<end>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<model>' }}{% endif %}"
)
DEFAULT = (
    "{% for m in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}<|im_start|>Be good<|im_end|>{% endif %}"
    "{{ '<|im_start|>' + m['role'] + ' ' + m['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)
PLAIN = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TEMPLATES = {"llama3": LLAMA3, "gemma": GEMMA, "default": DEFAULT, "plain": PLAIN, "tiny": tiny_models.TEMPLATE}


@pytest.mark.parametrize("name", TEMPLATES)
def test_chats_are_put_as_the_template_does(tiny_bundle: Path, tmp_path: Path, name: str) -> None:
    metadata = {**tiny_models.vocabulary(), "tokenizer.chat_template": TEMPLATES[name]}
    template, tokenizer = ChatTemplate.from_metadata(metadata), Tokenizer.from_metadata(metadata)
    own, model = opened(tiny_bundle, tmp_path, metadata), load_model(tiny_bundle)
    conversations = [["user"], ["user", "assistant"]] + (
        [] if name == "gemma" else [["system", "user"], ["user", "user"]]
    )
    for roles, content in [(roles, content) for roles in conversations for content in ("", " a\u00a0", "\n the\n")]:
        messages = [{"role": role, "content": content} for role in roles]
        session, expected = own.session(), model.session()
        for message in messages:
            session.say(message["role"], message["content"])
        text = template.render(messages)
        begins = text.startswith(template.bos_token)
        expected.feed(tokenizer.tokenize(text, bos=False if begins else None, special=True))
        assert session.logits.tobytes() == expected.logits.tobytes()
        if name != "gemma" and roles == ["user"] and content == "":
            token, end, _ = session.next()
            assert end == 0
            expected.step(token)
            session.say("user", "b")
            rest = template.after_answer([{"role": "user", "content": "b"}])
            expected.feed(tokenizer.tokenize(rest, bos=False, special=True, continued=True))
            assert session.logits.tobytes() == expected.logits.tobytes()


DATED = (
    "{{ strftime_now('%b %Y') }}\n{% for m in messages %}"
    "{% if m['role'] == 'assistant' %}({{ strftime_now('%y-%m-%d') }}){% endif %}{{ m['content'] + '.' }}{% endfor %}"
    "{% if add_generation_prompt %}({{ strftime_now('%y-%m-%d') }}){% endif %}"
)


@pytest.mark.parametrize("seconds", [0, 1709193909, 4102444799])
def test_dates_are_those_of_a_time(tiny_bundle: Path, tmp_path: Path, seconds: int) -> None:
    """In the time zone of the process; what contents have in place of dates stays."""
    metadata = {**tiny_models.vocabulary(), "tokenizer.chat_template": DATED}
    template, tokenizer = ChatTemplate.from_metadata(metadata), Tokenizer.from_metadata(metadata)
    assert [format for _, format in ChatForm.of(template).dates] == ["%b %Y", "%y-%m-%d"]
    session, expected = opened(tiny_bundle, tmp_path, metadata).session(), load_model(tiny_bundle).session()
    contents = (("user", "\u2039date 0\u203a"), ("assistant", "a"), ("user", "b"))
    messages = [{"role": role, "content": content} for role, content in contents]
    session.date(seconds)
    for message in messages:
        session.say(message["role"], message["content"])
    time = datetime.datetime.fromtimestamp(seconds)
    text = template.render(messages, strftime_now=time.strftime)
    assert time.strftime("%b %Y") in text
    expected.feed(tokenizer.tokenize(text, special=True))
    assert session.logits.tobytes() == expected.logits.tobytes()


def test_dates_are_of_today_by_default(tiny_bundle: Path, tmp_path: Path) -> None:
    metadata = {**tiny_models.vocabulary(), "tokenizer.chat_template": DATED}
    template, tokenizer = ChatTemplate.from_metadata(metadata), Tokenizer.from_metadata(metadata)
    session, expected = opened(tiny_bundle, tmp_path, metadata).session(), load_model(tiny_bundle).session()
    session.say("user", "a")
    found = session.logits
    expected.feed(tokenizer.tokenize(template.render([{"role": "user", "content": "a"}]), special=True))
    assert found.tobytes() == expected.logits.tobytes()


@pytest.mark.parametrize("seconds", [1 << 62, -(1 << 62)])
def test_times_without_a_date(tiny_bundle: Path, tmp_path: Path, seconds: int) -> None:
    metadata = {**tiny_models.vocabulary(), "tokenizer.chat_template": DATED}
    with pytest.raises(CError, match=f"the time {seconds} has no date"):
        opened(tiny_bundle, tmp_path, metadata).session().date(seconds)


def test_turns_are_kept_where_the_template_wants_them(tiny_bundle: Path, tmp_path: Path) -> None:
    session = opened(tiny_bundle, tmp_path, {**tiny_models.vocabulary(), "tokenizer.chat_template": GEMMA}).session()
    with pytest.raises(CError, match="messages of users and answers in turn, but message 0 is of the role 'assistant'"):
        session.say("assistant", "a")
    session.say("user", "a")
    with pytest.raises(CError, match="in turn, but message 1 is of the role 'user'"):
        session.say("user", "a")
    with pytest.raises(CError, match="a system's message must be the first one of a conversation"):
        session.say("system", "a")
    with pytest.raises(CError, match="no form for the role 'system'; known are user, assistant"):
        opened(tiny_bundle, tmp_path, {**tiny_models.vocabulary(), "tokenizer.chat_template": GEMMA}).session().say(
            "system", "a"
        )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "{{ strftime_now('%d') | int + 1 }}{% for m in messages %}{{ m.content }}{% endfor %}",
            "fixed texts around messages",
        ),
        (
            "{% for m in messages %}{{ m.content if loop.last else m.content | upper }}.{% endfor %}",
            "in another way where",
        ),
        (
            "{% for m in messages %}{{ m.role }}{{ m.content | replace('a', 'b') }}.{% endfor %}",
            "fixed texts around messages",
        ),
        (
            "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}.{% endfor %}",
            "fixed texts around messages",
        ),
        (
            "{% for m in messages %}{{ loop.index }}{{ m.content }}.{% endfor %}",
            "begins messages of users in several ways",
        ),
    ],
)
def test_templates_without_a_form_say_why(tiny_bundle: Path, tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        ChatForm.of(ChatTemplate(source))
    own = opened(tiny_bundle, tmp_path, {**tiny_models.vocabulary(), "tokenizer.chat_template": source})
    with pytest.raises(CError, match=f"messages can't become a prompt: .*{message}.*; give a prompt that is formatted"):
        own.session().say("user", "a")
    own.session().feed_text("<|im_start|>user\na<|im_end|>\n", SPECIAL)
