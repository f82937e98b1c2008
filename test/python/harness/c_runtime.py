# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The library librlx_runtime.so, `include/rlx/runtime.h`, by ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from c_api import SIGNATURES, CError, CLibrary, CModel

from rlx_mlir import native

VERSION = 1
SPECIAL, NO_BEGIN, BEHIND = 1, 2, 4
GOES_ON, ENDS, FULL = range(3)

_SIZE, _HANDLE, _TEXT, _STATUS = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_COUNT = ctypes.POINTER(_SIZE)


class Options(ctypes.Structure):
    """`rlx_open_options`."""

    _fields_ = (("version", ctypes.c_uint32), ("threads", ctypes.c_int32), ("level", _TEXT))


class Sampling(ctypes.Structure):
    """`rlx_sampling`."""

    _fields_ = (
        ("temperature", ctypes.c_double),
        ("top_k", ctypes.c_int32),
        ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double),
        ("seed", ctypes.c_uint64),
    )


class Token(ctypes.Structure):
    """`rlx_token`."""

    _fields_ = (("id", ctypes.c_int32), ("end", ctypes.c_int), ("text", ctypes.c_void_p), ("bytes", _SIZE))


_SESSION: dict[str, list[Any]] = {
    "truncate": [_SIZE],
    "feed": [ctypes.c_void_p, _SIZE],
    "feed_text": [_TEXT, _SIZE, ctypes.c_int32],
    "say": [_TEXT, _TEXT, _SIZE],
    "date": [ctypes.c_int64],
    "step": [ctypes.c_int32],
    "logits": [ctypes.POINTER(ctypes.c_void_p), _COUNT],
    "sampling": [ctypes.POINTER(Sampling)],
    "next": [ctypes.POINTER(Token)],
}
_OWN: dict[str, tuple[Any, list[Any]]] = {
    "runtime_version": (ctypes.c_uint32, []),
    "open": (_STATUS, [_TEXT, ctypes.POINTER(Options), ctypes.POINTER(_HANDLE)]),
    "verify": (_STATUS, [_TEXT]),
    "level": (_TEXT, [_HANDLE]),
    "tokenize": (_STATUS, [_HANDLE, _TEXT, _SIZE, ctypes.c_int32, ctypes.c_void_p, _SIZE, _COUNT]),
    "token_bytes": (_STATUS, [_HANDLE, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), _COUNT]),
    "session_new": (_STATUS, [_HANDLE, ctypes.POINTER(_HANDLE)]),
    "session_free": (None, [_HANDLE]),
    "session_count": (_SIZE, [_HANDLE]),
    "session_room": (_SIZE, [_HANDLE]),
    **{f"session_{name}": (_STATUS, [_HANDLE, *arguments]) for name, arguments in _SESSION.items()},
}


def library_path() -> Path:
    """Where the library is installed."""
    return native.folder() / "lib" / "librlx_runtime.so"


@functools.cache
def library() -> CLibrary:
    """The library, loaded into this process."""
    signatures = {name: own for name, own in SIGNATURES.items() if name != "load"} | _OWN
    return CLibrary(library_path(), "rlx", signatures)


def verify(path: Path) -> None:
    """`rlx_verify`; raises CError."""
    functions = library().functions
    if status := functions["verify"](str(path).encode()):
        raise CError(status, functions["error"](None).decode())


