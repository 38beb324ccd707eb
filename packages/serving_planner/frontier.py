"""What a machine can offer: the speed that each user sees against the output of each GPU, over all ways to cut it.

Every split of the GPUs into TP x PP x replicas, in each precision, at loads doubled from one request a replica up to
what the memory holds, each in the closed form of :mod:`serving_planner.simulator.steady_state`: means, no simulation.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_planner.case import Case, changed, parse_case
from serving_planner.plans import Figure
from serving_planner.replicas import resolve, whole_instance

PRECISIONS = (("fp8", "fp8"), ("bf16", "bf16"))
"""Of weights and KV cache."""
VARIED = ("tp", "pp", "weights", "kv", "concurrency", "rate")
"""Keys of a case that a frontier goes through."""


class FrontierPoint(Record):
    """One way to cut the machine at one load.

    ``concurrency``: requests in flight over all replicas. ``tokens_per_s_per_user``: 1000 / TPOT in ms.
    ``output_tokens_per_s_per_gpu``: of all GPUs of the machine. ``on_front``: no other point of the list is at least
    as good in both and better in one.
    """

    tp: int
    pp: int
    replicas: int
    weights: str
    kv: str
    concurrency: int
    tokens_per_s_per_user: Figure
    output_tokens_per_s_per_gpu: Figure
    on_front: bool

    @property
    def way(self) -> str:
        """The split and the precision in a few words: ``4 x TP 2, fp8``; the KV cache is named where it differs."""
        stages = f" PP {self.pp}" if self.pp > 1 else ""
        cache = f", KV {self.kv}" if self.kv != self.weights else ""
        return f"{self.replicas} x TP {self.tp}{stages}, {self.weights}{cache}"


def frontier_of(
    *, precisions: Sequence[tuple[str, str]] = PRECISIONS, concurrencies: Sequence[int] | None = None, **keys: Any
) -> tuple[FrontierPoint, ...]:
    """Every way at every load, way by way with rising load; ``on_front`` marks those that no other one beats.

    ``keys`` of a case: ``model``, ``isl``, ``osl`` and ``instance``, or ``gpu`` and ``gpus``; ways that do not fit are
    left out. ``precisions``: (weights, KV cache). ``concurrencies``: requests in flight over all replicas; those that
    leave a replica idle or do not fit the memory are left out. :class:`UsageError` for a refused key, an answer of one
    token, which has no time per token, or if nothing fits.
    """
    varied = [key for key in VARIED if key in keys]
    if varied:
        raise UsageError(
            f"{varied[0]} is given", why="a frontier goes through all of them", fix=f"leave {varied[0]} out"
        )
    machine = whole_instance(parse_case({**keys, "weights": "bf16", "kv": "bf16"}))
    if machine.osl == 1:
        raise UsageError(
            "osl 1 has no speed", why="a frontier is about the time between tokens", fix="use osl 2 or more"
        )
    points: list[FrontierPoint] = []
    ways, refused = list(_ways(machine, precisions)), []
    for way in ways:
        try:
            points += _points(way, machine, concurrencies)
        except UsageError as error:
            refused.append(error)
    if ways and len(refused) == len(ways):
        raise refused[-1]
    if not points:
        raise UsageError("no such load fits", why="it leaves replicas idle, or the memory holds fewer requests")
    return _marked(points)


def _ways(machine: Case, precisions: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """The settings of every split into whole replicas that use all GPUs, in each precision."""
    sizes = [size for size in range(1, machine.gpu_count + 1) if machine.gpu_count % size == 0]
    for (weights, kv), tp, pp in product(precisions, sizes, sizes):
        if machine.gpu_count % (tp * pp) == 0:
            yield {"tp": tp, "pp": pp, "weights": weights, "kv": kv}


def _points(way: dict[str, Any], machine: Case, concurrencies: Sequence[int] | None) -> list[FrontierPoint]:
    """One way at each load; :class:`UsageError` if it does not fit."""
    first = changed(machine, **way, concurrency=machine.gpu_count // (way["tp"] * way["pp"]))
    most = resolve(first).memory.max_concurrency
    loads = _doubled(first.replicas, most) if concurrencies is None else sorted(set(concurrencies))
    return [_point(first, load) for load in loads if first.replicas <= load <= most]


def _doubled(first: int, last: int) -> list[int]:
    """``first``, doubled as long as it is below ``last``, and ``last``."""
    loads = [first]
    while 2 * loads[-1] < last:
        loads.append(2 * loads[-1])
    return sorted({*loads, last})


def _point(way: Case, concurrency: int) -> FrontierPoint:
    """As :func:`serving_planner.predict.steady` has it, without the floor and what binds: a quarter of its time."""
    asked = resolve(changed(way, concurrency=concurrency))
    points = [(share.replicas, asked.point(share)) for share in asked.shares]
    requests_per_s = sum(replicas * point.requests_per_s for replicas, point in points)
    tpot_s = sum(replicas * point.requests_per_s * point.tpot_s for replicas, point in points) / requests_per_s
    tokens_per_s = sum(replicas * point.output_tokens_per_s for replicas, point in points)
    return FrontierPoint(
        tp=way.tp,
        pp=way.pp,
        replicas=way.replicas,
        weights=way.weights,
        kv=way.kv,
        concurrency=concurrency,
        tokens_per_s_per_user=1 / tpot_s,
        output_tokens_per_s_per_gpu=tokens_per_s / way.gpu_count,
        on_front=False,
    )


def _marked(points: Sequence[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """``points`` with those marked that no other one beats."""
    both = [(point.tokens_per_s_per_user, point.output_tokens_per_s_per_gpu) for point in points]

    def beaten(user: float, gpu: float) -> bool:
        return any(one >= user and other >= gpu and (one, other) != (user, gpu) for one, other in both)

    marks = [not beaten(*values) for values in both]
    return tuple(point.model_copy(update={"on_front": mark}) for point, mark in zip(points, marks, strict=True))
