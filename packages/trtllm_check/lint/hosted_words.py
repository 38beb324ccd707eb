"""vLLM that a command asks a cloud for, with the arguments in one word: ``gcloud run deploy``, ``runpodctl``."""

from collections.abc import Iterator, Sequence

from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.shell import Word

# How a command begins, its options for the image and for what goes behind it, and what stands between arguments.
COMMANDS = (
    (("gcloud", "run", "deploy"), "--image", "--args", ","),
    (("gcloud", "beta", "run", "deploy"), "--image", "--args", ","),
    (("runpodctl", "create", "pod"), "--imageName", "--args", " "),
)


def hosted_words(words: Sequence[Word]) -> tuple[Word, ...]:
    """The arguments that the entry point of vLLM's image gets; none of any other command."""
    texts = [word.text for word in words]
    for start, image, arguments, between in COMMANDS:
        if tuple(texts[: len(start)]) != start or "--command" in texts:
            continue
        given = list(_values(words, arguments))
        if given and any(VLLM_IMAGE.search(one.text) for one in _values(words, image)) and "^" not in given[0].text[:1]:
            return tuple(part for one in given for part in _split(one, between))
    return ()


def _values(words: Sequence[Word], name: str) -> Iterator[Word]:
    for number, word in enumerate(words):
        if word.text.startswith(f"{name}="):
            yield word.part(len(name) + 1)
        elif word.text == name and number + 1 < len(words):
            yield words[number + 1]


def _split(word: Word, between: str) -> Iterator[Word]:
    position = 0
    for part in word.text.split(between):
        if part.strip():
            yield word.part(position, position + len(part))
        position += len(part) + 1
