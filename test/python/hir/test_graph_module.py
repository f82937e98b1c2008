# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Building, reading and editing of modules."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import GraphModule, interpret, ir
from rlx_mlir.errors import BuildError, InputError, StageError


def mlp() -> GraphModule:
    m = GraphModule.hir("mlp")
    x = m.input("x", ["batch", "seq", 64])
    w, b, q = m.param("w", [64, 128]), m.param("b", [128]), m.param("q", [64, 128], packed="q4_1")
    h = m.named("ffn", lambda m: m.linear(x, w, b, activation="silu", name="up"))
    m.set_outputs({"logits": m.rms_norm(m.linear(h, q), m.param("g", [64]), eps=0.25)})
    return m


def line_of(text: str) -> int:
    """The line of this file that holds the text (but for the lines that search for it)."""
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if text in line and "line_of" not in line)


# -- arguments -------------------------------------------------------------------------------------------------------


def test_arguments_describe_themselves():
    text = mlp().to_text()
    assert '%arg0: tensor<?x?x64xf32> {mir.dims = ["batch", "seq", ""], mir.kind = "input", mir.name = "x"}' in text
    assert '%arg1: tensor<64x128xf32> {mir.kind = "param", mir.name = "w"}' in text
    assert '%arg3: tensor<64x80xi8, #mir.packed<q4_1, k = 128>> {mir.kind = "param", mir.name = "q"}' in text
    assert '-> (tensor<?x?x64xf32> {mir.name = "logits"})' in text


@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        ("bf16", "bf16"),
        (np.float16, "f16"),
        (ml_dtypes.bfloat16, "bf16"),
        ("float64", "f64"),
        ("bool", "i1"),
        ("i8", "i8"),
        (np.int64, "i64"),
    ],
)
def test_element_types(dtype, word):
    m = GraphModule.mir("m")
    value = m.input("x", [2], dtype)
    assert f"tensor<2x{word}>" in m.to_text()
    assert str(value._resolve().type) == f"tensor<2x{word}>"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: m.input("x", [1]), "already has an argument 'x'"),
        (lambda m: m.input("", [1]), "non-empty string"),
        (lambda m: m.input("y", [1.5]), r"a size >= 0 or the name of a symbol, but got 1\.5"),
        (lambda m: m.input("y", [-1]), "but got -1"),
        (lambda m: m.input("y", [2**63]), "but got 9223372036854775808"),
        (lambda m: m.input("y", ["a b"]), "but got 'a b'"),
        (lambda m: m.input("y", 3), "a sequence of sizes and symbols, but got 3"),
        (lambda m: m.input("y", [1], "u64"), "unknown element type 'u64', known are f16"),
        (lambda m: m.input("y", [1], "i4"), "unknown element type 'i4'"),  # numpy's i4 has 4 bytes
        (lambda m: m.param("y", [2, 33], packed="q4_1"), "32.*33"),
        (lambda m: m.param("y", [2, "k"], packed="q4_1"), r"static shape \[N, K\]"),
        (lambda m: m.param("y", [2, 32], packed="q9"), "unknown weight format 'q9'"),
        (lambda m: m.param("y", [2, 32], "f32", packed="q4_1"), "no element type of its own"),
    ],
)
def test_arguments_that_are_refused(make, message):
    m = GraphModule.hir("m")
    m.input("x", [1])
    before = m.to_text()
    with pytest.raises(BuildError, match=message) as raised:
        make(m)
    assert str(raised.value).startswith(f"{__file__}:")
    assert m.to_text() == before


def test_input_batch_seq():
    m = GraphModule.hir("m")
    assert m.input_batch_seq("x", 32, "bf16").shape == ("batch", "seq", 32)


# -- operations ------------------------------------------------------------------------------------------------------


def test_build_error_names_line_block_rule_and_values():
    m = GraphModule.hir("m")
    x, w = m.input("x", [2, 64]), m.param("w", [63, 128])
    with pytest.raises(BuildError) as raised, m.scope("blk.0"):
        m.linear(x, w, name="up")  # the refused line
    text = str(raised.value)
    assert text.startswith(f"{__file__}:{line_of('# the refused line')}: in block 'blk.0.up': 'hir.linear' op")
    assert "64" in text
    assert "63" in text
    assert raised.value.__cause__ is None
    assert "hir.linear" not in m.to_text()


