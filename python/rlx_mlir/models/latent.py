# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention whose keys and values are made of one vector of a token, the latent, and what its cache holds.

A head's key has a part that doesn't rotate, and one that does, which all heads share; its value is as wide as it likes:

    c = norm(x Wc)            the latent of a token x, of `rank` elements
    p = rotate(x Wp)          the shared part of keys
    k_h = [c Uk_h, p]         v_h = c Uv_h
    q_h = [a_h, b_h]          of x Wq, or of norm(x Wa) Wb where queries are made of a short vector, too

Scores and results don't need k_h and v_h:

    <q_h, k_h> = <[a_h Uk_h^T, rotate(b_h)], [c, p]>        sum_j w_j v_hj = (sum_j w_j c_j) Uv_h

so the cache has [c, p] of each token alone, and attention is that of many heads of queries over one of keys, whose
values are its keys: what is summed of p is left out.
"""

from __future__ import annotations

from typing import NamedTuple


class Latent(NamedTuple):
    """Widths, in elements.

    Attributes:
        rank: of the latent.
        query_rank: of the short vector that queries are made of; 0 where they are made of the token itself.
        plain: of the part of a head's queries and keys that doesn't rotate.
        rotated: of the part that does; even.
        value: of a head's values.
    """

    rank: int
    query_rank: int
    plain: int
    rotated: int
    value: int

    @property
    def query(self) -> int:
        """Of a head's queries, as they are made."""
        return self.plain + self.rotated

    @property
    def row(self) -> int:
        """Of what is cached of a token."""
        return self.rank + self.rotated

    def sizes(self, heads: int) -> dict[str, int]:
        """Sizes by the names that tensor rules use, of a model of so many heads."""
        return {
            "heads": heads,
            "rank": self.rank,
            "latent_row": self.row,
            "query_rank": self.query_rank,
            "latent_queries": heads * self.query,
            "plain": self.plain,
            "value": self.value,
            "latent_values": heads * self.value,
        }


__all__ = ["Latent"]
