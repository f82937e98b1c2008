# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the fuzzers have found, as small as it got."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret, ir
from rlx_mlir.errors import InputError, PassError, RlxError, TokenizerError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.fuzz import graphs
from rlx_mlir.fuzz.cases import Case, case_of
from rlx_mlir.models.description import describe_file, format_description
from rlx_mlir.models.tokenizer import Tokenizer
from rlx_mlir.rewriting import run_pipeline


def agrees(module: GraphModule, **values: np.ndarray) -> None:
    """Asserts that the module gives the same in every way that it can be run, on random values and the given ones."""
    case = case_of(module)
    case = Case(module, [{**run, **values} for run in case.runs])
    assert graphs.check(case).get("message") is None


def test_slices_of_nothing() -> None:
    """MLIR refuses a slice at offset 0 of a dimension of size 0."""
    module = GraphModule.hir("f")
    x, w = module.input("x", [2, 0, 8]), module.input("w", ["n", 8])
    first, second = module.shared_linear_pair(x, w, w, transpose_weight=True)
    cache, new, pos = module.input("c", [2, 3, 0]), module.input("new", [2, 1, 0]), module.input("pos", [2], "i32")
    module.set_outputs([first, second, module.cumsum(x, 2), module.cache_update(cache, new, pos)])
    agrees(module)


def test_a_parameter_is_no_cache_to_be_written() -> None:
    module = GraphModule.mir("f")
    cache, new, pos = module.param("c", [2, 5, 3]), module.input("new", [2, 2, 3]), module.input("pos", [2], "i32")
    module.set_outputs(module.cache_update(cache, new, pos))
    agrees(module)


def test_blocks_with_infinity_have_scale_nan() -> None:
    module = GraphModule.mir("f")
    q, scale, total = module.block_quantize(module.input("x", ["a", 64]))
    module.set_outputs([q, scale, total])
    x = np.ones((3, 64), np.float32)
    x[0, 3], x[1, 40], x[2, 5] = np.inf, np.nan, -np.inf
    case = Case(module, [{"x": x}])
    assert graphs.check(case)["status"] == "ok"
    assert np.isnan(interpret(module, {"x": x})["output1"]).tolist() == [[True, False], [False, True], [True, False]]


def test_weights_without_elements() -> None:
    module = GraphModule.hir("f")
    x, up, down = module.input("x", ["a", 5]), module.param("up", [5, 0]), module.param("down", [0, 5])
    module.set_outputs(module.swiglu(x, gate_w=up, up_w=up, down_w=down))
    agrees(module)
    empty = GraphModule.hir("f")
    empty.set_outputs(empty.linear(empty.input("x", ["a", 3, 0]), empty.param("w", [0, 4])))
    agrees(empty)


def test_rope_keeps_infinities() -> None:
    """As complex numbers, tables with infinities would give NaN."""
    module = GraphModule.hir("f")
    x, cos, sin = module.input("x", [1, 2, 4]), module.input("cos", [2, 2]), module.input("sin", [2, 2])
    module.set_outputs(module.rope(x, cos, sin, head_dim=4, style="half"))
    values = {"cos": np.array([[np.inf, 1], [1, 1]], np.float32), "sin": np.array([[1, 0], [0, -np.inf]], np.float32)}
    agrees(module, x=np.ones((1, 2, 4), np.float32), **values)
    result = interpret(module, {"x": np.ones((1, 2, 4), np.float32), **values})["output0"]
    assert result[0].tolist() == [[np.inf, 1, np.inf, 1], [1, np.inf, 1, -np.inf]]


@pytest.mark.parametrize(
    ("pipeline", "signature", "message"),
    [
        ("lir-plan", "%n: index {mir.name = 'n'}", "argument 1 is index"),
        ("gpu-emit-ptx{level=4}", "%n: tensor<2xf32>", "option 'level' expects an integer from 0 to 3, but got '4'"),
        ("mir-outline-kernels", "%n: tensor<*xf32>", r"argument 1 is tensor<\*xf32>"),
        (
            "rlx-verify-numerics{begin=true seed=-1}",
            "%n: tensor<2xf32>",
            "option 'seed' expects an integer of at least 0, but got '-1'",
        ),
    ],
)
def test_passes_name_what_they_cannot_take(pipeline: str, signature: str, message: str) -> None:
    signature = signature.replace("'", '"')
    text = f"func.func @f(%x: tensor<4xf32>, {signature}) -> tensor<4xf32> {{\n  return %x : tensor<4xf32>\n}}"
    module = ir.Module.parse(text, ir.new_context())
    with pytest.raises(PassError, match=message) as caught:
        run_pipeline(module, pipeline)
    assert "Traceback" not in str(caught.value)


