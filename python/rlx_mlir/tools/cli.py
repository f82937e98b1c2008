# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx`: generate text, look into model files, compile them, and see what the compiler makes of them.

Results go to stdout, everything else to stderr. Exit status: 0, or 1 for an error (one line on stderr), 2 for a wrong
command line, 130 where interrupted; README.md says what is which. Whatever a command needs is imported when it runs:
`rlx --help` is quick.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from rlx_mlir import budgets
from rlx_mlir.activations import way_of
from rlx_mlir.errors import InputError, RlxError, reason_of
from rlx_mlir.files import Json
from rlx_mlir.tools import (
    artifact,
    batch,
    bench,
    bundle,
    cache,
    calibrate,
    chat,
    check_against,
    check_gpu,
    embed,
    evaluate,
    finetune,
    fuzz,
    generate,
    graphs,
    profile,
    quantize,
    serve,
    shared,
    tune,
)
from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    ChipOption,
    ChunkOption,
    Commands,
    ContextOption,
    Cubin,
    CubinOption,
    Format,
    JsonOption,
    LoadOption,
    ModelArgument,
    ModuleArgument,
    OptionError,
    OutputOption,
    PassesOption,
    Program,
    PtxOption,
    SkipFusionOption,
    Stage,
    Target,
    TargetOption,
    ThreadsOption,
    activations_of,
    any_module,
    configuration,
    example,
    message_of,
    module_and_weights,
    one_size,
    own_passes,
    print_json,
    progress,
    refuse,
    skipped_fusion,
    write_text,
    writing,
)
from rlx_mlir.version import __version__

if TYPE_CHECKING:
    from rlx_mlir.checks import Option
    from rlx_mlir.models.config import ModelConfig
    from rlx_mlir.runtime.artifact import Artifact

_DEBUG = "RLX_DEBUG"


#: The order in which commands are listed: what most people need first.
_ORDER = (
    *(
        "generate",
        "batch",
        "chat",
        "serve",
        "embed",
        "models",
        "inspect",
        "compile",
        "bundle",
        "emit",
        "report",
        "draw",
        "export",
        "estimate",
        "ops",
    ),
    *("bench", "profile", "tune", "artifact", "cache", "quantize", "finetune", "merge-lora", "eval"),
)


#: Errors of a disk that takes no more, of which writing to stdout is told.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Commands(Commands):
    """The commands; errors of ours become one line and a status."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_ORDER, *sorted(set(super().list_commands(ctx)) - set(_ORDER))]

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except RlxError as error:
            if _debugs(ctx):
                raise
            _fail(f"error: {message_of(error)}", 2 if isinstance(error, OptionError) else 1)
        except KeyboardInterrupt:
            _fail("interrupted", 130)
        except BrokenPipeError:  # the reader has what it wants
            _write_no_more()
            raise typer.Exit(1) from None
        except OSError as error:
            if error.filename is not None and not _debugs(ctx):
                _fail(f"error: {os.fspath(error.filename)}: {reason_of(error)}", 1)
            if error.filename is not None or error.errno not in _FULL:
                raise
            _write_no_more()
            _fail(f"error: the output can't be written: {reason_of(error)}", 1)


def _debugs(ctx: Any) -> bool:
    """Whether errors come with tracebacks."""
    return bool(ctx.find_root().params.get("debug") or os.environ.get(_DEBUG))


def _write_no_more() -> None:
    """Has the rest of the output go nowhere, at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
