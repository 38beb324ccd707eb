"""``playbook plan``: what fits, how fast it could go and what it costs, before anything is rented."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving_base.errors import UsageError

if TYPE_CHECKING:
    from serving_planner.search import Target

STANDARD_INPUT = "-"


def plan_command(
    model: Annotated[str | None, typer.Option(help="llama3-8b, llama3-70b, llama3.1-8b, llama3.3-70b ...")] = None,
    gpu: Annotated[str | None, typer.Option(help="h100-sxm, h200, l40s ...")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs in all; tp x pp by default.")] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor parallelism; 1 by default.")] = None,
    pp: Annotated[int | None, typer.Option(help="Pipeline parallelism; 1 by default.")] = None,
    weights: Annotated[str | None, typer.Option(help="bf16 or fp8, the default.")] = None,
    kv: Annotated[str | None, typer.Option(help="KV cache: bf16 or fp8, the default.")] = None,
    isl: Annotated[int | None, typer.Option(help="Prompt tokens.")] = None,
    osl: Annotated[int | None, typer.Option(help="Answer tokens.")] = None,
    concurrency: Annotated[str | None, typer.Option(metavar="N|max", help="Requests in flight; 1 by default.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second instead, Poisson.")] = None,
    engine: Annotated[str | None, typer.Option(help="tensorrt-llm, the default, vllm or sglang.")] = None,
    length_ratio: Annotated[
        float | None, typer.Option(help="Lengths are drawn from [ratio x nominal, nominal]; 0.8 by default.")
    ] = None,
    max_num_tokens: Annotated[int | None, typer.Option(help="Tokens of an engine step; 8192 by default.")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="Requests in a replica; 2048 by default.")] = None,
    kv_fraction: Annotated[float | None, typer.Option(help="The engine's memory flag; 0.9 by default.")] = None,
    chunked: Annotated[bool | None, typer.Option(help="Whether a prompt may take several steps; yes.")] = None,
    requests: Annotated[int | None, typer.Option(help="Requests to simulate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the drawn lengths and arrivals.")] = None,
    usd_per_hour: Annotated[float | None, typer.Option(help="Price of the whole machine.")] = None,
    instance: Annotated[list[str] | None, typer.Option(help="p5.48xlarge ...; several with --choose.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="FILE|-", help="Cases, one JSON object a line.")] = None,
    verify: Annotated[str | None, typer.Option(metavar="CLAIM", help="'70B fp8 h100x1 isl=.. tok/s=..'.")] = None,
    choose: Annotated[bool, typer.Option("--choose", help="Rank ways to meet a target on --instance.")] = False,
    ttft_ms: Annotated[float | None, typer.Option(help="Target of --choose.")] = None,
    tpot_ms: Annotated[float | None, typer.Option("--tpot-ms", "--itl-ms", help="Target of --choose.")] = None,
    percentile: Annotated[int | None, typer.Option(help="50, 90 or 99 of --choose; 90 by default.")] = None,
    price: Annotated[list[str] | None, typer.Option(metavar="INSTANCE=USD", help="Per hour, for --choose.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Plan a case: memory, TTFT, TPOT and tokens/s beside their floor, and cost. Everything planned, nothing measured.

    Exit status: 0 planned, 1 for a claim (--verify) above the physical bound, 2 for input that cannot be used.
    """
    case = {
        "model": model, "gpu": gpu, "gpus": gpus, "tp": tp, "pp": pp, "weights": weights, "kv": kv, "isl": isl,
        "osl": osl, "concurrency": concurrency, "rate": rate, "engine": engine, "length_ratio": length_ratio,
        "max_num_tokens": max_num_tokens, "max_batch_size": max_batch_size, "kv_fraction": kv_fraction,
        "chunked": chunked, "requests": requests, "seed": seed, "usd_per_hour": usd_per_hour,
        "instance": instance or None,
    }  # fmt: skip
    target = {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms, "percentile": percentile, "price": price or None}
    given = {key: value for key, value in case.items() if value is not None}
    wished = {key: value for key, value in target.items() if value is not None}
    modes = [name for name, chosen in (("--batch", batch), ("--verify", verify), ("--choose", choose)) if chosen]
    if len(modes) > 1:
        raise UsageError(f"{' and '.join(modes)} exclude each other", fix="give one of them")
    if wished and not choose:
        raise UsageError(f"{_flags(wished)} without --choose", why="a target is chosen for", fix="add --choose")
    if (batch or verify) and given:
        fix = "put it into the lines" if batch else "put it into the claim"
        raise UsageError(f"{_flags(given)} beside {modes[0]}", why="each case says everything itself", fix=fix)
    if batch:
        _batch(batch)
    elif verify:
        _verify(verify, as_json=as_json)
    elif choose:
        _choose(given, wished, as_json=as_json)
    else:
        _plan(given, as_json=as_json)


