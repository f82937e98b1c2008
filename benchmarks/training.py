# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of steps of training, and of gradients: ours, torch and JAX where they are installed, in turns.

    python benchmarks/training.py --rounds 9 --threads 1
    python benchmarks/training.py --only encoder --cpu-time

- `mlp`: a step of AdamW of two layers, 768 to 3072 to 768, of 128 rows.
- `encoder`: a step of AdamW of a layer of BERT-small, 8 texts of 128 tokens: width 512, 8 heads, 2048 between.
- `attention`: the gradients of causal attention by q, k and v, 12 heads of 64, 512 tokens, forward part included.

Results are compared first. `torch.compile` needs a C++ compiler; `jax` is a step under jax.jit whose parameters are
donated, AdamW written out. `vs` says how many times longer the other takes. `--cpu-time` counts the process's own time,
which says something on a machine that does something else, too: for one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from harness import interleave, ratios, report, versions

import rlx_mlir as rlx
from rlx_mlir import optim

Arrays = dict[str, np.ndarray]
Step = Callable[[], Arrays]
F32 = np.float32
RATE = 1e-4


def normal(*shape: int, seed: int, scale: float = 1.0) -> np.ndarray:
    """Random numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(F32)


# -- the networks, in terms of what `Ours` and `Torch` have ------------------------------------------------------------


class Ours:
    """A graph's builders under the names that both have."""

    def __init__(self, m: rlx.GraphModule) -> None:
        self._m = m.primitives

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        """x w + b"""
        return self._m.matmul(x, w) + b

    def gelu(self, x: Any) -> Any:
        """By erf."""
        return self._m.gelu(x)

    def norm(self, x: Any, gamma: Any, beta: Any) -> Any:
        """Of the last dimension."""
        return self._m.layer_norm(x, gamma, beta)

    def attention(self, q: Any, k: Any, v: Any, heads: int, head: int) -> Any:
        """Of all tokens; heads beside each other."""
        return self._m.attention(q, k, v, num_heads=heads, head_dim=head)

    def mean_square(self, x: Any) -> Any:
        """The mean of all squares."""
        return self._m.mean(x * x)


class Torch:
    """The same by torch."""

    def __init__(self) -> None:
        import torch

        self._f = torch.nn.functional

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        """x w + b"""
        return x @ w + b

    def gelu(self, x: Any) -> Any:
        """By erf."""
        return self._f.gelu(x)

    def norm(self, x: Any, gamma: Any, beta: Any) -> Any:
        """Of the last dimension."""
        return self._f.layer_norm(x, gamma.shape, gamma, beta)

    def attention(self, q: Any, k: Any, v: Any, heads: int, head: int) -> Any:
        """Of all tokens; heads beside each other."""
        q, k, v = (x.unflatten(-1, (heads, head)).transpose(1, 2) for x in (q, k, v))
        return self._f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def mean_square(self, x: Any) -> Any:
        """The mean of all squares."""
        return (x * x).mean()


class Jax:
    """The same by JAX."""

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        """x w + b"""
        return x @ w + b

    def gelu(self, x: Any) -> Any:
        """By erf."""
        import jax

        return jax.nn.gelu(x, approximate=False)

    def norm(self, x: Any, gamma: Any, beta: Any) -> Any:
        """Of the last dimension."""
        import jax

        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    def attention(self, q: Any, k: Any, v: Any, heads: int, head: int) -> Any:
        """Of all tokens; heads beside each other."""
        import jax

        own = [x.reshape(*x.shape[:-1], heads, head) for x in (q, k, v)]
        return jax.nn.dot_product_attention(*own).reshape(q.shape)

    def mean_square(self, x: Any) -> Any:
        """The mean of all squares."""
        return (x * x).mean()


MLP = {"w1": (768, 3072), "b1": (3072,), "w2": (3072, 768), "b2": (768,)}


def mlp(ops: Any, x: Any, t: Any, p: Mapping[str, Any]) -> Any:
    """The loss."""
    return ops.mean_square(ops.linear(ops.gelu(ops.linear(x, p["w1"], p["b1"])), p["w2"], p["b2"]) - t)


_PARTS = {"q": (512, 512), "k": (512, 512), "v": (512, 512), "o": (512, 512), "up": (512, 2048), "down": (2048, 512)}
ENCODER: dict[str, tuple[int, ...]] = {
    **{f"{name}.w": shape for name, shape in _PARTS.items()},
    **{f"{name}.b": shape[1:] for name, shape in _PARTS.items()},
    **{f"{name}.{part}": (512,) for name in ("first", "second") for part in ("gamma", "beta")},
}


