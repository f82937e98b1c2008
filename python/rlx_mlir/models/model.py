# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language models that run: a GGUF file, its tokenizer, and its two compiled modules.

Threads: one `Model` may be used from several. Every call of `logits` and every `Generation` has its own cache of keys
and values; the compiled code is shared, and calls take turns at it, one chunk of a prompt or one token at a time.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from .. import budgets, checks
from ..activations import ACTIVATIONS, AUTO, way_of
from ..arrays import as_array
from ..dtypes import DTYPES
from ..errors import ContextLengthError, ExecutionError, InputError, TimeLimitError
from ..frontends.model_file import ModelFile
from ..limits import in_threads
from ..place import located
from ..runtime.artifact import Artifact
from ..runtime.prepare import Prepared
from . import decoder
from .adapter import read_adapter
from .ahead import Ahead
from .chat import ChatTemplate
from .compiled import compiled_folder
from .config import ModelConfig, check_context
from .decode_threads import decode_threads
from .generation import Generation, Stats, StopStrings, peak_rss
from .json_tokenizer import tokenizer_of
from .opening import open_model
from .prepared import IN_FOLDER, Place, in_cache, in_folder, set_weights
from .quantised import check_quantize, quantised
from .sampling import Sampler
from .tokenizer import Tokenizer
from .weights import check_nonfinite

if TYPE_CHECKING:
    from ..hir import GraphModule
    from ..runtime.cuda import CudaExecutable

Floats = npt.NDArray[np.float32]
Prompt = str | Sequence[int] | np.ndarray | Sequence[Mapping[str, object]]
Progress = Callable[[str], None]

CANDIDATES = 64
"""Largest logits that a GPU chooses among itself: where a sampler needs no more, tokens are chosen there."""
MAX_OUTPUTS = 128
"""Positions of one call that get logits, at most: the head's result is by far the largest there is."""


class Executable(Protocol):
    """What a model needs of compiled code."""

    def zeros(self, shape: Sequence[int], dtype: np.dtype) -> Any:
        """Zeros for a cache."""

    def set_params(self, params: Mapping[str, np.ndarray], /, *, shared: dict[str, Prepared]) -> object:
        """Binds the weights; ``shared`` holds packed copies for other programs too."""

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        /,
        *,
        outputs: Mapping[str, np.ndarray] | None = None,
        donate: Collection[str] = (),
    ) -> Mapping[str, np.ndarray]:
        """One call; ``donate`` names inputs whose memory the tied results take."""

    def bind(
        self, inputs: Mapping[str, np.ndarray], /, *, outputs: Mapping[str, np.ndarray], donate: Collection[str]
    ) -> Callable[[], object]:
        """A call that can be repeated, with what is in the same arrays then."""


def _silent(text: str) -> None:
    """No progress is shown."""


