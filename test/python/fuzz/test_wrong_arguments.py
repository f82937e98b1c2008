# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whatever a caller passes, public functions answer with a result or with an error of ours.

Functions are drawn from the API, so that a new one has to be called here; each of its arguments is replaced by each
value of `BAD` in turn. What Python itself says of calls that don't fit a signature isn't tested.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_encoders
from test_api_map import BLOCKS, EVERY_PRIMITIVE, SCANS, Graph

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats, optim
from rlx_mlir.errors import RlxError
from rlx_mlir.models import choosing, structured
from rlx_mlir.models.choosing import Chooser, token_logprob
from rlx_mlir.models.generation import Options
from rlx_mlir.models.sampling import Sampler
from rlx_mlir.models.tokenizer import Tokenizer, byte_alphabet


def _read_only() -> np.ndarray:
    array = np.ones((2, 3), np.float32)
    array.flags.writeable = False
    return array


BAD: dict[str, Any] = {
    "None": None,
    "True": True,
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "1j": 1j,
    "2**63": 2**63,
    "2**64": 2**64,
    "-2**70": -(2**70),
    "uint64": np.uint64(2**64 - 1),
    "empty text": "",
    "text with NUL": "x\0y",
    "surrogate": "\ud800",
    "bytes": b"x",
    "[]": [],
    "[None]": [None],
    "ragged": [[1], [2, 3]],
    "large numbers": [np.int64(2**62)],
    "{}": {},
    "mapping": {"a": object()},
    "keys": {1: None},
    "set": {1},
    "object": object(),
    "class": int,
    "function": lambda: None,
    "masked": np.ma.masked_array([1.0, 2.0], [0, 1]),
    "big-endian": np.ones(3, ">f4"),
    "objects": np.array([None, 1], object),
    "complex": np.ones(2, complex),
    "structured": np.zeros(2, [("a", "f4")]),
    "0-d": np.array(1.0, np.float32),
    "non-contiguous": np.ones((4, 4), np.float32)[::2, ::2],
    "read-only": _read_only(),
    "texts": np.array(["a"]),
    "date": np.datetime64("2020"),
}


