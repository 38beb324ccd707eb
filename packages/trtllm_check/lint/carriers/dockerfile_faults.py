"""What docker build refuses of a Dockerfile, and what it builds otherwise than meant.

Source: Docker's Dockerfile reference: COPY, ADD, CMD, ENTRYPOINT, shell and exec form, scope of ARG.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.shell.words import Word

FLAG_APART = re.compile(r"(?P<flag>--(?:from|chown|chmod|exclude))[ \t]+(?P<value>[^\s-]\S*)")
ADDRESS = re.compile(r"(?<![\w=])[\"']?(?P<url>https?://[^\s\"',\]]+)")
SINGLE_QUOTES = re.compile(r"\[\s*'")
USE = re.compile(r"(?<!\\)\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*))")
SET = re.compile(
    r"(?:^|[\s;&|(`\"'])(?:export[ \t]+|local[ \t]+)?(?P<name>[A-Za-z_]\w*)\+?="
    r"|\b(?:for|read(?:[ \t]+-\w+)*)[ \t]+(?P<loop>[A-Za-z_]\w*)"
)
OF_IMAGES = re.compile(r"^(?:CUDA|NV|NCCL|PYTHON|TORCH|PYTORCH|TENSORRT|TRT|JAVA|UBUNTU|HOME$|PATH$|USER$|PWD$)")
ENDS = re.compile(r"(?:&&|\|\||[;|({&]|\)|\}|\b(?:then|do|else|in|if|while|until|fi|done|esac)|!)\s*$")
STARTS = re.compile(
    r"(?:(?:python3?[ ]-m[ ])?(?:pip3?|apt-get|apt|conda|mamba|uv[ ]pip|yum|dnf)[ ](?:install|update|cache|clean|purge"
    r"|upgrade|autoremove|uninstall)\b|rm[ ]-\w*[rf]|mkdir[ ]-p[ ]|cd[ ][/.~$\w-]|git[ ](?:clone|checkout)[ ]"
    r"|curl[ ]-|wget[ ](?:-|http)|python3?[ ]-m[ ]|export[ ]\w+=|ln[ ]-s|cp[ ]-|chmod[ ][+\d]|tar[ ]-)"
)
CARRIES = re.compile(
    r"^(?:(?:\S*/)?(?:conda|mamba|micromamba|uv|poetry|pipenv|pixi)[ ](?:\S+[ ])*?run|gosu|chroot|unshare|ssh|retry"
    r"|\S*timeout|sudo|env|xargs|bash|sh|time|nohup|eval|echo|printf|exec|test|if|while|for|case|find|\w+=\S*|--\S+|RUN|-\S+|\[)\b"
)
REQUIREMENT = re.compile(r"[\"']?[A-Za-z][\w.-]*(?:\[[\w,-]+\])?==\S")
CUDA_IMAGE = re.compile(r"nvidia/cuda:(?P<version>\d+\.\d+)")
CUDA_FOLDER = re.compile(r"/usr/local/cuda-(?P<version>\d+\.\d+)")
BARE = re.compile(r"distroless/(?:static|base|cc)|^scratch$")
FROM_STAGE = re.compile(r"(?:--\w+=\S+\s+)*--from=(?P<stage>[A-Za-z][\w-]*)(?=\s)")
NEAR_STAGE = 0.6
WHOLE_VARIABLE = re.compile(r"(?:--[a-z][\w-]*=)?\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)")
MAY_BE_A_SHELL = re.compile(
    r"(?:ba|da|z|a)?sh|env|tini|dumb-init|s6-.*|su|gosu|eval|.*entry.*|.*start.*|.*run.*|.*\.(?:sh|py)"
)
BLANKS = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w*)[ \t]+=[ \t]*(?P<value>[^\s]*)"
)  # the form NAME VALUE, whose value begins with =
NEAR = 0.4  # of names that begin alike


class DockerStep(NamedTuple):
    """One instruction. ``form``: the words of the exec form, None for the shell's."""

    name: str
    argument: Word
    form: tuple[Word, ...] | None

    def stage(self) -> tuple[str, str]:
        """Of FROM: the base image, and the stage's name; "" where there is none."""
        image, word, name, *_ = [part for part in self.argument.text.split() if not part.startswith("--")] + 3 * [""]
        return image, name if word.lower() == "as" else ""


class _Scope(NamedTuple):
    """Names that a stage has, and its base image."""

    image: str
    names: frozenset[str]


