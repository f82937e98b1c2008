# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx eval`: perplexity of a text, and divergence from another model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.files import Json
from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    CacheTypeOption,
    Device,
    DeviceOption,
    JsonOption,
    LoadedChunkOption,
    LoraOption,
    ModelArgument,
    OptionError,
    ThreadsOption,
    opened,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from rlx_mlir.checks import Option
    from rlx_mlir.finetuning.evaluation import Evaluation
    from rlx_mlir.finetuning.layers import Comparison
    from rlx_mlir.models.model import Model


def evaluate(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="A text file in UTF-8; - reads stdin.")],
    context: Annotated[
        int | None, typer.Option(min=3, help="Tokens of a window; 512, or the model's own.", show_default=False)
    ] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Tokens between windows; half of a window.", show_default=False)
    ] = None,
    halves: Annotated[
        bool,
        typer.Option(
            "--halves",
            help="Windows with nothing in common, whose second halves count: perplexities are those of llama.cpp's.",
        ),
    ] = False,
    lora: LoraOption = None,
    activations: ActivationsOption = Activations.auto,
    kv_cache: CacheTypeOption = None,
    against: Annotated[
        str, typer.Option(help="Model whose probabilities count as right; the same one, where another option says how.")
    ] = "",
    against_lora: Annotated[
        Path | None, typer.Option(help="Folder with an adapter of that model.", show_default=False)
    ] = None,
    against_activations: Annotated[
        Activations | None, typer.Option(help="How that model computes; exact, where it is compared.")
    ] = None,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Also each token's loss, and its divergence where there is one.")
    ] = False,
    layers: Annotated[
        bool, typer.Option("--layers", help="Also where layers part from those of --against: the first that differs.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(min=0, help="By which parts of layers may differ, by the size of what they give.")
    ] = 0.05,
    threads: ThreadsOption = None,
    chunk: LoadedChunkOption = None,
    device: DeviceOption = Device.cpu,
    as_json: JsonOption = False,
) -> None:
    """Perplexity of a text, in windows; with --against… also the Kullback-Leibler divergence from another model."""
    from rlx_mlir.files import read_text
    from rlx_mlir.finetuning.evaluation import evaluate as find
    from rlx_mlir.finetuning.layers import compare_layers
    from rlx_mlir.models.loading import load_model

    if layers and not against:
        raise OptionError("'--layers' compares the layers of two models: '--against' names the other one")
    content = sys.stdin.read() if text == "-" else read_text(Path(text))
    with progress() as say:
        size = _context(model, context)
        common: dict[str, Option] = {"threads": threads, "chunk": chunk, "progress": say}
        common |= {"kv_dtype": kv_cache, "target": device.value}
        own = load_model(model, activations=activations.value, lora=lora, context=_loaded(model, size), **common)
        other = None
        if against or against_lora is not None or against_activations is not None:
            way = Activations.exact if against_activations is None else against_activations
            positions = _loaded(against or model, size)
            other = load_model(against or model, activations=way.value, lora=against_lora, context=positions, **common)
        found = find(own, content, context=size, stride=stride, halves=halves, against=other, progress=say)
        compared = None
        if layers and other is not None:
            ids = own.tokenize(content)
            compared = compare_layers(own.file, other.file, ids, tolerance=tolerance, threads=threads, progress=say)
    if as_json:
        rows: dict[str, object] = {"per_token": _rows(own, found)} if per_token else {}
        rows |= {"layers": compared.to_dict()} if compared is not None else {}
        print_json({"model": model, "context": size, **found.to_dict(), **rows})
        return
    if per_token:
        for row in _rows(own, found):
            numbers = [f"{row[name]:.4f}" for name in ("loss", "divergence") if name in row]
            typer.echo(f"{' '.join(f'{number:>9}' for number in numbers)}  {row['text']!r}")
    typer.echo("\n".join(_summary(found)))
    if compared is not None:
        typer.echo("\n".join(_layers(compared)))


def _context(model: str, context: int | None) -> int:
    """Tokens of a window: what is asked for, else 512 where the model has so many."""
    from rlx_mlir.models.config import check_context

    return check_context(opened(model)[1], context, 512)


def _loaded(model: str, size: int) -> int | None:
    """The context to load a model with for windows of so many tokens: a bundle has its own."""
    from rlx_mlir.models.bundle import bundle_at

    return size if bundle_at(model) is None else None


def _rows(model: Model, found: Evaluation) -> list[dict[str, object]]:
    """What was found of each token."""
    rows: list[dict[str, object]] = []
    for place, (index, loss) in enumerate(zip(found.ids, found.losses.tolist(), strict=True)):
        row = {"id": index, "text": model.detokenize([index], special=True), "loss": loss}
        if found.divergences is not None:
            row["divergence"] = float(found.divergences[place])
        rows.append(row)
    return rows


def _summary(found: Evaluation) -> list[str]:
    """The figures as lines."""
    error = f" ± {found.loss_error:.4f}" if len(found.ids) > 1 else ""
    lines = [f"{len(found.ids)} tokens: perplexity {found.perplexity:.4f}, loss {found.loss:.4f}{error}"]
    at: Json = found.to_dict().get("divergence")
    if at is not None:
        lines.append(
            f"divergence: mean {at['mean']:.3e}, median {at['median']:.3e}, 99 % below {at['p99']:.3e}, "
            f"largest {at['max']:.3e}; the same token is likeliest at {at['same_likeliest']:.2%}"
        )
    return lines


def _layers(compared: Comparison) -> list[str]:
    """What each layer differs by, and the first part over the tolerance."""
    lines = [f"layers over {compared.tokens} tokens, difference by size:"]
    lines += [f"  {part.name:<12} {part.error:9.2e}" for part in compared.parts if part.is_block]
    first = compared.first
    if first is None:
        return [*lines, f"no part differs by more than {compared.tolerance:g}"]
    return [
        *lines,
        f"the first part that differs by more than {compared.tolerance:g} is {first.name}: {first.error:.2e}",
    ]
