"""Plans and choices as text for a terminal: aligned columns, nothing that a pipe would mind.

Many cases come as one JSON object per line and are answered in one line each; what is wrong with one stops no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from serving_base.errors import PlaybookError, UsageError
from serving_planner.case import parse_case
from serving_planner.plans import Plan, PlannedPercentiles, PriceUsed
from serving_planner.predict import plan

if TYPE_CHECKING:
    from serving_planner.search import Choice, Choices, Target

PERCENTILES = ("p50", "p90", "p99")


def show_plan(plan: Plan) -> str:
    """A plan: what was asked, planned beside floor, memory per GPU, where the time goes, costs, warnings."""
    parts = [_asked(plan), _figures(plan), _memory(plan), _time(plan), _costs(plan), *_warnings(plan.warnings)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Three figures or all of the integer part: what such a prediction is worth."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _asked(plan: Plan) -> str:
    case = plan.case
    replicas = f", {case.replicas} replicas" if case.replicas > 1 else ""
    where = f"{case.gpu_count} x {case.gpu}" + (f" ({case.instance})" if case.instance else "")
    load = f"{case.rate:g} requests/s" if case.rate is not None else f"{plan.simulated_concurrency} in flight"
    return (
        f"planned, not measured: {case.model}, weights {case.weights}, KV cache {case.kv}, {case.engine}, on {where}\n"
        f"TP {case.tp} x PP {case.pp}{replicas}; prompts {_lengths(case.isl, case.length_ratio)}, answers "
        f"{_lengths(case.osl, case.length_ratio)} tokens; {load}"
    )


def _lengths(nominal: int, ratio: float) -> str:
    low = max(1, int(nominal * ratio))
    return f"{low} to {nominal}" if low < nominal else str(nominal)


def _figures(plan: Plan) -> str:
    floor = plan.floor
    rows = [["", *PERCENTILES, "floor p50"]]
    for name, planned, least in (
        ("TTFT ms", plan.ttft_ms, floor.ttft_ms),
        ("TPOT ms", plan.tpot_ms, floor.tpot_ms),
        ("request latency ms", plan.request_latency_ms, floor.request_latency_ms),
    ):
        if planned is not None and least is not None:
            rows.append([name, *_values(planned), number(least.p50)])
    rates = [["", "planned", "steady", "floor"]]
    rates.append(
        [
            "output tokens/s",
            *map(number, (plan.output_tokens_per_s, plan.steady.output_tokens_per_s, floor.output_tokens_per_s)),
        ]
    )
    per_gpu = (
        plan.output_tokens_per_s_per_gpu,
        plan.steady.output_tokens_per_s_per_gpu,
        floor.output_tokens_per_s_per_gpu,
    )
    rates.append(["  per GPU", *map(number, per_gpu)])
    rates.append(["requests/s", number(plan.requests_per_s), number(plan.steady.requests_per_s), ""])
    binds = f"{plan.share_of_floor:.0%} of the floor; what binds: {plan.binding_limit.replace('_', ' ')}"
    return f"{table(rows)}\n\n{table(rates)}\n{binds}"


def _values(values: PlannedPercentiles) -> list[str]:
    return [number(getattr(values, name)) for name in PERCENTILES]


def _memory(plan: Plan) -> str:
    memory, case = plan.memory_gib, plan.case
    parts = ", ".join(
        f"{name} {getattr(memory, key):.1f}"
        for name, key in (
            ("weights", "weights"),
            ("KV cache", "kv_cache"),
            ("activations", "activations"),
            ("runtime", "runtime"),
        )
    )
    whole = case.hardware.memory_bytes / 2**30
    each = " a replica" if case.replicas > 1 else ""
    return (
        f"GiB per GPU: {parts}: {memory.total:.1f} of {whole:.1f}\n"
        f"the KV cache holds {plan.kv_capacity_tokens:,} tokens{each}; at most {plan.max_concurrency} full-length "
        f"requests run at once: above that they wait, and TTFT falls off a cliff"
    )


def _time(plan: Plan) -> str:
    parts = sorted(plan.time_split.items(), key=lambda part: -part[1])
    shown = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in parts if share >= 0.005]
    return f"time goes to: {', '.join(shown)}"


def _costs(plan: Plan) -> str:
    lines = []
    price, joules = plan.price, plan.joules_per_output_token_at_most
    if price is not None:
        lines += [
            f"USD per million tokens: output {number(plan.cost_usd_per_million_output_tokens)}, "
            f"prompt and output {number(plan.cost_usd_per_million_total_tokens)}",
            f"  at {price_text(price)}",
        ]
    if joules is not None:
        lines.append(f"joules per output token: at most {number(joules)} (board power limit x time)")
    return "\n".join(lines)


def price_text(price: PriceUsed) -> str:
    """A price with its date and source."""
    known = (str(price.date or ""), price.source, price.note)
    return f"{price.usd_per_hour:g} USD/h ({'; '.join(filter(None, known))})"


def _warnings(warnings: Iterable[str]) -> list[str]:
    lines = [f"warning: {warning}" for warning in warnings]
    return ["\n".join(lines)] if lines else []


SHOWN = 12
COLUMNS = ("", "instance", "TP x PP x replicas", "weights / KV", "req/s", "TTFT", "TPOT", "tok/s", "$/M out", "$/M all")


def show_choices(choices: Choices) -> str:
    """The ranked ways as a table, the first one's settings, then what was rejected and why."""
    parts = [_target(choices.target)]
    if choices.ranked:
        shown = choices.ranked[:SHOWN]
        parts.append(table([COLUMNS, *(_row(place, way) for place, way in enumerate(shown, 1))]))
        left = len(choices.ranked) - len(shown)
        parts.append(_notes(choices, left))
        parts.append(_settings(choices.ranked[0]))
    else:
        parts.append("nothing meets this target")
    parts.append(_rejected(choices))
    parts.append("\n".join(f"warning: {warning}" for warning in choices.warnings))
    return "\n\n".join(part for part in parts if part) + "\n"