@dataclasses.dataclass
class Call:
    """A call that works.

    Attributes:
        function: what is called.
        arguments: those that are given by position.
        options: and those by name.
        more: options that the signature hides behind `**options`.
        theirs: values that are left out: functions, whose own errors are theirs, and what is fine, but slow.
        of_files: whether errors of the file system are raised as they are, as the docstring says.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    more: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()
    of_files: bool = False


def foreign_errors_of(call: Call) -> Iterator[str]:
    """Every value that gives an error that isn't ours, and where it comes from."""
    signature = inspect.signature(call.function)
    named = [p.name for p in signature.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    for name in (*named, *call.more):
        for label, value in BAD.items():
            if label in call.theirs:
                continue
            bound = signature.bind(*call.arguments, **call.options)
            if name in named:
                bound.arguments[name] = value
            try:
                found = call.function(*bound.args, **bound.kwargs, **({} if name in named else {name: value}))
                if inspect.isgenerator(found):
                    list(found)
            except RlxError as error:
                if len(str(error)) > 20_000:
                    yield f"{name} = {label}: {len(str(error))} characters"
            except Exception as error:
                if call.of_files and isinstance(error, OSError):
                    continue
                at = traceback.extract_tb(error.__traceback__)[-1]
                yield f"{name} = {label}: {type(error).__name__}: {str(error)[:100]} ({at.filename}:{at.lineno})"


class Recorder:
    """Notes the calls of a builder's methods."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self.calls: dict[str, Call] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._builder, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] = Call(method, arguments, options)
            return method(*arguments, **options)

        return call


@pytest.mark.parametrize("name", EVERY_PRIMITIVE)
def test_primitives(name: str) -> None:
    g = Graph("mir")
    recorder = Recorder(g.m.primitives)
    EVERY_PRIMITIVE[name](g, recorder)
    call = recorder.calls[name]
    if name in SCANS:  # errors of the functions that they call aren't ours
        call = dataclasses.replace(call, theirs=("class", "function"))
    assert list(foreign_errors_of(call)) == []


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str) -> None:
    g = Graph("hir")
    recorder = Recorder(g.m)
    BLOCKS[name](g, recorder)
    assert list(foreign_errors_of(recorder.calls[name])) == []


def methods(owner: type) -> set[str]:
    """Public methods of a class, and what makes and calls it."""
    own = {name for name in dir(owner) if not name.startswith("_") and callable(getattr(owner, name))}
    return own | ({"__call__"} if "__call__" in vars(owner) else set())


def small(name: str = "f") -> GraphModule:
    m = GraphModule.hir(name)
    x = m.input("x", ["rows", 4])
    m.set_outputs({"y": m.add(m.rms_norm(x, m.param("w", [4])), 1.0)})
    return m


def values_of_graphs() -> dict[str, Call]:
    m = small()
    x = m.value("x")
    flag, number = x < 1.0, x.astype("i32")
    return {
        "__getitem__": Call(x.__getitem__, (0,)),
        "__add__": Call(x.__add__, (1.0,)),
        "__rsub__": Call(x.__rsub__, (1.0,)),
        "__matmul__": Call(x.__matmul__, (np.ones((4, 4), np.float32),)),
        "__lt__": Call(x.__lt__, (1.0,)),
        "__and__": Call(flag.__and__, (True,)),
        "__floordiv__": Call(number.__floordiv__, (2,)),
        "all": Call(flag.all, (0,)),
        "any": Call(flag.any, (0,)),
        "astype": Call(x.astype, ("bf16",)),
        "max": Call(x.max, (0,)),
        "mean": Call(x.mean, (0,)),
        "min": Call(x.min, (0,)),
        "reshape": Call(lambda shape: x.reshape(shape), ([-1],)),
        "sum": Call(x.sum, (0,)),
        "transpose": Call(lambda axes: x.transpose(axes), ([1, 0],)),
    }


def own_same(x: Any, *, scale: float = 1.0) -> Any:
    """An operation of the user's own."""
    return x


def register(name: Any, **parts: Any) -> None:
    """Registers an operation, and forgets it."""
    rlx.unregister_op(rlx.register_op(name, **parts).name)


register.__signature__ = inspect.signature(rlx.register_op)  # type: ignore[attr-defined]


def generator(name: Any, **parts: Any) -> None:
    """Registers a kernel generator, and forgets it."""
    rlx.unregister_generator(rlx.register_generator(name, **parts).name)


generator.__signature__ = inspect.signature(rlx.register_generator)  # type: ignore[attr-defined]


def modules() -> dict[str, Call]:
    m, other = small(), small("g")
    text, code = m.to_text(), m.bytecode()

    def editing(change: str) -> Callable[..., Any]:
        """A method that changes a module, on one of its own."""

        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(small(), change)(*arguments, **options)

        call.__signature__ = inspect.signature(getattr(m, change))  # type: ignore[attr-defined]
        return call

    def replace(old: Any, new: Any) -> Any:
        fresh = small()
        x = fresh.value("x")
        return fresh.replace(x if old is ... else old, x if new is ... else new)

    def set_operands(node: Any, operands: Any) -> Any:
        fresh = small()
        own = fresh.nodes()[0]
        return fresh.set_operands(own if node is ... else node, own.operands if operands is ... else operands)

    rlx.register_op("wrong.same", infer=own_same, reference=own_same, kernel=own_same)
    blocks = GraphModule.mir("blocks")
    blocks.input("x", ["rows", 4]), blocks.param("w", [4])
    truth, x = m.constant(np.array(True)), m.value("x")
    return {
        "cond": Call(m.cond, (truth, lambda: x, lambda: x), more=("name", "shape"), theirs=("class",)),
        "while_loop": Call(m.while_loop, (lambda x: truth, lambda x: x, x), more=("name", "shape"), theirs=("class",)),
        "scan": Call(m.scan, (lambda x: (x, None), x), {"length": 2}, more=("name", "shape"), theirs=("class",)),
        "custom_fn": Call(m.custom_fn, (lambda x: x, x), {"vjp": lambda x, y, by: by}, theirs=("class", "function")),
        "append_node": Call(m.append_node, ("mir.neg", {"x": x})),
        "draw": Call(m.draw),
        "expand_block": Call(blocks.expand_block, ("rms_norm", blocks.value("x"), blocks.value("w"))),
        "inline": Call(m.inline, (other, {"x": x})),
        "memory_estimate": Call(m.memory_estimate, ({"rows": 4},)),
        "segments": Call(m.segments),
        "to_json": Call(m.to_json),
        "custom": Call(m.custom, ("wrong.same", m.value("x")), more=("scale",)),
        "block": Call(m.block, ("b", lambda b: None), theirs=("class",)),
        "bind": Call(m.bind, ({"rows": 2},)),
        "bytecode": Call(m.bytecode),
        "clone": Call(m.clone),
        "constant": Call(m.constant, (1.0,)),
        "define": Call(GraphModule.define, ("d", lambda d: d.input("x", [1])), theirs=("class",)),
        "erase_dead": Call(m.erase_dead),
        "from_bytecode": Call(GraphModule.from_bytecode, (code,)),
        "from_text": Call(GraphModule.from_text, (text,)),
        "fusion_report": Call(m.fusion_report),
        "hir": Call(GraphModule.hir, ("h",)),
        "input": Call(m.input, ("new", [2, "rows"])),
        "input_batch_seq": Call(m.input_batch_seq, ("newer", 4)),
        "inspect": Call(m.inspect),
        "lower": Call(m.lower),
        "lower_for_autodiff": Call(m.lower_for_autodiff),
        "mir": Call(GraphModule.mir, ("m",)),
        "named": Call(m.named, ("n", lambda n: None), theirs=("class",)),
        "nodes": Call(m.nodes),
        "param": Call(m.param, ("newest", [2, 32])),
        "range_report": Call(m.range_report, (), {"inputs": {"x": 1.0}}),
        "replace": Call(replace, (..., ...)),
        "size": Call(m.size, ("rows",)),
        "reverse_topological_order": Call(m.reverse_topological_order),
        "scope": Call(m.scope, ("s",)),
        "set_inputs": Call(editing("set_inputs"), (["x"],)),
        "set_operands": Call(set_operands, (..., ...)),
        "set_outputs": Call(editing("set_outputs"), ([],)),
        "to_text": Call(m.to_text),
        "topological_order": Call(m.topological_order),
        "transform": Call(m.transform, ("cse",)),
        "use_count": Call(m.use_count, (m.value("x"),)),
        "users": Call(m.users, (m.value("x"),)),
        "value": Call(m.value, ("x",)),
        "verify": Call(m.verify),
        "with_fusion_policy": Call(m.with_fusion_policy, ("fusable",)),
        "wrap_mir_graph": Call(GraphModule.wrap_mir_graph, (other.lower(),)),
    }


def executables() -> dict[str, Call]:
    executable = rlx.compile(small())
    executable.set_params({"w": np.ones(4, np.float32)})
    x = np.ones((2, 4), np.float32)

    def run(x: Any) -> Any:
        return executable.run({"x": x})

    def run_async(inputs: Any, **options: Any) -> Any:
        return asyncio.run(executable.run_async(inputs, **options))

    def set_param(w: Any) -> Any:
        return executable.set_params({"w": w})

    return {
        "__call__": Call(lambda x: executable(x), (x,)),
        "bind": Call(executable.bind, ({"x": x},)),
        "dispatch_report": Call(executable.dispatch_report),
        "profile": Call(executable.profile, (False,)),
        "run": Call(executable.run, ({"x": x},)),
        "run of one": Call(run, (x,)),
        "run_async": Call(run_async, ({"x": x},), {"outputs": None, "donate": ()}),
        "set_params": Call(executable.set_params, ({"w": np.ones(4, np.float32)},)),
        "set_prepared": Call(executable.set_prepared, (list(executable.prepared),)),
        "set_params of one": Call(set_param, (np.ones(4, np.float32),)),
        "timings": Call(executable.timings),
        "zeros": Call(executable.zeros, ((2, 3),)),
    }


def descriptions(folder: Path) -> dict[str, Call]:
    artifact = rlx.compile(small()).artifact
    artifact.save(folder / "f.rlx")
    return {
        "from_bytes": Call(rlx.Artifact.from_bytes, (artifact.to_bytes(),)),
        "load": Call(rlx.Artifact.load, (folder / "f.rlx",), of_files=True),
        "save": Call(artifact.save, (folder / "g.rlx",), of_files=True),
        "to_bytes": Call(artifact.to_bytes),
    }


def loss_of_a_vector() -> GraphModule:
    """The mean of the squares of x w."""
    m = GraphModule.mir("loss")
    y = m.mul(m.input("x", [2, 4]), m.param("w", [4]))
    m.set_outputs({"loss": m.mean(m.mul(y, y), [0, 1])})
    return m


def trainer(module: Any, params: Any, **options: Any) -> dict[str, np.ndarray]:
    """A trainer after one step."""
    made = rlx.Trainer(module, params, **options)
    return made.step({"x": np.ones((2, 4), np.float32)})


def of_optim() -> dict[str, Call]:
    return {
        "adamw": Call(optim.adamw),
        "constant": Call(optim.constant, (1e-3,)),
        "cosine": Call(optim.cosine, (1e-3, 10)),
        "linear": Call(optim.linear, (1e-3, 10)),
        "lion": Call(optim.lion),
        "sgd": Call(optim.sgd),
        "train_step": Call(optim.train_step, (loss_of_a_vector(), optim.sgd())),
    }


def onnx_file() -> bytes:
    """A file whose graph gives its input; without the library onnx, every call is refused."""
    try:
        from onnx import TensorProto, helper
    except ImportError:
        return b""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "own", [x], [y])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def functions(folder: Path, model: Path, encoder: Path) -> dict[str, Call]:
    m = small()
    options = tuple(field.name for field in dataclasses.fields(rlx.CompileOptions))[1:]
    rlx.compile(m).artifact.save(folder / "f.rlx")
    arrays = {"x": np.ones((2, 4), np.float32), "w": np.ones(4, np.float32)}
    loss = loss_of_a_vector()
    return {
        "Budgets": Call(rlx.Budgets),
        "CompileOptions": Call(rlx.CompileOptions),
        "budget": Call(lambda limit: rlx.budget(layers=limit).__enter__(), (7,)),
        "compile": Call(rlx.compile, (m,), more=options),
        "draw": Call(rlx.draw, (m, "mir")),
        "emit": Call(rlx.emit, (m, "mir"), more=options),
        "check_against": Call(rlx.check_against, (m, "torch")),
        "from_jax": Call(rlx.from_jax, (None,)),
        "from_stablehlo": Call(rlx.from_stablehlo, (rlx.to_stablehlo(m.bind(rows=2)),)),
        "to_stablehlo": Call(rlx.to_stablehlo, (m.bind(rows=2),)),
        "from_onnx": Call(rlx.from_onnx, (onnx_file(),), {"fixed": {}}),
        "from_torch": Call(rlx.from_torch, (None,)),
        "inspect": Call(rlx.inspect, (m,), more=options),
        "as_dlpack": Call(rlx.as_dlpack, (np.ones(4, np.float32),)),
        "interpret": Call(rlx.interpret, (m, arrays), theirs=("class",)),
        "bundle": Call(
            rlx.bundle,
            (model, folder / "m.rlx"),
            {"context": 64, "chunk": 8, "cpu": ["native"]},
            theirs=("class", "None", "2**63", "2**64"),
            of_files=True,
        ),
        "load": Call(rlx.load, (folder / "f.rlx",), of_files=True),
        "save_shared": Call(
            rlx.save_shared,
            (rlx.compile(m), folder / "libf.so"),
            {"params": {"w": np.ones(4, np.float32)}},
            of_files=True,
        ),
        "load_encoder": Call(rlx.load_encoder, (encoder,), {"batch": 2}, theirs=("class", "None", "2**63", "2**64")),
        "load_model": Call(
            rlx.load_model, (model,), {"context": 64, "chunk": 8}, theirs=("class", "None", "2**63", "2**64")
        ),
        "TensorSpec": Call(rlx.TensorSpec, ((2,), "f32")),
        "register_op": Call(
            register, ("wrong.other",), {"infer": own_same, "reference": own_same, "kernel": own_same}, more=("x",)
        ),
        "tune": Call(rlx.tune, (None,)),
        **{name: Call(getattr(rlx, name), (loss,), {"wrt": ["w"]}) for name in ("hessian", "hvp", "jvp")},
        **{name: Call(getattr(rlx, name), (loss,), {"wrt": ["w"]}) for name in ("jacfwd", "jacrev")},
        **{
            name: Call(getattr(rlx, name), (loss,), {"wrt": ["w"], "recompute": []})
            for name in ("grad", "grad_with_loss", "value_and_grad", "vjp")
        },
        "vmap": Call(rlx.vmap, (loss, ["x"]), {"size": 2, "out_axes": 0}),
        "Trainer": Call(
            trainer, (loss, {"w": np.ones(4, np.float32)}), more=tuple(inspect.signature(rlx.Trainer).parameters)[2:-1]
        ),
        "unregister_op": Call(rlx.unregister_op, ("wrong.nothing",)),
        "register_generator": Call(
            generator, ("wrong.generator",), {"kernels": "broadcast", "emit": lambda name, config, target: ""}
        ),
        "unregister_generator": Call(rlx.unregister_generator, ("wrong.nothing",)),
    }


