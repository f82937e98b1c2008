# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many sequences at a time: each text is the one that the sequence has alone."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_mlir.errors import ContextLengthError, ExecutionError, InputError, QueueFullError, UnsupportedError
from rlx_mlir.models.caches import bytes_per_token
from rlx_mlir.models.engine import Engine, Request
from rlx_mlir.models.generation import peak_rss
from rlx_mlir.models.interrupts import deferred_interrupts
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model

CONTEXT = 64


@pytest.fixture(scope="module")
def loaded(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=CONTEXT, chunk=16)


@pytest.fixture
def model(loaded: Model) -> Model:
    loaded.forget()
    return loaded


@pytest.fixture
def engine(model: Model) -> Iterator[Engine]:
    with Engine(model, sequences=4, chunk=8) as engine:
        yield engine


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_nothing_that_is_in_memory_is_copied(engine: Engine, copied: Callable[[object], object]) -> None:
    """Two sessions with one cache would write over each other's keys."""
    for held, instead in (
        (engine.model, "load the model where it is needed"),
        (engine.model.session(), "'fork' gives a copy"),
        (engine, "make one of the same model"),
        (engine.model.generate("a", max_tokens=1), "generate again"),
    ):
        with pytest.raises(TypeError, match=f"{type(held).__name__} objects are neither pickled nor copied: {instead}"):
            copied(held)


def ids_of(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 260, count).tolist()


def options_of(seed: int) -> dict[str, Any]:
    """Options of a request; some are greedy, some have logprobs, penalties and stop strings."""
    random = np.random.default_rng(seed)
    options: dict[str, Any] = {"max_tokens": int(random.integers(1, 30)), "seed": seed, "temperature": 1.5}
    options["ignore_eos"] = bool(random.integers(2))
    if random.random() < 0.3:
        options["greedy"] = True
    if random.random() < 0.3:
        options |= {"repetition_penalty": 1.3, "logprobs": 2}
    if random.random() < 0.2:
        options["stop"] = ["e", "at"]
    return options


def alone(model: Model, prompt: list[int], options: dict[str, Any]) -> tuple[str, list[int], str | None]:
    generation = model.generate(prompt, **options)
    return generation.read(), generation.ids, generation.finish_reason


def result(request: Request) -> tuple[str, list[int], str | None]:
    return request.read(), request.ids, request.finish_reason


def test_texts_are_those_of_each_sequence_alone(model: Model, engine: Engine) -> None:
    asked = [(ids_of(seed, 1 + seed * 7 % 50), options_of(seed)) for seed in range(24)]
    requests = [engine.add(prompt, **options) for prompt, options in asked]
    assert engine.waiting == 24
    engine.run()
    assert (engine.active, engine.waiting, engine.is_idle) == (0, 0, True)
    model.forget()
    for request, (prompt, options) in zip(requests, asked, strict=True):
        assert result(request) == alone(model, prompt, options)
        assert request.stats.generated_tokens == len(request.ids)
        assert request.stats.prompt_tokens + request.stats.reused_tokens == len(prompt)


def test_a_request_is_an_iterator(model: Model, engine: Engine) -> None:
    requests = [engine.add(ids_of(seed, 20), greedy=True, max_tokens=12, ignore_eos=True) for seed in range(6)]
    first = next(requests[2])
    assert first
    assert requests[2].finish_reason is None
    for seed, request in reversed(list(enumerate(requests))):
        text = alone(model, ids_of(seed, 20), {"greedy": True, "max_tokens": 12, "ignore_eos": True})[0]
        assert request.read() == text
        assert request.text == text
        assert request.read() == text


def test_texts_of_other_lengths_and_sizes_of_engines(model: Model) -> None:
    asked = [(ids_of(seed, 3 + seed * 5), {"max_tokens": 9, "seed": seed, "temperature": 2.0}) for seed in range(7)]
    expected = [alone(model, prompt, options) for prompt, options in asked]
    for sequences, chunk in ((1, 1), (2, 16), (3, 5), (64, 8)):
        with Engine(model, sequences=sequences, chunk=chunk) as engine:
            requests = [engine.add(prompt, **options) for prompt, options in asked]
            assert [result(request) for request in requests] == expected


def test_prompts_that_begin_alike_are_processed_once(model: Model, engine: Engine) -> None:
    start = ids_of(1, 30)
    requests = [engine.add([*start, 5 + i], max_tokens=3, greedy=True) for i in range(5)]
    engine.run()
    assert [request.stats.reused_tokens for request in requests] == [0, 30, 30, 30, 30]
    assert model.generate([*start, 5, 6], max_tokens=1).read() is not None
    assert model.stats.reused_tokens == 31