def test_errors_from_a_helper_of_the_caller_name_the_helper():
    m = GraphModule.hir("m")
    x, w = m.input("x", [2, 64]), m.param("w", [63, 128])

    def layer():
        return m.linear(x, w)  # the helper's line

    with pytest.raises(BuildError, match=rf"test_graph_module\.py:{line_of('# the helper')}: 'hir.linear'"):
        layer()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, x: m.linear(x, 3), "'weight' of 'hir.linear' is a Value or an array, but got int 3"),
        (lambda m, x: m.activation("swish", x), "gelu_approx.*but got 'swish'"),
        (lambda m, x: m.linear(x, x, activation="swish"), "'activation' is one of gelu.*'swish'"),
        (lambda m, x: m.binary("mod", x, x), "one of add.*but got 'mod'"),
        (lambda m, x: m.compare("above", x, x), "'kind' is one of eq.*'above'"),
        (lambda m, x: m.attention(x, x, x, num_heads="2", head_dim=32), "'num_heads' is an integer, but got '2'"),
        (lambda m, x: m.add(1.0, 2.0), "one operand is a Value, but got 1.0 and 2.0"),
        (lambda m, x: m.add(x, "a"), "a number, but got str 'a'"),
        (lambda m, x: m.add(x, np.zeros(64)), "same element type"),
        (lambda m, x: m.add(x, True), "True is a bool, but the other operand is of f32"),
        (lambda m, x: m.concat([], 0), "at least one value"),
        (lambda m, x: m.expand(x, ["other", 64]), r"'other' where a value has a dimension.*but x is \['batch', 64\]"),
        (lambda m, x: m.expand(x, [-3, 64]), r"'mir.expand': a dimension is a size >= 0 .* but got -3 in \[-3, 64\]"),
        (lambda m, x: m.narrow(x, 0, 2**64, 1), "'mir.narrow'"),
        (lambda m, x: m.softmax(x, 7), "'mir.softmax' op expects 'axis'"),
        (
            lambda m, x: m.silu(x, shape=["batch", 63]),
            r"declared as \['batch', 63\], but inferred to be \['batch', 64\]",
        ),
        (lambda m, x: m.silu(x, shape=["batch"]), r"declared as \['batch'\]"),
        (lambda m, x: m.constant(["a"]), "constant: "),
        (lambda m, x: m.named("", lambda m: x), "non-empty string"),
    ],
)
def test_operations_that_are_refused_leave_nothing(build, message):
    m = GraphModule.hir("m")
    x = m.input("x", ["batch", 64])
    before = m.to_text()
    with pytest.raises(BuildError, match=message) as raised:
        build(m, x)
    assert str(raised.value).startswith(f"{__file__}:")
    assert m.to_text() == before


def test_names_and_lines_stand_in_locations():
    m = mlp()
    text = m.to_text(locations=True)
    assert 'loc("ffn.up"(' in text
    assert 'loc("rms_norm"(' in text
    node = m.nodes()[0]
    assert (node.op, node.name) == ("hir.linear", "ffn.up")
    assert node.source == f"{__file__}:{line_of('lambda m: m.linear(x, w, b')}"


def test_lowered_operations_keep_name_and_line():
    lowered = mlp().lower()
    node = lowered.nodes()[0]
    assert node.name == "ffn.up"
    assert node.source == f"{__file__}:{line_of('lambda m: m.linear(x, w, b')}"


def test_scopes_nest():
    m = GraphModule.mir("m")
    x = m.input("x", [4])
    with m.scope("blk"), m.scope("0"):
        y = m.silu(x)
        z = m.silu(x, name="act")
    assert (y.name, z.name, m.silu(x).name) == ("blk.0", "blk.0.act", "silu")


