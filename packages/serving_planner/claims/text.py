"""Reading a claim such as ``70B fp8 h100x1 isl=1024 osl=256 tok/s=2100 concurrency=50``, in any order and case."""

import re
from collections.abc import Callable
from typing import Any

from pydantic import Field, ValidationError

from serving_base.errors import UsageError
from serving_base.facts.gpus import instance
from serving_base.facts.models import model_name, variants
from serving_base.record import FiniteRecord
from serving_planner.case import Precision
from serving_planner.hardware import gpu_name, gpus

EXAMPLE = "70B fp8 h100x1 isl=1024 osl=256 tok/s=2100 concurrency=50"


class Claim(FiniteRecord):
    """What a claim says; None: nothing. Rates are output tokens of all GPUs together, latencies milliseconds."""

    model: str
    gpu: str
    gpus: int = Field(ge=1)
    weights: Precision | None = None
    kv: Precision | None = None
    isl: int | None = Field(None, ge=1)
    osl: int | None = Field(None, ge=1)
    concurrency: int | None = Field(None, ge=1)
    tokens_per_s: float | None = Field(None, gt=0)
    tpot_ms: float | None = Field(None, gt=0)
    ttft_ms: float | None = Field(None, gt=0)
    assumed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


NUMBER = r"(\d+(?:\.\d+)?)\s?(k)?"
IS = r"\s*[=:~]?\s*(?:of\s+)?"
SAY = r"\s*[=:~]\s*"
TOKENS_PER_S = r"(?:output\s+|generation\s+)?(?:(?:tok(?:en)?s?|t)\s*(?:/|\s+per\s+)\s*s(?:ec(?:ond)?)?|tps)\b"
EACH = r"(?:\s*(?:/|per\s+)\s*(gpu|user|request|stream))?"
PRECISION = r"(fp8|e4m3|bf16|bfloat16|fp16|float16)"
FORM = r"(?:[ -]?(?:sxm\d?|nvl|pcie|\d+ ?gb|hbm\de?))*"
GPU = rf"(?:nvidia[ -]+)?((?:g?[bh]\d{{3}}|[av]\d{{2,3}}|l\d{{1,2}}s?|t4|mi\d{{3}}x?){FORM})"
TPOT = r"(?:tpot|itl|inter-?token[ -]latency|time[ -]per[ -]output[ -]token)"
TTFT = r"(?:ttft|time[ -]to[ -]first[ -]token)"
UNIT = r"\s*(ms|us|s)?\b"
FILLER = {
    "a",
    "an",
    "and",
    "at",
    "for",
    "gpu",
    "in",
    "llama",
    "of",
    "on",
    "one",
    "the",
    "to",
    "with",
    "x",
    "per",
    "meta",
}


class _Reader:
    """Takes out of the text what it understands; the first to say a thing is heard."""

    def __init__(self, text: str) -> None:
        self.rest = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower().replace("×", "x").replace("_", "-"))
        self.found: dict[str, Any] = {}
        self.assumed: list[str] = []

    def take(self, pattern: str, heard: Callable[[re.Match[str]], dict[str, Any]]) -> None:
        """Hear every match of ``pattern`` and remove it."""

        def cut(match: re.Match[str]) -> str:
            for key, value in heard(match).items():
                self.found.setdefault(key, value)
            return " ; "

        self.rest = re.sub(pattern, cut, self.rest)

    def number(self, digits: str, thousands: str | None) -> float:
        if thousands:
            self.assume("k is 1000")
        return float(digits) * (1000 if thousands else 1)

    def assume(self, what: str) -> None:
        if what not in self.assumed:
            self.assumed.append(what)


