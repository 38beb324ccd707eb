"""Chapter 03: values that its checks accept, and values that they refuse."""

from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

import numpy as np

from chapter_cells import Case
from playbook.artifact import Artifact, Manifest, Origin

FP8 = {"formats": {"quant_algo": "FP8"}}
LIMITS = ("max_batch_size", "max_num_tokens", "max_input_len", "max_seq_len")


def limits(**changed: int) -> dict[str, Any]:
    from playbook.profile import load_profile

    profile = load_profile("local")
    return {"config": {"build_config": {key: getattr(profile, key) for key in LIMITS} | changed}}


def graph(attention: int = 4, arithmetic: int = 14) -> dict[str, Any]:
    """Operations of the tiny model's graph: before, and after compilation."""
    compiled = {"attention": attention, "arithmetic": arithmetic}
    return {"kinds": {"written": {"attention": 4, "arithmetic": 110}, "compiled": compiled}}


def anatomy(*sizes: int) -> dict[str, Any]:
    build = Thing(compile_s=(97.1,), gpu_peak_mib=(8700.0,), host_peak_mib=(26000.0,), total_s=221.0)
    ranks = {f"rank{number}.engine": size for number, size in enumerate(sizes)}
    return {"anatomy": Thing(rank_bytes=ranks, plugins={"gpt_attention_plugin": "bfloat16"}, build=build)}


def rouge(engine: float, model: float | None = 26.9) -> dict[str, Any]:
    by_model = {"engine": {"rouge1": engine}} | ({} if model is None else {"16-bit model": {"rouge1": model}})
    return {"scores": Thing(by_model=by_model), **FP8}


class Folder:
    """An engine's folder with one file of ``size`` bytes."""

    def __init__(self, size: float) -> None:
        self.path = self
        self.size = size

    def glob(self, pattern: str) -> list[Any]:
        return [Thing(stat=lambda: Thing(st_size=int(self.size)))] if pattern == "openvino_model.bin" else []


def formula(qformat: str = "fp8") -> int:
    from serving_base.facts.models import model_shape

    return model_shape("tiny").weight_bytes(qformat)


def held(size: float, quant_algo: str | None = "FP8") -> dict[str, Any]:
    return {"engine": Folder(size), "formats": {"quant_algo": quant_algo}}


def starts(first_s: float, second_s: float) -> dict[str, Any]:
    """What a build of vLLM's engine measured."""
    figures = {"cache_mb": 90.0, "graph_sizes": (1, 2, 4), "kv_tokens": 450_336, "tokens_per_block": 16}
    return {"starts": Thing(cold_start_s=first_s, warm_start_s=second_s, **figures)}


class Merging:
    """The package, whose merged engine gives ``value`` for every logit."""

    def __init__(self, value: float) -> None:
        self.quantize = lambda *given, **named: Thing(path=Path("nowhere"))
        self.build = lambda *given, **named: Thing(path="merged")
        self.engines = Thing(EngineLogits=lambda path: lambda ids: np.full(3, value))


MERGED = {"playbook": Merging(1.0), "texts": [[1]], "logits": {"FP8": lambda ids: np.ones(3)}, **FP8}
QUALITY = {"perplexity": {"BF16": 48.0, "FP8": 48.3}, "divergence": 0.01, **FP8}


def made_on(gpu_arch: str) -> dict[str, Any]:
    """An engine without files, made on ``gpu_arch``."""
    origin = Origin(kind="engine", made_by="", release="0.12.0", gpu_arch=gpu_arch, world_size=1, spec={}, inputs={})
    return {"engine": Artifact(Path("engine"), Manifest(origin=origin, files={}, created="", seconds=0))}


CASES = [
    Case("03-refuse-b", "an engine is refused for another gpu_arch", made_on("cpu"), made_on("sm80")),
    Case("03-08", "the engine has the profile's limits", limits(), limits(max_seq_len=1)),
    Case("03-14", "every layer kept one attention", graph(), graph(attention=0)),
    Case("03-14", "fusion removed arithmetic", graph(), graph(arithmetic=110)),
    Case("03-14", "there is one engine per rank", anatomy(*[9] * 8), anatomy(9), profile="p5"),
    Case("03-14", "the second start is faster", starts(54.0, 13.0), starts(54.0, 54.0), profile="hopper"),
    Case(
        "03-17",
        "FP8 perplexity is within",
        QUALITY,
        {"perplexity": {"BF16": 48.0, "FP8": 60.0}},
        profile="hopper",
    ),
    Case("03-17", "FP8 perplexity is within", QUALITY, {"perplexity": {"BF16": 48.0, "FP8": 60.0}}),
    Case("03-17", "the FP8 engine is not the BF16 engine", QUALITY, {"divergence": 0.0}),
    Case("03-17", "the engine's ROUGE-1", rouge(26.3), rouge(9.0), profile="p5"),
    Case("03-19", "the engine holds its weights", held(formula()), held(2 * formula())),
    Case("03-19", "the engine holds its weights", held(formula("full_prec"), None), held(formula(), None)),
    Case("03-21", "TP 2 merged gives TP 1's logits", MERGED, {"playbook": Merging(1.5)}),
    Case("03-21", "the tensor-parallel ranks", anatomy(*[9] * 8), anatomy(*[9] * 7, 18), profile="p5"),
]
