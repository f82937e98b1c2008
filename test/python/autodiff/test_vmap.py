# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`vmap` of whole modules: loops and choices, derivatives of batches, compiled code, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from batches import Arrays, difference, looped

import rlx_mlir as rlx
from rlx_mlir import GraphModule, Value
from rlx_mlir.autodiff import grad, jvp, value_and_grad, vjp, vmap
from rlx_mlir.errors import BuildError, StageError
from rlx_mlir.mir.registry import BATCHING

F32 = np.float32
RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(F32)


def made(build: Callable[[GraphModule], Any], stage: str = "mir") -> GraphModule:
    """A module of what a function builds."""
    m: GraphModule = getattr(GraphModule, stage)("made")
    built = build(m)
    m.set_outputs(built if isinstance(built, dict) else {"y": built})
    return m


def check(module: GraphModule, given: Arrays, batched: list[str], *, exact: bool = False, sizes: Any = ()) -> None:
    """Compares batches, of known and of unknown size, with loops."""
    size = len(given[batched[0]])
    for own in sizes or (size, "n"):
        result = vmap(module, batched, size=own)
        result.verify()
        wrong = difference(rlx.interpret(result, given), looped(module, given, batched, size), exact=exact)
        assert not wrong, f"batches of {batched}, size {own}: {wrong}\n{result.to_text(locations=False)}"


def kinds(module: GraphModule) -> list[str]:
    return [node.op for node in module]


# ----------------------------------------------------------------------------------------------------------------------
# What is built
# ----------------------------------------------------------------------------------------------------------------------


def test_a_shared_weight_is_one_product():
    def layer(m: GraphModule) -> Value:
        return m.matmul(m.input("x", ["rows", 8]), m.param("w", [8, 4]))

    module = made(layer)
    assert kinds(vmap(module, "x", size="n")) == ["mir.matmul"]
    assert vmap(module, "x", size="n").outputs["y"].shape == ("n", "rows", 4)


def test_all_inputs_have_the_batch_by_default():
    def layer(m: GraphModule) -> Value:
        return m.add(m.input("x", [8]), m.mul(m.param("w", [8]), m.input("z", [8])))

    module = made(layer)
    assert vmap(module) == vmap(module, ["x", "z"])


def test_what_all_entries_share_is_computed_once():
    def scaled(m: GraphModule) -> dict[str, Value]:
        x, w = m.input("x", [3]), m.param("w", [3])
        norm = m.sum(m.mul(w, w))
        return {"y": m.div(x, norm), "norm": norm}

    result = vmap(made(scaled), "x", size=5)
    assert [node.results[0].shape for node in result] == [(3,), (), (5, 3), (5,)]
    assert kinds(result)[-1] == "mir.expand", "an output that has no batch is repeated"


@pytest.mark.parametrize("size", [3, "n"])
def test_kernels_of_each_entry_are_groups(size):
    def image(m: GraphModule) -> Value:
        return m.conv2d(m.input("x", [2, 4, 5, 6]), m.input("w", [6, 2, 3, 3]), padding=1, groups=2)

    module, given = made(image), {"x": normal(3, 2, 4, 5, 6), "w": normal(3, 6, 2, 3, 3)}
    check(module, given, ["x", "w"], sizes=(size,))
    check(module, {**given, "x": given["x"][0]}, ["w"], sizes=(size,))
    assert ("mir.scan" in kinds(vmap(module, ["x", "w"], size=size))) == (size == "n")
    assert "mir.scan" not in kinds(vmap(module, ["w"], size=size))


def test_sizes_have_no_batch():
    """What says sizes only gives none of its batch to results."""

    def sizes(m: GraphModule) -> dict[str, Value]:
        x, w = m.input("x", ["s", 4]), m.input("w", [4])
        return {
            "count": m.dim(x, 0, "f32"),
            "places": m.iota(["s"], 0),
            "repeated": m.expand(w, ["s", 4]),
            "shaped": m.reshape(m.expand(w, ["s", 4]), [2, "s", 2]),
            "part": m.slice(w, 0, 0, m.size("min(s, 3)")),
            "moved": m.dynamic_slice(m.input("long", [9]), m.constant(2, "i32"), m.size("s")),
            "added": m.scatter_add(w, m.iota([4]), x),
        }

    module = made(sizes)
    given = {"x": normal(3, 5, 4), "w": normal(4), "long": normal(9)}
    check(module, given, ["x"], exact=True)
    nodes = list(vmap(module, "x", size="n"))
    repeated = len(module.outputs)
    assert not any("n" in value.shape for node in nodes[:-repeated] for value in node.results)


