# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands `rlx finetune`, which trains an adapter of a model, and `rlx merge-lora`, which makes it part of one."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.errors import ExecutionError
from rlx_mlir.files import Json
from rlx_mlir.tools.options import (
    JsonOption,
    ModelArgument,
    OptionError,
    ThreadsOption,
    counted,
    opened,
    option,
    print_json,
    progress,
    writing,
)

if TYPE_CHECKING:
    from rlx_mlir.finetuning.data import Example, Rows
    from rlx_mlir.finetuning.tuning import FineTuning, Settings, Step
    from rlx_mlir.frontends.model_file import ModelFile
    from rlx_mlir.models.config import ModelConfig


@dataclass(frozen=True)
class _Data:
    """What is learnt from, and what is held out of it."""

    rows: Rows
    held_out: Rows | None


_DataArgument = Annotated[
    Path,
    typer.Argument(help="JSON lines: {messages: [{role, content}, …]}, {prompt, completion} or {text} in each."),
]
_FolderOption = Annotated[Path, typer.Option("-o", "--output", help="Folder for the adapter, in PEFT's layout.")]
_RankOption = Annotated[int, typer.Option("--lora", min=1, help="Rank of the adapter.")]
_AlphaOption = Annotated[
    float | None, typer.Option(help="What is added is multiplied by alpha / rank; twice the rank.")
]
_TargetsOption = Annotated[
    str, typer.Option(help="Products with an adapter: of q, k, v, o, gate, up, down, with commas; or all.")
]
_LengthOption = Annotated[
    int | None,
    typer.Option(min=2, help="Tokens of an example at most: 512, or the model's.", show_default=False),
]
_BatchOption = Annotated[int, typer.Option(min=1, help="Examples that are computed at once.")]
_AccumulateOption = Annotated[int, typer.Option(min=1, help="Batches of a step.")]
_EpochsOption = Annotated[
    float | None, typer.Option(help="How often the examples are gone through; 3 times.", show_default=False)
]
_StepsOption = Annotated[int | None, typer.Option(min=1, help="Steps, in place of epochs.", show_default=False)]
_LrOption = Annotated[float, typer.Option(min=0, help="Largest learning rate; it falls along half a cosine.")]
_WarmupOption = Annotated[
    int | None, typer.Option(min=0, help="Steps in which it rises; a twentieth of all.", show_default=False)
]
_WeightDecayOption = Annotated[float, typer.Option(min=0, help="Of AdamW.")]
_ClipNormOption = Annotated[float, typer.Option(min=0, help="Largest norm of all gradients together.")]
_SeedOption = Annotated[int, typer.Option(min=0, help="Repeats the same run, to the bit.")]
_PackOption = Annotated[
    bool, typer.Option("--pack", help="Put examples that don't see each other into rows of --length tokens.")
]
_EvaluationOption = Annotated[
    str,
    typer.Option(
        "--eval",
        metavar="FILE|FRACTION",
        help="Held-out examples, of a file or a part of the data: their loss is shown before and after.",
    ),
]
_CheckpointOption = Annotated[
    Path | None, typer.Option(help="File that is written on the way, to go on from.", show_default=False)
]
_SaveEveryOption = Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")]
_ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from --checkpoint, where it is there.")]
_BaseOption = Annotated[
    str, typer.Option(help="The model's name for transformers, which PEFT reads; that in the file by default.")
]
_MemoryOption = Annotated[
    int | None,
    typer.Option(min=1, help="MB that a step may take: layers are computed again for that.", show_default=False),
]