def parse_claim(text: str) -> Claim:
    """The claim that ``text`` makes; what was not said and had to be assumed is in ``assumed``.

    :class:`UsageError` if it names no model, GPU or figure, or one that the planner does not know.
    """
    reader = _Reader(text)
    _machine(reader)
    _figures(reader)
    _load(reader)
    _model(reader)
    found = reader.found
    if "model" not in found or "gpu" not in found:
        missing, known = ("model", variants()) if "model" not in found else ("gpu", gpus())
        raise UsageError(
            f"no {missing} in {text!r}", why=f"the planner knows {', '.join(known)}", fix=f"write it as in: {EXAMPLE}"
        )
    count = found.get("gpus", found.get("tp", 1) * found.get("pp", 1))
    if not {"gpus", "tp", "pp"} & set(found):
        reader.assume("one GPU")
    figures = _whole_machine(found, count, text)
    words = [word for word in re.findall(r"[a-z0-9./%+-]*[a-z0-9]", reader.rest) if word not in FILLER]
    keys = ("model", "gpu", "weights", "kv", "isl", "osl", "concurrency")
    said = {**{key: found[key] for key in keys if key in found}, **figures, "gpus": count}
    try:
        return Claim(**said, assumed=tuple(reader.assumed), ignored=tuple(words))
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UsageError(
            f"{wrong['loc'][0]}={wrong['input']} in {text!r} is refused",
            why=str(wrong["msg"]).lower(),
            fix=f"write it as in: {EXAMPLE}",
        ) from error


def _machine(reader: _Reader) -> None:
    known = r"\b(?:ml\.)?((?:p4de?|p5en|p5e?|gr6|g6e?|p6-b\d+)\.\d*xlarge)\b"
    reader.take(known, lambda m: {"gpu": instance(m[1]).gpu, "gpus": instance(m[1]).gpus})
    before = rf"\b(?:gpu{SAY})?(\d+)\s*(?:x\s*)?{GPU}\b"
    reader.take(before, lambda m: {"gpu": gpu_name(m[2]), "gpus": int(m[1])})
    after = rf"\b(?:gpu{SAY})?{GPU}\s*x\s*(\d+)"
    reader.take(after, lambda m: {"gpu": gpu_name(m[1]), "gpus": int(m[2])})
    reader.take(rf"\bsingle\s+{GPU}\b", lambda m: {"gpu": gpu_name(m[1]), "gpus": 1})
    reader.take(rf"\b(?:gpu{SAY})?{GPU}\b", lambda m: {"gpu": gpu_name(m[1])})
    reader.take(r"\bgpus\s*[=:]\s*(\d+)|\b(\d+)\s*(?:x\s*)?gpus?\b", lambda m: {"gpus": int(m[1] or m[2])})
    reader.take(r"\btp\s*[=:]?\s*(\d+)", lambda m: {"tp": int(m[1])})
    reader.take(r"(?:\b|x\s*)pp\s*[=:]?\s*(\d+)", lambda m: {"pp": int(m[1])})


def _figures(reader: _Reader) -> None:
    def rate(each: str | None, digits: str, thousands: str | None) -> dict[str, Any]:
        return {f"rate_{each or 'all'}": reader.number(digits, thousands)}

    def latency(key: str) -> Callable[[re.Match[str]], dict[str, Any]]:
        def heard(match: re.Match[str]) -> dict[str, Any]:
            if match[2] is None:
                reader.assume(f"{key} in ms")
            return {f"{key}_ms": float(match[1]) * {"us": 1e-3, "s": 1e3}.get(match[2] or "ms", 1.0)}

        return heard

    reader.take(rf"\b(?:{TOKENS_PER_S}{EACH}|throughput){SAY}{NUMBER}\b", lambda m: rate(m[1], m[2], m[3]))
    reader.take(rf"\b{NUMBER}\s*{TOKENS_PER_S}{EACH}", lambda m: rate(m[3], m[1], m[2]))
    reader.take(rf"\b{NUMBER}\s*(?:req(?:uest)?s?\s*/\s*s(?:ec)?|rps|qps)\b", lambda m: rate("requests", m[1], m[2]))
    for key, name in (("tpot", TPOT), ("ttft", TTFT)):
        reader.take(rf"\b{name}{IS}(\d+(?:\.\d+)?){UNIT}", latency(key))
        reader.take(rf"\b(\d+(?:\.\d+)?){UNIT}\s+{name}\b", latency(key))


