# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx`: generate text, look into model files, compile them, and see what the compiler makes of them.

Results go to stdout, everything else to stderr. Exit status: 0, or 1 for an error (one line on stderr), 2 for wrong
usage, 130 where interrupted. Whatever a command needs is imported when it runs: `rlx --help` is quick.
"""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from rlx_mlir.errors import InputError, RlxError
from rlx_mlir.tools import fuzz

_DEBUG = "RLX_DEBUG"


class _Commands(TyperGroup):
    """The commands; errors of ours become one line and a status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RlxError as error:
            if os.environ.get(_DEBUG):
                raise
            _fail(f"error: {error}", 1)
        except KeyboardInterrupt:
            _fail("interrupted", 130)
        except BrokenPipeError:  # the reader has what it wants; nothing more can be written, at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None


def _fail(text: str, status: int) -> NoReturn:
    typer.echo(f"rlx: {text}", err=True)
    raise typer.Exit(status) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A compiler for transformer models: run them, look into them, see every stage of their compilation.",
)
app.add_typer(fuzz.app, name="fuzz")
app.command()(fuzz.interesting)


def _example(*lines: str) -> str:
    """Examples below a command's help; the marks keep their line breaks."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  {line}" for line in lines)])


class Stage(str, enum.Enum):
    """Stages that `emit` can show."""

    hir = "hir"
    mir = "mir"
    kernels = "kernels"
    linalg = "linalg"
    lir = "lir"
    llvm = "llvm"
    asm = "asm"


class Program(str, enum.Enum):
    """Modules of a model."""

    prefill = "prefill"
    decode = "decode"


class Activations(str, enum.Enum):
    """How activations meet quantised weights."""

    int8 = "int8"
    exact = "exact"


ModelArgument = Annotated[str, typer.Argument(help="A .gguf file, or the name of a known model (see `rlx models`).")]
ModuleArgument = Annotated[
    str, typer.Argument(help="A .gguf file, the name of a known model, or a module in a .mlir file.")
]
ThreadsOption = Annotated[int | None, typer.Option(help="Threads; all that the process may use by default.")]
ActivationsOption = Annotated[
    Activations, typer.Option(help="int8 quantises activations block by block; exact computes in f32.")
]
ContextOption = Annotated[
    int | None, typer.Option(help="Positions; by default the model's own, but at most 2048.", show_default=False)
]
ChunkOption = Annotated[int, typer.Option(min=1, help="Prompt tokens that are processed at once.")]
OutputOption = Annotated[Path | None, typer.Option("-o", "--output", help="File to write, in place of stdout.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def _show_version(show: bool) -> None:
    if not show:
        return
    import importlib.metadata

    try:
        version = importlib.metadata.version("rlx-mlir")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed)"
    typer.echo(f"rlx {version}")
    raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help=f"Show tracebacks of errors (or set {_DEBUG}=1).")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""
    if debug:
        os.environ[_DEBUG] = "1"


@app.command(
    epilog=_example(
        "rlx generate smollm2 'The capital of France is' --greedy --max-tokens 20",
        "rlx generate model.gguf 'Write a haiku about rain.' --chat --seed 1",
        "cat question.txt | rlx generate model.gguf - --json",
    )
)
def generate(
    model: ModelArgument,
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from stdin.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate at most.")] = 256,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most likely token.")] = False,
    temperature: Annotated[float, typer.Option(min=0.0, help="Above 1 more varied, below 1 less.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Choose among so many tokens; 0 for all.")] = 40,
    top_p: Annotated[float, typer.Option(help="Choose among the tokens that make up this probability.")] = 0.95,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeats the same choices.", show_default=False)] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the chat template.")] = False,
    threads: ThreadsOption = None,
    activations: ActivationsOption = Activations.int8,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    as_json: JsonOption = False,
    stats: Annotated[bool, typer.Option("--stats", help="Show times and rates on stderr.")] = False,
) -> None:
    """Continue a prompt, or answer it with --chat; text appears as it is generated."""
    from rlx_mlir.models.model import load_model

    text = sys.stdin.read() if prompt == "-" else prompt
    with _progress() as say:
        loaded = load_model(
            model, threads=threads, activations=activations.value, context=context, chunk=chunk, progress=say
        )
    generation = loaded.generate(
        text,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        greedy=greedy,
        stop=stop or (),
        chat=chat,
    )
    if as_json:
        generation.read()
        _print_json(
            {
                "text": generation.text,
                "ids": generation.ids,
                "prompt_tokens": len(generation.prompt_ids),
                "finish_reason": generation.finish_reason,
                "stats": generation.stats.to_dict(),
            }
        )
        return
    try:
        for piece in generation:
            typer.echo(piece, nl=False)
            sys.stdout.flush()
    finally:
        typer.echo()
        generation.close()
    if stats:
        done = generation.stats
        typer.echo(
            f"prompt {done.prompt_tokens} tokens, {done.prompt_rate:.1f}/s; "
            f"generated {done.generated_tokens} tokens, {done.decode_rate:.1f}/s ({generation.finish_reason}); "
            f"load {done.load_seconds:.2f} s, compile {done.compile_seconds:.2f} s, "
            f"peak memory {done.peak_rss / 1e6:.0f} MB",
            err=True,
        )


@app.command(
    epilog=_example("rlx inspect model.gguf", "rlx inspect smollm2 --tensors", "rlx inspect model.gguf --json")
)
def inspect(
    file: ModelArgument,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a GGUF file holds: architecture, sizes, and which tensor types make up how much of it."""
    from rlx_mlir.tools.inspect import describe_file, format_description

    description = describe_file(file, tensors=tensors)
    if as_json:
        _print_json(description)
    else:
        typer.echo(format_description(description))


