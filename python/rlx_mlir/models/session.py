# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One sequence of a model: the cache of its keys and values, and what can be done with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from .. import checks
from ..errors import ContextLengthError, ExecutionError, InputError, UnsupportedError
from ..runtime.description import RunArray
from . import decoder, saved
from .ahead import Ahead
from .caches import CacheType, cache_types
from .choosing import Chooser
from .core import Core, Prompt
from .generation import Generation, Options, pieces
from .memory import copy_first_rows, copy_rows, first_rows
from .prefixes import common
from .programs import MAX_OUTPUTS
from .sampling import Sampler
from .states import States

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..runtime.cuda import CudaExecutable


Floats = npt.NDArray[np.float32]


class Session(checks.Unpicklable):
    """One sequence: its tokens, their keys and values, and the logits of what comes next.

    `Model.session` makes one. Tokens come in as a prompt's (`feed`) or as chosen ones (`step`, `extend`), which are the
    same function computed in two orders: a token has the bits of the program that processed it, however the calls were
    cut and whatever else runs. So a fork, or what `restore` gives, goes on with the same bits as the session itself.

    A session is for one thread at a time; sessions of a model take turns at its code, a chunk or a token each. Models
    on a GPU have no `extend`; forks are copies in the GPU's memory.

    Where layers have states in place of keys and values (`delta`), `truncate` goes back to tokens of the last `extend`,
    or to none: UnsupportedError for others.
    """

    _instead = "'fork' gives a copy, and what 'save' writes is restored by other processes"

    def __init__(self, model: Core) -> None:
        self.model = model
        self.caches = {
            name: model.programs.decode.zeros((1, model.context, type.width), type.dtype)
            for name, type in cache_types(model.config).items()
        }
        self.states = States(model)
        self.heard: Hidden | None = None
        self._tokens: list[int] = []
        self.prefilled = 0
        self._logits = np.empty((1, 1, model.config.vocab), np.float32)
        self._hidden = np.empty((1, 1, model.config.hidden), np.float32)
        self._has_logits = False
        self._token = np.zeros((1, 1), np.int32)
        self._pos = np.zeros(1, np.int32)
        self._step: Callable[[], object] | None = None
        self._ahead: Ahead | None = None
        self._chooses: Sampler | None = None  # whose choices are under way

    def __repr__(self) -> str:
        return f"<Session of {len(self._tokens)} tokens, of {self.model.context} positions>"

    def __len__(self) -> int:
        return len(self._tokens)

    # What callers use ---------------------------------------------------------------------------------

    @property
    def tokens(self) -> tuple[int, ...]:
        """Ids of the tokens so far, by position."""
        return tuple(self._tokens)

    @property
    def text(self) -> str:
        """The text of the tokens so far, special ones left out."""
        return self.model.detokenize(self._tokens)

    @property
    def room(self) -> int:
        """Positions that are left."""
        return self.model.context - len(self._tokens)

    @property
    def logits(self) -> Floats:
        """Logits of the next token, f32 [vocab], a copy. Raises InputError before the first token, and after `truncate`
        until the next one."""
        self._need_logits()
        logits: Floats = self._logits[0, 0].copy()
        return logits

    def feed(self, prompt: Prompt, *, chat: bool | None = None) -> None:
        """Processes the tokens of a text, of chat messages, or token ids, as those of a prompt, in chunks.

        The first text of a session begins with the token for that, where the model has one. Messages that aren't the
        first ones go on behind an answer, whose turn they end.

        Args:
            prompt: a text; token ids; or chat messages, mappings with "role" and "content".
            chat: True puts a text into the chat template as a user's message; messages always go there.

        Raises InputError for what is no prompt, and ids outside of the vocabulary; ChatTemplateError;
        ContextLengthError where they don't fit; ExecutionError where logits aren't finite. Then the session is as it
        was.
        """
        if chat is not None:
            checks.flag("chat", chat)
        ids = self._taken(self.model.prompt_ids(prompt, chat, behind=bool(self._tokens)))
        with self._as_before():
            self.check(self.prefill(ids))

    def step(self, token: int) -> Floats:
        """Processes one more token, as one that was chosen; gives the logits after it, f32 [vocab], a copy.

        Raises as `feed` does.
        """
        (token,) = self._taken([checks.whole("token", token)])
        with self._as_before():
            self.check(self.decode(token))
        return self.logits

    def extend(self, tokens: Sequence[int] | np.ndarray) -> Floats:
        """Processes several tokens as chosen ones; gives the logits after each, f32 [len(tokens), vocab].

        The same bits as with `step`, one by one, but several at once, which read the weights once. Raises as `feed`
        does, and UnsupportedError on GPUs.
        """
        ids = self._taken(tokens)
        with self._as_before():
            found = self.extended(ids)
            self.check(found)
        self._logits[0, 0] = found[-1]
        self._has_logits = True
        return found

    def generate(self, **options: Unpack[Options]) -> Generation:
        """Continues the session; afterwards it has all of the tokens that were chosen, but for one that ends a turn.

        Args:
            options: those of `Model.generate`, but for ``chat`` and ``draft``.

        Raises as `Model.generate` does, and InputError where the session has no logits.
        """
        self._need_logits()
        return Generation(self.model.task(self._tokens, **options), self._pieces)

    def truncate(self, count: int) -> None:
        """Forgets all tokens but the first ``count``.

        Raises InputError where there are less; UnsupportedError where a layer's states can't go back so far.
        """
        checks.whole("count", count)
        if count > len(self._tokens):
            raise InputError(f"'count' must be at most the {len(self._tokens)} tokens of the session, but is {count}")
        if count < len(self._tokens):
            self._check_states(count)
            self._return_to(count, self.prefilled)

    def fork(self) -> Session:
        """Another session with the same tokens, keys, values and logits; each goes on by itself."""
        other = Session(self.model)
        logits = self._logits[0, 0].copy() if self._has_logits else None
        self._settle()
        other.states.load(self.states.arrays)
        for name, cache in self.caches.items():
            copy_first_rows(cache, other.caches[name], len(self._tokens))
        other.load(self._tokens, self.prefilled, [], logits)
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes tokens, keys, values and logits to a file, which `Model.restore` reads; the old file or the new one is
        there whatever happens meanwhile.

        The file is of safetensors' format, about as large as keys and values are. Raises OSError where it can't be
        written.
        """
        checks.path("path", path)
        count = len(self._tokens)
        logits = self._logits[0, 0].copy() if self._has_logits else None
        self._settle()
        saved.write(
            path,
            self.model,
            tokens=self._tokens,
            prefilled=self.prefilled,
            caches=self.rows(count),
            states={name: np.asarray(array) for name, array in self.states.arrays.items()},
            logits=logits,
        )

    # What generation and the engine use -----------------------------------------------------------------

    def rows(self, count: int) -> dict[str, np.ndarray]:
        """Keys and values of the first tokens, [count, width], by name, on the host: views where they are there."""
        return {name: first_rows(cache, count) for name, cache in self.caches.items()}

    def load(
        self, tokens: Sequence[int], prefilled: int, parts: Sequence[Mapping[str, np.ndarray]], logits: Floats | None
    ) -> None:
        """Takes over the tokens, keys and values, and logits, of another session.

        Args:
            tokens: their ids.
            prefilled: how many of them, from the first on, are as `prefill` computes them.
            parts: keys and values, [some tokens, width] by name, in the order of the tokens. Where there are none,
                those that are in the caches stay.
            logits: [vocab], those after the last token; None where they aren't known.
        """
        copy_rows(parts, self.caches, 0, 0, len(tokens))
        self._tokens, self.prefilled, self._has_logits = list(tokens), prefilled, logits is not None
        self._chooses = None
        if logits is not None:
            self._logits[0, 0] = logits

    def take_over(self, tokens: Sequence[int], parts: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Takes over keys and values of the first tokens of a prompt from where they were kept.

        Args:
            tokens: these, all that the session has among them.
            parts: theirs, see `load`.
        """
        if len(tokens) > len(self._tokens):
            copy_rows(parts, self.caches, 0, len(self._tokens), len(tokens))
            self._tokens, self.prefilled, self._has_logits = list(tokens), len(tokens), False

    def keep(self, ids: Sequence[int]) -> None:
        """Keeps what a prompt's logits can be computed from, to the bit as from nothing; forgets the rest.

        That are the positions whose tokens are the prompt's, and whose keys and values `prefill` made: `decode`
        computes them, too, but adds up in another order, and what is rounded to 8 bits afterwards may then differ by
        one. Logits need a token to be processed, so the last one isn't kept. A row of the caches behind the position
        is never read.
        """
        most = min(self.prefilled, len(ids) - 1)
        same = common(self._tokens, ids, 0, most)
        count = same - same % self.model.reuse
        if self.states and (count := self.states.marked(same)):
            self.states.return_to_mark()
        self._return_to(count, count)

    def prefill(self, ids: Sequence[int]) -> Floats:
        """Logits [vocab] after all of ``ids``, which are processed in chunks. Good until the next call."""
        for start in range(0, len(ids), self.model.chunk):
            part = ids[start : start + self.model.chunk]
            self._prefill(part, np.array([len(part) - 1], np.int32), self._logits)
            # The last place in the prompt that another one with the same begin may go on behind.
            rest = len(ids) - start - len(part)
            if (
                self.prefilled == len(self._tokens)
                and rest < self.model.reuse
                and not self.prefilled % self.model.reuse
            ):
                self.states.mark(self.prefilled)
        self._has_logits = True
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
        self._has_logits = True
        logits: Floats = self._logits[0, 0]
        return logits

    def extended(self, ids: Sequence[int]) -> Floats:
        """Logits after each of some tokens, f32 [len(ids), vocab], which aren't checked."""
        if self.model.on_gpu:
            raise UnsupportedError(
                "'extend' of a session processes several tokens as single ones, which programs for CPUs alone do: take "
                "'step', or load the model with target='cpu'"
            )
        if self.states:
            self.model.programs.get("settle")  # compiled before anything is processed
        out, at = np.empty((len(ids), self.model.config.vocab), np.float32), 0
        while at < len(ids):
            part = ids[at : at + decoder.EXTENDED]
            is_few = self.model.config.predicts and len(part) <= decoder.FEW
            program, size = ("few", decoder.FEW) if is_few else ("extend", decoder.EXTENDED)
            if len(part) == 1 or self.room < size:  # the module writes as many rows
                out[at] = self.decode(part[0])
                at += 1
                continue
            tokens = np.array([[*part, *[0] * (size - len(part))]], np.int32)
            logits = np.empty((1, size, self.model.config.vocab), np.float32)
            self._settle()
            self._pos[...] = len(self._tokens)
            inputs = {"tokens": tokens, "pos": self._pos, **self.caches, **self.states.arrays}
            extend = self.model.programs.get(program)
            with self.model.turn:
                found = extend.run(inputs, outputs={"logits": logits}, donate=self.caches.keys())
            self.states.hold(len(self._tokens), {name: found[name] for name in self.model.trails})
            self._tokens.extend(part)
            self._hear(found, len(part))
            out[at : at + len(part)] = logits[0, : len(part)]
            at += len(part)
        return out

    def moved_to(self, ids: Sequence[int]) -> Floats:
        """Logits [vocab] after ``ids``, of which those that the session begins with are processed already. Good until
        the next call."""
        same = common(self._tokens, ids, 0, len(ids) - 1)
        self._return_to(same, self.prefilled)
        rest = ids[same:]
        return self.prefill(rest) if len(rest) > decoder.EXTENDED else self.extended(rest)[-1]

    def follow(self, token: int, chooser: Chooser, most: int) -> int:
        """Processes one more token, and gives the one after it.

        Args:
            chooser: what chooses; on a GPU, where its sampler decides alone and needs no more than the candidates,
                ahead of what is asked for.
            most: how many tokens may be asked for, the one after this one among them.
        """
        sampler = chooser.sampler
        if not (self.model.candidates and chooser.is_plain and sampler.needs_at_most(self.model.candidates)):
            return chooser.choose(self.choosable(self.decode(token)))
        ahead = self._choosing()
        if self._chooses is not sampler:
            self._settle()
            ahead.start(sampler, token, len(self._tokens), most)
            self._chooses = sampler
            self.states.are_ahead = bool(self.states)
        self._tokens.append(token)
        self._has_logits = False
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
        size = len(self._tokens)
        return not_finite(self.rows(size), size, cache_types(self.model.config))

    def advance(self, token: int) -> None:
        """Processes one more token."""
        self._settle()
        self._process(token, len(self._tokens))
        self._tokens.append(token)
        self._hear({"hidden": self._hidden}, 1)

    def _process(self, token: int, position: int) -> None:
        """A step of a token at a position, with the keys, values and states of those before it."""
        if self._step is None:
            inputs = {"tokens": self._token, "pos": self._pos, **self.caches, **self.states.arrays}
            donated = {*self.caches, *self.states.arrays}
            if self.model.candidates:
                inputs |= self._choosing().inputs
                donated.add("chosen")
            outputs = {"logits": self._logits} | ({"hidden": self._hidden} if self.model.config.predicts else {})
            self._step = self.model.programs.decode.bind(inputs, outputs=outputs, donate=donated)
        self._chooses = None
        self._token[...] = token
        self._pos[...] = position
        with self.model.turn:
            self._step()

    def _pieces(self, generation: Generation) -> Iterator[str]:
        """The pieces of text that `generate` gives."""
        task, before, spent = generation.task, len(self._tokens), [0.0, 0.0]
        try:
            yield from pieces(
                task,
                lambda: task.chooser.choose(self.choosable(self.logits)),
                lambda: self.follow(task.ids[-1], task.chooser, task.most),
                spent,
            )
            generation.finish_reason = task.reason
        finally:
            if not sys.is_finalizing():
                if len(self._tokens) < before + len(task.ids) and self.room:
                    self.decode(task.ids[-1])
                generation.stats = self.model.note(
                    prompt_tokens=0,
                    reused_tokens=before,
                    generated_tokens=len(task.ids),
                    drafted_tokens=0,
                    accepted_tokens=0,
                    prompt_seconds=spent[0],
                    decode_seconds=spent[1],
                )

    # Parts ------------------------------------------------------------------------------------------------

    def _choosing(self) -> Ahead:
        if self._ahead is None:
            model, decode = self.model, cast("CudaExecutable", self.model.programs.decode)
            self._ahead = Ahead(
                decode,
                self.caches,
                self.states.arrays,
                context=model.context,
                vocab=model.config.vocab,
                candidates=model.candidates,
                turn=model.turn,
            )
        return self._ahead

    def _prefill(self, ids: Sequence[int], rows: npt.NDArray[np.int32], out: Floats) -> None:
        self._settle()
        self._pos[...] = len(self._tokens)
        inputs: dict[str, RunArray] = {
            "tokens": np.array([ids], np.int32),
            "pos": self._pos,
            "rows": rows,
            **self.caches,
        }
        inputs |= self.states.arrays
        donated = {*self.caches, *self.states.arrays}
        with self.model.turn:
            found = self.model.programs.prefill.run(inputs, outputs={"logits": out}, donate=donated)
        if self.prefilled == len(self._tokens):
            self.prefilled += len(ids)
        self._tokens.extend(ids)
        self._hear(found, len(ids))

    def _hear(self, found: Mapping[str, RunArray], count: int) -> None:
        """Notes the hidden states of the last tokens, where somebody listens."""
        if self.heard is not None:
            self.heard.add(found["hidden"][0, :count])

    def _settle(self) -> None:
        """Has the states be of all tokens, and of no others."""
        if self.states.are_ahead:
            assert self._ahead is not None
            begin, noted = self._ahead.noted(len(self._tokens))
            self.states.load(noted)
            for position in range(begin, len(self._tokens)):  # once more: the same bits
                self._process(self._tokens[position], position)
        self.states.settle(len(self._tokens))

    def _check_states(self, count: int) -> None:
        """Raises UnsupportedError where states can't go back to the first ``count`` tokens."""
        begin = self.states.begin
        if self.states and count and (begin is None or count < begin):
            raise UnsupportedError(
                f"a session of '{self.model.config.architecture}' can't go back from {len(self._tokens)} tokens to "
                f"{count}: layers have a state in place of keys and values, which isn't kept for each token; fork the "
                "session before what may be taken back"
            )

    def _need_logits(self) -> None:
        if not self._has_logits:
            raise InputError(
                f"a session has logits after 'feed', 'step' or 'extend', but none came since "
                f"{'truncate' if self._tokens else 'its start'}"
            )

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """Forgets the tokens that came within the block where something is raised there."""
        count, prefilled = len(self._tokens), self.prefilled
        self._settle()
        before = self.states.copied()
        try:
            yield
        except BaseException:
            self._return_to(count, prefilled)
            self.states.load(before)
            raise

    def _return_to(self, count: int, prefilled: int) -> None:
        if count < len(self._tokens):
            self._has_logits = False
        del self._tokens[count:]
        if self.heard is not None:
            self.heard.keep(count)
        self.states.keep(count)
        self.prefilled = min(prefilled, count)
        self._chooses = None

    def _taken(self, tokens: Sequence[int] | np.ndarray) -> list[int]:
        """Checked ids that fit behind those that are there."""
        ids = self.model.checked_ids(tokens, "'tokens'")
        if len(ids) > self.room:
            raise ContextLengthError(
                f"a session of {len(self._tokens)} tokens has room for {self.room} more of {self.model.context} "
                f"positions, but got {len(ids)}{self.model.larger_context}",
                requested=len(self._tokens) + len(ids),
                limit=self.model.context,
            )
        return ids


