"""Pieces of Python on one page: what one of them imports, the later ones use without saying so."""

import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.shell.words import Word

IMPORT = re.compile(
    r"^[ \t]*from (?P<module>(?:tensorrt_llm|vllm)[\w.]*) import (?P<names>\([^()]*\)|[^\n(#]+)", re.MULTILINE
)
NAME = re.compile(r"[A-Za-z_]\w*")
MARGIN = re.compile(r"(?:[ \t]*(?:#.*)?\n)*([ \t]+)[^\s#]")
RENAMED = re.compile(r"\bas\b|\*")
OF_CLASSES = re.compile(r"[A-Z]\w*")
IMPORTS = re.compile(r"^[ \t]*(?:from[ ]+\S+[ ]+)?import[ ]+(?:\([^()]*\)|[^\n]+)", re.MULTILINE)
OURS, OTHERS = re.compile(r"tensorrt[-_]?llm|trtllm-\w", re.IGNORECASE), re.compile(r"vllm|sglang", re.IGNORECASE)
STARRED, MADE = re.compile(r"\bimport[ ]+\*"), re.compile(r"^[ \t]*(?:class|def)[ ]+(\w+)", re.MULTILINE)
PACKAGE = "tensorrt_llm"
STRANGE = re.compile(r"^[ \t]*(?:from (?!tensorrt_llm|vllm)\S+ import [^\n]*\bLLM\b|class LLM\b)", re.MULTILINE)
SUPPOSED = ("LLM", "SamplingParams")  # of a page that leaves out all imports and speaks of one engine only
ENGINES = re.compile(r"sglang|lmdeploy|text-generation-inference|exllama|llama[._-]?cpp|mlx", re.IGNORECASE)
NAMES_VLLM = re.compile(r"(?<![a-z])vllm(?![a-z])", re.IGNORECASE)
# Arguments that tell whose class is called, where nothing imports it.
OF_BUILDS = r"max_(?:batch_size|seq_len|input_len|num_tokens|beam_width)|opt_batch_size|plugin_config|strongly_typed"
OURS_ALONE = (
    r"build_config|kv_cache_config|max_batch_size|max_beam_width|gemm_plugin|gpt_attention_plugin|quant_config|fast_build"
    r"|cuda_graph_config|moe_expert_parallel_size|enable_build_cache|attn_backend|max_input_len|use_cuda_graph"
)
VLLM_ALONE = (
    r"gpu_memory_utilization|max_model_len|max_num_seqs|max_num_batched_tokens|enforce_eager|swap_space|quantization"
    r"|enable_prefix_caching|limit_mm_per_prompt|kv_cache_dtype|cpu_offload_gb|distributed_executor_backend|hf_overrides"
)
TOLD_BY: dict[str, tuple[tuple[str, str], ...]] = {
    "LLM": ((PACKAGE, OURS_ALONE), ("vllm", VLLM_ALONE)),
    "BuildConfig": (("tensorrt_llm", OF_BUILDS),),
    "QuantConfig": (("tensorrt_llm.llmapi", r"quant_algo|kv_cache_quant_algo"),),
    "CalibConfig": (("tensorrt_llm.llmapi", r"calib_\w+"),),
    "KvCacheConfig": (
        ("tensorrt_llm.llmapi", r"free_gpu_memory_fraction|enable_block_reuse|max_tokens|host_cache_size"),
    ),
    "AsyncEngineArgs": (("vllm", r"model|gpu_memory_utilization"),),
    "EngineArgs": (("vllm", VLLM_ALONE),),
}
OF_BUILDERS = "BuildConfig"
LONGEST_CALL = 3000
# Name -> what is asked of it, and the import that makes it.
IMPLIED = {
    "sagemaker": (
        r"\.(?:image_uris|get_execution_role|Session|session|huggingface|djl_inference)\b",
        "import sagemaker",
    ),
    "image_uris": (r"\.retrieve\(", "from sagemaker import image_uris"),
    "HuggingFaceModel": (r"\([^()]*\b(?:role|image_uri|env)\b", "from sagemaker.huggingface import HuggingFaceModel"),
    "DJLModel": (r"\(", "from sagemaker.djl_inference import DJLModel"),
    "get_huggingface_llm_image_uri": (r"\(", "from sagemaker.huggingface import get_huggingface_llm_image_uri"),
    "vllm": (r"\.(?:LLM|SamplingParams|AsyncEngineArgs|EngineArgs|AsyncLLMEngine)\b", "import vllm"),
    "tensorrt_llm": (r"\.(?:LLM|SamplingParams|BuildConfig)\b", "import tensorrt_llm"),
    "pb_utils": (r"\.\w", "import triton_python_backend_utils as pb_utils"),
    "grpcclient": (r"\.Infer\w", "import tritonclient.grpc as grpcclient"),
    "httpclient": (r"\.Infer\w", "import tritonclient.http as httpclient"),
    "mtq": (r"\.(?:quantize|\w+_CFG)\b", "import modelopt.torch.quantization as mtq"),
}
MADE_HERE = (
    r"\b(?:as|for|def|class|global)[ ]+{name}\b|(?<![\w.]){name}[ \t]*(?::[^\n=]*)?=(?!=)"
    r"|[(,][ \t]*{name}[ \t]*[,):=]"
)


