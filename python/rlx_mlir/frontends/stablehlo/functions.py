# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of JAX as modules: by `jax.export`, with nested structures of arguments and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import checks
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.checks import Option
from rlx_mlir.errors import InputError, StablehloError
from rlx_mlir.place import located

from .model import Argument, StablehloModel, built, words_of
from .reader import generic_text
from .source import Jax, jax_library, parsed_text

if TYPE_CHECKING:
    from rlx_mlir.runtime.executable import Executable


@dataclass(frozen=True)
class JaxProgram(StablehloModel):
    """A function of JAX: what `rlx_mlir.from_jax` gives.

    Attributes:
        bound: by the number of an argument that is of parameters, what it is.
    """

    bound: Mapping[int, Jax]
    _trees: tuple[Jax, Jax]
    _leaves: tuple[str | None, ...]

    @located
    def compile(self, **options: Option) -> JaxExecutable:
        """Compiles the module, and binds the parameters.

        Args:
            options: as of `rlx_mlir.compile`.

        Raises what `rlx_mlir.compile` raises, and InputError for a target: `rlx_mlir.compile(program.module, target=…)`
        compiles for GPUs.
        """
        if options.get("target", "cpu") != "cpu":
            raise InputError(
                "what is called as the function is runs on CPUs: rlx_mlir.compile(program.module, target=…) for GPUs"
            )
        return JaxExecutable(self, super().compile(**options))


class JaxExecutable:
    """A compiled function, called as the function of JAX is, without the arguments that are parameters.

    Attributes:
        executable: what runs it, by names of inputs.
    """

    def __init__(self, program: JaxProgram, executable: Executable) -> None:
        self._program = program
        self.executable = executable

    @located
    def __call__(self, *args: Jax, **kwargs: Jax) -> Jax:
        """The function's results, arrays of numpy in the function's own structure.

        Args:
            args, kwargs: in the structure of the example; arrays of numpy or of JAX, or numbers.

        Raises InputError for another structure, and what `Executable.run` raises.
        """
        program, jax = self._program, jax_library()
        given = list(args)
        for number, bound in sorted(program.bound.items()):
            given.insert(number, bound)
        in_tree, out_tree = program._trees
        leaves, tree = jax.tree_util.tree_flatten((tuple(given), kwargs))
        if tree != in_tree:
            raise InputError(f"the function was exported to be called with {in_tree}, but got {tree}")
        dtypes = {value.name: value.dtype for value in program.module.inputs}
        inputs = {}
        for name, leaf in zip(program._leaves, leaves, strict=True):
            if name in dtypes:
                array = np.asarray(leaf)
                # As JAX takes them: numbers of Python, and types of 64 bits that it has as ones of 32.
                is_number = isinstance(leaf, bool | int | float)
                is_one = is_number or jax.dtypes.canonicalize_dtype(array.dtype) == dtypes[name]
                inputs[name] = array.astype(dtypes[name], copy=False) if is_one else array
        found = self.executable.run(inputs)
        return jax.tree_util.tree_unflatten(out_tree, [found[name] for name in program.outputs])


@located
def from_jax(
    function: Callable[..., object],
    *args: Jax,
    params: int | Sequence[int] = (),
    name: str | None = None,
    **kwargs: Jax,
) -> JaxProgram:
    """A function of JAX as a module, by `jax.export`.

    Args:
        function: of arrays in nested structures; one that `jax.jit` gave keeps what it was told, such as
            `donate_argnums`; or what `jax.export.export(…)(…)` gave, without examples.
        args, kwargs: examples of what it is called with: arrays, or `jax.ShapeDtypeStruct`s, whose sizes may be those
            of `jax.export.symbolic_shape`: their names are the symbols of the module.
        params: numbers of the arguments whose arrays are parameters: bound once, and prepared as kernels want them.
        name: of the module; by default that of the function.

    Raises StablehloUnsupportedError, which lists every operation that has no counterpart, how often and where the
    function has it first; UnsupportedError where jax isn't installed; and what `jax.export` raises.
    """
    jax = jax_library()
    chosen = list(params) if isinstance(params, Sequence) else [params]
    for number in chosen:
        if type(number) is not int or not 0 <= number < len(args):
            raise InputError(
                f"'params' has numbers of the {len(args)} arguments, from 0, but got {checks.shown(number)}"
            )
    if isinstance(function, jax.export.Exported):
        if args or kwargs:
            raise InputError("an exported function has its examples already, but 'args' or 'kwargs' were given")
        exported = function
    elif callable(function):
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        exported = jax.export.export(jitted)(*args, **kwargs)
    else:
        raise InputError(f"'function' is a function or an Exported, but got {checks.shown(function)}")
    name = checks.text("name", name) if name is not None else _name_of(exported.fun_name)
    return of_exported(exported, name, {number: args[number] for number in chosen}, function)


