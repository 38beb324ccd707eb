"""Chapter 11: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case
from cpu_serving.paging import Played
from playbook.articles import table
from playbook.attention import AttentionRun
from serving_base.facts.models import known_shape

NAMES = {
    "Llama-2-7B": "llama-2-7b-chat",
    "Llama-3-8B": "llama-3-8b-instruct",
    "Llama-3-70B": "llama-3-70b-instruct",
    "Llama-3.1-405B": "llama-3.1-405b-instruct",
}
SHAPES = {title: known_shape(name) for title, name in NAMES.items()}
SHARED = {name: shape.kv_bytes_per_token("bfloat16") for name, shape in SHAPES.items()}


def kept(**changed: int) -> dict[str, Any]:
    """What the table cell leaves; ``changed``: bytes of a model, ``_`` for what a name cannot hold."""
    found = SHARED | {name.replace("_", "-"): value for name, value in changed.items()}
    return {"shapes": SHAPES, "shared": found, "guess": "Llama-3-8B", "first": "Llama-2-7B"}


def supported(
    hopper: str = "0.5.0", ada_fp8: str = "0.12.0", talk: str = "32/64/128/25 6", sums: str = "fp32"
) -> dict[str, Any]:
    """A table in which Hopper has head size 128 since ``hopper``, Ada its FP8 kernel since ``ada_fp8``."""

    def first_fused(architecture: str, head_size: int, inputs: str = "bf16") -> str:
        if inputs == "fp8":
            return {"sm80": "-", "sm89": ada_fp8, "sm90": "0.9.0"}[architecture]
        return {32: "0.5.0", 64: "0.5.0", 128: hopper, 256: "0.5.0"}.get(head_size, "0.9.0")

    quoted = Thing(records=lambda: [{}, {"Head Size": talk}])
    articles = Thing(table=lambda name: quoted)
    course = Thing(attention=Thing(first_fused=first_fused), articles=articles)
    kernels = {"FMHA": [{"inputs": f"fp16 in fp16; bf16 in {sums}"}, {"inputs": "fp16 in fp16"}]}
    return {"playbook": course, "shapes": SHAPES, "kernels": kernels}


def choice(name: str, kernel: str = "FMHA") -> Thing:
    return Thing(name=name, kernel=kernel)


BF16 = "fmha_v2_flash_attention_bf16_<q>_<kv>_S_qkv_128_causal_tma_ws_sm90_kernel"
E4M3, PAGED = BF16.replace("bf16", "e4m3"), BF16.replace("_qkv_", "_q_paged_kv_")
PREFILL = {
    "BF16 model": choice(BF16),
    "+ context_fmha_fp32_acc": choice(BF16),
    "FP8 model": choice(BF16),
    "+ use_fp8_context_fmha": choice(E4M3),
    "+ both": choice(PAGED),
    "use_fp8_context_fmha, 16-bit cache": choice("-", "refused"),
}


def prefill(name: str, spoiled: Thing) -> dict[str, Any]:
    return {"prefill": PREFILL | {name: spoiled}}


FP8_OFF = "Llama-3, enable_xqa off, FP8 cache"
MMHA = "mmha::masked_multihead_attention_kernel<__nv_bfloat16, __nv_fp8_e4m3, ...>"


def decoding(shared_heads: str = "XQA", name: str = MMHA) -> dict[str, Any]:
    """The names of the cell, with a library that answers so."""

    def kernel(case: dict[str, Any]) -> Thing:
        xqa = case.get("queries_per_kv", 1) > 1 and case.get("enable_xqa", True)
        return choice(name, shared_heads if xqa else "MMHA")

    llama = {"gpu": "h100", "queries_per_kv": 8}
    return {"attention": Thing(AttentionCase=dict, generation_kernel=kernel), "llama": llama, "fp8": llama}


QUOTED = [row["TensorRT FP8"] for row in table("aws-kernels").records()][2:]


def predicting(*, fp8_since: str = "0.9.0", fp8_until: str = "0.9.0", mmha: str = MMHA) -> dict[str, Any]:
    """A library that gives the article's FP8 name from ``fp8_since`` to ``fp8_until``."""
    order = ["0.9.0", "0.10.0", "0.12.0"]

    def kernel(case: dict[str, Any]) -> Thing:
        fits = order.index(fp8_since) <= order.index(case["release"]) <= order.index(fp8_until)
        fp8_name = QUOTED[1] if fits else "fmha_v2_flash_attention_e4m3_64_256"
        return choice(fp8_name if case.get("use_fp8_context_fmha") else QUOTED[0])

    library = Thing(AttentionCase=dict, context_kernel=kernel)
    decode = {FP8_OFF: choice(mmha)}
    return {"attention": library, "fp8": {"gpu": "h100"}, "published": table("aws-kernels"), "decode": decode}