def models(path: Path) -> dict[str, Call]:
    model = rlx.load_model(path, context=64, chunk=8)

    def generate(prompt: Any, **options: Any) -> str:
        return model.generate(prompt, **{"max_tokens": 2} | options).read()

    def generate_many(prompts: Any, **options: Any) -> list[Any]:
        return model.generate_many(prompts, **{"max_tokens": 2} | options)

    more = tuple(inspect.signature(model.generate).parameters)[1:]
    session = model.session()
    session.feed([3, 4])
    session.save(path.with_suffix(".session"))
    return {
        "forget": Call(model.forget),
        "generate_many": Call(
            generate_many, (["a", [5]],), more=("sequences", "on_done", *(name for name in more if name != "draft"))
        ),
        "restore": Call(model.restore, (path.with_suffix(".session"),), of_files=True),
        "save_bundle": Call(model.save_bundle, (path.with_suffix(".rlx"),), theirs=("class", "None"), of_files=True),
        "session": Call(model.session),
        "chat_ids": Call(model.chat_ids, ([{"role": "user", "content": "a"}],)),
        "detokenize": Call(model.detokenize, ([3],)),
        "emit": Call(model.emit, ("decode", "hir")),
        "generate": Call(generate, ("a",), more=more),
        "logits": Call(model.logits, ([3, 4],)),
        "module": Call(model.module, ("decode",)),
        "tokenize": Call(model.tokenize, ("a",)),
    }


