"""What the shell, cp and cd do with a line before any tool of TensorRT-LLM sees it."""

import posixpath
import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise

from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import OUTPUT, written_folder
from trtllm_check.lint.finding import Draft, Edit, Insert, Platform, Swap, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import EXISTING, OWN, SERVER_IMAGE, SHELLS, VLLM_IMAGE
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name

RECURSIVE = re.compile(r"-[a-zA-Z]*[rRa][a-zA-Z]*|--recursive|--archive")
GLUED_CD = re.compile(r"cd(?P<folder>\.\.[\w./-]*|/[\w./-]*)")
NEAR = 0.8
OF_A_TEMPLATE = re.compile(  # as the reader writes {{ .Values.name }} and {{ if .Values.name }}
    r"(?:\w+_)?(?:Values|Release|Chart)_|(?:if|with|range|include|secrets|vars|inputs|matrix|steps)_"
)
ARRAY = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)\+?=\(")
OF_JQ = ("--arg", "--argjson", "--slurpfile", "--rawfile")  # name a variable of its own
VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}?")
BEFORE_IMAGE = (
    "--gpus",
    "--shm-size",
    "--runtime",
    "--ipc",
    "--ulimit",
    "--network",
    "--net",
    "-v",
    "--volume",
    "--rm",
    "-it",
)
PORTS = re.compile(r"(?:[\d.]+:)?\d+:\d+")
COMMON_PARTS = 2  # hf_model_dif, hf_model_path
INSTEAD = {
    "trtllm-run": "trtllm-serve, trtllm-bench to measure, or examples/run.py of the release with an engine",
    "trtllm-server": "trtllm-serve",
    "trtllm-benchmark": "trtllm-bench",
    "trtllm-convert": "convert_checkpoint.py of the model's folder of examples",
    "trtllm-quantize": "examples/quantization/quantize.py",
}
STARTERS = ("docker", "podman", "nerdctl")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    folders = _output_folders(document)
    for cp in document.of("cp"):
        yield from _copied_folder(cp, folders, release)
    for command in document.commands:
        match = GLUED_CD.fullmatch(command.words[0].text) if command.words else None
        if match:
            word, folder = command.words[0], match["folder"]
            yield from drafts(release, "no-such-command", word, file=command.file, name=match[0], folder=folder)
        yield from _one_word(command, release)
    for docker in document.of("docker"):
        yield from _behind_image(docker, release)
    for one in document.invocations:
        if OWN.fullmatch(one.tool) and one.tool not in EXISTING and _is_started(one):
            yield from _of_tensorrt_llm(one, release)
    yield from _two_names(document, release)