def test_blocks_that_are_primitives_follow_the_stage():
    built = {}
    for m in (GraphModule.hir("m"), GraphModule.mir("m")):
        x, g = m.input("x", [2, 3, 8]), m.param("g", [8])
        cos, sin = m.param("cos", [4, 4]), m.param("sin", [4, 4])
        m.rms_norm(x, g)
        m.rope(x, cos, sin, head_dim=8, style="half")
        m.attention(x, x, x, num_heads=1, head_dim=8)
        m.primitives.rms_norm(x, g)
        built[m.stage] = [node.op for node in m.nodes()]
    assert built["hir"] == ["hir.rms_norm", "hir.rope", "hir.attention", "mir.rms_norm"]
    assert built["mir"] == ["mir.rms_norm", "mir.rope", "mir.attention", "mir.rms_norm"]


def test_blocks_need_stage_hir():
    m = GraphModule.mir("m")
    x, w = m.input("x", [2, 8]), m.param("w", [8, 8])
    with pytest.raises(StageError, match=r"test_graph_module\.py:\d+: 'hir.linear' is a block.*at stage mir"):
        m.linear(x, w)


def test_products_with_packed_weights():
    m = GraphModule.mir("m")
    x, w = m.input("x", ["n", 64]), m.param("w", [8, 64], packed="q8_0")
    y = m.mm(x, w)
    assert y.shape == ("n", 8)
    assert m.nodes()[-1].op == "mir.dequant_matmul"
    assert (w.shape, w.packed, w.ndim) == ((8, 64), "q8_0", 2)


def test_constants():
    m = GraphModule.mir("m")
    arrays = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([True, False, True]),
        np.array([[1.5, -2.0]], ml_dtypes.bfloat16),
        np.float16(0.5),
        np.array([1, -2], np.int8),
        np.zeros((0, 2), np.float32),
    ]
    values = [m.constant(array) for array in arrays]
    for value, array in zip(values, arrays, strict=True):
        assert value.shape == np.shape(array)
        assert value.dtype == np.asarray(array).dtype
    assert m.constant([1.0, 2.0]).dtype == np.float32
    assert m.constant([1, 2]).dtype == np.int64
    assert m.constant([1, 2], "bf16").dtype == ml_dtypes.bfloat16


# -- outputs, walking, editing ---------------------------------------------------------------------------------------


def test_outputs():
    m = GraphModule.mir("m")
    x = m.input("x", [4])
    y = m.silu(x)
    m.set_outputs([y, x, y])
    assert list(m.outputs) == ["output0", "output1", "output2"]
    m.set_outputs(m.neg(y), names=["z"])
    assert [value.name for value in m.outputs.values()] == ["neg"]
    m.verify()


@pytest.mark.parametrize(
    ("set_outputs", "message"),
    [
        (lambda m, x, y: m.set_outputs([x], ["a", "b"]), "1 outputs and 2 names"),
        (lambda m, x, y: m.set_outputs([x, y], ["a", "a"]), "names of outputs differ"),
        (lambda m, x, y: m.set_outputs({"": x}), "the name of an output is a non-empty string, but got ''"),
        (lambda m, x, y: m.set_outputs([x], [5]), r"'names' expects several names, but got \[5\]"),
        (lambda m, x, y: m.set_outputs({"a": x}, ["a"]), "but got both"),
        (lambda m, x, y: m.set_outputs({"a": x}, tied={"a": y}), "tied to an argument of its type"),
        (lambda m, x, y: m.set_outputs({"a": x}, tied={"b": x}), r"outputs \['b'\] are tied"),
        (lambda m, x, y: m.set_outputs([1]), "output 'output0' is a Value"),
    ],
)
def test_outputs_that_are_refused(set_outputs, message):
    m = GraphModule.mir("m")
    x = m.input("x", [4])
    y = m.silu(x)
    before = m.to_text()
    with pytest.raises(BuildError, match=message):
        set_outputs(m, x, y)
    assert m.to_text() == before


def test_define():
    m = GraphModule.define("f", lambda m: m.silu(m.input("x", [4])))
    assert (m.name, m.stage, m.fusion_policy, list(m.outputs)) == ("f", "hir", "direct", ["output0"])