def finetune(
    model: ModelArgument,
    data: _DataArgument,
    output: _FolderOption,
    lora: _RankOption = 8,
    alpha: _AlphaOption = None,
    targets: _TargetsOption = "q,v",
    length: _LengthOption = None,
    batch: _BatchOption = 4,
    accumulate: _AccumulateOption = 1,
    epochs: _EpochsOption = None,
    steps: _StepsOption = None,
    lr: _LrOption = 2e-4,
    warmup: _WarmupOption = None,
    weight_decay: _WeightDecayOption = 0.0,
    clip_norm: _ClipNormOption = 1.0,
    seed: _SeedOption = 0,
    pack: _PackOption = False,
    evaluation: _EvaluationOption = "",
    checkpoint: _CheckpointOption = None,
    save_every: _SaveEveryOption = 50,
    resume: _ResumeOption = False,
    base: _BaseOption = "",
    memory: _MemoryOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a low-rank adapter (LoRA) of a model whose weights stay as they are, quantised.

    Only the assistant's turns of messages, or completions, are learnt. `rlx generate --lora FOLDER` uses the adapter,
    `rlx merge-lora` makes it part of a model.
    """
    from rlx_mlir.finetuning.tuning import Settings
    from rlx_mlir.models.adapter import products_of

    if resume and checkpoint is None:
        raise OptionError("'--resume' goes on from a file: '--checkpoint' names it")
    if steps is not None and epochs is not None:
        raise OptionError("'--steps' and '--epochs' say the same: leave one of them out")
    with option("targets"):
        chosen = products_of(targets)
    file, config = opened(model)
    read = _read(file, config, data, evaluation, length=_length(config, length), pack=pack, seed=seed)
    count = steps or _steps_of(epochs, len(read.rows), batch * accumulate)
    settings = Settings(
        steps=count,
        rank=lora,
        alpha=2.0 * lora if alpha is None else alpha,
        targets=chosen,
        batch=batch,
        accumulate=accumulate,
        rate=lr,
        warmup=count // 20 if warmup is None else warmup,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        seed=seed,
    )
    checkpoints = _Checkpoints(checkpoint, save_every, resume)
    limit = None if memory is None else memory * 10**6
    found = _run(_Task(file, config, read, settings), output, checkpoints, base, threads=threads, memory_limit=limit)
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(_summary(found)))
    before, after = (found["first_rows_loss"][when] for when in ("before", "after"))
    if after is not None and after > before:
        raise ExecutionError(
            f"the loss must fall, but that of the first step's rows rose from {before:.4f} to {after:.4f}: "
            f"'--lr' {lr:g} may be too large; the adapter in {output} is what there is now"
        )


@dataclass(frozen=True)
class _Task:
    """A model, what it learns from, and how."""

    file: ModelFile
    config: ModelConfig
    data: _Data
    settings: Settings


@dataclass(frozen=True)
class _Checkpoints:
    """The file of checkpoints, steps between them, and whether the run goes on from one that is there."""

    path: Path | None
    every: int
    resume: bool


def _run(
    task: _Task, output: Path, checkpoints: _Checkpoints, base: str, *, threads: int | None, memory_limit: int | None
) -> dict[str, Json]:
    """Trains an adapter and writes it; gives what is said of the run."""
    from rlx_mlir.finetuning.tuning import FineTuning
    from rlx_mlir.models.adapter import write_adapter

    rows, held_out = task.data.rows, task.data.held_out
    begin = time.perf_counter()
    with progress() as say:
        if say is not None:
            say("compiling a step")
        tuning = FineTuning(task.file, task.config, rows, task.settings, threads=threads, memory_limit=memory_limit)
        compiled = time.perf_counter() - begin
        if checkpoints.resume and checkpoints.path is not None and checkpoints.path.exists():
            tuning.restore(checkpoints.path)
        if say is not None and held_out is not None:
            say("computing the loss of what is held out")
        before = None if held_out is None else tuning.loss(held_out)
    with writing(output):  # before anything takes long
        output.mkdir(parents=True, exist_ok=True)
    again = f", {len(tuning.recomputed)} blocks computed again" if tuning.recomputed else ""
    typer.echo(f"a step takes {tuning.memory / 1e6:.0f} MB{again}", err=True)
    taken = _train(tuning, checkpoints)
    name = base or _base_of(task.file)
    with writing(output):
        write_adapter(output, task.config, tuning.adapter, alpha=task.settings.alpha, base=name)
    return {
        "adapter": str(output),
        "settings": asdict(task.settings),
        "rows": len(rows),
        "length": rows.length,
        "answer_tokens": rows.answers,
        "cut_examples": rows.cut,
        "held_out_rows": 0 if held_out is None else len(held_out),
        "first_rows_loss": _first_rows(tuning, taken),
        "held_out_loss": {"before": before, "after": None if held_out is None else tuning.loss(held_out)},
        "compile_seconds": compiled,
        "step_bytes": tuning.memory,
        "recomputed": list(tuning.recomputed),
        "steps": [asdict(step) for step in taken],
    }


def _length(config: ModelConfig, length: int | None) -> int:
    """Tokens of an example at most."""
    if length is None:
        return min(512, config.context)
    if length > config.context:
        raise OptionError(f"'--length' must be at most the model's context, {config.context}, but is {length}")
    return length


def _read(
    file: ModelFile, config: ModelConfig, data: Path, evaluation: str, *, length: int, pack: bool, seed: int
) -> _Data:
    """The rows of the data, and of what is held out, of one length."""
    from rlx_mlir.finetuning.data import Reader, rows_alike

    reader = Reader.of(file, config)
    examples = reader.read(data)
    held_out: list[Example] = []
    if evaluation:
        part = _fraction(evaluation)
        if part is None:
            held_out = reader.read(Path(evaluation))
        else:
            examples, held_out = _split(examples, part, seed)
    return _Data(*rows_alike(examples, held_out, length, pack=pack))


def _fraction(text: str) -> float | None:
    """A number between 0 and 1; None where it's something else, a file's name."""
    try:
        part = float(text)
    except ValueError:
        return None
    if not 0 < part < 1:
        raise OptionError(f"'--eval' is a file, or a part of the data between 0 and 1, but got {text}")
    return part


def _split(examples: list[Example], part: float, seed: int) -> tuple[list[Example], list[Example]]:
    """What is learnt from and what is held out, in the order of the data."""
    import numpy as np

    count = round(len(examples) * part)
    if not 0 < count < len(examples):
        raise OptionError(f"'--eval' {part:g} of {len(examples)} examples leaves nothing on one side")
    chosen = set(np.random.default_rng(seed).permutation(len(examples))[:count].tolist())
    kept = [example for number, example in enumerate(examples) if number not in chosen]
    return kept, [examples[number] for number in sorted(chosen)]


def _steps_of(epochs: float | None, rows: int, size: int) -> int:
    """The steps of so many epochs, of which each leaves out what fills no step."""
    number = 3.0 if epochs is None else epochs
    if not 0 < number < 1e6:
        raise OptionError(f"'--epochs' must be a positive number, but is {number:g}")
    return max(1, round(number * (rows // size)))


def _base_of(file: ModelFile) -> str | None:
    """The name at the hub of the model that a file is of, where the file has its address."""
    keys = ("general.repo_url", "general.source.repo_url", "general.base_model.0.repo_url")
    for address in (file.metadata.get(key) for key in keys):
        if isinstance(address, str) and address.startswith("https://huggingface.co/"):
            return address.removeprefix("https://huggingface.co/").strip("/")
    return None


def _train(tuning: FineTuning, checkpoints: _Checkpoints) -> list[Step]:
    """Takes the steps that are left, with checkpoints on the way and at the end."""
    taken: list[Step] = []
    path, last = checkpoints.path, tuning.settings.steps
    with counted("step", last, tuning.steps) as show:
        for step in tuning.run():
            taken.append(step)
            show(step.number, _figures(step))
            if path is not None and (step.number % checkpoints.every == 0 or step.number == last):
                with writing(path):
                    tuning.save(path)
    return taken


def _first_rows(tuning: FineTuning, taken: list[Step]) -> dict[str, float | None]:
    """The loss of the rows of the first step that was taken, then and now: two steps' losses are of different rows.

    It isn't computed again where the last step's is smaller anyway.
    """
    if not taken:
        return {"before": None, "after": None}
    rose = taken[-1].loss > taken[0].loss
    return {"before": taken[0].loss, "after": tuning.loss_of_step(taken[0].number) if rose else None}


def _figures(step: Step) -> str:
    rate = step.tokens / step.seconds
    return f"loss {step.loss:.4f}, {rate:.0f} tokens/s, {step.peak_rss / 1e9:.2f} GB"


def _summary(found: dict[str, Json]) -> list[str]:
    """What was done, as lines."""
    lines = [
        f"{found['rows']} rows of {found['length']} tokens, {found['answer_tokens']} tokens of answers"
        + (f"; {found['cut_examples']} examples are cut" if found["cut_examples"] else "")
    ]
    taken = found["steps"]
    if taken:
        seconds, tokens = (sum(step[name] for step in taken) for name in ("seconds", "tokens"))
        lines.append(
            f"{len(taken)} of {found['settings']['steps']} steps in {seconds:.1f} s, {tokens / seconds:.0f} tokens/s, "
            f"peak memory {taken[-1]['peak_rss'] / 1e6:.0f} MB, compiled in {found['compile_seconds']:.1f} s"
        )
        lines.append(f"loss {taken[0]['loss']:.4f} at step {taken[0]['number']}, {taken[-1]['loss']:.4f} at the last")
    losses = found["held_out_loss"]
    if losses["before"] is not None:
        lines.append(
            f"held out, {found['held_out_rows']} rows: loss {losses['before']:.4f} before, {losses['after']:.4f} after"
        )
    return [*lines, f"adapter in {found['adapter']}"]


def merge_lora(
    model: ModelArgument,
    adapter: Annotated[Path, typer.Argument(help="Folder with an adapter, of `rlx finetune` or PEFT.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The new .gguf file.")],
    type: Annotated[
        str | None,
        typer.Option(help="Type of the weights that change, such as q8_0 or f16; their own.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model with an adapter's products added to its weights, which are quantised again."""
    from rlx_mlir.finetuning.merging import merge_adapter
    from rlx_mlir.models.hub import resolve

    with progress() as say, writing(output):
        merged = merge_adapter(resolve(model), adapter, output, type=type, progress=say)
    if as_json:
        print_json({"model": str(output), "weights": [asdict(own) for own in merged]})
        return
    change, error = (sum(getattr(own, name) ** 2 for own in merged) ** 0.5 for name in ("change", "error"))
    typer.echo(
        f"{len(merged)} weights changed, of {', '.join(sorted({own.type for own in merged}))}; rounding them is "
        f"{error / change:.2f} times as large as the change\n{output}"
        if change
        else f"{len(merged)} weights are as they were: the adapter adds nothing\n{output}"
    )