def test_axes():
    def picked(m: GraphModule) -> dict[str, Value]:
        x, y = m.input("x", [2, 3]), m.input("y", [4])
        return {"sum": m.add(m.sum(x, 0, keep_dims=True), m.sum(y)), "x": x}

    module, x, y = made(picked), normal(2, 3, 5), normal(5, 4)
    found = rlx.interpret(vmap(module, {"x": 2, "y": 0}, size=5, out_axes=1), {"x": x, "y": y})
    wanted = looped(module, {"x": np.moveaxis(x, 2, 0), "y": y}, ["x", "y"], 5)
    for name in ("sum", "x"):
        np.testing.assert_array_equal(found[name], np.stack([one[name] for one in wanted], axis=1))


def test_blocks_of_hir():
    def block(m: GraphModule) -> Value:
        x = m.input_batch_seq("x", 16)
        x = m.rms_norm(x, m.param("g", [16]))
        x = m.linear(x, m.param("w", [16, 24]), m.param("b", [24]), activation="silu")
        return m.attention(x, x, x, num_heads=4, head_dim=6, mask_kind="causal")

    module = made(block, "hir")
    given = {"x": normal(3, 2, 5, 16), "g": normal(16), "w": normal(16, 24), "b": normal(24)}
    check(module, given, ["x"])
    assert "mir.attention" in kinds(vmap(module, "x", size="n"))


# ----------------------------------------------------------------------------------------------------------------------
# Operations with regions
# ----------------------------------------------------------------------------------------------------------------------


def chain(m: GraphModule) -> dict[str, Value]:
    """What is captured reaches the first carried value in the third step."""
    x, start = m.input("x", [4]), m.input("start", [4])
    (a, _, _, steps), each = m.scan(
        lambda a, b, c, t: ((b, c, m.add(m.mul(c, 0.5), x), m.add(t, 1)), (a, t)),
        (start, start, start, m.constant(0, "i32")),
        length=5,
    )
    return {"a": a, "steps": steps, "each": each[0], "t": each[1]}


def test_carried_values_get_the_batch_from_what_they_become():
    given = {"x": normal(3, 4), "start": normal(4)}
    check(made(chain), given, ["x"], exact=True)
    result = vmap(made(chain), "x", size=3)
    assert [value.shape for node in result if node.op == "mir.scan" for value in node.results] == [
        (3, 4),
        (3, 4),
        (3, 4),
        (),
        (5, 3, 4),
        (5,),
    ]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("batched", [["xs"], ["init"], ["w"], ["xs", "init", "w"]], ids="-".join)
def test_scan(batched, reverse):
    def run(m: GraphModule) -> dict[str, Value]:
        init, w = m.input("init", [3]), m.input("w", [3, 3])
        last, each = m.scan(
            lambda h, x: ((h := m.tanh(m.add(m.sum(m.mul(w, h), 1), x))), m.mul(h, x)),
            init,
            m.input("xs", ["steps", 3]),
            reverse=reverse,
            checkpoints=2,
        )
        return {"last": last, "each": each}

    shapes = {"xs": (5, 3), "init": (3,), "w": (3, 3)}
    given = {name: normal(*([4] if name in batched else []), *shape) for name, shape in shapes.items()}
    check(made(run), given, batched)
    for size in (1, 0):
        few = {name: value[:size] if name in batched else value for name, value in given.items()}
        found = rlx.interpret(vmap(made(run), batched, size="n"), few)
        assert found["each"].shape == (size, 5, 3)


@pytest.mark.parametrize("batched", [["p"], ["x"], ["p", "x"], ["p", "x", "y"], ["y"]], ids="-".join)
def test_if(batched):
    def run(m: GraphModule) -> dict[str, Value]:
        x, y = m.input("x", [4]), m.input("y", [4])
        big, same, count = m.cond(
            m.input("p", [], "i1"),
            lambda: (m.mul(x, y), y, m.constant(1, "i32")),
            lambda: (m.sub(x, 1.0), m.neg(y), m.constant(2, "i32")),
        )
        return {"big": big, "same": same, "count": count}

    given: Arrays = {"x": normal(4), "y": normal(4), "p": np.array(True)}
    given |= {name: normal(3, 4) for name in batched if name != "p"}
    if "p" in batched:
        given["p"] = np.array([True, False, True])
    check(made(run), given, batched, exact=True)
    assert ("mir.if" in kinds(vmap(made(run), batched, size=3))) == ("p" not in batched)


