# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx-run`, or `python -m rlx_mlir.run`: shows, checks and runs files of compiled code.

It needs numpy alone, and is what the package rlx-mlir-runtime has for a command.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlx_mlir import native
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import InputError, RlxError, reason_of
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.container import Container, Kind
from rlx_mlir.runtime.description import RunArray
from rlx_mlir.runtime.inspection import contents, describe, table, verify
from rlx_mlir.runtime.loading import executable


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line, by default the process's; returns the status, of which 0 means that all went well."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except RlxError as error:
        message = str(error)
    except OSError as error:
        message = reason_of(error) if error.filename is None else f"{os.fspath(error.filename)}: {reason_of(error)}"
    print(f"rlx-run: error: {message}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rlx-run", description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("show", _show, "say what a file has"),
        ("verify", _verify, "read all of a file, and say of each part whether it holds; runs nothing"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("file", type=Path, help="an artefact or a container")
        command.add_argument("--json", action="store_true", help="as JSON")
        command.set_defaults(run=run)
    text = "run a compiled module on arrays, and write what it gives; the file is code, and runs with your rights"
    command = commands.add_parser("run", help=text, description=text)
    command.add_argument("file", type=Path, help="an artefact or a container")
    command.add_argument("--section", default="", help="which artefact of a container; by default the only one")
    command.add_argument("--params", type=Path, help="an .npz file with the module's parameters by name")
    command.add_argument("--inputs", type=Path, help="an .npz file with its inputs by name")
    command.add_argument("-o", "--output", type=Path, help="the .npz file that gets its outputs by name")
    command.add_argument("--threads", type=int, help="threads of a call; by default as many as the process may use")
    command.set_defaults(run=_run)
    text = "continue token ids by a model's bundle, with the likeliest token each time; the file is code, as of run"
    command = commands.add_parser("generate", help=text, description=text)
    command.add_argument("file", type=Path, help="a bundle")
    command.add_argument("ids", type=int, nargs="+", help="of the prompt's tokens")
    command.add_argument("--max-tokens", type=int, default=16, help="so many tokens, or up to the end of the context")
    command.add_argument("--threads", type=int, help="threads; by default as many as the process may use")
    command.set_defaults(run=_generate)
    text = "say how a C compiler finds librlx_runtime.so, which runs such files without Python, and its header"
    command = commands.add_parser("library", help=text, description=text)
    command.add_argument("--cflags", action="store_true", help="options that compile a program")
    command.add_argument("--libs", action="store_true", help="options that link it; by default both")
    command.set_defaults(run=_library)
    return parser


def _show(options: argparse.Namespace) -> int:
    found = describe(options.file)
    print(json.dumps(found, indent=2) if options.json else table(found))
    return 0


def _verify(options: argparse.Namespace) -> int:
    found = list(verify(options.file))
    if options.json:
        print(json.dumps([own.to_dict() for own in found], indent=2))
    else:
        print(*found, sep="\n")
    return int(any(own.problem for own in found))


def _run(options: argparse.Namespace) -> int:
    module = executable(_artifact(contents(options.file), options.section), threads=options.threads)
    if module.params:
        module.set_params(_arrays(options.params, "--params"))
    results: dict[str, RunArray] = module.run(_arrays(options.inputs, "--inputs") if module.inputs else {})
    if options.output is not None:
        with options.output.open("wb") as file:
            np.savez(file, **results)
        return 0
    for name, array in results.items():
        print(f"{name}: {array.dtype} {list(array.shape)}\n{array}")
    return 0


def _generate(options: argparse.Namespace) -> int:
    from rlx_mlir.models.loading import load_model  # files that are shown need less

    model = load_model(options.file, threads=options.threads)
    session = model.session()
    session.feed(options.ids)
    for _ in range(min(options.max_tokens, model.context - len(options.ids))):
        token = int(session.logits.argmax())
        print(token, flush=True)
        session.step(token)
    return 0


def _library(options: argparse.Namespace) -> int:
    folder = native.folder()
    if not (folder / "lib" / "librlx_runtime.so").is_file():
        raise InputError(f"{folder / 'lib'} has no librlx_runtime.so: this build has no run time for C")
    both = options.cflags == options.libs
    words = [f"-I{folder / 'include'}"] if both or options.cflags else []
    if both or options.libs:
        words += [f"-L{folder / 'lib'}", f"-Wl,-rpath,{folder / 'lib'}", "-lrlx_runtime"]
    print(shlex.join(words))
    return 0


def _artifact(found: Artifact | Container, section: str) -> Artifact:
    """The artefact that is meant."""
    if isinstance(found, Artifact):
        if section:
            raise InputError(f"--section names '{section}', but the file is one artefact")
        return found
    with found:
        names = [own.name for own in found.sections.values() if own.kind is Kind.CODE]
        if not section and len(names) != 1:
            raise InputError(f"--section is needed: the file has the artefacts {', '.join(names) or 'none'}")
        return found.artifact(section or names[0])


def _arrays(path: Path | None, option: str) -> dict[str, RunArray]:
    """The arrays of a file, which are data alone: nothing of Python's is unpickled."""
    if path is None:
        raise InputError(f"{option} is needed: the module takes arrays by name, which 'rlx-run show' lists")
    with foreign_errors(f"{path} can't be read as an .npz file"), np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


if __name__ == "__main__":
    sys.exit(main())