def sessions(path: Path, folder: Path) -> dict[str, Call]:
    model = rlx.load_model(path, context=64, chunk=8)
    started = model.session()
    started.feed([3, 4])

    def on_one(name: str) -> Callable[..., Any]:
        """A method of a session, on one of its own."""

        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(started.fork(), name)(*arguments, **options)

        call.__signature__ = inspect.signature(getattr(started, name))  # type: ignore[attr-defined]
        return call

    def generate(**options: Any) -> str:
        return started.fork().generate(**{"max_tokens": 2} | options).read()

    return {
        "extend": Call(on_one("extend"), ([3, 4],)),
        "feed": Call(on_one("feed"), ("a",)),
        "fork": Call(started.fork),
        "generate": Call(generate, more=tuple(Options.__annotations__)),
        "save": Call(started.save, (folder / "s.session",), of_files=True),
        "step": Call(on_one("step"), (3,)),
        "truncate": Call(on_one("truncate"), (1,)),
    }


def engines(path: Path) -> dict[str, Call]:
    model = rlx.load_model(path, context=64, chunk=8)

    def add(prompt: Any, **options: Any) -> Any:
        with rlx.Engine(model, sequences=2) as engine:
            request = engine.add(prompt, **{"max_tokens": 2} | options)
            engine.run()
        if request.error is not None:
            raise request.error
        return request

    def step(until: Any = None) -> Any:
        with rlx.Engine(model, sequences=2) as engine:
            return engine.step(until=until)

    engine = rlx.Engine(model, sequences=2)
    more = ("chat", "priority", "on_text", "on_done", *Options.__annotations__)
    return {
        "__init__": Call(rlx.Engine, (model,)),
        "add": Call(add, ("a",), more=more, theirs=("class",)),
        "close": Call(engine.close),
        "run": Call(engine.run),
        "step": Call(step),
    }