def collatz(m: GraphModule, limit: int | None = None) -> dict[str, Value]:
    """How many steps it takes a number to become 1; `total` isn't read by the condition."""
    start, weight = m.input("start", [], "i32"), m.input("weight", [2])

    def step(x: Value, count: Value, total: Value) -> tuple[Value, Value, Value]:
        half = m.floor_div(x, 2)
        odd = m.eq(m.floor_rem(x, 2), 1)
        return m.where(odd, m.add(m.mul(x, 3), 1), half), m.add(count, 1), m.add(total, weight)

    x, count, total = m.while_loop(
        lambda x, count, total: m.gt(x, 1), step, (start, m.constant(0, "i32"), weight), limit=limit
    )
    return {"x": x, "count": count, "total": total}


@pytest.mark.parametrize("limit", [None, 0, 6])
def test_entries_go_on_as_long_as_each_alone(limit):
    start = np.array([1, 6, 5, 2, 27 if limit else 3], np.int32)
    module = made(lambda m: collatz(m, limit))
    check(module, {"start": start, "weight": normal(2)}, ["start"], exact=True)
    check(module, {"start": start, "weight": normal(5, 2)}, ["start", "weight"], exact=True)
    found = rlx.interpret(vmap(module, "start", size="n"), {"start": start[:0], "weight": normal(2)})
    assert found["total"].shape == (0, 2)


def test_a_condition_that_all_entries_share_stays_one():
    module = made(collatz)
    check(module, {"start": np.array(3, np.int32), "weight": normal(3, 2)}, ["weight"], exact=True)
    (loop,) = [node for node in vmap(module, "weight", size=3) if node.op == "mir.while"]
    assert [value.shape for value in loop.results] == [(), (), (3, 2)]


def test_a_loop_over_a_size_has_one_condition():
    def run(m: GraphModule) -> Value:
        def goes_on(i: Value, x: Value) -> Value:
            return m.lt(i, m.dim(x, 0, "i32"))

        start = m.constant(0, "i32"), m.input("x", ["length"])
        return m.while_loop(goes_on, lambda i, x: (m.add(i, 1), m.mul(x, 0.5)), start)[1]

    check(made(run), {"x": normal(3, 4)}, ["x"], exact=True)
    assert "mir.where" not in vmap(made(run), "x", size="n").to_text()


def own_gradient(m: GraphModule) -> Value:
    """x w with twice the gradient by x, and three times that by w."""
    return m.custom_fn(
        lambda x, w: m.mul(x, w),
        m.input("x", [4]),
        m.input("w", [4]),
        vjp=lambda x, w, y, dy: (m.mul(m.mul(dy, w), 2.0), m.mul(m.mul(dy, x), 3.0)),
        jvp=lambda x, w, dx, dw: m.add(m.mul(m.mul(dx, w), 2.0), m.mul(m.mul(dw, x), 3.0)),
    )


@pytest.mark.parametrize("batched", [["x"], ["w"], ["x", "w"]], ids="-".join)
def test_functions_keep_their_own_gradients(batched):
    module, size = made(own_gradient), 3
    given = {name: normal(size, 4) if name in batched else normal(4) for name in ("x", "w")}
    check(module, given, batched, exact=True)
    assert "mir.custom_fn" in kinds(vmap(module, batched, size=size))
    batch = vjp(vmap(module, batched, size=size), ["x", "w"])
    dy = normal(size, 4)
    found = rlx.interpret(batch, {**given, "d_y": dy})
    x, w = np.broadcast_to(given["x"], (size, 4)), np.broadcast_to(given["w"], (size, 4))
    wanted = {"x": 2 * dy * w, "w": 3 * dy * x}
    for name, each in wanted.items():
        np.testing.assert_allclose(found[f"d_{name}"], each if name in batched else each.sum(0), rtol=1e-5)
    tangents = {f"t_{name}": normal(*given[name].shape) for name in given}
    pushed = rlx.interpret(jvp(vmap(module, batched, size=size), ["x", "w"]), {**given, **tangents})
    np.testing.assert_allclose(pushed["t_y"], 2 * tangents["t_x"] * w + 3 * tangents["t_w"] * x, rtol=1e-5)


