# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of many classes of transformers, written by PyTorch's exporter to ONNX, beside onnxruntime.

The exporter needs `onnxscript`, which isn't among what the tests install: `pip install onnxscript`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
for module in ("transformers", "onnx", "onnxscript"):
    pytest.importorskip(module)

from transformers_classes import MODELS, arguments, made, shapes  # noqa: E402

import rlx_mlir as rlx  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


#: Whose reshapes of transposed tensors the exporter itself doesn't take.
NOT_EXPORTED = ("T5ForConditionalGeneration", "SwinModel")


def exported(name: str, path: Path) -> None:
    """Writes a model of a class to a file, with dynamic batch and length."""
    kind, model = MODELS[name][1], made(name)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")  # the other ones are operators that ONNX has nothing of
    given = arguments(kind, 2, 7)
    torch.onnx.export(
        model, (), path, kwargs=given, dynamo=True, input_names=list(given), dynamic_shapes=shapes(kind), verbose=False
    )


@pytest.mark.parametrize("name", MODELS)
def test_models_compute_what_onnxruntime_does(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.onnx"
    if name in NOT_EXPORTED:
        with pytest.raises(torch.onnx.OnnxExporterError, match="Cannot view a tensor"):
            exported(name, path)
        return
    exported(name, path)
    model = rlx.from_onnx(path)
    run = model.compile(threads=1, maxima=dict.fromkeys(model.symbols.values(), 64))
    other = onnxruntime.InferenceSession(path)
    taken = {each.name for each in other.get_inputs()}
    for batch, length in ((2, 7), (1, 1), (3, 5), (2, 33)):
        given = {own: each.numpy() for own, each in arguments(MODELS[name][1], batch, length).items() if own in taken}
        found = run.run(given)
        for one, wanted in zip(found.values(), other.run(list(found), given), strict=True):
            assert one.shape == wanted.shape
            np.testing.assert_allclose(one, wanted, atol=1e-5, rtol=1e-5)