def test_priorities_then_order(model: Model) -> None:
    ended: list[int] = []
    with Engine(model, sequences=1) as engine:
        for number, priority in enumerate([0, 5, -1, 5, 0]):
            engine.add(ids_of(number, 4), max_tokens=2, priority=priority, on_done=lambda _, n=number: ended.append(n))
        engine.run()
    assert ended == [1, 3, 0, 4, 2]


def test_prompts_never_hold_others_up_for_longer_than_a_chunk(model: Model, engine: Engine) -> None:
    first = engine.add(ids_of(0, 4), max_tokens=20, greedy=True, ignore_eos=True)
    engine.step()
    long = engine.add(ids_of(1, 50), max_tokens=3, greedy=True)
    for steps in range(1, 7):
        before = len(first.ids)
        engine.step()
        assert len(first.ids) == before + 1
        assert long.position == min(8 * steps, 50)


def test_cancelled_requests_end_and_the_others_go_on(model: Model, engine: Engine) -> None:
    asked = [(ids_of(seed, 12), {"max_tokens": 20, "seed": seed, "ignore_eos": True}) for seed in range(9)]
    requests = [engine.add(prompt, **options) for prompt, options in asked]
    for _ in range(6):
        engine.step()
    gone = {0, 2, 5, 8}  # some have begun, some wait
    for number in gone:
        requests[number].cancel()
    engine.run()
    for number, (request, (prompt, options)) in enumerate(zip(requests, asked, strict=True)):
        expected = alone(model, prompt, options)
        if number in gone:
            assert request.finish_reason == "cancelled"
            assert request.ids == expected[1][: len(request.ids)]
            assert expected[0].startswith(request.read())
        else:
            assert result(request) == expected


@pytest.mark.parametrize("where", ["on_text", "logits_processors", "on_done"])
def test_what_a_callers_function_raises_ends_its_own_request(model: Model, engine: Engine, where: str) -> None:
    def fails(*_arguments: object) -> None:
        raise KeyError("own")

    asked = [(ids_of(seed, 12), {"max_tokens": 10, "seed": seed, "ignore_eos": True}) for seed in range(5)]
    requests = []
    for number, (prompt, options) in enumerate(asked):
        extra: dict[str, Any] = {}
        if number == 2:
            extra = {where: [fails] if where == "logits_processors" else fails}
        requests.append(engine.add(prompt, **options, **extra))
    engine.run()
    assert requests[2].finish_reason == "error"
    assert isinstance(requests[2].error, KeyError)
    with pytest.raises(KeyError, match="own"):
        requests[2].read()
    for number in (0, 1, 3, 4):
        assert result(requests[number]) == alone(model, *asked[number])


def test_logits_that_are_not_finite_end_one_sequence(model: Model, engine: Engine) -> None:
    requests = [engine.add(ids_of(seed, 9), max_tokens=12, seed=seed, ignore_eos=True) for seed in range(4)]
    while len(requests[3].ids) < 2:
        engine.step()
    engine._pool.caches["v_1"][requests[1].row, 3] = np.inf
    engine.run()
    assert [request.finish_reason for request in requests] == ["length", "error", "length", "length"]
    with pytest.raises(ExecutionError, match="the values of layer 1"):
        requests[1].read()
    for seed in (0, 2, 3):
        expected = alone(model, ids_of(seed, 9), {"max_tokens": 12, "seed": seed, "ignore_eos": True})
        assert result(requests[seed]) == expected
    # The row is free again, and what was in it is gone.
    again = engine.add(ids_of(1, 9), max_tokens=12, seed=1, ignore_eos=True)
    assert again.read() == alone(model, ids_of(1, 9), {"max_tokens": 12, "seed": 1, "ignore_eos": True})[0]


