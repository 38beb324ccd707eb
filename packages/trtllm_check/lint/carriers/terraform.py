"""Terraform: the resources of SageMaker and of ECS, as far as they are written out, and what starts programs."""

import re
from collections.abc import Iterator
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers import ecs, terraform_machines, terraform_pods
from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.literals import files, scripts
from trtllm_check.lint.carriers.schema import HERE, Schema, read_types
from trtllm_check.lint.carriers.script import Carried, aligned
from trtllm_check.lint.carriers.settings import Setting, from_yaml, key
from trtllm_check.lint.carriers.terraform_variables import with_defaults
from trtllm_check.lint.shell.words import Word

FILE = "terraform.yml"
DEEPEST = 12
TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\#[^\n]*|//[^\n]*|/\*.*?\*/)|(?P<heredoc><<-?(?P<mark>\w+)\n.*?\n[ \t]*(?P=mark)(?=\n|$))"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\")|(?P<number>-?\d+(?:\.\d+)?(?![\w.]))|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<end>\n)|(?P<sign>.)",
    re.DOTALL,
)
RESOURCE = re.compile(r"^[ \t]*resource\s+\"(?P<type>aws_sagemaker_\w+)\"\s+\"[^\"]+\"\s*\{", re.MULTILINE)
HEAD = re.compile(
    r"^(?:resource|provider|terraform|variable|module|data|locals|output)\s*(?:\"[^\"]+\"\s*)*\{", re.MULTILINE
)
TASK = re.compile(r"^[ \t]*resource\s+\"aws_ecs_task_definition\"\s+\"[^\"]+\"\s*\{", re.MULTILINE)
HEREDOC = re.compile(r"<<-?(?P<mark>\w+)\n(?P<inside>.*)\n[ \t]*(?P=mark)", re.DOTALL)
INTERPOLATION = re.compile(r"[$%]\{[^{}\n]*\}")
JSONENCODE = "jsonencode"
ESCAPED = re.compile(r"\\(.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
LOOKED_UP = re.compile(
    r"^[ \t]*data\s+\"aws_sagemaker_prebuilt_ecr_image\"\s+\"[^\"]+\"\s*\{(?P<body>[^{}]*)\}", re.MULTILINE
)
OPENS, CLOSES = "([{", ")]}"


def is_terraform(text: str) -> bool:
    """True for what begins a block as Terraform does."""
    return HEAD.search(text) is not None


def carried(word: Word) -> Carried:
    """The SageMaker resources, as the calls that they lead to, and fields that they do not have."""
    data: dict[str, Any] = read_yaml(HERE / FILE)
    word = with_defaults(word)
    calls: list[AwsCall] = []
    faults: list[FormFault] = []
    for match in RESOURCE.finditer(word.text):
        name = data["calls"].get(match["type"], "")
        if name:
            settings = _Reader(word, match.end()).block(match["type"], 0)
            calls.append(AwsCall(name, _named(settings, data["names"][match["type"]]), maker="terraform"))
            faults += _faults(settings, data["resources"][match["type"]], frozenset(data["common"].split()))
    images = tuple(
        one.place
        for call in calls
        for table in call.settings.tables()
        for name, one in table.items
        if name == "image" and one.kind == "text"
    )
    found = Carried(aws_calls=tuple(calls), faults=tuple(faults), images=(*images, *_looked_up(word)))
    for match in TASK.finditer(word.text):
        settings = _Reader(word, match.end()).block("aws_ecs_task_definition", 0)
        found = found.with_(ecs.task(settings, keeps_numbers=True))
    found = found.with_(terraform_machines.scripts(word)).with_(
        terraform_pods.pods(word, lambda position: _Reader(word, position).block("spec", 0))
    )
    known = {place for one, _ in found.scripts for place in one.places}
    others = ((one, "") for one in scripts(word) if known.isdisjoint(one.places))
    return found.with_(Carried(scripts=tuple(others), texts=tuple(files(word))))


def _looked_up(word: Word) -> Iterator[Word]:
    """The images of ``data "aws_sagemaker_prebuilt_ecr_image"``."""
    for match in LOOKED_UP.finditer(word.text):
        tag = re.search(r"image_tag\s*=\s*\"([\w.-]+)\"", match["body"])
        name = re.search(r"repository_name\s*=\s*\"([\w./-]+)\"", match["body"])
        if tag and name:
            start = match.start("body") + tag.start(1)
            here = word.part(start, start + len(tag[1]))
            yield Word(f"{name[1]}:{tag[1]}", here.line, here.column)


def _named(settings: Setting, name: str) -> Setting:
    """``name`` as the service calls it."""
    return settings._replace(items=tuple((name if one == "name" else one, value) for one, value in settings.items))


def _faults(settings: Setting, kind: str, common: frozenset[str]) -> Iterator[FormFault]:
    for problem in Schema(read_types(FILE), re.compile("|".join(map(re.escape, sorted(common))))).problems(
        settings, kind
    ):
        if problem.form != "kind":
            yield FormFault("terraform-field", problem.setting.place, problem.form, problem.known)


class _Reader:
    """Reads one block; what is no plain value is open."""

    def __init__(self, word: Word, position: int) -> None:
        self.word = word
        self.tokens = list(TOKEN.finditer(word.text, position))
        self.index = 0

    def next(self) -> re.Match[str] | None:
        while self.index < len(self.tokens):
            token = self.tokens[self.index]
            self.index += 1
            if token["blank"] is None:
                return token
        return None

    def peek(self) -> str:
        index = self.index
        token = self.next()
        self.index = index
        return token[0] if token is not None else ""

    def at(self, token: re.Match[str]) -> Word:
        return self.word.part(token.start(), token.end())

    def block(self, written: str, depth: int) -> Setting:
        """Until its closing brace; of several blocks of one name a list."""
        items: list[tuple[str, Setting]] = []
        first: Word | None = None
        while (token := self.next()) is not None and token[0] != "}":
            name = token["name"] or (token["text"] or "").strip('"')
            if not name:
                continue
            first = first or self.at(token)
            value = self.entry(name, token, depth)
            if value is not None:
                items.append((key(name), value))
        return Setting(
            "table", "", first or Word(written, self.word.line, self.word.column), tuple(items), written=written
        )

    def entry(self, name: str, token: re.Match[str], depth: int) -> Setting | None:
        if self.peek() in ("=", ":"):
            self.next()
            return self.value(name, depth)
        while self.peek().startswith('"'):
            self.next()  # a block's label
        if self.peek() == "{" and depth < DEEPEST:
            self.next()
            return self.block(name, depth + 1)._replace(place=self.at(token))
        return None

    def value(self, written: str, depth: int) -> Setting:
        token = self.next()
        if token is None:
            return Setting("open", "", Word("", self.word.line, self.word.column), written=written)
        place = self.at(token)
        found = Setting("open", "", place, written=written)
        if token[0] == "{" and depth < DEEPEST:
            return self.block(written, depth + 1)._replace(place=place)
        if token[0] == "[" and depth < DEEPEST:
            return self.listed(written, depth + 1)._replace(place=place)
        if token[0] == JSONENCODE and self.peek() == "(":
            self.next()
            inner = self.value(written, depth + 1)
            return inner if self.skip_blank_end() == ")" else Setting("open", "", place, written=written)
        if token["heredoc"] is not None:
            found = self.document(token, written, depth)
        if token["text"] is not None and "${" not in token[0]:
            text, at = token[0][1:-1], self.word.part(token.start() + 1, token.end() - 1)
            if "\\" in text:
                text = ESCAPED.sub(lambda escaped: ESCAPES.get(escaped[1], escaped[1]), text)
                at = aligned(text, self.word, token.start() + 1, token.end() - 1)
            found = Setting("text", text, at, written=written)
        elif token["number"] is not None:
            found = Setting("number", token[0], place, written=written)
        elif token[0] in ("true", "false"):
            found = Setting("switch", token[0], place, written=written)
        rest = self.skip(token)
        return found if not rest else Setting("open", "", place, written=written)

    def listed(self, written: str, depth: int) -> Setting:
        """Until its closing bracket; what a loop makes is open."""
        parts: list[Setting] = []
        while (following := self.peek()) and following != "]":
            if following in ("\n", ","):
                self.next()
                continue
            is_loop = following == "for"
            parts.append(self.value(written, depth))
            if is_loop:
                parts[-1] = parts[-1]._replace(kind="open")
        self.next()
        first = parts[0].place if parts else Word(written, self.word.line, self.word.column)
        return Setting("list", "", first, parts=tuple(parts), written=written)

    def skip_blank_end(self) -> str:
        """The sign behind the ends of lines."""
        while self.peek() == "\n":
            self.next()
        token = self.next()
        return token[0] if token is not None else ""

    def document(self, token: re.Match[str], written: str, depth: int) -> Setting:
        """JSON in a heredoc, which Terraform fills in; open where it is none."""
        import yaml

        match = HEREDOC.match(token[0])
        at = self.at(token)
        start = token.start() + match.start("inside") if match else 0
        inside = match["inside"] if match else ""
        masked = INTERPOLATION.sub(lambda one: "x" * len(one[0]), inside)
        try:
            node: Any = yaml.compose(masked, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if inside.strip() else None
        except (yaml.YAMLError, ValueError, RecursionError):
            node = None
        if node is None or node.id == "scalar":
            return Setting("open", "", at, written=written)
        starts = [0, *(end.end() for end in re.finditer("\n", masked))]

        def place(one: Any) -> Word:
            first, last = (starts[mark.line] + mark.column for mark in (one.start_mark, one.end_mark))
            if one.id != "scalar":
                return self.word.part(start + first, start + first + 1)
            first, last = (first + 1, last - 1) if one.style in ("'", '"') else (first, last)
            value = str(one.value) if "x" not in str(one.value) else inside[first:last]
            return aligned(value, self.word, start + first, start + last)

        return from_yaml(node, place, DEEPEST - depth, written)

    def skip(self, token: re.Match[str]) -> bool:
        """Go to the end of an expression; True where more than ``token`` belongs to it."""
        depth = 1 if token[0] in OPENS else 0
        more = False
        while (following := self.peek()) and (depth or (following not in ("\n", ",") and following not in CLOSES)):
            more = True
            one = self.next()
            if one is not None and one[0] in OPENS:
                depth += 1
            elif one is not None and one[0] in CLOSES:
                depth -= 1
        return more