def of_exported(
    exported: Jax, name: str, bound: Mapping[int, Jax], function: Callable[..., object] | None = None
) -> JaxProgram:
    """The program of an exported function.

    Args:
        bound: by the number of an argument that is of parameters, what it is.
        function: whose arguments have names.
    """
    jax = jax_library()
    if exported.nr_devices != 1:
        raise InputError(f"a function for one device, but this one is for {exported.nr_devices}")
    paths = _paths(jax, exported, function)
    arrays = _arrays(jax, exported, bound)
    kept = list(exported.module_kept_var_idx)
    arguments = []
    for number in kept:
        shape = [size if isinstance(size, int) else str(size) for size in exported.in_avals[number].shape]
        arguments.append(Argument(paths[number], shape, arrays.get(number)))
    with foreign_errors(f"'{name}'", StablehloError):
        text = generic_text(exported.mlir_module_serialized)
    model = built(parsed_text(text, f"'{name}'"), name, arguments)
    leaves = tuple(path if number in kept else None for number, path in enumerate(paths))
    trees = (exported.in_tree, exported.out_tree)
    return JaxProgram(model.module, model.params, dict(bound), trees, leaves)


def deserialized(content: bytes, name: str | None) -> JaxProgram:
    """The program of what `jax.export` serialised."""
    jax = jax_library()
    with foreign_errors("the serialised function", StablehloError):
        exported = jax.export.deserialize(bytearray(content))
    return of_exported(exported, name or _name_of(exported.fun_name), {})


def _paths(jax: ModuleType, exported: Jax, function: Callable[..., object] | None) -> list[str]:
    """A name for each array of the arguments: `p.layers.0.wq`."""
    numbers = list(range(exported.in_tree.num_leaves))
    args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, numbers)
    names = _parameters(function, len(args))
    found: dict[int, str] = {}
    for prefix, tree in (*zip(names, args, strict=True), *kwargs.items()):
        for path, number in jax.tree_util.tree_flatten_with_path(tree)[0]:
            found[number] = words_of(f"{prefix}{jax.tree_util.keystr(path)}")
    listed: list[str] = []
    for number in numbers:
        own = found[number]
        listed.append(own if own not in listed else f"{own}_{number}")
    return listed


def _parameters(function: Callable[..., object] | None, count: int) -> list[str]:
    """Names of a function's first arguments."""
    known: list[str] = []
    if function is not None:
        with suppress(TypeError, ValueError):  # functions of C may have no signature
            known = [
                own.name
                for own in inspect.signature(function).parameters.values()
                if own.kind in (own.POSITIONAL_ONLY, own.POSITIONAL_OR_KEYWORD)
            ]
    return [known[number] if number < len(known) else f"arg{number}" for number in range(count)]


def _arrays(jax: ModuleType, exported: Jax, bound: Mapping[int, Jax]) -> dict[int, np.ndarray]:
    """The arrays of arguments that are parameters, by their number among all arrays."""
    numbers = list(range(exported.in_tree.num_leaves))
    args, _ = jax.tree_util.tree_unflatten(exported.in_tree, numbers)
    found = {}
    for argument, value in bound.items():
        own, leaves = jax.tree_util.tree_leaves(args[argument]), jax.tree_util.tree_leaves(value)
        for number, leaf in zip(own, leaves, strict=True):
            if not hasattr(leaf, "__array__") and not isinstance(leaf, int | float):
                raise InputError(f"argument {argument} is of parameters: arrays, but got {checks.shown(leaf)}")
            array = np.asarray(leaf)
            wanted = exported.in_avals[number].dtype
            found[number] = array if array.dtype == wanted else array.astype(wanted)
    return found


def _name_of(text: str) -> str:
    return "_".join(words_of(text).split(".")) or "function"
