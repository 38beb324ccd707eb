"""What to write instead of an option that a program's log says it does not know."""

import re

OF_VLLM = re.compile(r"\bvllm\b|\b(?:Async)?EngineArgs\b|\bAsyncLLMEngine\b")


def instead_of(option: str) -> str:
    """``leave --x out, or write --y``, by what is known of vLLM's and TensorRT-LLM's options of any version."""
    known = _of_vllm(option.lstrip("-").replace("_", "-")) or _of_the_guide(option)
    return f"write {known};" if known.startswith("-") else f"leave {option} out, or take the version that has it;"


def _of_vllm(name: str) -> str:
    from trtllm_check.releases.vllm import vllm_facts

    return vllm_facts().instead["options"].get(name, "")


def _of_the_guide(option: str) -> str:
    """The flag that took its place, where all tools that had it say the same."""
    from trtllm_check.releases.guide import flag_guides

    entries = [guide for (_, flag), guide in flag_guides().items() if flag == option]
    named = {tuple(one.flag for one in guide.instead if one.flag) for guide in entries}
    return " ".join(named.pop()[:1]) if len(named) == 1 else ""


def releases_of(option: str, output: str) -> str:
    """``(vLLM has it in 0.6.0 on)``, where the output is of vLLM and some of its releases have the option."""
    from trtllm_check.releases.vllm import in_words, options_of, vllm_facts

    if not OF_VLLM.search(output):
        return ""
    known = options_of("serve").get(option.lstrip("-").replace("_", "-"))
    if known is None or (known.since == 0 and known.until is None):
        return ""
    has = in_words(known)
    is_first = known.until is None and " and " not in has
    advice = f": update to {vllm_facts().name(known.since)} or later" if is_first else ""
    return f"(vLLM has it in {has}{advice})"
