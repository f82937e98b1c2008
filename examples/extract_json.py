# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a text says, as JSON of a given schema: the model can write nothing else. Needs the package llguidance.

Usage:

    python examples/extract_json.py "Ada Lovelace was born in London in 1815."
    python examples/extract_json.py --file letter.txt --schema schema.json --model model.gguf --json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

import rlx_mlir as rlx

#: Arrays and texts have bounds, so that a small model comes to an end.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "place": {"type": "string", "maxLength": 40},
        "year": {"type": "integer", "minimum": 0, "maximum": 2100},
    },
    "required": ["name", "place", "year"],
    "additionalProperties": False,
}
TEXT = "Ada Lovelace was born in London in 1815."


def question(text: str, schema: dict[str, Any]) -> list[dict[str, str]]:
    """Messages that ask for what a text says."""
    names = ", ".join(schema.get("properties", {}))
    return [{"role": "user", "content": f"Text: {text}\nWrite JSON with what the text says: {names}."}]


def main() -> None:
    """Prints what the model finds in a text."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", nargs="?", default=TEXT, help="where from; a sentence by default")
    parser.add_argument("--file", type=Path, help="a file with the text")
    parser.add_argument("--schema", type=Path, help="a file with a JSON schema; name, place and year by default")
    parser.add_argument("--model", default="smollm2", help="a .gguf file with a chat template, or a known name")
    parser.add_argument("--max-tokens", type=int, default=200, help="of the JSON")
    parser.add_argument("--json", action="store_true", help="print one JSON object: value, text, why it ended")
    arguments = parser.parse_args()
    if importlib.util.find_spec("llguidance") is None:
        sys.exit("extract_json.py needs the package llguidance: pip install 'rlx-mlir[structured]'")

    schema = SCHEMA if arguments.schema is None else json.loads(arguments.schema.read_text(encoding="utf-8"))
    text = arguments.text if arguments.file is None else arguments.file.read_text(encoding="utf-8")
    console = Console(stderr=True)
    with console.status("loading the model") as status:
        model = rlx.load_model(arguments.model, progress=status.update)
    generation = model.generate(
        question(text, schema),
        greedy=True,
        max_tokens=arguments.max_tokens,
        response_format={"type": "json_schema", "json_schema": {"schema": schema}},
    )
    with console.status("reading the text"):
        written = generation.read()
    if generation.finish_reason != "stop":  # then the text isn't complete
        sys.exit(f"the JSON isn't complete ({generation.finish_reason}): {written!r}; allow more --max-tokens")
    value = json.loads(written)
    print(json.dumps({"value": value, "text": written, "ids": generation.ids} if arguments.json else value, indent=2))


if __name__ == "__main__":
    main()