@located
def load_model(
    path_or_name: str | os.PathLike[str],
    *,
    threads: int | None = None,
    activations: str = AUTO,
    context: int | None = None,
    chunk: int = 512,
    kv_dtype: str = "f32",
    target: str = "cpu",
    nonfinite: str = "refuse",
    quantize: str | None = None,
    lora: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    cache: bool = True,
    prepared_cache: bool | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Model:
    """Loads a model: opens and checks its file, compiles it (or finds it compiled), prepares its weights.

    Args:
        path_or_name: a .gguf file, or a folder with a model as Hugging Face's libraries write it; a name that
            `rlx_mlir.models.hub` knows, or ``hf:owner/repository[:file]``, which is fetched if need be; or a folder
            that ``rlx compile MODEL -o FOLDER`` wrote, whose programs run with the options they were compiled with.
            Programs are code: load such folders of those alone whom you trust.
        threads: of the compiled code; None for as many as the process may use, but to decode no more than it takes to
            read the weights of a large model, which is measured once for a machine, see docs/performance.md.
        activations: how activations meet quantised weights: ``auto`` is ``int16`` on CPUs, ``int8`` on GPUs. ``int8``
            rounds them to 8 bits, block by block, and on CPUs what queries, keys and values are computed from to 15;
            ``int16`` rounds all to 15 bits; ``exact`` computes with decoded weights in f32.
        context: positions that can be used, at most the model's own; by default that, but not more than 2048.
        chunk: tokens of a prompt that are processed at once.
        kv_dtype: element type of cached keys and values, ``f32``, ``f16`` or ``bf16``: the narrow ones take half of
            the memory, and of the time to read it, and are rounded when they are stored.
        target: what runs the model: ``cpu``, or ``cuda``, an NVIDIA GPU of this machine: weights are copied there once,
            and the cache of keys and values stays there.
        nonfinite: what is done about weights, and scales of weights, that are NaN or infinite: ``refuse`` says where
            the first one is, ``zero`` reads each of them, and all that a scale belongs to, as 0.
        quantize: a type of weights, such as ``q4_k``, that matrices of f32, f16 and bf16 are quantised to; None leaves
            them as they are. Rows that aren't a multiple of the type's blocks get a wider type, see docs/models.md. The
            result is kept in the cache.
        lora: a folder with an adapter that ``rlx finetune`` or PEFT wrote: products that it is for get one of low rank
            beside them.
        time_limit: seconds that each of the two programs may take to compile; by default what the budget
            ``compile_seconds`` allows, see `rlx_mlir.budgets`.
        cache: keep compiled code for later processes, and use it.
        prepared_cache: keep prepared weights for later processes, and use them: a file about as large as the model's,
            which all processes map, see docs/models.md. By default as ``cache`` says.
        download: fetch a model of a known name that is not there.
        progress: called with a few words before each step that may take time.

    Raises InputError for bad arguments, GGUFError and UnsupportedError for the file, BudgetError for what is too large
    or takes too long, DownloadError, CompileError (TimeLimitError after ``time_limit``).
    """
    checks.path("path_or_name", path_or_name)
    for name, value in (
        ("nonfinite", nonfinite),
        ("activations", activations),
        ("kv_dtype", kv_dtype),
        ("target", target),
    ):
        checks.text(name, value)
    if quantize is not None:
        check_quantize(checks.text("quantize", quantize))
    checks.flag("cache", cache)
    if prepared_cache is not None:
        checks.flag("prepared_cache", prepared_cache)
    checks.flag("download", download)
    if progress is not None:
        checks.callback("progress", progress, "text")
    check_nonfinite(nonfinite)
    say = progress or _silent
    if activations not in (AUTO, *ACTIVATIONS):
        words = ", ".join((AUTO, *ACTIVATIONS))
        raise InputError(f"'activations' must be one of {words}, but is {activations!r}")
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise InputError(f"'chunk' must be an integer of at least 1, but is {chunk!r}")
    begin = time.perf_counter()
    say(f"opening {os.fspath(path_or_name)}")
    folder = compiled_folder(path_or_name)
    if folder is not None:
        folder.agree(
            context=(context, None), chunk=(chunk, 512), activations=(activations, AUTO), device=(target, "cpu")
        )
        context, chunk, activations, target = folder.context, folder.chunk, folder.activations, folder.device
        path_or_name = folder.model
        if lora is not None:
            raise InputError(f"'{folder.folder}' was compiled without an adapter: load the model that it is of")
    activations = way_of(activations, target)
    file = open_model(path_or_name, download=download, progress=progress is not None)
    config = dataclasses.replace(ModelConfig.from_gguf(file), kv_dtype=kv_dtype)
    if quantize is not None:
        file, config = quantised(file, config, quantize, nonfinite=nonfinite, cache=cache, say=say)
    adapter = None if lora is None else read_adapter(checks.path("lora", lora), config)
    ranks = {} if adapter is None else adapter.ranks
    if folder is not None:
        folder.check(config)
    context = check_context(config, context)
    chunk = min(chunk, context)
    opened = time.perf_counter()
    say("compiling")
    compile_one = partial(
        compile_program,
        config,
        ranks=ranks,
        context=context,
        chunk=chunk,
        activations=activations,
        target=target,
        time_limit=time_limit,
        cache=cache,
    )
    team: dict[str, int | None] = dict.fromkeys(decoder.PROGRAMS, threads)
    if threads is None and target == "cpu":
        team["decode"] = decode_threads(config.read_bytes, activations, cache=cache)
    # Rows of the table without a token can't be chosen, which a GPU doesn't know.
    padded = _vocabulary_size(file, config) < config.vocab
    on_gpu = target == "cuda" and not padded and folder is None
    candidates = {"decode": min(CANDIDATES, config.vocab) if on_gpu else 0}

    def compiled(program: str) -> Executable:
        if folder is not None:
            return cast("Executable", folder.load(program, team[program]))
        return compile_one(program, threads=team[program], candidates=candidates.get(program, 0))

    # Most of a compilation is LLVM's, which doesn't hold Python's lock.
    # Threads have contexts of their own, without the caller's budgets.
    done = in_threads([partial(copy_context().run, compiled, program) for program in decoder.PROGRAMS])
    executables: dict[str, Executable] = dict(zip(decoder.PROGRAMS, done, strict=True))
    ready_to_load = time.perf_counter()
    model = Model(
        file,
        config,
        context=context,
        chunk=chunk,
        activations=activations,
        candidates=candidates["decode"],
        ranks=ranks,
        reuse=chunk if target == "cuda" else 1,
        **executables,
    )
    say("preparing weights")
    place: Callable[[Sequence[Artifact]], Place | None] | None = None
    if folder is not None and (folder.folder / IN_FOLDER).exists():
        place = partial(in_folder, folder.folder, file)
    elif cache if prepared_cache is None else prepared_cache:
        place = partial(in_cache, file)
    weights = set_weights(
        file,
        config,
        context,
        tuple(executables.values()),
        nonfinite=nonfinite,
        added={} if adapter is None else adapter.params(),
        place=place,
    )
    ready = time.perf_counter()
    compile_seconds = ready_to_load - opened
    model._times(
        load_seconds=ready - begin - compile_seconds,
        compile_seconds=compile_seconds,
        prepared=weights.state,
        prepared_bytes=weights.size,
    )
    return model


def _vocabulary_size(file: ModelFile, config: ModelConfig) -> int:
    """Tokens that the file has texts for; all rows of the table where it has no vocabulary."""
    key = "tokenizer.ggml.tokens"
    size = file.metadata.length(key) if key in file.metadata else None
    return config.vocab if size is None else size


def maxima(program: str, *, context: int, chunk: int) -> dict[str, int]:
    """The largest size of each symbolic dimension of a module."""
    if program == "decode":
        return {"context": context}
    return {"context": context, "seq": chunk, "outputs": min(chunk, MAX_OUTPUTS)}


def compile_program(
    config: ModelConfig,
    program: str,
    *,
    context: int,
    chunk: int,
    candidates: int = 0,
    ranks: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    **options: Any,
) -> Executable:
    """Compiles a module of the model, or finds it compiled; the graph is built only if it has to be.

    ``candidates`` and ``ranks`` are those of `decoder.build`.
    ``options`` are those of `rlx_mlir.compiler.compile_cached`: threads, activations, target, cache.

    Raises TimeLimitError after ``time_limit`` seconds; BudgetError after those of the budget ``compile_seconds`` where
    no limit is given.
    """
    from ..compiler import compile_cached

    try:
        compiled: Executable = compile_cached(
            decoder.describe(config, program, candidates, ranks),
            partial(decoder.build, config, program, candidates, ranks),
            maxima=maxima(program, context=context, chunk=chunk),
            time_limit=budgets.current().compile_seconds if time_limit is None else time_limit,
            **options,
        )
        return compiled
    except TimeLimitError as error:
        if time_limit is None:
            raise budgets.exceeded("compile_seconds", f"{error}, which") from error
        raise


class _Session:
    """One sequence: the caches, which stay where they are, and the tokens whose keys and values they hold.

    Attributes:
        tokens: ids, by position.
        prefilled: how many of them, from the first on, `prefill` has processed.
    """

    def __init__(self, model: Model) -> None:
        shape, dtype = (1, model.context, model.config.kv_width), DTYPES[model.config.kv_dtype]
        self.model = model
        self.caches = {name: model._decode.zeros(shape, dtype) for name in decoder.cache_names(model.config)}
        self.tokens: list[int] = []
        self.prefilled = 0
        self._logits = np.empty((1, 1, model.config.vocab), np.float32)
        self._token = np.zeros((1, 1), np.int32)
        self._pos = np.zeros(1, np.int32)
        self._step: Callable[[], object] | None = None
        self._ahead: Ahead | None = None
        self._chooses: Sampler | None = None  # whose choices are under way

    def keep(self, ids: Sequence[int]) -> None:
        """Keeps what a prompt's logits can be computed from, to the bit as from nothing; forgets the rest.

        That are the positions whose tokens are the prompt's, and whose keys and values `prefill` made: `decode`
        computes them, too, but adds up in another order, and what is rounded to 8 bits afterwards may then differ by
        one. Logits need a token to be processed, so the last one isn't kept. A row of the caches behind the position
        is never read.
        """
        most = min(self.prefilled, len(ids) - 1)
        same = next((i for i in range(most) if self.tokens[i] != ids[i]), most)
        count = same - same % self.model.reuse
        del self.tokens[count:]
        self.prefilled = count

    def prefill(self, ids: Sequence[int]) -> Floats:
        """Logits [vocab] after all of ``ids``, which are processed in chunks. Good until the next call."""
        for start in range(0, len(ids), self.model.chunk):
            part = ids[start : start + self.model.chunk]
            self._prefill(part, np.array([len(part) - 1], np.int32), self._logits)
        logits: Floats = self._logits[0, 0]
        return logits

    def all_logits(self, ids: Sequence[int], out: Floats) -> None:
        """Logits after each of ``ids``, into ``out`` [len(ids), vocab]."""
        step = min(self.model.chunk, MAX_OUTPUTS)
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            logits = out[None, start : start + len(part)]
            self._prefill(part, np.arange(len(part), dtype=np.int32), logits)
            self.check(logits)

    def decode(self, token: int) -> Floats:
        """Logits [vocab] after one more token. Good until the next call."""
        self.advance(token)
        logits: Floats = self._logits[0, 0]
        return logits

    def follow(self, token: int, sampler: Sampler, most: int) -> int:
        """Processes one more token, and gives the one after it.

        Args:
            sampler: what chooses; on a GPU, where it needs no more than the candidates, ahead of what is asked for.
            most: how many tokens may be asked for, this one among them.
        """
        if not (self.model.candidates and sampler.needs_at_most(self.model.candidates)):
            return sampler(self.choosable(self.decode(token)))
        ahead = self._choosing()
        if self._chooses is not sampler:
            ahead.start(sampler, token, len(self.tokens), most)
            self._chooses = sampler
        self.tokens.append(token)
        token = ahead.next()
        if token < 0:
            raise self.not_finite()
        return token

    def choosable(self, logits: Floats) -> Floats:
        """Of logits [vocab], those of ids that have a text: rows that pad the embedding table come last.

        Raises ExecutionError where logits aren't finite.
        """
        self.check(logits)
        return logits[: self.model.texts]

    def check(self, logits: Floats) -> None:
        """Raises ExecutionError, which says where it begins, unless all logits are finite."""
        if not np.isfinite(logits).all():
            raise self.not_finite()

    def not_finite(self) -> ExecutionError:
        """What to raise where logits aren't finite: it names the first layer whose keys or values aren't."""
        kind, size = self.model.config.kv_dtype, len(self.tokens)
        for name, cache in self.caches.items():
            rows = np.asarray(cache.numpy() if hasattr(cache, "numpy") else cache)[0, :size].astype(np.float32)
            bad = ~np.isfinite(rows)
            if bad.any():
                position = int(bad.any(axis=1).argmax())
                what, _, layer = name.partition("_")
                text = (
                    f"the {'keys' if what == 'k' else 'values'} of layer {layer} ('{name}', a cache of {kind}) aren't: "
                    f"position {position} has {rows[position][bad[position]][0]}"
                )
                if kind == "f16":
                    text += "; f16 holds numbers up to 65504, so load the model with kv_dtype='f32' or 'bf16'"
                return ExecutionError(f"logits of {size} tokens must be finite: {text}")
        return ExecutionError(
            f"logits of {size} tokens must be finite: keys and values are, so what follows them in the last layer isn't"
        )

    def _choosing(self) -> Ahead:
        if self._ahead is None:
            model, decode = self.model, cast("CudaExecutable", self.model._decode)
            self._ahead = Ahead(
                decode,
                self.caches,
                context=model.context,
                vocab=model.config.vocab,
                candidates=model.candidates,
                turn=model._turn,
            )
        return self._ahead

    def advance(self, token: int) -> None:
        """Processes one more token."""
        if self._step is None:
            inputs = {"tokens": self._token, "pos": self._pos, **self.caches}
            donated = set(self.caches)
            if self.model.candidates:
                inputs |= self._choosing().inputs
                donated.add("chosen")
            self._step = self.model._decode.bind(inputs, outputs={"logits": self._logits}, donate=donated)
        self._chooses = None
        self._token[...] = token
        self._pos[...] = len(self.tokens)
        with self.model._turn:
            self._step()
        self.tokens.append(token)

    def _prefill(self, ids: Sequence[int], rows: npt.NDArray[np.int32], out: Floats) -> None:
        self._pos[...] = len(self.tokens)
        inputs = {"tokens": np.array([ids], np.int32), "pos": self._pos, "rows": rows, **self.caches}
        with self.model._turn:
            self.model._prefill.run(inputs, outputs={"logits": out}, donate=self.caches.keys())
        if self.prefilled == len(self.tokens):
            self.prefilled += len(ids)
        self.tokens.extend(ids)


class Model:
    """A loaded model; `load_model` makes one.

    Attributes:
        config: what the model is.
        file: its open file.
        context: positions that a sequence can have.
        chunk: tokens of a prompt that are processed at once.
        activations: how activations meet quantised weights, see `load_model`.
        candidates: among how many of the largest logits `decode` chooses; 0 where it doesn't.
        ranks: of the products that have an adapter.
        texts: ids that have a text; rows of the embedding table behind them are padding.
        reuse: a prompt takes over a multiple of so many tokens from the sequence before it. 1 on CPUs, where what is
            computed of a token is the same bits however many are processed with it; as many as ``chunk`` on GPUs, which
            add up in another order for other numbers of tokens.
    """

    def __init__(
        self,
        file: ModelFile,
        config: ModelConfig,
        *,
        prefill: Executable,
        decode: Executable,
        context: int,
        chunk: int,
        activations: str = "exact",
        candidates: int = 0,
        ranks: Mapping[str, int] | None = None,
        reuse: int = 1,
    ) -> None:
        self.file = file
        self.config = config
        self.context = context
        self.chunk = chunk
        self.activations = activations
        self.candidates = candidates
        self.ranks = dict(ranks or {})
        self.reuse = reuse
        self.texts = _vocabulary_size(file, config)
        self._prefill = prefill
        self._decode = decode
        self._turn = threading.Lock()  # around the compiled code
        # Around everything below. A thread may come twice: where it collects garbage, abandoned generations end.
        self._state = threading.RLock()
        self._stats = Stats()
        self._spare: _Session | None = None
        self._tokenizer: Tokenizer | None = None
        self._template: ChatTemplate | None = None

    def __repr__(self) -> str:
        name = Path(self.file.path).name if self.file.path else "in memory"
        return f"Model({name}, {self.config.architecture}, {self.config.layers} layers, context {self.context})"

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, made at its first use; TokenizerError where the file has none that is supported."""
        with self._state:
            if self._tokenizer is None:
                tokenizer = tokenizer_of(self.file.metadata, origin=self.file.path or "")
                if tokenizer.vocab_size > self.config.vocab:
                    raise InputError(
                        f"the tokenizer has {tokenizer.vocab_size} tokens, but the embedding table only "
                        f"{self.config.vocab} rows"
                    )
                self._tokenizer = tokenizer
            return self._tokenizer

    @property
    def chat_template(self) -> ChatTemplate:
        """The chat template; ChatTemplateError where the file has none."""
        with self._state:
            if self._template is None:
                self._template = ChatTemplate.from_metadata(self.file.metadata, origin=self.file.path or "")
            return self._template

    @property
    def threads(self) -> int | None:
        """Threads of the compiled code, where it says: those of prompts."""
        return getattr(self._prefill, "threads", None)

    @property
    def decode_threads(self) -> int | None:
        """Threads that decode, where the code says: fewer where more wouldn't read the weights faster."""
        return getattr(self._decode, "threads", None)

    @property
    def stats(self) -> Stats:
        """What the last finished call and loading took."""
        with self._state:
            return self._stats

    def tokenize(self, text: str, bos: bool | None = None, special: bool = False) -> list[int]:
        """Token ids of a text, see `Tokenizer.tokenize`."""
        checks.text("text", text)
        if bos is not None:
            checks.flag("bos", bos)
        return self.tokenizer.tokenize(text, bos=bos, special=checks.flag("special", special))

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        """Text of token ids, see `Tokenizer.detokenize`."""
        array = as_array("ids", ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InputError(f"'ids' are token ids, but got {checks.shown(ids)}")
        return self.tokenizer.detokenize(array.tolist(), special=checks.flag("special", special))

    def module(self, function: str = "prefill", stage: str = "hir") -> GraphModule:
        """The graph of ``prefill`` or ``decode``, newly built: to read, to lower further, to change.

        Args:
            stage: ``hir``, blocks; or ``mir``, primitives. `emit` gives the text of later stages.
        """
        checks.choice("function", function, decoder.PROGRAMS)
        if not isinstance(stage, str) or stage not in ("hir", "mir"):
            raise InputError(
                f"'stage' must be hir or mir, but is {stage!r}; Model.emit (or rlx.emit) gives the text of later stages"
            )
        graph = decoder.build(self.config, function, ranks=self.ranks)
        return graph if stage == "hir" else graph.lower()

    def emit(self, function: str = "prefill", stage: str = "kernels") -> str:
        """``prefill`` or ``decode`` as text at a stage of the compiler, compiled as this model is.

        Args:
            stage: hir, mir, kernels, lir, linalg, llvm or asm, see `rlx_mlir.emit`.
        """
        from ..compiler import emit

        checks.choice("function", function, decoder.PROGRAMS)
        sizes = maxima(function, context=self.context, chunk=self.chunk)
        return emit(self.module(function), stage, activations=self.activations, maxima=sizes)

    def logits(self, token_ids: Sequence[int] | np.ndarray) -> Floats:
        """Logits of the next token at every position, f32 [len(token_ids), vocab], each given the tokens before it.

        Runs with a cache of its own. Raises InputError for ids outside the vocabulary, ContextLengthError for more
        ids than the context has positions.
        """
        ids = self._ids(token_ids, "token_ids")
        out = np.empty((len(ids), self.config.vocab), np.float32)
        begin = time.perf_counter()
        _Session(self).all_logits(ids, out)
        self._times(
            prompt_tokens=len(ids),
            reused_tokens=0,
            generated_tokens=0,
            prompt_seconds=time.perf_counter() - begin,
            decode_seconds=0.0,
        )
        return out

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 256,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        seed: int | None = None,
        greedy: bool = False,
        stop: str | Sequence[str] = (),
        chat: bool | None = None,
        ignore_eos: bool = False,
    ) -> Generation:
        """Continues a prompt; the result is an iterator over pieces of text.

        Where a prompt begins as one did before that this model finished last (a conversation that goes on, another
        question after the same instructions), keys and values of the tokens in common are taken over and only the rest
        is processed. What is generated is the same as without. Tokens that the model chose are processed again, once,
        as a prompt's.

        Args:
            prompt: a text; token ids; or chat messages, mappings with "role" and "content".
            max_tokens: tokens to generate at most; fewer where the context is full before.
            temperature, top_k, top_p, seed, greedy: see `Sampler`.
            stop: texts at which generation ends; they are not given out.
            chat: True puts a text into the chat template as a user's message; messages always go there.
            ignore_eos: go on where the model ends its turn.

        Raises InputError for bad arguments and for ids that have no text, ContextLengthError where the prompt is longer
        than the context; both at the call, before anything is generated. Iterating raises ExecutionError where logits
        aren't finite.
        """
        checks.whole("max_tokens", max_tokens, 1)
        checks.flag("ignore_eos", ignore_eos)
        if chat is not None:
            checks.flag("chat", chat)
        sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, greedy=greedy)
        stops = StopStrings([checks.text("stop", stop)] if isinstance(stop, str) else checks.names("stop", stop))
        ids = self._ids(self._prompt_ids(prompt, chat), "the prompt")
        if max(ids) >= self.texts:
            at = next(i for i, index in enumerate(ids) if index >= self.texts)
            raise InputError(
                f"a token id of a prompt must have a text, and be in [0, {self.texts}), but {ids[at]} is at position "
                f"{at}: the {self.config.vocab} rows of the embedding table are padded"
            )
        ends = frozenset() if ignore_eos else self.tokenizer.stop_ids
        return Generation(ids, partial(self._pieces, sampler, stops, ends, max_tokens))

    def _pieces(
        self,
        sampler: Sampler,
        stops: StopStrings,
        ends: frozenset[int],
        max_tokens: int,
        generation: Generation,
    ) -> Iterator[str]:
        session = self._take(generation.prompt_ids)
        reused = len(session.tokens)
        spent = [0.0, 0.0]  # on the prompt, on what follows
        try:
            stream = self.tokenizer.stream()
            begin = time.perf_counter()
            token = sampler(session.choosable(session.prefill(generation.prompt_ids[reused:])))
            spent[0] = time.perf_counter() - begin
            reason = ""
            while not reason:
                begin = time.perf_counter()
                if token in ends:
                    reason = "stop"
                    break
                generation.ids.append(token)
                piece = stops.push(stream.push(token))
                if stops.found:
                    reason = "stop"
                elif len(generation.ids) == max_tokens:
                    reason = "length"
                elif len(session.tokens) == self.context:
                    reason = "context"
                if len(generation.ids) > 1:
                    spent[1] += time.perf_counter() - begin
                if piece:
                    yield piece
                if not reason:
                    begin = time.perf_counter()
                    most = min(max_tokens - len(generation.ids), self.context - len(session.tokens))
                    token = session.follow(token, sampler, most)
                    spent[1] += time.perf_counter() - begin
            rest = "" if stops.found else stops.push(stream.flush())
            rest += "" if stops.found else stops.flush()
            generation.finish_reason = reason
            if rest:
                yield rest
        finally:
            if not sys.is_finalizing():  # at Python's end nobody reads them, and little works
                self._give_back(session)
                generation.stats = self._times(
                    prompt_tokens=len(generation.prompt_ids) - reused,
                    reused_tokens=reused,
                    generated_tokens=len(generation.ids),
                    prompt_seconds=spent[0],
                    decode_seconds=spent[1],
                )

    def _prompt_ids(self, prompt: Prompt, chat: bool | None) -> Sequence[int] | np.ndarray:
        messages: Sequence[Mapping[str, object]]
        if isinstance(prompt, str):
            if not chat:
                return self.tokenizer.tokenize(prompt)
            messages = [{"role": "user", "content": prompt}]
        elif not isinstance(prompt, Sequence | np.ndarray) or not getattr(prompt, "ndim", 1):
            raise InputError(f"a prompt is text, a list of messages or token ids, but got {type(prompt).__name__}")
        elif len(prompt) and isinstance(prompt[0], Mapping):
            if chat is False:
                raise InputError("'chat' is False, but the prompt is a list of messages")
            messages = prompt  # type: ignore[assignment]
        else:
            if chat:
                raise InputError("'chat' is True, but the prompt is a list of token ids")
            return prompt  # type: ignore[return-value]
        text = self.chat_template.render(messages)
        has_bos = bool(self.chat_template.bos_token) and text.startswith(self.chat_template.bos_token)
        return self.tokenizer.tokenize(text, bos=False if has_bos else None, special=True)

    def _ids(self, given: Sequence[int] | np.ndarray, what: str) -> list[int]:
        """Checked token ids: an index outside the embedding table would be clamped in silence."""
        array = as_array(what, given)
        if array.shape == (0,):
            raise InputError(f"{what} must have at least one token, but has none")
        if array.ndim != 1 or array.dtype.kind not in "iu":
            hint = ": tokenize makes them of text" if array.dtype.kind == "U" else ""
            raise InputError(f"{what} must be one or more token ids, but is {array.dtype} {list(array.shape)}{hint}")
        bad = (array < 0) | (array >= self.config.vocab)
        if bad.any():
            at = int(bad.argmax())
            raise InputError(f"a token id must be in [0, {self.config.vocab}), but {array[at]} is at position {at}")
        if array.size > self.context:
            raise ContextLengthError(
                f"{what} has {array.size} tokens, but the context has {self.context} positions; load the model with "
                f"a larger 'context' (its own is {self.config.context})",
                requested=int(array.size),
                limit=self.context,
            )
        return [int(index) for index in array]

    def _take(self, ids: Sequence[int]) -> _Session:
        """The session that was finished last, with what ``ids`` can take over; a new one where there is none."""
        with self._state:
            session, self._spare = self._spare, None
        if session is None:
            return _Session(self)
        session.keep(ids)
        return session

    def _give_back(self, session: _Session) -> None:
        with self._state:
            self._spare = session

    def _times(self, **values: Any) -> Stats:
        with self._state:
            self._stats = dataclasses.replace(self._stats, peak_rss=peak_rss(), **values)
            return self._stats


__all__ = ["Model", "compile_program", "load_model", "maxima"]
