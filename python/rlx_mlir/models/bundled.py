# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models out of bundles: nothing is compiled or prepared, and nothing that compiles is loaded."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .bundle import THREADS, Bundle, Level, open_bundle
from .bundled_file import BundledFile
from .config import ModelConfig, check_context
from .decode_threads import LEAST_BYTES, decode_threads
from .model import Model
from .programs import Executable

#: What tells models apart whose sessions can't go on with each other's keys and values.
_IDENTITY = ("model", "activations", "kv_dtype", "nonfinite", "lora")


def bundled_model(
    path: Path,
    *,
    threads: int | None,
    target: str,
    cpu: str,
    cache: bool,
    say: Callable[[str], None],
    **fixed: object,
) -> Model:
    """The language model of a bundle.

    Args:
        path: the file.
        say: is told what is done.
        fixed: options that the bundle was made with; None for what isn't asked for.

    The others are those of `load_model`. Raises InputError where another option, or a level that isn't there, is asked
    for, or the bundle is an encoder's; CacheError, ModelFileError, GGUFError and UnsupportedError for the file,
    ExecutionError where it has no code for this machine.
    """
    begin = time.perf_counter()
    bundle = open_bundle(path, "decoder")
    if target != "cpu":
        raise InputError(f"'{path}' was bundled with 'target' 'cpu', but {target!r} is asked for")
    bundle.agree(**fixed)
    file = BundledFile(bundle)
    options, identity = bundle.document.part("options"), bundle.document.part("identity")
    config = dataclasses.replace(ModelConfig.from_gguf(file), kv_dtype=options.get("kv_dtype", str))
    context, activations = check_context(config, options.integer("context")), options.get("activations", str)
    ranks = {name: rank for name, rank in bundle.document.get("ranks", dict).items() if type(rank) is int}
    level, team = bundle.level(cpu), threads
    if threads is None:  # measured before anything else takes the processor's time
        product = bundle.code(THREADS, level) if config.read_bytes >= LEAST_BYTES else None
        team = decode_threads(config.read_bytes, activations, cache=cache and product is not None, product=product)
    programs = _Programs(bundle, level, context, threads, team)
    say(f"loading code for {programs.level.name}")
    model = Model(
        file,
        config,
        prefill=programs.load("prefill"),
        decode=programs.load("decode"),
        context=context,
        chunk=min(options.integer("chunk"), context),
        activations=activations,
        ranks=ranks,
        more=programs.load,
        identify=lambda: {key: identity.get(key, str) for key in _IDENTITY},
    )
    model.note(load_seconds=time.perf_counter() - begin, prepared="mapped", prepared_bytes=bundle.size)
    return model


@dataclass(frozen=True)
class _Programs:
    """The modules of a bundle's model, for one CPU, which `decode` runs with a team of its own."""

    bundle: Bundle
    level: Level
    context: int
    threads: int | None
    team: int | None

    def load(self, program: str) -> Executable:
        """A module, with its weights; ModelFileError where it is for another number of positions."""
        threads = self.team if program == "decode" else self.threads
        executable = self.bundle.executable(program, self.level, threads=threads)
        positions = dict(executable.artifact.symbols).get("context")
        if positions not in (None, self.context):  # those with states alone are for any number
            raise self.bundle.fail(
                f"'{program}' must be for the {self.context} positions that the manifest says, but is for {positions}"
            )
        return executable


__all__ = ["bundled_model"]