@pytest.mark.parametrize("program", ["prefill", "prefixes", "batch"])
def test_want_of_memory_ends_the_requests_that_it_is_for(
    model: Model, engine: Engine, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise MemoryError("no more")

    options = {"max_tokens": 12, "ignore_eos": True}
    requests = [engine.add(ids_of(seed, 9), seed=seed, **options) for seed in range(3)]
    while len(requests[1].ids) < 2:
        engine.step()
    with monkeypatch.context() as patch:
        if program == "prefill":
            patch.setattr(model.programs.prefill, "run", fails)
        elif program == "prefixes":
            patch.setattr(model.prefixes, "add", fails)
        else:
            patch.setattr(engine, "_call", lambda count: fails)
        while not any(request.finish_reason for request in requests):
            engine.step()
    engine.run()
    ended = {"prefill": [2], "prefixes": [2], "batch": [0, 1]}[program]
    for seed, request in enumerate(requests):
        if seed in ended:
            assert request.finish_reason == "error"
            assert isinstance(request.error, MemoryError)
        else:
            assert result(request) == alone(model, ids_of(seed, 9), {"seed": seed, **options})
    again = engine.add(ids_of(2, 9), seed=2, **options)
    assert result(again) == alone(model, ids_of(2, 9), {"seed": 2, **options})


def test_a_sequence_ends_where_its_context_is_full(model: Model, engine: Engine) -> None:
    long = engine.add(ids_of(0, 60), max_tokens=50, greedy=True, ignore_eos=True)
    short = engine.add(ids_of(1, 5), max_tokens=50, greedy=True, ignore_eos=True)
    engine.run()
    assert (long.finish_reason, len(long.ids)) == ("context", 5)
    expected = alone(model, ids_of(0, 60), {"max_tokens": 50, "greedy": True, "ignore_eos": True})
    assert result(long) == expected
    assert (short.finish_reason, len(short.ids)) == ("length", 50)
    with pytest.raises(ContextLengthError, match="65 tokens, but the context has 64"):
        engine.add(ids_of(0, 65))


def test_requests_wait_for_memory(model: Model) -> None:
    row = bytes_per_token(model.config)
    with Engine(model, sequences=8, memory=50 * row) as engine:
        requests = [engine.add(ids_of(seed, 10), max_tokens=10, seed=seed, ignore_eos=True) for seed in range(6)]
        most = 0
        while not engine.is_idle:
            engine.step()
            most = max(most, engine.active)
        assert most == 2
        assert all(request.finish_reason == "length" for request in requests)
        with pytest.raises(InputError, match=f"needs {60 * row} bytes of keys and values, but the engine's 'memory'"):
            engine.add(ids_of(0, 10), max_tokens=50)


def test_the_queue_is_bounded(model: Model) -> None:
    with Engine(model, sequences=1, queue=2) as engine:
        kept = [engine.add([5, 6], max_tokens=2) for _ in range(2)]
        with pytest.raises(QueueFullError, match="2 requests wait, and 'queue' allows 2"):
            engine.add([5, 6])
        engine.step()
        engine.add([5, 6], max_tokens=1)
        engine.run()
        assert all(request.finish_reason for request in kept)


def test_closing_ends_everything(model: Model) -> None:
    engine = Engine(model, sequences=2, chunk=4)
    requests = [engine.add(ids_of(seed, 12), max_tokens=30, ignore_eos=True) for seed in range(5)]
    for _ in range(4):
        engine.step()
    assert repr(engine).endswith("context 64): 2 of 2 sequences, 3 waiting>")
    engine.close()
    assert {request.finish_reason for request in requests} == {"closed"}
    assert engine.is_idle
    assert not any(array.any() for array in engine._pool.caches.values() if array.nbytes > 1 << 16)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is an exception, though a shell that starts a run in the background lets it be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_comes_between_two_steps(model: Model, engine: Engine) -> None:
    asked = [(ids_of(seed, 12), {"max_tokens": 10, "seed": seed, "ignore_eos": True}) for seed in range(4)]
    requests = []
    for number, (prompt, options) in enumerate(asked):
        hook = (lambda _text: os.kill(os.getpid(), signal.SIGINT)) if number == 1 else None
        requests.append(engine.add(prompt, **options, on_text=hook))
    interrupts = 0
    while not engine.is_idle:
        try:
            engine.step()
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts
    for request, (prompt, options) in zip(requests, asked, strict=True):
        text, ids, reason = alone(model, prompt, options)
        assert (request.ids, request.finish_reason) == (ids, reason)
        assert (request.text or request.read()) == text


def test_interrupts_are_left_alone_elsewhere() -> None:
    before = signal.getsignal(signal.SIGINT)
    own = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        mine = signal.getsignal(signal.SIGINT)
        with deferred_interrupts():
            assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, own)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ValueError, match="inner"), deferred_interrupts():
        raise ValueError("inner")
    assert signal.getsignal(signal.SIGINT) is before


