# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whose diagnostics a pass hears, where passes of other functions run at the same time."""

from __future__ import annotations

import threading

import pytest

from rlx_mlir import ir
from rlx_mlir.errors import PassError
from rlx_mlir.rewriting import compiler_pass, run_pipeline

#: Seconds that one function's pass waits for another's, which runs in another thread where there is one.
PATIENCE = 20.0

MODULE = """
func.func @guilty() { return }
func.func @innocent0() { return }
func.func @innocent1() { return }
func.func @innocent2() { return }
"""


class Meeting:
    """The pass of an innocent function begins before the guilty one's reports an error, and ends after it."""

    def __init__(self) -> None:
        self.begun, self.reported = threading.Event(), threading.Event()
        self.overlapped = False


meeting = Meeting()


@compiler_pass("test-report-while-others-run", anchor="func.func")
def report_while_others_run(function: ir.Operation) -> None:
    """Report an error about @guilty, without raising one, while the pass runs on another function."""
    if "guilty" in str(function.attributes["sym_name"]):
        meeting.overlapped = meeting.begun.wait(PATIENCE)
        function.location.emit_error("something is wrong")
        meeting.reported.set()
    else:
        meeting.begun.set()
        meeting.reported.wait(PATIENCE)


def test_a_pass_does_not_hear_what_is_wrong_with_other_functions() -> None:
    global meeting
    meeting = Meeting()
    context = ir.new_context()
    with context:
        module = ir.Module.parse(MODULE)
        with pytest.raises(PassError) as caught:
            run_pipeline(module, "func.func(test-report-while-others-run)")
    if not meeting.overlapped:
        pytest.skip("MLIR has one thread here")
    text = str(caught.value)
    assert "something is wrong" in text
    assert text.count("it reported an error, but didn't raise one") == 1
