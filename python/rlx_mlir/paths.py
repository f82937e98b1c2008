# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files and folders that have to be somebody's: what is read from them may be code, what is written may be private.

On systems with several users, a folder that others can write, or that isn't one's own, may hold anything: cached code
is neither taken from there nor kept there. The superuser's files are trusted, since the superuser can do as much.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import pwd
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rlx_mlir import budgets
from rlx_mlir.errors import CacheError, InputError
from rlx_mlir.files import kind_of

__all__ = [
    "LEFT_OVER_SECONDS",
    "cache_dir",
    "check_private",
    "expand_user",
    "make_private",
    "open_output",
    "open_regular",
    "read_small",
    "remove_left_over",
    "replacing",
    "write_atomically",
    "write_output",
]

#: Age at which a file that is being written is taken to be left over from a process that was killed.
LEFT_OVER_SECONDS = 600
_PART = ".part"
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_dir() -> Path:
    """The folder for everything that can be made again: ``$RLX_CACHE_DIR``, else the platform's cache folder.

    Raises CacheError where it begins with a ``~`` that stands for nobody's folder.
    """
    if named := os.environ.get("RLX_CACHE_DIR"):
        try:
            return expand_user(named)
        except InputError as error:
            raise CacheError(f"RLX_CACHE_DIR: {error}") from None
    import platformdirs

    found = Path(platformdirs.user_cache_dir("rlx-mlir"))
    if str(found).startswith("~"):
        raise CacheError("there is no folder for the cache: neither HOME nor RLX_CACHE_DIR is set")
    return found


def expand_user(path: str) -> Path:
    """A path in which a leading ``~`` or ``~user`` stands for a home; InputError where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"'{path}' begins with '{Path(path).parts[0]}', but there is no such user's folder") from None


# Reading ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str], *, own: bool = False, update: bool = False) -> Iterator[BinaryIO]:
    """Opens a regular file for reading, without waiting for what isn't one.

    Args:
        path: the file.
        own: it is used without anyone having named it: it must not be a link, has to be the user's or the superuser's,
            and others must not be able to write it.
        update: for writing in place, too.

    Raises CacheError where it is no such file, OSError where it can't be opened.
    """
    name = os.fspath(path)
    if own and os.path.islink(name):
        raise CacheError("it is a symbolic link, but a file is expected")
    # A pipe would be waited for without O_NONBLOCK, which files don't heed.
    flags = os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if own else 0)
    handle = os.open(name, flags | (os.O_RDWR if update else os.O_RDONLY))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise CacheError(f"it is {kind_of(status.st_mode)}, but a file is expected")
        if own and (reason := _not_own(status)):
            raise CacheError(f"it {reason}")
        with os.fdopen(handle, "r+b" if update else "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_small(path: str | os.PathLike[str], budget: str) -> bytes:
    """All bytes of a file of ours (see `open_regular`); BudgetError where they are more than a budget."""
    with open_regular(path, own=True) as file:
        budgets.check(budget, os.fstat(file.fileno()).st_size, os.fspath(path))
        return file.read()


# Folders ------------------------------------------------------------------------------------------


def check_private(folder: Path, *, sticky: bool = True) -> None:
    """CacheError where others than the user and the superuser could put files into a folder, or replace what is there.

    A folder that isn't there yet is fine.

    Args:
        folder: it may be a link.
        sticky: it may be one that all can write but where nobody replaces another's files, such as /tmp; whoever reads
            files looks whose they are.
    """
    try:
        status = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(status.st_mode):
        return  # What is written into it says so.
    if sticky and status.st_mode & stat.S_ISVTX and status.st_uid in _trusted():
        return
    if reason := _not_own(status):
        raise CacheError(f"{folder} {reason}")


def make_private(folder: Path) -> None:
    """Makes a folder that others can't write, and those above it that aren't there. Raises OSError."""
    missing = [folder, *folder.parents]
    for each in reversed(missing):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def _not_own(status: os.stat_result) -> str:
    """Why others may have written a file or folder, or nothing."""
    if status.st_uid not in _trusted():
        return f"belongs to {_user(status.st_uid)}, but has to be of {_user(os.geteuid())} or root"
    if status.st_mode & _BY_OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        return f"can be written by others (its mode is {mode:o}), but holds code: 'chmod go-w' makes it one's own"
    return ""


def _trusted() -> tuple[int, ...]:
    return (0, os.geteuid())


def _user(number: int) -> str:
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    return f"user {number}"


# Writing ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False, private: bool = False) -> Iterator[BinaryIO]:
    """A new file, open to be written and read, that takes the name of another once the block is over.

    Readers see the old content or the new, never a part; where the block raises, the new file is gone and the old one
    is as it was. A link of that name is replaced, not followed. What a process left that was killed while it wrote the
    same file is removed, once it is old enough.

    Args:
        path: the file; folders that it needs are made.
        durable: have it on the disk before it gets its name: a machine that stops leaves one of both, too.
        private: the user alone may read and write it, as the cache wants; else the process's umask decides, as for any
            other file.

    Raises OSError where it can't be written.
    """
    _make_folder_of(path)
    remove_left_over(path.parent, path.name)
    temporary, handle = _new_file(path, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_place(path: Path) -> None:
    """Raises OSError where `replacing` couldn't write a file: for what takes long before there is something to write.

    Folders that it needs are made; nothing else is left behind.
    """
    _make_folder_of(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary, handle = _new_file(path, 0o600)
    os.close(handle)
    temporary.unlink(missing_ok=True)


def _make_folder_of(path: Path) -> None:
    """Makes the folder that a file is to be in. Raises OSError, NotADirectoryError where that is a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path.parent)) from None


