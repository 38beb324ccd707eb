"""Names that one release of vLLM knows beside its options: variables, fields of requests and of objects, parsers."""

import ast
import re

from benchmarks.checker.vllm_options import ENGINE, kind_of, values_of
from benchmarks.checker.vllm_sources import Source

VARIABLE = re.compile(
    r"(?:environ(?:\.get|\.setdefault|\.pop)?|getenv|is_set|env_\w+|get_env\w*)[\[(]\s*[\"'](VLLM_\w+)[\"']"
)
REQUESTS = {  # path of the server -> the classes that read its body
    "chat/completions": ("ChatCompletionRequest",),
    "completions": ("CompletionRequest",),
    "embeddings": (
        *("EmbeddingRequest", "EmbeddingCompletionRequest", "EmbeddingChatRequest", "EmbeddingBatchChatRequest"),
        *("EmbeddingChatInputRequest", "EmbeddingBatchChatInputRequest"),
    ),
    "responses": ("ResponsesRequest",),
    "score": (
        "ScoreRequest",
        "ScoreDataRequest",
        "ScoreQueriesDocumentsRequest",
        "ScoreQueriesItemsRequest",
        "ScoreTextRequest",
    ),
    "rerank": ("RerankRequest",),
    "pooling": ("PoolingCompletionRequest", "PoolingChatRequest", "IOProcessorRequest"),
    "classify": ("ClassificationRequest", "ClassificationCompletionRequest", "ClassificationChatRequest"),
    "tokenize": ("TokenizeCompletionRequest", "TokenizeChatRequest"),
    "audio/transcriptions": ("TranscriptionRequest",),
}
BASE = "OpenAIBaseModel"
OBJECTS = {  # option whose value is an object -> its class
    "compilation_config": "CompilationConfig",
    "pass_config": "PassConfig",
    "speculative_config": "SpeculativeConfig",
    "kv_transfer_config": "KVTransferConfig",
    "kv_events_config": "KVEventsConfig",
    "structured_outputs_config": "StructuredOutputsConfig",
    "eplb_config": "EPLBConfig",
    "attention_config": "AttentionConfig",
    "pooler_config": "PoolerConfig",
    "profiler_config": "ProfilerConfig",
    "reasoning_config": "ReasoningConfig",
}
PARSERS = {
    "tool_call_parser": (
        r"vllm/(?:entrypoints/openai/)?tool_parsers/",
        "ToolParserManager",
        "_TOOL_PARSERS_TO_REGISTER",
    ),
    "reasoning_parser": (
        r"vllm/(?:entrypoints/openai/)?reasoning(?:_parsers)?/",
        "ReasoningParserManager",
        "_REASONING_PARSERS_TO_REGISTER",
    ),
}
ENVS = "vllm/envs.py"
SAMPLING = "vllm/sampling_params.py"
OFFLINE = ("vllm/entrypoints/llm.py", "vllm/entrypoints/offline/llm.py")


def variables(source: Source) -> set[str]:
    """Those that the source reads from the environment."""
    found = {name for text in source.all for name in VARIABLE.findall(text)}
    table = source.value_of("environment_variables", ENVS)
    if isinstance(table, ast.Dict):
        keys = [one.value for one in table.keys if isinstance(one, ast.Constant)]
        found |= {str(key) for key in keys if str(key).startswith("VLLM_")}
    return found


def request_fields(source: Source) -> dict[str, dict[str, str]]:
    """Path -> the fields of its body, each with its kind; empty where the server has no such path."""
    found: dict[str, dict[str, str]] = {}
    for path, classes in REQUESTS.items():
        fields = {name: "has" for one in classes for name in source.fields_of(one) if name != "field_names"}
        if fields:
            found[path] = fields
    return found


def refuses_unknown(source: Source) -> str:
    """What the server does with a field that it does not know: ``refused`` or ``ignored``."""
    node = source.class_of(BASE)
    if node is None:
        return "ignored"
    return "refused" if 'extra="forbid"' in ast.unparse(node[0]).replace("'", '"') else "ignored"


def object_fields(source: Source) -> dict[str, set[str]]:
    """Option -> the settings of its object."""
    found = {option: set(source.fields_of(name)) for option, name in OBJECTS.items()}
    return {option: names for option, names in found.items() if names}


def parsers(source: Source) -> dict[str, set[str]]:
    """Option -> the names of the parsers that are registered."""
    found: dict[str, set[str]] = {}
    for option, (folder, manager, table) in PARSERS.items():
        names: set[str] = set()
        for file, text in source.texts.items():
            if not re.match(folder, file):
                continue
            for listed in re.findall(
                rf"{manager}\.register_module\(\s*(?:name=)?(\[[^\]]*\]|\"[^\"]+\"|'[^']+')", text
            ):
                names |= set(re.findall(r"[\"']([^\"']+)[\"']", listed))
        value = source.value_of(table)
        names |= set(values_of(source, value, "")) if value is not None else set()
        if names:
            found[option] = names
    return found


def sampling_fields(source: Source) -> set[str]:
    """The arguments of SamplingParams."""
    fields = set(source.fields_of("SamplingParams", SAMPLING))
    for owner, function in source.functions(SAMPLING):
        if owner == "SamplingParams" and function.name == "__init__":
            fields |= {one.arg for one in (*function.args.args, *function.args.kwonlyargs)} - {"self"}
    return {name for name in fields if not name.startswith("_")}


def llm_arguments(source: Source) -> set[str]:
    """The arguments of ``LLM(...)`` itself; the others go to EngineArgs."""
    for file in OFFLINE:
        for owner, function in source.functions(file):
            if owner == "LLM" and function.name == "__init__":
                return {one.arg for one in (*function.args.args, *function.args.kwonlyargs)} - {"self"}
    return set()


def engine_kinds(source: Source) -> dict[str, str]:
    """Fields of EngineArgs that no option sets, with their kinds."""
    return {name: kind_of(source, note, name, ENGINE) for name, note in source.fields_of("EngineArgs", ENGINE).items()}
