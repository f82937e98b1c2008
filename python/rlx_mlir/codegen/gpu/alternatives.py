# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two schedules of one kernel, between which the host decides by the number of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter
from rlx_mlir.codegen.kernel import row_count

__all__ = ["by_rows"]

_NAME = re.compile(r"%\w+")


@dataclass(frozen=True)
class _Function:
    """A function of the host as text: its arguments, the lines between its braces, and what it returns."""

    arguments: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    returned: str

    def spliced(self, prefix: str, names: list[str]) -> tuple[list[str], str]:
        """The lines, and what is returned, with other names for the arguments and a prefix for all other values."""
        renamed = {own: name for (own, _), name in zip(self.arguments, names, strict=True)}

        def replace(match: re.Match[str]) -> str:
            return renamed.get(match[0]) or f"%{prefix}_{match[0][1:]}"

        return [_NAME.sub(replace, line) for line in self.lines], _NAME.sub(replace, self.returned)


def _function(text: str, name: str) -> _Function:
    found = re.search(
        rf"func\.func private @{re.escape(name)}\(([^\n]*?)\)(?: -> index)? \{{\n(.*?)^\}}", text, re.M | re.S
    )
    if found is None:
        raise ValueError(f"there is no function '{name}' in the host's part of a kernel")
    arguments = tuple(
        (own, type) for own, type in re.findall(r"(%\w+): (index|memref<[^>]*(?:<[^>]*>)?[^>]*>)", found[1])
    )
    *lines, last = found[2].rstrip().splitlines()
    word, _, returned = last.strip().partition(" ")
    if word != "return":
        raise ValueError(f"'{name}' ends in '{last.strip()}'")
    return _Function(arguments, tuple(lines), returned.partition(" :")[0])


def by_rows(name: str, few: DeviceKernel, many: DeviceKernel, limit: int, operand: int = 0) -> DeviceKernel:
    """A kernel that launches `few` for at most `limit` rows, and `many` for more.

    Args:
        few, many: schedules of the kernel `name`; the names of their functions of the device differ.
        operand: the operand whose sizes but the last are the rows.
    """
    bodies = [_function(kernel.host, f"{name}.body") for kernel in (few, many)]
    sizes = [_function(kernel.host, f"{name}.scratch") for kernel in (few, many)]
    types = [type for _, type in bodies[0].arguments]
    if types != [type for _, type in bodies[1].arguments]:
        raise ValueError(f"{name}: the schedules have other arguments: {types}, {bodies[1].arguments}")
    em = HostEmitter()
    arguments = [(f"a{number}", type) for number, type in enumerate(types)]
    with em.func(f"{name}.body", arguments) as values:
        rows = row_count(em, values[operand])
        with em.if_(em.cmpi("ule", em.index(rows), limit)) as branch:
            for number, body in enumerate(bodies):
                if number:
                    branch.else_()
                for line in body.spliced(("few", "many")[number], list(values))[0]:
                    em.line(line.strip())
    with em.func(f"{name}.units", arguments[:-3], ["index"]):
        em.return_([em.const(1)])
    with em.func(f"{name}.scratch", arguments[:-3], ["index"]) as values:
        needed = []
        for prefix, size in zip(("few", "many"), sizes, strict=True):
            lines, returned = size.spliced(prefix, list(values))
            for line in lines:
                em.line(line.strip())
            needed.append(returned)
        em.line(f"%most = arith.maxsi {needed[0]}, {needed[1]} : index")
        em.line("return %most : index")
    return DeviceKernel(f"{few.schedule}|{many.schedule}", f"{few.device}\n{many.device}", em.text())