def _new_file(path: Path, mode: int) -> tuple[Path, int]:
    """A file beside another that nobody had before, open; the umask takes bits of its mode."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PART}")
        with contextlib.suppress(FileExistsError):
            return temporary, os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def remove_left_over(folder: Path, name: str = "") -> None:
    """Removes what processes left that were killed while they wrote a file in a folder, or any, once it is old."""
    for left_over in folder.glob(f".{glob.escape(name) or '*'}.*{_PART}"):
        with contextlib.suppress(OSError):
            if time.time() - left_over.lstat().st_mtime > LEFT_OVER_SECONDS:
                left_over.unlink()


def write_atomically(path: Path, data: bytes, *, durable: bool = False, private: bool = False) -> None:
    """Writes a file as `replacing` does, whose arguments and errors these are.

    Args:
        path, durable, private: see there.
        data: its content.
    """
    with replacing(path, durable=durable, private=private) as file:
        file.write(data)


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str], *, append: bool = False, follow: bool = True) -> Iterator[BinaryIO]:
    """Opens a file that the user named for writing; what was in it goes, unless `append`.

    In a folder that all can write, such as /tmp, another user may have put a link or a file of that name there before:
    neither is written, as Linux itself refuses it where it is set up so (``fs.protected_symlinks``).

    Args:
        path: the file; folders that it needs are made.
        append: write at its end.
        follow: elsewhere, a link stands for what it leads to; not for names that are ours, in a folder of the user's.

    Raises InputError for these, OSError where it can't be opened.
    """
    name = os.fspath(path)
    _make_folder_of(Path(name))
    folder = os.stat(os.path.dirname(name) or ".")
    shared = bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & _BY_OTHERS)

    follow = follow and not shared

    def check(status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise InputError(f"'{name}' is a link{' in a folder that all can write' * shared}: it isn't followed")
        if shared and status.st_uid not in (os.geteuid(), folder.st_uid):
            raise InputError(
                f"'{name}', in a folder that all can write, belongs to {_user(status.st_uid)}: it isn't written"
            )

    if not follow and os.path.lexists(name):  # before it is opened, which a pipe would wait for
        check(os.lstat(name))
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(name, flags | (os.O_APPEND if append else 0), 0o666)
    with os.fdopen(handle, "wb") as file:
        status = os.fstat(handle)
        if not follow:
            check(status)
        if stat.S_ISREG(status.st_mode) and not append:
            file.truncate(0)
        yield file


def write_output(path: str | os.PathLike[str], text: str, *, follow: bool = True) -> None:
    """Writes a text, in UTF-8, to a file that the user named; arguments and errors are those of `open_output`."""
    with open_output(path, follow=follow) as file:
        file.write(text.encode())
