"""Ranked choices as text for a terminal."""

from serving_planner.report.plan import number, price_text, table
from serving_planner.search.target import Choice, Choices, Target

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
