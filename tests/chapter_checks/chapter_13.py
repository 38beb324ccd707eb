"""Chapter 13: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

import numpy as np

from chapter_cells import Case
from compiled_networks import AT, bf16_layer, compilation, fp8_layer, kernel
from playbook import compiler
from serving_base.facts import models

ON = {"bench": Thing(), "nvidia": compiler, "np": np}
ONE = compilation([kernel("a")])
TWO = compilation([kernel("a"), kernel("b")])
FRENCH = Thing(decode=lambda tokens: "un, deux, trois" if tokens == [1] else "one, two")
TARGETS = ["SM80", "SM86", "SM89", "SM120"]
TAKEN = {
    "FP8": TARGETS[2:],
    "FP8 weight-only": TARGETS[2:],
    "INT4 AWQ": TARGETS,
    "INT8 weight-only": TARGETS,
    "NVFP4": TARGETS[3:],
}
NO = Thing(refusal="")
NORMS = {"norms": {"eight layers": ONE, "NVIDIA's layer": ONE}, "errors": {"eight layers": 0.02, "NVIDIA's layer": 2.5}}


def built(fp8: Any = None, bf16: Any = None) -> dict[str, Any]:
    """The two compiled networks; each a list of steps."""
    made = {"FP8": compilation(fp8 or fp8_layer()), "BF16": compilation(bf16 or bf16_layer())}
    rows = {name: compiler.kernel_rows(compiler.decoder_layer(one, 1)) for name, one in made.items()}
    return {"built": made, "kernels": rows}


def gemms(reads: str) -> dict[str, Any]:
    return {"kernels": {"FP8": [{"NVIDIA's kind": "gemm", "reads": reads}] * 4}}


def attention(role: str, writes: str, kernels: int = 3) -> dict[str, Any]:
    """Plain attention's network: ``kernels`` in decoder layer 1, one of them with the name ``role``."""
    steps = [kernel(f"{AT}.attention.mix", name=role), *[kernel(f"{AT}.x{place}") for place in range(kernels - 1)]]
    return {"plain": compilation(steps), "n": 1, "inside": [{"writes": writes}]}


def hunt(first: str = "q_rope", at_zero: float = 0.0) -> dict[str, Any]:
    right, wrong = np.ones((1, 2, 3, 4)), np.ones((1, 2, 3, 4)) * 2
    wrong[0, :, 0] = 1 + at_zero
    return {
        "turned": ("q_heads", "q_rope"),
        "first": first,
        "good": {first: right},
        "bad": {first: wrong},
        "bases": {"right": 499_868.0, "wrong": 9_987.0},
        "along": [0.07, 0.15, 0.23, 0.27],
    }


def onnx_file(said: list[int] | None = None, norms: int = 9, reads: str = "FP8") -> dict[str, Any]:
    """The file's answers, its nodes, and what the compiler made of it: four attentions, two products, and the head."""
    steps = [*[Thing(kind="kgen", reads="FP16", name="_gemm_mha_v2")] * 4]
    steps += [Thing(kind="gemm", reads=reads, name="layers.0.mlp.up+layers.0.mlp.gate")]
    steps += [Thing(kind="gemm", reads="FP16", name="lm_head")]
    handed = Thing(hand_over=lambda *given, end_id: None)
    return {
        "bench": handed,
        "said": {"FP8": said or [1], "FP16": [1]},
        "answers": {"FP8": [1], "BF16": [1]},
        "nodes": {"FP8": {"RMSNormalization": norms, "MatMul": 3}},
        "parsed": Thing(kernels=steps),
        "kept": None,
        "prompt": [],
        "tokenizer": Thing(eos_token_id=0),
    }


def ranks(*kinds: str) -> dict[str, Any]:
    made = compilation([kernel("a", kind=kind) for kind in kinds])
    return {"bench": Thing(compile_function=lambda *given: made), "inputs": {}}


def large(*, split: bool = True, extra: int = 1, odd: bool = False) -> dict[str, Any]:
    """Decoder layers of 8B with three kernels, and one more where gate and up are apart."""

    def layer(number: int) -> list[Any]:
        at = f"layers.{number}"
        pair = (
            [kernel(f"{at}.mlp.gate"), kernel(f"{at}.mlp.up")] if split else [kernel(f"{at}.mlp.gate", f"{at}.mlp.up")]
        )
        return [*pair, *[kernel(f"{at}.x{place}") for place in range(1 + extra)]]

    steps = [step for number in range(4) for step in layer(number)]
    steps += [kernel("layers.2.odd")] if odd else []
    whole = compilation(steps)
    return {
        "whole": whole,
        "middle": compiler.decoder_layer(whole, 1),
        "n": 3,
        "depth": 4,
        "shape": models.known_shape("llama-3-8b-instruct"),
    }


