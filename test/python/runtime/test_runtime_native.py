# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The native run-time part: thread pool, object loader, plan executor. Kernels here are C, compiled by `cc`."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from rlx_mlir import native
from rlx_mlir.errors import ExecutionError, InputError

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
WIDTH = 24

KERNELS = """
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#define ARGS void *const *b, const int64_t *d, int64_t begin, int64_t end, void *scratch
enum { W = 24 };

/* y[r, :] = x[r, :] * w; units are rows */
void scale(ARGS) {
  const float *x = b[0], *w = b[1]; float *y = b[2]; (void)d; (void)scratch;
  for (int64_t r = begin; r < end; ++r)
    for (int i = 0; i < W; ++i) y[r * W + i] = x[r * W + i] * w[i];
}
int64_t scale_units(const int64_t *d) { return d[0]; }
int64_t scale_scratch(const int64_t *d) { (void)d; return 0; }

/* y[r] = exp of the sum of x[r, :], summed from the end by way of the scratch memory */
void total(ARGS) {
  const float *x = b[0]; float *y = b[1], *row = scratch; (void)d;
  for (int64_t r = begin; r < end; ++r) {
    for (int i = 0; i < W; ++i) row[i] = x[r * W + W - 1 - i];
    float sum = 0;
    for (int i = 0; i < W; ++i) sum += row[i];
    y[r] = expf(sum);
  }
}
int64_t total_units(const int64_t *d) { return d[0]; }
int64_t total_scratch(const int64_t *d) { (void)d; return 128; }

/* y[u] = address of the scratch memory; every unit takes a while */
void where(ARGS) {
  int64_t *y = b[0]; (void)d;
  for (int64_t u = begin; u < end; ++u) { y[u] = (int64_t)scratch; usleep(3000); }
}
int64_t where_units(const int64_t *d) { return d[0]; }
int64_t where_scratch(const int64_t *d) { (void)d; return 64; }

/* y[u] = rounding mode */
void rounding(ARGS) { int *y = b[0]; (void)d; (void)scratch; for (; begin < end; ++begin) y[begin] = fegetround(); }
int64_t rounding_units(const int64_t *d) { return d[0]; }
int64_t rounding_scratch(const int64_t *d) { (void)d; return 64; }
int round_up(void) { return fesetround(FE_UPWARD); }
int round_nearest(void) { return fesetround(FE_TONEAREST); }

/* needs more scratch memory for small sizes */
void greedy(ARGS) { (void)b; (void)d; (void)begin; (void)end; (void)scratch; }
int64_t greedy_units(const int64_t *d) { return d[0]; }
int64_t greedy_scratch(const int64_t *d) { return 4096 * (10 - d[0]); }

/* y[u] = the sum of all units' numbers: units leave theirs in memory that they share */
void sharing(ARGS) { int64_t *all = b[1]; (void)d; (void)scratch; for (; begin < end; ++begin) all[begin] = begin; }
int64_t sharing_units(const int64_t *d) { return d[0]; }
int64_t sharing_scratch(const int64_t *d) { (void)d; return 0; }
int64_t sharing_shared(const int64_t *d) { return d[0] % 2 ? 8 * d[0] : 16 * d[0]; }
void sharing_finish(ARGS) {
  int64_t *y = b[0], *all = b[1], *sum = scratch;
  for (; begin < end; ++begin) {
    *sum = 0;
    for (int64_t u = 0; u < d[0]; ++u) *sum += all[u];
    y[begin] = *sum;
  }
}
int64_t sharing_finish_units(const int64_t *d) { return d[0]; }
int64_t sharing_finish_scratch(const int64_t *d) { (void)d; return 4096; }

/* y = x, of integers */
void copy(ARGS) {
  const int *x = b[0]; int *y = b[1]; (void)d; (void)scratch;
  for (; begin < end; ++begin) y[begin] = x[begin];
}
int64_t copy_units(const int64_t *d) { return d[0]; }
int64_t copy_scratch(const int64_t *d) { (void)d; return 0; }

void nothing(ARGS) { (void)b; (void)d; (void)begin; (void)end; (void)scratch; }
int64_t nothing_units(const int64_t *d) { return d[0]; }
int64_t nothing_scratch(const int64_t *d) { (void)d; return 0; }

extern float no_such_function(float);
"""


