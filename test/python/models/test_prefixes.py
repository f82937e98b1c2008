# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tree of keys and values of prompts, against a plain list of all prompts."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from rlx_mlir.errors import InputError
from rlx_mlir.models.prefixes import PrefixCache, Rows

WIDTH = 3


def rows_of(ids: list[int]) -> Rows:
    """Keys and values that say what they belong to: each depends on all tokens so far, as a model's do."""
    sums = np.cumsum(np.array(ids, np.float64) * np.arange(1, len(ids) + 1))
    return {"k": np.repeat(sums[:, None], WIDTH, 1).astype(np.float32), "v": -sums[:, None].astype(np.float64)}


BYTES = WIDTH * 4 + 8
"""Of a token."""


def check(cache: PrefixCache, ids: list[int], known: list[list[int]], most: int | None = None) -> int:
    """What is found of a prompt is a part of what was kept, and right; gives how many tokens."""
    count, parts = cache.find(ids, most)
    assert count <= min(len(ids), len(ids) if most is None else most)
    assert any(prompt[:count] == ids[:count] for prompt in known) or not count
    for name, expected in rows_of(ids).items():
        found = np.concatenate([part[name] for part in parts]) if parts else expected[:0]
        np.testing.assert_array_equal(found, expected[:count])
    return count


@pytest.mark.parametrize("seed", range(4))
def test_what_was_kept_is_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    cache, known = PrefixCache(1 << 30), list[list[int]]()
    for _ in range(200):
        ids = random.integers(0, 3, int(random.integers(1, 9))).tolist()
        expected = max((_common(ids, prompt) for prompt in known), default=0)
        assert check(cache, ids, known) == expected
        most = int(random.integers(0, len(ids) + 1))
        assert check(cache, ids, known, most) == min(expected, most)
        cache.add(ids, rows_of(ids))
        known.append(ids)
    distinct = {tuple(prompt[:size]) for prompt in known for size in range(1, len(prompt) + 1)}
    assert cache.tokens == len(distinct)
    assert cache.size == len(distinct) * BYTES


def _common(ids: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b), min(len(ids), len(other)))


def test_memory_stays_within_the_limit_and_old_branches_go() -> None:
    random = np.random.default_rng(5)
    cache, known = PrefixCache(40 * BYTES), list[list[int]]()
    for _ in range(300):
        ids = random.integers(0, 4, int(random.integers(1, 60))).tolist()
        cache.add(ids, rows_of(ids))
        known.append(ids)
        assert cache.size <= cache.limit
        assert cache.size == cache.tokens * BYTES
        check(cache, ids, known)
    cache.clear()
    assert (cache.size, cache.tokens, cache.find([1])) == (0, 0, (0, []))


def test_the_branch_that_was_used_last_stays() -> None:
    cache = PrefixCache(20 * BYTES)
    first, second, third = ([n, *range(10, 19)] for n in (1, 2, 3))
    cache.add(first, rows_of(first))
    cache.add(second, rows_of(second))
    cache.find(first)
    cache.add(third, rows_of(third))
    assert [cache.find(ids)[0] for ids in (first, second, third)] == [10, 0, 10]


def test_more_than_the_limit_is_kept_in_part() -> None:
    cache = PrefixCache(5 * BYTES)
    ids = list(range(9))
    cache.add(ids, rows_of(ids))
    assert check(cache, ids, [ids]) == 5
    nothing = PrefixCache(0)
    nothing.add(ids, rows_of(ids))
    assert nothing.find(ids) == (0, [])


def test_what_is_kept_is_a_copy() -> None:
    cache, ids = PrefixCache(1 << 20), [1, 2, 3]
    rows = {name: np.array(array) for name, array in rows_of(ids).items()}
    cache.add(ids, rows)
    for array in rows.values():
        array[...] = 7
    check(cache, ids, [ids])


def test_several_threads() -> None:
    cache, failed = PrefixCache(60 * BYTES), list[BaseException]()
    known = [np.random.default_rng(seed).integers(0, 3, 12).tolist() for seed in range(30)]

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            for _ in range(300):
                ids = known[int(random.integers(len(known)))]
                check(cache, ids, known)
                cache.add(ids, rows_of(ids))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert cache.size <= cache.limit


def test_a_limit_is_a_number_of_bytes() -> None:
    with pytest.raises(InputError, match="'limit' is a whole number of at least 0, but got -1"):
        PrefixCache(-1)
    assert "0 tokens; 5 bytes at most" in repr(PrefixCache(5))
