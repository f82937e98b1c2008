# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the tests of the run time, in C++, under sanitizers, or counts which of its branches they take.

``python test/sanitize.py`` builds the extension `_runtime` with AddressSanitizer and UndefinedBehaviorSanitizer, then
with ThreadSanitizer, each in a folder of its own in build/, and runs the tests with it. ``address,undefined`` or
``thread`` runs one of the two; ``coverage`` prints the branches that were taken, by file. Tests may be named after
``--``, as for pytest.

The other extension, and the package that is installed, stay as they are: tests see an overlay of the package, whose
`_runtime` is the one that was built here.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from planted import built_files

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("address,undefined", "thread")
COVERAGE = "coverage"
LIBRARY = "librlx_runtime.so"
#: What uses the run time most: the pool, loading, plans, the fake driver of GPUs, damaged descriptions, texts.
TESTS = (
    "test/python/runtime/test_runtime_native.py",
    "test/python/runtime/test_loader.py",
    "test/python/runtime/test_relocations.py",
    "test/python/runtime/test_object_damage.py",
    "test/python/runtime/test_artifact_damage.py",
    "test/python/lowering/test_control_kernels.py",
    "test/python/runtime/test_cuda.py",
    "test/python/runtime/test_cuda_async.py",
    "test/python/runtime/test_cuda_errors.py",
    "test/python/runtime/test_cuda_abi.py",
    "test/python/runtime/test_c_runtime.py",
    "test/python/runtime/test_c_runtime_damage.py",
    "test/python/models/test_text_section.py",
    "test/python/models/test_json_section.py",
)
OPTIONS = {
    # Python keeps what it allocates; compiled code jumps to and fro in memory that ASan doesn't know.
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:alloc_dealloc_mismatch=0:handle_segv=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0:ignore_noninstrumented_modules=1:history_size=4",
}
#: Editable installs find packages by a finder of their own, before any folder.
SITE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
"""


def build(kind: str) -> Path:
    """Builds `_runtime` and the library for C in a folder of their own, which it returns."""
    folder = ROOT / "build" / f"check-{kind.replace(',', '-')}"
    option = "-DRLX_COVERAGE=ON" if kind == COVERAGE else f"-DRLX_SANITIZE={kind}"
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-GNinja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", option]
    subprocess.run([*command, f"-DPython_EXECUTABLE={sys.executable}"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(folder), "--target", "_runtime", "rlx_runtime"], check=True)
    return folder


def overlay(folder: Path, into: Path) -> None:
    """The package's sources with the extension of the folder, and what else was built from where it is installed."""
    package = into / "rlx_mlir"
    shutil.copytree(
        ROOT / "python" / "rlx_mlir", package, ignore=shutil.ignore_patterns("__pycache__", "*.so", "_*_gen.py")
    )
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for name, path in built_files().items():
        if not name.name.startswith(("_runtime.", "lib")):
            (package / name).symlink_to(path)
    (package / f"_runtime{suffix}").symlink_to(folder / f"_runtime{suffix}")
    (package / "lib").mkdir()
    (package / "lib" / LIBRARY).symlink_to(folder / LIBRARY)
    (into / "sitecustomize.py").write_text(SITE)


def preloaded(kind: str) -> str:
    """The libraries that have to be in the process before the first allocation.

    libstdc++ is one: the sanitizers look for its functions when they start, and the interpreter doesn't need it.
    """
    names = {"address,undefined": ("libasan.so", "libstdc++.so.6"), "thread": ("libtsan.so", "libstdc++.so.6")}
    compiler = os.environ.get("CXX", "c++")
    found = []
    for name in names.get(kind, ()):
        done = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        found.append(str(Path(done.stdout.strip()).resolve()))
    return " ".join(found)


def run(kind: str, tests: list[str]) -> int:
    """Builds, and runs the tests; the status of pytest."""
    folder = build(kind)
    for counts in folder.rglob("*.gcda"):
        counts.unlink()
    with tempfile.TemporaryDirectory() as temporary:
        overlay(folder, Path(temporary))
        # An address space without surprises: ThreadSanitizer has fixed places for its tables.
        prefix = [found, "-R"] if kind == "thread" and (found := shutil.which("setarch")) else []
        command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys", *tests]
        own = {"PYTHONPATH": temporary, "LD_PRELOAD": preloaded(kind), "PYTHONMALLOC": "malloc", **OPTIONS}
        status = subprocess.run(command, cwd=ROOT, env={**os.environ, **own}, check=False).returncode
    if kind == COVERAGE:
        report(folder)
    return status


def report(folder: Path) -> None:
    """Prints how many of the branches of each file were taken; without those of exceptions that calls may throw."""
    taken: dict[str, dict[tuple[int, int], int]] = collections.defaultdict(lambda: collections.defaultdict(int))
    for counts in folder.rglob("*.gcda"):
        command = ["gcov", "--branch-probabilities", "--json-format", "--stdout", str(counts)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
        for file in json.loads(done.stdout)["files"]:
            path = Path(folder, file["file"]).resolve()
            if not path.is_relative_to(ROOT / "runtime"):
                continue
            for line in file["lines"]:
                for number, branch in enumerate(line["branches"]):
                    if not branch["throw"]:
                        taken[str(path.relative_to(ROOT))][line["line_number"], number] += branch["count"]
    for name, branches in sorted(taken.items()):
        reached = sum(count > 0 for count in branches.values())
        missed = sorted({line for (line, _), count in branches.items() if not count})
        listed = ", ".join(map(str, missed[:20])) + (", …" if len(missed) > 20 else "")
        print(f"{name:28} {reached:5} of {len(branches):5} branches  {reached / len(branches):6.1%}  not: {listed}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=(*KINDS, COVERAGE, []), help="both sanitizers where none is named")
    arguments, tests = sys.argv[1:], list(TESTS)
    if "--" in arguments:
        at = arguments.index("--")
        arguments, tests = arguments[:at], arguments[at + 1 :]
    kinds = parser.parse_args(arguments).kinds or KINDS
    statuses = {kind: run(kind, tests) for kind in kinds}
    for kind, status in statuses.items():
        print(f"{kind}: {'clean' if status == 0 else f'failed ({status})'}")
    sys.exit(any(statuses.values()))


if __name__ == "__main__":
    main()