def test_a_function_whose_tangents_alone_have_the_batch():
    def run(m: GraphModule) -> Value:
        x, w = m.input("x", [4]), m.input("w", [4])
        return m.custom_fn(lambda x, w: m.neg(w), x, w, jvp=lambda x, w, dx, dw: m.add(dx, dw))

    check(made(run), {"x": normal(3, 4), "w": normal(4)}, ["x"], exact=True)


# ----------------------------------------------------------------------------------------------------------------------
# Operations of users' own, and those without a rule
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_op() -> Iterator[Callable[..., None]]:
    """Registers the operation `batch.scaled`, x factor, with what is given of it."""

    def register(**parts: Any) -> None:
        like_x = lambda x, w, *, factor=2.0: rlx.TensorSpec(x.shape, x.dtype)  # noqa: E731
        rlx.register_op("batch.scaled", infer=like_x, reference=lambda x, w, *, factor: x * w * F32(factor), **parts)

    yield register
    rlx.unregister_op("batch.scaled")


def scaled(m: GraphModule) -> Value:
    return m.custom("batch.scaled", m.input("x", ["s", 3]), m.input("w", [3]), factor=0.5)


@pytest.mark.parametrize("batched", [["x"], ["w"], ["x", "w"]], ids="-".join)
@pytest.mark.parametrize("part", ["kernel", "lowering", "batching"])
def test_operations_of_users(own_op, part, batched):
    def rule(m: Any, operands: Any, batched: Any, *, factor: float) -> Value:
        x, w = (
            v if has else m.expand(v, [n, *v.shape]) for v, has, n in zip(operands, batched, [size] * 2, strict=True)
        )
        return m.mul(m.mul(x, m.reshape(w, [size, 1, 3])), factor)

    parts: dict[str, Any] = {"kernel": lambda x, w, *, factor: x * w * F32(factor)}
    if part == "lowering":
        parts["lowering"] = lambda m, x, w, *, factor: m.mul(m.mul(x, w), factor)
    if part == "batching":
        parts["batching"] = rule
    own_op(**parts)
    module, size = made(scaled), 3
    shapes = {"x": (4, 3), "w": (3,)}
    given = {name: normal(*([size] if name in batched else []), *shape) for name, shape in shapes.items()}
    check(module, given, batched, exact=True, sizes=(3,) if part == "batching" else ())
    built = kinds(vmap(module, batched, size=3))
    assert ("mir.scan" in built) == (part == "kernel")
    assert "mir.custom" not in built


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda m, operands, batched, *, factor: (), "gives 1 results with the batch first, but gave 0"),
        (lambda m, operands, batched, *, factor: 3, "gives values, but gave 3"),
        (
            lambda m, operands, batched, *, factor: operands[1],
            r"gives tensor<3xf32> for a result that is tensor<\?x3xf32>",
        ),
    ],
)
def test_rules_of_users_are_checked(own_op, rule, message):
    own_op(lowering=lambda m, x, w, *, factor: x, batching=rule)
    with pytest.raises(BuildError, match=f"'mir.custom'.*'batching' of 'batch.scaled' {message}"):
        vmap(made(scaled), "x", size=3)


def test_a_lowering_has_its_operands_only(own_op):
    own_op(lowering=lambda m, x, w, *, factor: m.mul(x, m.input("more", [3])))
    with pytest.raises(BuildError, match=r"'lowering' of 'batch\.scaled' adds an input or a parameter"):
        vmap(made(scaled), "x", size=3)


@pytest.mark.parametrize("batched", [["x"], ["g"], ["x", "g"]], ids="-".join)
def test_an_operation_without_a_rule_is_done_for_each_entry(monkeypatch, batched):
    module = made(lambda m: m.rms_norm(m.input("x", ["s", 4]), m.input("g", [4])))
    given = {"x": normal(*([3] if "x" in batched else []), 2, 4), "g": normal(*([3] if "g" in batched else []), 4)}
    monkeypatch.delitem(BATCHING, "mir.rms_norm")
    check(module, given, batched, exact=True)
    assert kinds(vmap(module, batched, size="n"))[0] == "mir.scan"


