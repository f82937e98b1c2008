# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The library librlx_runtime.so: the bits of bundles and artefacts are those of Python, and bad input is an error."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from bundles import OPTIONS, SMALLER, rewritten, with_manifest
from c_api import INPUT, OUTPUT, PARAMETER, CError, Memory
from c_runtime import ENDS, FULL, GOES_ON, Opened, Session, library, verify
from compile_harness import compile_fresh
from descriptions import as_version_10

import rlx_mlir as rlx
from rlx_mlir import Executable, GraphModule, Model
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.models.bundle import TEXT
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.text_section import text_section
from rlx_mlir.runtime.container import Container

PROMPT = [5, 6, 7, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55]  # more than a chunk


@pytest.fixture(scope="module")
def bundle(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runtime") / "tiny.rlx"
    rlx.bundle(tiny_llama, path, cpu=[SMALLER, "native"], **OPTIONS)
    return path


@pytest.fixture(scope="module")
def model(bundle: Path) -> Model:
    """The same model, in Python."""
    return load_model(bundle)


@pytest.mark.slow
def test_layers_that_predict_are_refused(tmp_path: Path) -> None:
    """What they read is a result of all modules, which sessions have no use for."""
    path = tmp_path / "m.rlx"
    rlx.bundle(tiny_models.write(tmp_path / "m.gguf", architecture="qwen35"), path, **OPTIONS)
    with pytest.raises(
        CError, match=r"'hidden'.* is neither logits nor a cache: the modules aren't those of a decoder"
    ):
        Session(Opened(path))


STATES = ("mamba2", "jamba", "falcon-h1", "gemma3n", "lfm2")
"""Models whose layers have states, or read keys of others."""


@pytest.mark.parametrize(
    "architecture", [STATES[0], *(pytest.param(own, marks=pytest.mark.slow) for own in STATES[1:])]
)
def test_layers_with_states(tmp_path: Path, architecture: str) -> None:
    """The bits of Python, from the start on again, and nothing between: states don't go back."""
    path = tmp_path / "m.rlx"
    rlx.bundle(tiny_models.write(tmp_path / "m.gguf", architecture=architecture), path, **OPTIONS)
    model, opened = load_model(path), Opened(path)
    own, other = model.session(), Session(opened)
    for _ in range(2):
        for session in (own, other):
            session.feed(PROMPT)
        np.testing.assert_array_equal(other.logits, own.logits)
        for token in (5, 6, 7):
            other.call("step", token)
            np.testing.assert_array_equal(other.logits, own.step(token))
        own = model.session()
        if architecture == "gemma3n":
            other.call("truncate", len(PROMPT))
        else:
            with pytest.raises(CError, match="of 22 tokens can be cut to none alone, as layers have states of all"):
                other.call("truncate", len(PROMPT))
            other.call("truncate", 22)
            assert len(other) == 22
        other.call("truncate", 0)


def mlp() -> Executable:
    """A network whose parameters its code reads as they are, and in another form."""
    graph = GraphModule.hir("mlp")
    x, y = graph.input("x", ["batch", 20]), graph.input("unused", ["other"], "i32")
    hidden = graph.gelu(graph.linear(x, graph.param("w1", [20, 33]), graph.param("b1", [33])))
    graph.set_outputs({"y": graph.linear(hidden, graph.param("w2", [33, 5])), "z": graph.concat([x, x], 0)})
    assert y is not None
    executable = compile_fresh(graph, maxima={"batch": 17, "other": 9})
    rng = np.random.default_rng(0)
    executable.set_params(
        {s.name: rng.standard_normal([int(n) for n in s.shape]).astype(np.float32) for s in executable.params}
    )
    return executable


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, Path]:
    executable = mlp()
    path = tmp_path_factory.mktemp("network") / "mlp.rlx"
    executable.artifact.save(path)
    return executable, path


def given_parameters(opened: Opened, executable: Executable) -> None:
    for index, name in enumerate(opened.names(PARAMETER)):
        opened.set_parameter(index, executable.plan_params[name])


