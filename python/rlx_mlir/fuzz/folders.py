# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer of encoders' folders: damages the files of one, in their structure or their bytes, and reads them all.

Only errors of ours may come of it, in little time, and with no more than 512 MiB beside what libraries have.

Tasks: `{seed, index, file}` writes a case and reads it; `{file}` reads one that is there. A case is one file: a JSON
object with the content of each file of the folder, as text in Latin-1.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from rlx_mlir.errors import RlxError
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.fuzz.refusal import check_refusal

SUFFIX = ".folder"
_VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 1 << 31, 1 << 63, 1 << 200, 1.5, 1e300, "", "x", "..", "../x", "/etc", "\0", "é",
    "mean", "a" * 5000, [], {}, [[]], {"content": "x"}, {"Regex": "("}, [1, 2], {"a": {"b": {}}},
)  # fmt: skip
_RAW = (
    b"", b"\0", b"\xff\xfe", b"{", b"NaN", b"1" * 5000, b"[" * 5000, b'{"a":1,"a":2}', b'"\\ud800"', b"\xef\xbb\xbf{}",
    b"1e999", "\u2028".encode(), b"\r", b"-", b"Infinity",
)  # fmt: skip
_NORMALIZERS = (
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": "x"},
    {"type": "Replace", "pattern": {"String": ""}, "content": "xx"},
    {"type": "Lowercase"},
    {"type": "Sequence", "normalizers": []},
    {"type": "Prepend", "prepend": ""},
)


