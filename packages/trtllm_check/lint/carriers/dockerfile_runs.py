"""RUN of a Dockerfile: packages without their lists, bash in sh, a command that ends in the middle.

Source: Docker's best practices on apt-get; POSIX.1-2017, Shell Command Language, 2.9.3, and test.
"""

import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.carriers.dockerfile_faults import DockerStep
from trtllm_check.lint.carriers.faults import FormFault

# What fetches the lists, what throws them away, what wants them, and what may do either.
STEP = re.compile(
    r"(?P<update>\bapt(?:-get)?\s+(?:-\S+\s+)*(?:update|upgrade)\b)|(?P<clean>rm\s+-\w+\s+(?:\S+\s+)*?/var/lib/apt)"
    r"|(?P<install>\bapt(?:-get)?\s+(?:-\S+(?:\s+[\w:]+=\S+)?\s+)*install\b(?P<rest>[^&;|\n]*))"
    r"|(?P<unknown>\.sh\b|add-apt-repository|\|\s*(?:sudo\s+)?(?:ba)?sh\b|dpkg -i|cuda-keyring|aptitude|install_)"
)
BASE = re.compile(r"^(?:\S*/)?(?:ubuntu|debian|python|nvidia/cuda)(?::\S*)?$|^\$")
LOCAL = re.compile(r"\s(?:\./|/)\S+\.deb")
TEST = re.compile(r"(?:^|[\s;&|])(?P<test>\[[ ](?:[^\]\n\[])*?[ ]==[ ][^\]\n]*?[ ]\])(?=[\s;]|$)")
SH = re.compile(r"^(?:\S*/)?(?:ubuntu|debian|python|nvidia/cuda|rocm/\S+|nvcr\.io/\S+)(?::\S*)?$|^\$")
OPEN = re.compile(r"(?:&&|\|\|)\s*\Z")


def run_faults(steps: Sequence[DockerStep]) -> Iterator[FormFault]:
    """The faults of the RUN instructions of one Dockerfile."""
    image, has_lists, is_bash = "", True, False
    aliases: set[str] = set()
    for step in steps:
        text = step.argument.text
        if step.name == "FROM":
            parts = [part for part in text.split() if not part.startswith("--")]
            image = parts[0] if parts else ""
            has_lists = image in aliases or not BASE.match(image)
            is_bash = is_bash and image in aliases
            aliases |= {parts[2]} if len(parts) > 2 else set()
        elif step.name == "SHELL":
            is_bash = "bash" in text
        elif step.name == "RUN" and step.form is None and "<<" not in text:
            for match in STEP.finditer(text):
                if match["install"] and not has_lists and not LOCAL.search(match["rest"]):
                    place = step.argument.part(match.start("install"), match.end("install") - len(match["rest"]))
                    yield FormFault("image-base", place, "update", (("image", image),))
                has_lists = not match["clean"]
            if not is_bash and SH.match(image) and (match := TEST.search(text)):
                place = step.argument.part(match.start("test"), match.end("test"))
                yield FormFault("image-base", place, "test", (("image", image),))
            if match := OPEN.search(text):
                place = step.argument.part(match.start(), match.start() + 2)
                yield FormFault("image-base", place, "open", (("sign", match[0].strip()),))