# Artefacts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_an_artefact_gives_the_bits_of_python(network: tuple[Executable, Path], threads: int) -> None:
    executable, path = network
    opened = Opened(path, threads=threads)
    assert opened.call("threads") == threads
    assert opened.level == ""
    assert opened.names(INPUT) == ["x", "unused"]
    assert opened.names(OUTPUT) == ["y", "z"]
    assert set(opened.names(PARAMETER)) == set(executable.plan_params)
    given_parameters(opened, executable)
    rng = np.random.default_rng(1)
    for batch in (0, 1, 3, 15, 16, 17):
        x, unused = rng.standard_normal((batch, 20)).astype(np.float32), np.zeros(batch % 4, np.int32)
        expected = executable.run({"x": x, "unused": unused})
        found = opened.results(executable, {"x": x, "unused": unused})
        for name, array in expected.items():
            assert found[name].shape == array.shape
            assert found[name].tobytes() == array.tobytes()


def test_artefacts_of_version_10_are_read(network: tuple[Executable, Path], tmp_path: Path) -> None:
    executable, path = network
    old = tmp_path / "old.rlx"
    old.write_bytes(as_version_10(executable.artifact))
    assert Opened(old).symbols() == Opened(path).symbols()
    for version in (9, 12):
        old.write_bytes(old.read_bytes()[:8] + struct.pack("<I", version) + old.read_bytes()[12:])
        with pytest.raises(CError, match=f"not an artefact of version 11, but of {version}: compile the module again"):
            Opened(old)


def test_what_an_artefact_has_is_described(network: tuple[Executable, Path]) -> None:
    _, path = network
    opened = Opened(path)
    assert opened.symbols()["batch"] == 17
    own = opened.buffer(INPUT, 0)
    assert (own.name, own.dtype, own.rank, own.element_bytes, own.alignment) == (b"x", b"f32", 2, 4, 4)
    assert (own.shape[0], own.shape[1], own.maximum[0], own.formula[0]) == (-1, 20, 17, b"batch")
    sizes = [{"batch": 4}.get(name, 2) for name in opened.symbols()]
    assert opened.measure(OUTPUT, 1, sizes) == ((8, 20), 8 * 20 * 4)
    assert opened.library.functions["function_name"](opened.handle, 0) == b"mlp"


def test_parameters_of_artefacts_are_missing_until_they_are_given(network: tuple[Executable, Path]) -> None:
    executable, path = network
    opened = Opened(path)
    inputs = {"x": np.zeros((2, 20), np.float32), "unused": np.zeros(0, np.int32)}
    with pytest.raises(CError, match=r"of 'mlp' isn't set: set_parameter has to give it before a run"):
        opened.results(executable, inputs)


# Bundles ------------------------------------------------------------------------------------------


def python_ids(model: Model, prompt: list[int], count: int, **options: Any) -> list[int]:
    generation = model.generate(prompt, max_tokens=count, **options)
    generation.read()
    return list(generation.ids)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bundle_gives_the_bits_of_python(bundle: Path, model: Model, threads: int) -> None:
    session, expected = Opened(bundle, threads=threads).session(), model.session()
    session.feed(PROMPT)
    expected.feed(PROMPT)
    assert session.logits.tobytes() == expected.logits.tobytes()
    for token in (7, 299, 0):
        session.call("step", token)
        assert session.logits.tobytes() == expected.step(token).tobytes()
    session.feed([8])
    expected.feed([8])
    assert session.logits.tobytes() == expected.logits.tobytes()
    assert (len(session), session.room) == (len(expected), expected.room)
    session.call("truncate", 10)
    expected.truncate(10)
    session.feed([9, 10])
    expected.feed([9, 10])
    assert session.logits.tobytes() == expected.logits.tobytes()


def test_each_level_has_its_bits(bundle: Path) -> None:
    for level in (SMALLER, "native"):
        opened, session = Opened(bundle, level=level), load_model(bundle, cpu=level).session()
        assert opened.level == level
        session.feed(PROMPT)
        own = opened.session()
        own.feed(PROMPT)
        assert own.logits.tobytes() == session.logits.tobytes()
    assert Opened(bundle).level == "native"