def test_launches_of_kernels_that_are_not_there() -> None:
    """Those of a binary are verified by nobody."""
    text = """module attributes {gpu.container_module} {
      func.func private @f.body(%begin: index, %end: index, %scratch: memref<?xi8>) {
        gpu.launch_func @g::@k blocks in (%end, %end, %end) threads in (%end, %end, %end)
        return
      }
      gpu.binary @g [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = "">]
    }"""
    with ir.new_context():
        module = ir.Module.parse(text)
        with pytest.raises(PassError, match="there is no kernel 'k'"):
            run_pipeline(module, "gpu-launches-to-loops")


def test_modules_in_modules_have_no_names() -> None:
    text = """
      func.func @f(%x: tensor<1x64xf32>, %w: tensor<16x64xf32> {mir.kind = "param"}) -> tensor<1x16xf32> {
        %y = mir.matmul %x, %w transpose_rhs : tensor<1x64xf32>, tensor<16x64xf32>
        return %y : tensor<1x16xf32>
      }
      module {
      }"""
    with ir.new_context():
        run_pipeline(ir.Module.parse(text), "rlx-to-kernels")


def test_sizes_in_regions_of_other_dialects_are_not_asked_for() -> None:
    """Regions of linalg use any value."""
    module = GraphModule.mir("f")
    module.set_outputs(module.rms_norm(module.input("x", [1, "n", 16]), module.input("g", [16])))
    with pytest.raises(PassError, match="the entry function may hold calls, reshapes and loops of calls only"):
        run_pipeline(module.ir_module, "func.func(mir-to-linalg),rlx-gpu-pipeline")


def test_passes_say_which_one_is_missing() -> None:
    module = GraphModule.mir("f")
    module.set_outputs(module.silu(module.input("x", [4])))
    with pytest.raises(PassError, match=r"has no 'mir\.template': run cpu-apply-templates or gpu-apply-schedules"):
        run_pipeline(module.clone().ir_module, "rlx-to-kernels,rlx-generic-kernels")
    text = """
      func.func private @helper(%x: tensor<4xf32>) -> tensor<4xf32> {
        return %x : tensor<4xf32>
      }
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = call @helper(%x) : (tensor<4xf32>) -> tensor<4xf32>
        return %y : tensor<4xf32>
      }"""
    with pytest.raises(PassError, match="may call kernels only, but calls 'helper': inline runs before"):
        run_pipeline(ir.Module.parse(text, ir.new_context()), "lir-plan")


def test_names_are_unicode() -> None:
    text = 'func.func @f(%x: tensor<4xf32> {mir.name = "\\FF"}) {\n  return\n}'
    with pytest.raises(InputError, match=r"expects 'mir\.name' to be UTF-8, but got \"\\FF\""):
        GraphModule.from_text(text)


def test_diagnostics_of_nested_modules_are_errors() -> None:
    """MLIR verifies nested functions on threads of its own, which must not come to Python."""
    function = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n}\n"
    for _ in range(10):
        with pytest.raises(InputError, match="empty block: expect at least a terminator"):
            GraphModule.from_text("".join(f"module @m{i} {{\n{function}}}\n" for i in range(4)))


def test_one_argument_is_queries_keys_and_values() -> None:
    """Positions come second then: they aren't keys, by whose number a call's work is estimated."""
    module = GraphModule.mir("f")
    x, pos = module.input("x", [2, 5, 3, 8]), module.input("pos", [2], "i32")
    module.set_outputs(module.primitives.attention(x, x, x, num_heads=3, head_dim=8, layout="bshd", pos=pos))
    agrees(module)


@pytest.mark.parametrize("static", [True, False])
def test_tables_without_entries(static: bool) -> None:
    """There is nothing that an index could be clamped to, so there must be no index."""
    module = GraphModule.mir("f")
    table, ids = module.input("table", ["a", 4]), module.input("ids", [2] if static else ["b"], "i32")
    module.set_outputs(module.gather(table, ids))
    values = {"table": np.zeros((0, 4), np.float32), "ids": np.zeros(2, np.int32)}
    with pytest.raises(InputError, match=r"'table' must have an entry along axis 0 for \[2\] indices"):
        interpret(module, values)
    compiled = rlx.compile(module, cache=False)
    with pytest.raises(InputError, match=r"'mir\.gather'.* expects that a.* is at least .*: 'a' is 0 in input 'table'"):
        compiled.run(values)
    if not static:
        values["ids"] = np.zeros(0, np.int32)
        assert compiled.run(values)["output0"].shape == interpret(module, values)["output0"].shape == (0, 4)


