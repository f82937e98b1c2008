# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values of prompts that were processed, by their tokens: a tree whose branches share what they begin with."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .. import checks

Rows = Mapping[str, np.ndarray]
"""Keys and values of some tokens by the names of the caches, each [tokens, width]."""


@dataclass
class _Node:
    """A run of tokens behind those of its parent.

    Attributes:
        tokens: the run; only the root's is empty.
        rows: their keys and values.
        children: what follows, by the first token.
        used: when it was last read or written, by the tree's clock.
    """

    tokens: tuple[int, ...] = ()
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    parent: _Node | None = None
    children: dict[int, _Node] = field(default_factory=dict)
    used: int = 0

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in self.rows.values())


class PrefixCache:
    """Keeps keys and values of prompts, so that another one that begins alike needn't be processed from its start.

    A tree: tokens that several prompts begin with are kept once. Where more than ``limit`` bytes would be kept, the
    branches go that weren't used for the longest time. Several threads may use it.

    Attributes:
        limit: bytes that are kept at most.
    """

    def __init__(self, limit: int) -> None:
        """Raises InputError where ``limit`` is no number of bytes."""
        self.limit = checks.whole("limit", limit)
        self._root = _Node()
        self._size = 0
        self._clock = 0
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"<PrefixCache of {self.size} bytes, {self.tokens} tokens; {self.limit} bytes at most>"

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size

    @property
    def tokens(self) -> int:
        """Tokens that are kept."""
        with self._turn:
            return sum(len(node.tokens) for node in self._nodes())

    def find(self, ids: Sequence[int], most: int | None = None) -> tuple[int, list[Rows]]:
        """How many of ``ids``, from the first on, are kept, but not more than ``most``; and their keys and values.

        These are in one part or several, which follow each other; they are to be read, not written.
        """
        limit = len(ids) if most is None else min(most, len(ids))
        parts: list[Rows] = []
        with self._turn:
            self._clock += 1
            node, at = self._root, 0
            while at < limit:
                child = node.children.get(ids[at])
                if child is None:
                    break
                count = common(child.tokens, ids, at, limit)
                child.used = self._clock
                parts.append({name: array[:count] for name, array in child.rows.items()})
                at += count
                if count < len(child.tokens):
                    break
                node = child
        return at, parts

    def add(self, ids: Sequence[int], rows: Rows) -> None:
        """Keeps copies of the keys and values of a prompt: of what isn't kept already, and fits.

        Args:
            ids: the prompt's first tokens.
            rows: theirs.
        """
        if not ids or not rows:
            return
        width = sum(array[:1].nbytes for array in rows.values())
        most = min(len(ids), self.limit // width) if width else 0
        with self._turn:
            self._clock += 1
            node, at = self._root, 0
            while at < most:
                child = node.children.get(ids[at])
                if child is None:
                    self._append(node, ids, rows, at, most)
                    break
                count = common(child.tokens, ids, at, most)
                child.used = self._clock
                if count < len(child.tokens) and at + count < most:
                    child = self._split(child, count)
                elif count < len(child.tokens):
                    break
                node, at = child, at + count
            self._shrink()

    def clear(self) -> None:
        """Forgets everything."""
        with self._turn:
            self._root, self._size = _Node(), 0

    def _append(self, node: _Node, ids: Sequence[int], rows: Rows, start: int, stop: int) -> None:
        own = {name: array[start:stop].copy() for name, array in rows.items()}
        child = _Node(tuple(ids[start:stop]), own, node, used=self._clock)
        node.children[child.tokens[0]] = child
        self._size += child.size

    def _split(self, node: _Node, count: int) -> _Node:
        """Cuts a node after ``count`` tokens; gives the first part. Each part has memory of its own, to be freed."""
        parent = node.parent
        assert parent is not None
        first = _Node(
            node.tokens[:count],
            {name: array[:count].copy() for name, array in node.rows.items()},
            parent,
            {node.tokens[count]: node},
            node.used,
        )
        parent.children[first.tokens[0]] = first
        node.tokens, node.parent = node.tokens[count:], first
        node.rows = {name: array[count:].copy() for name, array in node.rows.items()}
        return first

    def _shrink(self) -> None:
        """Drops leaves until what is left is within the limit, those first that weren't used for the longest time."""
        while self._size > self.limit:
            leaf = min((node for node in self._nodes() if not node.children), key=lambda node: node.used)
            assert leaf.parent is not None
            del leaf.parent.children[leaf.tokens[0]]
            self._size -= leaf.size

    def _nodes(self) -> Iterator[_Node]:
        """All but the root."""
        left = list(self._root.children.values())
        while left:
            node = left.pop()
            yield node
            left.extend(node.children.values())


def common(run: Sequence[int], ids: Sequence[int], start: int, stop: int) -> int:
    """How many tokens of a run are those of ``ids`` from ``start`` on, before ``stop``."""
    most = min(len(run), stop - start)
    return next((i for i in range(most) if run[i] != ids[start + i]), most)


__all__ = ["PrefixCache", "Rows", "common"]
