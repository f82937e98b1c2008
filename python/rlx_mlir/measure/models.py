# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Implementations that run whole models from one GGUF file: ours, llama.cpp and OpenVINO, as their users would.

Each takes prompts as token ids and gives tokens per second. Their packages are imported when they are loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlx_mlir.errors import UnsupportedError

if TYPE_CHECKING:
    from rlx_mlir.models.engine import Engine

#: Tokens that decode steps take, so that nothing is sampled: not what is compared.
_FIRST_STEP = 100
#: Numbers of types in llama.cpp's interface.
_LLAMA_TYPES = {"f16": 1, "q8_0": 8}


@dataclass(frozen=True)
class Setting:
    """How a model is loaded.

    Attributes:
        path: the .gguf file, the folder, or the bundle.
        threads: of everything.
        positions: that a sequence may have.
        is_bundle: it is a bundle, whose positions are its own.
    """

    path: str
    threads: int
    positions: int
    is_bundle: bool = False


class Implementation(Protocol):
    """A loaded model."""

    def prefill(self, ids: Sequence[int]) -> float:
        """Tokens per second of one prompt, from an empty cache."""

    def decode(self, ids: Sequence[int], steps: int) -> float:
        """Tokens per second of steps, one by one, after a prompt; its time doesn't count, so it may be in the cache."""

    def decode_together(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        """Tokens per second, of all together, of steps in which each of several sequences gets a token; the time of
        their prompts doesn't count."""


#: Loads a model.
Load = Callable[[Setting], Implementation]


class Ours:
    """rlx-mlir: what `Model.generate` runs, with greedy choices."""

    def __init__(
        self, setting: Setting, activations: str = "int8", device: str = "cpu", kv_dtype: str | None = None
    ) -> None:
        import rlx_mlir as rlx
        from rlx_mlir.models.session import Session

        self.model = rlx.load_model(
            setting.path,
            threads=setting.threads,
            activations=activations,
            context=None if setting.is_bundle else setting.positions,
            kv_dtype=kv_dtype,
            target=device,
        )
        self._session = Session(self.model)
        self._engines: dict[int, Engine] = {}

    def prefill(self, ids: Sequence[int]) -> float:
        """As `Implementation` says."""
        self._session.keep(ids[:1])  # nothing of what it holds
        begin = time.perf_counter()
        self._session.prefill(ids)
        return len(ids) / (time.perf_counter() - begin)

    def decode(self, ids: Sequence[int], steps: int) -> float:
        """As `Implementation` says."""
        self.model.generate(ids, max_tokens=steps + 1, greedy=True, ignore_eos=True).read()
        return self.model.stats.decode_rate

    def decode_together(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        """As `Implementation` says, by an engine, with greedy choices."""
        from rlx_mlir.models.engine import Engine

        count = len(prompts)
        if count not in self._engines:
            self._engines[count] = Engine(self.model, sequences=count, queue=count)
        engine = self._engines[count]
        # The first ones go on while the prompts of the others are processed.
        most = steps + count + 1
        requests = [engine.add(list(ids), max_tokens=most, greedy=True, ignore_eos=True) for ids in prompts]
        while not all(request.ids for request in requests):
            engine.step()
        before = sum(len(request.ids) for request in requests)
        begin = time.perf_counter()
        for _ in range(steps):
            engine.step()
        seconds = time.perf_counter() - begin
        done = sum(len(request.ids) for request in requests) - before
        for request in requests:
            request.cancel()
        engine.run()
        return done / seconds


class LlamaCpp:
    """llama.cpp through its Python package, with flash attention."""

    def __init__(self, setting: Setting, kv_dtype: str) -> None:
        import llama_cpp

        kind = _LLAMA_TYPES[kv_dtype]
        self.model = llama_cpp.Llama(
            setting.path,
            n_ctx=setting.positions,
            n_batch=512,
            n_threads=setting.threads,
            n_threads_batch=setting.threads,
            flash_attn=True,
            type_k=kind,
            type_v=kind,
            verbose=False,
        )
        self._held: list[int] = []
        self._several: dict[tuple[int, int], _LlamaSequences] = {}

    def prefill(self, ids: Sequence[int]) -> float:
        """As `Implementation` says."""
        self._held = []
        self.model.reset()
        begin = time.perf_counter()
        self.model.eval(ids)
        return len(ids) / (time.perf_counter() - begin)

    def decode(self, ids: Sequence[int], steps: int) -> float:
        """As `Implementation` says."""
        if self._held == list(ids):
            self.model.n_tokens = len(ids)  # what is behind is removed by the next call
        else:
            self.model.reset()
            self.model.eval(ids)
            self._held = list(ids)
        begin = time.perf_counter()
        for step in range(steps):
            self.model.eval([_FIRST_STEP + step])
        return steps / (time.perf_counter() - begin)

    def decode_together(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        """As `Implementation` says, by batches of a token of each sequence."""
        count = len(prompts)
        several = self._sequences(count, max(map(len, prompts)) + steps)
        for number, ids in enumerate(prompts):
            several.process([(token, place, number) for place, token in enumerate(ids)])
        begin = time.perf_counter()
        for step in range(steps):
            several.process([(_FIRST_STEP + step, len(ids) + step, number) for number, ids in enumerate(prompts)])
        return count * steps / (time.perf_counter() - begin)

    def _sequences(self, count: int, positions: int) -> _LlamaSequences:
        """Empty sequences."""
        if (count, positions) not in self._several:
            self._several[count, positions] = _LlamaSequences(self.model, count, positions)
        found = self._several[count, positions]
        found.clear()
        return found


class _LlamaSequences:
    """Several sequences of a model of llama.cpp, by its own interface: its Python package decodes one at a time."""

    def __init__(self, model: Any, count: int, positions: int) -> None:
        import llama_cpp

        self._library = llama_cpp
        params = type(model.context_params).from_buffer_copy(model.context_params)
        params.n_seq_max, params.kv_unified = count, False  # as is faster where they don't begin alike
        params.n_ctx = count * positions
        self._context = llama_cpp.llama_init_from_model(model.model, params)
        if self._context is None:
            raise UnsupportedError(f"llama.cpp makes no context of {count} sequences with {positions} positions")
        self._batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)

    def clear(self) -> None:
        """Forgets all tokens."""
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def process(self, tokens: Sequence[tuple[int, int, int]]) -> None:
        """Processes tokens, each with its position and its sequence; the last one of each sequence gets logits."""
        last = {number: place for place, (_, _, number) in enumerate(tokens)}
        batch = self._batch
        batch.n_tokens = len(tokens)
        for place, (token, position, number) in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, position
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, number
            batch.logits[place] = last[number] == place
        status = self._library.llama_decode(self._context, batch)
        if status:
            raise UnsupportedError(f"llama.cpp can't process {len(tokens)} tokens: llama_decode gives {status}")
        self._library.llama_synchronize(self._context)


class OpenVino:
    """OpenVINO GenAI, which reads GGUF files itself, with its own defaults, such as a cache of keys of 8 bits.

    It keeps what it computed of prompts, and takes over the beginnings that others have in common with them.
    """

    def __init__(self, setting: Setting) -> None:
        import openvino
        import openvino_genai

        self._tensor, self._genai = openvino.Tensor, openvino_genai
        self._pipeline = openvino_genai.LLMPipeline(setting.path, "CPU", INFERENCE_NUM_THREADS=setting.threads)
        self._prompts = 0

    def _generate(self, ids: Sequence[int], count: int) -> Any:
        row = np.array([ids], np.int64)
        inputs = self._genai.TokenizedInputs(self._tensor(row), self._tensor(np.ones_like(row)))
        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.ignore_eos = count, False, True
        return self._pipeline.generate(inputs, config)

    def prefill(self, ids: Sequence[int]) -> float:
        """As `Implementation` says: no prompt begins as one before did."""
        self._prompts += 1
        changed = [self._prompts, *ids[1:]]
        begin = time.perf_counter()
        self._generate(changed, 1)
        return len(ids) / (time.perf_counter() - begin)

    def decode(self, ids: Sequence[int], steps: int) -> float:
        """As `Implementation` says."""
        milliseconds = self._generate(ids, steps + 1).perf_metrics.get_tpot().mean
        return 1e3 / float(milliseconds)

    def decode_together(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        """Isn't measured."""
        raise UnsupportedError("OpenVINO is measured with one sequence alone")


def llama_cpp(kv_dtype: str) -> Load:
    """What loads a model for llama.cpp with a cache of a type."""
    return partial(LlamaCpp, kv_dtype=kv_dtype)


__all__ = ["Implementation", "LlamaCpp", "Load", "OpenVino", "Ours", "Setting", "llama_cpp"]
