"""vLLM within another program: Dynamo's worker, which hands on all arguments that are not its own, and its benchmarks.

Read are the options of vLLM's engine, and those that nearly are; what else stands there may be the worker's.
Source: ai-dynamo/dynamo components/src/dynamo/vllm/args.py (an argument that neither of the two knows is refused).
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache

from trtllm_check.lint.carriers.script import unknown_arguments
from trtllm_check.lint.shell import ShellCommand, Word
from trtllm_check.releases.vllm import options_of

WORKERS = ("dynamo.vllm",)
NEAR, SHORT = 0.88, 8
OWN = frozenset(
    {
        *("is-prefill-worker", "is-decode-worker", "use-vllm-tokenizer", "sleep-mode-level", "route-to-encoder"),
        *("multimodal-encode-worker", "multimodal-worker", "multimodal-decode-worker", "enable-multimodal"),
        *(
            "mm-prompt-template",
            "frontend-decoding",
            "stage-configs-path",
            "model-express-url",
            "store-kv",
            "connector",
        ),
        *("endpoint", "namespace", "discovery-backend", "request-plane", "event-plane", "custom-jinja-template"),
        *("dyn-tool-call-parser", "dyn-reasoning-parser", "migration-limit", "enable-local-indexer", "dump-config-to"),
        *("disaggregation-mode", "durable-kv-events", "engine-config-json", "benchmark-mode", "embedding-worker"),
    }
)
BENCHES = {
    "benchmark_serving.py": "bench serve",
    "benchmark_throughput.py": "bench throughput",
    "benchmark_latency.py": "bench latency",
}
EARLIER = frozenset({"num-iters", "num-prompt", "request-rates", "batch-size", "num-iters-warmup", "max-num-batched"})
OF_THE_SERVER = frozenset({"port", "host", "model", "api-key", "chat-template"})


def bench_commands(commands: Sequence[ShellCommand]) -> Iterator[ShellCommand]:
    """``vllm bench`` with the misspelt options of a script from before it; others may have come or gone since."""
    for command in commands:
        texts = [word.text.rpartition("/")[2] for word in command.words]
        start = next((number for number, text in enumerate(texts[:4]) if text in BENCHES), -1)
        if start < 0:
            continue
        given = [
            word for word in command.words[start + 1 :] if _is_slip(word.text.partition("=")[0], BENCHES[texts[start]])
        ]
        flags = [word.text.partition("=")[0] for word in command.words[start + 1 :] if word not in given]
        if given and not any(_is_of_its_own(flag, BENCHES[texts[start]]) for flag in flags):
            place = command.words[start]
            words = ("vllm", *BENCHES[texts[start]].split())
            front = [Word(text, place.line, place.column, place.places[:1] * len(text)) for text in words]
            more = unknown_arguments((place.line, place.column))
            yield command._replace(words=(*front, more, *(one for word in given for one in (word, more))))


def _is_slip(flag: str, bench: str) -> bool:
    name = _strange(flag, bench)
    return len(name) >= SHORT and bool(get_close_matches(name, options_of(bench), 1, NEAR))


def _is_of_its_own(flag: str, bench: str) -> bool:
    """True for an option that only somebody's own script of that name has."""
    name = _strange(flag, bench)
    return len(name) >= SHORT and not get_close_matches(name, options_of(bench), 1, NEAR)


def _strange(flag: str, bench: str) -> str:
    """The name of an option that no release has, "" for others."""
    name = flag.removeprefix("--").replace("_", "-")
    known = name in options_of(bench) or name in options_of("serve") or name in EARLIER
    return name if flag.startswith("--") and not known else ""


def engine_commands(commands: Sequence[ShellCommand]) -> Iterator[ShellCommand]:
    """``vllm serve`` with what each worker's command hands on."""
    for command in commands:
        texts = [word.text for word in command.words]
        start = next((number for number, text in enumerate(texts) if text in WORKERS), 0)
        if not start or texts[start - 1] != "-m":
            continue
        words = list(command.words[start + 1 :])
        given, model = _options(words)
        if given:
            place = command.words[start]
            front = [Word(text, place.line, place.column, place.places[:1] * len(text)) for text in ("vllm", "serve")]
            served = model or Word("${MODEL}", place.line, place.column, place.places[:1] * len("${MODEL}"))
            yield command._replace(words=(*front, served, *given))


def _options(words: Sequence[Word]) -> tuple[list[Word], Word | None]:
    """The options that go to vLLM with their values, and the model."""
    given: list[Word] = []
    model: Word | None = None
    position = 0
    while position < len(words):
        first = words[position]
        flag, sign, _ = first.text.partition("=")
        end = position + 1
        while not sign and end < len(words) and not words[end].text.startswith("-"):
            end += 1
        group = [*words[position:end]]
        name = flag.removeprefix("--").replace("_", "-")
        if flag in ("--model", "-m") and (sign or len(group) > 1):
            model = first.part(len(flag) + 1) if sign else group[1]
        elif flag.startswith("--") and name not in OF_THE_SERVER and is_nearly_one(name):
            given += group
        position = max(end, position + 1)
    return given, model


@lru_cache(maxsize=256)
def is_nearly_one(name: str) -> bool:
    """True for an option of vLLM, and for what is one but for a slip."""
    known = options_of("serve")
    if name in known or name.removeprefix("no-") in known:
        return True
    return len(name) >= SHORT and name not in OWN and bool(get_close_matches(name, known, 1, NEAR))
