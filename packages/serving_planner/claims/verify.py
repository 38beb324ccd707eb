"""The lie detector: is a claimed speed above what the hardware can do, and by how much?

The bound is :mod:`serving_planner.roofline`. What a claim does not say is assumed in its favour (FP8, no prompt,
as many requests as the memory holds), so "impossible" stands whatever the missing words are; only the number of GPUs
is not.
"""

import math
from functools import cache
from pathlib import Path
from typing import Literal

from serving_base.facts.models import variant
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from serving_planner.case import Precision
from serving_planner.claims.text import Claim, parse_claim
from serving_planner.hardware import gpu
from serving_planner.roofline import Bound, Machine, decode_throughput, first_token_time, throughput, token_time

Word = Literal["possible", "suspect", "impossible"]
Limit = Literal["compute", "bandwidth", "memory", "arithmetic"]
ROUNDING = 1.02  # figures of one claim are rounded: so much may they disagree


class Published(Record):
    """``data/claims.yml``."""

    highest_published_share: float
    source: str


class CheckedFigure(Record):
    """One figure of a claim against its bound. ``share``: of the bound; above 1 it is passed by that factor.

    ``flops`` and ``bytes_read`` are per output token for rates, per step for times; 0 where none enters.
    """

    figure: str
    claimed: float
    bound: float
    unit: str
    share: float
    limit: Limit
    formula: str
    requests: float | None = None
    flops: float = 0
    bytes_read: float = 0

    @property
    def word(self) -> Word:
        if self.share > 1:
            return "impossible"
        return "suspect" if self.share > published().highest_published_share else "possible"


class Verdict(Record):
    """What becomes of a claim: the worst of its findings, with every number that led there."""

    word: Word
    share: float
    gpus_needed: int
    findings: tuple[CheckedFigure, ...]
    claim: Claim
    assumed: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.word}: {_sentence(self)}"]
        for finding in self.findings:
            side = "least" if finding.unit == "ms" else "most"
            lines.append(
                f"  {finding.figure}: claimed {_short(finding.claimed)} {finding.unit}, "
                f"at {side} {_short(finding.bound)} ({finding.limit}) = {finding.formula}"
            )
        if self.assumed:
            lines.append(f"  assumed: {'; '.join(self.assumed)}")
        if self.claim.ignored:
            lines.append(f"  not understood: {' '.join(self.claim.ignored)}")
        return "\n".join(lines)


@cache
def published() -> Published:
    return Published(**read_yaml(Path(__file__).parents[1] / "data" / "claims.yml"))


def verify(claim: str | Claim) -> Verdict:
    """Judge a claim, as text or read already.

    ``impossible``: above the physical bound by the factor ``share``. ``suspect``: below it, at a share of the bound
    that no published table reaches. ``possible``: at ``share``. :class:`UsageError` for a text that makes no claim.
    """
    said = parse_claim(claim) if isinstance(claim, str) else claim
    judge = _Judge(said)
    worst = max(judge.findings, key=lambda finding: finding.share)
    return Verdict(
        word=worst.word,
        share=worst.share,
        gpus_needed=said.gpus if worst.limit == "arithmetic" else math.ceil(said.gpus * max(1.0, worst.share)),
        findings=tuple(judge.findings),
        claim=said,
        assumed=(*said.assumed, *judge.assumed),
    )


