# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A conversation in which each question gets several answers: forks of one session, of which one goes on.

The conversation is processed once, whatever the number of answers: a fork copies its keys and values.

Usage:

    python examples/chat_with_forks.py                                        questions from the terminal
    python examples/chat_with_forks.py "Name a colour." "Why that one?"       these questions; the first answer goes on
    python examples/chat_with_forks.py "Name a colour." --answers 5 --json    for programs
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.prompt import IntPrompt, Prompt

import rlx_mlir as rlx


def answers(session: rlx.Session, count: int, *, seed: int, max_tokens: int) -> Iterator[rlx.Session]:
    """Forks of a session, each with an answer of its own behind the question; the likeliest one comes first."""
    for number in range(count):
        fork = session.fork()
        fork.generate(greedy=number == 0, seed=seed + number, max_tokens=max_tokens).read()
        yield fork


def asked(arguments: argparse.Namespace) -> Iterator[str]:
    """The questions: those of the command line, or those of the terminal until an empty one."""
    if arguments.questions:
        yield from arguments.questions
        return
    while question := Prompt.ask("[bold]You[/bold]", default="", show_default=False):
        yield question


def main() -> None:
    """Answers each question, and goes on with the answer that is chosen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("questions", nargs="*", help="questions; without one, they are asked for")
    parser.add_argument("--model", default="smollm2", help="a .gguf file, or a known name")
    parser.add_argument("--answers", type=int, default=3, help="to each question")
    parser.add_argument("--max-tokens", type=int, default=60, help="of an answer")
    parser.add_argument("--seed", type=int, default=0, help="repeats the same answers")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    model = rlx.load_model(arguments.model)
    session = model.session()
    console = Console(stderr=arguments.json)
    turns = []
    for question in asked(arguments):
        session.feed([{"role": "user", "content": question}])
        found, texts, start = [], [], len(session)
        with console.status("answering") as status:
            for fork in answers(session, arguments.answers, seed=arguments.seed, max_tokens=arguments.max_tokens):
                found.append(fork)
                texts.append(model.detokenize(fork.tokens[start:]).strip())
                status.update(f"{len(found)} of {arguments.answers} answers")
        chosen = 0
        if not arguments.json:
            for number, text in enumerate(texts, 1):
                console.print(f"{number}. {text}", markup=False)
        if not arguments.questions and len(texts) > 1:
            chosen = IntPrompt.ask("Go on with", choices=[str(n) for n in range(1, len(texts) + 1)], default=1) - 1
        session = found[chosen]
        turns.append({"question": question, "answers": texts, "chosen": chosen, "tokens": len(session)})
    if arguments.json:
        json.dump(turns, sys.stdout, indent=2, ensure_ascii=False)
        print()


if __name__ == "__main__":
    main()