def _load(reader: _Reader) -> None:
    def length(key: str) -> Callable[[re.Match[str]], dict[str, Any]]:
        return lambda match: {key: int(reader.number(match[1], match[2]))}

    def lengths(match: re.Match[str]) -> dict[str, Any]:
        return {"isl": int(reader.number(match[1], match[2])), "osl": int(reader.number(match[3], match[4]))}

    for key, name in (("isl", r"(?:isl|in(?:put)?|prompt)"), ("osl", r"(?:osl|out(?:put)?|answer)")):
        unit = r"(?:[ -]?(?:tokens?|len(?:gth)?))?"
        reader.take(rf"\b{name}{unit}{SAY}{NUMBER}\b", length(key))
        reader.take(rf"\b{NUMBER}\s*(?:tokens?\s+)?{name}\b", length(key))
        reader.take(rf"\b{name}{unit}\s+{NUMBER}\b", length(key))
    pair = rf"\b{NUMBER}\s*/\s*{NUMBER}\b"
    reader.take(pair, lengths)
    names = r"(?:concurrency|concurrent(?:\s+(?:users|requests))?|conc|users|batch(?:[ -]size)?|bs|b|c)"
    reader.take(rf"\b{names}\s*[=:]?\s*(\d+)\b", lambda m: {"concurrency": int(m[1])})
    after = r"(?:concurrent(?:\s+(?:users|requests))?|users|requests\s+in\s+flight)"
    reader.take(rf"\b(\d+)\s+{after}\b", lambda m: {"concurrency": int(m[1])})


def _model(reader: _Reader) -> None:
    def precision(word: str) -> str:
        return "fp8" if word in ("fp8", "e4m3") else "bf16"

    def model(version: str | None, size: str) -> dict[str, Any]:
        if version is None:
            reader.assume(f"{size}B is llama3-{size}b")
        return {"model": model_name(f"llama{version or '3'}-{size}b")}

    kv = r"kv(?:[ -]?cache)?"
    reader.take(rf"\b{PRECISION}\s+weights\b", lambda m: {"weights": precision(m[1])})
    reader.take(rf"\b{kv}\s*[=:]?\s*{PRECISION}\b", lambda m: {"kv": precision(m[1])})
    reader.take(rf"\b{PRECISION}[ -]{kv}\b", lambda m: {"kv": precision(m[1])})
    other = r"\b(int8|int4|nvfp4|fp4|awq|gptq|w4a16|w8a8|w4a8|q[2-8](?:-[a-z0-9-]+)?)\b"
    if unknown := re.search(other, reader.rest):
        raise UsageError(
            f"{unknown[1]} cannot be judged",
            why="the planner has peaks and sizes for bf16 and fp8",
            fix="take fp8: its bound holds for 4 bits too where computing limits, not where reading weights does",
        )
    reader.take(rf"\b(?:weights{SAY})?{PRECISION}\b", lambda m: {"weights": precision(m[1])})
    named = r"\b(?:model\s*[=:]\s*)?(?:meta-)?llama[ -]?v?(\d(?:\.\d)?)[ -]+(\d+)b\b"
    reader.take(named + r"(?:-(?:instruct|chat))?", lambda m: model(m[1], m[2]))
    reader.take(r"\b(?:model\s*[=:]\s*)?(\d+)b\b", lambda m: model(None, m[1]))


def _whole_machine(found: dict[str, Any], count: int, text: str) -> dict[str, float]:
    """The figures for all GPUs together: per GPU times their number, per user as the time between two tokens."""
    figures: dict[str, float] = {key: found[key] for key in ("tpot_ms", "ttft_ms") if key in found}
    for each in ("user", "request", "stream"):
        if found.get(f"rate_{each}"):
            figures.setdefault("tpot_ms", 1000 / found[f"rate_{each}"])
    if "rate_all" in found:
        figures["tokens_per_s"] = found["rate_all"]
    elif "rate_gpu" in found:
        figures["tokens_per_s"] = found["rate_gpu"] * count
    elif "rate_requests" in found and "osl" in found:
        figures["tokens_per_s"] = found["rate_requests"] * found["osl"]
    if not figures:
        raise UsageError(
            f"no figure to judge in {text!r}", why="a claim has tok/s, tpot or ttft", fix=f"as in: {EXAMPLE}"
        )
    return figures