def encoders(path: Path) -> dict[str, Call]:
    encoder = rlx.load_encoder(path, batch=2)
    return {
        "embed": Call(encoder.embed, (["the cat"],)),
        "embed_tokens": Call(encoder.embed_tokens, ([[5, 6]],)),
        "module": Call(encoder.module),
        "token_ids": Call(encoder.token_ids, (["the cat"],)),
        "tokenize": Call(encoder.tokenize, ("the cat",)),
    }


def of_choosing() -> dict[str, Call]:
    def choose(logits: Any, **options: Any) -> int:
        return Chooser(Sampler(seed=0), **options).choose(logits)

    more = ("logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty", "processors", "logprobs")
    tokenizer = Tokenizer([*byte_alphabet()], kind="gpt2", eos_id=0)
    of_guides: dict[str, Call] = {}
    if importlib.util.find_spec("llguidance"):
        guide = structured.regex_guide(tokenizer, "a*")
        of_guides = {"advance": Call(guide.advance, (byte_alphabet()["a"],)), "mask": Call(guide.mask, (3,))}
    return of_guides | {
        "guide_of": Call(structured.guide_of, ({"type": "json_object"}, tokenizer)),
        "json_guide": Call(structured.json_guide, (tokenizer, "json_object")),
        "lark_guide": Call(structured.lark_guide, (tokenizer, 'start: "a"')),
        "regex_guide": Call(structured.regex_guide, (tokenizer, "a")),
        "Sampler": Call(Sampler),
        "Chooser": Call(Chooser, (Sampler(),)),
        "choose": Call(choose, (np.ones(3, np.float32),), more=(*more, "guide", "prompt")),
        "check_ids": Call(Chooser(Sampler(), logit_bias={1: 1.0}).check_ids, (3,)),
        "token_logprob": Call(token_logprob, (np.ones(3, np.float32), 1, 2)),
    }