def test_several_threads_add_read_and_cancel(model: Model, engine: Engine) -> None:
    found: dict[int, tuple[str, list[int], str | None]] = {}
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            request = engine.add(ids_of(seed, 5 + seed), **options_of(seed))
            if seed % 5 == 4:
                next(request, "")
                request.cancel()
                request.read()
            else:
                found[seed] = result(request)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(15)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    assert len(found) == 12
    for seed, own in found.items():
        assert own == alone(model, ids_of(seed, 5 + seed), options_of(seed))


def test_many_prompts(model: Model) -> None:
    ended: list[int] = []
    prompts = [ids_of(seed, 6 + seed) for seed in range(9)]
    found = model.generate_many(prompts, sequences=3, seed=7, max_tokens=8, on_done=lambda g: ended.append(len(g.ids)))
    assert len(ended) == 9
    for number, (generation, prompt) in enumerate(zip(found, prompts, strict=True)):
        assert generation.text == model.generate(prompt, seed=7 + number, max_tokens=8).read()
        assert generation.finish_reason in ("length", "stop")
    texts = model.generate_many(["hello", "the cat"], greedy=True, max_tokens=4)
    assert [own.text for own in texts] == [
        model.generate(t, greedy=True, max_tokens=4).read() for t in ("hello", "the cat")
    ]
    for wrong, message in (
        ("hello", "'prompts' are several prompts, but got 'hello'"),
        ([[5], [300]], r"must be in \[0, 300\)"),
    ):
        with pytest.raises(InputError, match=message):
            model.generate_many(wrong)


def test_no_prompts_take_no_engine(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would be compiled; options are refused all the same."""
    monkeypatch.setattr(Engine, "__init__", lambda *_, **__: pytest.fail("an engine is made"))
    assert model.generate_many([], seed=3) == []
    for options, message in (
        ({"max_tokens": 0}, "'max_tokens'"),
        ({"sequences": 65}, "'sequences' is a whole number from 1 to 64"),
        ({"chat": 1}, "'chat' is True or False"),
    ):
        with pytest.raises(InputError, match=message):
            model.generate_many([], **options)  # type: ignore[arg-type]


def test_many_prompts_of_which_one_fails(model: Model) -> None:
    calls = []

    def fails(ids: object, logits: np.ndarray) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("third")

    found = model.generate_many([[5, 6], [7, 8], [9]], max_tokens=4, seed=1, logits_processors=[fails], ignore_eos=True)
    assert [own.finish_reason for own in found].count("error") == 1
    assert sum(isinstance(own.error, RuntimeError) for own in found) == 1


def test_engines_are_for_cpus(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("sequences", 0), ("sequences", 65), ("queue", 0), ("memory", 0), ("chunk", 0)):
        with pytest.raises(InputError, match=f"'{name}' is a whole number"):
            Engine(model, **{name: value})
    monkeypatch.setattr(model, "on_gpu", True)
    with pytest.raises(UnsupportedError, match="an engine needs a model on the CPU"):
        Engine(model)


@pytest.mark.slow
def test_ten_thousand_requests(model: Model) -> None:
    """Random lengths, priorities and cancellations beside one after another: the same texts, and memory stays flat."""
    random = np.random.default_rng(0)
    prompts = [ids_of(seed, int(random.integers(1, 40))) for seed in range(300)]
    kept: dict[tuple[int, int], tuple[str, list[int], str | None]] = {}
    peaks: list[int] = []
    with Engine(model, sequences=16, queue=10_000, chunk=16) as engine:
        waiting: list[tuple[Request, int, int]] = []
        for number in range(10_000):
            which, seed = int(random.integers(300)), int(random.integers(4))
            options = options_of(which * 4 + seed)
            request = engine.add(prompts[which], priority=int(random.integers(3)), **options)
            waiting.append((request, which, seed))
            for _ in range(int(random.integers(0, 3))):
                engine.step()
            if random.random() < 0.05:
                waiting[int(random.integers(len(waiting)))][0].cancel()
            if number % 1000 == 999:
                engine.run()
                peaks.append(peak_rss())
                model_texts = [(entry, entry[0].finish_reason) for entry in waiting]
                waiting.clear()
                for (own, which, seed), reason in model_texts:
                    if (which, seed) not in kept:
                        kept[which, seed] = alone(model, prompts[which], options_of(which * 4 + seed))
                    expected = kept[which, seed]
                    if reason == "cancelled":
                        assert expected[0].startswith(own.read())
                    else:
                        assert result(own) == expected
    assert peaks[-1] - peaks[2] < 20 << 20, peaks
