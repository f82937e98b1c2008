# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Load on a server of this machine: clients that ask one question after another, for some seconds.

    python benchmarks/serving.py smollm2 --clients 8 --seconds 30
    python benchmarks/serving.py smollm2 --clients 8 --seconds 30 --rounds 3 --vs llama.cpp --python OTHER/bin/python

starts `rlx serve` of this environment; with --vs also llama-cpp-python's server of another one, in turns. All read
their answers as streams, of the same number of tokens: the end of the model's turn is forbidden by a bias. What is
printed, a line for each round:

- tokens per second of all clients, and requests;
- percentiles 50, 95 and 99 of the time to the first token, and between tokens, in ms;
- what was lost: replies of another status, and streams that ended without their tokens;
- resident memory of the server, in MB, after a fifth of the time, and at its end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models.hub import resolve

HOST = "127.0.0.1"
TOPICS = ("rain", "the sea", "a clock", "bread", "winter", "a bridge", "music", "a lighthouse", "tea", "maps", "stone")


@dataclass
class Round:
    """What clients saw.

    Attributes:
        first, between: seconds.
        requests, tokens: of answers that are complete.
        lost: requests without one.
        memory: MB of the server, at moments one second apart.
    """

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    requests: int = 0
    tokens: int = 0
    lost: int = 0
    seconds: float = 0.0
    memory: list[float] = field(default_factory=list)

    def line(self) -> str:
        """It in words."""

        def percentiles(times: list[float]) -> str:
            return " ".join(f"{1000 * value:.0f}" for value in np.percentile(times or [0], [50, 95, 99]))

        memory = self.memory or [0.0]
        return (
            f"{self.tokens / self.seconds:7.1f} tokens/s, {self.requests} requests, {self.lost} lost; "
            f"first {percentiles(self.first)} ms; between {percentiles(self.between)} ms; "
            f"memory {memory[len(memory) // 5]:.0f} to {memory[-1]:.0f} MB"
        )


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(command: list[str], port: int) -> Iterator[int]:
    """A server; gives its process id where it answers."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        said: list[str] = []
        assert process.stderr is not None
        threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True).start()
        try:
            deadline = time.monotonic() + 600
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{' '.join(command)} didn't start:\n{''.join(said[-20:])}")
                time.sleep(0.2)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        connection.request("GET", "/v1/models")
        return connection.getresponse().status == 200
    except OSError:
        return False


def resident(pid: int) -> float:
    """MB of memory that a process has for itself or shares."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def ask(port: int, body: dict[str, object], tokens: int, found: Round, turn: threading.Lock) -> None:
    """One request, and what came of it."""
    begin = last = time.perf_counter()
    first, between, reason = None, [], None
    try:
        connection = http.client.HTTPConnection(HOST, port, timeout=600)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        for line in reply if reply.status == 200 else ():
            if not line.startswith(b"data: {"):
                continue
            (choice,) = json.loads(line[6:])["choices"]
            reason = choice["finish_reason"] or reason
            if choice["delta"].get("content"):
                now = time.perf_counter()
                if first is None:
                    first = now - begin
                else:
                    between.append(now - last)
                last = now
        connection.close()
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        reason = None
    with turn:
        if reason == "length" and first is not None:
            found.requests += 1
            found.tokens += tokens
            found.first.append(first)
            found.between += between
        else:
            found.lost += 1


def load(port: int, pid: int, model: str, eos: int, options: argparse.Namespace) -> Round:
    """Asks a server for some seconds; requests that have begun are waited for."""
    found, turn = Round(), threading.Lock()
    begin = time.perf_counter()
    end = begin + options.seconds

    def client(number: int) -> None:
        count = number
        while time.perf_counter() < end:
            topic = TOPICS[count % len(TOPICS)]
            text = f"Write {3 + count % 5} sentences about {topic}. {'Be precise and vivid. ' * (count % 7)}"
            body: dict[str, object] = {
                "model": model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": options.tokens,
                "temperature": 0,
                "stream": True,
                "logit_bias": {str(eos): -100},
            }
            ask(port, body, options.tokens, found, turn)
            count += options.clients

    threads = [threading.Thread(target=client, args=(number,)) for number in range(options.clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found.memory.append(resident(pid))
        time.sleep(1)
    found.seconds = time.perf_counter() - begin
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .gguf file, or the name of a known model")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--activations", default="auto", help="of rlx")
    parser.add_argument("--vs", choices=["llama.cpp"])
    parser.add_argument("--python", default=sys.executable, help="interpreter that has llama-cpp-python[server]")
    options = parser.parse_args()
    path = resolve(options.model)
    eos = int(GGUFFile(path).metadata["tokenizer.ggml.eos_token_id"])  # type: ignore[call-overload]
    port = free_port()
    shared = ["--host", HOST, "--port", str(port)]
    ours = [sys.executable, "-m", "rlx_mlir.tools.cli", "serve", str(path), *shared, "--name", "model"]
    ours += ["--threads", str(options.threads), "--context", str(options.context), "--queue", "1024"]
    ours += ["--sequences", str(min(options.clients, 64)), "--activations", options.activations]
    theirs = [options.python, "-m", "llama_cpp.server", "--model", str(path), *shared, "--model_alias", "model"]
    theirs += ["--n_ctx", str(options.context), "--n_threads", str(options.threads)]
    theirs += ["--n_threads_batch", str(options.threads), "--interrupt_requests", "false"]
    rates: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, command in (("rlx", ours), *([("llama.cpp", theirs)] if options.vs else [])):
            with running(command, port) as pid:
                found = load(port, pid, "model", eos, options)
            rates.setdefault(name, []).append(found.tokens / found.seconds)
            print(f"{name:9s} {found.line()}", flush=True)
    medians = {name: statistics.median(own) for name, own in rates.items()}
    if options.vs:
        print(f"rlx is {medians['rlx'] / medians['llama.cpp']:.2f} times as fast (medians of {options.rounds})")


if __name__ == "__main__":
    main()
