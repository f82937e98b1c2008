# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of a step of LoRA on a model of a GGUF file: ours, on packed weights, and transformers with PEFT on f32.

    python benchmarks/finetune.py smollm2 --rounds 5 --threads 1

Both begin with the same adapter of queries and values, whose effect is zero, and see the same drawn tokens: first
losses are compared. Then steps of AdamW are taken in turns. Models of LLaMA's architecture; the other side needs torch,
transformers and peft. `vs` says how many times longer the other takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable

import numpy as np
from harness import interleave, ratios, report, versions

from rlx_mlir.finetuning import FineTuning, Settings
from rlx_mlir.finetuning.data import Rows
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import hub
from rlx_mlir.models.config import ModelConfig

Step = Callable[[], float]
NAMES = {
    **{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"},
    **{"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj"},
    **{"ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
}
RANK, ALPHA, RATE = 8, 16, 1e-4


def drawn_rows(config: ModelConfig, batch: int, length: int) -> Rows:
    """Random tokens, each of which predicts the next one."""
    tokens = np.random.default_rng(0).integers(0, config.vocab, (batch, length + 1)).astype(np.int32)
    return Rows(tokens[:, :-1], tokens[:, 1:], np.ones((batch, length), np.float32))


def ours(file: GGUFFile, config: ModelConfig, rows: Rows, threads: int) -> Step:
    """The loss of the next step."""
    settings = Settings(1000, RANK, ALPHA, batch=len(rows), rate=RATE)
    tuning = FineTuning(file, config, rows, settings, threads=threads)
    return lambda: tuning.step().loss


def by_peft(file: GGUFFile, config: ModelConfig, rows: Rows, threads: int) -> Step:
    """The same, of transformers and PEFT."""
    import peft
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            intermediate_size=config.ffn,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            rms_norm_eps=config.eps,
            rope_theta=config.rope_base,
            tie_word_embeddings=config.tied_head,
            use_cache=False,
        )
    )
    weights = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    weights |= {} if config.tied_head else {"lm_head": "output"}
    for layer in range(config.layers):
        weights |= {f"model.layers.{layer}.{theirs}": f"blk.{layer}.{own}" for own, theirs in NAMES.items()}
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
    state = {}
    for theirs, own in weights.items():
        found = file.dequantize(f"{own}.weight").astype(np.float32)
        if count := heads.get(own.split(".")[-1]):  # files have the halves of a head in turns
            found = found.reshape(count, -1, 2, found.shape[1]).swapaxes(1, 2).reshape(found.shape)
        state[f"{theirs}.weight"] = torch.from_numpy(np.ascontiguousarray(found))
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise RuntimeError(f"weights don't fit: {missing}, {unexpected}")
    lora = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(model, lora).train()
    trained = [own for own in tuned.parameters() if own.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
    tokens, targets = (torch.from_numpy(own.astype(np.int64)) for own in (rows.tokens, rows.targets))

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        logits = tuned(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def timed(step: Step, clock: Callable[[], float]) -> Callable[[], float]:
    """Milliseconds of a step."""

    def measured() -> float:
        begin = clock()
        step()
        return (clock() - begin) * 1e3

    return measured


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", help="a .gguf file, or the name of a known model")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="count the process's own time: for one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    file = GGUFFile(hub.resolve(options.model))
    config = ModelConfig.from_gguf(file)
    rows = drawn_rows(config, options.batch, options.length)
    steps = {"ours": ours(file, config, rows, options.threads)}
    rivals = ["torch", "transformers", "peft"]
    if all(importlib.util.find_spec(name) for name in rivals):
        steps["peft"] = by_peft(file, config, rows, options.threads)
    losses = {name: step() for name, step in steps.items()}
    for name, loss in losses.items():
        np.testing.assert_allclose(loss, losses["ours"], rtol=1e-4, err_msg=name)
    clock = time.process_time if options.cpu_time else time.perf_counter
    series = interleave({name: timed(step, clock) for name, step in steps.items()}, options.rounds)
    what = f"{options.batch} x {options.length} tokens"
    title = f"milliseconds of a step, {options.threads} threads"
    names = ["rlx-mlir", *(rivals if "peft" in steps else [])]
    report(title, [{"what": what, **ratios(series)}], versions(names), options.json)


if __name__ == "__main__":
    main()
