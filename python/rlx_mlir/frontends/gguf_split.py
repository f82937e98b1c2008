# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The files of a split model: `name-00001-of-00003.gguf` and so on, each a whole GGUF file with some of the tensors.

Their metadata says which they are: `split.no` is the number, from 0 on, `split.count` how many there are, and
`split.tensors.count` how many tensors they have together. All but the first have no other metadata that counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from rlx_mlir.frontends.model_file import MetadataValue

from .. import budgets
from ..errors import GGUFError
from ..files import is_there

_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


class Header(Protocol):
    """What is asked of the description of a tensor."""

    @property
    def header_offset(self) -> int: ...


class Part(Protocol):
    """What is asked of an open file."""

    @property
    def path(self) -> str | None: ...
    @property
    def metadata(self) -> Mapping[str, MetadataValue]: ...
    @property
    def tensors(self) -> Mapping[str, Header]: ...
    def close(self) -> None: ...


File = TypeVar("File", bound=Part)


def part_name(stem: str, number: int, count: int) -> str:
    """The name of one of `count` files, by its number from 0 on."""
    return f"{stem}-{number + 1:05}-of-{count:05}.gguf"


def _number(file: Part, key: str) -> int | None:
    """A count of the metadata; None where there is none, or anything but a whole number."""
    value = file.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def split_count(file: Part) -> int:
    """How many files the model has that this one says it belongs to; 1 where it is whole, or says nothing of use."""
    return max(_number(file, "split.count") or 1, 1)


def open_others(file: File, open_one: Callable[[str], File]) -> list[File]:
    """The other files of the model that `file`, opened by its path, is one of, in order; none where it is whole.

    Args:
        open_one: opens and checks the file of a path alone.

    Raises GGUFError where the numbers or names don't fit, where files are missing, and where two have the same tensor.
    """
    count = split_count(file)
    if count == 1:
        return []
    assert file.path is not None
    number = _number(file, "split.no")
    if number is None or not 0 <= number < count:
        found = file.metadata.get("split.no")
        raise GGUFError(
            f"'split.no' of one of {count} files must be from 0 to {count - 1}, but is {found!r}", path=file.path
        )
    folder, name = os.path.split(file.path)
    match = _NAME.fullmatch(name)
    ending = part_name("", number, count)
    if match is None or part_name(match[1], number, count) != name:
        raise GGUFError(
            f"by 'split.no' and 'split.count' it is file {number + 1} of {count} of a split model, so that its name "
            f"must end with '{ending}'",
            path=file.path,
        )
    paths = [os.path.join(folder, part_name(match[1], other, count)) for other in range(count) if other != number]
    missing = [os.path.basename(path) for path in paths if not is_there(path)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise GGUFError(
            f"it is file {number + 1} of {count} of a split model, but {', '.join(missing[:3])}{more} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            path=file.path,
        )
    others: list[File] = []
    try:
        others.extend(_opened(number, paths, open_one))
        _check_tensors(file, others)
    except BaseException:
        for other in others:
            other.close()
        raise
    return others


def _opened(number: int, paths: Sequence[str], open_one: Callable[[str], File]) -> Iterator[File]:
    """The files at the paths, each of which says that it is the one of that place; all but the one of `number`."""
    places = [place for place in range(len(paths) + 1) if place != number]
    for place, path in zip(places, paths, strict=True):
        other = open_one(path)
        for key, expected in (("split.no", place), ("split.count", len(paths) + 1)):
            found = _number(other, key)
            if found != expected:
                other.close()
                raise GGUFError(f"'{key}' must be {expected}, by the name of the file, but is {found}", path=path)
        yield other


def _check_tensors(file: Part, others: Sequence[Part]) -> None:
    """No two files have the same tensor, and there are as many as each file says."""
    files = [file, *others]
    total = sum(len(own.tensors) for own in files)
    budgets.check("tensors", total, file.path or "the file")
    origin: dict[str, Part] = {}
    for own in files:
        for name, info in own.tensors.items():
            if name in origin:
                raise GGUFError(
                    f"the tensor '{name}' is in {os.path.basename(origin[name].path or '')}, too",
                    path=own.path,
                    offset=info.header_offset,
                )
            origin[name] = own
    for own in files:
        said = _number(own, "split.tensors.count")
        if said != total:
            raise GGUFError(f"'split.tensors.count' must be {total}, as the files have, but is {said}", path=own.path)


__all__ = ["Part", "open_others", "part_name", "split_count"]
