# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loading of models, whatever they are in: a file, a folder, a folder of compiled programs, or a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable

from .. import checks
from ..activations import AUTO
from ..boundary import compiler_needed
from ..place import located
from .bundle import bundle_at
from .model import Model

Progress = Callable[[str], None]


@located
def load_model(
    path_or_name: str | os.PathLike[str],
    *,
    threads: int | None = None,
    activations: str = AUTO,
    context: int | None = None,
    chunk: int | None = None,
    kv_dtype: str | None = None,
    target: str = "cpu",
    cpu: str = "",
    nonfinite: str | None = None,
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
        chunk: tokens of a prompt that are processed at once; 512 by default.
        kv_dtype: type of cached keys and values, ``f32`` (the default), ``f16``, ``bf16``, ``q8_0`` or ``q4_0``, or one
            for keys and one for values, ``q8_0/q4_0``. They are rounded when they are stored; 16 bits take half of the
            memory, and of the time to read it, blocks of 8 and 4 bits 27 % and 14 %, where heads are multiples of 32
            elements.
        target: what runs the model: ``cpu``, or ``cuda``, an NVIDIA GPU of this machine: weights are copied there once,
            and the cache of keys and values stays there.
        cpu: the CPU to compile for, as LLVM names it, such as ``x86-64-v3``; this one by default, which is ``native``,
            too. Of a bundle, which of its levels runs; the best one that this machine has by default.
        nonfinite: what is done about weights, and scales of weights, that are NaN or infinite: ``refuse``, the default,
            says where the first one is, ``zero`` reads each of them, and all that a scale belongs to, as 0.
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
    checks.text("activations", activations)
    checks.text("target", target)
    checks.text("cpu", cpu)
    checks.flag("cache", cache)
    if prepared_cache is not None:
        checks.flag("prepared_cache", prepared_cache)
    checks.flag("download", download)
    if progress is not None:
        checks.callback("progress", progress, "text")
    say = progress or _silent
    say(f"opening {os.fspath(path_or_name)}")
    if (path := bundle_at(path_or_name)) is not None:
        from .bundled import bundled_model

        fixed: dict[str, object] = {"context": context, "chunk": chunk, "kv_dtype": kv_dtype, "nonfinite": nonfinite}
        fixed |= {"quantize": quantize, "lora": lora, "activations": None if activations == AUTO else activations}
        return bundled_model(path, threads=threads, target=target, cpu=cpu, cache=cache, say=say, **fixed)
    with compiler_needed(os.fspath(path_or_name)):
        from .compiling import compiled_model

    return compiled_model(
        path_or_name,
        threads=threads,
        activations=activations,
        context=context,
        chunk=chunk,
        kv_dtype=kv_dtype,
        target=target,
        cpu=cpu,
        nonfinite=nonfinite,
        quantize=quantize,
        lora=lora,
        time_limit=time_limit,
        cache=cache,
        prepared_cache=prepared_cache,
        download=download,
        progress=progress,
        say=say,
    )


def _silent(text: str) -> None:
    """No progress is shown."""


__all__ = ["load_model"]
