# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights as code wants them: computed from a model's file, or mapped from a file that another start has written.

Such a file is in the cache, or in a folder of compiled programs. One of the cache is for a model's file as the system
knows it (its inode and times); one in a folder goes where the folder and the model go, and is for what the model's file
holds. Both are for what `ModelFile.fingerprint` reads of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from ..errors import RlxError, reason_of
from ..frontends.model_file import ModelFile
from ..paths import replacing
from ..runtime import prepared_cache
from ..runtime.artifact import Artifact, CompiledModule
from ..runtime.prepare import Kept, Prepared, prepare
from ..runtime.prepared_file import PreparedFile, PreparedWriter
from . import decoder
from .config import ModelConfig
from .weights import replaced_weights

log = logging.getLogger(__name__)

IN_FOLDER = f"weights{prepared_cache.SUFFIX}"
"""The file in a folder of compiled programs."""

LEAST_BYTES = 1 << 27
"""Weights that are smaller in all are prepared in less than a fifth of a second: they aren't kept in the cache."""


@dataclass(frozen=True)
class Place:
    """Where prepared weights are kept.

    Attributes:
        path: the file.
        parts: its key.
        own: it is one of the cache, not of a folder that the user named.
    """

    path: Path
    parts: Mapping[str, object]
    own: bool

    def find(self) -> PreparedFile | None:
        """The file, mapped; None where there is none that can be used."""
        return prepared_cache.find(self.path, self.parts, own=self.own)


def in_cache(file: ModelFile, artifacts: Sequence[Artifact]) -> Place | None:
    """Where the cache keeps a model's weights as some programs want them; None where the file is in memory alone."""
    if not file.statuses:
        return None
    parts = prepared_cache.key_parts({"contents": file.fingerprint(), **_system(file)}, list(artifacts))
    return Place(prepared_cache.path_of(parts), parts, own=True)


def _system(file: ModelFile) -> dict[str, object]:
    """What the system says of a model's files, as JSON can write it."""
    own = [prepared_cache.system_identity(status) for status in file.statuses.values()]
    return {**own[0]} if len(own) == 1 else {"files": own}


def in_folder(folder: Path, file: ModelFile, artifacts: Sequence[Artifact]) -> Place:
    """Where a folder of compiled programs keeps a model's weights as they want them."""
    return Place(
        folder / IN_FOLDER,
        prepared_cache.key_parts({"contents": file.fingerprint()}, list(artifacts)),
        own=False,
    )


def _source_bytes(artifacts: Sequence[Artifact], params: Mapping[str, np.ndarray]) -> int:
    """Bytes of what is prepared, which has about as many afterwards."""
    return sum(params[name].nbytes for name in {name for own in artifacts for name in own.preparation.sources})