def _flags(given: dict[str, Any]) -> str:
    return ", ".join(f"--{key.replace('_', '-')}" for key in given)


def _plan(given: dict[str, Any], *, as_json: bool) -> None:
    from serving_planner.case import parse_case
    from serving_planner.predict import plan
    from serving_planner.report import show_plan

    instances = given.pop("instance", [])
    if len(instances) > 1:
        raise UsageError("a plan is for one instance", fix="give one --instance, or --choose")
    if instances:
        given["instance"] = instances[0]
    given["concurrency"] = _concurrency(given.get("concurrency"))
    planned = plan(parse_case(given))
    typer.echo(json.dumps(planned.model_dump(mode="json"), indent=2) if as_json else show_plan(planned), nl=as_json)


def _concurrency(text: str | None) -> int | str | None:
    if text is None or text == "max":
        return text
    if not text.isdecimal():
        raise UsageError(f"--concurrency {text} is no number", fix="give how many requests are in flight, or max")
    return int(text)


def _batch(source: str) -> None:
    from serving_planner.report import answers

    for answer in answers(_lines(source)):
        typer.echo(answer)
        sys.stdout.flush()


def _lines(source: str) -> Iterator[bytes]:
    if source == STANDARD_INPUT:
        yield from sys.stdin.buffer
        return
    try:
        with Path(source).open("rb") as file:
            yield from file
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}", fix="give a file of JSON lines, or -") from error


def _verify(claim: str, *, as_json: bool) -> None:
    from serving_planner.claims.verify import verify

    verdict = verify(claim)
    typer.echo(json.dumps(verdict.model_dump(mode="json"), indent=2) if as_json else str(verdict))
    if verdict.word == "impossible":
        sys.exit(1)


def _choose(given: dict[str, Any], wished: dict[str, Any], *, as_json: bool) -> None:
    from serving_planner.report import show_choices
    from serving_planner.search import choose

    instances = [name for names in given.pop("instance", []) for name in names.split(",") if name]
    if not instances:
        raise UsageError("no instance to choose on", fix="give --instance p5.48xlarge, several times to compare")
    prices = _prices(wished.pop("price", []))
    usd_per_hour = given.pop("usd_per_hour", None)
    if usd_per_hour is not None:
        if len(instances) > 1:
            raise UsageError("--usd-per-hour of which instance?", fix="give --price INSTANCE=USD for each")
        prices[instances[0]] = usd_per_hour
    found = choose(_target({**given, **wished}), instances, prices)
    typer.echo(json.dumps(found.model_dump(mode="json"), indent=2) if as_json else show_choices(found), nl=as_json)


def _target(given: dict[str, Any]) -> "Target":
    from pydantic import ValidationError

    from serving_planner.search import Target

    if unknown := {key: value for key, value in given.items() if key not in Target.model_fields}:
        raise UsageError(f"{_flags(unknown)} beside --choose", why="that is what is chosen", fix="leave it out")
    try:
        return Target(**given)
    except ValidationError as error:
        problem = error.errors()[0]
        flag = str(problem["loc"][0])
        raise UsageError(f"--{flag.replace('_', '-')}: {problem['msg'].lower()}", fix="correct or add it") from error


def _prices(texts: list[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, usd = text.partition("=")
        try:
            found[name] = float(usd)
        except ValueError as error:
            raise UsageError(f"--price {text} is no price", fix="write it as p5.48xlarge=55.04") from error
    return found