class _Judge:
    """Collects the findings of a claim and what had to be assumed for them."""

    def __init__(self, said: Claim) -> None:
        self.said, self.assumed, self.findings = said, list[str](), list[CheckedFigure]()
        hardware, shape = gpu(said.gpu), variant(said.model).shape
        best: Precision = "fp8" if hardware.fp8 else "bf16"
        if said.weights is None:
            self.assumed.append(f"weights {best}, the faster")
        if said.kv is None:
            self.assumed.append("kv fp8, the smaller")
        self.machine = Machine(shape, hardware, said.gpus, said.weights or best, said.kv or "fp8")
        self.context = self._context()
        self.most = self.machine.most_requests(self.context)
        self._memory()
        if said.tokens_per_s is not None:
            self._rate("output rate", said.tokens_per_s)
        if said.tpot_ms is not None:
            self._tpot(said.tpot_ms)
        if said.ttft_ms is not None:
            self._ttft(said.ttft_ms)
        self._closed_loop()
        self._arithmetic()

    def _context(self) -> float:
        """Tokens of a request in flight, on average over its answer; what is not stated counts nothing."""
        missing = [key for key in ("isl", "osl") if getattr(self.said, key) is None]
        if missing:
            self.assumed.append(f"no {' and no '.join(missing)} (not stated, so that part of the work is left out)")
        return (self.said.isl or 0) + (self.said.osl or 0) / 2

    def _memory(self) -> None:
        machine, room = self.machine, self.machine.count * self.machine.gpu.memory_bytes
        if machine.resident_bytes > room:
            formula = f"the memory of {self._count}"
            self._add("weights", machine.resident_bytes / 1e9, room / 1e9, "GB", "memory", formula)

    def _rate(self, figure: str, claimed: float) -> None:
        said, machine = self.said, self.machine
        requests = min(said.concurrency or math.inf, self.most)
        if said.concurrency is None:
            self.assumed.append("as many requests in flight as the memory holds")
        elif said.concurrency > self.most:
            self.assumed.append(
                f"of {said.concurrency} requests {self.most:.0f} at a time, as the memory holds no more"
            )
        if said.isl and said.osl:
            bound = throughput(machine, said.isl, said.osl, requests)
        else:
            bound = decode_throughput(machine, self.context, requests)
        formula = (
            f"{self._count} / max({bound.flops:.3g} FLOP / {machine.gpu_peak:.3g} FLOP/s, "
            f"{bound.bytes:.3g} bytes / {machine.gpu.bandwidth_bytes_per_s:.3g} bytes/s) for an output token, with "
            + (f"{requests:.0f} in flight" if requests < math.inf else "any number in flight")
        )
        self._add(figure, claimed, bound.value, "tok/s", bound.limit, formula, bound, requests)

    def _tpot(self, claimed: float) -> None:
        said, requests = self.said, 1.0
        if said.concurrency and said.tokens_per_s:
            requests = min(said.concurrency, max(1.0, said.tokens_per_s * claimed / 1000))  # Little's law
        elif said.concurrency:
            requests = said.concurrency
            if requests > 1:
                self.assumed.append(f"all {requests} requests decode together, none waits")
        bound = token_time(self.machine, self.context, min(requests, self.most))
        self._time("time between tokens", claimed, bound, min(requests, self.most))

    def _ttft(self, claimed: float) -> None:
        self._time("time to first token", claimed, first_token_time(self.machine, self.said.isl or 1), 1)

    def _closed_loop(self) -> None:
        """Requests in flight leave at the rate that their latency says: is that rate possible?"""
        said = self.said
        if said.concurrency and said.osl and said.isl and said.tpot_ms and said.ttft_ms:
            latency = said.ttft_ms + (said.osl - 1) * said.tpot_ms
            self._rate("rate that follows from latency", said.concurrency * said.osl * 1000 / latency)

    def _arithmetic(self) -> None:
        said = self.said
        if said.tokens_per_s and said.tpot_ms and said.concurrency:
            most = said.concurrency * 1000 / said.tpot_ms
            if said.tokens_per_s > most * ROUNDING:
                formula = f"{said.concurrency} requests / {said.tpot_ms:g} ms"
                self._add("rate and time between tokens", said.tokens_per_s, most, "tok/s", "arithmetic", formula)

    @property
    def _count(self) -> str:
        return f"{self.machine.count} GPU" + ("s" if self.machine.count > 1 else "")

    def _time(self, figure: str, claimed_ms: float, bound: Bound, requests: float) -> None:
        formula = (
            f"max({bound.flops:.3g} FLOP / {self.machine.gpu_peak:.3g} FLOP/s, {bound.bytes:.3g} bytes / "
            f"{self.machine.gpu.bandwidth_bytes_per_s:.3g} bytes/s) / {self._count}"
        )
        self._add(figure, claimed_ms, bound.value * 1000, "ms", bound.limit, formula, bound, requests)

    def _add(
        self,
        figure: str,
        claimed: float,
        bound: float,
        unit: str,
        limit: Limit,
        formula: str,
        numbers: Bound | None = None,
        requests: float | None = None,
    ) -> None:
        finding = CheckedFigure(
            figure=figure,
            claimed=claimed,
            bound=bound,
            unit=unit,
            share=bound / claimed if unit == "ms" else claimed / bound,
            limit=limit,
            formula=formula,
            requests=requests if requests != math.inf else None,
            flops=numbers.flops if numbers else 0,
            bytes_read=numbers.bytes if numbers else 0,
        )
        self.findings.append(finding)


def _sentence(verdict: Verdict) -> str:
    worst = max(verdict.findings, key=lambda finding: finding.share)
    if verdict.word == "possible":
        return f"{worst.figure} at {verdict.share:.0%} of the physical bound"
    if verdict.word == "suspect":
        known = published().highest_published_share
        return (
            f"{worst.figure} at {verdict.share:.0%} of the physical bound; published tables reach at most {known:.0%}"
        )
    if worst.limit == "arithmetic":
        return f"{worst.figure} contradict each other by a factor of {verdict.share:.2g}"
    return (
        f"{worst.figure} passes the physical bound by a factor of {verdict.share:.2f}; "
        f"it takes at least {verdict.gpus_needed} of these GPUs"
    )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