def faults(steps: Sequence[DockerStep], whole: str) -> Iterator[FormFault]:
    """The faults of one Dockerfile."""
    outside: set[str] = set()
    stages: dict[str, _Scope] = {}
    names: set[str] = set()
    everything = {name for step in steps for name in _declared(step)}
    image, alias, entry = "", "", None
    brought: list[str] = []
    for step in steps:
        if step.name == "FROM":
            stages[alias] = _Scope(image, frozenset(names))
            base, name = step.stage()
            parent = stages.get(base) if base else None
            image = parent.image if parent else base
            names, entry = set(parent.names) if parent else set(), None
            brought = []
            alias = name or f"#{len(stages)}"
            continue
        if not stages:
            outside.update(_declared(step))
            continue
        if step.name in ("COPY", "ADD"):
            yield from _copy(step)
            yield from _from_a_stage(step, {*stages, alias})
        if step.name in ("CMD", "ENTRYPOINT"):
            yield from _program(step, entry, image)
            entry = step if step.name == "ENTRYPOINT" else entry
        if step.name == "RUN" and step.form is None and "<<" not in step.argument.text:
            yield from _joined(step.argument)
        if step.name == "ENV" and (match := BLANKS.match(step.argument.text)) is not None:
            known = (("name", match["name"]), ("value", match["value"]))
            yield FormFault("dockerfile-variable", step.argument, "blanks", known)
        if step.name in ("RUN", "COPY", "ADD", "WORKDIR", "ENV"):
            yield from _unset(step, names, outside, everything)
        yield from _cuda(step, image, whole)
        if BARE.search(image):
            brought += _brought(step)
            yield from _absent(step, image, brought)
        names.update(_declared(step))


def _brought(step: DockerStep) -> list[str]:
    """The paths that a COPY or ADD makes."""
    if step.name not in ("COPY", "ADD", "RUN"):
        return []
    if step.name == "RUN":
        return ["*"]
    parts = [part for part in re.sub(r"[\[\]\",]", " ", step.argument.text).split() if not part.startswith("--")]
    if len(parts) < 2 or any("*" in part or "$" in part for part in parts) or not parts[-1].startswith("/"):
        return ["*"]
    folder = parts[-1].rstrip("/")
    return [
        folder or "*" if parts[0].endswith(("/", ".")) else folder,
        *(f"{folder}/{part.rsplit('/', 1)[-1]}" for part in parts[:-1]),
    ]


def _absent(step: DockerStep, image: str, brought: list[str]) -> Iterator[FormFault]:
    """A program that nothing brings into an image that holds none."""
    first = step.form[0] if step.name == "ENTRYPOINT" and step.form else None
    if first is None or not first.text.startswith("/") or not brought or "*" in brought:
        return
    if not any(first.text == path or first.text.startswith(f"{path}/") for path in brought if path):
        shown = ", ".join(path for path in brought if path)
        yield FormFault(
            "dockerfile-refused",
            first,
            "program absent",
            (("program", first.text), ("image", image), ("brought", shown)),
        )


def _declared(step: DockerStep) -> set[str]:
    if step.name not in ("ARG", "ENV"):
        return set()
    text = step.argument.text
    found = {match["name"] for match in re.finditer(r"(?:^|[\s\\])(?P<name>[A-Za-z_]\w*)=", text)}
    if step.name == "ARG" or not found:
        found |= {re.split(r"[\s=]", part, maxsplit=1)[0] for part in text.split()[: None if step.name == "ARG" else 1]}
    return found


def _copy(step: DockerStep) -> Iterator[FormFault]:
    match = FLAG_APART.match(step.argument.text)
    if match:
        known = (("name", step.name), ("flag", match["flag"]), ("value", match["value"]))
        yield FormFault("dockerfile-refused", step.argument.part(match.start(), match.end()), "flag apart", known)
    if step.name == "COPY" and (address := ADDRESS.search(step.argument.text)):
        place = step.argument.part(address.start("url"), address.end("url"))
        yield FormFault("dockerfile-refused", place, "copy of an address", (("url", address["url"]),))


def _kept_as_written(step: DockerStep, entry: DockerStep | None, image: str) -> Iterator[FormFault]:
    """``CMD ["server", "--port", "$PORT"]``: no shell puts the variable in."""
    words = step.form or ()
    behind_entry = step.name == "CMD" and (entry is not None or VLLM_IMAGE.search(image) is not None)
    start = entry.form if behind_entry and entry is not None else words
    if not start or (not behind_entry and words[0].text.startswith("-")):
        return  # behind an entry point that the image brings
    names = [word.text.split(" ")[0].rsplit("/", 1)[-1] for word in start[:3]]
    names = [name for name in names if not name.startswith("vllm.")]  # a module, whose name has entrypoints in it
    if any(MAY_BE_A_SHELL.fullmatch(name) for name in names):
        return
    for word in words:
        if match := WHOLE_VARIABLE.fullmatch(word.text):
            program = [one.text for one in start] if entry is not None else ["vllm", "serve"] if behind_entry else []
            right = " ".join([*program, *(one.text for one in words)])
            name = "ENTRYPOINT" if behind_entry else step.name
            known = (("name", step.name), ("variable", match[0]), ("right", f'{name} ["sh", "-c", "exec {right}"]'))
            yield FormFault("exec-form", word, "variable", known)
            return


