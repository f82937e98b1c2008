# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Guides made of others: a text behind what is thought, see `channels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import InputError, shortened
from .channels import Division
from .structured import Guide, guide_of, lark_guide
from .tokenizer import Tokenizer


class Paths:
    """A guide to text of one of several forms, each of them guides one behind another.

    A token belongs to all forms that it fits, until later tokens rule them out. A part but the last one of a form ends
    where it is finished.
    """

    def __init__(self, paths: Sequence[Sequence[Guide]]) -> None:
        """Takes the forms, each of one guide or more, which belong to this one from here on."""
        self._paths = [list(path) for path in paths]

    @property
    def is_finished(self) -> bool:
        return all(len(path) == 1 and path[0].is_finished for path in self._paths)

    def mask(self, size: int) -> npt.NDArray[np.bool_]:
        allowed = self._paths[0][0].mask(size)
        for path in self._paths[1:]:
            allowed = allowed | path[0].mask(size)
        return allowed

    def advance(self, token: int) -> None:
        fitting = [path for path in self._paths if _advances(path[0], token)]
        if not fitting:
            raise InputError(f"a token must be one that the form of the text allows next, but is {shortened(token)}")
        for path in fitting:
            if len(path) > 1 and path[0].is_finished:
                del path[0]
        self._paths = fitting

    def clone(self) -> Paths:
        return Paths([[guide.clone() for guide in path] for path in self._paths])


def _advances(guide: Guide, token: int) -> bool:
    """Goes on behind a token, where it fits."""
    try:
        guide.advance(token)
    except InputError:
        return False
    return True


def guide_behind(
    division: Division | None, response_format: Mapping[str, object] | None, tokenizer: Tokenizer
) -> Guide | None:
    """The guide to an answer whose text has a form, behind what is thought before; None where any text will do.

    A Lark grammar that names the control tokens of channels, or the tag that closes a thought, is of the whole answer.

    Args:
        division: of the answer.
        response_format: see `guide_of`, which says what is raised.
        tokenizer: of the model.
    """
    guide = guide_of(response_format, tokenizer)
    if guide is None or response_format is None or division is None or not division.heads:
        return guide
    grammar = response_format.get("grammar")
    if isinstance(grammar, str) and any(word in grammar for word in division.words):
        return guide
    paths: list[list[Guide]] = [[lark_guide(tokenizer, head), guide.clone()] for head in division.heads]
    return Paths(paths if division.needs_head else [*paths, [guide]])


__all__ = ["Paths", "guide_behind"]