def _one_word(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``bash -c python3 server.py``: the shell's command is one word."""
    if command.words and command.words[0].text.isdecimal():
        return  # a list of processes, where no quotes are shown
    for shell, flag, first, *rest in zip(*(command.words[start:] for start in range(4)), strict=False):
        if not flag.text.endswith("c") or not re.fullmatch(r"-\w*c", flag.text):
            continue
        name = posixpath.basename(shell.text)
        if name not in SHELLS or is_open(first.text) or not rest:
            continue
        if " " in first.text.strip() or first.text.startswith("-") or not re.fullmatch(r"[\w./-]+", first.text):
            continue
        behind = command.words[command.words.index(first) :]
        if rest[0].text.startswith("-") or "/" in rest[0].text or "." in rest[0].text:
            known = {"shell": name, "first": first.text, "whole": " ".join(word.text for word in behind)}
            yield from drafts(release, "only-one-word", first, file=command.file, **known)


def _behind_image(docker: Invocation, release: str) -> Iterator[Draft]:
    """``docker run IMAGE --gpus all``, of an image that has no server as its entry point."""
    operands = docker.positional
    if len(operands) < 3 or operands[0].text != "run" or docker.has("--entrypoint"):
        return
    image, first = operands[1].text, operands[2]
    flag = first.text.partition("=")[0]
    if VLLM_IMAGE.search(image):
        yield from _before_vllm(docker, operands, image, release)
    elif flag in BEFORE_IMAGE and SERVER_IMAGE.search(image):
        yield from drafts(release, "docker-options-behind-image", first, invocation=docker, flag=flag, image=image)


def _before_vllm(docker: Invocation, operands: tuple[Word, ...], image: str, release: str) -> Iterator[Draft]:
    """``docker run vllm/vllm-openai -p 8000:8000``, which vLLM reads as -pp."""
    for word, value in pairwise(operands[2:]):
        if word.text == "-p" and PORTS.fullmatch(value.text):
            yield from drafts(
                release, "docker-options-behind-image", word, form="of vLLM", invocation=docker, flag="-p", image=image
            )


def _is_started(one: Invocation) -> bool:
    """True for a name with options, or with a path and nothing else: what a sentence does not say."""
    paths = [word.text for word in one.positional]
    return any(given.flag for given in one.given) or (len(paths) == 1 and "/" in paths[0])


def _of_tensorrt_llm(invocation: Invocation, release: str) -> Iterator[Draft]:
    close = get_close_matches(invocation.tool, sorted(EXISTING), 1, NEAR)
    instead = INSTEAD.get(invocation.tool) or (f"write {close[0]}" if close else "use one of these")
    form, path = "of TensorRT-LLM", invocation.path
    yield from drafts(
        release, "no-such-command", path, form=form, invocation=invocation, name=invocation.tool, instead=instead
    )


def _output_folders(document: Document) -> set[str]:
    """What the commands of the text write checkpoints and engines into."""
    written = map(written_folder, document.of(*OUTPUT))
    return {posixpath.normpath(folder) for folder in written if folder}


def _copied_folder(cp: Invocation, folders: set[str], release: str) -> Iterator[Draft]:
    """``cp folder/ elsewhere``: a name that ends with a slash, or one that a tool writes a folder to."""
    outer = file_name(cp.command.words[0].text)
    if any(RECURSIVE.fullmatch(given.flag) for given in cp.given) or (outer in STARTERS and cp.image):
        return  # an image may start with a program whose cp is another
    for word in cp.positional[:-1]:
        if word.text.endswith(("/", "/.")) or posixpath.normpath(word.text) in folders:
            edits: tuple[Edit, ...] = (Insert(cp.arguments[0], ("-r",)),)
            if cp.positional[-1].text.endswith("/"):  # what is in the folder, not the folder itself
                edits = (*edits, Swap(word, f"{word.text.rstrip('/')}/."))
            name = _written(word.text)
            yield from drafts(release, "cp-without-r", word, edits=edits, invocation=cp, source_name=name)


def _two_names(document: Document, release: str) -> Iterator[Draft]:
    """Variables that nothing sets, each used once, beside one that begins alike."""
    uses: dict[str, list[tuple[Word, str]]] = {}
    set_ = {
        word.text.partition("=")[0]
        for command in document.commands
        for word in (*command.assignments, *command.words[1:])
        if "=" in word.text
    }
    for command in document.commands:
        for before, word in pairwise(command.words):
            if before.text in OF_JQ:
                set_.add(word.text)
    for place, file in _texts(document):
        for match in VARIABLE.finditer(place.text):
            if match["name"] in set_ or OF_A_TEMPLATE.match(match["name"]):
                continue
            uses.setdefault(match["name"], []).append((place.part(match.start(), match.end()), file))
    arrays = {name for _, text in document.texts for name in ARRAY.findall(text)} if len(uses) > 1 else set()
    uses = {name: places for name, places in uses.items() if name not in arrays}
    for name, places in uses.items():
        others = [other for other in uses if other != name and _is_like(name, other) and len(uses[other]) == 1]
        earlier = [other for other in others if _place(uses[other]) < _place(places)]
        if len(places) == 1 and earlier:
            word, file = places[0]
            other = f"${earlier[0]}"
            yield from drafts(release, "two-names-for-a-variable", word, file=file, name=f"${name}", other=other)


def _texts(document: Document) -> Iterator[tuple[Word, str]]:
    """Words with variables that the text does not set, and the lists of template variables."""
    lists = document.variable_lists
    taken = {(one.file, one.first + number) for one in lists for number in range(len(one.lines))}
    for command in document.commands:
        for word in command.words:
            if "$" in word.text and len(word.places) == len(word.text) and (command.file, word.line) not in taken:
                yield word, command.file
    for listed in lists:
        for number, line in enumerate(listed.lines, listed.first):
            places = tuple((number, column) for column in range(1, len(line) + 1))
            yield Word(line, number, 1, places), listed.file


def _is_like(one: str, other: str) -> bool:
    """True for ``HF_model_dif`` and ``hf_model_path``: other capitals, and no more than the last part differs."""
    first, second = one.lower().split("_"), other.lower().split("_")
    mixed = one not in (one.lower(), one.upper())
    return first == second or (mixed and len(first) == len(second) > COMMON_PARTS and first[:-1] == second[:-1])


def _place(uses: list[tuple[Word, str]]) -> tuple[int, int]:
    return uses[0][0].line, uses[0][0].column


def _written(text: str) -> str:
    return text.replace("${", "$").replace("}", "")
