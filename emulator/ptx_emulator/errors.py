# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is raised where PTX does wrong."""

from __future__ import annotations

from rlx_mlir.errors import ExecutionError


class EmulationError(ExecutionError):
    """PTX did what the emulator knows to be wrong or undefined, or used an instruction that it doesn't know.

    Attributes:
        kernel: the entry that ran, or empty.
        line: line of the PTX text, from 1, or 0.
        instruction: its text, or empty.
        thread: the first thread concerned, such as ``block (0, 0, 0) thread (3, 0, 0)``, or empty.
    """

    def __init__(
        self, message: str, *, kernel: str = "", line: int = 0, instruction: str = "", thread: str = ""
    ) -> None:
        self.kernel = kernel
        self.line = line
        self.instruction = instruction
        self.thread = thread
        parts = [f"kernel '{kernel}'" if kernel else "", f"PTX line {line}" if line else "", thread]
        place = ", ".join(filter(None, parts))
        text = f"{place}: {message}" if place else message
        super().__init__(f"{text}\n  {instruction}" if instruction else text)