def _target(target: Target) -> str:
    limits = (("TTFT", target.ttft_ms), ("TPOT", target.tpot_ms))
    times = " and ".join(f"{name} within {most:g} ms" for name, most in limits if most is not None)
    load = f"{target.rate:g} requests/s" if target.rate else "as many requests/s as possible"
    promise = f", {times} for {target.percentile} % of them" if times else ""
    return (
        f"planned, not measured: {target.model}, {target.engine}, prompts of {target.isl} and answers of {target.osl} "
        f"tokens at most\n{load}{promise}"
    )


def _row(place: int, way: Choice) -> list[str]:
    times = [number(way.ttft_ms), number(way.tpot_ms)]
    return [
        f"{place}" + ("" if way.simulated else "~"),
        way.instance if way.instances == 1 else f"{way.instances} x {way.instance}",
        f"{way.tp} x {way.pp} x {way.replicas}",
        f"{way.weights} / {way.kv}",
        number(way.requests_per_s * way.instances),
        *times,
        number(way.output_tokens_per_s * way.instances),
        number(way.cost_usd_per_million_output_tokens),
        number(way.cost_usd_per_million_total_tokens),
    ]


def _notes(choices: Choices, left: int) -> str:
    at = f"p{choices.target.percentile}"
    lines = [f"TTFT and TPOT in ms at {at}, simulated; with ~ in closed form: means, and the order among them is rough"]
    if left:
        lines.append(f"{left} more, see --json")
    prices = {way.instance: way.price for way in choices.ranked if way.price is not None}
    lines += [f"{name}: {price_text(price)}" for name, price in prices.items()]
    return "\n".join(lines)


def _settings(way: Choice) -> str:
    used = f"; its KV cache is filled to {way.kv_used:.0%}" if way.kv_used is not None else ""
    return (
        f"settings for the first: max_num_tokens {way.max_num_tokens}, max_batch_size {way.max_batch_size}, "
        f"KV cache fraction {way.kv_fraction:g}; each instance carries {number(way.most_requests_per_s)} "
        f"requests/s within the target{used}"
    )


def _rejected(choices: Choices) -> str:
    """One line for each reason, with the ways that it rejects."""
    by_why: dict[tuple[str, str], list[str]] = {}
    for way in choices.rejected:
        name = f"TP {way.tp} x PP {way.pp} {way.weights}/{way.kv}"
        by_why.setdefault((way.instance, way.why.split(": ")[0]), []).append(name)
    lines = [f"  {instance}: {', '.join(names)}: {why}" for (instance, why), names in by_why.items()]
    return "\n".join(["rejected:", *lines]) if lines else ""


def answers(lines: Iterable[bytes]) -> Iterator[str]:
    """The plan of each line as JSON, or ``{"error", "why", "fix"}``, in the same order. Empty lines have none."""
    for line in lines:
        if line.strip():
            yield json.dumps(_answer(line))


def _answer(line: bytes) -> dict[str, Any]:
    try:
        return plan(parse_case(_object(line))).model_dump(mode="json")
    except PlaybookError as error:
        return {"error": error.what, "why": error.why, "fix": error.fix}
    except Exception as error:  # a fault of the planner must not cost the other cases their plans
        why = f"{type(error).__name__}: {error}"
        return {"error": "the planner failed on this case", "why": why, "fix": "report it with this line"}


def _object(line: bytes) -> dict[str, Any]:
    try:
        given = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "a line that is no JSON",
            why=str(error),
            fix='write one object per line, such as {"model": "llama3-8b", ...}',
        ) from error
    if not isinstance(given, dict):
        raise UsageError(
            f"a line that is no object but {type(given).__name__}",
            why="a case is an object with the flags of playbook plan as keys",
            fix='write it as {"model": "llama3-8b", "gpu": "h100-sxm", "isl": 1024, "osl": 256}',
        )
    return given