def test_an_operation_without_a_rule_is_batched_as_its_parts(monkeypatch):
    module = made(lambda m: m.fused_swiglu(m.input("x", ["s", 4])))
    monkeypatch.delitem(BATCHING, "mir.fused_swiglu")
    check(module, {"x": normal(3, 2, 4)}, ["x"])
    assert not {"mir.scan", "mir.fused_swiglu"} & set(kinds(vmap(module, "x", size="n")))


# ----------------------------------------------------------------------------------------------------------------------
# Batches of batches, and derivatives
# ----------------------------------------------------------------------------------------------------------------------


def loss(m: GraphModule) -> Value:
    """That of a small network, of rows and their labels."""
    h = m.layer_norm(m.tanh(m.matmul(m.input("x", ["rows", 5]), m.param("w", [5, 8]))), m.param("g", [8]))
    each = m.softmax_cross_entropy_with_logits(m.matmul(h, m.param("v", [8, 3])), m.input("labels", ["rows"], "i32"))
    return m.mean(each)


def network(*lead: int) -> Arrays:
    """Arguments of `loss`, of which rows and labels have these dimensions before their own."""
    labels = RNG.integers(0, 3, (*lead, 6)).astype(np.int32)
    return {"x": normal(*lead, 6, 5), "labels": labels, "w": normal(5, 8), "g": normal(8), "v": normal(8, 3)}


def test_batches_of_batches():
    twice = vmap(vmap(made(loss), ["x", "labels"], size="n"), ["x", "v"], size="k")
    given = network(2)
    given["x"], given["v"] = normal(4, 2, 6, 5), normal(4, 8, 3)
    found = rlx.interpret(twice, given)["y"]
    single = [
        [
            rlx.interpret(
                made(loss), {**given, "x": given["x"][k, n], "labels": given["labels"][n], "v": given["v"][k]}
            )["y"]
            for n in range(2)
        ]
        for k in range(4)
    ]
    np.testing.assert_allclose(found, single, rtol=2e-6)


def test_gradients_of_each_entry():
    module = value_and_grad(made(loss), ["w", "g", "x"])
    check(module, network(3), ["x", "labels"])
    assert vmap(module, ["x", "labels"], size="n").outputs["d_w"].shape == ("n", 5, 8)


def test_the_gradient_of_a_batch_is_the_sum_of_gradients():
    single = made(loss)
    batch = vmap(single, ["x", "labels"], size="n")
    batch.set_outputs({"y": batch.sum(batch.outputs["y"])})
    given = network(3)
    found = rlx.interpret(grad(batch, ["w", "g", "v"]), given)
    each = looped(grad(single, ["w", "g", "v"]), given, ["x", "labels"], 3)
    for name, value in found.items():
        np.testing.assert_allclose(value, np.sum([one[name] for one in each], axis=0), rtol=2e-5, atol=1e-6)


def test_tangents_of_batches():
    module = jvp(made(loss), ["x"])
    given = {**network(3), "t_x": normal(3, 6, 5)}
    check(module, given, ["x", "labels", "t_x"])


def of_scan(m: GraphModule) -> Value:
    x, w = m.input("x", [3]), m.param("w", [3])
    last, each = m.scan(lambda h: ((h := m.tanh(m.add(m.mul(w, h), x))), h), x, length=5, checkpoints=2)
    return m.add(m.sum(m.mul(last, w)), m.sum(each))


def of_if(m: GraphModule) -> Value:
    x, w = m.input("x", [3]), m.param("w", [3])
    own = m.sum(m.mul(x, w))
    return m.sum(m.cond(m.gt(own, 0.0), lambda: m.mul(m.mul(x, x), w), lambda: m.mul(x, w)))


def of_while(m: GraphModule) -> Value:
    """Entries take other numbers of steps."""
    x, w = m.input("x", [3]), m.param("w", [3])

    def step(y: Value, i: Value) -> tuple[Value, Value]:
        return m.add(m.mul(y, 0.5), m.mul(m.sin(y), w)), m.add(i, 1)

    y, i = m.while_loop(lambda y, i: m.gt(m.max(m.abs(y)), 0.4), step, (x, m.constant(0, "i32")), limit=6)
    return m.sum(m.mul(y, m.cast(i, "f32")))


