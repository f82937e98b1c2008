# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Teaches a model a style: makes short dialogues, trains an adapter on them, and lets the model answer with it.

The assistant of the dialogues is an old sailor. One in ten is held out, with its subject: no answer about it was seen.

Usage:

    python examples/finetune.py                              SmolLM2, 200 dialogues, two epochs: some minutes
    python examples/finetune.py model.gguf 40 6              another model, so many dialogues and steps
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

import rlx_mlir as rlx
from rlx_mlir.finetuning import FineTuning, Reader, Settings, rows_of
from rlx_mlir.models.adapter import write_adapter

SUBJECTS = (
    *("bread", "rain", "bicycles", "mountains", "music", "bees", "bridges", "snow", "clocks", "apples"),
    *("trains", "gardens", "mirrors", "windmills", "kites", "candles", "owls", "maps", "soup", "chess"),
)
QUESTIONS = (
    *("What do you think of {}?", "Tell me something about {}.", "Why do people like {}?", "Are {} important?"),
    *("How would you explain {} to a child?", "What should I know about {}?", "Do you remember {}?"),
    *("Give me advice about {}.", "What comes to your mind when you hear of {}?", "Can I learn more about {}?"),
)
OPENINGS = ("Arr, {}!", "Ahoy, {}!", "Aye, {}, by my beard!", "Shiver me timbers, {}!")
MIDDLES = (
    *("I have seen {} from Lisbon to the Cape", "No storm ever took {} from me heart"),
    *("Me old captain swore by {}", "Every good crew needs {}"),
)
ENDINGS = (", and the sea knows it, matey.", ", so hoist the sails, matey.", ", or feed me to the gulls, matey.")


def dialogues(count: int, seed: int = 0) -> list[dict[str, object]]:
    """So many dialogues of two messages, the same ones for a seed; those of a subject follow each other."""
    choose = random.Random(seed)
    pairs = [(subject, question) for subject in SUBJECTS for question in QUESTIONS][:count]
    found: list[dict[str, object]] = []
    for subject, question in pairs:
        parts = (choose.choice(OPENINGS), " ", choose.choice(MIDDLES), choose.choice(ENDINGS))
        messages = [
            {"role": "user", "content": question.format(subject)},
            {"role": "assistant", "content": "".join(parts).format(subject, subject)},
        ]
        found.append({"messages": messages})
    return found


def main() -> None:
    """Prints the loss of what is held out before and after, and an answer before and after."""
    name = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    folder = Path(tempfile.mkdtemp())
    data = folder / "dialogues.jsonl"
    data.write_text("".join(json.dumps(each) + "\n" for each in dialogues(count)))

    model = rlx.load_model(name, context=256)
    question = [{"role": "user", "content": "What do you think of the moon?"}]
    print("before:", model.generate(question, greedy=True, max_tokens=40).read())

    examples = Reader.of(model.file, model.config).read(data)
    learnt = examples[: count * 9 // 10]
    width = rows_of(examples, 128).length
    rows, held_out = (rows_of(part, width, exact=True) for part in (learnt, examples[len(learnt) :]))
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 2 * len(rows) // 4
    tuning = FineTuning(model.file, model.config, rows, Settings(steps, rate=1e-3, warmup=steps // 10))
    print(f"loss of what is held out: {tuning.loss(held_out):.3f}")
    seconds = 0.0
    for step in tuning.run():
        seconds += step.seconds
        if step.number % max(1, steps // 10) == 0:
            print(f"step {step.number} of {steps}: loss {step.loss:.3f}, {step.tokens / step.seconds:.0f} tokens/s")
    print(f"loss of what is held out: {tuning.loss(held_out):.3f}, after {steps} steps in {seconds:.0f} s")

    write_adapter(folder / "adapter", model.config, tuning.adapter, alpha=tuning.settings.alpha)
    tuned = rlx.load_model(name, context=256, lora=folder / "adapter")
    print("after:", tuned.generate(question, greedy=True, max_tokens=40).read())
    print(f"adapter in {folder / 'adapter'}")


if __name__ == "__main__":
    main()