def imported(page: str) -> dict[str, str]:
    """Class -> the module that the page imports it from; none under another name, and none on a page of two engines."""
    found: dict[str, set[str]] = {}
    matches = list(IMPORT.finditer(page)) if "import" in page else []
    if len({match["module"].partition(".")[0] for match in matches}) > 1:
        return {}
    for match in matches:
        if RENAMED.search(match["names"]):
            continue
        for name in NAME.findall(match["names"]):
            if OF_CLASSES.fullmatch(name):
                found.setdefault(name, set()).add(match["module"])
    is_ours = bool(matches) and matches[0]["module"].startswith(PACKAGE)
    is_alone = is_ours or (not matches and OURS.search(page) is not None and OTHERS.search(page) is None)
    if is_alone and STRANGE.search(page) is None:
        for name in SUPPOSED:
            found.setdefault(name, {PACKAGE})
    elif not matches and STRANGE.search(page) is None:
        is_vllm = NAMES_VLLM.search(page) is not None and not (OURS.search(page) or ENGINES.search(page))
        for name in SUPPOSED if is_vllm else ():
            found.setdefault(name, {"vllm"})
    for name, module in _told(page) if not matches else ():
        found.setdefault(name, {module})
        if name == OF_BUILDERS:
            found.setdefault("Builder", {module})
    return {name: min(modules) for name, modules in found.items() if len(modules) == 1}


def _told(page: str) -> Iterator[tuple[str, str]]:
    """Classes that nothing imports or makes, and whose arguments are those of one engine alone."""
    if STARRED.search(page):
        return
    given = {name for match in IMPORTS.finditer(page) for name in NAME.findall(match[0])} | set(MADE.findall(page))
    for name, owners in TOLD_BY.items():
        if name in given or f"{name}(" not in page:
            continue
        calls = [_inside(page, match.end()) for match in re.finditer(rf"(?<![\w.]){name}\(", page)]
        modules = {
            module for module, words in owners for one in calls if re.search(rf"(?<![\w.])(?:{words})[ \t]*=(?!=)", one)
        }
        if len(modules) == 1:
            yield name, modules.pop()


def _inside(text: str, start: int) -> str:
    """What stands between the bracket before ``start`` and the one that closes it."""
    depth = 1
    for match in re.compile(r"[()]").finditer(text, start, start + LONGEST_CALL):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return text[start : match.start()]
    return text[start : start + LONGEST_CALL]


def with_imports(piece: Word, known: dict[str, str]) -> Word:
    """``piece`` behind the imports that it leaves to an earlier one; they stand at its first place."""
    implied = list(_implied(piece.text))
    if (not known and not implied) or STARRED.search(piece.text):
        return piece
    given = {name for match in IMPORTS.finditer(piece.text) for name in NAME.findall(match[0])}
    given |= set(MADE.findall(piece.text))
    used = [name for name in known if name not in given and re.search(rf"(?<![\w.]){name}\(", piece.text)]
    if not used and not implied:
        return piece
    margin = first[1] if (first := MARGIN.match(piece.text)) else ""  # of a piece of a function
    named = [f"from {known[name]} import {name}" for name in used]
    lines = "".join(f"{margin}{line}\n" for line in (*named, *implied))
    place = piece.places[0] if piece.places else (piece.line, piece.column)
    return joined([Word(lines, *place, (place,) * len(lines)), piece])


def _implied(piece: str) -> Iterator[str]:
    """The imports of a piece that has none, of modules and classes whose names are beyond doubt."""
    if IMPORTS.search(piece):
        return
    for name, (behind, line) in IMPLIED.items():
        used = name in piece and re.search(rf"(?<![\w.]){name}{behind}", piece) is not None
        if used and not re.search(MADE_HERE.format(name=name), piece):
            yield line