def test_walking():
    m = GraphModule.mir("m")
    x = m.input("x", [4])
    y = m.silu(x)
    z = m.add(y, y)
    m.set_outputs([z, y])
    assert [node.op for node in m.users(y)] == ["mir.add"]
    assert (m.use_count(x), m.use_count(y), m.use_count(z)) == (1, 3, 1)
    assert [node.index for node in m.reverse_topological_order()] == [1, 0]
    assert [value.name for value in m.nodes()[1].operands] == ["silu", "silu"]
    assert m.nodes()[1].results == (z,)
    assert m.value("x") == x
    with pytest.raises(InputError, match="no argument 'q', it has x"):
        m.value("q")


def test_node_attributes():
    m = GraphModule.mir("m")
    m.reduce(m.input("x", [4, 5]), "mean", -1, keep_dims=True)
    assert m.nodes()[0].attributes == {"axes": [1], "keep_dims": True, "kind": "mean"}


def test_set_inputs_reorders_renames_and_promotes():
    m = GraphModule.mir("m")
    a, w, b = m.input("a", ["n", 4]), m.param("w", [4]), m.input("b", [4])
    m.input("unused", [1])
    cache = m.param("c", ["n", 4])
    m.set_outputs({"y": m.add(a, b) * w, "c2": m.silu(cache)}, tied={"c2": cache})
    inputs = m.set_inputs({"b": "b", "first": "a", "scale": "w"})
    assert [value.name for value in inputs] == ["b", "first", "scale"]
    assert [value.shape for value in inputs] == [(4,), ("n", 4), (4,)]
    assert [value.name for value in m.params] == ["c"]
    assert 'mir.ties = {c2 = "c"}' in m.to_text()
    assert "output c2 = %2 (may take the memory of %c)" in m.inspect()
    m.verify()
    with pytest.raises(StageError, match="value 'a' of module 'm' is stale: set_inputs changed the module"):
        m.silu(a)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "input 'b' isn't among the new inputs"),
        (["a", "q"], r"no argument \['q'\], it has a, b"),
        (["a", "b", "a"], "each argument becomes one input"),
        ({"x": "a", "y": "a"}, "each argument becomes one input"),
    ],
)
def test_set_inputs_that_are_refused(names, message):
    m = GraphModule.mir("m")
    m.set_outputs(m.add(m.input("a", [4]), m.input("b", [4])))
    with pytest.raises(BuildError, match=message):
        m.set_inputs(names)


def test_set_operands_rewires_an_operation():
    m = GraphModule.mir("m")
    a, b = m.input("a", [4]), m.input("b", [4])
    m.set_outputs({"y": m.relu(m.sub(a, b))})
    node = m.set_operands(m.nodes()[0], [b, a])
    assert [value.name for value in node.operands] == ["b", "a"]
    arrays = {"a": np.array([1, 2, 3, 4], np.float32), "b": np.array([4, 3, 2, 1], np.float32)}
    assert interpret(m, arrays)["y"].tolist() == [3, 1, 0, 0]
    m.verify()
    with pytest.raises(StageError, match="stale: set_operands changed the module"):
        m.silu(a)


def test_set_operands_that_are_refused():
    m = GraphModule.mir("m")
    a, small = m.input("a", [4]), m.input("small", [3])
    y = m.relu(a)
    m.set_outputs({"y": m.silu(y)})
    first, second = m.nodes()
    for node, operands, message in (
        (first, [a, a], "'mir.relu' has 1 operands here, but got 2"),
        (first, [small], r"operand 0 of 'mir.relu' is of tensor<4xf32>, but got tensor<3xf32>"),
        (first, second.results, "operand 0 of 'mir.relu' is computed before it, but 'silu' isn't"),
        (a, [a], "a Node of module 'm' is expected"),
    ):
        with pytest.raises(BuildError, match=message):
            m.set_operands(node, operands)
    assert m.nodes()[0].op == "mir.relu"


