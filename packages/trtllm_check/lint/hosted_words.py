"""The words that the entry point of vLLM's image gets where no docker runs it: of ``gcloud run deploy`` and
``runpodctl``, which ask a cloud for it with the arguments in one word, and of Apptainer's ``run``.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.shell import Word

# How a command begins, its options for the image and for what goes behind it, and what stands between arguments.
COMMANDS = (
    (("gcloud", "run", "deploy"), "--image", "--args", ","),
    (("gcloud", "beta", "run", "deploy"), "--image", "--args", ","),
    (("runpodctl", "create", "pod"), "--imageName", "--args", " "),
)

APPTAINER = ("apptainer", "singularity")
OPTION = re.compile(r"-|\{\{[ ]*[\"']-")  # itself, or a template that writes one
OF_VLLM = re.compile(r"vllm-openai|(?=.*vllm)(?!.*(?:cpu|dev))", re.IGNORECASE)
# Options of Apptainer's that take a value.
VALUED = frozenset(
    {
        *("-B", "--bind", "--mount", "--env", "--env-file", "-H", "--home", "--pwd", "--cwd", "-W", "--workdir", "-o"),
        *("--overlay", "--scratch", "-S", "--network", "--network-args", "--hostname", "--dns", "--security"),
        *("--apply-cgroups", "--cpus", "--memory", "--app", "--fusemount", "--add-caps", "--drop-caps", "--shm-size"),
    }
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
    return _of_apptainer(words)


def _of_apptainer(words: Sequence[Word]) -> tuple[Word, ...]:
    """``apptainer run --nv vllm-openai.sif --model ...``, and ``apptainer instance run IMAGE NAME ...``."""
    texts = [word.text for word in words]
    is_instance = texts[1:3] == ["instance", "run"]
    at = 3 if is_instance else 2
    if posixpath.basename(texts[0]) not in APPTAINER or not (is_instance or texts[1:2] == ["run"]):
        return ()
    while at < len(texts) and OPTION.match(texts[at]):
        at += 2 if texts[at] in VALUED else 1
    given = tuple(words[at + (2 if is_instance else 1) :])
    is_served = (
        at < len(texts) and bool(given) and OF_VLLM.search(texts[at]) is not None and given[0].text.startswith("-")
    )
    return given if is_served and any(word.text.startswith("--model") for word in given) else ()


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