@app.command(
    "compile",
    epilog=_example("rlx compile smollm2", "rlx compile model.gguf --activations exact --context 8192 -o folder"),
)
def compile_model(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for prefill.rlx and decode.rlx.")
    ] = None,
    threads: ThreadsOption = None,
    activations: ActivationsOption = Activations.int8,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    as_json: JsonOption = False,
) -> None:
    """Compile a model into the cache, so that it starts at once later; with -o also into files."""
    import time

    from rlx_mlir.models import decoder
    from rlx_mlir.models.model import compile_program

    config, positions = _configuration(model, context)
    rows: dict[str, dict[str, Any]] = {}
    for program in decoder.PROGRAMS:
        begin = time.perf_counter()
        with _progress() as say:
            if say is not None:
                say(f"compiling {program}")
            executable: Any = compile_program(
                config,
                program,
                context=positions,
                chunk=min(chunk, positions),
                threads=threads,
                activations=activations.value,
            )
        artifact = executable.artifact
        rows[program] = {
            "seconds": time.perf_counter() - begin,
            "kernels": len(artifact.kernels),
            "calls": len(artifact.calls),
            "code_bytes": len(artifact.code),
            "arena_bytes": artifact.arena_bytes,
        }
        if output is not None:
            rows[program]["file"] = str(output / f"{program}.rlx")
            with _writing(output):
                artifact.save(output / f"{program}.rlx")
    if as_json:
        _print_json({"model": model, "programs": rows})
        return
    for program, row in rows.items():
        typer.echo(
            f"{program:<8} {row['seconds']:.2f} s, {row['kernels']} kernels called {row['calls']} times, "
            f"{row['code_bytes'] / 1e3:.0f} kB of code, {row['arena_bytes'] / 1e6:.1f} MB of scratch memory"
            + (f", in {row['file']}" if output is not None else "")
        )


