# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as a timeline that Perfetto (ui.perfetto.dev) and chrome://tracing show."""

from __future__ import annotations

from rlx_mlir.measure.profile import Profile, ProgramProfile

_PROCESS = 1


def trace(profile: Profile) -> dict[str, object]:
    """The profile in Chrome's trace format: a row for each module, a slice for each run, and one for each call in it.

    Calls lie one after the other: what lies between them in a run is at its end. Slices of calls say which block they
    come from, and what they read, write and compute.
    """
    begin = min(run.begin for program in profile.programs for run in program.runs)
    events: list[dict[str, object]] = [_name("process_name", 0, f"rlx profile {profile.model}")]
    for number, program in enumerate(profile.programs):
        events.append(_name("thread_name", number, program.name))
        events += _slices(program, number, begin)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"machine": str(profile.roofline)}}


def _name(what: str, row: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": row, "args": {"name": name}}


def _slices(program: ProgramProfile, row: int, begin: float) -> list[dict[str, object]]:
    events = []
    for run, work in zip(program.runs, program.work, strict=True):
        start = (run.begin - begin) * 1e6
        events.append(_slice(program.name, "run", row, start, run.seconds, {**run.sizes, "position": run.position}))
        for call, seconds, own in zip(program.calls, run.calls, work, strict=True):
            arguments = {
                "block": call.block,
                "source": call.source,
                "operations": ", ".join(call.ops),
                "template": program.templates.get(call.kernel, ""),
                "bytes read": own.read,
                "bytes written": own.written,
                "operations done": own.flops,
            }
            if seconds:
                arguments["GB/s"] = round(own.bytes / seconds / 1e9, 3)
                arguments["GFLOP/s"] = round(own.flops / seconds / 1e9, 3)
                least = program.roofline.seconds(own.flops, own.bytes, integer=call.integer)
                arguments["of roofline"] = f"{least / seconds:.0%}"
            events.append(_slice(call.kernel, call.kind, row, start, seconds, arguments))
            start += seconds * 1e6
    return events


def _slice(
    name: str, category: str, row: int, start: float, seconds: float, arguments: dict[str, object]
) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": _PROCESS,
        "tid": row,
        "ts": round(start, 3),
        "dur": round(seconds * 1e6, 3),
        "args": arguments,
    }
