# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands `rlx cache`: what the cache holds, why an entry serves or doesn't, and how to get rid of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.activations import way_of
from rlx_mlir.errors import CacheError, InputError, RlxError, reason_of
from rlx_mlir.files import Json
from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    ChunkOption,
    Commands,
    ContextOption,
    JsonOption,
    configuration,
    example,
    print_json,
)

if TYPE_CHECKING:
    from rlx_mlir.runtime.artifact import Artifact

_PARTS = {
    "models": "models",
    "compiled": "compiled",
    "tuned": "tuned",
    "prepared": "prepared",
    "machine": "machine",
    "shapes": "shapes",
}
"""Folders in the cache by what they hold; nothing else in it is ours to delete."""

#: Digits of a key that name an entry in lists.
_SHORT = 12
#: Digits of a hash that are shown.
_HASH = 12

#: What JSON shows of one thing.
Row = dict[str, Json]

app = typer.Typer(
    cls=Commands,
    invoke_without_command=True,
    rich_markup_mode="rich",
    help="Show the cache: compiled code, prepared weights, what was measured, models; all of it can be made again.",
    epilog=example("rlx cache", "rlx cache list", "rlx cache explain smollm2", "rlx cache clear"),
)


@app.callback()
def cache(context: typer.Context, as_json: JsonOption = False) -> None:
    """Without a command: the folder, and how much is in it."""
    if context.invoked_subcommand is not None:
        return
    description = describe_cache()
    if as_json:
        print_json(description)
        return
    typer.echo(description["folder"])
    for name, part in description["parts"].items():
        most = f" of at most {part['most_bytes'] / 1e6:.0f}" if "most_bytes" in part else ""
        typer.echo(f"  {name:<10} {part['files']:>5} files {part['bytes'] / 1e6:>9.1f} MB{most}")


@app.command("list", epilog=example("rlx cache list", "rlx cache list --json"))
def list_entries(as_json: JsonOption = False) -> None:
    """List compiled modules and prepared weights: key, size, what they are, and whether they would be used here."""
    from rlx_mlir.stages import table

    found = [entry.to_dict() for entry in entries()] + prepared_weights()
    if as_json:
        print_json(found)
        return
    rows = [
        (row["key"][:_SHORT], f"{row['bytes'] / 1e3:.0f}", row["module"], row["options"], row["serves"])
        for row in found
    ]
    typer.echo("\n".join(table(("key", "kB", "module", "options", "serves"), rows, right="kB")))


@app.command(epilog=example("rlx cache explain smollm2", "rlx cache explain 3f9a1c"))
def explain(
    what: Annotated[str, typer.Argument(help="First digits of a key, a .gguf file, or the name of a known model.")],
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    as_json: JsonOption = False,
) -> None:
    """Say what a key is made of, whether the entry is used here, and what keeps it from that.

    Of a model, with the options that it would be compiled with: the entry of each of its modules, or the nearest ones.
    """
    is_key = bool(what) and all(digit in "0123456789abcdef" for digit in what) and not Path(what).exists()
    found = explain_key(what) if is_key else explain_model(what, way_of(activations.value, "cpu"), context, chunk)
    if as_json:
        print_json(found)
        return
    typer.echo("\n\n".join(_format_explanation(own) for own in found))


