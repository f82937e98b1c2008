# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixtures that several test files share."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import bundles
import covering
import levels
import pytest
import seeds
import tiny_models

import rlx_mlir as rlx
from rlx_mlir.errors import DownloadError
from rlx_mlir.models import hub

if TYPE_CHECKING:
    from cuda_harness import FakeCuda


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis draws from the run's seed, where its own option doesn't say otherwise."""
    gc.disable()  # what collection makes stays: looking through it again and again takes a third of its time
    seeds.settle(seeds.SHUFFLE)  # before workers start, which inherit both
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = seeds.seed()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Results of the emulator are kept where pytest keeps what it knows of earlier runs."""
    cache = getattr(session.config, "cache", None)  # None with -p no:cacheprovider
    if cache is not None:
        import emulated_results

        emulated_results.begin(cache.mkdir("emulated"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The process that ends last bounds what is kept."""
    if getattr(session.config, "cache", None) is not None and not hasattr(session.config, "workerinput"):
        import emulated_results

        emulated_results.tidy()


def pytest_collection_finish() -> None:
    """What collection made stays until the end: the collector needn't look through it in every test."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """What it takes to run the same tests again."""
    return seeds.header()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seeds once more where something failed, as `-q` prints no header."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(seeds.header())


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases beyond those that a test calls quick are wide or slow; tests in another order, where that is asked for."""
    covering.mark_levels(items)
    seeds.shuffle(items)


@pytest.hookimpl(tryfirst=True)  # before fixtures of any scope are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The level at which LLVM optimises what is compiled for a test."""
    levels.settle(item)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of compiled modules of the session's own, one for all its processes; models are found where they are."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):  # of another process
        (folder / "models").symlink_to(hub.cache_dir() / "models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(folder))
        patch.setenv("RLX_DECODE_THREADS", "all")  # Nothing of a test depends on what is measured of the machine.
        patch.setenv("RLX_VERIFY", "1")  # Every compilation of a test checks the contract of every stage.
        yield folder


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, which is empty."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models run by the interpreter: the test is about the command line."""
    from interpreted import compile_interpreted

    from rlx_mlir.models import compiling

    monkeypatch.setattr(compiling, "compile_program", compile_interpreted)


@pytest.fixture
def forget_operations() -> Iterator[None]:
    """Operations that a test registers are gone after it."""
    from rlx_mlir import own_ops

    before = {own.name for own in own_ops.registered_ops()}
    yield
    for own in own_ops.registered_ops():
        if own.name not in before:
            own_ops.unregister_op(own.name)


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    """A stand-in for NVIDIA's driver whose GPU runs the kernels of artefacts made by hand."""
    from cuda_artifacts import Kernels
    from cuda_harness import fake_device

    with fake_device() as found:
        found.run_kernels(Kernels())
        yield found


def _local(name: str) -> Path:
    try:
        return hub.resolve(name, download=False)
    except DownloadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct.Q4_1.gguf, where it is installed or in the cache; tests are skipped elsewhere."""
    return _local("smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """gemma-3-270m-q4_k_m.gguf, where it is in the cache; tests are skipped elsewhere."""
    return _local("gemma3")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers, hidden 64, 4 heads over 2, with q4_1, q8_0 and f32 weights and a tied head."""
    return tiny_models.write(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_bundle(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of `tiny_llama` for this machine; tests change copies of it."""
    path = tmp_path_factory.mktemp("bundles") / "tiny.rlx"
    rlx.bundle(tiny_llama, path, **bundles.OPTIONS)
    return path
