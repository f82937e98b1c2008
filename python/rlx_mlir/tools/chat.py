# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx chat`: a conversation in the terminal."""

from __future__ import annotations

import contextlib
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.errors import InputError, RlxError, did_you_mean
from rlx_mlir.tools.loading import Loading, takes_options
from rlx_mlir.tools.options import progress, writing

if TYPE_CHECKING:
    from rich.console import Console

    from rlx_mlir.checks import Option
    from rlx_mlir.models.generation import Stats
    from rlx_mlir.models.model import Model

_HELP = """\
/undo         forget the last question and its answer
/reset        begin anew
/save FILE    write the conversation as a line of JSON, which `rlx finetune` reads, too
/stats        times of the last answer
/help         this list
/exit         end, as Ctrl-D does
Ctrl-C stops an answer; a line that ends with \\ goes on in the next one."""


@takes_options
def chat(
    loading: Loading,
    system: Annotated[str | None, typer.Option(help="What the model is told first.", show_default=False)] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 1024,
    temperature: Annotated[float, typer.Option(min=0.0, help="Above 1 more varied, below 1 less.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Choose among so many tokens; 0 for all.")] = 40,
    top_p: Annotated[
        float, typer.Option(min=0, max=1, help="Choose among the tokens that make up this probability.")
    ] = 0.95,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeats the same choices.", show_default=False)] = None,
) -> None:
    """Talk with a model in the terminal; /help shows what can be said beside."""
    from rich.console import Console

    with progress() as say:
        model = loading.load(say)
    model.chat_template  # noqa: B018 - a model without one is an error now
    options = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    Conversation(model, Console(highlight=False, soft_wrap=True), system, options).run(_reader())


class Conversation:
    """Questions and answers so far, and what is done with a line.

    Each answer is generated from all of the conversation, whose beginning the model finds processed (`Model.prefixes`).

    Attributes:
        messages: of the chat template.
    """

    def __init__(self, model: Model, console: Console, system: str | None, options: dict[str, Option]) -> None:
        self.messages: list[dict[str, str]] = []
        self._model = model
        self._console = console
        self._system = system
        self._options = options
        self._stats: Stats | None = None
        self._reset()

    def run(self, read: Callable[[str], str]) -> None:
        """Reads lines and answers them, until the input ends."""
        self._console.print("[dim]/help shows what can be said beside[/dim]")
        while True:
            try:
                line = self._read(read)
            except EOFError:
                return
            except KeyboardInterrupt:  # drops the line
                self._console.print()
                continue
            if line in ("/exit", "/quit"):
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._answer(line)

    def _read(self, read: Callable[[str], str]) -> str:
        lines = [read("> ")]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(read("… "))
        return "\n".join(lines).strip()

    def _answer(self, question: str) -> None:
        """Answers a question. Where that fails, it wasn't asked; where it is interrupted, the answer ends there."""
        self.messages.append({"role": "user", "content": question})
        try:
            generation = self._model.generate(self.messages, **self._options)
        except RlxError as error:
            self.messages.pop()
            self._console.print(f"rlx: {error}", style="red", markup=False)
            return
        thought = 0  # characters that were shown
        try:
            for piece in generation:
                if thoughts := generation.reasoning[thought:]:
                    thought += len(thoughts)
                    self._console.print(visible(thoughts), end="", markup=False, style="dim")
                elif thought and piece and not generation.text.removesuffix(piece):
                    self._console.print("\n")
                self._console.print(visible(piece), end="", markup=False)
                self._console.file.flush()
        except KeyboardInterrupt:
            self._console.print(" …", end="")
        except RlxError as error:
            self._console.print(f"\nrlx: {error}", style="red", markup=False)
        generation.close()
        self._console.print()
        self._stats = generation.stats
        if generation.finish_reason in ("length", "context"):
            what = "--max-tokens are used up" if generation.finish_reason == "length" else "the context is full: /reset"
            self._console.print(f"[dim]({what})[/dim]")
        self.messages.append({"role": "assistant", "content": generation.text})

    def _command(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        known: dict[str, Callable[[str], None]] = {
            "/undo": lambda _: self._undo(),
            "/reset": lambda _: self._reset(),
            "/save": self._save,
            "/stats": lambda _: self._show_stats(),
            "/help": lambda _: self._console.print(_HELP, markup=False),
        }
        if name not in known:
            near = did_you_mean(name, known)
            self._console.print(f"there is no {name}{near or '; see /help'}", markup=False)
            return
        try:
            known[name](argument.strip())
        except InputError as error:
            self._console.print(f"rlx: {error}", style="red", markup=False)

    def _undo(self) -> None:
        if self.messages and self.messages[-1]["role"] == "assistant":
            question = self.messages[-2]["content"]
            del self.messages[-2:]
            self._console.print(f"forgotten: {question}", style="dim", markup=False)
        else:
            self._console.print("[dim]nothing was said[/dim]")

    def _reset(self) -> None:
        self.messages[:] = [] if self._system is None else [{"role": "system", "content": self._system}]

    def _save(self, argument: str) -> None:
        if not argument:
            raise InputError("/save needs the name of a file")
        path = Path(argument).expanduser()
        with writing(path):
            path.write_text(json.dumps({"messages": self.messages}, ensure_ascii=False) + "\n", encoding="utf-8")
        self._console.print(f"{len(self.messages)} messages in {path}", style="dim", markup=False)

    def _show_stats(self) -> None:
        if self._stats is None:
            self._console.print("[dim]nothing was answered[/dim]")
            return
        own = self._stats
        self._console.print(
            f"prompt {own.prompt_tokens} tokens, {own.prompt_rate:.1f}/s, and {own.reused_tokens} that were there; "
            f"answer {own.generated_tokens} tokens, {own.decode_rate:.1f}/s; "
            f"{own.prompt_tokens + own.reused_tokens + own.generated_tokens} of {self._model.context} positions",
            markup=False,
        )


def visible(text: str) -> str:
    """A text without characters that do something to a terminal: what a model writes may be anything."""
    return "".join(own for own in text if own in "\n\t" or unicodedata.category(own) != "Cc")


def _reader() -> Callable[[str], str]:
    """What reads lines: with editing and history in a terminal, elsewhere without a prompt."""
    if not sys.stdin.isatty():

        def read(_prompt: str) -> str:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")

        return read
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - `input` edits lines with it
    return input
