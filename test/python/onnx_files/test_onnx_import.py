# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of ONNX files: what they compute, against ONNX's own evaluator; files, sizes, patterns, refusals."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import onnx_models  # noqa: E402
from documents import blocks, run_python  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_models import Builder  # noqa: E402

import rlx_mlir as rlx  # noqa: E402
from rlx_mlir.errors import BudgetError, InputError, OnnxError, OnnxUnsupportedError, RlxError  # noqa: E402


def expected(model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's evaluator gives."""
    with np.errstate(all="ignore"):
        return [np.asarray(each) for each in ReferenceEvaluator(model).run(None, inputs)]


def check(model: Any, inputs: dict[str, np.ndarray], *, fixed: Any = None, tolerance: float = 1e-5) -> Any:
    """Compares the compiled model and the interpreted one with ONNX's evaluator; gives the model."""
    read = rlx.from_onnx(model, fixed=fixed)
    given = {name: array for name, array in inputs.items() if name not in (fixed or {})}
    wanted = expected(model, inputs)
    for found in (read.compile(threads=1).run(given), read.interpret(given)):
        assert list(found) == list(read.outputs)
        for name, want in zip(read.outputs, wanted, strict=True):
            assert found[name].dtype == want.dtype
            np.testing.assert_allclose(found[name], want, tolerance, tolerance)
    return read


def operations(model: Any, passes: str = "mir-raise-blocks") -> list[str]:
    """The operations of a model's module, after what the compiler recognises in it has become whole."""
    return [node.op for node in model.module.transform(passes).nodes()]


def test_what_documentation_shows(tmp_path: Path) -> None:
    run_python(blocks("docs/onnx.md", "python"), tmp_path)


# Encoders -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder() -> Any:
    return onnx_models.encoder()


def batch(count: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    mask = np.ones((count, length), np.int64)
    mask[0, length // 2 + 1 :] = 0
    return {"input_ids": random.integers(0, 50, (count, length)), "attention_mask": mask}


def test_an_exported_encoder_serves_every_size(encoder: Any) -> None:
    model = rlx.from_onnx(encoder)
    assert model.symbols == {"batch": "batch", "sequence": "sequence"}
    assert model.inputs == ("input_ids", "attention_mask")
    compiled = model.compile(threads=1, maxima={"sequence": 64})
    for count, length in ((1, 1), (2, 7), (3, 8), (1, 17), (2, 64)):
        inputs = batch(count, length)
        (found,) = compiled.run(inputs).values()
        assert found.shape == (count, length, 24)
        np.testing.assert_allclose(found, expected(encoder, inputs)[0], 2e-5, 2e-5)


def test_patterns_of_exporters_become_operations(encoder: Any) -> None:
    found = operations(rlx.from_onnx(encoder))
    assert found.count("mir.attention") == 2
    assert found.count("mir.layer_norm") == 5
    assert found.count("mir.gelu") == 2
    assert not {"mir.softmax", "mir.erfc", "mir.reduce"} & set(found)


def test_external_data_stay_in_the_folder(encoder: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    inputs = batch(2, 5)
    wanted = expected(encoder, inputs)[0]
    own = onnx.ModelProto()
    own.CopyFrom(encoder)  # saving changes what is saved
    onnx.save(own, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (found,) = rlx.from_onnx(str(path)).compile(threads=1).run(inputs).values()
    np.testing.assert_allclose(found, wanted, 2e-5, 2e-5)

    moved = onnx.load(path, load_external_data=False)
    with pytest.raises(OnnxError, match="lies in another file, but the model was given without a folder"):
        rlx.from_onnx(moved)
    (tmp_path / "elsewhere").mkdir()
    for location in ("../weights.bin", str(tmp_path / "weights.bin"), "a\0b"):
        for entry in moved.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = location
        inner = tmp_path / "elsewhere" / "model.onnx"
        inner.write_bytes(moved.SerializeToString())
        with pytest.raises(OnnxError, match="must be a path inside the folder"):
            rlx.from_onnx(inner)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("offset", "99999999", "of a file of"),
        ("offset", "-4", "'offset' is a number of bytes"),
        ("length", "3", "by its entry 'length'"),
        ("length", "9" * 30, "'length' is a number of bytes"),
    ],
)
def test_places_of_external_data_are_checked(tmp_path: Path, key: str, value: str, message: str) -> None:
    b = Builder()
    model = b.model({"x": (np.float32, [2, 30])}, [b.node("MatMul", "x", b.normal(30, 7))])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    entries = model.graph.initializer[0].external_data
    for entry in [entry for entry in entries if entry.key == key]:
        entries.remove(entry)
    entries.add(key=key, value=value)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(OnnxError, match=message):
        rlx.from_onnx(tmp_path / "m.onnx")


def test_a_link_of_external_data_to_another_folder_is_refused(tmp_path: Path) -> None:
    b = Builder()
    model = b.model({"x": (np.float32, [2, 30])}, [b.node("MatMul", "x", b.normal(30, 7))])
    home = tmp_path / "home"
    home.mkdir()
    onnx.save(model, home / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    other = tmp_path / "other"
    other.mkdir()
    os.rename(home / "w.bin", other / "w.bin")
    (home / "sub").symlink_to(other)
    model = onnx.load(home / "m.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "sub/w.bin"
    (home / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(OnnxError, match="is a link to"):
        rlx.from_onnx(home / "m.onnx")


# Sizes ----------------------------------------------------------------------------------------------


def test_arithmetic_on_shapes_is_done_while_reading() -> None:
    b = Builder()
    shape = b.node("Shape", "x")
    rows, columns = (b.node("Gather", shape, np.array([i], np.int64)) for i in range(2))
    half = b.node("Div", rows, np.array([2], np.int64))
    wanted = b.node("Concat", half, np.array([2], np.int64), columns, axis=0)
    y = b.node("Reshape", "x", wanted)
    total = b.node("ReduceProd", shape, keepdims=0)
    ones = b.node("ConstantOfShape", b.node("Unsqueeze", total, np.array([0], np.int64)))
    count = b.node(
        "Range", np.array(0, np.int64), b.node("Squeeze", rows, np.array([0], np.int64)), np.array(1, np.int64)
    )
    back = b.node("Where", b.node("Equal", wanted, np.array(-1, np.int64)), np.array(1, np.int64), wanted)
    wide = b.node("Expand", np.float32(1), back)
    types = [TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT64, TensorProto.FLOAT]
    model = b.model({"x": (np.float32, ["n", 3])}, [y, ones, count, back, wide], types=types)
    for rows_ in (2, 4, 10):
        read = check(model, {"x": np.arange(rows_ * 3, dtype=np.float32).reshape(rows_, 3)})
    assert not {"mir.floor_div", "mir.gather", "mir.reduce"} & set(operations(read)) - {"mir.floor_div"}
    assert read.module.outputs[y].shape == ("floordiv(n, 2)", 2, 3)


def test_ranges_are_of_the_type_of_a_size() -> None:
    """As the exporter of PyTorch writes them: bounds are floats that become integers like a size."""
    b = Builder()
    size = b.node("Squeeze", b.node("Shape", "x", start=1, end=2))
    first, step = (b.node("CastLike", np.array(own, np.float32), size) for own in (0, 2))
    y = b.node("Range", first, size, step)
    like = b.node("CastLike", np.array([1.5, -1.5], np.float32), "x")  # of what isn't known, the type is
    model = b.model({"x": (np.int32, ["b", "s"])}, [y, like], 17, types=[TensorProto.INT64, TensorProto.INT32])
    for length in (0, 1, 7, 8):
        read = check(model, {"x": np.zeros((2, length), np.int32)})
    assert [node.op for node in read.module.nodes()].count("mir.cast") == 0


def test_of_sizes_that_must_be_equal_a_symbol_stays() -> None:
    """A mask of 9 positions is sliced to those that there are; heads are joined behind it."""
    b = Builder()
    length = b.node("Shape", "x", start=2, end=3)
    mask = b.node("Slice", np.tri(9, dtype=bool)[None], np.array([0]), length, np.array([2]))
    mask = b.node("Slice", mask, np.array([0]), length, np.array([1]))
    masked = b.node("Where", mask, "x", np.float32(0))
    heads = b.node("Concat", np.array([-1]), length, axis=0)
    model = b.model({"x": (np.float32, ["b", 3, "s", "s"])}, [b.node("Reshape", masked, heads)], 17)
    for size in (1, 4, 9):
        check(model, {"x": np.random.default_rng(size).standard_normal((2, 3, size, size), np.float32)})


def test_the_one_element_of_a_dimension_is_taken_by_sizes() -> None:
    """As models do that take the last positions of biases, of which there is one row."""
    b = Builder()
    length = b.node("Shape", "x", start=1, end=2)
    first = b.node("Max", b.node("Sub", np.array([1]), length), np.array([0]))
    bias = b.node("Slice", np.arange(1, dtype=np.float32)[:, None] + 2, first, np.array([2**31]), np.array([0]))
    model = b.model({"x": (np.float32, ["b", "s"])}, [b.node("Add", b.node("Transpose", "x"), bias)], 17)
    for size in (1, 2, 7):
        check(model, {"x": np.ones((3, size), np.float32)})


def test_as_many_largest_elements_as_sizes_say() -> None:
    """All of a symbolic dimension, half of them, and a number of them."""
    b = Builder()
    columns = b.node("Gather", b.node("Shape", "x"), np.array([1], np.int64))
    half = b.node("Div", columns, np.array([2], np.int64))
    found = [b.node("TopK", "x", k, axis=1, outputs=2) for k in (columns, half, np.array([3], np.int64))]
    results = [name for pair in found for name in pair]
    types = [TensorProto.FLOAT, TensorProto.INT64] * 3
    model = b.model({"x": (np.float32, [2, "n"])}, results, types=types)
    for columns_ in (3, 8, 150):
        check(model, {"x": np.random.default_rng(0).permutation(2 * columns_).astype(np.float32).reshape(2, -1)})


def test_names_of_sizes_become_symbols() -> None:
    b = Builder()
    y = b.node("Relu", "x")
    model = rlx.from_onnx(b.model({"x": (np.float32, ["past + 1", "2 b", None, "past+1"])}, [y]))
    assert model.symbols == {"past + 1": "past_1", "2 b": "_2_b", "x_2": "x_2", "past+1": "past_1_2"}
    assert model.module.outputs[y].shape == ("past_1", "_2_b", "x_2", "past_1_2")


def test_an_input_that_decides_about_sizes_is_fixed() -> None:
    b = Builder()
    y = b.node("Reshape", "x", "shape")
    model = b.model({"x": (np.float32, ["n", 6]), "shape": (np.int64, [2])}, [y])
    with pytest.raises(
        OnnxUnsupportedError, match=r"1 x Reshape .*: the shape, operand 1, must be known.*give 'shape'"
    ) as caught:
        rlx.from_onnx(model)
    assert caught.value.inputs == ("shape",)
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "shape": np.array([-1, 3])}
    read = check(model, inputs, fixed={"shape": inputs["shape"]})
    assert read.inputs == ("x",)
    with pytest.raises(OnnxError, match="fixed to elements of int32, but the model declares int64"):
        rlx.from_onnx(model, fixed={"shape": np.array([1], np.int32)})
    with pytest.raises(OnnxError, match=r"fixed to an array of \(1,\), but the model declares \[2\]"):
        rlx.from_onnx(model, fixed={"shape": np.array([1])})
    with pytest.raises(OnnxError, match="the model has no input 'z' to fix, it has x, shape"):
        rlx.from_onnx(model, fixed={"z": np.array([1])})


# Patterns -------------------------------------------------------------------------------------------


def _attention(mask: bool, guard: bool) -> Any:
    b = Builder()
    scores = b.node("Mul", b.node("MatMul", "q", b.node("Transpose", "k", perm=[0, 1, 3, 2])), np.float32(0.3))
    scores = b.node("Add", scores, "mask") if mask else scores
    weights = b.node("Softmax", scores, axis=-1)
    if guard:
        weights = b.node("Where", b.node("IsNaN", weights), np.float32(0), weights)
    y = b.node("MatMul", weights, "v")
    inputs = {name: (np.float32, ["b", 2, "s", 8]) for name in "qkv"}
    return b.model(inputs | ({"mask": (np.float32, [1, 1, 1, "s"])} if mask else {}), [y])


@pytest.mark.parametrize(("mask", "guard", "joined"), [(False, False, True), (True, False, False), (True, True, True)])
def test_attention_is_recognised_where_it_means_the_same(mask: bool, guard: bool, joined: bool) -> None:
    random = np.random.default_rng(1)
    inputs = {name: random.standard_normal((3, 2, 5, 8)).astype(np.float32) for name in "qkv"}
    if mask:
        inputs["mask"] = np.full((1, 1, 1, 5), -np.inf, np.float32)  # no query sees a key: NaN, unless guarded
    read = check(_attention(mask, guard), inputs)
    assert ("mir.attention" in operations(read)) == joined


def test_norms_need_the_same_operand_throughout() -> None:
    b = Builder()
    difference = b.node("Sub", "x", b.node("ReduceMean", "y", axes=[-1]))
    variance = b.node("ReduceMean", b.node("Mul", difference, difference), axes=[-1])
    normed = b.node("Div", difference, b.node("Sqrt", b.node("Add", variance, np.float32(0.1))))
    z = b.node("Add", b.node("Mul", normed, b.normal(8)), b.normal(8))
    random = np.random.default_rng(2)
    inputs = {name: random.standard_normal((3, 8)).astype(np.float32) for name in "xy"}
    read = check(b.model({name: (np.float32, ["n", 8]) for name in "xy"}, [z], 13), inputs)
    assert "mir.layer_norm" not in operations(read)


def test_rms_norm_is_recognised() -> None:
    b = Builder()
    mean = b.node("ReduceMean", b.node("Pow", "x", np.float32(2)), axes=[-1])
    inverse = b.node("Div", np.float32(1), b.node("Sqrt", b.node("Add", mean, np.float32(0.1))))
    y = b.node("Mul", b.normal(8), b.node("Mul", "x", inverse))
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    read = check(b.model({"x": (np.float32, ["n", 8])}, [y], 13), {"x": x})
    assert [op for op in operations(read) if op != "mir.constant"] == ["mir.rms_norm"]


# Control flow ---------------------------------------------------------------------------------------


def test_branches_read_what_is_around_them() -> None:
    def branch(op: str) -> Any:
        nodes = [helper.make_node(op, ["x", "w"], ["out"])]
        return helper.make_graph(nodes, op, [], [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])

    b = Builder()
    b.weight(np.linspace(0, 1, 40, dtype=np.float32).reshape(1, 40), "w")
    y = b.node("If", "on", then_branch=branch("Add"), else_branch=branch("Mul"))
    model = b.model({"x": (np.float32, ["n", 40]), "on": (np.bool_, [])}, [y])
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    for on in (True, False):
        check(model, {"x": x, "on": np.array(on)})


def _loop(counted: bool) -> Any:
    """x doubled until it is at least 100, or as often as `count` says."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["v", "v"], ["v_next"]),
        helper.make_node("Less", ["v_next", "hundred"], ["go_on"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [])],
        [info("go_on", TensorProto.BOOL, []), info("v_next", TensorProto.FLOAT, [])],
    )
    b = Builder()
    b.weight(np.float32(100), "hundred")
    y = b.node("Loop", "count" if counted else "", np.array(True), "x", body=body)
    inputs: dict[str, Any] = {"x": (np.float32, [])}
    return b.model(inputs | ({"count": (np.int64, [])} if counted else {}), [y])


def test_a_loop_ends_by_its_condition_or_its_count() -> None:
    for x in (1.0, 60.0, 200.0):
        check(_loop(False), {"x": np.float32(x)})
        for count in (0, 2, 9):
            check(_loop(True), {"x": np.float32(x), "count": np.array(count)})


# Refusals -------------------------------------------------------------------------------------------


def test_all_that_is_refused_is_said_at_once() -> None:
    b = Builder()
    x = b.node("NonMaxSuppression", "x", "x")
    x = b.node("Made", x, domain="some.where")
    for _ in range(4):
        x = b.node("Unique", x)
    y = b.node("Round", "k")
    model = b.model({"x": (np.float32, [1, 2, 4]), "k": (np.int32, [3])}, [x, y], domains=["some.where"])
    with pytest.raises(OnnxUnsupportedError) as caught:
        rlx.from_onnx(model)
    lines = str(caught.value).splitlines()
    assert lines[0] == "7 parts of the model can't be compiled"
    assert "  4 x Unique ('Unique_2', 'Unique_3', 'Unique_4' and 1 more): there is no such operator here" in lines
    assert "  1 x some.where.Made ('Made_1'): there is no such operator here" in lines
    assert "  1 x Round ('Round_6'): elements of type int32" in lines
    assert caught.value.operators == {"Unique": 4, "NonMaxSuppression": 1, "some.where.Made": 1, "Round": 1}


def test_versions_that_are_not_known_are_refused() -> None:
    b = Builder()
    model = b.model({"x": (np.float32, [1])}, [b.node("Relu", "x")], 6)
    with pytest.raises(OnnxUnsupportedError, match="version 6 of the standard operators, but 7 to 28 are known"):
        rlx.from_onnx(model)


@pytest.mark.parametrize("content", [b"", b"x", b"\x08\x08" * 9, bytes(range(256)) * 40])
def test_damaged_files_are_errors_of_ours(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    for source in (content, tmp_path / "m.onnx"):
        with pytest.raises(OnnxError):
            rlx.from_onnx(source)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(OnnxError, match="the file is missing"):
        rlx.from_onnx(tmp_path / "none.onnx")
    with pytest.raises(OnnxError, match="it must be a regular file, but is a folder"):
        rlx.from_onnx(tmp_path)
    with pytest.raises(RlxError, match=r"a model is a path, bytes or an onnx\.ModelProto"):
        rlx.from_onnx(3)
    with pytest.raises(InputError, match="a mapping from names to arrays"):
        rlx.from_onnx(b"", fixed=[1])  # type: ignore[arg-type]


def test_budgets_hold() -> None:
    b = Builder()
    x = "x"
    for _ in range(4):
        x = b.node("Add", x, b.normal(3))
    model = b.model({"x": (np.float32, [3])}, [x])
    for budget in ("nodes", "tensors"):
        with rlx.budget(**{budget: 3}), pytest.raises(BudgetError, match=f"needs 4, but the budget '{budget}'"):
            rlx.from_onnx(model)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.quick(8)
def test_damage_anywhere_ends_in_an_error_of_ours_or_a_model(encoder: Any, seed: int) -> None:
    """Bytes of the graph are changed, not those of the weights, in which nothing can be wrong."""
    random = np.random.default_rng(seed)
    content = bytearray(encoder.SerializeToString())
    start = bytes(content).find(b"\x0a\x05Shape") if seed % 2 else 0
    for place in random.integers(max(start, 0), min(len(content), 6000), 4):
        content[place] = random.integers(256)
    with contextlib.suppress(RlxError):  # any other error fails
        rlx.from_onnx(bytes(content))


# Weights --------------------------------------------------------------------------------------------


def test_weights_are_parameters_and_scalars_constants() -> None:
    b = Builder()
    weight = b.weight(b.normal(30, 7), "layer/weight")
    y = b.node("Mul", b.node("MatMul", "x", weight), np.float32(2))
    b.weight(b.normal(50), "unused")
    model = rlx.from_onnx(b.model({"x": (np.float32, ["n", 30])}, [y]))
    assert list(model.params) == ["layer/weight"]
    assert [value.name for value in model.module.params] == ["layer/weight"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8, np.int32, np.int64, np.bool_, np.uint16])
def test_tensors_are_read_in_each_of_their_forms(dtype: Any) -> None:
    array = np.array([[0, 1, 3], [1, 0, 1]]).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    listed = helper.make_tensor("w", kind, array.shape, array.reshape(-1))
    for message in (listed, numpy_helper.from_array(array, "w")):
        graph = helper.make_graph(
            [helper.make_node("Identity", ["w"], ["y"])],
            "g",
            [],
            [helper.make_tensor_value_info("y", kind, None)],
            [message],
        )
        model = rlx.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
        np.testing.assert_array_equal(model.interpret({})["y"], array)


def test_tensors_of_a_wrong_number_of_elements_are_refused() -> None:
    b = Builder()
    y = b.node("Add", "x", b.normal(3))
    for change, message in (
        (lambda w: w.dims.__setitem__(0, 4), "ask for 16 bytes, but there are 12"),
        (lambda w: w.dims.__setitem__(0, -1), r"sizes from 0 on, but has \[-1\]"),
        (lambda w: setattr(w, "data_type", 8), "elements of type STRING can't be read"),
        (lambda w: w.ClearField("raw_data"), "float_data has 0 entries"),
    ):
        model = b.model({"x": (np.float32, [3])}, [y])
        change(model.graph.initializer[0])
        with pytest.raises(RlxError, match=message):
            rlx.from_onnx(model)


def test_functions_that_grow_without_end_meet_the_budget() -> None:
    """Each function calls the next one twice: 2^30 nodes."""
    info = helper.make_tensor_value_info
    functions = []
    for number in range(30):
        op, domain = ("Relu", "") if number == 29 else (f"f{number + 1}", "own")
        nodes = [helper.make_node(op, ["a"], ["b"], domain=domain), helper.make_node(op, ["b"], ["c"], domain=domain)]
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        functions.append(helper.make_function("own", f"f{number}", ["a"], ["c"], nodes, sets))
    graph = helper.make_graph(
        [helper.make_node("f0", ["x"], ["y"], domain="own")],
        "deep",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, functions=functions, opset_imports=sets)
    with rlx.budget(nodes=200), pytest.raises(BudgetError, match="needs 201, but the budget 'nodes'"):
        rlx.from_onnx(model)


@pytest.mark.parametrize("op", ["Range", "OneHot", "Resize", "Pad"])
def test_sizes_that_no_model_needs_take_no_memory(op: str) -> None:
    b = Builder()
    if op == "Range":
        y = b.node("Add", "x", b.node("Range", np.float32(0), np.float32(1e15), np.float32(1)))
    elif op == "OneHot":
        places, values = b.node("Cast", "x", to=TensorProto.INT64), np.array([0.0, 1.0], np.float32)
        y = b.node("OneHot", places, np.array(1 << 50), values)
    elif op == "Resize":
        y = b.node("Resize", "x", "", "", np.array([1 << 40]), mode="linear")
    else:
        y = b.node("Pad", "x", np.array([0, 1 << 50]), mode="wrap")
    model = b.model({"x": (np.float32, [4])}, [y], 18)
    if op == "OneHot":  # nothing is made before a call, and no call has so much memory
        assert rlx.from_onnx(model).module.outputs[y].shape == (4, 1 << 50)
        return
    with pytest.raises(OnnxUnsupportedError, match=r"a table of .* elements"):
        rlx.from_onnx(model)
