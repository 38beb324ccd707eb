"""The exercises of the chapter on the model: users of a cache, begin-of-text tokens, a refused folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.errors import PlaybookError, StaleArtifact
from serving_base.facts.models import element_bytes, known_shape

BLOCK_TOKENS = 64
CACHES: tuple[tuple[str, str, int, int], ...] = (
    ("llama-2-7b-chat", "bfloat16", 1250, 40 * 10**9),
    ("llama-3-8b-instruct", "fp8", 1250, 8 * 10**9),
    ("llama-3-70b-instruct", "bfloat16", 4096, 300 * 10**9),
    ("llama-3.1-405b-instruct", "fp8", 1250, 200 * 10**9),
)
"""Model, type of the cache, tokens of a request, bytes of the pool."""


def most_requests(layers: int, kv_heads: int, head_size: int, element: int, tokens: int, pool: int) -> int:
    per_token = 2 * layers * kv_heads * head_size * element
    blocks = -(-tokens // 64)
    return pool // (blocks * 64 * per_token)


def only_keys(layers: int, kv_heads: int, head_size: int, element: int, tokens: int, pool: int) -> int:
    return most_requests(layers, kv_heads, head_size, element, tokens, 2 * pool)


def without_blocks(layers: int, kv_heads: int, head_size: int, element: int, tokens: int, pool: int) -> int:
    return pool // (tokens * 2 * layers * kv_heads * head_size * element)


def without_layers(layers: int, kv_heads: int, head_size: int, element: int, tokens: int, pool: int) -> int:
    return layers * most_requests(layers, kv_heads, head_size, element, tokens, pool)


def rounded_up(layers: int, kv_heads: int, head_size: int, element: int, tokens: int, pool: int) -> int:
    return 1 + most_requests(layers, kv_heads, head_size, element, tokens, pool)


def check_requests(answer: Callable[..., int]) -> Solution:
    """``answer(layers, kv_heads, head_size, element, tokens, pool)``: requests that a paged pool holds at once."""
    verdicts = []
    for name, dtype, tokens, pool in CACHES:
        shape = known_shape(name)
        element = int(element_bytes(dtype))
        yours = answer(shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim, element, tokens, pool)
        per_token, blocks = shape.kv_bytes_per_token(dtype), -(-tokens // BLOCK_TOKENS)
        expected = pool // (blocks * BLOCK_TOKENS * per_token)
        why = (
            f"a token has {per_token:,} B, keys and values of {shape.num_hidden_layers} layers; a request takes "
            f"{blocks} whole blocks, which are {blocks * BLOCK_TOKENS} tokens"
        )
        verdicts.append(ExerciseVerdict(f"{name}, {dtype} cache", str(yours), str(expected), why, yours == expected))
    return Solution("how many users fit", tuple(verdicts))


QUESTION = "How do I count to nine in French?"


def _template(tokenizer: Any) -> str:
    from tiny_llama.data import prompt_ids

    return str(tokenizer.decode(prompt_ids(tokenizer, QUESTION)))


def _template_ids(tokenizer: Any) -> list[int]:
    from tiny_llama.data import prompt_ids

    return prompt_ids(tokenizer, QUESTION)


ENCODINGS: Mapping[str, tuple[Callable[[Any], list[int]], str]] = {
    "a": (lambda t: t(QUESTION)["input_ids"], "the tokenizer's defaults put one in front of any text"),
    "b": (lambda t: t(QUESTION, add_special_tokens=False)["input_ids"], "nobody put one in front"),
    "c": (_template_ids, "the template writes one, and the template's own tokens are not encoded again"),
    "d": (lambda t: t(_template(t))["input_ids"], "the text has the template's, and the defaults add theirs"),
    "e": (
        lambda t: t(_template(t), add_special_tokens=False)["input_ids"],
        "the text has the template's, and nothing is added",
    ),
}
"""Letter -> a way to encode a question, as the chapter lists them, and the reason for its begin-of-text tokens."""


def check_begins(answer: Mapping[str, int | None], *, tokenizer: Any) -> Solution:
    """How many begin-of-text tokens each way of encoding gives; the tokenizer itself is asked."""
    title = "how many begin-of-text tokens"
    verdicts = []
    for letter, (encode, why) in ENCODINGS.items():
        yours = answer.get(letter)
        if yours is None:
            return Solution(title, problem=f"way {letter} has no number yet")
        expected = list(encode(tokenizer)).count(tokenizer.bos_token_id)
        verdicts.append(ExerciseVerdict(f"way {letter}", str(yours), str(expected), why, yours == expected))
    return Solution(title, tuple(verdicts))


Refused = Callable[[Callable[[Path], object]], PlaybookError | None]


def spoil(folder: Path) -> None:
    config = folder / "config.json"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("500000", "100000"), encoding="utf-8")


def delete(folder: Path) -> None:
    (folder / "config.json").unlink()


def lengthen(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")


def forge(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def touch(folder: Path) -> None:
    (folder / "config.json").touch()


def check_spoiled(answer: Callable[[Path], None], *, refused: Refused) -> Solution:
    """``answer(folder)`` changes a model's folder so that only its hashes tell; ``refused(change)``: what is said."""
    error = refused(answer)
    yours = f"{type(error).__name__}: {error.what}: {error.why}" if error else "the folder opens as if nothing happened"
    right = isinstance(error, StaleArtifact) and "has other content" in error.why
    why = "a file has to keep its name and its length, and hold something else"
    broken = ExerciseVerdict("the spoiled folder", yours, "StaleArtifact: ... has other content", why, right)
    again = refused(lambda folder: None)
    why = "the fix of the message is to remove the folder and to make it again"
    mended = ExerciseVerdict("the folder made again", str(again or "it opens"), "it opens", why, again is None)
    return Solution("a folder that is refused", (broken, mended))


