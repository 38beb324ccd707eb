"""Chapter 16: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

import numpy as np

from chapter_cells import Case

NAMES = [f"norm {number}" for number in range(9)]
NORMS = [Thing(name=name, result=name, epsilon=1e-5) for name in NAMES]
TOLERANCE = 1e-5


def operations(difference: float = 1e-7, **more: Any) -> Thing:
    return Thing(difference=lambda found, expected: difference, **more)


def each_norm(difference: float = 1e-7, default: float = 1e-6) -> dict[str, Any]:
    found = dict.fromkeys(NAMES)
    own = Thing(attributes={"epsilon": default})
    return {"operations": operations(difference), "norms": NORMS, "found": found, "own": own, "tolerance": TOLERANCE}


def graph(
    count: int = 9, before: tuple[int, int] = (9, 0), after: tuple[int, int] = (0, 9), difference: float = 1e-7
) -> dict[str, Any]:
    steps = [dict(zip(("RMS", "Reference"), pair, strict=True)) for pair in (before, after)]
    return {
        "ran": {"with our norm": lambda ids: ids},
        "steps": dict(zip(("as written", "with our norm"), steps, strict=True)),
        "bench": Thing(expected=lambda ids: ids),
        "texts": [[1]],
        "count": count,
        "nodes": [None] * 9,
        "norms": NORMS,
        "operations": operations(difference),
        "tolerance": TOLERANCE,
    }


def stored(refusal: str = "Cannot create RmsNorm", epsilon: float = 1e-5, own: int = 7) -> dict[str, Any]:
    def paged_tokens(folder: str, ids: list[int], tokens: int, brought: tuple[Any, ...] = ()) -> list[int]:
        return [own if brought else 7]

    return {
        "refusal": refusal,
        "again": [{"epsilon": epsilon}],
        "nodes": [{"epsilon": 1e-5}],
        "texts": [[1]],
        "operations": Thing(paged_tokens=paged_tokens),
        "bench": Thing(engine=lambda graph, name: name),
        "plain": "plain",
        "folder": "own",
        "own": None,
    }


def forgotten(in_memory: float = 1e-7, from_file: float = 2e-3) -> dict[str, Any]:
    package = Thing(
        replace=lambda own, stored: own,
        replace_norms=lambda graph, own: 9,
        RunningGraph=lambda graph, own: lambda ids: graph,
        read_graph=lambda folder, own: "file",
        difference=lambda found, expected: from_file if found == "file" else in_memory,
    )
    bench = Thing(graph=lambda: "graph", engine=lambda graph, name: name)
    given = {"operations": package, "bench": bench, "own": None, "texts": [[1]], "expected": None}
    return given | {"tolerance": TOLERANCE}


def walled(rms: int = 0, gained: int = 27) -> dict[str, Any]:
    return {
        "moved": {"with our square": {"RMS": rms}},
        "gained": gained,
        "squares": 9,
        "ran": {
            name: Thing(milliseconds=lambda ids: 1.0) for name in ("as written", "with our norm", "with our square")
        },
        "texts": [[1]],
        "length": 64,
        "playbook": Thing(plots=Thing(bars=lambda *given, **named: None)),
    }


def smoothed(difference: float = 1e-7, after: float = 3.0) -> dict[str, Any]:
    return {
        "wide": Thing(expected=lambda ids: ids),
        "operations": operations(difference),
        "texts": [[1]],
        "expected": None,
        "tolerance": TOLERANCE,
        "before": np.array([1.0, 1.0, 60.0]),
        "after": np.array([1.0, 1.0, after]),
        "layer": "q",
        "np": np,
        "playbook": Thing(plots=Thing(channels=lambda *given, **named: None)),
    }


def products(tensor: float = 1.0, token: float = 0.5) -> dict[str, Any]:
    errors = {"plain, per tensor": 20.0, "plain, per token": 10.0}
    return {"errors": errors | {"smoothed, per tensor": tensor, "smoothed, per token": token}}


def whole(ours: int = 28, library: int = 1, plain: float = 40.0, best: float = 96.0) -> dict[str, Any]:
    return {
        "whole": Thing(executed=lambda: {"Reference": ours, "FullyConnected": library}),
        "replaced": 28,
        "agreement": {"plain, per tensor": plain, "smoothed, per token": best},
    }


def faults(right: float = 1e-7, shown: float = 2e-3, tokens: float = 1.0, scale: float = 12.0) -> dict[str, Any]:
    return {
        "compared": {"epsilon is forgotten": Thing(norms={"a": shown}, same_tokens=tokens)},
        "bench": Thing(compare_norms=lambda own, ids: Thing(norms={"a": right})),
        "own": None,
        "texts": [[1]],
        "tolerance": TOLERANCE,
        "wrong": {"swapped": scale},
    }


CASES = [
    Case("16-08", "every norm of the model", each_norm(), each_norm(difference=1e-3)),
    Case("16-08", "the default epsilon is not", each_norm(), each_norm(default=1e-5)),
    Case("16-12", "every norm is one node", graph(), graph(count=8)),
    Case("16-12", "the processor runs our nodes", graph(), graph(after=(9, 0))),
    Case("16-12", "before, it ran none", graph(), graph(before=(0, 9))),
    Case("16-12", "the logits are", graph(), graph(difference=1e-3)),
    Case("16-15", "without the operation", stored(), stored(refusal="<Model>")),
    Case("16-15", "with it every parameter", stored(), stored(epsilon=1e-6)),
    Case("16-15", "the engine with a paged cache", stored(), stored(own=8)),
    Case("16-17", "in memory all is right", forgotten(), forgotten(in_memory=1e-3)),
    Case("16-17", "from the file it is not", forgotten(), forgotten(from_file=1e-7)),
    Case("16-20", "one wall inside each norm", walled(), walled(rms=9)),
    Case("16-20", "and the graph gains", walled(), walled(gained=9)),
    Case("16-24", "the planted outliers change", smoothed(), smoothed(difference=1e-3)),
    Case("16-24", "smoothing takes the outliers", smoothed(), smoothed(after=60.0)),
    Case("16-27", "smoothing helps one scale", products(), products(tensor=15.0)),
    Case("16-27", "and a scale for each token", products(), products(token=8.0)),
    Case("16-27", "both together", products(), products(tensor=0.1)),
    Case("16-31", "every linear layer", whole(), whole(ours=27)),
    Case("16-31", "the last is still", whole(), whole(library=0)),
    Case("16-31", "plain INT8 per tensor", whole(), whole(plain=80.0)),
    Case("16-31", "smoothed and per token", whole(), whole(best=85.0)),
    Case("16-35", "the right kernel passes", faults(), faults(right=1e-3)),
    Case("16-35", "every fault fails it", faults(), faults(shown=1e-7)),
    Case("16-35", "but one of them changes", faults(), faults(tokens=0.9)),
    Case("16-35", "a wrong scale", faults(), faults(scale=0.1)),
]