def compile_c(source: str, folder: Path, name: str) -> bytes:
    path = folder / f"{name}.c"
    path.write_text(source)
    options = ["-O2", "-fPIC", "-fno-stack-protector"]
    subprocess.run([COMPILER, *options, "-c", path, "-o", folder / f"{name}.o"], check=True)
    return (folder / f"{name}.o").read_bytes()


def functions_of(library: str, *names: str) -> list[tuple[str, int]]:
    """Names and addresses of functions of a library, for code that calls them."""
    found = ctypes.CDLL(library)
    return [(name, ctypes.cast(found[name], ctypes.c_void_p).value) for name in names]


@pytest.fixture(scope="module")
def kernels_object(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler")
    return compile_c(KERNELS, tmp_path_factory.mktemp("kernels"), "kernels")


def loaded(kernels_object):
    functions = functions_of("libm.so.6", "fegetround", "fesetround") + functions_of("libc.so.6", "usleep")
    return native.ObjectCode([kernels_object], functions)


@pytest.fixture(scope="module")
def code(kernels_object):
    return loaded(kernels_object)


# The pool


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("units", [0, 1, 2, 3, 7, 100])
def test_parallel_for_cuts_units_in_order(units, threads):
    ranges = []
    native.parallel_for(lambda begin, end, thread: ranges.append((begin, end, thread)), units, threads)
    team = min(units, threads)
    expected = [(units * t // team, units * (t + 1) // team) for t in range(team)]
    assert sorted((begin, end) for begin, end, _ in ranges) == expected
    assert all(0 <= thread < team for _, _, thread in ranges)


def threads_of_one_region(threads):
    seen = set()
    native.parallel_for(lambda *_: (seen.add(threading.get_ident()), time.sleep(0.03)), threads, threads)
    return len(seen)


def test_parallel_for_wakes_sleeping_workers():
    # On a busy machine a worker may come late, and the caller then does its range.
    teams = []
    while len(teams) < 20 and 3 not in teams:
        time.sleep(0.01)  # longer than workers spin
        teams.append(threads_of_one_region(3))
    assert max(teams) == 3
    assert native.worker_count() >= 2


def test_workers_that_slept_may_use_all_cpus():
    allowed: dict[int, set[int]] = {}

    def note(begin, end, thread):
        allowed[threading.get_native_id()] = os.sched_getaffinity(0)
        time.sleep(0.002)  # leaves the other ranges to the workers

    for _ in range(100):
        native.parallel_for(note, 2, 2)
        time.sleep(0.005)
    assert len(allowed) > 1
    assert all(cpus == os.sched_getaffinity(0) for cpus in allowed.values())


def test_parallel_for_more_threads_than_cpus():
    threads = 4 * native.available_cpus()
    for _ in range(50):
        done = []
        native.parallel_for(lambda begin, end, _, done=done: done.extend(range(begin, end)), 5 * threads, threads)
        assert sorted(done) == list(range(5 * threads))


def test_parallel_for_from_several_host_threads():
    failures = []

    def host(units):
        for _ in range(30):
            done = []
            native.parallel_for(lambda begin, end, _: done.extend(range(begin, end)), units, 3)  # noqa: B023
            if sorted(done) != list(range(units)):
                failures.append(done)

    hosts = [threading.Thread(target=host, args=(units,)) for units in (3, 7, 50, 101)]
    for thread in hosts:
        thread.start()
    for thread in hosts:
        thread.join()
    assert not failures


def test_parallel_for_nested_runs_on_its_own_thread():
    inner = []

    def outer(begin, end, _):
        me = threading.get_ident()
        native.parallel_for(lambda b, e, t: inner.append((b, e, t, threading.get_ident() == me)), 10, 2)

    native.parallel_for(outer, 2, 2)
    assert inner == [(0, 10, 0, True)] * 2


def test_parallel_for_raises_the_first_exception_after_all_ranges():
    ran = []

    def fn(begin, end, thread):
        ran.append(begin)
        raise KeyError(f"unit {begin}")

    with pytest.raises(KeyError, match="unit"):
        native.parallel_for(fn, 3, 3)
    assert sorted(ran) == [0, 1, 2]


def test_parallel_for_refuses_a_wrong_team():
    with pytest.raises(InputError, match=r"from 0 to 1024, but it is 1025"):
        native.parallel_for(print, 3, 1025)


def test_pool_survives_fork():
    native.parallel_for(lambda *_: None, 3, 3)
    assert native.worker_count() >= 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of Python warn of forks in a threaded process
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        fresh = native.worker_count() == 0
        done = []
        native.parallel_for(lambda begin, end, _: done.extend(range(begin, end)), 10, 3)
        os._exit(0 if fresh and sorted(done) == list(range(10)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# The number of threads


def test_default_threads_is_within_the_affinity_mask(monkeypatch):
    monkeypatch.delenv("RLX_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert native.available_cpus() == len(os.sched_getaffinity(0))
    assert 1 <= native.default_threads() <= native.available_cpus()


def test_default_threads_obeys_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("RLX_NUM_THREADS", raising=False)
    assert native.default_threads() == 1
    monkeypatch.setenv("RLX_NUM_THREADS", "5")
    assert native.default_threads() == 5
    monkeypatch.delenv("RLX_NUM_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert native.default_threads() >= 1


@pytest.mark.parametrize("value", ["", "0", "-1", "two", "2.0", " 2", "1025", "99999999999999999999"])
def test_default_threads_names_an_invalid_variable(monkeypatch, value):
    monkeypatch.setenv("RLX_NUM_THREADS", value)
    with pytest.raises(InputError, match=rf"RLX_NUM_THREADS must be .* from 1 to 1024, but it is '{value}'"):
        native.default_threads()


def fake_system(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> str:
    for path, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return str(root)


MOUNT2 = "30 20 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNT1 = "33 25 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
CPU1 = "sys/fs/cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files", "quota"),
    [
        ("", "", {}, None),
        ("0::/a/b\n", MOUNT2, {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", MOUNT2, {"sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, 1.5),
        # The limit of an outer group binds, too.
        (
            "0::/a/b\n",
            MOUNT2,
            {"sys/fs/cgroup/a/b/cpu.max": "800000 100000\n", "sys/fs/cgroup/a/cpu.max": "200000 100000\n"},
            2.0,
        ),
        # In a container with a namespace of its own.
        ("0::/\n", MOUNT2, {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/../outside\n", MOUNT2, {"sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3.0),
        (
            "5:memory:/x\n4:cpu,cpuacct:/docker/1\n",
            MOUNT1.format(root="/"),
            {f"{CPU1}/docker/1/cpu.cfs_quota_us": "400000\n", f"{CPU1}/docker/1/cpu.cfs_period_us": "100000\n"},
            4.0,
        ),
        (
            "4:cpu,cpuacct:/docker/1\n",
            MOUNT1.format(root="/"),
            {f"{CPU1}/docker/1/cpu.cfs_quota_us": "-1\n", f"{CPU1}/docker/1/cpu.cfs_period_us": "100000\n"},
            None,
        ),
        # The container sees its own group as the root of the mount.
        (
            "4:cpu,cpuacct:/docker/1\n",
            MOUNT1.format(root="/docker/1"),
            {f"{CPU1}/cpu.cfs_quota_us": "250000\n", f"{CPU1}/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
        # A mount root that is only a prefix of the text of the path.
        (
            "4:cpu,cpuacct:/docker/12\n",
            MOUNT1.format(root="/docker/1"),
            {f"{CPU1}/cpu.cfs_quota_us": "100000\n", f"{CPU1}/cpu.cfs_period_us": "100000\n"},
            1.0,
        ),
        ("nonsense\n", "more nonsense\n - cgroup2\n", {}, None),
    ],
)
def test_cpu_quota(tmp_path, cgroup, mounts, files, quota):
    assert native.cpu_quota(fake_system(tmp_path, cgroup, mounts, files)) == quota


# The loader


def test_import_needs_neither_mlir_nor_the_compiler():
    script = (
        "import sys, rlx_mlir.native; "
        "print([m for m in sys.modules if m == 'mlir' or m == 'llvm' or m == 'rlx_mlir._compiler'])"
    )
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


# Plans


def two_kernels(code, **overrides):
    """t = x * w; y = exp(sum of t's rows), for x [batch, seq, WIDTH]; t lies in the arena."""
    rows = [(1, [0, 1])]
    values = {
        "symbols": [("batch", 4), ("seq", 16)],
        "arena_bytes": 64 + 4 * 16 * WIDTH * 4,
        "slots": [(64, 4 * 16 * WIDTH * 4)],
        "kernels": ["scale", "total"],
        "inputs": ["x"],
        "params": ["w"],
        "outputs": ["y"],
        "calls": [
            (0, [("input", 0, 0), ("param", 0, 0), ("arena", 0, 0)], [rows], None),
            (1, [("arena", 0, 0), ("output", 0, 0)], [rows], None),
        ],
        "threads": 2,
        **overrides,
    }
    return native.Plan(code, **values)


def run_two_kernels(plan, x, w):
    y = np.full(x.shape[:2], np.nan, np.float32)
    plan.run([x.ctypes.data], [w.ctypes.data], [y.ctypes.data], x.shape[:2])
    return y


def some_data(batch, seq, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((batch, seq, WIDTH), dtype=np.float32)
    return x, generator.standard_normal(WIDTH, dtype=np.float32) / 8


def test_plan_matches_numpy_for_each_size(code):
    plan = two_kernels(code)
    assert plan.calls == ["scale", "total"]
    for batch, seq in [(1, 1), (4, 16), (2, 3), (2, 3), (3, 2), (1, 16), (0, 5)]:
        x, w = some_data(batch, seq)
        np.testing.assert_allclose(run_two_kernels(plan, x, w), np.exp((x * w).sum(-1)), rtol=1e-5)


def test_plan_is_bit_identical_for_any_number_of_threads(code):
    x, w = some_data(4, 15)
    results = [run_two_kernels(two_kernels(code, threads=threads), x, w) for threads in (1, 2, 3, 7)]
    for result in results[1:]:
        np.testing.assert_array_equal(result.view(np.int32), results[0].view(np.int32))


def test_plan_offsets_depend_on_sizes(code):
    # The last row only: total of x[batch - 1, seq - 1], to y[1].
    offset = [(4 * WIDTH, [0, 1]), (-4 * WIDTH, [])]
    calls = [(0, [("input", 0, offset), ("output", 0, 4)], [1], None)]
    plan = two_kernels(code, kernels=["total"], calls=calls, params=[])
    for batch, seq in [(4, 16), (1, 1), (2, 5)]:
        x, _ = some_data(batch, seq)
        y = np.zeros(2, np.float32)
        plan.run([x.ctypes.data], [], [y.ctypes.data], [batch, seq])
        np.testing.assert_allclose(y, [0, np.exp(x[-1, -1].sum())], rtol=1e-5)
    with pytest.raises(InputError, match=r"call 0 \(total\): a buffer's offset is -96 bytes for these sizes"):
        plan.run([1], [], [1], [0, 0])


def test_plan_reads_new_addresses_each_time(code):
    plan = two_kernels(code)
    for seed in range(3):
        x, w = some_data(2, 5, seed)
        np.testing.assert_allclose(run_two_kernels(plan, x, w), np.exp((x * w).sum(-1)), rtol=1e-5)


def test_plan_keeps_its_code(kernels_object):
    plan = two_kernels(loaded(kernels_object))
    gc.collect()
    x, w = some_data(2, 5)
    np.testing.assert_allclose(run_two_kernels(plan, x, w), np.exp((x * w).sum(-1)), rtol=1e-5)


def test_plan_names_a_size_beyond_its_maximum(code):
    plan = two_kernels(code)
    with pytest.raises(InputError, match="the size of 'seq' must be from 0 to its maximum 16, but it is 17"):
        plan.run([1], [1], [1], [4, 17])
    with pytest.raises(InputError, match="the size of 'batch' must be from 0 to its maximum 4, but it is -1"):
        plan.run([1], [1], [1], [-1, 1])
    with pytest.raises(InputError, match="expects 2 sizes, but got 1"):
        plan.run([1], [1], [1], [1])


def with_positions(code, source="input", rows=1):
    """Plans whose second input or parameter is a position for each of a batch, in a sequence."""
    names = {"inputs": ["x", "pos"]} if source == "input" else {"params": ["w", "pos"]}
    own = (source, 1, [(1, [0])], rows, [(1, [1])], "the table")
    return two_kernels(code, positions=[own], **names)


@pytest.mark.parametrize("source", ["input", "param"])
def test_plan_checks_positions_before_it_runs(code, source):
    plan = with_positions(code, source, rows=2)
    x, w = some_data(3, 5)
    y = np.full(x.shape[:2], 7, np.float32)
    pos = np.array([0, 3, 1], np.int32)

    def run(batch, seq):
        own = {"input": [x.ctypes.data], "param": [w.ctypes.data]}
        own[source].append(pos.ctypes.data)
        plan.run(own["input"], own["param"], [y.ctypes.data], [batch, seq])

    run(3, 5)
    np.testing.assert_allclose(y, np.exp((x * w).sum(-1)), rtol=1e-5)
    y[:] = 7
    word = "input" if source == "input" else "parameter"
    for value, last in [(4, 5), (-1, 0), (2**31 - 1, 2**31), (-(2**31), -(2**31) + 1)]:
        pos[1] = value
        message = f"{word} 'pos' is {value} at index 1, but rows {value} to {last} have to be among the 5 rows that "
        with pytest.raises(InputError, match=message):
            run(3, 5)
        assert (y == 7).all(), "nothing ran"
    run(1, 5)  # the others aren't there
    with pytest.raises(InputError, match="rows 0 to 1 have to be among the 1 rows"):
        run(1, 1)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (("arena", 0, 1, 1, 1, "x"), "the kind of positions must be input or param, but it is 'arena'"),
        (("input", 1, 1, 1, 1, "x"), "positions 0: they must be an input or a parameter that exists"),
        (("param", -1, 1, 1, 1, "x"), "positions 0: they must be an input or a parameter that exists"),
        (("input", 0, [(1, [2])], 1, 1, "x"), "positions 0: a number of rows names symbol 2 of 2"),
        (("input", 0, 1, -1, 1, "x"), "positions 0: a number of rows must be from 0 to .* but it is -1"),
        (("input", 0, 1, 1, [(2**62, [0, 1])], "x"), "positions 0: a number of rows exceeds 64 bits"),
        (("input", 0, 1, 1, "x"), r"positions \(kind, index, count, rows, limit, where\) must have 6 items"),
    ],
)
def test_plan_refuses_positions_that_make_no_sense(code, own, message):
    with pytest.raises(InputError, match=message):
        two_kernels(code, positions=[own])


def test_plan_names_a_missing_address(code):
    plan = two_kernels(code)
    with pytest.raises(InputError, match="the address of param 'w' is null"):
        plan.run([1], [0], [1], [1, 1])
    with pytest.raises(InputError, match="expects 1 output addresses, but got 2"):
        plan.run([1], [1], [1, 1], [1, 1])


def nested(depth):
    """A size that is computed of others so deep."""
    return 0 if depth == 0 else ("max", 0, [(1, [nested(depth - 1)])])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"kernels": ["scale", "other"]}, "symbol 'other' cannot be loaded"),
        ({"kernels": ["scale"]}, "call 1: there is no kernel 1 among 1"),
        ({"inputs": []}, r"call 0 \(scale\): there is no input 0 among 0"),
        ({"slots": []}, r"call 0 \(scale\): there is no slot 0 among 0"),
        ({"arena_bytes": 64}, r"slot 0 \(offset 64, 6144 bytes\) must .* lie in the arena of 64 bytes"),
        ({"slots": [(32, 64)]}, "slot 0 .* must start at a multiple of 64"),
        ({"symbols": [("batch", 4)]}, r"call 0 \(scale\): a dim names symbol 1 of 1"),
        ({"symbols": [("batch", 1 << 40), ("seq", 1 << 40)]}, r"call 0 \(scale\): a dim exceeds 64 bits"),
        ({"symbols": [("batch", -1), ("seq", 1)]}, "the maximum of 'batch' cannot be -1"),
        ({"calls": [(0, [("arena", 0, 6145)], [], None)]}, "a buffer's offset must be from 0 to 6144 .* it is 6145"),
        ({"calls": [(0, [("weight", 0, 0)], [], None)]}, "must be arena, input, param or output, but it is 'weight'"),
        ({"calls": [(0, [("input", 0, 0.5)], [], None)]}, "an expression must be a list or tuple, but it is 0.5"),
        ({"calls": [(0, [], [])]}, "a call .* must have 4 items"),
        (
            {"calls": [(0, [], [[(1, ["seq"])]], None)]},
            "a factor .kind, number, size. must be a list or tuple, but it is",
        ),
        ({"calls": [(0, [], [[(1, [("log", 2, [(1, [0])])])]], None)]}, "must be a floordiv or a max, but it is 'log'"),
        ({"calls": [(0, [], [[(1, [("floordiv", 0, [(1, [0])])])]], None)]}, "divided by 1 or more, but it is by 0"),
        ({"calls": [(0, [], [[(1, [("max", 0, [(1, [7])])])]], None)]}, "a dim names symbol 7 of 2"),
        ({"calls": [(0, [], [[(1, [("max", 2**62, 1), ("max", 4, 1)])]], None)]}, "a dim exceeds 64 bits"),
        ({"calls": [(0, [], [[(1, [nested(65)])]], None)]}, "computed of others at most 64 deep"),
        ({"threads": 1025}, "threads must be from 1 to 1024, but it is 1025"),
        ({"arena_bytes": 1 << 60}, "cannot have 1152921504606846976 bytes of memory for the arena"),
    ],
)
def test_plan_refuses_a_wrong_description(code, override, message):
    with pytest.raises((InputError, ExecutionError), match=message):
        two_kernels(code, **override)


def one_kernel(code, name, maximum, threads, work=None, outputs=("y",)):
    buffers = [("output", 0, 0)] if outputs else []
    calls = [(0, buffers, [[(1, [0])]], work)]
    arguments = {"arena_bytes": 0, "slots": [], "inputs": [], "params": [], "outputs": list(outputs)}
    return native.Plan(code, symbols=[("n", maximum)], kernels=[name], calls=calls, threads=threads, **arguments)


def test_plan_refuses_scratch_beyond_what_was_planned(code):
    plan = one_kernel(code, "greedy", 9, 1, outputs=())
    plan.run([], [], [], [9])
    with pytest.raises(InputError, match=r"call 0 \(greedy\): it needs 16384 bytes of scratch .* more than the 4096"):
        plan.run([], [], [], [6])
    plan.run([], [], [], [9])


@pytest.mark.parametrize("threads", [1, 3])
def test_plan_finishes_what_units_left_in_shared_memory(code, threads):
    plan = one_kernel(code, "sharing", 9001, threads)
    assert plan.scratch_bytes >= 4096
    for count in (9001, 7, 1):
        sums = np.full(count + 1, -1, np.int64)
        plan.run([], [], [sums.ctypes.data], [count])
        assert (sums[:count] == count * (count - 1) // 2).all()
        assert sums[count] == -1
    with pytest.raises(InputError, match=r"call 0 \(sharing\): it needs 144000 bytes of shared .* more than the 72008"):
        plan.run([], [], [np.zeros(9000, np.int64).ctypes.data], [9000])
    plan.profile(True)
    plan.run([], [], [sums.ctypes.data], [1])
    assert len(plan.timings()[1]) == 1


def test_plan_gives_each_thread_its_scratch(code):
    plan = one_kernel(code, "where", 9, 3)
    used = []
    while len(used) < 20 and 3 not in used:
        places = np.zeros(9, np.int64)
        plan.run([], [], [places.ctypes.data], [9])
        assert all(place % 64 == 0 for place in places)
        used.append(len(set(places)))
    assert max(used) == 3


def test_plan_keeps_little_work_on_the_calling_thread(code):
    places = np.zeros(8, np.int64)
    plan = one_kernel(code, "where", 8, 3, work=[(1000, [0])])
    plan.run([], [], [places.ctypes.data], [8])
    assert len(set(places)) == 1


def test_plan_runs_in_the_default_rounding_mode(code):
    modes = np.full(64, -1, np.int32)
    plan = one_kernel(code, "rounding", 64, 2)
    function = ctypes.CFUNCTYPE(ctypes.c_int)
    nearest, up = function(code.lookup("round_nearest")), function(code.lookup("round_up"))
    current = ctypes.CDLL("libm.so.6").fegetround
    try:
        up()
        callers = current()
        plan.run([], [], [modes.ctypes.data], [64])
        after = current()
    finally:
        nearest()
    assert set(modes) == {current()}
    assert after == callers != modes[0]


def test_threads_share_one_plan(code):
    plan = two_kernels(code)
    failures = []

    def host(batch, seq):
        x, w = some_data(batch, seq, seq)
        expected = run_two_kernels(two_kernels(code, threads=1), x, w)
        for _ in range(200):
            if not np.array_equal(run_two_kernels(plan, x, w), expected):
                failures.append((batch, seq))

    hosts = [threading.Thread(target=host, args=sizes) for sizes in [(4, 16), (1, 7), (3, 5)]]
    for thread in hosts:
        thread.start()
    for thread in hosts:
        thread.join()
    assert not failures


def test_positions_are_those_that_were_checked(code):
    """Whoever owns the array may change it while calls run: here the first call does."""
    n = [(1, [0])]
    plan = native.Plan(
        code,
        symbols=[("n", 8)],
        arena_bytes=0,
        slots=[],
        kernels=["copy"],
        inputs=["pos", "wrong"],
        params=[],
        outputs=["changed", "seen"],
        calls=[
            (0, [("input", 1, 0), ("output", 0, 0)], [n], None),
            (0, [("input", 0, 0), ("output", 1, 0)], [n], None),
        ],
        positions=[("input", 0, n, 1, 5, "the table")],
        threads=1,
    )
    pos, wrong, seen = np.array([4, 0, 3], np.int32), np.full(3, 1 << 30, np.int32), np.zeros(3, np.int32)
    plan.run([pos.ctypes.data, wrong.ctypes.data], [], [pos.ctypes.data, seen.ctypes.data], [3])
    assert pos.tolist() == wrong.tolist(), "the array was changed in the run"
    assert seen.tolist() == [4, 0, 3]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_range_that_runs_a_plan_is_refused(code, threads):
    plan = two_kernels(code)
    x, w = some_data(4, 16)
    what = {"run": lambda: run_two_kernels(plan, x, w), "profile": lambda: plan.profile(True), "timings": plan.timings}
    for use in what.values():
        with pytest.raises(InputError, match="inside a range of a parallel loop: it could wait for ever"):
            native.parallel_for(lambda *_, use=use: use(), threads, threads)
    run_two_kernels(plan, x, w)


def test_a_range_may_ask_for_the_number_of_workers():
    code = "from rlx_mlir import native; native.parallel_for(lambda *_: native.worker_count(), 4, 4)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@needs_compiler
def test_plans_and_ranges_in_several_threads_do_not_wait_for_each_other(kernels_object, tmp_path):
    (tmp_path / "kernels.o").write_bytes(kernels_object)
    code = """
import sys, threading
import numpy as np
from rlx_mlir.errors import InputError
from rlx_mlir import native

functions = [("fegetround", 0), ("fesetround", 0), ("usleep", 0)]  # of kernels that aren't called here
code = native.ObjectCode([open(sys.argv[1], "rb").read()], functions)
calls = [(0, [("output", 0, 0)], [[(1, [0])]], None)]
plan = native.Plan(code, symbols=[("n", 64)], arena_bytes=0, slots=[], kernels=["nothing"], inputs=[], params=[],
                   outputs=["y"], calls=calls, threads=3)

def run():
    y = np.zeros(64, np.int32)
    plan.run([], [], [y.ctypes.data], [64])

refused = []
def in_range(*_):
    try:
        run()
    except InputError:
        refused.append(1)

threads = [threading.Thread(target=lambda: [run() for _ in range(3000)]),
           threading.Thread(target=lambda: [native.parallel_for(in_range, 3, 3) for _ in range(1000)])]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(refused) == 3000, len(refused)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "kernels.o")], check=True, timeout=120)


def test_plan_survives_fork_during_a_run(code):
    places = np.zeros(8, np.int64)
    plan = one_kernel(code, "where", 8, 2)
    busy = threading.Thread(target=lambda: [plan.run([], [], [places.ctypes.data], [8]) for _ in range(10)])
    busy.start()
    time.sleep(0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        own = np.zeros(8, np.int64)
        plan.run([], [], [own.ctypes.data], [8])
        os._exit(0 if own.all() else 1)
    busy.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_plan_profile(code):
    plan = two_kernels(code)
    x, w = some_data(2, 5)
    run_two_kernels(plan, x, w)
    assert plan.timings() == (0, [0, 0])
    plan.profile(True)
    for _ in range(3):
        run_two_kernels(plan, x, w)
    runs, nanoseconds = plan.timings()
    assert runs == 3
    assert len(nanoseconds) == 2
    assert all(time > 0 for time in nanoseconds)
    plan.profile(False)
    run_two_kernels(plan, x, w)
    assert plan.timings() == (runs, nanoseconds)
    plan.profile(True)
    assert plan.timings() == (0, [0, 0])
