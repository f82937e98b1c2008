# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the commands of `rlx` share: options, progress, output."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rlx_mlir.activations import way_of
from rlx_mlir.errors import InputError, did_you_mean, reason_of
from rlx_mlir.paths import check_place, write_output
from rlx_mlir.tools.modules import is_module_file, read_module

if TYPE_CHECKING:
    import numpy as np

    from rlx_mlir.frontends.model_file import ModelFile
    from rlx_mlir.hir import GraphModule
    from rlx_mlir.models.config import ModelConfig
    from rlx_mlir.models.encoder_config import EncoderConfig


#: Lines that say how far something is, where stderr isn't a terminal.
_LINES = 20


def example(*lines: str) -> str:
    """Examples below a command's help; the marks keep their line breaks."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  {line}" for line in lines)])


class OptionError(InputError):
    """Options whose values can't be, or that don't go together: exit status 2, as of other wrong command lines."""


class Commands(TyperGroup):
    """A group of commands; one that isn't there is an error of one line, with what it may have been meant to be."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = did_you_mean(name, self.list_commands(ctx))
            typer.echo(f"rlx: there is no command '{name}'{near or f'; see {ctx.command_path} --help'}", err=True)
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)


class Stage(str, enum.Enum):
    """Stages that `emit` can show."""

    hir = "hir"
    mir = "mir"
    kernels = "kernels"
    linalg = "linalg"
    lir = "lir"
    llvm = "llvm"
    asm = "asm"
    gpu = "gpu"
    nvvm = "nvvm"
    ptx = "ptx"
    host = "host"
    shared = "shared"


class Format(str, enum.Enum):
    """What other compilers read that `emit` can write."""

    stablehlo = "stablehlo"


class Target(str, enum.Enum):
    """What code is for."""

    cpu = "cpu"
    nvptx = "nvptx"
    cuda = "cuda"


class Cubin(str, enum.Enum):
    """Whether there is machine code beside PTX."""

    auto = "auto"
    always = "always"
    never = "never"


class Program(str, enum.Enum):
    """Modules of a model."""

    prefill = "prefill"
    decode = "decode"


class Activations(str, enum.Enum):
    """How activations meet quantised weights."""

    auto = "auto"
    int8 = "int8"
    int16 = "int16"
    exact = "exact"


class Device(str, enum.Enum):
    """What runs a model."""

    cpu = "cpu"
    cuda = "cuda"


class Nonfinite(str, enum.Enum):
    """What is done about weights that are NaN or infinite."""

    refuse = "refuse"
    zero = "zero"


@contextmanager
def option(name: str) -> Iterator[None]:
    """What is wrong with a value that is read here is wrong with the command line."""
    try:
        yield
    except InputError as error:
        raise OptionError(f"'--{name}': {error}") from None


def _cache_type(text: str | None) -> str | None:
    """An option's text, where it says types of cached keys and values."""
    from rlx_mlir.models.caches import kinds

    with option("kv-cache"):
        if text is not None:
            kinds(text)
    return text


