# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Digests of what the compiler emits for a corpus: shows that a change of the code changes nothing that is emitted.

The corpus has kernels of every class, the workloads of `rlx bench`, random graphs, and the models whose files are
given, each for several processors, whether this machine is one or not. Usage:

    python test/emitted.py record before.json [--targets x86-64-v3,sm_90a] [--graphs 40] [--model FILE …] [-j 2]
    python test/emitted.py compare before.json [-j 2]

`compare` makes the digests again, with the options that were recorded, lists what differs, and exits with 1 where
something does. `--keep FOLDER` writes the texts themselves too, for diff.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

import rlx_mlir as rlx
from rlx_mlir.errors import RlxError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.fuzz.cases import random_case
from rlx_mlir.gpu_check.cases import CASES
from rlx_mlir.hir import GraphModule
from rlx_mlir.measure.workloads import WORKLOADS
from rlx_mlir.models import decoder, encoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.encoder_config import EncoderConfig
from rlx_mlir.version import __version__

#: Options of each target by name: x86 without and with AVX-512 and tiles, Arm; GPUs with the three kinds of products.
TARGETS: dict[str, dict[str, Any]] = {
    **{cpu: {"triple": "x86_64-unknown-linux-gnu", "cpu": cpu} for cpu in ("x86-64-v3", "x86-64-v4", "sapphirerapids")},
    "neoverse-n2": {"triple": "aarch64-unknown-linux-gnu", "cpu": "neoverse-n2"},
    **{chip: {"target": "nvptx", "chip": chip, "cubin": "never"} for chip in ("sm_80", "sm_90a", "sm_120a")},
}
#: Seed of the random graphs.
_SEED = 13


def cases(graphs: int, models: list[str]) -> Iterator[tuple[str, Callable[[], GraphModule]]]:
    """Every module of the corpus: its name, and what makes it."""
    for case in CASES:
        yield f"kernels/{case.name}", case.build
    for name, workload in WORKLOADS.items():
        yield f"workloads/{name}", lambda workload=workload: workload().build()
    for index in range(graphs):
        yield f"graphs/{_SEED}.{index}", lambda index=index: random_case(_SEED, index)[0].module
    for model in models:
        path = Path(model)
        if path.is_dir():
            yield f"models/{path.name}", lambda path=path: encoder.build(EncoderConfig.from_folder(path))
            continue
        for program in decoder.PROGRAMS:
            yield (
                f"models/{path.name}/{program}",
                lambda path=path, program=program: decoder.build(ModelConfig.from_gguf(GGUFFile(path)), program),
            )


def _digests(task: tuple[str, str, int, list[str], str | None]) -> dict[str, str]:
    """Digests of one module for one target, by module, target and stage; where it has no code, of the error."""
    name, target, graphs, models, keep = task
    module = dict(cases(graphs, models))[name]()
    options = TARGETS[target]
    found = {}
    for stage in ("kernels", "lir", "ptx", "host") if "chip" in options else ("kernels", "lir", "asm"):
        try:
            text = rlx.emit(module, stage, **options)
        except RlxError as error:
            text = f"{type(error).__name__}: {error}"
        key = f"{name} · {target} · {stage}"
        found[key] = hashlib.sha256(text.encode()).hexdigest()[:24]
        if keep is not None:
            path = Path(keep, target, name.replace(": ", "-").replace(" ", "_") + f".{stage}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return found


def make(targets: list[str], graphs: int, models: list[str], jobs: int, keep: str | None) -> dict[str, str]:
    """Every digest, of modules by turns in so many processes."""
    tasks = [(name, target, graphs, models, keep) for name, _ in cases(graphs, models) for target in targets]
    found: dict[str, str] = {}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("compiling", total=len(tasks))
        for number, own in enumerate(pool.map(_digests, tasks, chunksize=4), 1):
            found |= own
            progress.update(bar, completed=number)
    return found


def main() -> int:
    """The exit status: 1 where something differs."""
    parser = argparse.ArgumentParser(description="Records what the compiler emits for a corpus, or compares it.")
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", help="the digests, as JSON")
    parser.add_argument("--targets", default=",".join(TARGETS), help=f"some of {', '.join(TARGETS)}")
    parser.add_argument("--graphs", type=int, default=40, help="random graphs")
    parser.add_argument("--model", action="append", default=[], help="a GGUF file, or an encoder's folder")
    parser.add_argument("--keep", help="folder for the texts")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="modules at one time")
    options = parser.parse_args()
    targets = options.targets.split(",")
    if unknown := [target for target in targets if target not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if options.action == "record":
        settings = {"targets": targets, "graphs": options.graphs, "models": options.model}
        found = make(targets, options.graphs, options.model, options.jobs, options.keep)
        Path(options.file).write_text(json.dumps({"version": __version__, **settings, "digests": found}, indent=0))
        print(f"{len(found)} texts")
        return 0
    before = json.loads(Path(options.file).read_text())
    after = make(before["targets"], before["graphs"], before["models"], options.jobs, options.keep)
    known = before["digests"]
    differing = sorted(key for key in {*known, *after} if known.get(key) != after.get(key))
    for key in differing:
        print(key if key in known and key in after else f"{key} ({'gone' if key in known else 'new'})")
    print(f"{len(differing)} of {len(known)} texts differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
