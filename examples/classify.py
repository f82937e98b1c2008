# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many texts, each put into one of several classes, with probabilities: one token of each, several texts at a time.

All prompts begin with the same examples, which are processed once. A class stands for the first token of its name: one
of these is chosen, and probabilities are those that the model gives to them, relative to each other.

Usage:

    python examples/classify.py                                      some sentences: praise or complaint
    python examples/classify.py texts.txt --examples known.txt       a text in each line; CLASS: TEXT in each line
    python examples/classify.py texts.txt --model model.gguf --json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import rlx_mlir as rlx

EXAMPLES = """\
praise: What a lovely day we had!
complaint: The train was late again.
complaint: This phone is useless.
praise: Thank you, the room was perfect.
complaint: I will never come back.
praise: She sings beautifully.
"""
TEXTS = """\
I love this little machine.
It broke after two days.
The best bread in town!
Nobody answered my letters.
My children laughed all evening.
The soup was cold, and so was the waiter.
"""
#: Of how many of the likeliest tokens probabilities are asked for; a class that isn't among them has 0.
LIKELIEST = 100


def classified(
    model: rlx.Model, texts: Sequence[str], examples: Sequence[tuple[str, str]], *, sequences: int, console: Console
) -> list[dict[str, Any]]:
    """The class of each text, and the probabilities of all classes."""
    classes = list(dict.fromkeys(name for name, _ in examples))
    tokens = {model.tokenizer.tokenize(f" {name}", bos=False, continued=True)[0]: name for name in classes}
    if len(tokens) < len(classes):
        sys.exit(f"names of classes must begin with different tokens, but are {', '.join(classes)}")
    start = "".join(f"Text: {text}\nClass: {name}\n\n" for name, text in examples)
    with Progress(console=console) as bar:
        task = bar.add_task("texts", total=len(texts))
        found = model.generate_many(
            [f"{start}Text: {text}\nClass:" for text in texts],
            sequences=sequences,
            on_done=lambda _: bar.advance(task),
            max_tokens=1,
            greedy=True,
            logit_bias=dict.fromkeys(tokens, 1000.0),  # nothing else is chosen; log-probabilities are without it
            logprobs=LIKELIEST,
        )
    rows = []
    for text, generation in zip(texts, found, strict=True):
        if generation.error is not None:
            raise generation.error
        (chosen,) = generation.logprobs
        likely = {tokens[index]: math.exp(logprob) for index, logprob in chosen.top if index in tokens}
        likely[tokens[chosen.id]] = math.exp(chosen.logprob)
        whole = sum(likely.values())
        shares = {name: likely.get(name, 0.0) / whole for name in classes}
        rows.append({"text": text, "class": tokens[chosen.id], "probabilities": shares})
    return rows


def main() -> None:
    """Prints a class for each text."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", nargs="?", type=Path, help="a file with a text in each line")
    parser.add_argument("--examples", type=Path, help="a file with CLASS: TEXT in each line")
    parser.add_argument("--model", default="smollm2", help="a .gguf file, or a known name")
    parser.add_argument("--sequences", type=int, default=8, help="texts that are worked on at a time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    known = EXAMPLES if arguments.examples is None else arguments.examples.read_text(encoding="utf-8")
    lines = TEXTS if arguments.texts is None else arguments.texts.read_text(encoding="utf-8")
    examples = [(name.strip(), text.strip()) for name, _, text in (line.partition(":") for line in known.splitlines())]
    console = Console(stderr=True)
    with console.status("loading the model") as status:
        model = rlx.load_model(arguments.model, progress=status.update)
    texts = [line.strip() for line in lines.splitlines() if line.strip()]
    rows = classified(model, texts, examples, sequences=arguments.sequences, console=console)
    if arguments.json:
        print(json.dumps({"texts": rows}, indent=2))
        return
    table = Table("class", "probability", "text")
    for row in rows:
        table.add_row(row["class"], f"{row['probabilities'][row['class']]:.0%}", row["text"])
    Console().print(table)


if __name__ == "__main__":
    main()