def by_release(small: str = "MMHA", large: str = "XQA") -> dict[str, Any]:
    """8B's kernel in 0.10, and 70B's in 0.8."""
    later = {"0.10.0": small, "0.11.0": "XQA"}
    return {
        "by_release": {"Llama-3-8B": later, "Llama-3-70B": {"0.7.1": "MMHA", "0.8.0": large}},
    }


def run(length: int, plain: int, fused: int, error: float = 1e-6) -> AttentionRun:
    return AttentionRun(length, 32 * length * length, plain, fused, 0.1, 0.1, error)


SHORT, LONG = run(256, 6_000_000, 700_000), run(2048, 400_000_000, 5_000_000)


def measured(short: AttentionRun = SHORT, long: AttentionRun = LONG) -> dict[str, Any]:
    return {"runs": [short, long], "longest": long, "compared": Thing(rounding=1e-4)}


def played(
    first_token: dict[str, int] | None = None,
    *,
    steps: int = 24,
    waiting: int = 0,
    blocks: int = 4,
    answer: tuple[int, ...] = (1, 2),
    came: tuple[int, ...] = (1, 2),
) -> Played:
    return Played(steps, first_token or {}, {"a": came}, {"a": answer}, (waiting,), (blocks,))


LONG_WAITS, GOT = "long, steps to first token", "tokens of the running one meanwhile"


