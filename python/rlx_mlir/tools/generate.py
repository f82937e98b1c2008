# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx generate`: continues a prompt, or a session that was saved."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.tools.choosing import Choosing, logprob_rows
from rlx_mlir.tools.loading import LoadingToGenerate, takes_options
from rlx_mlir.tools.options import JsonOption, OptionError, print_json, progress, refuse, writing

if TYPE_CHECKING:
    from rlx_mlir.models.generation import Generation, Stats
    from rlx_mlir.models.model import Model
    from rlx_mlir.models.session import Session

#: What `--draft` calls drafts without another model.
_OWN_DRAFTS = ("lookup", "mtp")


@takes_options
def generate(
    loading: LoadingToGenerate,
    choosing: Choosing,
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from stdin.")],
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the chat template.")] = False,
    draft: Annotated[
        str,
        typer.Option(
            metavar="lookup|mtp|MODEL",
            help="What proposes tokens ahead, for the same text: what came before; the model's own layer for that, "
            "where it has one; or a smaller model.",
        ),
    ] = "",
    session: Annotated[
        Path | None,
        typer.Option(help="File of --save-session: the prompt comes behind what it holds.", show_default=False),
    ] = None,
    save_session: Annotated[
        Path | None, typer.Option(help="File for tokens, keys and values, to go on with.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Show times, rates, and the limits of the machine, on stderr.")
    ] = False,
) -> None:
    """Continue a prompt, or answer it with --chat; text appears as it is generated."""
    if choosing.logprobs and not as_json:
        raise OptionError("'--logprobs' are shown by '--json': give both, or leave them out")
    if session is not None or save_session is not None:
        refuse("a session", {"draft": draft})
    text = sys.stdin.read() if prompt == "-" else prompt
    options = choosing.options()
    with progress() as say:
        model = loading.load(say)
        drafting = _draft(draft, loading, say)
    if session is None and save_session is None:
        own, generation = None, model.generate(text, chat=chat, draft=drafting, **options)
    else:
        own = model.session() if session is None else model.restore(session)
        own.feed(text, chat=chat)
        generation = own.generate(**options)
    if as_json:
        generation.read()
    else:
        _print(generation)
    if own is not None and save_session is not None:
        _save(own, save_session)
    if as_json:
        print_json(_found(model, generation, choosing, stats))
    elif stats:
        _print_stats(model, generation)


def _draft(draft: str, loading: LoadingToGenerate, say: Callable[[str], None] | None) -> str | Model | None:
    """What `Model.generate` takes as `draft`; a model is loaded as the other one is, without its adapter."""
    if not draft or draft in _OWN_DRAFTS:
        return draft or None
    return dataclasses.replace(loading, model=draft, lora=None).load(say)


def _print(generation: Generation) -> None:
    try:
        for piece in generation:
            typer.echo(piece, nl=False)
            sys.stdout.flush()
    finally:
        typer.echo()
        generation.close()


def _save(session: Session, path: Path) -> None:
    with writing(path):
        session.save(path)


def _found(model: Model, generation: Generation, choosing: Choosing, stats: bool) -> dict[str, object]:
    """What was generated, as JSON can write it."""
    found: dict[str, object] = {
        "text": generation.text,
        **({"reasoning": generation.reasoning} if generation.reasoning else {}),
        "ids": generation.ids,
        "prompt_tokens": len(generation.prompt_ids),
        "finish_reason": generation.finish_reason,
        "stats": generation.stats.to_dict(),
        "threads": {"prompt": model.threads, "decode": model.decode_threads},
    }
    if choosing.logprobs:
        found["logprobs"] = logprob_rows(model, generation.logprobs)
    if stats:
        from rlx_mlir.measure.summary import summarize

        found["roofline"] = summarize(model, generation.stats).to_dict()
    return found


def _print_stats(model: Model, generation: Generation) -> None:
    from rlx_mlir.measure.summary import summarize

    done = generation.stats
    typer.echo(
        f"prompt {done.prompt_tokens} tokens, {done.prompt_rate:.1f}/s; "
        f"generated {done.generated_tokens} tokens, {done.decode_rate:.1f}/s ({generation.finish_reason}); "
        f"{_drafted(done)}"
        f"threads {model.threads}, to decode {model.decode_threads}; "
        f"load {done.load_seconds:.2f} s, compile {done.compile_seconds:.2f} s, "
        f"weights {done.prepared}{f' in {done.prepared_bytes / 1e6:.0f} MB' * bool(done.prepared_bytes)}, "
        f"peak memory {done.peak_rss / 1e6:.0f} MB",
        err=True,
    )
    typer.echo(str(summarize(model, done)), err=True)


def _drafted(stats: Stats) -> str:
    """How well a draft did."""
    if not stats.drafted_tokens:
        return ""
    share = stats.accepted_tokens / stats.drafted_tokens
    return f"drafted {stats.drafted_tokens} tokens, accepted {stats.accepted_tokens} ({share:.0%}); "
