"""The ranks in config.json of a checkpoint or an engine: what has to multiply, and what has to divide."""

from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation

RULE = "mapping-refused"
CONVERTERS = ("convert_checkpoint.py", "quantize.py")
OURS = "tensorrt_llm"
TENSORS, EXPERTS, SPLIT = "tensor_parallel_size", "moe_expert_parallel_size", "moe_tensor_parallel_size"
MISNAMED = frozenset({"tp_size", "tp", "tensor_parallel", "num_gpus"})  # which calls.py speaks of
SERVERS = ("trtllm-serve", "trtllm-bench")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for one in document.of(*CONVERTERS):
        yield from _experts(one, platform.release.name)
    for one in document.of(*SERVERS):
        yield from _parallel(one, platform.release.name)
    for call in document.calls:
        if call.api == OURS and call.name == "LLM" and not call.is_open:
            yield from _called(call, platform.release.name)
    for config in document.json_configs:
        fields = config.fields
        checkpoint = fields.get("pretrained_config")
        checkpoint = checkpoint if isinstance(checkpoint, dict) else fields
        mapping = checkpoint.get("mapping")
        if isinstance(mapping, dict):
            yield from _mapping(config, mapping, checkpoint, platform.release.name)


def _experts(one: Invocation, release: str) -> Iterator[Draft]:
    """The experts' ranks of a conversion."""
    tp, split, copies = (_given(one, flag) for flag in ("--tp_size", "--moe_tp_size", "--moe_ep_size"))
    given = one.find("--moe_tp_size")
    if given is not None and split and copies and split * copies != (tp or 1):
        known: dict[str, Any] = {"moe_tp": split, "moe_ep": copies, "tp": tp or 1}
        yield from drafts(release, RULE, given.word, form="experts", invocation=one, **known)


def _parallel(one: Invocation, release: str) -> Iterator[Draft]:
    """Expert parallelism of a server, which has to divide its tensor parallelism."""
    tp, ep = _given(one, "--tp_size", "--tp"), _given(one, "--ep_size", "--ep")
    given = one.find("--ep_size", "--ep")
    if given is not None and ep and ep > 1 and (tp or 1) % ep:
        known: dict[str, Any] = {"ep": ep, "tp": tp or 1, "tool": one.tool}
        yield from drafts(release, RULE, given.word, form="expert parallel", invocation=one, **known)


def _called(call: Call, release: str) -> Iterator[Draft]:
    """The same of ``LLM(tensor_parallel_size=2, moe_expert_parallel_size=4)``."""
    told = {word.text for word in call.arguments}
    counts = {name: int(word.text) for name, word in call.values if word.text.isdecimal() and len(word.text) < 9}
    if any(name in told and name not in counts for name in (TENSORS, EXPERTS, SPLIT)) or told & MISNAMED:
        return
    tp, ep, split = counts.get(TENSORS, 1), counts.get(EXPERTS, 0), counts.get(SPLIT, 0)
    for word in call.arguments:
        if word.text == EXPERTS and ep > 1 and tp % ep:
            known: dict[str, Any] = {"ep": ep, "tp": tp}
            yield from drafts(release, RULE, word, form="expert parallel of a call", file=call.file, **known)
        elif word.text == SPLIT and split and ep and split * ep != tp:
            known = {"moe_tp": split, "moe_ep": ep, "tp": tp}
            yield from drafts(release, RULE, word, form="experts", file=call.file, **known)


def _given(one: Invocation, *flags: str) -> int:
    """The number of a flag, 0 where it is left out or the reader fills it in."""
    text = one.value(*flags) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0


def _mapping(
    config: ConfigFile, mapping: Mapping[str, Any], checkpoint: Mapping[str, Any], release: str
) -> Iterator[Draft]:
    tp, pp, cp = (_count(mapping.get(name), 1) for name in ("tp_size", "pp_size", "cp_size"))
    world = _count(mapping.get("world_size"), 0)
    if world and world != tp * pp * cp:
        known: dict[str, Any] = {"world": world, "tp": tp, "pp": pp, "right": tp * pp * cp}
        yield from drafts(release, RULE, config.key("world_size"), file=config.path, **known)
    experts, copies = (_count(mapping.get(name), 0) for name in ("moe_tp_size", "moe_ep_size"))
    cluster = _count(mapping.get("moe_cluster_size"), 1)
    if experts > 0 and copies > 0 and experts * copies * cluster != tp:
        known = {"moe_tp": experts, "moe_ep": copies, "tp": tp}
        yield from drafts(release, RULE, config.key("moe_tp_size"), form="experts", file=config.path, **known)
    heads = _count(checkpoint.get("num_attention_heads"), 0)
    if heads and tp > 1 and heads % tp:
        known = {"heads": heads, "tp": tp}
        yield from drafts(release, RULE, config.key("tp_size"), form="heads", file=config.path, **known)


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