def chunked(got: tuple[int, int] = (1, 8), short: int = 8, answer: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    chunks = {512: played({"short": 1}), 64: played({"short": short}, answer=answer)}
    rows = [{LONG_WAITS: steps, GOT: tokens} for steps, tokens in zip((1, 8), got, strict=True)]
    return {"chunks": chunks, "rows": rows}


def reused(off: int = 9, on: int = 1, answer: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    prefix = {
        False: played({"user 0": 9, "user 1": off}),
        True: played({"user 0": 9, "user 1": on}, answer=answer),
    }
    return {"prefix": prefix, "block": 32}


def pools(**changed: Played) -> dict[str, Any]:
    found = {
        "p16": played(steps=24, waiting=0, blocks=16),
        "p8": played(steps=48, waiting=4, blocks=8),
        "p4": played(steps=96, waiting=6, blocks=4),
    }
    return {"pools": {int(name[1:]): one for name, one in (found | changed).items()}}


def policies(answer: tuple[int, ...] = (1, 2), came: tuple[int, ...] = (1, 6), **pauses: Any) -> dict[str, Any]:
    """What waits takes 120 steps; what pauses takes 96 and has a gap of 4 steps in an answer."""
    waits = played({"user 0": 61}, steps=120)
    usual: dict[str, Any] = {"first_token": {"user 0": 1}, "steps": 96, "answer": answer, "came": came}
    paused = played(**(usual | pauses))
    return {"policies": {"guaranteed_no_evict": waits, "max_utilization": paused}}


def ablated(rate: float = 90.0, room: int = 50) -> dict[str, Any]:
    """BF16 weights give ``rate`` tokens/s where the profile gives 100; a BF16 cache has ``room`` of 100 tokens."""
    rates = {"as the profile": 100.0, "BF16 weights": rate}
    plans = {name: Thing(output_tokens_per_s=value) for name, value in rates.items()}
    return {"plans": plans, "base": 100.0, "room": {"as the profile": 100, "BF16 KV cache": room}}


def settings(two: int = 82, reused: int = 30, answer: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    """Steps of a batch of two, and blocks with reuse, where the engine as built takes 34 steps and 70 blocks."""
    found = {
        "as built": played(steps=34, blocks=70),
        "max_batch_size 2": played(steps=two, answer=answer),
        "reuse on": played(steps=34, blocks=reused),
    }
    return {"built": found}


def on_h200(fused_us: float = 785.0, fp8_at_8192: float = 954.0) -> dict[str, Any]:
    """Microseconds of fused attention by tokens, beside the floor of the plain one."""
    rows = {8192: {"fa3 bf16": fused_us, "fa3 fp8": fp8_at_8192}, 32768: {"fa3 bf16": 13777.0, "fa3 fp8": 12859.0}}
    return {"on_h200": rows, "floor_us": {8192: 4037.6, 32768: 64600.0}}


CASES = [
    Case("11-hop-c", "the best fused kernel is below", on_h200(), on_h200(fused_us=5000.0, fp8_at_8192=5100.0)),
    Case("11-hop-c", "FP8 makes this kernel faster", on_h200(), on_h200(fp8_at_8192=700.0)),
    Case("11-07", "the guess is one of the models", {"guess": "Llama-3-8B"}, {"guess": "Llama-4"}),
    Case("11-11", "GQA makes Llama-3-8B's cache a quarter", kept(), kept(Llama_3_8B=1)),
    Case("11-11", "Llama-2-7B keeps more", kept(), {"shared": SHARED | {"Llama-3.1-405B": 10**7}}),
    Case("11-11", "an FP8 cache is half", kept(), kept(Llama_3_70B=1)),
    Case("11-14", "the talk's row of Hopper", supported(), supported(talk="32/64/80/128/256")),
    Case("11-14", "every model above", supported(), supported(hopper="0.9.0", talk="32/64/256")),
    Case("11-14", "FP8 came to Hopper", supported(), supported(ada_fp8="0.9.0")),
    Case("11-14", "BF16 is summed in FP32", supported(), supported(sums="fp16 or fp32")),
    Case("11-17", "FP8 weights alone", {"prefill": PREFILL}, prefill("FP8 model", choice(E4M3))),
    Case("11-17", "use_fp8_context_fmha turns", {"prefill": PREFILL}, prefill("+ use_fp8_context_fmha", choice(BF16))),
    Case("11-17", "a paged prompt shows", {"prefill": PREFILL}, prefill("+ both", choice(E4M3))),
    Case(
        "11-17", "FP32 sums change nothing", {"prefill": PREFILL}, prefill("+ context_fmha_fp32_acc", choice("other"))
    ),
    Case(
        "11-17",
        "FP8 attention over a 16-bit cache",
        {"prefill": PREFILL},
        prefill("use_fp8_context_fmha, 16-bit cache", choice(E4M3)),
    ),
    Case("11-19", "shared heads bring XQA", decoding(), decoding(shared_heads="MMHA")),
    Case("11-19", "an FP8 cache shows", decoding(), decoding(name="masked")),
    Case("11-19c", "70B has had XQA", by_release(), by_release(large="MMHA")),
    Case("11-19c", "8B waited for it", by_release(), by_release(small="XQA")),
    Case("11-22", "release 0.9 has both", predicting(), predicting(fp8_since="0.10.0", fp8_until="0.10.0")),
    Case("11-22", "no later release has", predicting(), predicting(fp8_until="0.10.0")),
    Case("11-22", "and its MMHA name", predicting(), predicting(mmha="mmha<float, ...>")),
    Case("11-28", "both give the same", measured(), measured(run(256, 6_000_000, 700_000, error=0.1))),
    Case("11-28", "plain attention holds", measured(), measured(run(256, 1_000_000, 700_000))),
    Case("11-28", "fused attention never", measured(), measured(long=run(2048, 400_000_000, 300_000_000))),
    Case("11-28", "plain memory grows faster", measured(), measured(long=run(2048, 400_000_000, 100_000_000))),
    Case("11-36", "the whole prompt in one step", chunked(), chunked(got=(3, 8))),
    Case("11-36", "with chunks it gets", chunked(), chunked(got=(1, 2))),
    Case("11-36", "who queues behind", chunked(), chunked(short=1)),
    Case("11-36", "no answer changes", chunked(), chunked(answer=(1, 3))),
    Case("11-39", "without reuse every request", reused(), reused(off=1)),
    Case("11-39", "with reuse the later ones", reused(), reused(on=9)),
    Case("11-39", "reuse changes no answer", reused(), reused(answer=(1, 3))),
    Case("11-43", "two blocks for each request", pools(), pools(p8=played(steps=48, waiting=1, blocks=8))),
    Case("11-43", "a smaller pool takes more steps", pools(), pools(p8=played(steps=24, waiting=4, blocks=8))),
    Case("11-43", "the pool is never exceeded", pools(), pools(p8=played(steps=48, waiting=4, blocks=9))),
    Case("11-43", "waiting changes no answer", pools(), pools(p8=played(steps=48, waiting=4, answer=(9,)))),
    Case("11-43", "nobody is paused", pools(), pools(p8=played(steps=48, waiting=4, blocks=8, came=(1, 3)))),
    Case("11-pause-c", "with pauses it takes fewer steps", policies(), policies(steps=130)),
    Case("11-pause-c", "and every first token", policies(), policies(first_token={"user 0": 40})),
    Case("11-pause-c", "but some answers stop", policies(), policies(came=(1, 2))),
    Case("11-pause-c", "a paused answer goes on", policies(), policies(answer=(1, 3))),
    Case("11-abl-o", "a batch of two takes", settings(), settings(two=60)),
    Case("11-abl-o", "reuse takes less than half", settings(), settings(reused=40)),
    Case("11-abl-o", "none of the settings changes", settings(), settings(answer=(3,))),
    Case("11-abl-d", "BF16 weights cost throughput", ablated(), ablated(rate=101.0)),
    Case("11-abl-d", "a BF16 cache holds half the tokens", ablated(), ablated(room=90)),
]