@pytest.mark.parametrize("value", [np.arange(3), np.zeros(0, np.float32), 7, -1.5, True, ["a"]])
@pytest.mark.parametrize("key", ["tokenizer.ggml.model", "tokenizer.ggml.pre", "general.name", "llama.context_length"])
def test_metadata_of_other_types_is_described(tmp_path: Path, key: str, value: object) -> None:
    path = write_gguf(tmp_path / "f.gguf", {"general.architecture": "llama", key: value}, {})
    described = describe_file(str(path))
    assert json.loads(json.dumps(described)) == described
    assert "architecture" in format_description(described)


@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id", "pre", "add_bos_token", "add_space_prefix"])
def test_tokenizers_refuse_metadata_of_other_types(tmp_path: Path, key: str) -> None:
    metadata = tiny_models.metadata() | {f"tokenizer.ggml.{key}": np.arange(3)}
    with (
        GGUFFile(write_gguf(tmp_path / "f.gguf", metadata, {})) as file,
        pytest.raises(TokenizerError, match="must be"),
    ):
        Tokenizer.from_metadata(file.metadata)


def test_sizes_that_are_known_where_a_type_leaves_them_open() -> None:
    module = GraphModule.from_text("""
      func.func @main(%x: tensor<?x2x?x0xf64> {mir.dims = ["c", "", "b", ""], mir.kind = "input", mir.name = "x"})
          -> (tensor<?x2x?xf64> {mir.name = "y"}) {
        %y = mir.reshape %x to [-2, 2, -1] : tensor<?x2x?x0xf64>
        return %y : tensor<?x2x?xf64>
      }""")
    assert rlx.compile(module, cache=False)(x=np.zeros((3, 2, 4, 0))).shape == (3, 2, 0)


@pytest.mark.parametrize(
    ("pipeline", "text", "message"),
    [
        (
            "rlx-gpu-pipeline,rlx-bind-dims{symbols=a:3}",
            """func.func @f(%x: tensor<?x3xf32> {mir.kind = "input", mir.name = "x", mir.dims = ["a", ""]})
                -> tensor<?x6xf32> {
              %0 = mir.concat %x, %x axis 1 : tensor<?x3xf32>, tensor<?x3xf32>
              return %0 : tensor<?x6xf32>
            }""",
            "sizes are bound where all values are ranked tensors, but argument 0 of 'f' is memref",
        ),
        (
            "rlx-bind-dims",
            """func.func private @g(tensor<3xf32>) -> tensor<3xf32>
            func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {
              %0 = call @g(%x) : (tensor<3xf32>) -> tensor<3xf32>
              return %0 : tensor<3xf32>
            }""",
            "sizes are bound in functions with a body, but 'g' has none",
        ),
        (
            "gpu-apply-schedules",
            """func.func @f() {
              return
            }
            func.func private @k.mir(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.role = "kernel"} {
              return %x : tensor<4xf32>
            }""",
            "kernel 'k.mir' has no class",
        ),
        (
            "cpu-apply-templates",
            """func.func @f() {
              return
            }
            func.func private @k.mir(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.role = "kernel"} {
              return %x : tensor<4xf32>
            }""",
            "kernel 'k.mir' has no class",
        ),
        (
            "kernel-add-entry-points",
            """func.func private @k.body(%begin: index, %end: index, %scratch: memref<?xi8>) {
              return
            }""",
            "'k.body' takes ranked buffers and 3 more arguments, not none",
        ),
        (
            "kernel-add-entry-points",
            """func.func private @k.body(%x: memref<*xi8>, %begin: index, %end: index, %scratch: memref<?xi8>) {
              return
            }""",
            r"'k.body' takes ranked buffers and 3 more arguments, not memref<\*xi8>",
        ),
    ],
)
def test_passes_name_the_stage_that_they_need(pipeline: str, text: str, message: str) -> None:
    """Not what Python made of a module of another stage."""
    with ir.new_context():
        module = ir.Module.parse(text)
        with pytest.raises(PassError, match=message) as caught:
            run_pipeline(module, pipeline)
        assert isinstance(caught.value.__cause__, RlxError)


def test_ranges_of_buffers_are_those_of_scalars() -> None:
    text = """func.func @f(%i: index, %m: memref<3xi1>) {
      %x = memref.load %m[%i] : memref<3xi1>
      return
    }"""
    with ir.new_context():
        run_pipeline(ir.Module.parse(text), "mir-check-ranges")


def test_machine_code_is_made_again() -> None:
    """A pipeline that makes it runs twice where someone asks for that."""
    with ir.new_context():
        module = ir.Module.parse("func.func @k() {\n  return\n}")
        run_pipeline(module, "rlx-gpu-pipeline,gpu-assemble-ptx{cubin=auto},gpu-assemble-ptx{cubin=auto}")
