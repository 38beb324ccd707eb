"""YAML that starts containers or runs scripts: docker compose, Kubernetes, Helm, GitHub, GitLab, CloudFormation.

What matters is the same in all of them: a mapping with an image, a command and variables, or one with a script.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any

from trtllm_check.lint.carriers import (
    compose,
    ecs_templates,
    folded,
    go_templates,
    helm_names,
    helm_values,
    kubernetes,
    kubernetes_values,
    manifests,
    model_ranks,
    overrides,
    served_models,
    truss,
    yaml_arguments,
    yaml_faults,
)
from trtllm_check.lint.carriers.aws_calls import resources
from trtllm_check.lint.carriers.cluster_objects import objects
from trtllm_check.lint.carriers.compose_parts import is_of_another
from trtllm_check.lint.carriers.option_lines import is_broken_config
from trtllm_check.lint.carriers.python_words import split
from trtllm_check.lint.carriers.requirements import is_conda, of_conda
from trtllm_check.lint.carriers.script import (
    Carried,
    Script,
    aligned,
    joined,
    unknown,
    unknown_arguments,
    with_single_dollars,
)
from trtllm_check.lint.carriers.stack_values import stack_command
from trtllm_check.lint.carriers.workloads import open_workload, workloads
from trtllm_check.lint.carriers.yaml_cut import completed
from trtllm_check.lint.carriers.yaml_documents import (
    CONTROL,
    DEEPEST,
    MOST_NODES,
    TEMPLATE,
    documents,
    is_excerpt,
    is_multiplied,
    leaves_out,
    masked,
)
from trtllm_check.lint.carriers.yaml_entries import (
    ConfigMaps,
    config_maps,
    entries_of,
    fill_parameters,
    from_key,
    from_maps,
    listed,
)
from trtllm_check.lint.carriers.yaml_started import PROGRAM, launched, starts_command, written_files
from trtllm_check.lint.programs import TOOL_NAMES, VLLM_IMAGE
from trtllm_check.lint.shell import Word

SCRIPTS = ("before_script", "script", "after_script", "run", "commands", "cmd", "userdata")
HOLD_SCRIPTS = ("jobs", "steps")  # of GitHub, which hands env on to what is inside
LINES = ("runcmd", "bootcmd", "cmds")  # of cloud-init and Taskfiles: what is one word there is no line of a script
API_VERSION = re.compile(r"^apiVersion:", re.MULTILINE)
GROWING = ("recommendedConfigs", "multiHostCommands")  # llmaz's BackendRuntime, whose controller adds arguments
COMMANDS = ("entrypoint", "command", "args")
ENVIRONMENTS = ("env", "envs", "environment", "variables", "hosting_variables")
IMAGES = ("image", "image_uri", "container", "containerimage", "imageuri")
OF_CHARTS = frozenset({"repository", "tag", "imagetag", "imagepullpolicy", "replicacount", "containerport"})
"""Beside an image or a command in the values of a chart, and not in a file of compose."""
VLLM_OWN_IMAGE = re.compile(r"(?:^|/)vllm/vllm-openai:")
RAY_SERVE = "serveConfigV2"  # of KubeRay: YAML in a text
EXTENSION = "x-"  # of compose: what other parts may take
REFERENCE = re.compile(r"\$\((\w+)\)")
NAME = re.compile(r"[A-Za-z_]\w*")
TOOL_LINE = re.compile(rf"^[ \t]*(?:\S+/)?(?:{TOOL_NAMES}|docker run)(?:\s|$)|^\s*python3? \S*\.py", re.MULTILINE)


def carried(word: Word) -> Carried:
    """Commands, variables and images of all documents; nothing where it is no YAML."""
    if is_conda(word.text):
        return of_conda(word)
    word = completed(word) or word
    reader = _Reader(word)
    nodes = list(documents(reader.masked))
    unknown_parts = open_workload if leaves_out(word.text) else lambda one: one
    reader.maps = config_maps(nodes)
    for node in nodes:
        fill_parameters(node)
        reader.walk(node, "", 0)
        if is_multiplied(node):
            continue
        started = served_models.kserve_command(node, reader.argument, reader.place)
        listed = [*yaml_arguments.scripts(node, reader.argument), *([started] if started is not None else [])]
        listed += overrides.scripts(node, reader.argument)
        found = Carried(
            scripts=tuple((one, "") for one in listed),
            calls=(
                *yaml_arguments.calls(node, reader.argument),
                *served_models.ray_calls(node, reader.argument),
            ),
            workloads=(*map(unknown_parts, workloads(node, reader.at)), *objects(node, reader.at)),
            aws_calls=tuple(resources(node, reader.at)),
            faults=(
                *manifests.faults(node, reader.at, is_template="{{" in word.text),
                *kubernetes.faults(node, reader.at, is_template="{{" in word.text, is_excerpt=is_excerpt(word.text)),
                *served_models.ignored_arguments(node, reader.argument, reader.at),
                *kubernetes_values.faults(node, reader.at),
                *helm_values.faults(node, reader.at),
                *model_ranks.faults(node, reader.at),
                *truss.faults(node, reader.at),
                *compose.faults(node, reader.at),
                *folded.faults(node, reader.at),
                *overrides.faults(node, reader.at),
            ),
        )
        reader.found = reader.found.with_(found).with_(ecs_templates.carried(node, reader.at))
    is_file = word.places[:1] == ((1, 1),)
    of_templates = (*go_templates.faults(word, is_file), *helm_names.faults(word))
    return reader.found.with_(
        Carried(faults=(*yaml_faults.faults(word, is_file, is_ours=is_broken_config(word.text)), *of_templates))
    )


class _Reader:
    def __init__(self, word: Word) -> None:
        self.word = word
        self.masked = masked(word.text)
        self.starts = [0, *(match.end() for match in re.finditer("\n", word.text))]
        self.controls = {word.text.count("\n", 0, match.start()) for match in CONTROL.finditer(word.text)}
        self.seen: set[int] = set()
        self.names: set[str] = set()  # of the variables of the container that is read
        self.maps: ConfigMaps = {}
        self.is_compose = False
        self.outer: list[tuple[str, Word]] = []  # of a workflow, its job and a pipeline, for the scripts inside
        self.found = Carried()

    @cached_property
    def _is_of_kubernetes(self) -> bool:
        return API_VERSION.search(self.word.text) is not None

    def walk(self, node: Any, image: str, depth: int) -> None:
        """Every node once, aliases or not."""
        if id(node) in self.seen or depth > DEEPEST or len(self.seen) > MOST_NODES:
            return
        self.seen.add(id(node))
        if node.id == "sequence":
            for one in node.value:
                self.walk(one, image, depth + 1)
        elif node.id == "mapping":
            entries = entries_of(node)
            self.is_compose = "services" in entries if not depth else self.is_compose
            before = self.outer
            if any(name in entries for name in HOLD_SCRIPTS) or (not depth and "variables" in entries):
                given = [entries[name] for name in ("env", "variables") if name in entries]
                self.outer = [*before, *(one for node in given for one in self.variables(node))]
            image = self.container(entries, image)
            self.found = self.found.with_(Carried(texts=tuple(written_files(entries, self.scalar))))
            for name, value in entries.items():
                if self.is_compose and not depth and name.startswith(EXTENSION):
                    continue  # read where it is merged
                if value.id == "scalar":
                    self.text(name, value, image)
                elif name.lower() != ecs_templates.CONTAINERS:
                    # What a probe or a hook executes does not pass through the image's entry point.
                    self.walk(value, "" if name == "exec" else image, depth + 1)
            self.outer = before

    def container(self, entries: dict[str, Any], image: str) -> str:
        """One mapping's commands, as one script; the image that holds in it."""
        by_name = {name.lower().replace("-", "_"): value for name, value in entries.items()}
        for name in IMAGES:
            if name in by_name and (found := self.image(by_name[name])):
                image = found.text
                self.found = self.found.with_(Carried(images=(found,)))
                break
        script = Script()
        outer = self.outer if any(name in by_name for name in ("run", "script")) else ()
        variables = [*outer, *((name, self.value(one)) for name, one in from_maps(self.maps, by_name.get("envfrom")))]
        variables += [one for name in ENVIRONMENTS if name in by_name for one in self.variables(by_name[name])]
        self.names = {name for name, _ in variables}
        for key, value in variables:
            script.variable(key, value)
        for name in ("setup", *SCRIPTS) if "run" in by_name and "resources" in by_name else SCRIPTS:  # of SkyPilot
            for value in listed(by_name.get(name)):
                script.line(self.scalar(value))
        for name in LINES:
            for value in listed(by_name.get(name)):
                if " " in str(value.value):
                    script.line(self.scalar(value))
        is_compose = "command" in by_name and bool(image) and not {"args", "name"} & set(by_name)
        commands = [by_name[name] for name in COMMANDS if name in by_name]
        more = launched(by_name, self.scalar, self.argument, self.place)
        if more is not None:
            self.found = self.found.with_(Carried(scripts=((more, ""),)))
        grows = any(name in entries for name in GROWING)
        self.command(commands, script, self.entry(by_name, image), is_compose, grows)
        word = script.word()
        if word.text.strip():
            self.found = self.found.with_(Carried(scripts=((word, image),)))
        self.chart(entries)
        return image

    def chart(self, entries: dict[str, Any]) -> None:
        """A model of the production stack's values."""
        command = stack_command(entries, self.argument, self.place)
        if command is not None:
            image = self.image_of(entries)
            # Another repository's tags are no versions of vLLM.
            image = image if VLLM_OWN_IMAGE.search(image) else ""
            self.found = self.found.with_(Carried(scripts=((command, image),)))

    def image_of(self, entries: dict[str, Any]) -> str:
        """``repository`` and ``tag`` as one name, "" without them."""
        parts = [entries[name].value for name in ("repository", "tag") if name in entries and entries[name].value]
        return ":".join(str(part) for part in parts) if len(parts) > 1 and not TEMPLATE.search(str(parts)) else ""

    def entry(self, by_name: dict[str, Any], image: str) -> bool:
        """True where the image's entry point starts vLLM and what is written goes to it as arguments.

        Kubernetes' ``command`` takes its place, as compose's ``entrypoint`` does; compose's ``command`` does not.
        Nobody knows what a command does that stands deeper than its image: no part of either stands so.
        """
        if not {*IMAGES, "<<"} & set(by_name):
            return False
        of_chart = not OF_CHARTS.isdisjoint(by_name)  # whose template writes the command of Kubernetes
        kubernetes = of_chart or "args" in by_name or "name" in by_name or self._is_of_kubernetes
        kubernetes = kubernetes or (not self.is_compose and is_of_another(by_name))  # a launcher, which knows its image
        replaced = "command" in by_name and not str(by_name["command"].value).startswith("--")  # as Ansible writes it
        return VLLM_IMAGE.search(image) is not None and not ("entrypoint" in by_name or (kubernetes and replaced))

    def command(
        self,
        nodes: Sequence[Any],
        script: Script,
        behind_entry: bool = False,
        is_compose: bool = False,
        grows: bool = False,
    ) -> None:
        """Entry point, command and arguments are one command; a text of several lines is a script.

        ``grows``: a controller puts further arguments behind it.
        """
        words: list[Word] = []
        if behind_entry and nodes:
            place = self.place(nodes[0])
            if nodes[0].id == "scalar":
                script.add("vllm serve ", place)
            else:
                words += [Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve")]
        if len(nodes) > 1 and all(node.id == "scalar" and node.style not in ("|", ">") for node in nodes):
            for node in nodes:  # an entry point and its arguments as two texts
                script.take(with_single_dollars(self.scalar(node)) if self.is_compose else self.scalar(node))
                script.add(" ", self.place(node))
            script.end()
            return
        for node, following in zip_longest(nodes, nodes[1:]):
            is_program = following is not None and following.id == "sequence" and PROGRAM.fullmatch(str(node.value))
            if node.id == "sequence":
                words += [self.argument(one) for one in node.value if one.id == "scalar"]
            elif node.id == "scalar" and not words and is_program:
                words += split(self.scalar(node))  # as editors and launchers have it
            elif node.id == "scalar" and not words:
                text = with_single_dollars(self.scalar(node)) if self.is_compose else self.scalar(node)
                script.line(text if not is_compose or " -c" in text.text else _on_one_line(text))
            elif node.id == "scalar":
                words.append(self.argument(node))
        if words and starts_command(words):
            script.words([*words, unknown_arguments(self.place(nodes[-1]))] if grows else words)

    def argument(self, node: Any) -> Word:
        """``$(NAME)`` is Kubernetes' way to write a variable, ``$$`` compose's to write a dollar."""
        word = self.scalar(node)
        word = with_single_dollars(word) if self.is_compose else word
        known = REFERENCE.sub(lambda match: f"${{{match[1]}}}" if match[1] in self.names else match[0], word.text)
        word = Word(known, word.line, word.column, word.places)
        is_script = " " in TEMPLATE.sub("", word.text).strip()  # whose templates the shell's reader masks
        if REFERENCE.fullmatch(word.text) or (TEMPLATE.search(word.text) and not is_script):
            return unknown(word.text, (word.line, word.column))
        return word

    def variables(self, node: Any) -> Iterator[tuple[str, Word]]:
        if node.id == "mapping":
            for key, value in node.value:
                if key.id == "scalar" and NAME.fullmatch(str(key.value)):
                    yield str(key.value), self.value(value)
        elif node.id == "sequence":
            for one in node.value:
                if one.id == "scalar" and "=" in one.value:
                    word = self.scalar(one)
                    name, _, _ = word.text.partition("=")
                    if NAME.fullmatch(name):
                        yield name, self.unless_open(word.part(len(name) + 1))
                elif one.id == "mapping":
                    entry = {str(key.value).lower(): value for key, value in one.value if key.id == "scalar"}
                    name = str(entry["name"].value) if "name" in entry and entry["name"].id == "scalar" else ""
                    if NAME.fullmatch(name):
                        given = entry.get("value") or from_key(self.maps, entry.get("valuefrom"))
                        yield name, self.value(given, entry["name"])

    def value(self, node: Any, otherwise: Any = None) -> Word:
        """A value, or an unknown one where it comes from elsewhere (a secret, a function, a template)."""
        if node is None or node.id != "scalar" or not str(node.tag).startswith("tag:yaml.org"):
            place = self.place(node if node is not None else otherwise)
            return unknown("elsewhere", place)
        return self.unless_open(self.scalar(node))

    def unless_open(self, word: Word) -> Word:
        return unknown(word.text, (word.line, word.column)) if TEMPLATE.search(word.text) else word

    def image(self, node: Any) -> Word | None:
        """An image's name; of Helm's values ``repository`` and ``tag``."""
        if node.id == "scalar":
            word = self.scalar(node)
            return word if word.text and not TEMPLATE.search(word.text) and " " not in word.text else None
        if node.id != "mapping":
            return None
        parts = {str(key.value): value for key, value in node.value if key.id == "scalar" and value.id == "scalar"}
        name = parts.get("repository") or parts.get("name")
        if name is None or not name.value:
            return None
        word = self.scalar(name)
        tag = f":{parts['tag'].value}" if "tag" in parts and parts["tag"].value else ""
        return Word(f"{word.text}{tag}", word.line, word.column)

    def text(self, name: str, node: Any, image: str) -> None:
        """A scalar that is a file (by its key's name), a script, or a command."""
        lowered = name.lower().replace("-", "_")
        if lowered in (*SCRIPTS, *COMMANDS, *IMAGES):
            return
        value = str(node.value)
        if "\n" in value and ("." in name or name == RAY_SERVE):
            name = f"{name}.yaml" if name == RAY_SERVE else name
            self.found = self.found.with_(Carried(texts=((name, self.scalar(node)),)))
        elif TOOL_LINE.search(value):
            self.found = self.found.with_(Carried(scripts=((self.scalar(node), image),)))

    def place(self, node: Any) -> tuple[int, int]:
        index = self.index(node.start_mark)
        return self.word.places[index] if index < len(self.word.places) else (self.word.line, self.word.column)

    def at(self, node: Any) -> Word:
        """Where a node begins, with its text where it has one."""
        if node.id == "scalar":
            return self.scalar(node)
        return Word("", *self.place(node))

    def index(self, mark: Any) -> int:
        line = min(int(mark.line), len(self.starts) - 1)
        return self.starts[line] + int(mark.column)

    def scalar(self, node: Any) -> Word:
        """The value at its places, Helm's templates as they are written."""
        start, end = self.index(node.start_mark), self.index(node.end_mark)
        if node.style in ("|", ">"):
            start = self.word.text.find("\n", start) + 1 or start
        elif node.style in ("'", '"'):
            start, end = start + 1, end - 1
        value = str(node.value)
        if node.style == ">" and "\n" in value and not self._has_blank_lines(node):
            value = value.rstrip("\n").replace("\n", " ")  # where a line of the template alone stood
        word = self.original(value, start, end)
        return self.rendered(word, int(node.start_mark.line) + 1) if node.style == "|" and self.controls else word

    def _has_blank_lines(self, node: Any) -> bool:
        """True where a line of a text is empty in the source, and for one without lines of a template."""
        numbers = range(int(node.start_mark.line) + 1, int(node.end_mark.line))
        if self.controls.isdisjoint(numbers):
            return True
        lines = self.word.text.split("\n")
        return not all(lines[number].strip() for number in numbers)

    def rendered(self, word: Word, first: int) -> Word:
        """A block of lines without those that a template would not leave there."""
        lines: list[Word] = []
        position = 0
        for number, line in enumerate(word.text.split("\n"), first):
            end = min(position + len(line) + 1, len(word.text))
            if number not in self.controls:
                lines.append(word.part(position, end))
            position = end
        return joined(lines) if len(lines) <= word.text.count("\n") else word

    def original(self, value: str, start: int, end: int) -> Word:
        if "x" not in value or self.masked[start:end] == self.word.text[start:end]:
            return aligned(value, self.word, start, end)
        numbered = Word(self.masked, 1, 1, tuple((0, i) for i in range(len(self.masked))))
        places = [index for _, index in aligned(value, numbered, start, end).places]
        letters = [
            self.word.text[index] if self.masked[index] == letter else letter
            for letter, index in zip(value, places, strict=True)
        ]
        spots = tuple(self.word.places[index] for index in places)
        line, column = spots[0] if spots else (self.word.line, self.word.column)
        return Word("".join(letters), line, column, spots)


def _on_one_line(word: Word) -> Word:
    """docker compose splits a text at blanks and at the ends of lines alike."""
    text = word.text.rstrip().replace("\\\n", "  ").replace("\n", " ")
    return Word(text, word.line, word.column, word.places[: len(text)])
