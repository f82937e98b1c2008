# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The files of sentence-transformers in an encoder's folder: how a text becomes tokens, and tokens one vector.

| file | entries that are honoured |
|---|---|
| `modules.json` | `type` and `path` of Transformer, Pooling, and Normalize at the end; `idx` and `name` say nothing |
| `sentence_bert_config.json` (or of another of its names) | `max_seq_length`, `do_lower_case` |
| `config_sentence_transformers.json` | `prompts`, `default_prompt_name` |
| the pooling's `config.json` | one mode, `mean` or `cls`; the width; `include_prompt` |

Any other entry that could change vectors is an error that names it; those that can't are listed here. Without
`modules.json` none of these files is read: vectors are the mean over tokens, not normalised.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..errors import ModelFileError, UnsupportedError, shortened
from ..files import inside, is_there
from ..frontends.documents import read_json, read_object

#: Names of the file that says how texts are read, in the order in which they are looked for.
_READING = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_KNOWN = ("Transformer", "Pooling", "Normalize")
_MODES = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}
_WIDTHS = ("word_embedding_dimension", "embedding_dimension")


@dataclass(frozen=True)
class TextRules:
    """What happens to a text before it is cut into tokens.

    Attributes:
        strip: blanks at both ends go.
        lowercase: it is put into lower case.
        prompts: texts that go in front, by name.
        default_prompt: the name of the one that goes in front where nothing else is said, or None.
    """

    strip: bool = False
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None

    def apply(self, text: str, prompt: str = "") -> str:
        """A text as the tokenizer gets it."""
        text = prompt + text
        text = text.strip() if self.strip else text
        return text.lower() if self.lowercase else text


@dataclass(frozen=True)
class SentenceFiles:
    """What these files say.

    Attributes:
        base: the folder of the transformer: its configuration, tensors and tokenizer.
        pooling: `mean` or `cls`.
        normalize: whether vectors are brought to length 1.
        width: of the vectors that are pooled, or None where it isn't said.
        max_tokens: tokens of a text that are read, or None where it isn't said.
        texts: what happens to texts before.
    """

    base: Path
    pooling: str = "mean"
    normalize: bool = False
    width: int | None = None
    max_tokens: int | None = None
    texts: TextRules = field(default_factory=TextRules)

    @classmethod
    def of(cls, folder: Path) -> SentenceFiles:
        """Reads the files of a folder.

        Raises ModelFileError where one is malformed or leaves the folder, UnsupportedError for what isn't implemented.
        """
        path = folder / "modules.json"
        if not is_there(path):
            return cls(folder)
        base, pooling, normalize = _modules(folder, path)
        mode, width, include_prompt = _pooling(pooling / "config.json")
        texts = _texts(folder / "config_sentence_transformers.json")
        reading = next((base / name for name in _READING if is_there(base / name)), None)
        max_tokens, lowercase = (None, False) if reading is None else _reading(reading)
        if not include_prompt and texts.prompts:
            raise UnsupportedError(
                f"{pooling / 'config.json'}: 'include_prompt' = False isn't supported where there are prompts"
            )
        rules = TextRules(True, lowercase, texts.prompts, texts.default_prompt)
        return cls(base, mode, normalize, width, max_tokens, rules)


def _modules(folder: Path, path: Path) -> tuple[Path, Path, bool]:
    """The folders of transformer and pooling, and whether vectors are normalised."""
    modules = read_json(path)
    fail = partial(ModelFileError, path=path)
    if not isinstance(modules, list):
        raise fail(f"the file must list modules with 'type' and 'path', but holds {shortened(modules)}")
    kinds: list[str] = []
    places: list[Path] = []
    for number, module in enumerate(modules):
        if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
            raise fail(f"the file must list modules with 'type' and 'path', but module {number} is {shortened(module)}")
        _refuse_others(
            module, ("type", "path", "idx", "name"), path, f"module {number}: ", neutral={"kwargs": ([], {})}
        )
        found = re.fullmatch(rf"sentence_transformers\.(?:\w+\.)*({'|'.join(_KNOWN)})", module["type"])
        if found is None:
            raise UnsupportedError(
                f"{path}: module {number} is {shortened(module['type'])}, but supported are "
                f"{', '.join(_KNOWN)} of sentence_transformers"
            )
        kinds.append(found[1])
        places.append(inside(folder, module["path"], f"'path' of module {number}", error=fail))
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnsupportedError(
            f"{path}: modules must be Transformer, Pooling and maybe Normalize, but are {', '.join(kinds) or 'none'}"
        )
    # Old folders have no such sub-folder, whatever they say.
    base = places[0] if is_there(places[0] / "config.json") else folder
    return base, places[1], kinds[-1] == "Normalize"