def of_formats() -> dict[str, Call]:
    values = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    packed = formats.encode("q8_0", values)
    panels, planes = formats.pack_panels("q8_0", packed, 64), formats.pack_planes("q8_0", packed, 64)
    own = formats.get_format("q8_0")
    scaled = formats.quantize_scaled("int8/32", values.T)
    parts = (scaled.codes, scaled.scale)
    return {
        "decode": Call(formats.decode, ("q8_0", packed, 64)),
        "decode_scaled": Call(formats.decode_scaled, ("int8/32", *parts), {"k": 64, "n": 2}),
        "each_format": Call(formats.each_format, (lambda fmt: None,), theirs=("class",)),
        "encode": Call(formats.encode, ("q8_0", values)),
        "encode by weights": Call(formats.encode, ("q4_0", values), {"weights": np.ones(64, np.float32)}),
        "encode dense": Call(formats.encode, ("f16", values)),
        "get_format": Call(formats.get_format, ("q8_0",)),
        "pack_panels": Call(formats.pack_panels, ("q8_0", packed, 64)),
        "pack_planes": Call(formats.pack_planes, ("q8_0", packed, 64)),
        "panel_bytes": Call(formats.panel_bytes, ("q8_0", 64)),
        "panel_layout": Call(formats.panel_layout, ("q8_0",)),
        "plane_layout": Call(formats.plane_layout, ("q8_0",)),
        "planes_row_bytes": Call(formats.planes_row_bytes, ("q8_0", 64)),
        "quant_parts": Call(formats.quant_parts, ("q8_0", packed, 64)),
        "quantize_scaled": Call(formats.quantize_scaled, ("int8/32", values.T)),
        "register_format": Call(formats.register_format, (own,)),
        "registered_formats": Call(formats.registered_formats),
        "scaled_scheme": Call(formats.scaled_scheme, ("int8/32",)),
        "unpack_panels": Call(formats.unpack_panels, ("q8_0", panels, 64, 2)),
        "unpack_planes": Call(formats.unpack_planes, ("q8_0", planes, 64)),
    }


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_encoders.BERT
    return tiny_encoders.write(tmp_path_factory.mktemp("encoder"), config, tiny_encoders.tensors(config))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, encoder: Path) -> dict[str, dict[str, Call]]:
    folder = tmp_path_factory.mktemp("artefacts")
    return {
        "Value": values_of_graphs(),
        "GraphModule": modules(),
        "Executable": executables(),
        "Artifact": descriptions(folder),
        "Model": models(tiny_llama),
        "Session": sessions(tiny_llama, folder),
        "Engine": engines(tiny_llama),
        "Encoder": encoders(encoder),
        "choosing": of_choosing(),
        "formats": of_formats(),
        "optim": of_optim(),
        "functions": functions(folder, tiny_llama, encoder),
    }


