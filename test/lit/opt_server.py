# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx-opt` for lit without its start: a process that has every pass registered, and forks for each call.

Loading the package takes most of the time of most tests. `start` is for lit's configuration and gives the command that
stands for `rlx-opt`; ``python opt_server.py SOCKET ARGUMENTS…`` is that command, and hands its arguments, folder and
files to the server. Where no server answers, as where the package can't be loaded, it is `rlx-opt` itself.
"""

from __future__ import annotations

import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # each import here is paid for by every call
    import subprocess
    from collections.abc import Mapping

_MODULE = "rlx_mlir.tools.opt"
_FILES = 3
#: Servers that this process has started; each ends when its stdin does.
SERVERS: list[subprocess.Popen[bytes]] = []


def start(environment: Mapping[str, str]) -> str:
    """Starts a server with such an environment, which ends with this process, and gives the command for `rlx-opt`."""
    import subprocess
    import tempfile

    path = os.path.join(tempfile.mkdtemp(prefix="rlx-opt-"), "socket")
    with socket.socket(socket.AF_UNIX) as listener:  # the server alone keeps it: nobody waits for one that has died
        listener.bind(path)
        listener.listen(256)
        number = listener.fileno()
        command = [sys.executable, __file__, "--serve", str(number), path]
        SERVERS.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=dict(environment), pass_fds=[number]))
    return f"{sys.executable} -I -S {__file__} {path}"


def call(path: str, arguments: list[str]) -> int:
    """Has the server run `rlx-opt`; gives its exit status, negative for the signal that ended it."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            socket.send_fds(connection, [b"!"], range(_FILES))
            connection.sendall("\0".join([os.getcwd(), *arguments]).encode())
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(16)
        except OSError:
            answer = b""
    if not answer:
        os.execv(sys.executable, [sys.executable, "-m", _MODULE, *arguments])
    return int(answer)


def serve(listener: socket.socket, path: str) -> list[str]:
    """Answers calls until stdin ends. Gives the arguments of a call in the process that is to run it."""
    import select
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:
            os.remove(path)
            os.rmdir(os.path.dirname(path))
            sys.exit()
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return _answer(connection)
        connection.close()


def _answer(connection: socket.socket) -> list[str]:
    """Waits for a child that runs what is asked for, and ends it where nobody waits any more; gives arguments there."""
    import select
    import signal

    _, files, _, _ = socket.recv_fds(connection, 1, _FILES)
    text = b""
    while part := connection.recv(1 << 16):
        text += part
    folder, *arguments = text.decode().split("\0")
    child = os.fork()
    if child == 0:
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        return arguments
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    gone = select.poll()
    gone.register(connection, select.POLLHUP)  # its other end is open, but for what it wrote
    gone.register(ended, select.POLLIN)
    if ended not in [number for number, _ in gone.poll()]:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def main() -> None:
    """A server, or a call of it."""
    if sys.argv[1] != "--serve":
        status = call(sys.argv[1], sys.argv[2:])
        if status < 0:
            os.kill(os.getpid(), -status)
        sys.exit(status)
    from rlx_mlir.rewriting import registry
    from rlx_mlir.tools import opt

    registry.register_all()
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3])
    opt.main()


if __name__ == "__main__":
    main()