@app.command(
    epilog=_example(
        "rlx emit smollm2 --stage hir --function decode",
        "rlx emit model.gguf --stage mir -o prefill.mlir",
        "rlx emit graph.mlir --stage llvm",
        "rlx emit smollm2 --stage lir --inspect",
    )
)
def emit(
    model: ModuleArgument,
    stage: Annotated[Stage, typer.Option(help="Where to stop.")] = Stage.mir,
    function: Annotated[Program, typer.Option(help="Which module of a model.")] = Program.prefill,
    activations: ActivationsOption = Activations.int8,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Tables in place of IR: stages hir, mir, kernels and lir.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Print a module as the compiler has it at one of its stages."""
    from rlx_mlir import compiler
    from rlx_mlir.reports import stages

    module, maxima = _any_module(model, function.value, context, chunk)
    show = stages.inspect if inspect else compiler.emit
    text = show(module, stage.value, activations=activations.value, maxima=maxima).rstrip("\n")
    if output is None:
        typer.echo(text)
        return
    with _writing(output):
        output.write_text(text + "\n")


@app.command(epilog=_example("rlx report smollm2", "rlx report model.gguf --function decode", "rlx report graph.mlir"))
def report(
    model: ModuleArgument,
    function: Annotated[Program, typer.Option(help="Which module of a model.")] = Program.prefill,
    activations: ActivationsOption = Activations.int8,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
) -> None:
    """Say what the compiler joined, what it nearly did and why not; and how each kernel got its code."""
    from rlx_mlir.compiler import compile

    module, maxima = _any_module(model, function.value, context, chunk)
    typer.echo(str(module.fusion_report(activations=activations.value)))
    executable = compile(module, activations=activations.value, maxima=maxima)
    typer.echo(f"\n{executable.dispatch_report()}")


@app.command(epilog=_example("rlx models"))
def models(as_json: JsonOption = False) -> None:
    """List the models that are known by name."""
    from rlx_mlir.errors import DownloadError
    from rlx_mlir.models import hub

    rows: list[dict[str, Any]] = []
    for name, source in sorted(hub.KNOWN.items()):
        try:
            place: str | None = str(hub.resolve(name, download=False))
        except DownloadError:
            place = None
        rows.append({"name": name, "file": source.filename, "bytes": source.size, "path": place})
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        place = row["path"] or "not here yet; fetched when it is used"
        typer.echo(f"{row['name']:<10} {row['bytes'] / 1e6:>6.0f} MB  {row['file']}\n{'':<10} {place}")


@app.command(epilog=_example("rlx cache", "rlx cache --clear", "rlx cache --clear --models"))
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete compiled code.")] = False,
    models: Annotated[bool, typer.Option("--models", help="With --clear: delete downloaded models, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cache: compiled code and downloaded models, all of which can be made again."""
    from rlx_mlir.tools.cache import clear_cache, describe_cache

    if models and not clear:
        raise InputError("'--models' says what '--clear' deletes, and comes with it")
    freed = clear_cache(models=models) if clear else 0
    description = describe_cache()
    if as_json:
        _print_json({**description, "freed_bytes": freed})
        return
    typer.echo(description["folder"])
    for name, part in description["parts"].items():
        typer.echo(f"  {name:<10} {part['files']:>5} files {part['bytes'] / 1e6:>9.1f} MB")
    if clear:
        typer.echo(f"  freed {freed / 1e6:.1f} MB")


def _configuration(model: str, context: int | None) -> tuple[Any, int]:
    """The configuration of a model, and the positions to compile it for."""
    from rlx_mlir.frontends.gguf import GGUFFile
    from rlx_mlir.models.config import ModelConfig, check_context
    from rlx_mlir.models.hub import resolve

    config = ModelConfig.from_gguf(GGUFFile(resolve(model)))
    return config, check_context(config, context)


def _any_module(model: str, program: str, context: int | None, chunk: int) -> tuple[Any, dict[str, int]]:
    """A module in a file, or of a model, and the largest sizes of its symbolic dimensions where they are known."""
    from rlx_mlir.hir import GraphModule

    if Path(model).suffix == ".mlir":
        return GraphModule.from_text(Path(model)), {}
    return _model_module(model, program, context, chunk)


def _model_module(model: str, program: str, context: int | None, chunk: int) -> tuple[Any, dict[str, int]]:
    """The graph of a model's module, and the largest sizes of its symbolic dimensions."""
    from rlx_mlir.models import decoder
    from rlx_mlir.models.model import maxima

    config, positions = _configuration(model, context)
    return decoder.build(config, program), maxima(program, context=positions, chunk=min(chunk, positions))


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Errors of the file system are the caller's, who named the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None


@contextmanager
def _progress() -> Iterator[Callable[[str], None] | None]:
    """A line on stderr that says what is being done; nothing where that isn't a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda text: status.update(text)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def main() -> None:
    """Runs `rlx` on the command line's arguments and exits with its status."""
    app(prog_name="rlx")


if __name__ == "__main__":
    main()
