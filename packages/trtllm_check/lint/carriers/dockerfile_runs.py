"""What RUN and COPY of a Dockerfile take for granted: lists of packages, bash, programs, files, an answer.

Source: Docker's best practices on apt-get; POSIX.1-2017, Shell Command Language, 2.9.3, and test.
"""

import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.carriers.dockerfile_faults import DockerStep
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.shell.dash import WITH_DASH, of_bash
from trtllm_check.lint.shell.words import Word

# What fetches the lists, what throws them away, what wants them, and what may do either.
STEP = re.compile(
    r"(?P<update>\bapt(?:-get)?\s+(?:-\S+\s+)*(?:update|upgrade)\b)|(?P<clean>rm\s+-\w+\s+(?:\S+\s+)*?/var/lib/apt)"
    r"|(?P<install>\bapt(?:-get)?\s+(?:-\S+(?:\s+[\w:]+=\S+)?\s+)*install\b(?P<rest>[^&;|\n]*))"
    r"|(?P<unknown>\.sh\b|add-apt-repository|\|\s*(?:sudo\s+)?(?:ba)?sh\b|dpkg -i|cuda-keyring|aptitude|install_)"
)
BASE = re.compile(r"^(?:\S*/)?(?:ubuntu|debian|python|nvidia/cuda)(?::\S*)?$|^\$")
LOCAL = re.compile(r"\s(?:\./|/)\S*(?:\.deb|\$)")
TEST = re.compile(r"(?:^|[\s;&|])(?P<test>\[[ ](?:[^\]\n\[])*?[ ]==[ ][^\]\n]*?[ ]\])(?=[\s;]|$)")
SH = re.compile(r"^(?:\S*/)?(?:ubuntu|debian|python|nvidia/cuda|rocm/\S+|nvcr\.io/\S+)(?::\S*)?$|^\$")
SH_UNKNOWN = re.compile(r"^\$|nvidia/pytorch(?::|$)")  # an image that is not told, and one whose sh takes ==
OWN_SHELL = re.compile(r"tensorrt-llm/|^rocm/")  # whose SHELL is bash, which images made from them take over
PARENT = re.compile(r"(?:^|\s|\")\.\./")
VALUED = re.compile(r"--\w+=\S+\s+")
PIP = re.compile(r"(?:^|[\s;&|])(?:sudo )?pip3? install\b")
BARE = re.compile(r"^(?:\S*/)?(?:ubuntu|nvidia/cuda):\S*$")
BRINGS_PIP = re.compile(
    r"python3?[\d.]*-pip|get-pip|ensurepip|conda|mamba|\buv\b|pyenv|-m venv|virtualenv|\.sh\b|--from=|poetry"
)
PYTHON = re.compile(r"(?:^|[\s;&|])python (?:-\w|\S+\.py)")
BRINGS_PYTHON = re.compile(
    r"python-is-python3|/python\b|update-alternatives|conda|mamba|\buv\b|pyenv|venv|\.sh\b|--from=|alias python|poetry"
)
ON_A_GPU = re.compile(
    r"(?:^|&&|;|\|\|)[\s\\]*(?:CUDA_VISIBLE_DEVICES=\S+ )?"
    r"(?P<program>trtllm-build|trtllm-bench|vllm serve|nvidia-smi)\b"
    r"(?![^&;|\n]*--help)(?![^&;\n]*\|\|)"
)
TILDE = re.compile(r"(?:^|\s|\")(?P<path>~(?:/[^\s\"]*)?)\"?\]?$")
ALONE = re.compile(
    r"(?P<word>cd|source|\.)[ \t]+[^\s&;|]+"
    r"|(?P<export>export)[ \t]+(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|[^\s&;|\"]*)[ \t]*)+"
)
SERVES = re.compile(
    r"(?:^|&&|;)[ \t]*(?P<program>tritonserver|python3? (?:\S*/)?launch_triton_server\.py|trtllm-serve)"
    r"(?=[ \t]+-|[ \t]+\S+/)(?![^&;|\n]*--help)[^&;|]*\Z"
)
UNINSTALL = re.compile(r"(?<!uv )\bpip3? uninstall (?![^&;|\n]*(?<!\S)-(?:y|-yes)\b)[^&;|\n]*")
SIGNS = ("&&", "||", "|", ";", "\\")
WORD = re.compile(r"[A-Za-z][\w.+-]*")
NAMES = frozenset(
    {
        *("FROM", "RUN", "CMD", "LABEL", "MAINTAINER", "EXPOSE", "ENV", "ADD", "COPY", "ENTRYPOINT", "VOLUME", "USER"),
        *("WORKDIR", "ARG", "ONBUILD", "STOPSIGNAL", "HEALTHCHECK", "SHELL"),
    }
)
INSIDE = re.compile(r"(?:&&|;|\|\||then|do)[\s\\]+(?P<name>RUN|COPY|WORKDIR|ENV|ADD)[ \t]+(?=\S)")
OPEN = re.compile(r"(?:&&|\|\|)\s*\Z")


