"""Chapter 14: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case
from cpu_serving.parallel.cuts import MISTAKES, RankLayout
from cpu_serving.parallel.wire import layer_sums_bytes
from gpu_measurements.hopper import AllReducePoint, link_us
from serving_base.facts.gpus import known_gpu
from serving_base.facts.models import known_shape

TINY, LARGE = known_shape("tiny"), known_shape("llama-3.1-405b-instruct")


def ran(
    *, tokens: tuple[int, ...] = (1, 2), held: tuple[int, ...] = (50, 50), bubble: float = 0.5, sent: int = 0
) -> Thing:
    """A run as its cells read it."""
    traffic = {"stage": Thing(sent_bytes=sent)}
    reports = [Thing(linear_values=values) for values in held]
    return Thing(tokens=tokens, reports=reports, bubble=bubble, traffic=lambda: traffic)


ALONE = ran(held=(100,))


def two(difference: float = 1e-6, **changed: Any) -> dict[str, Any]:
    return {"shared": ran(**changed), "alone": ALONE, "difference": difference, "tolerance": 1e-4}


PLACES = ("layer 0 attention", "layer 0 MLP", "layer 0 attention")


def broken(places: tuple[str, ...] = PLACES, same: bool = False, right: str = "") -> dict[str, Any]:
    found = zip(MISTAKES[1:], places, strict=True)
    rows = [{"mistake": mistake, "first difference": place, "same tokens": same} for mistake, place in found]
    package = Thing(MISTAKES=MISTAKES, first_to_differ=lambda *given: right)
    return {"rows": rows, "parallel": package, "alone": ALONE, "shared": ALONE, "tolerance": 1e-4}


def counted(
    two_ranks: int = 100, four: int = 150, *, calls: int = 32, formula: int = 0, off: float = 0
) -> dict[str, Any]:
    return {
        "sent": {2: (two_ranks, formula or two_ranks), 4: (four, four)},
        "rows": [{"all-reduces": calls}],
        "shape": TINY,
        "texts": [[1]] * 4,
        "ranks": Thing(both_sums=lambda values: [(True, off, {})]),
        "tolerance": 1e-4,
    }


def timed(small: float = 4.3, large: float = 888.0) -> dict[str, Any]:
    points = [AllReducePoint(16384, small, None), AllReducePoint(2**28, large, None)]
    link = 450e9
    times = small / link_us(16384, link)
    sizes = [point.payload_bytes for point in points]
    package = Thing(link_us=link_us, layer_sums_bytes=layer_sums_bytes, known_gpu=known_gpu)
    return {"measured": points, "sizes": sizes, "link": link, "times": times, "parallel": package}


def staged(bubble: float = 0.2, off: float = 0.0, sent: int = 4 * 40 * 256 * 4) -> dict[str, Any]:
    package = Thing(RankLayout=RankLayout, largest_difference=lambda *given: off)
    return {
        "microbatches": [1, 4],
        "runs": {1: ran(bubble=0.5), 4: ran(bubble=bubble, sent=sent)},
        "most": 4,
        "parallel": package,
        "ranks": Thing(run=lambda *given, **named: ALONE),
        "alone": ALONE,
        "texts": [[1]],
        "tolerance": 1e-4,
        "length": 40,
        "shape": TINY,
    }


def made(one: float = 0.5, four: float = 0.04, same: bool = True) -> dict[str, Any]:
    shares = {1: one, 2: 0.077, 4: four}
    return {"rows": [{"texts in flight": m, "idle share": idle, "same tokens": same} for m, idle in shares.items()]}


def mixed(off: float = 1e-6, tokens: tuple[int, ...] = (1, 2), held: tuple[int, ...] = (25,) * 4) -> dict[str, Any]:
    return {
        "parallel": Thing(RankLayout=RankLayout, largest_difference=lambda *given: off),
        "ranks": Thing(run=lambda *given, **named: ran(tokens=tokens, held=held)),
        "alone": ALONE,
        "texts": [[1]],
        "tolerance": 1e-4,
    }


def memory(sums: int = 80, weights: float = 8.5, twice: float = 16.9) -> dict[str, Any]:
    rows = [("TP 8 x PP 1", 160, 8.5), ("TP 4 x PP 2", sums, weights), ("TP 4 x PP 1", 160, twice)]
    return {"rows": [{"split": name, "all-reduces": count, "weights, GiB": held} for name, count, held in rows]}


def rates(eight_ms: float = 6.0, eight: float = 2000.0, pcie: float = 50.0) -> dict[str, Any]:
    h100 = {"TP 8": (eight_ms, eight), "2 x TP 4": (9.0, 2600.0)}
    l40s = {"TP 8": (25.0, pcie), "2 x TP 4": (31.0, 200.0)}
    planned = {
        (gpu, name): {"one user, TPOT ms": ms, "64 users, tokens/s": rate}
        for gpu, ways in (("h100-sxm", h100), ("l40s", l40s))
        for name, (ms, rate) in ways.items()
    }
    drawn = Thing(plots=Thing(bars=lambda *given, **named: None))
    return {"planned": planned, "splits": {"TP 8": (8, 1), "2 x TP 4": (4, 1)}, "playbook": drawn, "guess": "TP 8"}


class Room:
    """Weights against a GPU."""

    def __init__(self, fits: bool) -> None:
        self.needed_gb, self.there_gb, self._fits = 50.0, 85.0, fits

    def __bool__(self) -> bool:
        return self._fits


def cluster(
    one: bool = False,
    both: bool = True,
    problems: tuple[str, ...] = (),
    seen: tuple[str, ...] = ("wrong",),
    sums: float = 1e8,
) -> dict[str, Any]:
    package = Thing(
        fits=lambda *given, **named: Room(one),
        known_gpu=lambda name: name,
        engines=lambda: {"vllm": {}},
        manifests=lambda *given: "made",
        broken_manifests=lambda group: "broken",
        manifest_problems=lambda documents: list(problems if documents == "made" else seen),
        layer_sums_bytes=lambda *given: sums,
    )
    return {"parallel": package, "group": Thing(shape=LARGE, fit=Room(both))}


def rented(holds: tuple[str, ...] = ("ml.p5en.48xlarge",), fp8: bool = True) -> dict[str, Any]:
    names = ("ml.p5.48xlarge", "ml.p5en.48xlarge")
    found = [Thing(name=name, weights_gb_per_gpu=1, there_gb_per_gpu=1, holds=name in holds) for name in names]
    package = Thing(
        sagemaker_instances=lambda group: found,
        fits=lambda *given, **named: Room(fp8),
        known_gpu=lambda name: name,
    )
    return {"parallel": package, "group": Thing(shape=None), "playbook": Thing(table=lambda rows: None)}


CASES = [
    Case("14-08", "two ranks give the logits", two(), two(difference=0.1)),
    Case("14-08", "they choose the same tokens", two(), two(tokens=(1, 3))),
    Case("14-08", "each holds half", two(), two(held=(100, 100))),
    Case("14-11", "the right cut differs nowhere", broken(), broken(right="layer 3 MLP")),
    Case("14-11", "each mistake changes the tokens", broken(), broken(same=True)),
    Case("14-11", "a wrong cut shows", broken(), broken(("layer 1 MLP", *PLACES[1:]))),
    Case("14-11", "a sum that is left out", broken(), broken((PLACES[0], "layer 0 attention", PLACES[2]))),
    Case("14-17", "counted bytes are the formula's", counted(), counted(formula=99)),
    Case("14-17", "four ranks send half as much again", counted(), counted(four=100)),
    Case("14-17", "two all-reduces a layer", counted(), counted(calls=16)),
    Case("14-17", "gloo's own all-reduce", counted(), counted(off=0.5)),
    Case("14-23", "16 KiB takes more", timed(), timed(small=0.1)),
    Case("14-23", "256 MiB takes less", timed(), timed(large=2000.0)),
    Case("14-23", "no measured sum", timed(), timed(large=100.0)),
    Case("14-26", "the idle share is", staged(), staged(bubble=0.3)),
    Case("14-26", "two stages give", staged(), staged(off=0.2)),
    Case("14-26", "a stage sends one", staged(), staged(sent=5)),
    Case("14-29", "one text leaves", made(), made(one=0.2)),
    Case("14-29", "with as many texts", made(), made(four=0.5)),
    Case("14-29", "a pipeline changes no token", made(), made(same=False)),
    Case("14-31", "TP 2 x PP 2 gives", mixed(), mixed(off=0.1)),
    Case("14-31", "and its tokens", mixed(), mixed(tokens=(9,))),
    Case("14-31", "each of four ranks", mixed(), mixed(held=(25, 25, 25, 50))),
    Case("14-34", "the article's split has half", memory(), memory(sums=160)),
    Case("14-34", "and about the same weights", memory(), memory(weights=12.0)),
    Case("14-34", "two replicas hold twice", memory(), memory(twice=9.0)),
    Case("14-39", "on NVLink one user", rates(), rates(eight_ms=10.0)),
    Case("14-39", "64 users get more", rates(), rates(eight=3000.0)),
    Case("14-39", "on PCIe TP 8 is the worst", rates(), rates(pcie=900.0)),
    Case("14-42", "405B in BF16 does not fit", cluster(), cluster(one=True)),
    Case("14-42", "two P5 hold it", cluster(), cluster(both=False)),
    Case("14-42", "the manifests of all engines", cluster(), cluster(problems=("size",))),
    Case("14-42", "a broken one is refused", cluster(), cluster(seen=())),
    Case("14-42", "a stage sends less", cluster(), cluster(sums=1e5)),
    Case("14-47", "ml.p5.48xlarge does not hold", rented(), rented(holds=("ml.p5.48xlarge", "ml.p5en.48xlarge"))),
    Case("14-47", "an instance with H200 does", rented(), rented(holds=())),
    Case("14-47", "in FP8 ml.p5.48xlarge does", rented(), rented(fp8=False)),
]
