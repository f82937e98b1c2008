# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tools on MLIR's mains, rlx-opt and rlx-lsp-server, as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

MODULE = """
func.func @f(%x: tensor<4x8xf32>, %gamma: tensor<8xf32>) -> tensor<4x8xf32> {
  %y = hir.rms_norm %x, %gamma eps 0.25 : tensor<4x8xf32>, tensor<8xf32>
  return %y : tensor<4x8xf32>
}
"""


def rlx_opt(*arguments: object, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs rlx-opt; checks its status, and that Python shows no traceback."""
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def help_text() -> str:
    return rlx_opt("--help").stdout


@pytest.mark.parametrize(
    "argument",
    [
        "hir-to-mir",
        "mir-fuse-swiglu",
        "mir-outline-kernels",
        "mir-to-linalg",
        "lir-plan",
        "kernel-add-entry-points",
        "rlx-expand-math",
        "rlx-bind-dims",
        "canonicalize",
        "one-shot-bufferize",
    ],
)
def test_help_lists_passes_of_python_of_ours_and_of_mlir(help_text: str, argument: str) -> None:
    assert f" --{argument} " in help_text


def test_help_shows_options_of_python_passes(help_text: str) -> None:
    lines = [line for line in help_text.splitlines() if line.strip().startswith("--policy=")]
    assert any("(direct|fusable); default: direct" in line for line in lines)


@pytest.mark.parametrize("name", ["rlx-fuse", "rlx-to-kernels", "rlx-generic-kernels", "rlx-to-llvm"])
def test_help_lists_named_pipelines(help_text: str, name: str) -> None:
    assert f" --{name} " in help_text


def test_round_trip_through_stdin() -> None:
    once = rlx_opt(stdin=MODULE).stdout
    assert "hir.rms_norm" in once
    assert rlx_opt("-", stdin=once).stdout == once
    generic = rlx_opt("--mlir-print-op-generic", stdin=once).stdout
    assert '"hir.rms_norm"' in generic
    assert rlx_opt(stdin=generic).stdout == once


def test_bytecode_round_trip(tmp_path: Path) -> None:
    rlx_opt("--emit-bytecode", "-o", tmp_path / "m.mlirbc", stdin=MODULE)
    assert rlx_opt(tmp_path / "m.mlirbc").stdout == rlx_opt(stdin=MODULE).stdout


def test_python_pass_runs_and_is_timed_and_printed() -> None:
    done = rlx_opt("--hir-to-mir", "--mlir-timing", "--mlir-print-ir-after-all", stdin=MODULE)
    assert "mir.rms_norm" in done.stdout
    assert "IR Dump After hir-to-mir" in done.stderr
    assert "hir-to-mir" in done.stderr.partition("Execution time report")[2]


def test_what_does_not_parse_is_status_1() -> None:
    done = rlx_opt(stdin="func.func @f( {", status=1)
    assert "error:" in done.stderr


def test_what_does_not_verify_is_status_1() -> None:
    done = rlx_opt(stdin=MODULE.replace("tensor<8xf32>", "tensor<9xf32>"), status=1)
    assert "error:" in done.stderr
    assert "9" in done.stderr


def test_a_missing_file_is_status_1(tmp_path: Path) -> None:
    assert "No such file" in rlx_opt(tmp_path / "no.mlir", status=1).stderr


def test_unknown_passes_and_options_are_status_1() -> None:
    assert "--no-such-pass" in rlx_opt("--no-such-pass", stdin=MODULE, status=1).stderr
    # LLVM would take it for -h.
    done = rlx_opt("--hir-to-mirr=policy=direct", stdin=MODULE, status=1)
    assert "unknown option '--hir-to-mirr' (did you mean 'hir-to-mir'?)" in done.stderr
    pipeline = "--pass-pipeline=builtin.module(hir-to-mir{policy=odd})"
    done = rlx_opt(pipeline, stdin=MODULE, status=1)
    assert "option 'policy' expects one of direct, fusable, but got 'odd'" in done.stderr


def test_expected_errors_can_be_verified() -> None:
    text = """
func.func @f(%x: tensor<4x8xf32>, %gamma: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{eps}}
  %y = hir.rms_norm %x, %gamma eps -1.0 : tensor<4x8xf32>, tensor<8xf32>
  return %y : tensor<4x8xf32>
}
"""
    rlx_opt("--verify-diagnostics", stdin=text)
    rlx_opt("--verify-diagnostics", stdin=text.replace("-1.0", "1.0"), status=1)


class Server:
    """A language server that runs, and messages to and from it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlx_mlir.tools.lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in: IO[bytes] = self.process.stdin
        self._out: IO[bytes] = self.process.stdout

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.__exit__(*error)

    def send(self, method: str, params: dict[str, Any] | None = None, *, number: int | None = None) -> None:
        """Sends a request where it has a number, else a notification."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if number is not None:
            message["id"] = number
        body = json.dumps(message).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._in.flush()

    def receive(self) -> dict[str, Any]:
        """The next message."""
        length = 0
        while line := self._out.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the server ended"
        return json.loads(self._out.read(length))

    def answer(self, number: int) -> dict[str, Any]:
        """The response to a request; what comes before it is passed over."""
        while (message := self.receive()).get("id") != number:
            pass
        return message["result"]


def test_language_server_knows_our_dialects() -> None:
    with Server() as server:
        server.send("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, number=1)
        found = server.answer(1)
        assert found["serverInfo"]["name"] == "mlir-lsp-server"
        assert found["capabilities"]["hoverProvider"]
        server.send("initialized")
        for version, text in ((1, MODULE), (2, MODULE.replace("tensor<8xf32>", "tensor<9xf32>"))):
            document = {"uri": f"file:///m{version}.mlir", "languageId": "mlir", "version": version, "text": text}
            server.send("textDocument/didOpen", {"textDocument": document})
            while (message := server.receive()).get("method") != "textDocument/publishDiagnostics":
                pass
            problems = [entry["message"] for entry in message["params"]["diagnostics"]]
            assert len(problems) == version - 1, problems
        server.send("shutdown", number=2)
        assert server.answer(2) is None
        server.send("exit")
        assert server.process.wait(timeout=30) == 0