app.add_typer(artifact.app, name="artifact")
app.add_typer(cache.app, name="cache")
app.add_typer(fuzz.app, name="fuzz")
app.command()(fuzz.interesting)
app.command(
    epilog=example(
        "rlx bench --kernels gemm,attention --vs torch,onnxruntime",
        "rlx bench --model smollm2 --vs llama.cpp --threads 1,2 --prompt 128",
        "rlx bench --shape 7b-q4_0 --vs llama.cpp,openvino",
        "rlx bench --shape 1b-q4_k_m --context 8192 --kv-cache f16 --vs llama.cpp,llama.cpp-q8_0",
        "rlx bench --model smollm2 --sequences 4,16 --vs llama.cpp",
        "rlx bench --model smollm2 --device cuda",
    )
)(bench.bench)
app.command(
    "check-gpu",
    epilog=example("rlx check-gpu", "rlx check-gpu --only gemm,attention --number 1", "rlx check-gpu --json"),
)(check_gpu.check_gpu)
app.command(
    "check-against",
    epilog=example(
        "rlx check-against jax graph.mlir --size tokens=16",
        "rlx check-against torch minilm --size batch=2 --size seq=9",
        "rlx check-against jax model.onnx --json",
    ),
)(check_against.check_against)
app.command(
    epilog=example(
        "rlx tune smollm2",
        "rlx tune model.gguf --threads 1 --dry-run",
        "rlx tune smollm2 --device cuda --prompt-tokens 16,512",
        "rlx tune graph.mlir --size tokens=64 --maximum tokens=512",
    )
)(tune.tune)
app.command(
    epilog=example(
        "rlx calibrate graph.mlir first.npz second.npz --params weights.npz -o ranges.mlir",
        "rlx calibrate graph.mlir data/*.npz --method percentile --percentile 99.9 --quantize -o int8.mlir",
    )
)(calibrate.calibrate)
app.command(
    epilog=example(
        "rlx profile smollm2",
        "rlx profile model.gguf --prompt-tokens 512 --trace trace.json --plot roofline.html",
        "rlx profile model.gguf --decode 0 --json",
        "rlx profile smollm2 --device cuda",
        "rlx profile graph.mlir --size tokens=64 --maximum tokens=512",
        "rlx profile file.py:build --json",
        "rlx profile model.rlx",
    )
)(profile.profile)
app.command(
    epilog=example(
        "rlx draw smollm2 -o smollm2.svg",
        "rlx draw smollm2 --function decode --stage mir --depth 1 -o decode.svg",
        "rlx draw graph.mlir --stage kernels > kernels.svg",
    )
)(graphs.draw)
app.command(epilog=example("rlx export smollm2 --stage mir -o graph.json", "rlx export graph.mlir | jq .nodes[].op"))(
    graphs.export
)
app.command(
    epilog=example(
        "rlx estimate smollm2 --context 8192",
        "rlx estimate smollm2 --function decode --json",
        "rlx estimate graph.mlir --maximum tokens=512",
    )
)(graphs.estimate)
app.command(
    epilog=example(
        "rlx generate smollm2 'The capital of France is' --greedy --max-tokens 20",
        "rlx generate model.gguf 'Write a haiku about rain.' --chat --seed 1",
        "rlx compile smollm2 -o folder; rlx generate folder 'Hello'",
        "rlx generate model.gguf 'Hello' --chat --lora adapter",
        "cat question.txt | rlx generate model.gguf - --json",
        "rlx generate smollm2 'A person:' --json-schema schema.json --draft lookup --stats",
        "rlx generate smollm2 'Hello' --chat --save-session talk; rlx generate smollm2 'Why?' --chat --session talk",
    )
)(generate.generate)
app.command(
    epilog=example(
        "rlx batch smollm2 prompts.jsonl -o texts.jsonl --max-tokens 100",
        "rlx batch smollm2 prompts.jsonl -o texts.jsonl --resume",
        "rlx batch model.gguf questions.jsonl -o answers.jsonl --chat --sequences 16 --unordered --json",
    )
)(batch.batch)
app.command(
    epilog=example(
        "rlx embed minilm 'A man is eating food.' 'A man eats bread.' --json",
        "cat sentences.txt | rlx embed minilm -",
    )
)(embed.embed)
app.command(
    epilog=example(
        "rlx bundle smollm2 -o smollm2.rlx; rlx generate smollm2.rlx 'Hello' --chat",
        "rlx bundle model.gguf -o model.rlx --cpu x86-64-v3 --cpu x86-64-v4 --context 8192 --kv-cache f16",
        "rlx bundle minilm -o minilm.rlx --cpu x86-64-v3; rlx embed minilm.rlx 'A man is eating food.'",
    )
)(bundle.bundle)
app.command(
    epilog=example(
        "rlx chat smollm2",
        "rlx chat model.gguf --system 'Answer in one sentence.' --context 8192 --kv-cache f16",
    )
)(chat.chat)
app.command(
    epilog=example(
        "rlx serve smollm2",
        "rlx serve model.gguf --port 8080 --sequences 16 --context 4096 --kv-cache f16",
        "RLX_API_KEY=secret rlx serve smollm2 --host 0.0.0.0 --embeddings minilm",
    )
)(serve.serve)
app.command(
    epilog=example(
        "rlx finetune smollm2 dialogues.jsonl --lora 8 -o adapter --eval 0.1",
        "rlx finetune model.gguf data.jsonl -o adapter --targets all --lr 1e-4 --epochs 2 --batch 2 --accumulate 4",
        "rlx finetune model.gguf data.jsonl -o adapter --checkpoint run.safetensors --resume",
        "rlx generate folder-of-hugging-face 'Hello' --chat --quantize q4_k",
        "rlx generate model.gguf 'Hello' --chat --lora adapter",
    )
)(finetune.finetune)
app.command(
    epilog=example(
        "rlx quantize folder -o model.gguf --type q4_k_m",
        "rlx quantize model-f16.gguf -o model.gguf --type iq4_xs --imatrix text.txt",
        "rlx quantize model-f16.gguf --type q3_k_l --dry-run",
    )
)(quantize.quantize)
app.command(
    "merge-lora",
    epilog=example("rlx merge-lora model.gguf adapter -o merged.gguf --type q8_0"),
)(finetune.merge_lora)
app.command(
    "eval",
    epilog=example(
        "rlx eval smollm2 text.txt",
        "rlx eval smollm2 text.txt --against-activations exact --json",
        "rlx eval merged.gguf text.txt --against model.gguf --against-lora adapter --activations exact",
    ),
)(evaluate.evaluate)


