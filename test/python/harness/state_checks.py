# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What holds of sessions of every model whose layers have states, or read keys and values of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session


def states_of(session: Session) -> dict[str, np.ndarray]:
    """The states behind the session's tokens, by name."""
    session._settle()
    return session.states.copied()


def same_states(one: Session, two: Session) -> None:
    for (name, own), other in zip(states_of(one).items(), states_of(two).values(), strict=True):
        np.testing.assert_array_equal(own, other, err_msg=name)


def cut_in_parts(model: Model, ids: Sequence[int], cuts: Sequence[int]) -> tuple[Session, Session]:
    """A prompt as a whole and in parts: the same logits."""
    whole, parts, at = model.session(), model.session(), 0
    whole.feed(ids[: sum(cuts)])
    for count in cuts:
        parts.feed(ids[at : at + count])
        at += count
    np.testing.assert_array_equal(whole.logits, parts.logits)
    return whole, parts


def taken_at_once(model: Model, ids: Sequence[int], count: int) -> tuple[Session, Session]:
    """So many tokens behind five, one by one and at once: the same logits."""
    one, many = model.session(), model.session()
    for session in (one, many):
        session.feed(ids[:5])
    rows = [one.step(token) for token in ids[5 : 5 + count]]
    np.testing.assert_array_equal(many.extend(ids[5 : 5 + count]), np.stack(rows))
    return one, many


def gone_back(model: Model, ids: Sequence[int], kept: int) -> None:
    """Of eight tokens at once some are kept: the same states and logits as where only these came."""
    session, single = model.session(), model.session()
    session.feed(ids[:5])
    single.feed(ids[:5])
    session.extend(ids[5:13])
    session.truncate(5 + kept)
    for token in ids[5 : 5 + kept]:
        single.step(token)
    assert session.tokens == single.tokens
    same_states(session, single)
    np.testing.assert_array_equal(session.step(9), single.step(9))


def gone_on_behind_its_prompt(model: Model, ids: Sequence[int]) -> None:
    """What begins with a prompt and its answer is processed from there, to the same text; what begins alike is not."""
    options: dict[str, Any] = {"greedy": True, "max_tokens": 5, "ignore_eos": True}
    model.forget()
    first = model.generate(ids[:10], **options)
    first.read()
    longer = [*ids[:10], *first.ids, 8, 9]
    found = model.generate(longer, **options)
    text = found.read()
    assert (found.stats.reused_tokens, found.stats.prompt_tokens) == (10, 7)
    model.forget()
    again = model.generate(longer, **options)
    assert (again.read(), again.ids) == (text, found.ids)
    assert again.stats.reused_tokens == 0
    other = model.generate([*ids[:4], 5, 6, 7], **options)  # begins alike, but no states are of four tokens
    other.read()
    assert other.stats.reused_tokens == 0