class Hidden:
    """Hidden states of a session's tokens, as they come, for what predicts further ahead; see `prediction`.

    Attributes:
        begin: the first token whose state is there, by position.
    """

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self._rows: list[Floats] = []

    def add(self, rows: Floats) -> None:
        """Notes the states of tokens that follow, [tokens, hidden]."""
        self._rows.extend(rows.copy())

    def keep(self, count: int) -> None:
        """Forgets those of all tokens of the session but the first ``count``."""
        del self._rows[max(count - self.begin, 0) :]
        self.begin = min(self.begin, count)

    def taken(self) -> Floats:
        """Gives those that are there out, [tokens, hidden], and goes on behind them."""
        rows, self._rows = self._rows, []
        self.begin += len(rows)
        return np.stack(rows)


def not_finite(caches: Mapping[str, np.ndarray], size: int, types: Mapping[str, CacheType]) -> ExecutionError:
    """What to raise where the logits of a sequence of ``size`` tokens aren't finite.

    Args:
        caches: keys and values, [size, width], by name.
        types: what they are, by name.
    """
    for name, cache in caches.items():
        rows, kind, largest = types[name].numbers(cache), types[name].kind, types[name].largest
        bad = ~np.isfinite(rows)
        if bad.any():
            position = int(bad.any(axis=1).argmax())
            what, _, layer = name.partition("_")
            text = (
                f"the {'keys' if what == 'k' else 'values'} of layer {layer} ('{name}', a cache of {kind}) aren't: "
                f"position {position} has {rows[position][bad[position]][0]}"
            )
            if largest is not None:
                text += f"; {kind} holds numbers up to {largest:.6g}, so load the model with kv_dtype='f32' or 'bf16'"
            return ExecutionError(f"logits of {size} tokens must be finite: {text}")
    return ExecutionError(
        f"logits of {size} tokens must be finite: keys and values are, so what follows them in the last layer isn't"
    )


__all__ = ["Floats", "Hidden", "Session", "not_finite"]