@pytest.mark.parametrize("build", [of_scan, of_if, of_while], ids=lambda build: build.__name__)
def test_gradients_through_regions(build):
    module, given = made(build), {"x": normal(4, 3), "w": np.array([0.3, -0.2, 0.4], F32)}
    check(grad(module, ["x", "w"]), given, ["x"])
    batch = vmap(module, "x", size="n")
    batch.set_outputs({"y": batch.sum(batch.outputs["y"])})
    found = rlx.interpret(grad(batch, ["x", "w"]), given)
    each = looped(grad(module, ["x", "w"]), given, ["x"], 4)
    np.testing.assert_allclose(found["d_x"], [one["d_x"] for one in each], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["d_w"], np.sum([one["d_w"] for one in each], axis=0), rtol=1e-5, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------------------
# Compiled
# ----------------------------------------------------------------------------------------------------------------------


def elements(m: GraphModule) -> dict[str, Value]:
    x, y, z = m.input("x", [3, 4]), m.input("y", [4]), m.input("z", [])
    return {
        "sum": m.mul(m.add(x, y), z),
        "chosen": m.where(m.gt(y, z), x, m.exp(y)),
        "parts": m.imag(m.mul(m.complex(x, y), m.complex(y, z))),
        "rows": m.softmax(m.sub(x, m.mean(x, 0, keep_dims=True)), -1),
        "steps": m.cumsum(x, 0),
    }


def places(m: GraphModule) -> dict[str, Value]:
    x, at, start = m.input("x", ["s", 6]), m.input("at", [2], "i32"), m.input("start", [], "i32")
    return {
        "turned": m.reshape(m.transpose(x), [2, 3, "s"]),
        "joined": m.concat([x, m.slice(x, 1, None, None, -2)], 1),
        "entries": m.gather(x, at, 1),
        "part": m.dynamic_slice(x, start, 2, 1),
        "changed": m.dynamic_update_slice(x, m.gather(x, at, 1), start, 1),
        "added": m.scatter_add(m.gather(x, at, 1), at, 4, 1),
    }


def products(m: GraphModule) -> dict[str, Value]:
    x, a, b = m.input("x", [4, 8]), m.input("a", [8, 8]), m.input("b", [8])
    return {
        "product": m.matmul(x, a, transpose_rhs=True),
        "fused": m.fused_matmul_bias_act(x, a, b, activation="gelu"),
        "pairs": m.dot_general(x, a, lhs_contracting=[1], rhs_contracting=[0]),
        "solved": m.dense_solve(m.add(a, np.eye(8, dtype=F32) * 9), b),
        "packed": m.dequant_matmul(m.concat([x] * 4, 1), m.param("p", [6, 32], packed="q8_0")),
    }


def images(m: GraphModule) -> dict[str, Value]:
    x, w, g = m.input("x", [2, 4, 6, 6]), m.input("w", [4, 2, 3, 3]), m.input("g", [4])
    return {
        "conv": m.conv2d(x, w, padding=1, groups=2),
        "pool": m.pool(x, "max", 2, stride=2),
        "norm": m.group_norm(x, g, g, num_groups=2),
        "spectrum": m.fft(x),
    }


def sequences(m: GraphModule) -> dict[str, Value]:
    q, k = m.input("q", [2, 5, 16]), m.input("k", [2, 5, 8])
    pos, tables = m.input("pos", [2], "i32"), [m.param(name, [16, 2]) for name in ("cos", "sin")]
    return {
        "attended": m.attention(q, k, k, num_heads=4, num_kv_heads=2, head_dim=4, mask_kind="causal"),
        "turned": m.rope(q, *tables, head_dim=4, style="half", pos=pos),
        "kept": m.cache_update(m.input("cache", [2, 9, 8]), k, pos),
        "norm": m.layer_norm(q, m.param("g", [16])),
    }


#: A module for each family, and what has the batch: numbers are positions.
FAMILIES: dict[str, tuple[Callable[[GraphModule], Any], list[str]]] = {
    "elements": (elements, ["x", "z"]),
    "places": (places, ["x", "at", "start"]),
    "products": (products, ["x", "a"]),
    "images": (images, ["x", "g"]),
    "sequences": (sequences, ["q", "pos", "cache"]),
    "loops": (collatz, ["start"]),
    "steps": (chain, ["x"]),
}


def argument(value: Value, *lead: int) -> np.ndarray:
    """An array for an argument; positions are small."""
    shape = (*lead, *(3 if isinstance(size, str) else size for size in value.shape))
    if value.packed is not None:
        codes = RNG.integers(0, 256, (value.shape[0], 34)).astype(np.uint8)
        codes[:, 1] = 0x20  # the scale of a block is a small number
        return codes
    return normal(*shape) if value.dtype == F32 else RNG.integers(0, 4, shape).astype(value.dtype)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.quick(3)
def test_compiled(name):
    build, batched = FAMILIES[name]
    module = made(build)
    listed = [*module.inputs, *module.params]
    given = {value.name: argument(value, *([3] if value.name in batched else [])) for value in listed}
    check(module, given, batched)
    result = vmap(module, batched, size="n")
    executable = rlx.compile(result, cache=False)
    params = {value.name: given[value.name] for value in module.params}
    executable.set_params(params)
    found = executable.run({key: value for key, value in given.items() if key not in params})
    wrong = difference(
        found, [{key: value[n] for key, value in rlx.interpret(result, given).items()} for n in range(3)], exact=False
    )
    assert not wrong


# ----------------------------------------------------------------------------------------------------------------------
# What is refused
# ----------------------------------------------------------------------------------------------------------------------


def plain(m: GraphModule) -> Value:
    return m.matmul(m.input("x", ["rows", 32]), m.param("w", [8, 32], packed="q8_0"))


@pytest.mark.parametrize(
    ("in_axes", "options", "message"),
    [
        ("w", {}, "argument 'w' of module 'made' is packed, and can't have a batch"),
        ("z", {}, "module 'made' has no argument 'z', it has x, w"),
        (["x", "z"], {}, "module 'made' has no argument 'z'"),
        ([], {}, "a batch needs an argument that has it, but none is named"),
        ({}, {}, "a batch needs an argument that has it, but none is named"),
        (3, {}, "'in_axes'"),
        ({"x": 3}, {}, "the batch is dimension 3 of argument 'x', but with it that has 3"),
        ({"x": -1}, {}, "the dimension of 'x'' is a whole number of at least 0, but got -1"),
        ({"x": "first"}, {}, "the dimension of 'x'' is a whole number"),
        ("x", {"size": "a b"}, "a symbolic dimension is named by letters, digits and '_', but got 'a b'"),
        ("x", {"size": -1}, "a dimension is a size >= 0 or the name of a symbol, but got -1"),
        ("x", {"size": 2.5}, "a dimension is a size >= 0 or the name of a symbol, but got 2.5"),
        ("x", {"size": True}, "a dimension is a size >= 0 or the name of a symbol, but got True"),
        ("x", {"size": "rows"}, "the batch is called 'rows', but argument 'x' has a dimension of that name already"),
        ("x", {"out_axes": 3}, "'out_axes' is 3, but output 'y' has 3 dimensions with the batch"),
        ("x", {"out_axes": "last"}, "'out_axes' is a whole number"),
    ],
)
def test_what_has_no_batch(in_axes, options, message):
    module = made(plain)
    before = module.to_text()
    with pytest.raises(BuildError) as error:
        vmap(module, in_axes, **options)
    assert message in str(error.value)
    assert f"{__file__}:" in str(error.value), "the caller's line"
    assert module.to_text() == before


def test_modules_that_have_no_batch():
    with pytest.raises(StageError, match="module 'made' is at stage kernels"):
        vmap(made(plain).lower().transform("mir-outline-kernels", stage="kernels"), "x")
    with pytest.raises(BuildError, match="a GraphModule is expected, but got 3"):
        vmap(3, "x")  # type: ignore[arg-type]


def test_a_weight_of_experts_that_is_packed_later_has_no_batch():
    def packs(m: GraphModule) -> Value:
        weight, expert = m.repack(m.param("w", [8, 32])), m.input("expert", [2], "i32")
        return m.dequant_grouped_matmul(m.input("x", [2, 32]), weight, expert, experts=2)

    with pytest.raises(BuildError, match=r"'mir\.repack'.*a packed weight can't have a batch"):
        vmap(made(packs), "w", size=3)
    assert vmap(made(packs), "x", size=3).outputs["y"].shape == (3, 2, 4)
