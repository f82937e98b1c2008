# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of many classes of transformers with seeded random weights, of any batch and length, beside eager."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from documents import ROOT  # noqa: E402
from transformers_classes import MODELS, arguments, made, shapes  # noqa: E402

import rlx_mlir as rlx  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def tensors(result: Any) -> list[Any]:
    """The tensors of what a model gives."""
    listed = result.values() if hasattr(result, "values") else result
    return [each for each in listed if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("name", MODELS)
def test_models_compute_what_eager_does(name: str) -> None:
    kind, model = MODELS[name][1], made(name)
    run = rlx.from_torch(model, (), arguments(kind, 2, 7), dynamic_shapes=shapes(kind)).compile(threads=1)
    for batch, length in ((2, 7), (1, 1), (3, 5), (2, 33)):
        given = arguments(kind, batch, length)
        with torch.no_grad():
            wanted = tensors(model(**given))
        found = tensors(run(**given))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("page", "count"), [("torch.md", 1), ("onnx.md", 2)])
def test_documentation_names_the_classes(page: str, count: int) -> None:
    section = (ROOT / "docs" / page).read_text().split("## Models of transformers\n")[1].split("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", line) for line in section.splitlines() if line.startswith("| ")]
    found = [name for row in rows for name in row]
    assert sorted(found) == sorted(MODELS)
    assert len([row for row in rows if row]) == count
