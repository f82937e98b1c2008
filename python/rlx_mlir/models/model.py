# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language models that run: a file, its tokenizer, and its compiled modules."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .. import checks
from ..errors import InputError, UnsupportedError
from . import decoder, saved
from .bundle import NATIVE
from .choosing import Processor
from .core import Core, Prompt
from .engine import Engine
from .generation import Generation, Options, pieces
from .programs import MAX_SEQUENCES, maxima
from .session import Floats, Session
from .speculation import Drafter, DraftModel, Lookup, Prediction, Speculation, check_vocabulary

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..hir import GraphModule
    from .bundling import BundleReport


class Model(Core):
    """A loaded model; `load_model` makes one.

    Threads: one may be used from several. Every call of `logits` and every `Generation` has its own cache of keys and
    values; the compiled code is shared, and calls take turns at it, one chunk of a prompt or one token at a time.
    """

    _spare: Session | None = None

    def module(self, function: str = "prefill", stage: str = "hir") -> GraphModule:
        """The graph of a module, such as ``prefill``, ``decode``, ``batch`` or ``extend``, newly built: to read, lower,
        or change.

        Args:
            function: see the table in `rlx_mlir.models.decoder`.
            stage: ``hir``, blocks; or ``mir``, primitives. `emit` gives the text of later stages.
        """
        checks.choice("function", function, decoder.modules_of(self.config))
        if not isinstance(stage, str) or stage not in ("hir", "mir"):
            raise InputError(
                f"'stage' must be hir or mir, but is {stage!r}; Model.emit (or rlx.emit) gives the text of later stages"
            )
        graph = decoder.build(self.config, function, ranks=self.ranks)
        return graph if stage == "hir" else graph.lower()

    def emit(self, function: str = "prefill", stage: str = "kernels") -> str:
        """A module as text at a stage of the compiler, compiled as this model is.

        Args:
            function: as for `module`.
            stage: hir, mir, kernels, lir, linalg, llvm or asm, see `rlx_mlir.emit`.
        """
        from ..compiler import emit

        checks.choice("function", function, decoder.modules_of(self.config))
        sizes = maxima(self.config, function, context=self.context, chunk=self.chunk)
        return emit(self.module(function), stage, activations=self.activations, maxima=sizes)

    def logits(self, token_ids: Sequence[int] | np.ndarray) -> Floats:
        """Logits of the next token at every position, f32 [len(token_ids), vocab], each given the tokens before it.

        Runs with a cache of its own. Raises InputError for ids outside the vocabulary, ContextLengthError for more
        ids than the context has positions.
        """
        ids = self.checked_ids(token_ids, "token_ids")
        out = np.empty((len(ids), self.config.vocab), np.float32)
        begin = time.perf_counter()
        Session(self).all_logits(ids, out)
        self.note(
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
        min_p: float = 0.0,
        seed: int | None = None,
        greedy: bool = False,
        stop: str | Sequence[str] = (),
        chat: bool | None = None,
        ignore_eos: bool = False,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        logits_processors: Sequence[Processor] = (),
        logprobs: int = 0,
        response_format: Mapping[str, object] | None = None,
        draft: str | Model | None = None,
    ) -> Generation:
        """Continues a prompt; the result is an iterator over pieces of text.

        Where a prompt begins as another one did before (a conversation that goes on, another question after the same
        instructions), keys and values of the tokens in common are taken over, see `prefixes`, and only the rest is
        processed. What is generated is the same as without. Tokens that the model chose are processed again, once, as a
        prompt's.

        Args:
            prompt: a text; token ids; or chat messages, mappings with "role" and "content".
            max_tokens: tokens to generate at most; fewer where the context is full before.
            temperature, top_k, top_p, min_p, seed, greedy: see `Sampler`.
            stop: texts at which generation ends; they are not given out.
            chat: True puts a text into the chat template as a user's message; messages always go there.
            ignore_eos: go on where the model ends its turn.
            repetition_penalty, presence_penalty, frequency_penalty, logit_bias: see `Chooser`.
            logits_processors: functions of the ids so far and the logits [texts], which give other logits, see
                `Chooser`.
            logprobs: how many of the likeliest tokens `Generation.logprobs` lists beside each chosen one; 0 records
                nothing.
            response_format: what the text has to be, such as ``{"type": "json_schema", "json_schema": {"schema": …}}``,
                see `structured.guide_of`; needs the package llguidance.
            draft: what proposes tokens ahead, of which several are then checked at once: ``lookup``, what followed the
                same tokens before in the text; ``mtp``, the model's own layer for that, where it has one
                (`config.predicts`); or another model with the same vocabulary, smaller and faster. The text is the same
                as without, see `speculation`.

        Raises InputError for bad arguments and for ids that have no text, ContextLengthError where the prompt is longer
        than the context; both at the call, before anything is generated. Iterating raises ExecutionError where logits
        aren't finite.
        """
        task = self.task(
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            greedy=greedy,
            stop=stop,
            chat=chat,
            ignore_eos=ignore_eos,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=logit_bias,
            logits_processors=logits_processors,
            logprobs=logprobs,
            response_format=response_format,
        )
        return Generation(task, partial(self._pieces, self._drafter(draft)))

    def generate_many(
        self,
        prompts: Sequence[Prompt],
        *,
        sequences: int = 8,
        chat: bool | None = None,
        on_done: Callable[[Generation], object] | None = None,
        **options: Unpack[Options],
    ) -> list[Generation]:
        """Continues several prompts, ``sequences`` of them at a time, see `Engine`; on GPUs one after another.

        Each text is the one that `generate` gives. A prompt whose generation fails ends with the `finish_reason`
        ``error``, and what was raised in `Generation.error`; the others go on.

        Args:
            prompts, chat: see `generate`.
            sequences: worked on at a time, at most 64.
            on_done: called with each generation that has ended, in the order in which they end.
            options: those of `generate`, but for ``draft``; ``seed`` is of the first prompt, the one of index i has
                ``seed + i``.

        Returns the generations, which have all ended, in the order of the prompts. Raises as `generate` does, before
        anything is generated.
        """
        if isinstance(prompts, str) or not isinstance(prompts, Sequence):
            raise InputError(f"'prompts' are several prompts, but got {checks.shown(prompts)}")
        if on_done is not None:
            checks.callback("on_done", on_done, "generation")
        if not prompts:  # compiling what decodes several takes long
            checks.whole("sequences", sequences, 1, MAX_SEQUENCES)
            if chat is not None:
                checks.flag("chat", chat)
            self.task([0], **options)  # which refuses what it would with any prompt
            return []
        own: list[Options] = [options] * len(prompts)
        if (seed := options.get("seed")) is not None:
            first = checks.whole("seed", seed, most=2**128 - 1 - len(prompts))
            own = [{**options, "seed": first + i} for i in range(len(prompts))]
        done = on_done or _nothing
        if self.on_gpu:
            every = [self.generate(prompt, chat=chat, **each) for prompt, each in zip(prompts, own, strict=True)]
            for generation in every:
                _ended(generation)
                done(generation)
            return every
        with Engine(self, sequences=sequences, queue=max(len(prompts), 1)) as engine:
            requests = [
                engine.add(prompt, chat=chat, on_done=done, on_text=_nothing, **each)
                for prompt, each in zip(prompts, own, strict=True)
            ]
            engine.run()
        return list(requests)

    def session(self) -> Session:
        """A new sequence without tokens, to be fed, forked, cut and saved by hand."""
        return Session(self)

    def restore(self, path: str | os.PathLike[str]) -> Session:
        """The session that `Session.save` wrote, which goes on with the same bits on a machine of the same kind.

        Raises SafetensorsError where the file isn't one, or is of another model or other options.
        """
        session = Session(self)
        state = saved.read(checks.path("path", path), self)
        session.states.load(state.states)
        session.load(state.tokens, state.prefilled, [state.caches], state.logits)
        return session

    def save_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        cpu: str | Sequence[str] = NATIVE,
        time_limit: float | None = None,
        cache: bool = True,
        progress: Callable[[str], None] | None = None,
    ) -> BundleReport:
        """Writes the model, as it was loaded, as one file that runs without compiling: see `rlx_mlir.bundle`.

        Args:
            path, cpu, time_limit, cache, progress: as there.

        Raises as `rlx_mlir.bundle` does, InputError where the model came out of a bundle, UnsupportedError where it is
        on a GPU.
        """
        from .bundling import bundle_source

        if self.on_gpu:
            raise UnsupportedError("a bundle has code for CPUs, but this model is on a GPU: load it with target='cpu'")
        if self.source is None:
            raise InputError(
                f"'{self.file.path}' can't be bundled: it is a bundle itself, which may be copied as it is"
            )
        return bundle_source(self.source, path, cpu=cpu, time_limit=time_limit, cache=cache, progress=progress)

    def _pieces(self, drafter: Drafter | None, generation: Generation) -> Iterator[str]:
        """The pieces of text that `generate` gives."""
        task = generation.task
        session = self.session_for(task.prompt)
        reused = len(session)
        spent = [0.0, 0.0]
        ahead = None if drafter is None else Speculation(session, task, drafter)
        if isinstance(drafter, Prediction):
            drafter.listen(session)

        def following() -> int:
            token = task.ids[-1]
            return ahead.follow(token) if ahead else session.follow(token, task.chooser, task.most)

        try:
            yield from pieces(
                task,
                lambda: task.chooser.choose(session.choosable(session.prefill(task.prompt[reused:]))),
                following,
                spent,
            )
            generation.finish_reason = task.reason
        finally:
            session.heard = None
            if not sys.is_finalizing():  # at Python's end nobody reads them, and little works
                self.give_back(session)
                generation.stats = self.note(
                    prompt_tokens=len(task.prompt) - reused,
                    reused_tokens=reused,
                    generated_tokens=len(task.ids),
                    drafted_tokens=0 if ahead is None else ahead.drafted,
                    accepted_tokens=0 if ahead is None else ahead.accepted,
                    prompt_seconds=spent[0],
                    decode_seconds=spent[1],
                )

    def _drafter(self, draft: str | Model | None) -> Drafter | None:
        """What proposes tokens; see ``draft`` of `generate`."""
        if draft is None:
            return None
        if self.on_gpu:
            raise UnsupportedError("'draft' needs a model on the CPU, but this one is on a GPU")
        if isinstance(draft, Model):
            check_vocabulary(self.tokenizer, draft.tokenizer)
            if draft.config.delta is not None:
                raise UnsupportedError(
                    f"'draft' takes back what it proposed, but layers of '{draft.config.architecture}' have states "
                    "that don't go back; it may be the model itself, with 'mtp'"
                )
        elif not isinstance(draft, str) or draft not in ("lookup", "mtp"):
            raise InputError(f"'draft' is 'lookup', 'mtp' or a model, but got {checks.shown(draft)}")
        elif draft == "mtp" and not self.config.predicts:
            raise InputError("'draft' is 'mtp', but the model has no layer that predicts further tokens")
        # Compiled here, so that it isn't among what decoding takes.
        unused = ("batch", "extend") if draft == "mtp" else ("batch", "predict")
        for name in decoder.modules_of(self.config):
            if name not in unused:
                self.programs.get(name)
        if isinstance(draft, Model):
            draft.programs.get("extend")
            return DraftModel(draft)
        return Prediction(self) if draft == "mtp" else Lookup()

    def session_for(self, ids: Sequence[int]) -> Session:
        """A session with what a prompt can take over: of the session that was finished last, or of prompts before."""
        with self._state:
            session, self._spare = self._spare, None
        if session is None:
            session = Session(self)
        session.keep(ids)
        if self.prefixes is not None:
            count, parts = self.prefixes.find(ids, len(ids) - 1)
            session.take_over(ids[:count], parts)
        return session

    def forget(self) -> None:
        """Forgets keys and values of all prompts before: the next one is processed from its start."""
        with self._state:
            self._spare = None
        if self.prefixes is not None:
            self.prefixes.clear()

    def give_back(self, session: Session) -> None:
        """Keeps a session that is finished, and the keys and values of its prompt."""
        if self.prefixes is not None:
            self.prefixes.add(session.tokens[: session.prefilled], session.rows(session.prefilled))
        with self._state:
            self._spare = session


def _nothing(_value: object) -> None:
    """Nobody listens."""


def _ended(generation: Generation) -> None:
    """Runs a generation to its end; what is raised becomes its error."""
    try:
        generation.read()
    except Exception as error:
        generation.error, generation.finish_reason = error, "error"


__all__ = ["Model"]
