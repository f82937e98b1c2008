# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults that `planted.py` plants: each was in the project once, or is like one that was.

A fault names a file, a text that stands there once, what stands in its place, and the check that is to find it:
`pytest` with a selection, or `rlx fuzz` with seed and number of cases, as small as finds it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """A text of a file, by its path in the project, and what takes its place."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """Something wrong, and what is to find it.

    Attributes:
        name: what it does.
        changes: that make it.
        check: `pytest …` or `rlx fuzz …`, run in a copy of the project.
        hangs: whether the check isn't over in its time: that finds it, too.
        seconds: for the check; 0 for the usual time.
    """

    name: str
    changes: tuple[Change, ...]
    check: str
    hangs: bool = False
    seconds: float = 0.0


def fault(name: str, file: str, old: str, new: str, check: str, *, hangs: bool = False, seconds: float = 0.0) -> Fault:
    """A fault of one change in the package."""
    return Fault(name, (package(file, old, new),), check, hangs, seconds)


def package(file: str, old: str, new: str) -> Change:
    """A change of a file of the package."""
    return Change(f"python/rlx_mlir/{file}", old, new)


TESTS = "pytest test/python/"

#: Results that are wrong, without an error.
NUMBERS = (
    fault(
        "loops-leave-what-they-carry",
        "lowering/plan_regions.py",
        "            if other > number:\n",
        "            if other > number + 1:\n",
        TESTS + "lowering/test_control_kernels.py -k recurrent_network",
    ),
    fault(
        "slots-die-in-a-loop",
        "lowering/lir.py",
        "            for operand in plan.op.operands:\n                keep(operand, plan.final)\n",
        "            for operand in ():\n                keep(operand, plan.final)\n",
        TESTS + "lowering/test_control_kernels.py",
    ),
    fault(
        "what-a-step-gives-dies-in-it",
        "lowering/lir.py",
        "                keep(root, plan.final)\n",
        "                keep(root, plan.first)\n",
        TESTS + "lowering/test_control_kernels.py -k step_gives_stays",
    ),
    fault(
        "entries-count-from-the-wrong-end",
        "lowering/plan_text.py",
        "        if view.reverse:\n",
        "        if view.reverse is None:\n",
        TESTS + "lowering/test_control_kernels.py -k recurrent_network",
    ),
    fault(
        "values-given-twice-share-memory",
        "lowering/regions.py",
        "(not _is_made(root) or root in written)",
        "not _is_made(root)",
        TESTS + "lowering/test_control_kernels.py -k several",
    ),
    fault(
        "mean-by-multiplication",
        "mir/reductions.py",
        "lambda x: x / count))",
        "lambda x: x * (1.0 / count)))",
        TESTS + "mir/test_constant_rows.py -k means",
    ),
    fault(
        "rounded-mean-stays",
        "codegen/row_graph.py",
        '            x = self._map("sub", x, rest)\n',
        "",
        TESTS + "mir/test_constant_rows.py -k norms",
    ),
    fault(
        "sums-in-any-order",
        "lowering/pipelines.py",
        '    ("cpu-order-sums", "after kernels are cut: the order of a sum follows from its length alone"),\n',
        "",
        TESTS + "lowering/test_split_kernels.py",
    ),
    fault(
        "serial-sums-of-dynamic-rows",
        "lowering/sums.py",
        "    if constant_value(loop.operands[2]) != 1 or (length is not None and length < 2 * FEW_LANES):",
        "    if constant_value(loop.operands[2]) != 1 or length is None or length < 2 * FEW_LANES:",
        TESTS + "mir/test_sums.py -k errors_do_not_grow",
    ),
    fault(
        "taps-between-pixels",
        "mir/windows.py",
        '(tap < size) & (rest % share).compare("eq", 0)',
        '(tap < size) | (rest % share).compare("eq", 0)',
        TESTS + "mir/test_image_operations.py -k convolutions_are",
    ),
    fault(
        "tail-of-gelu-cancels",
        "mir/elementwise.py",
        "    return x / (EXP(-(inner * GELU_SLOPE)) + 1)",
        "    return x * 0.5 * (TANH(inner * (GELU_SLOPE / 2)) + 1)",
        TESTS + "mir/test_tails.py -k every_path",
    ),
    fault(
        "tail-of-erf-cancels",
        "mir/elementwise.py",
        "    return x * select(x < 0, tail, 1 - tail)",
        "    return x * (1 - select(x < 0, 1 - tail, tail))",
        TESTS + "mir/test_tails.py -k every_path",
    ),
    fault(
        "square-root-for-a-power",
        "mir/elementwise.py",
        "    return np.asarray(np.power(*pairs)[:-1].reshape(x.shape))",
        "    del pairs\n    return np.asarray(np.power(x, y.flat[0] if len(set(y.flat)) == 1 else y))",
        TESTS + "mir/test_tails.py -k powers",
    ),
    fault(
        "bias-is-capped",
        "codegen/attention.py",
        "        score = product if cap is None else self.capped(product, cap * self.score_unit)\n"
        "        return score if bias is None else score + bias",
        "        if bias is not None:\n"
        "            product = product + (bias if cap is None else bias / cap)\n"
        "        return product if cap is None else self.capped(product, cap * self.score_unit)",
        TESTS + "codegen_cpu/test_cpu_attention.py -k bias",
    ),
    fault(
        "reference-caps-the-bias",
        "mir/attention.py",
        "            scores = cap * capped\n"
        '        if mask_kind == "bias":\n'
        '            assert mask is not None, "C5"\n'
        "            scores = scores + grouped(widen(mask))\n",
        "            scores = cap * capped\n"
        '        if mask_kind == "bias":\n'
        '            assert mask is not None, "C5"\n'
        "            scores = scores + grouped(widen(mask))\n"
        "            scores = scores if softcap is None else cap * np.tanh(scores / cap)\n",
        TESTS + "mir/test_mir_reference.py -k attention",
    ),
    fault(
        "least-bias-hides-keys",
        "codegen/attention.py",
        'self.score_unit = 1.0 if spec.mask_kind == "bias" else LOG2_E',
        "self.score_unit = LOG2_E",
        TESTS + "codegen_cpu/test_cpu_attention.py -k bias",
    ),
    fault(
        "infinities-cancel-in-products",
        "codegen/cpu/gemm_packed.py",
        "            if here[0].layout.minimum:\n"
        "                values = _repaired(em, target, product, x, here, first, values)\n",
        "",
        TESTS + "mir/test_infinite_operands.py",
    ),
    fault(
        "roundings-left-out",
        "lowering/kernel_body.py",
        '    if element not in ("f16", "bf16") or op.name in _EXACT or keeps_wide(op):',
        "    if element or op.name in _EXACT or keeps_wide(op):",
        "rlx fuzz graphs --seed 5 --count 20 --op mir.add --op mir.mul",
    ),
    fault(
        "fusion-drops-roundings",
        "lowering/fuse.py",
        '.element_type) not in ("f16", "bf16") or keeps_wide(op):\n        return False\n    rewriter.no_match(',
        '.element_type) != "none" or keeps_wide(op):\n        return False\n    rewriter.no_match(',
        TESTS + "mir/test_roundings.py -k round_like_the_graph",
    ),
    fault(
        "another-default-of-rope",
        "hir/blocks.py",
        '        window: int | None = None,\n        style: str = "half",',
        '        window: int | None = None,\n        style: str = "interleaved",',
        TESTS + "hir/test_defaults.py",
    ),
    fault(
        "values-beyond-f16-become-infinite",
        "formats/encoder.py",
        "    if not np.isfinite(x).all():\n        row, column",
        "    if not np.isfinite(values).all():\n        row, column",
        TESTS + "formats/test_formats.py -k dense_values",
    ),
)

#: Files that are read as they don't mean it.
FILES = (
    fault(
        "cache-entries-by-name-alone",
        "runtime/cache.py",
        "    if (held := key_of(artifact.key)) != path.stem:\n",
        "    if len(held := key_of(artifact.key)) != len(path.stem):\n",
        TESTS + "runtime/test_trust.py -k change_names",
    ),
    fault(
        "compiler-by-size-of-sources",
        "runtime/identity.py",
        "        digest.update(data)\n    return",
        "    return",
        TESTS + "runtime/test_cache.py -k another_content",
    ),
    fault(
        "llvm-by-name",
        "runtime/identity.py",
        'digest.update(f"{path.name}:{build_id(path)};".encode())',
        'digest.update(f"{path.name};".encode())',
        TESTS + "runtime/test_cache.py -k another_llvm",
    ),
    fault(
        "scaling-without-a-type-is-off",
        "models/config.py",
        '    return 1.0 if keys.get("rope.scaling.type") == "none" else factor',
        '    return 1.0 if keys.get("rope.scaling.type") in (None, "none") else factor',
        "rlx fuzz gguf --seed 0 --count 300",
    ),
    fault(
        "width-of-values-is-that-of-keys",
        "models/config.py",
        'keys.integer("attention.value_length", hidden // heads)',
        'keys.integer("attention.value_length", head_dim)',
        "rlx fuzz gguf --seed 0 --first 650 --count 40",
    ),
    fault(
        "ends-of-messages-go-on",
        "models/special_tokens.py",
        '_ENDING_IDS = ("eos", "eot", "eom", ',
        '_ENDING_IDS = ("eos", ',
        "rlx fuzz gguf --seed 0 --count 300",
    ),
    fault(
        "ends-by-text-go-on",
        "models/special_tokens.py",
        "        if text in _ENDING_TEXTS or (text in _ENDING_IF_CONTROL and index in controls):",
        "        if text in _ENDING_TEXTS | _ENDING_IF_CONTROL and index in controls:",
        "rlx fuzz gguf --seed 0 --count 300",
    ),
    fault(
        "texts-begin-without-a-token",
        "models/special_tokens.py",
        '{"llama": {"bos": 1, "eos": 2}}',
        "{}",
        "rlx fuzz gguf --seed 0 --first 340 --count 40",
    ),
    fault(
        "a-part-counts-as-a-model",
        "models/config.py",
        "    if not _is_plain(count, None, 1, len(file.paths)):\n",
        "    if count == 0:\n",
        "rlx fuzz gguf --seed 0 --count 300",
    ),
    fault(
        "lines-end-at-any-separator",
        "models/encoder_tokenizer.py",
        "    vocabulary = models.WordPiece.read_file(str(path))\n",
        '    words = path.read_text(encoding="utf-8").splitlines()\n'
        "    vocabulary = {word: number for number, word in enumerate(words)}\n",
        TESTS + "models/test_encoder_folders.py -k line_feeds",
    ),
    fault(
        "lower-case-is-ignored",
        "models/sentence_files.py",
        '    return tokens, content.get("do_lower_case") is True',
        "    return tokens, False",
        TESTS + "models/test_encoder_folders.py -k do_lower_case",
    ),
    fault(
        "default-prompt-is-ignored",
        "models/sentence_files.py",
        "rules = TextRules(True, lowercase, texts.prompts, texts.default_prompt)",
        "rules = TextRules(True, lowercase, texts.prompts)",
        TESTS + "models/test_encoder_folders.py -k prompts",
    ),
    fault(
        "accents-of-the-configuration-stay",
        "models/encoder_tokenizer.py",
        "            for name, value in wanted.items():\n                setattr(own, name, value)\n            return",
        "            return",
        TESTS + "models/test_encoder_folders.py -k normalizers",
    ),
    fault(
        "infinite-keys-without-a-name",
        "models/session.py",
        "        if bad.any():\n            position",
        "        if bad.all():\n            position",
        TESTS + "models/test_model.py -k keys_beyond",
    ),
    fault(
        "ids-are-truncated",
        "models/embedding.py",
        "                whole = operator.index(token)\n            except TypeError:",
        "                whole = int(token)\n            except TypeError:",
        TESTS + "models/test_encoder_folders.py -k ids_that_are_none",
    ),
    fault(
        "broken-scales-load",
        "formats/finite.py",
        "        if any(int((words & mask).max()) == mask for words, mask in _floats(fmt, part)):",
        "        if fmt.dense and any(int((words & mask).max()) == mask for words, mask in _floats(fmt, part)):",
        TESTS + "formats/test_weights.py",
    ),
    fault(
        "gaps-between-tensors",
        "frontends/gguf.py",
        "            if expected is not None and info.offset != expected:",
        "            if expected is not None and info.offset < expected:",
        "rlx fuzz gguf --seed 0 --count 300",
    ),
    fault(
        "chosen-tokens-are-taken-over",
        "models/session.py",
        "        most = min(self.prefilled, len(ids) - 1)",
        "        most = min(len(self._tokens), len(ids) - 1)",
        TESTS + "models/test_model.py -k taken_over",
    ),
)

#: What doesn't run, ends the process, or takes for ever.
DOORS = (
    fault(
        "hints-are-features",
        "runtime/processor.py",
        "    return [name for name in wanted if name not in _X86_UNNEEDED]",
        "    return wanted",
        TESTS + "runtime/test_processor.py",
    ),
    fault(
        "last-file-of-the-corpus",
        "fuzz/text.py",
        '            found += modules_of(path) * (1 if "invalid" in path.name else 4)',
        '            last = modules_of(path) * (1 if "invalid" in path.name else 4)\n        found += last',
        TESTS + "fuzz/test_fuzz.py -k corpus",
    ),
    fault(
        "an-empty-corpus",
        "fuzz/text.py",
        "        if not paths:\n            raise",
        "        if folder is None:\n            raise",
        TESTS + "fuzz/test_fuzz.py -k corpus",
    ),
    fault(
        "one-kernel-joins-all",
        "lowering/outline.py",
        "        if len(values) <= most:\n",
        "        if len(values) >= 1:\n",
        TESTS + "lowering/test_compile_scaling.py -k concat",
        seconds=900,
    ),
    fault(
        "arguments-are-read-for-each",
        "hir/graph.py",
        "        if self._known is None:\n",
        "        if True:\n",
        TESTS + "lowering/test_compile_scaling.py -k arguments",
    ),
    fault(
        "names-of-all-are-compared",
        "models/config.py",
        "        shown = missing[:_LISTED]  # names",
        "        shown = missing  # names",
        TESTS + "models/test_model_config.py -k misnamed",
        hangs=True,
        seconds=100,
    ),
    fault(
        "statements-without-steps",
        "models/sandbox.py",
        "        meter.step(steps)\n        meter.make(characters)\n        return True",
        "        meter.make(characters)\n        return True",
        TESTS + "models/test_chat_bounds.py",
        hangs=True,
        seconds=100,
    ),
    fault(
        "repeated-texts-without-measure",
        "models/sandbox.py",
        "        if count > self.room:\n",
        "        if count > self.room and count < 0:\n",
        TESTS + "models/test_chat_bounds.py",
        hangs=True,
        seconds=100,
    ),
    fault(
        "convolutions-without-positions",
        "mir/conv.py",
        "    if 0 in counts:  #",
        "    if 0 in kernel:  #",
        TESTS + "mir/test_empty_results.py",
    ),
    fault(
        "pipes-are-waited-for",
        "files.py",
        "    if not stat.S_ISREG(mode):\n",
        "    if stat.S_ISDIR(mode):\n",
        TESTS + "runtime/test_files.py -k regular",
        hangs=True,
        seconds=100,
    ),
    fault(
        "products-as-names-of-sizes",
        "hir/module.py",
        "            try:\n                check_symbol(symbol)\n            except InputError as error:\n",
        "            try:\n                symbol.encode()\n            except InputError as error:\n",
        TESTS + "lowering/test_compile_errors.py -k dimensions_in_text",
    ),
    fault(
        "rows-without-a-token-are-chosen",
        "models/session.py",
        "        return logits[: self.model.texts]",
        "        return logits",
        TESTS + "models/test_model.py -k padding",
    ),
    fault(
        "bytecode-is-read-at-once",
        "sources.py",
        "        check_bytecode(content, what)\n        return\n",
        "        return\n",
        TESTS + "hir/test_sources.py -k damaged_bytecode_is",
    ),
    fault(
        "nesting-has-no-end",
        "sources.py",
        '    budgets.check("nesting", nesting, what)\n',
        "",
        "rlx fuzz bytecode --seed 0 --count 8",
    ),
    fault(
        "digits-have-no-end",
        "sources.py",
        '    budgets.check("digits", digits, what)\n',
        "",
        "rlx fuzz bytecode --seed 0 --first 524 --count 1",
    ),
    fault(
        "sizes-are-bound-at-any-stage",
        "lowering/bind_dims.py",
        "    _check_stage(listed)\n",
        "",
        TESTS + "fuzz/test_fuzz_findings.py -k name_the_stage",
    ),
    fault(
        "models-compile-without-end",
        "models/programs.py",
        "time_limit=budgets.current().compile_seconds if time_limit is None else time_limit",
        "time_limit=None",
        TESTS + "models/test_model.py -k compiling_has",
    ),
    fault(
        "passes-have-no-end",
        "compiler.py",
        "            with limits.watched(self.watch):\n                if observers",
        "            with limits.watched(limits.Watch(self.name, None)):\n                if observers",
        TESTS + "lowering/test_limits.py -k error_names_pass",
    ),
    fault(
        "layers-share-no-code",
        "lowering/kernel_library.py",
        "        if content in self._kernels:\n",
        "        if content in self._kernels and not inputs:\n",
        TESTS + "lowering/test_compile_scaling.py -k layers",
    ),
    Fault(
        "sums-of-the-emulator-by-blas",
        (Change("emulator/ptx_emulator/matrices.py", "        if not sure.all():\n", "        if sure.size < 0:\n"),),
        TESTS + "emulator/test_ptx_matrices.py",
    ),
)

FAULTS: tuple[Fault, ...] = (*NUMBERS, *FILES, *DOORS)