def _show_version(show: bool) -> None:
    if not show:
        return
    typer.echo(f"rlx {__version__}")
    raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help=f"Show tracebacks of errors (or set {_DEBUG}=1).")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Allow files more, or less; may be repeated. See docs/security.md."),
    ] = None,
) -> None:
    """Options before the command."""
    del debug  # `_Commands` reads it, where errors arrive
    if budget:
        context.with_resource(budgets.budget_for_process(budgets.parse(",".join(budget))))


@app.command(epilog=example("rlx inspect model.gguf", "rlx inspect smollm2 --tensors", "rlx inspect model.gguf --json"))
def inspect(
    file: ModelArgument,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all weights; exit with 1 where some are NaN or infinite.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a GGUF file holds: architecture, sizes, and which tensor types make up how much of it."""
    from rlx_mlir.models.description import describe_file, format_description

    description = describe_file(file, tensors=tensors, verify=verify)
    if as_json:
        print_json(description)
    else:
        typer.echo(format_description(description))
    if description.get("broken"):
        raise typer.Exit(1)


@app.command(
    "compile",
    epilog=example(
        "rlx compile smollm2",
        "rlx compile model.gguf --activations exact --context 8192 -o folder",
        "rlx compile smollm2 --target nvptx --chip sm_90a -o folder",
        "rlx compile model.gguf -o folder --weights",
        "rlx compile smollm2 --timing",
    ),
)
def compile_model(
    model: ModelArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for prefill.rlx and decode.rlx, which `rlx generate` takes, too."),
    ] = None,
    keep_weights: Annotated[
        bool, typer.Option("--weights", help="Also the weights as the programs want them, as large as the model.")
    ] = False,
    threads: ThreadsOption = None,
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    target: TargetOption = Target.cpu,
    chip: ChipOption = "",
    ptx: PtxOption = "",
    cubin: CubinOption = Cubin.auto,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds for each program; then an error names what was at work.")
    ] = None,
    timing: Annotated[
        bool, typer.Option("--timing", help="Compile anew, beside the cache, and show where the time goes.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a model into the cache, so that it starts at once later; with -o also into files."""
    import time

    from rlx_mlir.models import decoder
    from rlx_mlir.models.bundle import bundle_at
    from rlx_mlir.models.programs import compile_program
    from rlx_mlir.runtime.artifact import Artifact

    if bundle_at(model) is not None:
        raise InputError(f"'{model}' is a bundle, which is compiled already: compile the model that it was made of")
    config, positions = configuration(model, context)
    way = way_of(activations.value, target.value)
    if keep_weights and output is None:
        raise OptionError("'--weights' are kept in a folder: '--output' says in which")
    if timing:
        if output is not None:
            raise OptionError("'--timing' writes no files: leave '--output' out")
        machine: dict[str, Option] = {"target": target.value, "chip": chip, "ptx": ptx, "time_limit": time_limit}
        _time_compilation(model, config, positions, min(chunk, positions), way, as_json, machine)
        return
    rows: dict[str, dict[str, Json]] = {}
    artifacts = []
    for program in decoder.PROGRAMS:
        begin = time.perf_counter()
        with progress() as say:
            if say is not None:
                say(f"compiling {program}")
            compiled: Any = compile_program(
                config,
                program,
                context=positions,
                chunk=min(chunk, positions),
                threads=threads,
                activations=way,
                target=target.value,
                chip=chip,
                ptx=ptx,
                cubin=cubin.value,
                time_limit=time_limit,
            )
        artifact = compiled if isinstance(compiled, Artifact) else compiled.artifact
        artifacts.append(artifact)
        rows[program] = {
            "seconds": time.perf_counter() - begin,
            "kernels": len(artifact.kernels),
            "calls": len(artifact.calls),
            "code_bytes": len(artifact.code) + len(artifact.device_code) + len(artifact.cubin),
            "arena_bytes": artifact.arena_bytes,
        }
        if output is not None:
            rows[program]["file"] = str(output / f"{program}.rlx")
            with writing(output):
                artifact.save(output / f"{program}.rlx")
    if output is not None:
        _describe_folder(output, model, config, positions, chunk, way, target.value)
    size = _keep_weights(output, model, config, positions, artifacts) if output is not None and keep_weights else 0
    if as_json:
        print_json({"model": model, "programs": rows, "weights_bytes": size})
        return
    for program, row in rows.items():
        typer.echo(
            f"{program:<8} {row['seconds']:.2f} s, {row['kernels']} kernels called {row['calls']} times, "
            f"{row['code_bytes'] / 1e3:.0f} kB of code, {row['arena_bytes'] / 1e6:.1f} MB of scratch memory"
            + (f", in {row['file']}" if output is not None else "")
        )
    if size:
        typer.echo(f"weights  {size / 1e6:.0f} MB")


def _keep_weights(output: Path, model: str, config: ModelConfig, context: int, artifacts: list[Artifact]) -> int:
    """Writes weights beside the programs that want them so; gives the bytes of the file."""
    from rlx_mlir.models.opening import open_model
    from rlx_mlir.models.prepared import keep_in_folder

    with progress() as say, writing(output):
        if say is not None:
            say("preparing weights")
        return keep_in_folder(output, open_model(model), config, context, artifacts)


def _describe_folder(
    output: Path, model: str, config: ModelConfig, context: int, chunk: int, activations: str, target: str
) -> None:
    """Says beside compiled programs what they are of, for `rlx generate FOLDER`."""
    from rlx_mlir.models import decoder
    from rlx_mlir.models.compiled import CompiledFolder
    from rlx_mlir.models.hub import KNOWN
    from rlx_mlir.models.repositories import PREFIX

    known = model.lower() in KNOWN
    programs = {program: decoder.describe(config, program) for program in decoder.PROGRAMS}
    source = model.lower() if known else str(Path(model).expanduser().resolve())
    source = model if model.startswith(PREFIX) else source
    with writing(output):
        CompiledFolder(output, source, context, min(chunk, context), activations, target, programs).save()


def _time_compilation(
    model: str,
    config: ModelConfig,
    context: int,
    chunk: int,
    activations: str,
    as_json: bool,
    machine: dict[str, Option],
) -> None:
    """Compiles both programs of a model and shows what took how long."""
    from rlx_mlir.compiler import CompileOptions
    from rlx_mlir.measure.compile_timing import time_compilation
    from rlx_mlir.models import decoder
    from rlx_mlir.models.programs import maxima
    from rlx_mlir.tools.timing import format_timing

    found = []
    for program in decoder.PROGRAMS:
        with progress() as say:
            if say is not None:
                say(f"compiling {program}")
            options = CompileOptions(
                activations=activations,
                maxima=maxima(config, program, context=context, chunk=chunk),
                dump_dir=None,
                **machine,
            )
            found.append(time_compilation(partial(decoder.build, config, program), options))
    if as_json:
        print_json({"model": model, "programs": [own.to_dict() for own in found]})
        return
    typer.echo("\n\n".join(format_timing(own) for own in found))


@app.command(
    epilog=example(
        "rlx emit smollm2 --stage hir --function decode",
        "rlx emit model.gguf --stage mir -o prefill.mlir",
        "rlx emit graph.mlir --stage llvm",
        "rlx emit smollm2 --stage lir --inspect",
        "rlx emit smollm2 --stage asm --function decode --kernel attention_0",
        "rlx emit smollm2 --stage asm --triple aarch64-linux-gnu --cpu cortex-a76",
        "rlx emit smollm2 --stage ptx --target nvptx --chip sm_90",
        "rlx emit smollm2 --stage shared -o libsmollm2.so",
        "rlx emit graph.mlir --stage shared --params weights.npz --weights embed -o libgraph.so",
        "rlx emit minilm --to stablehlo --size batch=1 --size seq=128 -o minilm.stablehlo.mlir",
    )
)
def emit(
    model: ModuleArgument,
    stage: Annotated[
        Stage, typer.Option(help="Where to stop; shared: a library for C, with its header and weights.")
    ] = Stage.mir,
    function: Annotated[
        Program | None,
        typer.Option(help="Which module of a model; prefill, or all of them for stage shared.", show_default=False),
    ] = None,
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Tables in place of IR: stages hir, mir, kernels and lir.")
    ] = False,
    kernel: Annotated[
        str | None, typer.Option(help="One kernel alone, by its name in `rlx report`; from stage kernels on.")
    ] = None,
    triple: Annotated[str, typer.Option(help="Architecture to compile for, e.g. aarch64-linux-gnu; this one's.")] = "",
    cpu: Annotated[str, typer.Option(help="CPU to compile for, as LLVM names it; this one.")] = "",
    features: Annotated[str, typer.Option(help="Features on top of the CPU's: +name or -name, with commas.")] = "",
    target: TargetOption = Target.cpu,
    chip: ChipOption = "",
    ptx: PtxOption = "",
    passes: PassesOption = None,
    skip_fusion: SkipFusionOption = None,
    load: LoadOption = None,
    to: Annotated[Format | None, typer.Option(help="In the words of another compiler in place of a stage.")] = None,
    size: Annotated[
        list[str] | None, typer.Option(help="SYMBOL=NUMBER: the size of a symbol, for --to; others stay symbolic.")
    ] = None,
    output: OutputOption = None,
    where: Annotated[
        shared.Weights | None,
        typer.Option("--weights", help="Of a shared library: in it, in a file beside it, or given by its callers."),
    ] = None,
    params: Annotated[
        Path | None,
        typer.Option(help="Of a shared library of a .mlir file or artefact: .npz file with its parameters."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of a shared library: what the names of its functions in C begin with.")
    ] = None,
    cc: Annotated[str | None, typer.Option(help="C compiler that links a shared library; CC, or cc.")] = None,
) -> None:
    """Print a module as the compiler has it at one of its stages, or as StableHLO; or write it as a shared library."""
    from rlx_mlir import compiler, stages

    machine: dict[str, Option] = {
        "triple": triple,
        "cpu": cpu,
        "features": features,
        "passes": own_passes(passes, load),
        "skip_fusion": skipped_fusion(skip_fusion),
    }
    if stage is Stage.shared:
        others = {"inspect": inspect, "kernel": kernel, "target": target is not Target.cpu, "chip": chip, "ptx": ptx}
        refuse("a shared library", others)
        library = shared.Library(output, where or shared.Weights.auto, params, name, cc)
        shared.emit_shared(model, library, function, activations, context, chunk, machine)
        return
    refuse(f"stage {stage.value}", {"weights": where, "params": params, "name": name, "cc": cc})
    module, maxima = any_module(model, (function or Program.prefill).value, context, chunk)
    if to is not None:
        refuse("'--to'", {"inspect": inspect or None, "kernel": kernel, "passes": passes, "skip-fusion": skip_fusion})
        from rlx_mlir.exports.stablehlo import to_stablehlo

        sizes = one_size("size", size or [])
        write_text(to_stablehlo(module.bind(sizes) if sizes else module), output)
        return
    refuse("a stage", {"size": size})
    show = stages.inspect if inspect else compiler.emit
    if kernel is not None:
        if inspect:
            raise OptionError("'--kernel' chooses code, which '--inspect' doesn't show: leave one of them out")
        machine["kernel"] = kernel
    chosen = activations_of(module, activations, target)
    machine |= {"target": target.value, "chip": chip, "ptx": ptx}
    write_text(show(module, stage.value, activations=chosen, maxima=maxima, **machine), output)


@app.command(
    epilog=example(
        "rlx report smollm2",
        "rlx report model.gguf --function decode --target nvptx --chip sm_90a",
        "rlx report graph.mlir --json",
        "rlx report gemma3 --ranges f16",
    )
)
def report(
    model: ModuleArgument,
    function: Annotated[Program, typer.Option(help="Which module of a model.")] = Program.prefill,
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    target: TargetOption = Target.cpu,
    chip: ChipOption = "",
    ranges: Annotated[
        str, typer.Option(metavar="TYPE", help="Also which values may be beyond an element type, such as f16.")
    ] = "",
    assert_clean: Annotated[
        bool, typer.Option("--assert-clean", help="Exit with 1 where a pattern looked at operations and declined.")
    ] = False,
    skip_fusion: SkipFusionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what the compiler joined, what it nearly did and why not; and how each kernel got its code."""
    from rlx_mlir.compiler import compile
    from rlx_mlir.runtime.artifact import Artifact
    from rlx_mlir.runtime.dispatch import dispatch_report

    module, maxima, weights = module_and_weights(model, function.value, context, chunk)
    bounds = module.range_report(params=weights(), dtype=ranges) if ranges else None
    skipped = skipped_fusion(skip_fusion)
    way = activations_of(module, activations, target)
    fusion = module.fusion_report(activations=way, skip_fusion=skipped)
    if not as_json:
        typer.echo(str(fusion))
    compiled: Any = compile(module, activations=way, maxima=maxima, target=target.value, chip=chip, skip_fusion=skipped)
    dispatch = dispatch_report(compiled) if isinstance(compiled, Artifact) else compiled.dispatch_report()
    if as_json:
        found = {"fusion": fusion.to_dict(), "dispatch": dispatch.to_dict()}
        print_json(found if bounds is None else {**found, "ranges": bounds.to_dict()})
    else:
        typer.echo(f"\n{dispatch}")
        if bounds is not None:
            typer.echo(f"\n{bounds}")
    if assert_clean:
        fusion.assert_clean()


@app.command(epilog=example("rlx ops", "rlx ops norm", "rlx ops --json"))
def ops(
    only: Annotated[str, typer.Argument(help="A part of the names of those that are wanted; all by default.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the operations of MIR: what they stand for elsewhere, and what computes them on CPUs and GPUs."""
    from rlx_mlir.stages import table
    from rlx_mlir.tools import ops as operations

    rows = []
    with progress() as say:
        for name in operations.matching(only):
            if say is not None:
                say(f"compiling the example of {name}")
            rows.append(operations.row(name))
    if as_json:
        print_json([each.to_dict() for each in rows])
        return
    typer.echo("\n".join(table(operations.HEAD, [operations.cells(each) for each in rows])))


@app.command(epilog=example("rlx models"))
def models(
    verify: Annotated[
        bool, typer.Option("--verify", help="Read those that are here again, and compare their SHA-256.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the models that are known by name; with --verify exit with 1 where a file isn't what it should be."""
    from rlx_mlir.errors import DownloadError
    from rlx_mlir.models import hub

    if verify:
        checked = hub.verify()
        if as_json:
            print_json([{**vars(each), "path": str(each.path), "right": each.right} for each in checked])
        else:
            for each in checked:
                typer.echo(f"{each.name:<10} {'right' if each.right else f'WRONG: {each.found}'}  {each.path}")
        if not all(each.right for each in checked):
            raise typer.Exit(1)
        return
    rows: list[dict[str, Json]] = []
    for name, source in sorted(hub.KNOWN.items()):
        try:
            place: str | None = str(hub.resolve(name, download=False))
        except DownloadError:
            place = None
        rows.append({"name": name, "file": source.filename, "bytes": source.size, "path": place})
    for name, folder in sorted(hub.ENCODERS.items()):
        try:
            place = str(hub.resolve_folder(name, download=False))
        except DownloadError:
            place = None
        rows.append({"name": name, "file": f"{folder.name}/", "bytes": folder.size, "path": place})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        place = row["path"] or "not here yet; fetched when it is used"
        typer.echo(f"{row['name']:<10} {row['bytes'] / 1e6:>6.0f} MB  {row['file']}\n{'':<10} {place}")


def main() -> None:
    """Runs `rlx` on the command line's arguments and exits with its status."""
    app(prog_name="rlx")


if __name__ == "__main__":
    main()