GROUPS = [
    "Value",
    "GraphModule",
    "Executable",
    "Artifact",
    "Model",
    "Session",
    "Engine",
    "Encoder",
    "choosing",
    "formats",
    "optim",
]
GROUPS += ["functions"]
#: Public for the modules beside them alone.
INTERNAL = {
    rlx.GraphModule: {"from_ir", "invalidate", *EVERY_PRIMITIVE, *BLOCKS},  # the last two are called above
    rlx.Model: {"checked_ids", "give_back", "note", "prompt_ids", "session_for", "task"},
    rlx.Session: {
        *("advance", "all_logits", "check", "choosable", "decode", "extended", "follow", "keep", "load", "moved_to"),
        *("not_finite", "prefill", "rows", "take_over"),
    },
}


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where functions write that take a wrong value for the name of a folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=[pytest.mark.wide] * (name == "GraphModule")) for name in GROUPS]
)
def test_every_function_of_the_api(group: str, everything: dict[str, dict[str, Call]]) -> None:
    wrong = {name: found for name, call in everything[group].items() if (found := list(foreign_errors_of(call)))}
    assert wrong == {}


def test_every_function_of_the_api_is_called_here(everything: dict[str, dict[str, Call]]) -> None:
    owners = (rlx.GraphModule, rlx.Executable, rlx.Artifact, rlx.Model, rlx.Session, rlx.Engine, rlx.Encoder, rlx.Value)
    for owner in owners:
        called = everything[owner.__name__].keys()
        assert methods(owner) - INTERNAL.get(owner, set()) - {"__call__"} <= called | {"primitives"}, owner
    assert {*structured.__all__, *choosing.__all__} - {"Guide", "Processor", "TokenLogprob"} <= everything[
        "choosing"
    ].keys()
    named = {name for name in formats.__all__ if inspect.isfunction(getattr(formats, name))}
    assert named <= everything["formats"].keys()
    assert {name for name in optim.__all__ if name.islower()} == everything["optim"].keys()
    classes = {owner.__name__ for owner in owners} | {"Request"}  # whose methods have no arguments
    on_gpus = {"CudaExecutable", "DeviceArray"}  # test_cuda.py, test_device_array.py: they need a driver
    assert set(rlx.__all__) - classes - on_gpus - {"errors", "optim", "training"} == everything["functions"].keys()
