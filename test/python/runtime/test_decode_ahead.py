# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding ahead on a GPU: which calls of the driver it takes, stops, errors, and caches that stay right.

The stand-in for the driver runs no kernels here but those that choose tokens, which follow a script.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from cuda_harness import FakeCuda, fake_device

from rlx_mlir.errors import DeviceFaultError, ExecutionError, UnsupportedError
from rlx_mlir.measure.summary import summarize
from rlx_mlir.models.ahead import MOST_AHEAD
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.sampling import Sampler
from rlx_mlir.models.session import Session

PROMPT, FIRST = [10, 11, 12, 13], 7
WAITS = ("cuStreamSynchronize", "cuEventSynchronize")


class Script:
    """Runs the kernel of `mir.sample`: chooses what `choose(position, controls, draw)` says, and notes its inputs."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.choose: Callable[[int, tuple[float, ...], float], int] = lambda pos, controls, draw: 20 + pos
        self.positions: list[int] = []
        self.fails_at: int | None = None
        cuda.run_kernels(self)

    def __call__(self, ptx: bytes, name: str, grid: Any, block: Any, shared: int, parameters: bytes) -> None:
        if not name.startswith("sample"):
            return
        _, _, controls, draws, pos, token, following, chosen, places = struct.unpack("<9Q", parameters)
        at = ctypes.c_int32.from_address(pos).value
        self.positions.append(at)
        if at == self.fails_at:
            raise RuntimeError("the step that fails")
        own = tuple((ctypes.c_float * 3).from_address(controls))
        found = self.choose(at, own, ctypes.c_float.from_address(draws + 4 * at).value)
        ctypes.c_int32.from_address(token).value = found
        ctypes.c_int32.from_address(chosen + 4 * at).value = found
        ctypes.c_int32.from_address(following).value = min(at + 1, places - 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_device("sm_90a") as found:
        yield found


@pytest.fixture
def model(path: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    original = Session.prefill

    def prefill(session: Session, ids: Sequence[int]) -> np.ndarray:
        """Nobody computes these logits: token 7 comes first."""
        logits = np.zeros_like(original(session, ids))
        logits[FIRST] = 50
        return logits

    monkeypatch.setattr(Session, "prefill", prefill)
    model = load_model(path, target="cuda", context=64, chunk=16)
    assert model.reuse == 16
    yield model
    model.__dict__.clear()  # pytest keeps the object itself for longer


@pytest.fixture
def script(cuda: FakeCuda) -> Script:
    return Script(cuda)


def generated(model: Model, count: int, **options: Any) -> list[int]:
    generation = model.generate(PROMPT, max_tokens=count, **{"ignore_eos": True, "greedy": True, **options})
    generation.read()
    return generation.ids


def test_a_model_on_a_gpu_is_one_whatever_its_chunks_are(path: Path, cuda: FakeCuda) -> None:
    model = load_model(path, target="cuda", context=64, chunk=1)
    assert (model.on_gpu, model.reuse, model.prefixes) == (True, 1, None)
    with pytest.raises(UnsupportedError, match="'extend' of a session processes several tokens as single ones"):
        model.session().extend([1])


def test_steps_follow_each_other_without_the_host(model: Model, script: Script, cuda: FakeCuda) -> None:
    generated(model, 10)  # graphs are made
    script.positions.clear()
    cuda.trace()
    before = {name: cuda.count(name) for name in WAITS}
    steps = 40
    ids = generated(model, steps + 1)
    spent = {name: cuda.count(name) - count for name, count in before.items()}
    first = len(PROMPT)
    assert script.positions == list(range(first, first + steps))
    assert ids[1:] == [20 + pos for pos in script.positions]
    trace = cuda.trace()
    start = trace.index(f"upload {4 * steps}") + 1  # the draws come last before the first step
    # There are graphs, and copies of tokens: of 1, 2, 4, 8, 8, .. steps. Those of 8 are one graph each, but for the
    # first, and the second makes that graph.
    assert trace[start:].count("graph") == 1 + 2 + 4 + 8 + 1 + 1 + 1 + 1
    assert trace[start:].count("instantiate") == 1
    assert not [line for line in trace[start:] if line.split()[0] not in ("graph", "download", "instantiate", "launch")]
    downloads = [int(line.split()[1]) for line in trace[start:] if line.startswith("download")]
    assert downloads == [4 * count for count in (1, 2, 4, 8, 8, 8, 8, 1)]
    assert spent["cuEventSynchronize"] == len(downloads)
    # A copy has one wait of its own; the prompt, and what is written before the first step, some more.
    assert spent["cuStreamSynchronize"] <= len(downloads) + 8


def test_a_stop_comes_while_later_steps_run(model: Model, script: Script) -> None:
    script.choose = lambda pos, controls, draw: 2 if pos == 11 else 20 + pos  # 2 ends the turn
    generation = model.generate(PROMPT, max_tokens=50, greedy=True)
    generation.read()
    assert (generation.finish_reason, generation.ids) == ("stop", [FIRST, *(20 + pos for pos in range(4, 11))])
    assert len(script.positions) <= 8 + 3 * MOST_AHEAD
    # What the caches are said to hold ends with the last token that was read. The next turn takes over what prompts
    # have in common, in whole chunks on GPUs: with chunks of one token the prompt, but nothing that was chosen.
    model.reuse = 1
    script.positions.clear()
    script.choose = lambda pos, controls, draw: 100 + pos
    before = [*PROMPT, *generation.ids]
    following = model.generate([*before, 2, 30, 31], max_tokens=4, greedy=True, ignore_eos=True)
    following.read()
    assert following.stats.reused_tokens == len(PROMPT)
    assert following.ids == [FIRST, 115, 116, 117]
    assert script.positions[-3:] == [15, 16, 17]


def test_a_stop_string_and_an_early_end(model: Model, script: Script) -> None:
    letter = [ord(character) + 3 for character in "abcSTOPdef"]  # tokens of bytes
    script.choose = lambda pos, controls, draw: letter[(pos - 4) % len(letter)]
    generation = model.generate(PROMPT, max_tokens=40, greedy=True, ignore_eos=True, stop="STOP")
    text = generation.read()
    assert (text[1:], generation.finish_reason) == ("abc", "stop")
    closed = model.generate(PROMPT, max_tokens=40, greedy=True, ignore_eos=True)
    assert next(closed)
    assert next(closed) == "a"
    closed.close()
    assert generated(model, 4)[1:] == letter[:3]


def test_it_ends_where_the_context_ends(model: Model, script: Script) -> None:
    generation = model.generate(PROMPT, max_tokens=1000, greedy=True, ignore_eos=True)
    generation.read()
    assert generation.finish_reason == "context"
    assert script.positions == list(range(4, 64))
    assert generation.ids == [FIRST, *(20 + pos for pos in range(4, 64))]


def test_what_the_kernel_is_given(model: Model, script: Script) -> None:
    seen = []
    script.choose = lambda pos, controls, draw: seen.append((pos, controls, draw)) or 5  # type: ignore[func-returns-value]
    generated(model, 6, greedy=False, temperature=0.5, top_k=9, top_p=0.75, seed=3)
    sampler = Sampler(0.5, 9, 0.75, seed=3)
    sampler.draws(1)  # the first token's
    assert seen == [(pos, (0.5, 9.0, 0.75), draw) for pos, draw in zip(range(4, 9), sampler.draws(5), strict=True)]
    seen.clear()
    generated(model, 3)
    assert [controls[0] for _, controls, _ in seen] == [0, 0]


def test_samplers_that_need_all_logits_choose_on_the_host(model: Model, script: Script, cuda: FakeCuda) -> None:
    with pytest.raises(ExecutionError, match=r"logits of \d+ tokens must be finite"):  # nobody computes them
        generated(model, 3, greedy=False, top_k=65)
    assert len(script.positions) == 1


def test_two_generations_take_turns(model: Model, script: Script) -> None:
    one, two = (model.generate([start] * 4, max_tokens=20, greedy=True, ignore_eos=True) for start in (10, 11))
    for _ in range(20):
        next(one)
        next(two)
    assert one.ids == two.ids == [FIRST, *(20 + pos for pos in range(4, 23))]
    one.close()
    two.close()


def test_nothing_to_choose(model: Model, script: Script) -> None:
    script.choose = lambda pos, controls, draw: -1 if pos == 9 else 20
    generation = model.generate(PROMPT, max_tokens=50, greedy=True, ignore_eos=True)
    with pytest.raises(ExecutionError, match=r"logits of \d+ tokens must be finite"):
        generation.read()
    assert len(generation.ids) == 1 + 5
    script.choose = lambda pos, controls, draw: 30
    assert generated(model, 4) == [FIRST, 30, 30, 30]


def test_a_fault_in_the_middle_names_the_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_device("sm_90a", leaks=False) as cuda:
        script = Script(cuda)
        monkeypatch.setattr(Session, "prefill", lambda session, ids: np.eye(1, 300, FIRST)[0])
        model = load_model(path, target="cuda", context=64, chunk=16)
        script.fails_at = 2
        generation = model.generate(PROMPT, max_tokens=50, greedy=True, ignore_eos=True)
        with pytest.raises(DeviceFaultError, match=r"'decode': one of the runs 2 to 3 failed .*the step that fails"):
            generation.read()
        assert generation.ids == [FIRST, 20]
        with pytest.raises(DeviceFaultError):
            model.generate(PROMPT, max_tokens=3, greedy=True).read()
        assert str(cuda.errors[0]) == "the step that fails"
        del model


def test_what_a_run_did_beside_the_limits_of_the_gpu(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_device("sm_90a", memory=64 << 20) as cuda:
        Script(cuda)
        monkeypatch.setattr(Session, "prefill", lambda session, ids: np.eye(1, 300, FIRST)[0])
        model = load_model(path, target="cuda", context=64, chunk=16)
        generation = model.generate(PROMPT, max_tokens=5, greedy=True, ignore_eos=True)
        generation.read()
        found = summarize(model, generation.stats)
        decode = found.parts[-1]
        weights = sum(info.nbytes for info in model.file.tensors.values())
        assert (decode.name, decode.tokens) == ("decode", 4)
        assert 0.3 * weights < decode.work.bytes / 4 < 2 * weights
        assert re.search(r"^decode: .* MB a token, [\d.]+ us a token, where [\d.]+ are least", str(found), re.MULTILINE)
        assert "fake GPU 9.0, 132 multiprocessors" in str(found)
        assert decode.to_dict()["microseconds_per_token"] > 0
        del model, generation, found, decode