LIMITS = {
    "limits": {"targets": ["SM80"], "plugin methods": []},
    "cache_refusal": "present: cache has type FP8 but must have type Float",
    "refit_refusal": "CHECK(status == CUDA_SUCCESS) failed",
}
ANSWERS = {"answers": {"FP8": [1], "BF16": [1]}, "tokenizer": FRENCH}
COST = {"cost": {"layers.1.post_norm": 1, "layers.1.mlp.silu": 0}}
SILENT = {"same_kernels": True, "wrong": [2], "answers": {"FP8": [1]}}
TRIED = {"tried": {"FP8": dict.fromkeys(TARGETS, NO)}, "targets": TARGETS, "taken": TAKEN}
MERGED_BF16 = [kernel(f"{AT}.attention.dense", kind="gemm"), *bf16_layer()[1:], kernel(f"{AT}.attention.residual")]
UNROUNDED = [
    fp8_layer()[0],
    kernel(f"{AT}.attention.residual", f"{AT}.post_norm.mean"),
    kernel(f"{AT}.mlp.up.input_q"),
    fp8_layer()[2],
]

CASES = [
    Case("13-11", "each way becomes one kernel", ON | NORMS, {"norms": {"eight layers": TWO}}),
    Case("13-11", "the eight layers compute", ON | NORMS, {"errors": {"eight layers": 0.5, "NVIDIA's layer": 2.5}}),
    Case("13-11", "NVIDIA's layer computes", ON | NORMS, {"errors": {"eight layers": 0.02, "NVIDIA's layer": 0.02}}),
    Case("13-14", "the FP8 network answers", ON | ANSWERS, {"answers": {"FP8": [1], "BF16": [2]}}),
    Case("13-14", "in French", ON | ANSWERS, {"answers": {"FP8": [2], "BF16": [2]}}),
    Case("13-20", "gate and up become one", ON | built(), built(fp8=[*fp8_layer()[:2], kernel(f"{AT}.mlp.gate")])),
    Case("13-20", "FP8 moves the residual add", ON | built(), built(fp8=bf16_layer())),
    Case("13-20", "with the rounding", ON | built(), built(fp8=UNROUNDED)),
    Case("13-20", "BF16 has it in the GEMM", ON | built(), built(bf16=MERGED_BF16)),
    Case("13-20", "as many kernels", ON | built(), built(bf16=[*bf16_layer(), kernel(f"{AT}.more")])),
    Case("13-22", "all four GEMMs read FP8", ON | gemms("FP8"), gemms("BF16")),
    Case("13-28", "FP8 begins with SM89", ON | TRIED, {"taken": TAKEN | {"FP8": TARGETS}}),
    Case("13-28", "so does FP8 for weights", ON | TRIED, {"taken": TAKEN | {"FP8 weight-only": TARGETS}}),
    Case("13-28", "INT4 and INT8 run on all", ON | TRIED, {"taken": TAKEN | {"INT4 AWQ": TARGETS[1:]}}),
    Case("13-28", "NVFP4 wants SM120", ON | TRIED, {"taken": TAKEN | {"NVFP4": TARGETS[2:]}}),
    Case("13-31", "no kernel for attention", ON | attention("k", "FP32"), attention("_gemm_mha_v2", "FP32")),
    Case("13-31", "scores leave a kernel", ON | attention("k", "FP32"), attention("k", "FP8")),
    Case("13-34", "looking at a norm's", ON | COST, {"cost": {"layers.1.post_norm": 0, "layers.1.mlp.silu": 0}}),
    Case("13-34", "looking at SiLU", ON | COST, {"cost": {"layers.1.post_norm": 1, "layers.1.mlp.silu": 1}}),
    Case("13-40", "the wrong network builds", ON | SILENT, {"same_kernels": False}),
    Case("13-40", "and its answer", ON | SILENT, {"wrong": [1]}),
    Case("13-46", "the first wrong tensor", ON | hunt(), hunt(first="dense")),
    Case("13-46", "position 0 is right", ON | hunt(), hunt(at_zero=0.1)),
    Case("13-46", "the right network turns", ON | hunt(), {"bases": {"right": 10_000.0, "wrong": 10_000.0}}),
    Case("13-46", "the wrong one by", ON | hunt(), {"bases": {"right": 500_000.0, "wrong": 500_000.0}}),
    Case("13-46", "the fault grows", ON | hunt(), {"along": [0.3, 0.2]}),
    Case("13-51", "the all-reduce is a step", ON | ranks("gemm", "comm_allreduce"), ranks("gemm")),
    Case("13-54", "gate and up are two", ON | large(), large(split=False, extra=2)),
    Case("13-54", "all else is as", ON | large(), large(extra=2)),
    Case("13-54", "every inner decoder layer", ON | large(), large(odd=True)),
    Case("13-onnx-c", "ONNX Runtime answers", ON | onnx_file(), onnx_file(said=[2])),
    Case("13-onnx-c", "a norm and an attention", ON | onnx_file(), onnx_file(norms=8)),
    Case("13-onnx-c", "every product of the layers reads FP8", ON | onnx_file(), onnx_file(reads="FP16")),
    Case("13-57", "an H100, SM90", ON | LIMITS, {"limits": {"targets": ["SM90"], "plugin methods": []}}),
    Case("13-57", "Python has no way", ON | LIMITS, {"limits": {"targets": [], "plugin methods": ["add_plugin_v2"]}}),
    Case("13-57", "the cache layer takes", ON | LIMITS, {"cache_refusal": ""}),
    Case("13-57", "no refit on a machine", ON | LIMITS, {"refit_refusal": ""}),
]
