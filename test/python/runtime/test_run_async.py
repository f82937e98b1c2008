# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls that are awaited: order, errors at the caller's line, cancellation, and an event loop that goes on."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading

import numpy as np
import pytest
from compile_harness import compile_fresh

from rlx_mlir import Executable, GraphModule
from rlx_mlir.errors import InputError


@pytest.fixture(scope="module")
def counter() -> Executable:
    """count -> count + x; in the memory of `count` where that is donated."""
    m = GraphModule.hir("counter")
    count = m.input("count", ["n"])
    m.set_outputs({"new": m.add(count, m.input("x", ["n"]))}, tied={"new": "count"})
    return compile_fresh(m, maxima={"n": 1 << 22})


def test_results_are_those_of_run(counter: Executable) -> None:
    inputs = {"count": np.arange(5, dtype=np.float32), "x": np.full(5, 0.5, np.float32)}
    into = np.empty(5, np.float32)
    found = asyncio.run(counter.run_async(inputs, outputs={"new": into}))
    assert found["new"] is into
    assert np.array_equal(into, counter.run(inputs)["new"])


def test_calls_run_in_the_order_in_which_they_were_begun(counter: Executable) -> None:
    count = np.zeros(64, np.float32)
    steps = [np.full(64, 2.0**-k, np.float32) for k in range(20)]

    async def every() -> list[float]:
        calls = (counter.run_async({"count": count, "x": step}, donate=("count",)) for step in steps)
        found = await asyncio.gather(*calls)
        return [float(own["new"][0]) for own in found]

    asyncio.run(every())
    assert count[0] == sum(2.0**-k for k in range(20))


def test_the_event_loop_goes_on(counter: Executable) -> None:
    large = {name: np.ones(1 << 22, np.float32) for name in ("count", "x")}

    async def both() -> int:
        call = asyncio.ensure_future(counter.run_async(large))
        turns = 0
        while not call.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await call)["new"][-1] == 2
        return turns

    assert asyncio.run(both()) > 1


def test_errors_name_the_line_that_awaits(counter: Executable) -> None:
    x = np.zeros(3, np.float32)

    async def wrong() -> None:
        await counter.run_async({"count": x, "y": x})

    line = inspect.getsourcelines(wrong)[1] + 1
    with pytest.raises(InputError, match=rf"{__file__}:{line}: 'counter': missing inputs: x; unknown inputs: y"):
        asyncio.run(wrong())


def test_a_call_that_is_cancelled_before_its_turn_does_not_run(counter: Executable) -> None:
    begun, go_on = threading.Event(), threading.Event()
    count, x = np.zeros(4, np.float32), np.ones(4, np.float32)

    def hold() -> None:
        begun.set()
        go_on.wait()

    async def cancelled() -> None:
        held = counter._worker.submit(hold)
        begun.wait()
        call = asyncio.ensure_future(counter.run_async({"count": count, "x": x}, donate=("count",)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()
        await asyncio.wrap_future(held)
        await counter.run_async({"count": count, "x": x}, donate=("count",))

    asyncio.run(cancelled())
    assert count.tolist() == [1] * 4


def test_the_thread_ends_with_the_executable() -> None:
    m = GraphModule.hir("doomed")
    m.set_outputs({"y": m.silu(m.input("x", [4]))})
    executable = compile_fresh(m)
    asyncio.run(executable.run_async({"x": np.zeros(4, np.float32)}))
    named = [thread for thread in threading.enumerate() if thread.name.startswith("rlx doomed")]
    assert len(named) == 1
    del executable
    gc.collect()
    named[0].join(timeout=60)
    assert not named[0].is_alive()