def _shapes() -> dict[str, tuple[int, ...]]:
    width, inner, vocab = 4, 8, 9
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocab, width),
        "embeddings.position_embeddings.weight": (16, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    parts = {
        "attention.self.query": (width, width),
        "attention.self.key": (width, width),
        "attention.self.value": (width, width),
        "attention.output.dense": (width, width),
        "attention.output.LayerNorm": (width,),
        "intermediate.dense": (inner, width),
        "output.dense": (width, inner),
        "output.LayerNorm": (width,),
    }
    for name, shape in parts.items():
        shapes[f"encoder.layer.0.{name}.weight"] = shape
        shapes[f"encoder.layer.0.{name}.bias"] = shape[:1]
    return shapes


def _safetensors(shapes: dict[str, tuple[int, ...]]) -> bytes:
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(offset)


def source() -> dict[str, bytes]:
    """The files of a small BERT as sentence-transformers lays them out, its tensors in one file and in two."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "é"]
    vocabulary = {word: number for number, word in enumerate(words)}
    shapes = _shapes()
    names = list(shapes)
    halves = {"one.safetensors": names[:7], "two.safetensors": names[7:]}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": n, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
            for w, n in vocabulary.items() if w[0] == "["
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocabulary},
    }  # fmt: skip
    documents: dict[str, object] = {
        "config.json": {
            "model_type": "bert", "num_hidden_layers": 1, "hidden_size": 4, "num_attention_heads": 2,
            "intermediate_size": 8, "vocab_size": 9, "max_position_embeddings": 16, "type_vocab_size": 2,
            "hidden_act": "gelu", "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
        },
        "modules.json": [
            {"idx": i, "name": str(i), "path": "" if not i else f"{i}_{kind}",
             "type": f"sentence_transformers.models.{kind}"}
            for i, kind in enumerate(("Transformer", "Pooling", "Normalize"))
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 4, "pooling_mode_mean_tokens": True,
                                  "pooling_mode_cls_token": False, "include_prompt": True},
        "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "a "}, "default_prompt_name": "query",
                                              "similarity_fn_name": "cosine", "__version__": {"torch": "2"}},
        "tokenizer_config.json": {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True,
                                  "model_max_length": 512, "unk_token": "[UNK]", "tokenizer_class": "BertTokenizer",
                                  "added_tokens_decoder": {"0": {"content": "[PAD]"}}},
        "special_tokens_map.json": {"unk_token": "[UNK]", "cls_token": {"content": "[CLS]"}},
        "tokenizer.json": tokenizer,
        "model.safetensors.index.json": {
            "metadata": {"total_size": 1},
            "weight_map": {name: file for file, own in halves.items() for name in own},
        },
    }  # fmt: skip
    files = {name: json.dumps(value).encode() for name, value in documents.items()}
    files |= {file: _safetensors({name: shapes[name] for name in own}) for file, own in halves.items()}
    return files | {"model.safetensors": _safetensors(shapes), "vocab.txt": "\n".join(words).encode()}


def _places(value: object) -> list[tuple[Any, Any]]:
    """Containers and keys of all values in a JSON value."""
    found: list[tuple[Any, Any]] = []
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found.append((value, key))
        found += _places(each)
    return found


def mutate(files: dict[str, bytes], rng: np.random.Generator) -> str:
    """Damages one file; what was done."""
    name = sorted(files)[int(rng.integers(len(files)))]
    data = files[name]
    how = str(rng.choice(["value", "value", "value", "raw", "bytes", "drop", "key", "normalizer"]))
    header = name.endswith(".safetensors")
    if how == "normalizer" and "tokenizer.json" in files:
        name, data = "tokenizer.json", files["tokenizer.json"]
    text = data[8 : 8 + struct.unpack("<Q", data[:8])[0]] if header and len(data) >= 8 else data
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        how = "bytes" if how != "drop" else how
    places = _places(value) if how in ("value", "raw", "key") else []
    if how == "drop":
        del files[name]
        return f"drop {name}"
    if how == "normalizer":
        if isinstance(value, dict):
            value["normalizer"] = _NORMALIZERS[int(rng.integers(len(_NORMALIZERS)))]
        changed = json.dumps(value).encode()
    elif places:
        container, key = places[int(rng.integers(len(places)))]
        if how == "key" and isinstance(container, dict):
            container[str(rng.choice(["x", "", "\0", "kwargs", "auto_map", "pooling_mode"]))] = container.pop(key)
            changed = json.dumps(value).encode()
        elif how == "raw":
            container[key] = "@@"
            changed = json.dumps(value).encode().replace(b'"@@"', _RAW[int(rng.integers(len(_RAW)))])
        else:
            container[key] = _VALUES[int(rng.integers(len(_VALUES)))]
            changed = json.dumps(value).encode()
    else:
        damaged = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(len(damaged))) if damaged else 0
            damaged[at : at + int(rng.integers(0, 3))] = bytes(rng.integers(0, 256, int(rng.integers(0, 4)), np.uint8))
        files[name] = bytes(damaged)
        return f"bytes of {name}"
    files[name] = struct.pack("<Q", len(changed)) + changed + data[8 + len(text) :] if header else changed
    return f"{how} of {name}"


def write(seed: int, index: int) -> dict[str, bytes]:
    """The files of a number."""
    rng = np.random.default_rng([seed, index])
    files = source()
    for name, chance in (("model.safetensors", 0.4), ("tokenizer.json", 0.4)):
        if rng.random() < chance:
            del files[name]
    for _ in range(int(rng.integers(1, 4))):
        mutate(files, rng)
    return files


def prepare() -> None:
    """Loads what reading needs, so that its memory doesn't count."""
    with tempfile.TemporaryDirectory() as folder:
        _store(source(), Path(folder))
        if not read_everything(Path(folder)):
            raise AssertionError("the folder that isn't damaged is refused")


def handle(task: Task) -> Outcome:
    """Runs one task."""
    if "reduce" in task:
        return {"files": []}
    path = Path(task["file"])
    if "seed" in task:
        files = write(task["seed"], task["index"])
        path.write_text(json.dumps({name: data.decode("latin-1") for name, data in files.items()}))
    files = {name: text.encode("latin-1") for name, text in json.loads(path.read_text()).items()}
    folder = Path(tempfile.mkdtemp(prefix="rlx-fuzz-folder-"))
    try:
        _store(files, folder)
        answer = {"status": "ok" if read_everything(folder) else "refused"}
    finally:
        shutil.rmtree(folder)
    if "seed" in task:
        path.unlink()
    return answer


def _store(files: dict[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def read_everything(folder: Path) -> bool:
    """Reads all that a folder offers; whether nothing was refused. Anything but errors of ours goes to the caller."""
    from rlx_mlir.models import encoder
    from rlx_mlir.models.embedding import TextTokenizer, open_weights
    from rlx_mlir.models.encoder_config import EncoderConfig
    from rlx_mlir.models.sentence_files import SentenceFiles

    try:
        files = SentenceFiles.of(folder)
        weights = open_weights(files.base)
        config = EncoderConfig.from_folder(folder, weights, None, files)
        json.dumps(encoder.describe(config))
        encoder.parameters(config, weights)
        tokenizer = TextTokenizer(files.base, config)
        prompt = config.texts.prompts.get(config.texts.default_prompt or "", "")
        texts = [config.texts.apply(text, prompt) for text in ("", "A cats é\0 x")]
        for truncate in (False, True):
            ids = tokenizer.encode(texts, truncate=truncate)
        tokenizer.decode(ids[0])
    except RlxError as error:
        check_refusal(error)
        return False
    return True