def test_stages_that_passes_lead_to():
    m = GraphModule.hir("m")
    x = m.input("x", ["n", 8])
    m.set_outputs({"y": m.linear(x, m.param("w", [8, 4]))})
    assert m.transform("cse").stage == "hir"
    lowered = m.transform("hir-to-mir")
    assert lowered.stage == "mir"
    kernels = lowered.transform("rlx-fuse,rlx-to-kernels")
    assert kernels.stage == "kernels"
    assert kernels.transform('lir-plan{maxima="n:5"}').stage == "lir"
    primitives = GraphModule.hir("p")
    primitives.set_outputs({"y": primitives.silu(primitives.input("x", [2]))})
    assert primitives.transform("cse").stage == "hir"  # blocks can still be added


def test_replace():
    m = GraphModule.mir("m")
    x = m.input("x", [4])
    y = m.silu(x)
    z = m.relu(x)
    m.set_outputs(m.neg(y))
    with pytest.raises(BuildError, match=r"'gelu' can't replace 'silu': 'mir.neg' reads it before"):
        m.replace(y, m.gelu(x))
    m.set_outputs(m.exp(z))
    m.erase_dead()
    assert [node.op for node in m.nodes()] == ["mir.relu", "mir.exp"]
    with pytest.raises(StageError, match="erase_dead changed the module"):
        m.silu(z)


def test_replace_by_what_is_computed_from_it():
    m = GraphModule.mir("m")
    y = m.silu(m.input("x", [4]))
    m.set_outputs(y)
    scaled = m.replace(y, y * 2.0)
    assert m.outputs["output0"] == scaled
    assert [node.op for node in m.nodes()] == ["mir.silu", "mir.constant", "mir.mul"]
    m.verify()


def test_replace_erases_what_is_dead():
    m = GraphModule.mir("m")
    x = m.input("x", [4])
    y = m.silu(x)
    m.set_outputs(y)
    m.replace(y, m.relu(x))
    assert [node.op for node in m.nodes()] == ["mir.relu"]
    with pytest.raises(StageError, match="stale: replace changed"):
        repr(y.shape)
    with pytest.raises(BuildError, match="their types are tensor<5xf32> and tensor<4xf32>"):
        m.replace(m.outputs["output0"], m.input("z", [5]))


# -- text, bytecode, equality ----------------------------------------------------------------------------------------


def test_round_trips():
    m = mlp()
    for again in (GraphModule.from_text(m.to_text()), GraphModule.from_bytecode(m.bytecode()), m.clone()):
        assert again == m
        assert (again.stage, again.name, again.fusion_policy) == ("hir", "mlp", "direct")
    generic = GraphModule.from_text(m.to_text(generic=True))
    assert generic == m
    assert GraphModule.from_text(m.to_text(locations=True)).nodes()[0].name == "ffn.up"
    assert m != m.lower()
    assert m != mlp().with_fusion_policy("fusable")
    assert m != 3


def test_from_text_takes_a_path(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(mlp().to_text())
    assert GraphModule.from_text(path) == GraphModule.from_text(str(path)) == mlp()
    path.write_bytes(mlp().bytecode())
    assert GraphModule.from_bytecode(path) == mlp()


_WRONG_AXIS = (
    "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {{\n"
    "  %y = mir.softmax %x axis 3 : tensor<4xf32>{}\n  return %y : tensor<4xf32>\n}}"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func @f() {", r"^the IR doesn't parse: line 1, column \d+: "),
        (_WRONG_AXIS.format(""), r"^the IR isn't valid: line 2, column 8: 'mir.softmax' op expects 'axis' to be "),
        (_WRONG_AXIS.format(' loc("a"("m.py":7:3))'), r"^the IR isn't valid: block 'a' \(m\.py:7\): 'mir.softmax' op "),
        (_WRONG_AXIS.format(' loc("m.py":7:3)'), r"^the IR isn't valid: m\.py: line 7, column 3: 'mir.softmax' op "),
        ("", "with a body and without 'mir.role', but this has: none"),
        ("func.func @f() { return }\nfunc.func @g() { return }", "this has: f, g"),
        ("missing.mlir", "missing.mlir"),
    ],
)
def test_text_that_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        GraphModule.from_text(text)


def test_files_that_are_refused_are_named_once(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(_WRONG_AXIS.format(""))
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}:2:8: isn't valid: 'mir\.softmax' op expects"):
        GraphModule.from_text(path)
    path.write_text("func.func @f() {")
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}:1:\d+: doesn't parse: ") as caught:
        GraphModule.from_text(path)
    assert str(caught.value).count(str(path)) == 1


