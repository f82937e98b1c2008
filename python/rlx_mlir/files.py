# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that a stranger sent: opened only where they are regular, read only up to a budget.

A model's folder may hold anything under a name that is read: a FIFO waits for ever, a device has no end, a folder
fails in each library's own words. Whoever reads a file that comes from elsewhere opens it here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from rlx_mlir import budgets
from rlx_mlir.errors import ModelFileError, RlxError, reason_of, shortened

Name = str | os.PathLike[str]
#: A value of JSON: None, a boolean, a number, a text, a list of values, or a dictionary of them by text. Whoever reads
#: it checks what is where, or knows by a digest that this package wrote it.
Json: TypeAlias = Any
#: Makes the exception of a message about a file; called `error(message, path=path)`.
Error = Callable[..., RlxError]

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Name, *, error: Error = ModelFileError) -> BinaryIO:
    """Opens a regular file to read its bytes; links are followed.

    Raises what `error` makes where there is none, where it can't be read, and where it is anything else.
    """
    try:
        _refuse_others(os.stat(path).st_mode, path, error)  # opening some devices does something
        # Without O_NONBLOCK a FIFO that took the file's place would wait for who writes.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise error("the file is missing", path=path) from None
    except RlxError:  # some of which are ValueErrors
        raise
    except (OSError, ValueError) as cause:  # ValueError: NUL or characters that no name has
        raise error(f"the file can't be read: {reason_of(cause)}", path=path) from None
    try:
        _refuse_others(os.fstat(handle).st_mode, path, error)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_regular(path: Name, *, budget: str | None = None, error: Error = ModelFileError) -> int:
    """The bytes of a regular file that a library is about to open by its name; as `open_regular` for all others.

    Raises BudgetError where they are more than the budget.
    """
    with open_regular(path, error=error) as file:
        size = os.fstat(file.fileno()).st_size
    if budget is not None:
        budgets.check(budget, size, os.fspath(path))
    return size


def is_there(path: Name) -> bool:
    """Whether the name is taken, by a file of any kind: one that can't be read is an error then, not absent."""
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def read_bytes(path: Name, *, budget: str = "json_bytes", error: Error = ModelFileError) -> bytes:
    """The content of a regular file.

    Raises what `error` makes, as `open_regular` does; BudgetError where the file has more bytes than the budget.
    """
    limit = getattr(budgets.current(), budget)
    with open_regular(path, error=error) as file:
        budgets.check(budget, os.fstat(file.fileno()).st_size, os.fspath(path))
        try:
            content = file.read(limit + 1)  # it may have grown, and files of the kernel have no size
        except OSError as cause:
            raise error(f"the file can't be read: {reason_of(cause)}", path=path) from None
    budgets.check(budget, len(content), os.fspath(path))
    return content


def read_text(path: Name, *, budget: str = "json_bytes", error: Error = ModelFileError) -> str:
    """The content of a regular file in UTF-8; line ends stay as they are. As `read_bytes`."""
    return decode(read_bytes(path, budget=budget, error=error), path, error=error)


def decode(content: bytes, path: Name | None, *, error: Error = ModelFileError) -> str:
    """Bytes in UTF-8 as text; names the first byte that isn't."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise error(
            f"byte {cause.start}: the file must be UTF-8, but has 0x{content[cause.start]:02x} there: {cause.reason}",
            path=path,
        ) from None


def inside(folder: Path, relative: str, what: str, *, error: Callable[[str], RlxError]) -> Path:
    """A path in `folder` that a file of it names; `what` says which name it is.

    Raises what `error` makes for a path that leaves the folder: absolute, by `..`, or through a link to a folder
    elsewhere. A file itself may be a link: caches of models keep them so.
    """
    parts = Path(relative).parts
    if "\0" in relative or os.path.isabs(relative) or ".." in parts:
        raise error(f"{what} must be a path inside the folder, but is {shortened(relative)}")
    path = folder / relative
    try:
        home = Path(os.path.realpath(path if path.is_dir() else path.parent))
        if not home.is_relative_to(os.path.realpath(folder)):
            raise error(f"{what} must be a path inside the folder, but {shortened(relative)} is a link to {home}")
    except (OSError, ValueError) as cause:
        named = f"{shortened(relative)}: {reason_of(cause)}"
        raise error(f"{what} must be a path inside the folder, but is {named}") from None
    return path


def kind_of(mode: int) -> str:
    """What a file that isn't regular is, of `os.stat`'s mode."""
    return next((word for test, word in _KINDS if test(mode)), "something else")


def _refuse_others(mode: int, path: Name, error: Error) -> None:
    if not stat.S_ISREG(mode):
        raise error(f"it must be a regular file, but is {kind_of(mode)}", path=path)


__all__ = [
    "check_regular",
    "decode",
    "inside",
    "is_there",
    "kind_of",
    "open_regular",
    "read_bytes",
    "read_text",
]
