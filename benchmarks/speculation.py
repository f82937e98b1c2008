# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens per second of generation with tokens proposed ahead, over those without, in turns.

    python benchmarks/speculation.py --rounds 5
    python benchmarks/speculation.py --model gemma3 --draft smollm2
    python benchmarks/speculation.py --model qwen3.5-0.8b.gguf --draft mtp

The texts: `copy` asks for a passage word by word, `edit` for a list of functions with one name changed, `open` for a
story. Lookup proposes what followed the same tokens before; a draft model, which needs the same vocabulary, what it
would choose; `mtp` is the model's own layer that predicts further tokens, where it has one. The texts are the same with
and without, which is checked. `accepted` is the share of proposed tokens that were chosen.
"""

from __future__ import annotations

import argparse

from harness import Series, report, versions

import rlx_mlir as rlx

PASSAGE = (
    "The lighthouse stood on a rock two miles from the harbour. Its keeper, a quiet man called Osric, wrote down the "
    "weather every hour: wind from the west, fog until noon, rain after four. On Sundays he rowed to the village for "
    "bread, oil and letters, and on the way back he let the boat drift for a while and listened to the bell buoy."
)
CODE = "".join(
    f"def area_{name}(a, b):\n    # The area of a {name}.\n    return a * b * {factor}\n\n"
    for name, factor in (("square", 1), ("triangle", 0.5), ("ellipse", 3.14), ("rhombus", 0.5), ("rectangle", 1))
)
PROMPTS = {
    "copy": f"Repeat this passage word by word.\n\n{PASSAGE}",
    "edit": f"Write this code again, with area_ellipse renamed to oval_area.\n\n```python\n{CODE}```",
    "open": "Write a story about a fox that learns to read.",
}


def measure(
    model: rlx.Model, drafts: dict[str, str | rlx.Model | None], prompt: str, tokens: int, rounds: int
) -> dict[str, tuple[Series, float]]:
    """Seconds per generated token behind the first by the name of the draft, and the share that was accepted."""
    seconds: dict[str, list[float]] = {name: [] for name in drafts}
    shares: dict[str, float] = {}
    text = ""
    for _ in range(rounds):
        for name, draft in drafts.items():
            generation = model.generate(prompt, chat=True, greedy=True, max_tokens=tokens, ignore_eos=True, draft=draft)
            found = generation.read()
            if text and found != text:
                raise SystemExit(f"the text with {name} differs: {found!r} for {text!r}")
            text, stats = found, generation.stats
            seconds[name].append(1 / stats.decode_rate)
            shares[name] = stats.accepted_tokens / max(stats.drafted_tokens, 1)
    return {name: (Series(own), shares[name]) for name, own in seconds.items()}


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--draft", help="a model that proposes tokens, beside lookup, or mtp")
    parser.add_argument("--activations", default="auto")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = rlx.load_model(options.model, activations=options.activations, threads=options.threads)
    drafts: dict[str, str | rlx.Model | None] = {"none": None, "lookup": "lookup"}
    if options.draft == "mtp":
        drafts["mtp"] = "mtp"
    elif options.draft:
        drafts[options.draft] = rlx.load_model(options.draft, threads=options.threads)
    rows: list[dict[str, object]] = []
    for name, prompt in PROMPTS.items():
        found = measure(model, drafts, prompt, options.tokens, options.rounds)
        plain = found["none"][0]
        for draft, (own, share) in found.items():
            speed = {"tokens/s": 1 / own.median, "spread": f"{own.spread:.0%}"}
            gain = {"over none": f"{plain.median / own.median:.2f}", "accepted": f"{share:.0%}"}
            rows.append({"text": name, "draft": draft, **speed, **gain})
    report("speculation", rows, versions(["rlx-mlir", "numpy"]), options.json)


if __name__ == "__main__":
    main()