class PreparedWeights(Kept):
    """Prepared weights by what they are made from; several programs that share them have one copy.

    Attributes:
        state: `computed`, where they are in memory; `kept`, where they are now in a file; `mapped`, where they were.
        size: bytes of that file, 0 where there is none.
        params: what programs are given, by name.
    """

    def __init__(self, file: ModelFile) -> None:
        super().__init__()
        self.params: Mapping[str, np.ndarray] = {}
        self.mappings = file.mappings
        self.state = "computed"
        self.size = 0
        self._file = file
        self._place: Place | None = None
        self._found: Mapping[str, np.ndarray] = {}
        self._writer: PreparedWriter | None = None
        self._open = contextlib.ExitStack()
        self._turn = threading.Lock()

    def __setitem__(self, key: str, value: Prepared) -> None:
        super().__setitem__(key, value)
        if self.state != "mapped":
            self._file.release()  # what was read for one is given back before the next is made

    def bind(self, executable: CompiledModule) -> None:
        """Gives a program the weights that it reads: those that others have prepared are shared."""
        own = {spec.name: self.params[spec.name] for spec in executable.params}
        executable.set_params(own, shared=self)

    def use(self, found: PreparedFile) -> None:
        """Takes weights from a file, which the disk begins to read."""
        self.state, self.size, self._found = "mapped", found.size, found.arrays
        prepared_cache.read_ahead(found.path, found.size)

    def begin(self, place: Place, size: int) -> None:
        """Has what will be computed, of about so many bytes, written to a file. Raises RlxError, OSError."""
        if place.own:
            prepared_cache.make_room(place.path, size)
        file = self._open.enter_context(replacing(place.path, private=place.own, durable=not place.own))
        try:
            self._writer, self._place = PreparedWriter(file, size), place
        except OSError as error:
            self._abandon(error)
            raise

    def obtain(self, key: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """See `Kept`."""
        if key in self._found:
            return self._found[key]
        array, writer = compute(), self._writer
        if writer is None:
            return array
        try:
            return writer.add(key, array)
        except OSError as error:
            with self._turn:
                self._give_up(error)
            return array

    def __enter__(self) -> PreparedWeights:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the file its name, where nothing was raised."""
        if error is not None:
            self._abandon(error)
        elif self._writer is not None and self._place is not None:
            try:
                self.size = self._writer.finish(self._description(self._place), durable=not self._place.own)
                self._check_unchanged()
                self._open.close()
                self.state, self._writer = "kept", None
            except OSError as failure:
                self._give_up(failure)

    def _description(self, place: Place) -> dict[str, object]:
        path = "" if self._file.path is None else os.path.abspath(self._file.path)
        return {"key": dict(place.parts), "model": path, "written": int(time.time())}

    def _check_unchanged(self) -> None:
        """Raises OSError where a file of the model was written meanwhile: nobody knows which part of it was read."""
        for path, before in self._file.statuses.items():
            if prepared_cache.system_identity(os.stat(path)) != prepared_cache.system_identity(before):
                raise OSError(0, "the model's file was changed meanwhile")

    def _give_up(self, error: OSError) -> None:
        """Goes on without a file; what is in it already stays mapped while it is needed."""
        if self._writer is not None:
            assert self._place is not None
            warn(self._place.path, error)
            self._abandon(error)

    def _abandon(self, error: BaseException) -> None:
        self._writer, self.size = None, 0
        with contextlib.suppress(OSError, type(error)):
            self._open.__exit__(type(error), error, error.__traceback__)


def warn(path: Path, error: Exception) -> None:
    """Says that weights aren't kept: they are in memory all the same."""
    log.warning("prepared weights aren't kept in %s: %s", path, reason_of(error))


def set_weights(
    file: ModelFile,
    config: ModelConfig,
    context: int,
    executables: Sequence[CompiledModule],
    *,
    nonfinite: str,
    added: Mapping[str, np.ndarray],
    place: Callable[[Sequence[Artifact]], Place | None] | None,
) -> PreparedWeights:
    """Binds a model's weights to its programs.

    Args:
        file: the model's.
        config: of it.
        context: positions of the tables.
        executables: the programs.
        nonfinite: see `load_model`. Weights in a file that was prepared are finite.
        added: parameters that aren't in the file.
        place: where prepared weights are kept; None where they aren't.

    Raises GGUFError for weights that aren't finite, CacheError where the environment gives the cache a limit that is no
    number, and what `set_params` raises.
    """
    params = decoder.parameters(config, file, context)
    weights = PreparedWeights(file)
    artifacts = [own.artifact for own in executables if isinstance(getattr(own, "artifact", None), Artifact)]
    size = _source_bytes(artifacts, params | dict(added))
    kept = None if place is None or len(artifacts) < len(executables) else place(artifacts)
    if kept is not None and kept.own and (size < LEAST_BYTES or not prepared_cache.most_bytes()):
        kept = None
    found = None if kept is None else kept.find()
    if found is not None:
        weights.use(found)
    elif replaced := replaced_weights(file, iter(config.weights.values()), nonfinite):
        params = decoder.parameters(config, file, context, replaced)
    elif kept is not None and kept.own:
        try:
            weights.begin(kept, size)
        except (OSError, RlxError) as error:
            warn(kept.path, error)
    weights.params = {**params, **added}
    with weights:
        for executable in executables:
            weights.bind(executable)
    file.release()
    return weights


def keep_in_folder(
    folder: Path, file: ModelFile, config: ModelConfig, context: int, artifacts: Sequence[Artifact]
) -> int:
    """Writes the weights of a model, as programs want them, into the folder of these; gives the bytes of the file.

    Args:
        folder: where.
        file, config, context: see `set_weights`.
        artifacts: the programs.

    Raises GGUFError for weights that aren't finite, OSError where the file can't be written.
    """
    replaced_weights(file, iter(config.weights.values()), "refuse")
    params = decoder.parameters(config, file, context)
    weights = PreparedWeights(file)
    weights.begin(in_folder(folder, file, artifacts), _source_bytes(artifacts, params))
    with weights:
        for artifact in artifacts:
            prepare(artifact.preparation, {name: params[name] for name in artifact.preparation.sources}, weights)
    file.release()
    if weights.state != "kept":
        raise OSError(0, "the prepared weights can't be written")
    return weights.size


__all__ = [
    "IN_FOLDER",
    "LEAST_BYTES",
    "Place",
    "PreparedWeights",
    "in_cache",
    "in_folder",
    "keep_in_folder",
    "set_weights",
]