@app.command(epilog=example("rlx cache clear", "rlx cache clear --models"))
def clear(
    models: Annotated[bool, typer.Option("--models", help="Delete downloaded models, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete compiled code, prepared weights, what was measured, and models of `rlx bench --shape`."""
    freed = clear_cache(models=models)
    description = describe_cache()
    if as_json:
        print_json({**description, "freed_bytes": freed})
        return
    typer.echo(f"freed {freed / 1e6:.1f} MB in {description['folder']}")


# The folder ---------------------------------------------------------------------------------------


def describe_cache() -> Row:
    """The folder, number and size of the files of each kind, and how large prepared weights may become."""
    from rlx_mlir.paths import cache_dir
    from rlx_mlir.runtime.prepared_cache import most_bytes

    parts = {}
    for name, folder in _PARTS.items():
        sizes = _sizes(cache_dir() / folder)
        parts[name] = {"files": len(sizes), "bytes": sum(sizes)}
    parts["prepared"]["most_bytes"] = most_bytes()
    return {"folder": str(cache_dir()), "parts": parts}


def clear_cache(*, models: bool = False) -> int:
    """Deletes compiled code, prepared weights, what was measured, and random models, and returns how many bytes.

    Raises CacheError where they can't be deleted.

    Args:
        models: delete downloaded models, too.
    """
    from rlx_mlir.paths import cache_dir

    freed = 0
    for name, folder in _PARTS.items():
        if name == "models" and not models:
            continue
        path = cache_dir() / folder
        size = sum(_sizes(path))
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CacheError(f"{path} cannot be deleted: {reason_of(error)}") from error
        freed += size
    return freed


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


# Entries ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A file of compiled code: its artefact, where it can be read, and why it isn't used whatever is compiled."""

    path: Path
    artifact: Artifact | None
    damage: str = ""

    @property
    def key(self) -> str:
        return self.path.stem

    @property
    def parts(self) -> Row:
        """What its key is made of; empty where the file doesn't say."""
        return {} if self.artifact is None else self.artifact.key

    @property
    def module(self) -> str:
        """What was compiled, in a word."""
        if self.artifact is None:
            return "?"
        return str(self.parts.get("what", {}).get("program", self.artifact.name))

    def obstacles(self) -> list[str]:
        """Why neither this compiler nor this machine would use the entry, whatever is compiled; empty where it may."""
        if self.damage:
            return [self.damage]
        if not self.parts:
            return ["the file doesn't say what its key is made of: another version wrote it"]
        ours = own_parts()
        return [
            text for name in ("compiler", "host") for text in _differences(name, self.parts.get(name, {}), ours[name])
        ]

    def to_dict(self) -> Row:
        """As JSON can write it."""
        obstacles = self.obstacles()
        options = self.parts.get("options", {})
        words = [f"{name}={_word(value)}" for name, value in options.items() if value not in ("", [], {}, "cpu")]
        return {
            "key": self.key,
            "bytes": self.path.lstat().st_size,
            "module": self.module,
            "options": " ".join(words),
            "serves": f"no: {obstacles[0]}" if obstacles else "yes",
        }


def entries() -> list[Entry]:
    """The entries of compiled code, the newest first."""
    from rlx_mlir.runtime import cache as compile_cache
    from rlx_mlir.runtime.artifact import Artifact

    folder = compile_cache.folder()
    refused = ""
    try:
        compile_cache.check_folder(folder)
    except CacheError as error:
        refused = f"nothing is taken from the folder: {error}"
    times = {}
    for path in folder.glob("*.rlx"):
        with suppress(OSError):  # it may go meanwhile
            times[path] = path.lstat().st_mtime_ns
    found = []
    for path in sorted(times, key=lambda path: -times[path]):
        try:
            artifact = Artifact.load(path, own=True)
        except (OSError, RlxError) as error:
            found.append(Entry(path, None, refused or f"the file can't be read: {reason_of(error)}"))
            continue
        held = compile_cache.key_of(artifact.key)
        renamed = "" if held == path.stem else f"the file was renamed: what it holds has the key {held}"
        found.append(Entry(path, artifact, refused or renamed))
    return found


def prepared_weights() -> list[Row]:
    """The files of prepared weights, those that were used last first."""
    from rlx_mlir.runtime import prepared_cache

    rows = []
    for path, status in sorted(prepared_cache.files(), key=lambda own: -own[1].st_mtime_ns):
        row = {"key": path.name.removesuffix(prepared_cache.SUFFIX), "bytes": status.st_size}
        rows.append({**row, "module": "weights", "options": "", "serves": "yes"})
        try:
            found = prepared_cache.describe(path)
        except (OSError, RlxError) as error:
            rows[-1]["serves"] = f"no: the file can't be used: {reason_of(error)}"
            continue
        rows[-1]["options"] = f"model={found['model']}"
        if obstacle := prepared_cache.obstacle(found):
            rows[-1]["serves"] = f"no: {obstacle}"
    return rows


def own_parts() -> Row:
    """What keys are made of on this machine, by this compiler, beside what is compiled and how."""
    from rlx_mlir.runtime import cache as compile_cache

    return compile_cache.key_parts({}, {})


# Explanations -------------------------------------------------------------------------------------


def explain_key(prefix: str) -> list[Row]:
    """The entry whose key begins so; InputError where there is none, or more than one."""
    matching = [entry for entry in entries() if entry.key.startswith(prefix)]
    if len(matching) != 1:
        listed = ", ".join(entry.key[:_SHORT] for entry in matching) or "no entry"
        raise InputError(f"a key is named by its first digits, but '{prefix}' begins {listed}: see `rlx cache list`")
    (entry,) = matching
    obstacles = entry.obstacles()
    return [
        {
            "key": entry.key,
            "file": str(entry.path),
            "module": entry.module,
            "found": True,
            "serves": not obstacles,
            "reasons": obstacles,
            "parts": entry.parts,
        }
    ]


def explain_model(model: str, activations: str, context: int | None, chunk: int) -> list[Row]:
    """For each module of a model, its entry; where there is none, the nearest one, and in what that differs."""
    from rlx_mlir.compiler import CompileOptions
    from rlx_mlir.models import decoder
    from rlx_mlir.models.programs import maxima
    from rlx_mlir.runtime import cache as compile_cache

    config, positions = configuration(model, context)
    known = entries()
    found = []
    for program in decoder.PROGRAMS:
        largest = maxima(config, program, context=positions, chunk=min(chunk, positions))
        options = CompileOptions(activations=activations, maxima=largest).as_dict()
        parts = compile_cache.key_parts(decoder.describe(config, program), options)
        key = compile_cache.key_of(parts)
        entry = next((own for own in known if own.key == key), None)
        damage = [entry.damage] if entry is not None and entry.damage else []
        own: Row = {
            "key": key,
            "file": str(compile_cache.folder() / f"{key}.rlx"),
            "module": f"decoder.{program}",
            "found": entry is not None,
            "serves": entry is not None and not damage,
            "reasons": damage or ([] if entry is not None else ["there is no entry of this key"]),
            "parts": parts,
        }
        if entry is None:
            own["nearest"] = _nearest(parts, known)
        found.append(own)
    return found


def _nearest(parts: Mapping[str, Json], known: list[Entry]) -> Row | None:
    """The entry of the same module that differs in fewest ways, and these."""
    program = parts["what"]["program"]
    candidates = [
        (list(differences(entry.parts, parts)), entry)
        for entry in known
        if entry.parts.get("what", {}).get("program") == program
    ]
    if not candidates:
        return None
    reasons, entry = min(candidates, key=lambda candidate: len(candidate[0]))
    return {"key": entry.key, "file": str(entry.path), "differs": reasons}


def differences(theirs: Mapping[str, Json], ours: Mapping[str, Json]) -> Iterator[str]:
    """In what the parts of two keys differ: those of an entry, and those that are looked for."""
    for name in ("what", "options", "compiler", "host"):
        yield from _differences(name, theirs.get(name, {}), ours.get(name, {}))
    if theirs.get("formats") != ours.get("formats"):
        yield "formats: the entry was compiled where other block formats were registered, or had other sizes"


_TITLES = {"what": "model", "options": "option", "compiler": "compiler", "host": "processor"}


def _differences(part: str, theirs: Mapping[str, object], ours: Mapping[str, object]) -> Iterator[str]:
    title = _TITLES[part]
    for name in sorted({*theirs, *ours}, key=str):
        one, other = theirs.get(name), ours.get(name)
        if one == other:
            continue
        if name == "features" and part == "host":
            yield from _feature_differences(str(one or ""), str(other or ""))
        elif name == "build":
            yield f"compiler: the entry is of build {str(one)[:_HASH]}, this one is {str(other)[:_HASH]}"
        elif isinstance(one, Mapping) and isinstance(other, Mapping):
            names = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
            changes = [f"{key} {_word(one.get(key))} where {_word(other.get(key))} is wanted" for key in names[:3]]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            yield f"{title} {name}: the entry has {'; '.join(changes)}{more}"
        else:
            yield f"{title} {name}: the entry has {_word(one)} where {_word(other)} is wanted"


def _feature_differences(theirs: str, ours: str) -> Iterator[str]:
    one, other = ({word[1:] for word in text.split(",") if word.startswith("+")} for text in (theirs, ours))
    if lacking := sorted(one - other):
        yield f"processor: this one lacks {', '.join(lacking)}, which the entry was compiled for"
    if more := sorted(other - one):
        yield f"processor: this one has {', '.join(more)}, which the entry doesn't use"
    if one == other:
        yield "processor: its features are listed in another way"


def _word(value: object) -> str:
    if isinstance(value, Mapping):
        if "sha256" in value:
            return f"{value['sha256'][:_HASH]}…"
        return ",".join(f"{name}:{_word(own)}" for name, own in sorted(value.items()))
    if isinstance(value, list):
        return "+".join(map(_word, value)) or "none"
    if isinstance(value, str) and len(value) == 64 and not value.strip("0123456789abcdef"):
        return f"{value[:_HASH]}…"
    return "nothing" if value is None or value == "" else str(value)


def _format_explanation(own: Mapping[str, Json]) -> str:
    parts = own["parts"]
    state = "is used here" if own["serves"] else "isn't used here" if own["found"] else "isn't compiled yet"
    lines = [f"{own['module']} {state}", f"  key        {own['key']}", f"  file       {own['file']}"]
    if parts:
        what = parts["what"]
        weights = what.get("weights", {})
        described = {name: value for name, value in what.items() if name not in ("weights", "program")}
        lines.append(f"  what       {' '.join(f'{name}={_word(value)}' for name, value in described.items())}")
        if weights:
            kinds = sorted({str(own[0]) for own in weights.values()})
            lines.append(f"             {len(weights)} weights of types {', '.join(kinds)}")
        lines.append(f"  options    {' '.join(f'{n}={_word(value)}' for n, value in parts['options'].items())}")
        compiler, host = parts["compiler"], parts["host"]
        lines.append(f"  compiler   build {compiler['build'][:_HASH]}, MLIR {compiler['mlir']}")
        used = sum(word.startswith("+") for word in host["features"].split(","))
        lines.append(f"  processor  {host['architecture']}, {host['cpu']}, {used} features")
    lines += [f"  because    {reason}" for reason in own["reasons"]]
    if nearest := own.get("nearest"):
        lines.append(f"  nearest    {nearest['key'][:_SHORT]}")
        lines += [f"             {reason}" for reason in nearest["differs"]]
    return "\n".join(lines)


__all__ = ["app", "clear_cache", "describe_cache", "entries", "explain_key", "explain_model", "prepared_weights"]