def _from_a_stage(step: DockerStep, stages: set[str]) -> Iterator[FormFault]:
    """``COPY --from=builder`` where no stage is called so: Docker looks for an image of the name."""
    match = FROM_STAGE.match(step.argument.text)
    named = {name for name in stages if name and not name.startswith("#")}
    if match is None or not named or match["stage"].lower() in {name.lower() for name in named}:
        return
    close = get_close_matches(match["stage"], named, 1, NEAR_STAGE)
    if close:
        place = step.argument.part(match.start("stage"), match.end("stage"))
        yield FormFault("dockerfile-refused", place, "no stage", (("stage", match["stage"]), ("near", close[0])))


def _program(step: DockerStep, entry: DockerStep | None, image: str) -> Iterator[FormFault]:
    text = step.argument.text.strip()
    if step.form is None:
        if SINGLE_QUOTES.match(text):
            shown = (("name", step.name), ("right", text.split("\n")[0].replace("'", '"')))
            yield FormFault("exec-form", step.argument, "single quotes", shown)
        return
    first = step.form[0] if step.form else None
    yield from _kept_as_written(step, entry, image)
    if entry is not None and step.name == "CMD" and entry.form is None and step.form:
        yield FormFault("exec-form", step.argument, "ignored", (("entry", entry.argument.text.strip()[:60]),))
    if first is None or (step.name == "CMD" and entry is not None) or first.text.startswith("-"):
        return
    parts = first.text.split()
    if len(parts) > 1 and re.fullmatch(r"[\w./-]+", parts[0]):
        right = ", ".join(f'"{part}"' for part in [*parts, *(word.text for word in step.form[1:])])
        known = (("name", step.name), ("program", first.text), ("right", f"[{right}]"))
        yield FormFault("exec-form", first, "", known)


def _joined(argument: Word) -> Iterator[FormFault]:
    """A line that begins a command while the line above has not ended its own."""
    position, command = 0, ""
    for written in argument.text.split("\n"):
        line = written.strip()
        body = line.removesuffix("\\").strip()
        place = argument.part(position + len(written) - len(written.lstrip()), position + len(written))
        position += len(written) + 1
        if not body or body.startswith("#"):
            continue
        first = body.split()[0]
        if command and not ENDS.search(command):
            current = re.split(r"&&|\|\||;|\||\bthen\b|\bdo\b|\belse\b|(?<!\$)[({]", command)[-1].strip()
            if STARTS.match(body) and current and not CARRIES.match(current) and not _is_quoted(command):
                known = (("command", " ".join(current.split())[:60]), ("line", " ".join(body.split())[:60]))
                yield FormFault("run-without-and", place, "", known)
            elif body.rstrip("; &") in ("fi", "done", "esac") and not _is_quoted(command):
                yield FormFault("run-without-and", place, "end", (("word", body.split(";")[0].split()[0]),))
        elif command and command.endswith("&&") and REQUIREMENT.match(first):
            yield FormFault("run-without-and", place, "requirement", (("name", first),))
        command = f"{command} {body}".strip()


def _is_quoted(text: str) -> bool:
    """True where a quotation is open at the end of ``text``."""
    plain = re.sub(r"\\.", "", text)
    without = re.sub(r"'[^']*'", "", plain) if plain.count("'") % 2 == 0 else plain
    return without.count('"') % 2 == 1 or plain.count("'") % 2 == 1


def _unset(step: DockerStep, names: set[str], outside: set[str], everything: set[str]) -> Iterator[FormFault]:
    text = step.argument.text
    own = {match["name"] or match["loop"] for match in SET.finditer(text)}
    said: set[str] = set()
    for match in USE.finditer(text):
        name = match["braced"] or match["plain"]
        if name in names | own | said or OF_IMAGES.match(name):
            continue
        place = step.argument.part(match.start(), match.end())
        if name in outside:
            said.add(name)
            yield FormFault("dockerfile-variable", place, "outside", (("name", name),))
        elif name.islower() and name not in everything:
            alike = [one for one in sorted(names) if one.split("_")[0] == name.split("_")[0]]
            near = get_close_matches(name, alike, 1, NEAR)
            if near:
                said.add(name)
                yield FormFault("dockerfile-variable", place, "", (("name", name), ("near", near[0])))


def _cuda(step: DockerStep, image: str, whole: str) -> Iterator[FormFault]:
    base = CUDA_IMAGE.search(image)
    if base is None or step.name not in ("ENV", "RUN"):
        return
    for match in CUDA_FOLDER.finditer(step.argument.text):
        version = match["version"]
        if version != base["version"] and f"cuda-toolkit-{version.replace('.', '-')}" not in whole:
            known = (("folder", match[0]), ("image", image), ("version", base["version"]))
            yield FormFault("cuda-folder", step.argument.part(match.start(), match.end()), "", known)
            return
