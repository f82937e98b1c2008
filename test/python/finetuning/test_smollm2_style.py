# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmolLM2-135M learns a style: the loss of dialogues that it hasn't seen falls, and its answers follow it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from documents import ROOT

from rlx_mlir.finetuning import FineTuning, Reader, Settings, rows_of
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models.adapter import write_adapter
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model


@pytest.mark.slow
def test_a_style_is_learnt_from_few_dialogues(smollm2_path: Path, tmp_path: Path) -> None:
    """Those of examples/finetune.py: 80 are learnt from, 20 about other subjects are held out."""
    spec = importlib.util.spec_from_file_location("finetune_example", ROOT / "examples" / "finetune.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    data = tmp_path / "dialogues.jsonl"
    data.write_text("".join(json.dumps(each) + "\n" for each in example.dialogues(100)))
    file = GGUFFile(smollm2_path)
    config = ModelConfig.from_gguf(file)
    examples = Reader.of(file, config).read(data)
    assert all(10 < each.answers < 40 for each in examples)
    width = rows_of(examples, 128).length
    rows, held_out = (rows_of(part, width, exact=True) for part in (examples[:80], examples[80:]))
    tuning = FineTuning(file, config, rows, Settings(steps=20, rate=2e-3, warmup=2))
    before = tuning.loss(held_out)
    steps = list(tuning.run())
    after = tuning.loss(held_out)
    assert before > 3.5
    assert after < before - 1.5
    assert steps[-1].peak_rss < 3e9
    write_adapter(tmp_path / "adapter", config, tuning.adapter, alpha=tuning.settings.alpha)
    model = load_model(smollm2_path, context=256, lora=tmp_path / "adapter")
    answer = model.generate([{"role": "user", "content": "What do you think of the moon?"}], greedy=True, max_tokens=48)
    assert any(word in answer.read() for word in ("matey", "Arr", "Ahoy", "Aye", "Shiver"))
