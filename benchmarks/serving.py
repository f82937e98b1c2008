# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Load on a server of this machine: clients that ask one question after another, for some seconds.

    python benchmarks/serving.py smollm2 --clients 8 --seconds 30
    python benchmarks/serving.py smollm2 --clients 8 --seconds 30 --rounds 3 --vs llama.cpp --python OTHER/bin/python
    python benchmarks/serving.py smollm2 --both --python OTHER/bin/python --json > serving.json

starts `rlx serve` of this environment; with --vs also llama-cpp-python's server of another one, in turns. All read
their answers as streams, of the same number of tokens: the end of the model's turn is forbidden by a bias. What is
printed, a line for each round:

- tokens per second of all clients, and requests;
- percentiles 50, 95 and 99 of the time to the first token, and between tokens, in ms;
- what was lost: replies of another status, and streams that ended without their tokens;
- resident memory of the server, in MB, after half of the time, and at its end.

--both does what needs an idle machine in one run: `LONG` clients of our server for `LONG_SECONDS`, then rounds in turns
with llama.cpp's. It fails, by its status, where something was lost, or memory grew by more than --growth meanwhile;
--json prints all figures. Of rates that are compared medians of rounds count; the ratio of each round is there, too.
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
LONG, LONG_SECONDS = 64, 300.0
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

        before, after = self.kept
        return (
            f"{self.rate:7.1f} tokens/s, {self.requests} requests, {self.lost} lost; "
            f"first {percentiles(self.first)} ms; between {percentiles(self.between)} ms; "
            f"memory {before:.0f} to {after:.0f} MB"
        )

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def kept(self) -> tuple[float, float]:
        """MB of the server after half of the time, when what it keeps of prompts is full, and at the end."""
        memory = self.memory or [0.0]
        return memory[len(memory) // 2], memory[-1]

    def to_dict(self) -> dict[str, object]:
        """It as JSON can write it; times in ms."""
        marks = {f"p{mark}": mark for mark in (50, 95, 99)}
        first, between = (
            {name: round(1000 * float(np.percentile(times or [0], mark)), 1) for name, mark in marks.items()}
            for times in (self.first, self.between)
        )
        own = {"tokens_per_second": round(self.rate, 2), "requests": self.requests, "lost": self.lost}
        memory = {f"memory_{word}": round(own, 1) for word, own in zip(("before", "after"), self.kept, strict=True)}
        return {**own, "first_ms": first, "between_ms": between, **memory, "seconds": round(self.seconds, 1)}

    def faults(self, growth: float) -> list[str]:
        """What is wrong: answers that were lost, and memory that grew by more than a share of it."""
        before, after = self.kept
        grew = [f"memory grew from {before:.0f} to {after:.0f} MB"] if after > before * (1 + growth) else []
        return ([f"{self.lost} of {self.lost + self.requests} answers were lost"] if self.lost else []) + grew


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


def load(port: int, pid: int, eos: int, options: argparse.Namespace, clients: int, seconds: float) -> Round:
    """So many clients ask a server for some seconds; requests that have begun are waited for."""
    found, turn = Round(), threading.Lock()
    begin = time.perf_counter()
    end = begin + seconds

    def client(number: int) -> None:
        count = number
        while time.perf_counter() < end:
            topic = TOPICS[count % len(TOPICS)]
            text = f"Write {3 + count % 5} sentences about {topic}. {'Be precise and vivid. ' * (count % 7)}"
            body: dict[str, object] = {
                "model": "model",
                "messages": [{"role": "user", "content": text}],
                "max_tokens": options.tokens,
                "temperature": 0,
                "stream": True,
                "logit_bias": {str(eos): -100},
            }
            ask(port, body, options.tokens, found, turn)
            count += clients

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found.memory.append(resident(pid))
        time.sleep(1)
    found.seconds = time.perf_counter() - begin
    return found


class Servers:
    """Both servers of one model, each started anew for a round."""

    def __init__(self, options: argparse.Namespace) -> None:
        path = resolve(options.model)
        self._eos = int(GGUFFile(path).metadata["tokenizer.ggml.eos_token_id"])  # type: ignore[call-overload]
        self._options, self._port = options, free_port()
        shared = ["--host", HOST, "--port", str(self._port)]
        ours = [sys.executable, "-m", "rlx_mlir.tools.cli", "serve", str(path), *shared, "--name", "model"]
        ours += ["--threads", str(options.threads), "--context", str(options.context), "--queue", "1024"]
        theirs = [options.python, "-m", "llama_cpp.server", "--model", str(path), *shared, "--model_alias", "model"]
        theirs += ["--n_ctx", str(options.context), "--n_threads", str(options.threads)]
        theirs += ["--n_threads_batch", str(options.threads), "--interrupt_requests", "false"]
        self._commands = {"rlx": [*ours, "--activations", options.activations], "llama.cpp": theirs}

    def round(self, name: str, clients: int, seconds: float) -> Round:
        """What clients of one saw."""
        own = ["--sequences", str(min(clients, 64))] if name == "rlx" else []
        with running([*self._commands[name], *own], self._port) as pid:
            found = load(self._port, pid, self._eos, self._options, clients, seconds)
        print(f"{name:9s} {clients:3d} clients {found.line()}", file=sys.stderr, flush=True)
        return found


def compared(rounds: dict[str, list[Round]]) -> dict[str, float | list[float]]:
    """Rates of rlx in those of llama.cpp: of medians, and of each round."""
    ours, theirs = ([own.rate for own in rounds[name]] for name in ("rlx", "llama.cpp"))
    ratio = statistics.median(ours) / statistics.median(theirs)
    return {"ratio": round(ratio, 3), "of_rounds": [round(a / b, 3) for a, b in zip(ours, theirs, strict=True)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .gguf file, or the name of a known model")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=None, help="1, and 3 of --both")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--activations", default="auto", help="of rlx")
    parser.add_argument("--vs", choices=["llama.cpp"])
    parser.add_argument("--both", action="store_true", help="many clients for long, and rounds beside llama.cpp")
    parser.add_argument("--long-clients", type=int, default=LONG, help="of --both")
    parser.add_argument("--long-seconds", type=float, default=LONG_SECONDS, help="of --both")
    parser.add_argument("--growth", type=float, default=0.03, help="share of memory that may be added meanwhile")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has llama-cpp-python[server]")
    parser.add_argument("--json", action="store_true", help="print all figures at the end")
    options = parser.parse_args()
    servers, faults, found = Servers(options), list[str](), dict[str, object]()
    if options.both:
        long = servers.round("rlx", options.long_clients, options.long_seconds)
        found["long"] = {"clients": options.long_clients, **long.to_dict()}
        faults += long.faults(options.growth)
    names = ["rlx", "llama.cpp"] if options.both or options.vs else ["rlx"]
    rounds: dict[str, list[Round]] = {name: [] for name in names}
    for _ in range(options.rounds or (3 if options.both else 1)):
        for name in names:
            rounds[name].append(servers.round(name, options.clients, options.seconds))
    faults += [f"{own.lost} answers of rlx were lost" for own in rounds["rlx"] if own.lost]
    found["rounds"] = {name: [own.to_dict() for own in each] for name, each in rounds.items()}
    if len(names) > 1:
        found["rlx_to_llama.cpp"] = ratios = compared(rounds)
        print(f"rlx is {ratios['ratio']:.2f} times as fast (medians of {len(rounds['rlx'])})", file=sys.stderr)
    if options.json:
        print(json.dumps({**found, "clients": options.clients, "faults": faults}, indent=1))
    if faults:
        raise SystemExit("; ".join(faults))


if __name__ == "__main__":
    main()
