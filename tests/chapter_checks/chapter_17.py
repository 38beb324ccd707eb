"""Chapter 17: values that its checks accept, and values that they refuse."""

from collections import Counter
from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case
from playbook.case import service_case

SERVICE = service_case()


def times(p50: float, p90: float) -> Thing:
    return Thing(p50=p50, p90=p90)


def plan(ttft: float = 60.0, tpot: float = 13.0, floor: float = 3.0) -> Thing:
    return Thing(
        ttft_ms=times(50.0, ttft),
        tpot_ms=times(10.0, tpot),
        floor=Thing(ttft_ms=times(20.0, 0), tpot_ms=times(floor, 0)),
    )


def fewest(bf16: int = 2, held: int = 38) -> dict[str, Any]:
    gpus = {"BF16": Thing(gpu_count=bf16), "FP8 weights": Thing(gpu_count=1)}
    return {"service": SERVICE, "fewest": gpus, "held": {"FP8 weights and cache": held}}


def sharing(tokens: float) -> dict[str, Any]:
    """A planner that promises ``tokens`` a second to 64 users, and 100 to one."""
    rates = {1: 100.0, 64: tokens}
    return {
        "planned": lambda concurrency: {"output tokens/s": rates[concurrency], "TPOT p50, ms": 1.0 + concurrency / 32},
        "batch_guess": Thing(against=lambda actual: None),
    }


def searched(tpot: float = 13.0, why: str = "TPOT 30 ms is not kept") -> dict[str, Any]:
    best = Thing(max_batch_size=32, max_num_tokens=2048, ttft_ms=104.0, tpot_ms=tpot)
    return {"service": SERVICE, "Counter": Counter, "found": Thing(ranked=[best], rejected=[Thing(why=why)])}


def prices(*usd: float) -> dict[str, Any]:
    return {"per_minute": [40, 400], "usd": list(usd)}


def errors(throughput: float = -0.03, ttft: float = 0.3) -> dict[str, Any]:
    drawn = Thing(plots=Thing(lines=lambda *given, **named: None))
    return {"error": {"throughput": {1: throughput}, "TPOT p50": {1: 0.06}, "TTFT p50": {1: ttft}}, "playbook": drawn}


def knee(at_capacity: float = 27.0, above: float = 60.0) -> dict[str, Any]:
    return {"service": SERVICE, "at": {1.0: plan(tpot=at_capacity), 1.3: plan(tpot=above)}}


def refusals(*names: str, told: str = "no price is known for gr6.4xlarge") -> dict[str, Any]:
    planner = Thing(Target=lambda **given: None, choose=lambda target, name: Thing(warnings=(told,)))
    return {"wishes": {"too large": {}, "two loads": {}}, "refused": dict.fromkeys(names, ""), "planner": planner}


BOTH = ("too large", "two loads")
CASES = [
    Case("17-06", "no planned time is below", {"service": SERVICE, "first": plan()}, {"first": plan(floor=11.0)}),
    Case("17-06", "eight H100 keep the promise", {"service": SERVICE, "first": plan()}, {"first": plan(tpot=31.0)}),
    Case("17-09", "FP8 halves the GPUs", fewest(), fewest(bf16=4)),
    Case("17-09", "one GPU with an FP8 cache", fewest(), fewest(held=60)),
    Case("17-20", "sharing pays", sharing(2000.0), sharing(400.0)),
    Case("17-23", "the first way keeps", searched(), searched(tpot=31.0)),
    Case("17-23", "every refused way", searched(), searched(why="")),
    Case("17-27", "the bill of an hour", prices(100.0, 10.0), prices(100.0, 20.0)),
    Case("17-30", "throughput is planned", errors(), errors(throughput=0.08)),
    Case("17-30", "the first token is", errors(), errors(ttft=0.01)),
    Case("17-33", "the promise is kept below", knee(), knee(at_capacity=31.0)),
    Case("17-33", "a wait grows faster", knee(), knee(above=31.0)),
    Case("17-36", "every wish is refused", refusals(*BOTH), refusals("too large")),
    Case("17-36", "a machine without a price", refusals(*BOTH), refusals(*BOTH, told="")),
]