def test_bytecode_that_is_refused():
    with pytest.raises(InputError, match="bytecode starts with"):
        GraphModule.from_bytecode(b"func.func")
    with pytest.raises(InputError, match="doesn't parse"):
        GraphModule.from_bytecode(b"ML\xefR" + bytes(40))


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("func.func @f(%x: tensor<4xf32>) { %y = hir.rms_norm %x, %x : tensor<4xf32>, tensor<4xf32> return }", "hir"),
        ("func.func @f(%x: tensor<4xf32>) { %y = mir.silu %x : tensor<4xf32> return }", "mir"),
        ('module attributes {mir.stage = "hir"} { func.func @f() { return } }', "hir"),
        (
            'module attributes {mir.stage = "hir"} { func.func @f(%x: memref<4xf32>) '
            "{ %c = arith.constant 0 : index return } }",
            "lir",
        ),
        (
            'func.func private @k(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.role = "kernel"} '
            "{ %y = mir.silu %x : tensor<4xf32> return %y : tensor<4xf32> } func.func @f() { return }",
            "kernels",
        ),
        ("func.func @f(%x: memref<4xf32>) { %c = arith.constant 0 : index return }", "lir"),
    ],
)
def test_stage_is_detected(text, stage):
    assert GraphModule.from_text(text).stage == stage
    assert GraphModule.from_text(text, stage=stage).stage == stage


def test_stage_is_verified():
    text = "func.func @f(%x: tensor<4xf32>) { %y = hir.rms_norm %x, %x : tensor<4xf32>, tensor<4xf32> return }"
    with pytest.raises(StageError, match=r"a module at stage mir has no operations of hir, but .*\n *'hir.rms_norm'"):
        GraphModule.from_text(text, stage="mir")
    with pytest.raises(StageError, match="a stage is one of hir, mir"):
        GraphModule.from_text(text, stage="mlir")


def test_unnamed_arguments_have_default_names():
    m = GraphModule.from_text("func.func @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> { return %x : tensor<?x4xf32> }")
    assert [value.name for value in m.inputs] == ["arg0"]
    assert m.inputs[0].shape == ("?", 4)
    assert list(m.outputs) == ["output0"]


# -- stages and policy -----------------------------------------------------------------------------------------------


def test_policy():
    m = mlp()
    assert m.with_fusion_policy("fusable") is m
    assert m.fusion_policy == "fusable"
    with pytest.raises(InputError, match="one of direct, fusable, but got 'fast'"):
        m.with_fusion_policy("fast")
    with pytest.raises(StageError, match="a fusion policy is of stage hir"):
        m.lower().with_fusion_policy("direct")
    assert m.lower().fusion_policy is None


def test_lower_gives_a_new_module():
    m = mlp()
    before = m.to_text()
    direct, fusable = m.lower(), m.lower_for_autodiff()
    assert m.to_text() == before
    assert (direct.stage, fusable.stage) == ("mir", "mir")
    assert "mir.fused_matmul_bias_act" in direct.to_text()
    assert "mir.fused" not in fusable.to_text()
    assert direct.lower() is direct
    assert direct.lower_for_autodiff() is direct


def test_policy_decides_what_lower_gives():
    assert mlp().with_fusion_policy("fusable").lower() == mlp().lower_for_autodiff()


