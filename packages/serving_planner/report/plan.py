"""Plans and choices as text for a terminal: aligned columns, nothing that a pipe would mind."""

from collections.abc import Iterable, Sequence

from serving_planner.planned import Percentiles, Plan, PriceUsed

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


def _values(values: Percentiles) -> list[str]:
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