def encoder(ops: Any, x: Any, t: Any, p: Mapping[str, Any]) -> Any:
    """The loss."""

    def linear(x: Any, name: str) -> Any:
        return ops.linear(x, p[f"{name}.w"], p[f"{name}.b"])

    q, k, v = (linear(x, name) for name in "qkv")
    h = ops.norm(x + linear(ops.attention(q, k, v, 8, 64), "o"), p["first.gamma"], p["first.beta"])
    y = ops.norm(h + linear(ops.gelu(linear(h, "up")), "down"), p["second.gamma"], p["second.beta"])
    return ops.mean_square(y - t)


Loss = Callable[[Any, Any, Any, Mapping[str, Any]], Any]
STEPS: dict[str, tuple[Loss, Mapping[str, tuple[int, ...]], Sequence[int]]] = {
    "mlp": (mlp, MLP, (128, 768)),
    "encoder": (encoder, ENCODER, (8, 128, 512)),
}


def weights(shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Random weights, factors of norms near 1."""
    found = {}
    for number, (name, shape) in enumerate(shapes.items()):
        own = normal(*shape, seed=number, scale=1 / shape[0] ** 0.5 if len(shape) == 2 else 0.1)
        found[name] = own + F32(name.endswith("gamma"))
    return found


def our_step(name: str, threads: int) -> Step:
    """A step of training, which changes the parameters in place."""
    loss, shapes, sizes = STEPS[name]
    m = rlx.GraphModule.mir(name)
    x, t = m.input("x", sizes), m.input("t", sizes)
    p = {key: m.param(key, shape) for key, shape in shapes.items()}
    m.set_outputs({"loss": loss(Ours(m), x, t, p)})
    trainer = rlx.Trainer(m, weights(shapes), optim.adamw(), schedule=RATE, threads=threads)
    inputs = {"x": normal(*sizes, seed=100), "t": normal(*sizes, seed=101)}
    return lambda: {**trainer.step(inputs), **trainer.params}


def torch_step(name: str, threads: int, *, compiled: bool) -> Step:
    """The same by torch, or torch.compile."""
    import torch

    torch.set_num_threads(threads)
    loss, shapes, sizes = STEPS[name]
    p = {key: torch.nn.Parameter(torch.from_numpy(array)) for key, array in weights(shapes).items()}
    x, t = (torch.from_numpy(normal(*sizes, seed=seed)) for seed in (100, 101))
    optimizer = torch.optim.AdamW(p.values(), lr=RATE, fused=True)
    forward = (
        torch.compile(lambda x, t, p: loss(Torch(), x, t, p)) if compiled else lambda x, t, p: loss(Torch(), x, t, p)
    )

    def run() -> Arrays:
        optimizer.zero_grad(set_to_none=True)
        value = forward(x, t, p)
        value.backward()
        optimizer.step()
        return {"loss": value.detach().numpy(), **{key: own.detach().numpy() for key, own in p.items()}}

    return run


def jax_step(name: str) -> Step:
    """The same by JAX."""
    import jax
    import jax.numpy as jnp

    loss, shapes, sizes = STEPS[name]
    x, t = (jnp.asarray(normal(*sizes, seed=seed)) for seed in (100, 101))
    first, second, eps, decay = 0.9, 0.999, 1e-8, 0.01

    def update(p: Any, m: Any, v: Any, gradient: Any, number: Any) -> tuple[Any, Any, Any]:
        m, v = first * m + (1 - first) * gradient, second * v + (1 - second) * gradient * gradient
        step = m / (1 - first**number) / (jnp.sqrt(v / (1 - second**number)) + eps)
        return p - RATE * (step + decay * p), m, v

    def whole(p: Any, m: Any, v: Any, number: Any, x: Any, t: Any) -> tuple[Any, ...]:
        value, gradients = jax.value_and_grad(lambda p: loss(Jax(), x, t, p))(p)
        new = {key: update(p[key], m[key], v[key], gradients[key], number) for key in p}
        return value, *({key: own[part] for key, own in new.items()} for part in range(3))

    step = jax.jit(whole, donate_argnums=(0, 1, 2))
    kept: list[Any] = [weights(shapes), *({key: np.zeros(own, F32) for key, own in shapes.items()} for _ in range(2))]
    kept, number = [jax.device_put(own) for own in kept], 0

    def run() -> Arrays:
        nonlocal number
        number += 1
        value, *kept[:] = jax.block_until_ready(step(*kept, np.float32(number), x, t))
        return {"loss": value, **kept[0]}

    return run


def our_attention(threads: int) -> Step:
    """Gradients of attention."""
    m = rlx.GraphModule.mir("attention")
    q, k, v = (m.input(name, [1, 12, 512, 64]) for name in "qkv")
    m.set_outputs({"y": m.attention(q, k, v, num_heads=12, head_dim=64, mask_kind="causal", layout="bhsd")})
    executable = rlx.compile(rlx.vjp(m), threads=threads)
    inputs = {name: normal(1, 12, 512, 64, seed=n) for n, name in enumerate(("q", "k", "v", "d_y"))}
    return lambda: executable.run(inputs)


def torch_attention(threads: int, *, compiled: bool) -> Step:
    """The same by torch, or torch.compile."""
    import torch

    torch.set_num_threads(threads)
    q, k, v, d = (torch.from_numpy(normal(1, 12, 512, 64, seed=n)) for n in range(4))
    values = [x.requires_grad_() for x in (q, k, v)]

    def attention(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    forward = torch.compile(attention) if compiled else attention

    def run() -> Arrays:
        y = forward(*values)
        found = torch.autograd.grad(y, values, d)
        return {"y": y.detach().numpy(), **{f"d_{n}": g.numpy() for n, g in zip("qkv", found, strict=True)}}

    return run


def jax_attention() -> Step:
    """The same by JAX, which has tokens before heads."""
    import jax
    import jax.numpy as jnp

    q, k, v, d = (jnp.asarray(normal(1, 12, 512, 64, seed=n)) for n in range(4))

    def attention(*values: Any) -> Any:
        own = [x.transpose(0, 2, 1, 3) for x in values]
        return jax.nn.dot_product_attention(*own, is_causal=True).transpose(0, 2, 1, 3)

    def both(q: Any, k: Any, v: Any, d: Any) -> tuple[Any, Any]:
        y, backward = jax.vjp(attention, q, k, v)
        return y, backward(d)

    gradients = jax.jit(both)

    def run() -> Arrays:
        y, found = jax.block_until_ready(gradients(q, k, v, d))
        return {"y": y, **{f"d_{n}": g for n, g in zip("qkv", found, strict=True)}}

    return run


def timed(step: Step, clock: Callable[[], float]) -> Callable[[], float]:
    """Milliseconds of a call."""

    def run() -> float:
        begin = clock()
        step()
        return (clock() - begin) * 1e3

    return run


def sides(what: str, threads: int) -> dict[str, Step]:
    """Ours, and those that are installed."""
    if what == "attention":
        steps = {"ours": our_attention(threads)}
    else:
        steps = {"ours": our_step(what, threads)}
    if importlib.util.find_spec("torch") is not None:
        for name, compiled in (("torch", False), ("torch.compile", True)):
            if what == "attention":
                steps[name] = torch_attention(threads, compiled=compiled)
            else:
                steps[name] = torch_step(what, threads, compiled=compiled)
    if importlib.util.find_spec("jax") is not None:
        steps["jax"] = jax_attention() if what == "attention" else jax_step(what)
    return steps


def compared(results: Mapping[str, Arrays]) -> None:
    """Raises AssertionError where results differ by more than rounding."""
    own = results["ours"]
    for rival, found in results.items():
        for name, array in found.items():
            scale = float(np.abs(own[name]).max())
            np.testing.assert_allclose(array, own[name], atol=2e-4 * scale, rtol=1e-3, err_msg=f"{rival}: {name}")


def main() -> None:
    """Parses the command line, compares, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=[*STEPS, "attention"])
    parser.add_argument("--cpu-time", action="store_true", help="count the process's own time: for one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # JAX takes all processors that a process may run on, or one.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    if options.threads == 1:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows: list[dict[str, object]] = []
    for what in [options.only] if options.only else [*STEPS, "attention"]:
        steps = sides(what, options.threads)
        compared({name: step() for name, step in steps.items()})
        series = interleave({name: timed(step, clock) for name, step in steps.items()}, options.rounds)
        rows.append({"what": what, **ratios(series)})
    title = f"milliseconds of a step, {options.threads} threads"
    found = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None]
    report(title, rows, versions(["rlx-mlir", *found]), options.json)


if __name__ == "__main__":
    main()