def test_wrap_mir_graph():
    lowered = mlp().lower()
    wrapped = GraphModule.wrap_mir_graph(lowered)
    assert (wrapped.stage, wrapped.fusion_policy) == ("hir", "direct")
    wrapped.set_outputs(wrapped.linear(wrapped.outputs["logits"], wrapped.param("head", [64, 8])))
    assert wrapped.lower().stage == "mir"
    with pytest.raises(StageError, match="at stage hir, but mir is needed"):
        GraphModule.wrap_mir_graph(wrapped)


def test_nothing_is_built_after_stage_mir():
    m = GraphModule.from_text("func.func @f(%x: memref<4xf32>) { %c = arith.constant 0 : index return }")
    with pytest.raises(StageError, match="at stage lir: graphs are built at stage hir or mir"):
        m.input("x", [1])


def test_transform_checks_the_stage():
    with pytest.raises(StageError, match="has no operations of hir"):
        mlp().transform("cse", stage="mir")


# -- inspect ---------------------------------------------------------------------------------------------------------


def test_inspect():
    m = mlp()
    text = m.inspect()
    lines = text.splitlines()
    assert lines[0] == "hir module @mlp: 3 operations, 1 inputs, 4 params, 1 outputs, policy direct"
    assert lines[1] == "  operations: hir.linear 2, hir.rms_norm 1"
    assert lines[2] == "  symbols: batch, seq"
    assert "  input  %x: [batch, seq, 64] f32" in lines
    assert "  param  %q: [64, 128] q4_1" in lines
    line = line_of("lambda m: m.linear(x, w, b")
    assert re.search(
        r"%0 = hir\.linear\(%x, %w, %b\) \{activation = silu\}: \[batch, seq, 128\] f32 +"
        rf'// "ffn\.up" test_graph_module\.py:{line}$',
        text,
        re.MULTILINE,
    )
    assert "{eps = 0.25}" in text
    assert lines[-1] == "  output logits = %2"


def test_inspect_shows_ties_and_other_functions():
    m = GraphModule.from_text(
        """
        func.func private @helper(%x: tensor<4xf32>) -> tensor<4xf32> {
          %y = mir.silu %x : tensor<4xf32>
          return %y : tensor<4xf32>
        }
        func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.ties = {output0 = "arg0"}} {
          %y = call @helper(%x) : (tensor<4xf32>) -> tensor<4xf32>
          return %y : tensor<4xf32>
        }"""
    )
    assert "output output0 = %0 (may take the memory of %arg0)" in m.inspect()
    assert "function @helper: 1 operations" in m.inspect()


def test_inspect_elides_large_constants():
    m = GraphModule.mir("m")
    m.constant(np.arange(100, dtype=np.float32))
    assert "dense<...>" in m.inspect()


# -- imports ---------------------------------------------------------------------------------------------------------


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("statement", ["import rlx_mlir", "import rlx_mlir.runtime"])
def test_imports_load_no_mlir(statement):
    loaded = modules_after(statement)
    assert "rlx_mlir" in loaded
    assert not {name for name in loaded if name == "mlir" or name.startswith(("mlir.", "rlx_mlir._compiler"))}


def test_exports():
    import rlx_mlir

    for name in rlx_mlir.__all__:
        assert getattr(rlx_mlir, name) is not None
        assert name in dir(rlx_mlir)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rlx_mlir.nothing


def test_contexts_are_separate():
    assert mlp().ir_module.context != mlp().ir_module.context
    assert isinstance(mlp().ir_module, ir.Module)


@pytest.mark.parametrize("stage", ["hir", "mir"])
def test_modules_are_copied_and_pickled(stage):
    m = getattr(GraphModule, stage)("m")
    m.set_outputs({"y": m.rms_norm(m.input("x", ["n", 8]), m.param("g", [8]))})
    if stage == "hir":
        m.with_fusion_policy("fusable")
    for again in (copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert again == m
        assert (again.stage, again.fusion_policy) == (m.stage, m.fusion_policy)
        again.sum(again.value("x"))
        assert again != m, "a copy is a module of its own"


def test_values_are_copied_with_their_module():
    m = GraphModule.mir("m")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"Value objects .*: a value belongs to its module"):
            copied(m.input(copied.__name__, [2]))