ModelArgument = Annotated[
    str, typer.Argument(help="A .gguf file, a folder, a bundle, or the name of a known model (see `rlx models`).")
]
NonfiniteOption = Annotated[
    Nonfinite | None,
    typer.Option(
        help="Weights that are NaN or infinite: say where the first is (usual), or read them as 0.", show_default=False
    ),
]
ModuleArgument = Annotated[
    str,
    typer.Argument(
        help="A .gguf file, a folder, a bundle, the name of a known model, a .mlir or .onnx file, or file.py:name."
    ),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Threads; all that the process may use by default.")]
ActivationsOption = Annotated[
    Activations, typer.Option(help="int8, int16: rounds them to 8 or 15 bits; exact: as f32; auto: int16 on CPUs.")
]
CacheTypeOption = Annotated[
    str | None,
    typer.Option(
        "--kv-cache",
        help="Type of cached keys and values: f32 (usual), f16, bf16, q8_0, q4_0; or one of each, such as q8_0/q4_0.",
        callback=_cache_type,
        show_default=False,
    ),
]
DeviceOption = Annotated[Device, typer.Option("--device", help="cuda: an NVIDIA GPU of this machine.")]
ContextOption = Annotated[
    int | None, typer.Option(min=1, help="Positions; by default the model's own, but at most 2048.", show_default=False)
]
ChunkOption = Annotated[int, typer.Option(min=1, help="Prompt tokens that are processed at once.")]
LoadedChunkOption = Annotated[
    int | None,
    typer.Option("--chunk", min=1, help="Prompt tokens that are processed at once; usually 512.", show_default=False),
]
CpuOption = Annotated[
    str,
    typer.Option(help="CPU to compile for, as LLVM names it, this one's by default; of a bundle, which of its levels."),
]
TargetOption = Annotated[
    Target, typer.Option(help="nvptx: for NVIDIA GPUs, which need not be there; cuda: for that of this machine.")
]
ChipOption = Annotated[
    str, typer.Option(help="GPU to compile for, e.g. sm_80; sm_90 by default, that of this machine for cuda.")
]
PtxOption = Annotated[str, typer.Option(help="Version of PTX, e.g. 8.6; the least that knows the chip.")]
CubinOption = Annotated[
    Cubin, typer.Option(help="Machine code beside PTX; auto: for target nvptx, where a ptxas is found.")
]
PassesOption = Annotated[
    list[str] | None,
    typer.Option("--pass", help="A pipeline of your own beside a pass of the compiler's: after:rlx-fuse=my-pass."),
]
SkipFusionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--skip-fusion", help="A pass that joins operations and isn't run, e.g. mir-fuse-swiglu; all: none is."
    ),
]
LoadOption = Annotated[
    list[Path] | None, typer.Option("--load", help="Python file that registers passes or operations; it is run.")
]
QuantizeOption = Annotated[
    str | None,
    typer.Option(
        "--quantize", help="Quantise matrices of f32, f16 and bf16 to this type, such as q4_k.", show_default=False
    ),
]
LoraOption = Annotated[
    Path | None,
    typer.Option("--lora", help="Folder with an adapter, of `rlx finetune` or PEFT.", show_default=False),
]
NoPreparedCacheOption = Annotated[
    bool, typer.Option("--no-prepared-cache", help="Neither keep prepared weights for the next start nor use them.")
]
OutputOption = Annotated[Path | None, typer.Option("-o", "--output", help="File to write, in place of stdout.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def own_passes(passes: list[str] | None, load: list[Path] | None) -> dict[str, str]:
    """What `compile` takes as `passes`, of the words after `--pass`; files after `--load` are run first."""
    from rlx_mlir.rewriting.plugins import load_passes

    for path in load or ():
        load_passes(path)
    found: dict[str, str] = {}
    for word in passes or ():
        place, equals, pipeline = word.partition("=")
        if not equals:
            raise OptionError(f"'--pass' expects PLACE=PIPELINE, such as after:rlx-fuse=my-pass, but got '{word}'")
        found[place] = f"{found[place]},{pipeline}" if place in found else pipeline
    return found


def skipped_fusion(names: list[str] | None) -> bool | tuple[str, ...]:
    """What `compile` takes as `skip_fusion`, of the words after `--skip-fusion`."""
    return "all" in names or tuple(names) if names else ()


def activations_of(module: GraphModule, chosen: Activations, target: Target = Target.cpu) -> str:
    """How activations are computed; text of kernels has it in their operations, so there the option says nothing."""
    return way_of(chosen.value, target.value) if module.stage in ("hir", "mir") else Activations.exact.value


def opened(model: str) -> tuple[ModelFile, ModelConfig]:
    """The file of a model, or its folder, and its configuration."""
    from rlx_mlir.models.config import ModelConfig
    from rlx_mlir.models.opening import open_model

    file = open_model(model)
    return file, ModelConfig.from_gguf(file)


def configuration(model: str, context: int | None) -> tuple[ModelConfig, int]:
    """The configuration of a model, and the positions to compile it for."""
    from rlx_mlir.models.config import check_context

    _, config = opened(model)
    return config, check_context(config, context)


def any_module(model: str, program: str, context: int | None, chunk: int) -> tuple[GraphModule, dict[str, int]]:
    """A module in a file, or of a model, and the largest sizes of its symbolic dimensions where they are known."""
    return module_and_weights(model, program, context, chunk)[:2]


def module_and_weights(
    model: str, program: str, context: int | None, chunk: int
) -> tuple[GraphModule, dict[str, int], Callable[[], dict[str, np.ndarray]]]:
    """The same, and what gives the parameters by name, as `weights` does: a file of a module is read once for both."""
    if is_module_file(model):
        own = read_module(model)
        return own.module, {}, lambda: dict(own.params)
    found = encoder_module(model) if is_encoder(model) else model_module(model, program, context, chunk)
    return *found, lambda: weights(model, context)


def model_module(model: str, program: str, context: int | None, chunk: int) -> tuple[GraphModule, dict[str, int]]:
    """The graph of a model's module, and the largest sizes of its symbolic dimensions."""
    from rlx_mlir.models import decoder
    from rlx_mlir.models.programs import maxima

    config, positions = configuration(model, context)
    return decoder.build(config, program), maxima(config, program, context=positions, chunk=min(chunk, positions))


def weights(model: str, context: int | None) -> dict[str, np.ndarray]:
    """The parameters of a model's modules, by name; none of IR as text or an encoder's folder."""
    from rlx_mlir.models import decoder
    from rlx_mlir.models.config import check_context

    if is_module_file(model):
        return dict(read_module(model).params)
    if is_encoder(model):
        return {}
    file, config = opened(model)
    return decoder.parameters(config, file, check_context(config, context))


def is_encoder(model: str) -> bool:
    """Whether a name or a path is that of an encoder."""
    from rlx_mlir.models.hub import ENCODERS, is_encoder_folder

    path = Path(model)
    return model.lower() in ENCODERS or (path.is_dir() and is_encoder_folder(path))


def encoder_module(model: str) -> tuple[GraphModule, dict[str, int]]:
    """The graph of an encoder's module, and the largest sizes of its symbolic dimensions."""
    from rlx_mlir.models import embedding, encoder

    config, _ = _opened_encoder(model)
    return encoder.build(config), embedding.maxima(config, embedding.BATCH)


def encoder_weights(model: str) -> dict[str, np.ndarray]:
    """The parameters of an encoder's module, by name."""
    from rlx_mlir.models import encoder

    return encoder.parameters(*_opened_encoder(model))


def _opened_encoder(model: str) -> tuple[EncoderConfig, Any]:
    """The configuration of an encoder, and its weights."""
    from rlx_mlir.models import embedding
    from rlx_mlir.models.encoder_config import EncoderConfig
    from rlx_mlir.models.hub import resolve_folder

    folder = resolve_folder(model)
    opened = embedding.open_weights(folder)
    return EncoderConfig.from_folder(folder, opened), opened


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Errors of the file system are the caller's, who named the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{target} cannot be written: {reason_of(error)}") from None


def check_output(target: Path | None) -> None:
    """Raises InputError where a file couldn't be written, before what is to be written in it takes long to make."""
    if target is None or (target.exists() and not target.is_dir() and os.access(target, os.W_OK)):
        return
    with writing(target):
        check_place(target)


def write_text(text: str, output: Path | None) -> None:
    """Prints a command's text, or writes it to the file that was named; it ends with one line break."""
    text = text.rstrip("\n") + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    with writing(output):
        write_output(output, text)


@contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """A line on stderr that says what is being done; nothing where that isn't a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda text: status.update(text)


@contextmanager
def counted(what: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """Shows on stderr how many of something are done, with some figures: a bar on a terminal, else some lines.

    Args:
        what: such as ``step``.
        total, done: how many there are, and were done before.
    """
    if not sys.stderr.isatty():
        every = max(1, total // _LINES)

        def line(number: int, figures: str) -> None:
            if number % every == 0 or number == total:
                typer.echo(f"{what} {number} of {total}: {figures}", err=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda number, figures: bar.update(task, completed=number, description=figures)


@contextmanager
def fraction_done(what: str) -> Iterator[Callable[[str, int, int], None] | None]:
    """Shows on stderr how many bytes of how many are written, and of which part: a bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda part, done, total: bar.update(task, completed=done, total=total, description=part)


def message_of(error: BaseException) -> str:
    """What an error says, without the line of Python that called: that is the command line's own."""
    return str(error).removeprefix(f"{getattr(error, 'place', '')}: ")


def positive_numbers(option: str, text: str) -> list[int]:
    """Numbers with commas between; InputError names the option where they aren't positive numbers."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise OptionError(f"'--{option}' expects positive numbers with commas between, but got '{text}'")
    return [int(word) for word in words]


def refuse(what: str, given: Mapping[str, object]) -> None:
    """Raises InputError for options that are for something else."""
    for option, value in given.items():
        if value:
            raise OptionError(f"'--{option}' says nothing about {what}: leave it out")


def by_symbol(option: str, texts: list[str]) -> dict[str, list[int]]:
    """The numbers of each symbol of `symbol=number,number`."""
    found: dict[str, list[int]] = {}
    for text in texts:
        symbol, _, numbers = text.partition("=")
        if not symbol or not (listed := positive_numbers(option, numbers)):
            raise OptionError(f"'--{option}' expects symbol=number, but got '{text}'")
        found[symbol] = listed
    return found


def one_size(option: str, texts: list[str]) -> dict[str, int]:
    """The number of each symbol of `symbol=number`."""
    found = by_symbol(option, texts)
    for symbol, listed in found.items():
        if len(listed) > 1:
            raise OptionError(f"'--{option}' expects one number for '{symbol}', but got {listed}")
    return {symbol: listed[0] for symbol, listed in found.items()}


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a .npz file by name."""
    import numpy as np

    try:
        with np.load(path) as file:
            return dict(file) if isinstance(file, np.lib.npyio.NpzFile) else {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a .npz file: {reason_of(error)}") from None