def run_faults(steps: Sequence[DockerStep]) -> Iterator[FormFault]:
    """The faults of the RUN instructions of one Dockerfile."""
    image, has_lists, is_bash = "", True, False
    aliases: set[str] = set()
    for step in steps:
        text = step.argument.text
        if step.name == "FROM":
            image, alias = step.stage()
            has_lists = image in aliases or not BASE.match(image)
            is_bash = is_bash and image in aliases
            aliases |= {alias} - {""}
        elif step.name == "SHELL":
            is_bash = "bash" in text
        elif step.name == "RUN" and step.form is None and "<<" not in text:
            for found in STEP.finditer(text):
                if found["install"] and not has_lists and not LOCAL.search(found["rest"]):
                    place = step.argument.part(found.start("install"), found.end("install") - len(found["rest"]))
                    yield FormFault("image-base", place, "update", (("image", image),))
                has_lists = not found["clean"]
            is_dash = not is_bash and SH.match(image) and not SH_UNKNOWN.search(image)
            if is_dash and (match := TEST.search(text)):
                place = step.argument.part(match.start("test"), match.end("test"))
                yield FormFault("image-base", place, "test", (("image", image),))
            yield from _of_bash(step, image) if not is_bash else ()
            if match := INSIDE.search(text):
                place = step.argument.part(*match.span("name"))
                yield FormFault("image-base", place, "inside", (("name", match["name"]),))
            if match := OPEN.search(text):
                place = step.argument.part(match.start(), match.start() + 2)
                yield FormFault("image-base", place, "open", (("sign", match[0].strip()),))


def _of_bash(step: DockerStep, image: str) -> Iterator[FormFault]:
    """Bash's own syntax in a RUN of an image whose sh is dash."""
    text = step.argument.text
    if (
        WITH_DASH.match(image)
        and not OWN_SHELL.search(image)
        and not (text.lstrip().startswith(("#!", "[")) or ALONE.fullmatch(text.strip()))
    ):
        for one in of_bash(text):
            place = step.argument.part(one.start, one.start + len(one.what))
            known = (("what", one.what), ("says", one.says), ("instead", one.instead), ("image", image))
            form = "RUN" if BASE.match(image) else "RUN, perhaps"
            yield FormFault("syntax-of-another-shell", place, form, known)


def lost_faults(steps: Sequence[DockerStep]) -> Iterator[FormFault]:
    """``RUN cd``, ``RUN export`` and ``RUN source`` alone, whose shell ends with them; a server that never ends."""
    image, is_bash = "", False
    last_run = max((number for number, step in enumerate(steps) if step.name == "RUN"), default=0)
    last_start = max((number for number, step in enumerate(steps) if step.name in ("CMD", "ENTRYPOINT")), default=0)
    for number, step in enumerate(steps):
        text = step.argument.text.strip()
        if step.name == "FROM":
            image, is_bash = step.stage()[0], False
        elif step.name == "SHELL":
            is_bash = "bash" in text
        if step.name in ("WORKDIR", "COPY", "ADD") and (match := TILDE.search(text)):
            yield FormFault("tilde-in-quotes", step.argument, "Dockerfile", (("value", match["path"]),))
        if step.name != "RUN" or step.form is not None:
            continue
        is_followed = number < last_run or (text.startswith("export") and number < last_start)
        if (match := ALONE.fullmatch(text)) is not None and is_followed:
            word = match["word"] or match["export"]
            is_absent = word == "source" and not is_bash and SH.match(image) is not None
            form = "source" if is_absent else "lost"
            right = {"cd": "WORKDIR FOLDER", "export": "ENV NAME=VALUE"}.get(word, "both commands in one RUN with &&")
            yield FormFault("image-base", step.argument, form, (("what", text.split("\n")[0]), ("right", right)))
        elif (started := SERVES.search(text)) is not None and not text.rstrip().endswith("&"):
            place = step.argument.part(*started.span("program"))
            yield FormFault("image-base", place, "server", (("program", started["program"]),))


def _is_from_above(step: DockerStep) -> bool:
    """True for ``COPY ../app /app``."""
    text = step.argument.text
    return step.name in ("COPY", "ADD") and "--from" not in text and PARENT.search(VALUED.sub("", text)) is not None


def program_faults(steps: Sequence[DockerStep]) -> Iterator[FormFault]:
    """Programs that a base has not, files from outside of the context, and an entry point that stays the base's."""
    image, whole = "", " ".join(step.argument.text for step in steps)
    has_stages = sum(step.name == "FROM" for step in steps) > 1
    said: set[str] = set()
    above = [step for step in steps if _is_from_above(step)]
    if above:
        more = f" (and in {len(above) - 1} more of these instructions)" if len(above) > 1 else ""
        yield FormFault("image-base", above[0].argument, "outside", (("more", more),))
    for step in steps:
        text = step.argument.text
        if step.name == "FROM":
            image, _ = step.stage()
        elif step.name == "RUN" and "<<" not in text and (match := UNINSTALL.search(text)) and "yes |" not in text:
            place = step.argument.part(match.start(), match.start() + len("pip uninstall"))
            yield FormFault("image-base", place, "uninstall", (("command", match[0].strip()),))
        if step.name == "RUN" and "<<" not in text and (match := ON_A_GPU.search(text)):
            place = step.argument.part(*match.span("program"))
            yield FormFault("image-base", place, "gpu", (("program", match["program"]),))
        if not BARE.match(image) or has_stages or step.name not in ("RUN", "CMD", "ENTRYPOINT"):
            continue
        words = text if step.form is None else " ".join(word.text for word in step.form)
        for name, wanted, brought in (("pip", PIP, BRINGS_PIP), ("python", PYTHON, BRINGS_PYTHON)):
            if name not in said and wanted.search(words) and not brought.search(whole):
                said.add(name)
                package = "python3-pip" if name == "pip" else "python-is-python3"
                known = (("image", image), ("program", name), ("package", package))
                yield FormFault("image-base", step.argument, "program", known)


def unknown_instruction(line: Word) -> Iterator[FormFault]:
    """A line that begins none: the one above lacks its backslash, or this one its RUN."""
    first = line.text.split()[0] if line.text.split() else ""
    if first in SIGNS or first.startswith("--") or (WORD.fullmatch(first) and first.upper() not in NAMES):
        form = "no run" if WORD.fullmatch(first) else "instruction"
        yield FormFault("image-base", line, form, (("first", first),))
