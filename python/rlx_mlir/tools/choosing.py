# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options by which commands that generate text say how its tokens are chosen, and what they tell of these."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.files import Json
from rlx_mlir.tools.options import OptionError

if TYPE_CHECKING:
    from rlx_mlir.checks import Option
    from rlx_mlir.models.choosing import TokenLogprob
    from rlx_mlir.models.core import Core


@dataclasses.dataclass(frozen=True)
class Choosing:
    """What is generated, and how tokens are chosen; each field is an option of the command line."""

    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate at most.")] = 256
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most likely token.")] = False
    temperature: Annotated[float, typer.Option(min=0.0, help="Above 1 more varied, below 1 less.")] = 0.8
    top_k: Annotated[int, typer.Option(min=0, help="Choose among so many tokens; 0 for all.")] = 40
    top_p: Annotated[
        float, typer.Option(min=0, max=1, help="Choose among the tokens that make up this probability.")
    ] = 0.95
    min_p: Annotated[
        float, typer.Option(help="Choose among tokens at least so likely, beside the likeliest; 0 for all.")
    ] = 0.0
    seed: Annotated[int | None, typer.Option(min=0, help="Repeats the same choices.", show_default=False)] = None
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")] = None
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1, tokens of prompt and text become less likely; 1 for none.")
    ] = 1.0
    presence_penalty: Annotated[
        float, typer.Option(help="Is subtracted from logits of tokens that were generated.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, typer.Option(help="Is subtracted from these as often as they were generated.")
    ] = 0.0
    logprobs: Annotated[
        int, typer.Option(min=0, help="With JSON, each token's log-probability, and those of so many likeliest.")
    ] = 0
    json_schema: Annotated[
        str, typer.Option(metavar="FILE|TEXT", help="The text is JSON of this schema; needs llguidance.")
    ] = ""
    grammar: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The text is of this grammar, in Lark; needs llguidance.", show_default=False
        ),
    ] = None
    regex: Annotated[
        str, typer.Option(metavar="TEXT", help="The text matches this regular expression; needs llguidance.")
    ] = ""

    def options(self) -> dict[str, Option]:
        """Options of `Model.generate`.

        Raises InputError where several forms of the text are asked for; ModelFileError, BudgetError for files that
        can't be read.
        """
        found = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("json_schema", "grammar", "regex")
        }
        return {**found, "stop": self.stop or (), "response_format": self._form()}

    def _form(self) -> dict[str, object] | None:
        """What the text has to be."""
        given = {"json-schema": self.json_schema, "grammar": self.grammar, "regex": self.regex}
        names = [f"'--{name}'" for name, value in given.items() if value]
        if len(names) > 1:
            raise OptionError(f"{' and '.join(names)} say of what form the text is: leave all but one out")
        if self.json_schema:
            return {"type": "json_schema", "json_schema": {"schema": _schema(self.json_schema)}}
        if self.grammar is not None:
            from rlx_mlir.files import read_text

            return {"type": "lark", "grammar": read_text(self.grammar, budget="grammar_bytes")}
        return {"type": "regex", "pattern": self.regex} if self.regex else None


def _schema(given: str) -> Json:
    """The value of JSON that is a text, which begins with a brace, or in a file."""
    from rlx_mlir.files import read_text
    from rlx_mlir.frontends.documents import parse_json

    if given.lstrip().startswith("{"):
        return parse_json(given.encode("utf-8", "surrogatepass"), "'--json-schema'")
    return parse_json(read_text(given, budget="grammar_bytes").encode(), given)


def logprob_rows(model: Core, found: Sequence[TokenLogprob]) -> list[dict[str, object]]:
    """Log-probabilities as JSON can write them, with the text of each token."""

    def row(index: int, logprob: float) -> dict[str, object]:
        text = model.tokenizer.token_bytes(index, special=True).decode("utf-8", "replace")
        return {"id": index, "text": text, "logprob": logprob}

    return [{**row(own.id, own.logprob), "top": [row(*each) for each in own.top]} for own in found]
