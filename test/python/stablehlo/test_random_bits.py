# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random bits of StableHLO are XLA's: numbers that it gave, and, where JAX is installed, those that it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir.errors import StablehloUnsupportedError

#: A counter whose low word, and whose 64 bits, overflow.
STATES = ((1, 2), (0x123456789ABCDEF0, 0xFEDCBA98FFFFFFFE), (0x923456789ABCDEF0, 0xFFFFFFFFFFFFFFFE))


def module(algorithm: str, shape: tuple[int, ...], word: str, state: str = "tensor<2xui64>") -> str:
    kind = f"tensor<{''.join(f'{size}x' for size in shape)}{word}>"
    return (
        '"builtin.module"() ({\n'
        f'  "func.func"() <{{function_type = (tensor<2x2xui32>) -> (tensor<2x2xui32>, {kind}), '
        'sym_name = "main"}> ({\n'
        "  ^bb0(%a: tensor<2x2xui32>):\n"
        f'    %0 = "stablehlo.bitcast_convert"(%a) : (tensor<2x2xui32>) -> {state}\n'
        f'    %1:2 = "stablehlo.rng_bit_generator"(%0) <{{rng_algorithm = #stablehlo<rng_algorithm {algorithm}>}}> : '
        f"({state}) -> ({state}, {kind})\n"
        f'    %2 = "stablehlo.bitcast_convert"(%1#0) : ({state}) -> tensor<2x2xui32>\n'
        f'    "func.return"(%2, %1#1) : (tensor<2x2xui32>, {kind}) -> ()\n'
        "  }) : () -> ()\n"
        "}) : () -> ()\n"
    )


def drawn(algorithm: str, shape: tuple[int, ...], word: str, state: tuple[int, int]) -> tuple[Any, Any]:
    """The state that follows, and the bits, by compiled code; the interpreter gives the same."""
    model = rlx.from_stablehlo(module(algorithm, shape, word))
    given = {"arg0": np.array(state, np.uint64).view(np.uint32).reshape(2, 2)}
    found, again = model.compile(threads=1).run(given), model.interpret(given)
    for name in found:
        np.testing.assert_array_equal(found[name], again[name])
    return found["result0"].reshape(4).view(np.uint64), found["result1"]


@pytest.mark.parametrize(
    ("algorithm", "shape", "following", "wanted"),
    [
        ("PHILOX", (5,), 4, [0x7D34A749, 0xA9B8BBE8, 0x7BA423D7, 0x2FB324D9, 0x6CF923FE]),
        ("DEFAULT", (2, 3), 4, [0x7D34A749, 0xA9B8BBE8, 0x7BA423D7, 0x2FB324D9, 0x6CF923FE, 0xBADF79C3]),
        ("THREE_FRY", (5,), 5, [0x0296E954, 0x802FD53B, 0xED3492D3, 0xDF435003, 0x63B40BD3]),
        ("THREE_FRY", (2, 3), 5, [0x0296E954, 0xED3492D3, 0x63B40BD3, 0x802FD53B, 0xDF435003, 0xFCC0F261]),
        ("THREE_FRY", (), 3, [0x0296E954]),
        ("PHILOX", (0,), 2, []),
    ],
)
def test_known_bits(algorithm: str, shape: tuple[int, ...], following: int, wanted: list[int]) -> None:
    state, bits = drawn(algorithm, shape, "ui32", (1, 2))
    assert list(state) == [1, following]
    np.testing.assert_array_equal(bits, np.array(wanted, np.uint32).reshape(shape))


@pytest.mark.parametrize("word", ["ui8", "ui16", "i32"])
def test_narrow_numbers_have_the_low_bits(word: str) -> None:
    bits = drawn("PHILOX", (5,), word, (1, 2))[1]
    whole = np.array([0x7D34A749, 0xA9B8BBE8, 0x7BA423D7, 0x2FB324D9, 0x6CF923FE], np.uint32)
    np.testing.assert_array_equal(bits, whole.astype(bits.dtype))


def test_states_of_other_sizes_are_refused() -> None:
    text = module("PHILOX", (3,), "ui32", "tensor<2x2xui32>").replace("bitcast_convert", "abs")
    with pytest.raises(StablehloUnsupportedError, match=r"rng_bit_generator.*: a state of uint32 \[2, 2\]"):
        rlx.from_stablehlo(text)


SHAPES = [(), (1,), (8,), (9,), (0, 3), (4, 6), (3, 3), (3, 4), (1, 5, 3), (2, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("algorithm", ["RNG_PHILOX", "RNG_THREE_FRY"])
@pytest.mark.quick(6)
def test_bits_are_those_of_jax(algorithm: str, shape: tuple[int, ...]) -> None:
    jax = pytest.importorskip("jax")

    for dtype in ("uint32", "uint8") if shape == (3, 3) else ("uint32",):

        def draw(key: Any, dtype: str = dtype) -> Any:
            chosen = getattr(jax.lax.RandomAlgorithm, algorithm)
            return jax.lax.rng_bit_generator(key, shape, dtype=np.dtype(dtype), algorithm=chosen)

        keys = [np.array(state, np.uint64).view(np.uint32) for state in STATES]
        run = rlx.from_jax(draw, keys[0]).compile(threads=1)
        for key in keys:
            for found, wanted in zip(run(key), draw(key), strict=True):
                np.testing.assert_array_equal(found, np.asarray(wanted))


def test_keys_of_the_kind_rbg() -> None:
    jax = pytest.importorskip("jax")

    def draw(data: Any) -> Any:
        return jax.random.normal(jax.random.wrap_key_data(data, impl="rbg"), (3, 5))

    data = np.asarray(jax.random.key_data(jax.random.key(7, impl="rbg")))
    found = rlx.from_jax(draw, data).compile(threads=1)(data)
    np.testing.assert_allclose(found, draw(data), atol=2e-6)