class Opened(CModel):
    """A file that is opened."""

    def __init__(self, path: Path, *, threads: int = 0, level: str | None = None, version: int = VERSION) -> None:
        """Raises CError."""
        own = library()
        options = Options(version, threads, None if level is None else level.encode())
        handle = _HANDLE()
        self.handle = None
        if status := own.functions["open"](str(path).encode(), ctypes.byref(options), ctypes.byref(handle)):
            assert handle.value is None
            raise CError(status, own.functions["error"](None).decode())
        super().__init__(own, handle)

    def __del__(self) -> None:
        if self.handle is not None:
            super().__del__()

    def check(self, status: int) -> None:
        """Raises CError, with the handle's text, where a status isn't 0."""
        if status:
            raise CError(status, self.library.functions["error"](self.handle).decode())

    @property
    def level(self) -> str:
        """`rlx_level`."""
        found: bytes = self.library.functions["level"](self.handle)
        return found.decode()

    def tokenize(self, text: str | bytes, flags: int = 0) -> list[int]:
        """`rlx_tokenize`, which is asked for the number of ids first."""
        data, count = text.encode() if isinstance(text, str) else text, _SIZE()
        call = functools.partial(self.library.functions["tokenize"], self.handle, data, len(data), flags)
        self.check(call(None, 0, ctypes.byref(count)))
        ids = (ctypes.c_int32 * count.value)()
        self.check(call(ids, count.value, ctypes.byref(count)))
        return list(ids)

    def token_bytes(self, index: int, flags: int = 0) -> bytes:
        """`rlx_token_bytes`."""
        text, count = ctypes.c_void_p(), _SIZE()
        self.check(
            self.library.functions["token_bytes"](self.handle, index, flags, ctypes.byref(text), ctypes.byref(count))
        )
        return ctypes.string_at(text.value or 0, count.value)

    def session(self) -> Session:
        """A new session; raises CError."""
        return Session(self)


class Session:
    """A session; it is freed with the object."""

    def __init__(self, model: Opened) -> None:
        self.model = model
        self.handle = _HANDLE()
        model.check(model.library.functions["session_new"](model.handle, ctypes.byref(self.handle)))

    def __del__(self) -> None:
        self.model.library.functions["session_free"](self.handle)

    def __len__(self) -> int:
        return int(self.model.library.functions["session_count"](self.handle))

    @property
    def room(self) -> int:
        """`rlx_session_room`."""
        return int(self.model.library.functions["session_room"](self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        """A function of sessions; raises CError."""
        self.model.check(self.model.library.functions[f"session_{name}"](self.handle, *arguments))

    def feed(self, ids: Sequence[int]) -> None:
        """Token ids."""
        self.call("feed", (ctypes.c_int32 * len(ids))(*ids), len(ids))

    def feed_text(self, text: str, flags: int = 0) -> None:
        """A text."""
        self.call("feed_text", text.encode(), len(text.encode()), flags)

    def say(self, role: str, content: str) -> None:
        """A message."""
        self.call("say", role.encode(), content.encode(), len(content.encode()))

    def date(self, seconds: int) -> None:
        """The time whose date templates write."""
        self.call("date", seconds)

    def sample(self, temperature: float, top_k: int, top_p: float, min_p: float, seed: int) -> None:
        """How tokens are chosen."""
        self.call("sampling", ctypes.byref(Sampling(temperature, top_k, top_p, min_p, seed)))

    def next(self) -> tuple[int, int, bytes]:
        """The next token: its id, whether the text ends, and its bytes."""
        token = Token()
        self.call("next", ctypes.byref(token))
        return token.id, token.end, ctypes.string_at(token.text or 0, token.bytes)

    def ids(self, count: int) -> list[int]:
        """So many tokens more, or fewer where the text ends."""
        found: list[int] = []
        while len(found) < count:
            index, end, _ = self.next()
            if end:
                break
            found.append(index)
        return found

    @property
    def logits(self) -> np.ndarray:
        """A copy of the logits of the next token."""
        address, count = ctypes.c_void_p(), _SIZE()
        self.call("logits", ctypes.byref(address), ctypes.byref(count))
        assert address.value is not None
        return np.frombuffer(ctypes.string_at(address.value, 4 * count.value), np.float32)


__all__ = [
    "BEHIND",
    "ENDS",
    "FULL",
    "GOES_ON",
    "NO_BEGIN",
    "SPECIAL",
    "VERSION",
    "Opened",
    "Session",
    "library",
    "library_path",
    "verify",
]