def test_greedy_tokens_are_those_of_generate(bundle: Path, model: Model) -> None:
    opened = Opened(bundle)
    for prompt in ([1], PROMPT, [9] * 16, list(range(100, 133))):
        session = opened.session()
        session.feed(prompt)
        assert session.ids(12) == python_ids(model, prompt, 12, greedy=True)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (0.8, 40, 0.95, 0.0),
        (1.5, 0, 1.0, 0.0),
        (1.0, 5, 0.5, 0.0),
        (0.7, 0, 0.9, 0.05),
        (3.0, 0, 1.0, 0.3),
        (0.0, 0, 1, 0),
    ],
)
def test_sampled_tokens_are_those_of_python(
    bundle: Path, model: Model, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    opened = Opened(bundle)
    for seed in (0, 1, 2**32 - 1, 2**32, 2**63 + 5):
        session = opened.session()
        session.sample(temperature, top_k, top_p, min_p, seed)
        session.feed(PROMPT)
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
        assert session.ids(20) == python_ids(model, PROMPT, 20, **options)


def test_modules_are_functions_with_their_parameters(bundle: Path, model: Model) -> None:
    opened = Opened(bundle)
    names = [
        opened.library.functions["function_name"](opened.handle, number).decode()
        for number in range(opened.call("function_count"))
    ]
    assert names == ["prefill", "decode", "batch", "extend"]
    assert all(opened.buffer(PARAMETER, index).given for index in range(len(opened.names(PARAMETER))))
    decode = model.programs.decode
    inputs = {
        spec.name: np.zeros([64 if size == "context" else int(size) for size in spec.shape], DTYPES[spec.dtype])
        for spec in decode.artifact.inputs
    }
    expected = decode.run({name: array.copy() for name, array in inputs.items()})
    found = opened.results(decode, inputs, names.index("decode"))
    assert found["logits"].tobytes() == expected["logits"].tobytes()


# Texts --------------------------------------------------------------------------------------------


def test_a_conversation_has_the_tokens_of_python(bundle: Path, model: Model) -> None:
    session, expected = Opened(bundle).session(), model.session()
    session.say("system", " the")
    session.say("user", " cat")
    expected.feed([{"role": "system", "content": " the"}, {"role": "user", "content": " cat"}])
    assert session.logits.tobytes() == expected.logits.tobytes()
    assert len(session) == len(expected)
    generation = expected.generate(greedy=True, max_tokens=3)
    generation.read()
    assert session.ids(3) == [index for index in generation.ids if index not in model.tokenizer.stop_ids]
    session.say("user", " mat")
    expected.feed([{"role": "user", "content": " mat"}])
    assert session.logits.tobytes() == expected.logits.tobytes()


def test_texts_are_fed_as_python_does(bundle: Path, model: Model) -> None:
    session, expected = Opened(bundle).session(), model.session()
    for text in ("hello world, the cat", " sat on the mat\n"):
        session.feed_text(text)
        expected.feed(text)
        assert session.logits.tobytes() == expected.logits.tobytes()


def test_tokens_have_bytes_and_end_texts(tmp_path: Path, bundle: Path, model: Model) -> None:
    opened = Opened(bundle)
    for index in range(300):
        assert opened.token_bytes(index) == model.tokenizer.token_bytes(index)
        assert opened.token_bytes(index, 1) == model.tokenizer.token_bytes(index, special=True)
    plain = model.session()
    plain.feed([3])
    end = int(plain.logits.argmax())

    def change(content: dict[str, bytes]) -> None:
        content[TEXT] = text_section({**tiny_models.vocabulary(), "tokenizer.ggml.eos_token_id": end})

    session = Opened(rewritten(bundle, tmp_path / "stops.rlx", change)).session()
    session.feed([3])
    assert session.next()[:2] == (end, ENDS)
    assert len(session) == 1


def test_the_context_ends(bundle: Path) -> None:
    session = Opened(bundle).session()
    session.feed([5] * 63)
    assert session.next()[1] == GOES_ON
    assert (len(session), session.room) == (64, 0)
    session.call("truncate", 0)
    session.feed([5] * 64)
    assert session.next()[1] == GOES_ON  # what is chosen behind the last position has none of its own
    assert session.next() == (-1, FULL, b"")
    session.call("truncate", 64)
    with pytest.raises(CError, match="a session of 64 tokens has room for 0 more of 64 positions, but got 1"):
        session.feed([1])


# Threads ------------------------------------------------------------------------------------------


def in_threads(*calls: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_models_and_sessions_run_at_the_same_time(bundle: Path, model: Model, network: tuple[Executable, Path]) -> None:
    executable, path = network
    one, other, third = Opened(bundle), Opened(bundle, threads=1), Opened(path, threads=2)
    given_parameters(third, executable)
    expected = {tuple(prompt): python_ids(model, prompt, 10, greedy=True) for prompt in ([3], [4, 5], PROMPT)}
    x = np.linspace(-1, 1, 340, dtype=np.float32).reshape(17, 20)
    inputs = {"x": x, "unused": np.zeros(1, np.int32)}
    result = executable.run(inputs)["y"].tobytes()

    def talk(opened: Opened, prompt: list[int]) -> None:
        for _ in range(5):
            session = opened.session()
            session.feed(prompt)
            assert session.ids(10) == expected[tuple(prompt)]

    def compute() -> None:
        for _ in range(50):
            assert third.results(executable, inputs)["y"].tobytes() == result

    in_threads(lambda: talk(one, [3]), lambda: talk(one, [4, 5]), lambda: talk(other, PROMPT), compute)


def test_calls_on_one_session_take_turns(bundle: Path, model: Model) -> None:
    """Tokens that two threads ask for are those of one, each given to one of them."""
    session = Opened(bundle).session()
    session.feed(PROMPT)
    found: list[int] = []
    in_threads(*(lambda: found.extend(session.ids(10)) for _ in range(2)))
    assert sorted(found) == sorted(python_ids(model, PROMPT, 20, greedy=True))


def test_errors_are_of_each_thread(bundle: Path) -> None:
    one, other = Opened(bundle), Opened(bundle)
    with pytest.raises(CError, match="no input 'nothing'"):
        one.call("find_buffer", 0, INPUT, b"nothing", ctypes.byref(ctypes.c_size_t()))
    assert other.library.functions["error"](other.handle) == b""
    in_threads(lambda: _expect(one.library.functions["error"](one.handle), b""))
    assert b"nothing" in one.library.functions["error"](one.handle)


def _expect(found: object, expected: object) -> None:
    assert found == expected


# Errors -------------------------------------------------------------------------------------------


def test_files_that_cannot_be_opened(bundle: Path, network: tuple[Executable, Path], tmp_path: Path) -> None:
    with pytest.raises(CError, match=r"nothing\.rlx: No such file") as caught:
        Opened(tmp_path / "nothing.rlx")
    assert caught.value.status == 2
    (tmp_path / "empty.rlx").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.rlx")
    for path, message in (
        (tmp_path, "regular file"),
        (tmp_path / "pipe.rlx", "it is no regular file"),
        (tmp_path / "empty.rlx", "neither a bundle nor an artefact"),
    ):
        with pytest.raises(CError, match=message):
            Opened(path)
    for options, message in (
        ({"threads": -1}, "threads must be from 1 to 1024, or 0"),
        ({"version": 2}, "has version 1 of its interface, but the program was compiled for version 2"),
        ({"level": "z80"}, f"has code for native, {SMALLER}, but the level 'z80' is asked for"),
    ):
        with pytest.raises(CError, match=message) as caught:
            Opened(bundle, **options)
        assert caught.value.status == 1
    with pytest.raises(CError, match="is no bundle, which has levels"):
        Opened(network[1], level="native")


def test_machines_without_the_instructions_are_refused(bundle: Path, tmp_path: Path) -> None:
    def other(document: dict[str, Any]) -> None:
        for level, features in zip(document["levels"], ("+sse2,+magic,-avx", "+charms,+fxsr"), strict=True):
            level["features"] = features

    path = with_manifest(bundle, tmp_path / "m.rlx", other)
    for level in ("native", ""):
        with pytest.raises(rlx.errors.ExecutionError) as expected:
            load_model(path, cpu=level)
        with pytest.raises(CError) as caught:
            Opened(path, level=level or None)
        assert str(caught.value) == str(expected.value)


def test_arguments_that_break_a_rule(bundle: Path) -> None:
    opened = Opened(bundle)
    session = opened.session()
    functions = opened.library.functions
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: session.logits, "has logits once tokens were fed"),
        (session.next, "has a next token once tokens were fed"),
        (lambda: session.feed([]), "one token at least"),
        (lambda: session.call("feed", None, 3), "at a null address"),
        (lambda: session.feed([1, 300]), r"must be in \[0, 300\), but 300 is at position 1"),
        (lambda: session.call("step", -1), r"must be in \[0, 300\), but -1"),
        (lambda: session.feed([1] * 65), "a session of 0 tokens has room for 64 more of 64 positions, but got 65"),
        (lambda: session.call("truncate", 1), "a session of 0 tokens can't be cut to 1"),
        (lambda: session.feed_text("a", 8), "flags must be of 1, but are 8"),
        (lambda: session.say("robot", "x"), "has no form for the role 'robot'; known are user, assistant, system"),
        (lambda: session.call("say", None, b"x", 1), "the address for a role is null"),
        (lambda: session.sample(-1, 0, 1, 0, 0), "'temperature' must be finite and at least 0"),
        (lambda: session.sample(float("nan"), 0, 1, 0, 0), "'temperature' must be finite"),
        (lambda: session.sample(1, -1, 1, 0, 0), "'top_k' must be at least 0"),
        (lambda: session.sample(1, 0, 0, 0, 0), "'top_p' must be in"),
        (lambda: session.sample(1, 0, 1, 2, 0), "'min_p' must be in"),
        (lambda: opened.tokenize(b"a\xff"), "must be UTF-8, but isn't at byte 1"),
        (lambda: opened.token_bytes(300), r"a token id must be in \[0, 300\), but is 300"),
        (lambda: opened.call("run", 0, None, 0, None, 0, None, 0), "symbol"),
    ]
    for call, message in calls:
        with pytest.raises(CError, match=message) as caught:
            call()
        assert caught.value.status == 1
    session.feed([1, 2])  # nothing of that is left
    assert len(session) == 2
    assert functions["session_new"](None, ctypes.byref(ctypes.c_void_p())) == 1
    assert functions["session_count"](None) == functions["session_room"](None) == 0
    assert functions["level"](None) is None
    assert functions["session_step"](None, 1) == 1
    assert functions["error"](None) == b"the session is null"


def test_sessions_are_of_language_models(network: tuple[Executable, Path]) -> None:
    opened = Opened(network[1])
    with pytest.raises(CError, match=r"sessions are of language models, but 'mlp\.rlx' is an artefact"):
        opened.session()
    with pytest.raises(CError, match=r"'mlp\.rlx' is no language model"):
        opened.tokenize("a")


def test_handles_are_of_their_library(bundle: Path) -> None:
    """A session isn't taken for a model, and what was freed isn't used."""
    opened = Opened(bundle)
    session = Session(opened)
    functions = library().functions
    assert functions["threads"](session.handle) == 0
    assert functions["run"](session.handle, 0, None, 0, None, 0, (Memory * 1)(), 0) == 1


def test_verifying_reads_all(bundle: Path, network: tuple[Executable, Path], tmp_path: Path) -> None:
    verify(bundle)
    verify(network[1])
    content = bytearray(bundle.read_bytes())
    with Container(bundle) as container:
        content[container.section("weights/0").offset + 100] ^= 1
    (tmp_path / "m.rlx").write_bytes(content)
    with pytest.raises(CError, match=r"section 'weights/0' has the digest .*: the file is damaged"):
        verify(tmp_path / "m.rlx")
    Opened(tmp_path / "m.rlx")