def _pooling(path: Path) -> tuple[str, int | None, bool]:
    """The mode, the width and whether prompts are pooled."""
    content = read_object(path)
    modes = {f"pooling_mode_{word}" for word in ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens")}
    modes |= {"pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"}
    _refuse_others(content, (*modes, *_WIDTHS, "include_prompt", "pooling_mode"), path)
    for key in (*modes, "include_prompt"):
        _typed(content, key, bool, path)
    word = content.get("pooling_mode")
    if word is None:
        # What the library takes for missing entries; of several modes it would make one long vector.
        values = {"pooling_mode_mean_tokens": True} | content if not any(content.get(key) for key in modes) else content
        chosen = [key.removeprefix("pooling_mode_") for key in sorted(modes) if values.get(key)]
    else:
        chosen = [str(each) for each in word] if isinstance(word, list) else [str(word)]
    if len(chosen) != 1 or chosen[0] not in _MODES:
        shown = ", ".join(f"pooling_mode_{each}" for each in chosen) or "none"
        raise UnsupportedError(
            f"{path}: the pooling must be one of pooling_mode_mean_tokens, pooling_mode_cls_token, but is {shown[:200]}"
        )
    width = next((content[key] for key in _WIDTHS if key in content), None)
    if width is not None and (isinstance(width, bool) or not isinstance(width, int)):
        raise ModelFileError(f"the width must be an integer, but is {shortened(width)}", path=path)
    return _MODES[chosen[0]], width, content.get("include_prompt") is not False


def _reading(path: Path) -> tuple[int | None, bool]:
    """Tokens that are read, and whether texts are put into lower case."""
    content = read_object(path)
    neutral: dict[str, Collection[object]] = {
        **dict.fromkeys(("model_args", "model_kwargs", "config_args", "config_kwargs"), ({}, None)),
        **dict.fromkeys(("tokenizer_args", "processor_kwargs", "unpad_inputs"), ({}, None, False)),
        "transformer_task": ("feature-extraction", None),
        "modality_config": ({}, None, {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}),
        "module_output_name": ("token_embeddings", None),
        "backend": ("torch", None),
    }
    _refuse_others(content, ("max_seq_length", "do_lower_case"), path, neutral=neutral)
    _typed(content, "do_lower_case", bool, path)
    tokens = content.get("max_seq_length")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int)):
        raise ModelFileError(f"'max_seq_length' must be of type int, but is {shortened(tokens)}", path=path)
    if tokens is not None and not 1 <= tokens < 1 << 31:
        raise ModelFileError(
            f"'max_seq_length' must be an integer from 1 to 2^31 - 1, but is {shortened(tokens)}", path=path
        )
    return tokens, content.get("do_lower_case") is True


def _texts(path: Path) -> TextRules:
    """The prompts."""
    if not is_there(path):
        return TextRules()
    content = read_object(path)
    # How two vectors are compared, and what made the files, isn't part of a vector.
    described = ("prompts", "default_prompt_name", "__version__", "similarity_fn_name", "model_type")
    _refuse_others(content, described, path, neutral={"truncate_dim": (None,)})
    kind = content.get("model_type")
    if kind not in (None, "SentenceTransformer"):
        raise UnsupportedError(f"{path}: 'model_type' = {shortened(kind)} isn't supported, but SentenceTransformer is")
    prompts = content.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ModelFileError(f"'prompts' must be texts by name, but is {shortened(prompts)}", path=path)
    default = content.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        names = ", ".join(prompts) or "none"
        raise ModelFileError(
            f"'default_prompt_name' must be the name of a prompt, but is {shortened(default)}; there are {names[:200]}",
            path=path,
        )
    return TextRules(prompts=prompts, default_prompt=default)


def _typed(content: Mapping[str, object], key: str, kind: type, path: Path) -> None:
    if not isinstance(content.get(key), kind | None):
        raise ModelFileError(f"'{key}' must be of type {kind.__name__}, but is {shortened(content[key])}", path=path)


def _refuse_others(
    content: Mapping[str, object],
    known: Collection[str],
    path: Path,
    where: str = "",
    neutral: Mapping[str, Collection[object]] | None = None,
) -> None:
    """UnsupportedError for entries that aren't known, and aren't of a value that changes nothing."""
    neutral = neutral or {}
    others = [
        f"'{key[:80]}' = {shortened(value)}"
        for key, value in content.items()
        if key not in known and not (key in neutral and any(value == each for each in neutral[key]))
    ]
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        raise UnsupportedError(f"{path}: {where}what this asks for is not supported: {', '.join(others[:8])}{more}")


__all__ = ["SentenceFiles", "TextRules"]