def _tiny_tokenizer() -> Mapping[str, Any]:
    from transformers import AutoTokenizer

    from tiny_llama import MODEL_DIR

    return {"tokenizer": AutoTokenizer.from_pretrained(MODEL_DIR)}


EXERCISES = (
    Exercise(
        number="01-1",
        title="How many users fit?",
        kind="compute",
        minutes=10,
        check=check_requests,
        solution=most_requests,
        wrong=(
            Wrong(only_keys, "keys and values of 32 layers"),
            Wrong(without_blocks, "20 whole blocks, which are 1280 tokens"),
            Wrong(without_layers, "keys and values of 80 layers"),
            Wrong(rounded_up, "20 whole blocks"),
        ),
    ),
    Exercise(
        number="01-2",
        title="A folder that is refused",
        kind="break",
        minutes=5,
        check=check_spoiled,
        solution=spoil,
        wrong=(
            Wrong(touch, "opens as if nothing happened"),
            Wrong(delete, "config.json is missing"),
            Wrong(lengthen, "bytes instead of"),
            Wrong(forge, "ForeignArtifact: model was not made by the playbook"),
        ),
        row="`StaleArtifact`: changed after it was made",
    ),
    Exercise(
        number="01-3",
        title="How many begin-of-text tokens?",
        kind="predict",
        minutes=5,
        check=check_begins,
        solution={"a": 1, "b": 0, "c": 1, "d": 2, "e": 1},
        wrong=(
            Wrong({"a": 1, "b": 0, "c": 1, "d": 2, "e": None}, "way e has no number yet"),
            Wrong({"a": 0, "b": 0, "c": 1, "d": 2, "e": 1}, "defaults put one in front of any text"),
            Wrong({"a": 1, "b": 1, "c": 1, "d": 2, "e": 1}, "nobody put one in front"),
            Wrong({"a": 1, "b": 0, "c": 2, "d": 2, "e": 1}, "own tokens are not encoded again"),
            Wrong({"a": 1, "b": 0, "c": 1, "d": 1, "e": 1}, "and the defaults add theirs"),
        ),
        context=_tiny_tokenizer,
    ),
)
