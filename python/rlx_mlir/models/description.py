# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model's file holds, in numbers: for `rlx inspect`. Works for files that can't be run, too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import RlxError
from ..files import Json
from ..frontends.gguf import GGUFFile
from ..frontends.model_file import ModelFile, TensorInfo
from ..models.bundled_file import BundledFile
from ..models.config import ModelConfig
from ..models.older_latents import OlderLatents
from ..models.opening import open_model
from ..models.weights import broken_tensors

_LISTED = 12  # tensors that aren't finite
_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context")


def describe_file(name_or_path: str, *, tensors: bool = False, verify: bool = False) -> dict[str, object]:
    """Architecture, sizes, tensor types and whether the model can be run, as JSON can write them.

    Args:
        name_or_path: a file, or the name of a known model, which is fetched if need be.
        tensors: list every tensor.
        verify: read every tensor, and list those with NaN or infinity among scales or elements; of a bundle, every
            section, whose digest is compared.

    Raises InputError where there is no such file, DownloadError where a model can't be fetched, GGUFError where it is
    malformed, CacheError where a bundle is damaged.
    """
    file = open_model(name_or_path)
    path = file.path
    source = file.source if isinstance(file, OlderLatents) else file
    infos = list(source.tensors.values())
    found: dict[str, Json] = {
        "file": str(path),
        "bytes": sum(os.stat(part).st_size for part in file.paths if part is not None),
        "files": len(file.paths),
        "format": _format(file),
        "version": source.version if isinstance(source, GGUFFile) else None,
        "name": _of_type(file, "general.name", str),
        "architecture": file.architecture,
        "parameters": sum(info.size for info in infos),
        "tensors": len(infos),
        "tensor_bytes": sum(info.nbytes or 0 for info in infos),
        "types": _types(infos),
        "tokenizer": _of_type(file, "tokenizer.ggml.model", str),
        "pre_tokenizer": _of_type(file, "tokenizer.ggml.pre", str),
        "chat_template": "tokenizer.chat_template" in file.metadata,
        "context": _of_type(file, f"{file.architecture}.context_length", int),
    }
    try:
        config = ModelConfig.from_gguf(file)
    except RlxError as error:
        prefix = f"{path}: "
        found["runs"], found["reason"] = False, str(error).removeprefix(prefix)
    else:
        found["runs"], found["reason"] = True, None
        found["config"] = config.numbers()
    if isinstance(file, BundledFile):
        found["bundle"] = {
            "levels": [level.name for level in file.bundle.levels],
            "modules": list(file.bundle.modules),
            "options": dict(file.bundle.options()),
        }
        if verify:
            file.bundle.verify()
    elif verify:
        found["broken"] = broken_tensors(file)
        if found["broken"] and found["runs"]:
            found["runs"], found["reason"] = False, found["broken"][0]["text"]
    if tensors:
        found["tensor_list"] = [
            {"name": info.name, "shape": list(info.shape), "type": info.type, "bytes": info.nbytes} for info in infos
        ]
    return found


def _format(file: ModelFile) -> str:
    if isinstance(file, BundledFile):
        return "bundle"
    return "GGUF" if isinstance(file, GGUFFile | OlderLatents) else "Hugging Face folder"


def _of_type(file: ModelFile, key: str, kind: type) -> Json:
    """A metadata value; None where the file has none of that key, or one of another type."""
    value = file.metadata.get(key)
    return value if isinstance(value, kind) else None


def _types(infos: list[TensorInfo]) -> list[dict[str, Json]]:
    """Tensor types with counts and shares, the one with most bytes first."""
    total = sum(info.nbytes or 0 for info in infos) or 1
    by_type: dict[str, list[TensorInfo]] = {}
    for info in infos:
        by_type.setdefault(info.type, []).append(info)
    rows = []
    for name, group in by_type.items():
        size = sum(info.nbytes or 0 for info in group)
        rows.append(
            {
                "type": name,
                "tensors": len(group),
                "parameters": sum(info.size for info in group),
                "bytes": size,
                "percent": round(100 * size / total, 2),
            }
        )
    return sorted(rows, key=lambda row: -int(row["bytes"]))


def format_description(found: Mapping[str, Json]) -> str:
    """The description as lines of text."""
    size = f"{found['bytes'] / 1e6:.1f} MB" + (f" in {found['files']} files" if found["files"] > 1 else "")
    lines = [
        f"file          {Path(found['file']).name}, {size}, {found['format']}"
        + (f" version {found['version']}" if found["version"] is not None else ""),
        f"model         {found['name'] or 'unnamed'}",
        f"architecture  {found['architecture']}",
        f"parameters    {found['parameters']:,} in {found['tensors']} tensors",
    ]
    if found["context"] is not None:
        lines.append(f"context       {found['context']}")
    if "config" in found:
        sizes = found["config"]
        lines.append(f"sizes         {', '.join(f'{name} {sizes[name]}' for name in _SIZES if name != 'context')}")
        lines.append(f"head          {'tied to the embedding table' if sizes['tied_head'] else 'a matrix of its own'}")
    tokenizer = found["tokenizer"] or "none"
    if found["pre_tokenizer"]:
        tokenizer += f" ({found['pre_tokenizer']})"
    lines.append(f"tokenizer     {tokenizer}, {'with' if found['chat_template'] else 'without'} a chat template")
    lines.append(f"runs          {'yes' if found['runs'] else 'no: ' + found['reason']}")
    if "bundle" in found:
        own = found["bundle"]
        lines.append(f"code          {', '.join(own['modules'])} for {', '.join(own['levels'])}")
        fixed = (f"{name} {value}" for name, value in own["options"].items() if value is not None)
        lines.append(f"bundled with  {', '.join(fixed)}")
    if "broken" in found:
        own = found["broken"]
        listed = [f"  {row['text']}: {row['count']} in all" for row in own[:_LISTED]]
        listed += [f"  and {len(own) - _LISTED} more tensors"] if len(own) > _LISTED else []
        lines.append(f"weights       {'not finite in ' + str(len(own)) + ' tensors' if own else 'all finite'}")
        lines += listed
    lines += ["", f"{'type':<12} {'tensors':>8} {'parameters':>15} {'MB':>9} {'% of bytes':>11}"]
    lines += [
        f"{row['type']:<12} {row['tensors']:>8} {row['parameters']:>15,} {row['bytes'] / 1e6:>9.1f} "
        f"{row['percent']:>11.2f}"
        for row in found["types"]
    ]
    if "tensor_list" in found:
        width = max((len(row["name"]) for row in found["tensor_list"]), default=4)
        lines += ["", f"{'tensor':<{width}}  {'type':<8} {'bytes':>12}  shape"]
        lines += [
            f"{row['name']:<{width}}  {row['type']:<8} {row['bytes'] if row['bytes'] is not None else '?':>12}  "
            f"{row['shape']}"
            for row in found["tensor_list"]
        ]
    return "\n".join(lines)


__all__ = ["describe_file", "format_description"]
