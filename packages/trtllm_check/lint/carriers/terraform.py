"""Terraform's files: the resources of SageMaker, as far as their values are written out, and what starts programs."""

import re
from collections.abc import Iterator
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.literals import scripts
from trtllm_check.lint.carriers.schema import HERE, Schema, read_types
from trtllm_check.lint.carriers.script import Carried
from trtllm_check.lint.carriers.settings import Setting, key
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
OPENS, CLOSES = "([{", ")]}"


def is_terraform(text: str) -> bool:
    """True for what begins a block as Terraform does."""
    return HEAD.search(text) is not None


def carried(word: Word) -> Carried:
    """The SageMaker resources, as the calls that they lead to, and fields that they do not have."""
    data: dict[str, Any] = read_yaml(HERE / FILE)
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
    started = tuple((one, "") for one in scripts(word))
    return Carried(scripts=started, aws_calls=tuple(calls), faults=tuple(faults), images=images)


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
        if token["text"] is not None and "${" not in token[0]:
            found = Setting("text", token[0][1:-1], self.word.part(token.start() + 1, token.end() - 1), written=written)
        elif token["number"] is not None:
            found = Setting("number", token[0], place, written=written)
        elif token[0] in ("true", "false"):
            found = Setting("switch", token[0], place, written=written)
        rest = self.skip(token)
        return found if not rest else Setting("open", "", place, written=written)

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
