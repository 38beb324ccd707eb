"""Commands of the AWS CLI: what version 2 does not take, and instances under the name that another service has."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from trtllm_check.lint.carriers.aws_cli import MACHINES, SCALED, CliWords, cli_words
from trtllm_check.lint.carriers.scaling import resource_wanted
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word, word_at

ANSWERS = ("invoke-endpoint",)  # it writes the answer into a file that is named last
BODY, FORMAT = "--body", "--cli-binary-format"
RAW = "raw-in-base64-out"
PLAIN = re.compile(r"\s*[{\[\"]|file://")
INSTANCE = re.compile(r"ml\.(?P<name>[a-z]+\d\w*\.\w+)$")
EKSCTL = re.compile(r"^apiVersion:[ ]*eksctl\.io/", re.MULTILINE)
NODES = re.compile(r"instanceTypes?:[ ]*\[?[\"']?(?P<value>ml\.[a-z]+\d\w*\.\w+)")
TERRAFORM = re.compile(
    r"resource\s+\"aws_(?:instance|launch_template|eks_node_group)\"[^{]*\{[^}]*?instance_types?\s*=\s*\[?\s*"
    r"\"(?P<value>ml\.[a-z]+\d\w*\.\w+)\""
)
LOGIN = "get-login"
USERS = (
    (re.compile(r"^(?:https://)?\d{12}\.dkr\.ecr\."), "AWS"),
    (re.compile(r"^(?:https://)?nvcr\.io/?$"), "$oauthtoken"),
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for command in document.commands:
        found = cli_words(command)
        for form, place, known in _problems(found) if found is not None else ():
            yield from drafts(platform.release.name, "aws-cli", place, form=form, file=command.file, **known)
    for file, text in document.texts:
        found_in = [*(NODES.finditer(text) if EKSCTL.search(text) else ()), *TERRAFORM.finditer(text)]
        for match in found_in:
            value = match["value"]
            place = word_at(text, match.start("value"), value)
            about: dict[str, Any] = {"value": value, "right": value.removeprefix("ml.")}
            yield from drafts(platform.release.name, "aws-cli", place, form="instance", file=file, **about)
    for one in document.of("docker"):
        words = [word.text for word in one.arguments]
        user = next((user for pattern, user in USERS if any(map(pattern.match, words))), "")
        if words[:1] == ["login"] and user:
            for flag, word in pairwise(one.arguments):
                if flag.text in ("-u", "--username") and word.text != user and "$" not in word.text:
                    who: dict[str, Any] = {"user": word.text, "right": user}
                    yield from drafts(platform.release.name, "aws-cli", word, form="user", file=one.command.file, **who)


def _problems(found: CliWords) -> Iterator[tuple[str, Word, dict[str, Any]]]:
    service, call = (*(word.text for word in found.names), "", "")[:2]
    options = {option.text: values for option, values in found.options}
    if service == "sagemaker-runtime" and call in ANSWERS:
        if len(found.names) == len((service, call)) and options:
            yield "no file", found.names[1], {}
        body = options.get(BODY, ())
        if body and PLAIN.match(body[0].text) and RAW not in found.general.get(FORMAT, ""):
            yield "body", body[0], {}
    resource = options.get("--resource-id", ())
    if service == "application-autoscaling" and resource and "$" not in resource[0].text:
        dimension = next((word.text for word in options.get(SCALED, ())), "")
        right = resource_wanted(dimension, resource[0].text)
        if right:
            yield "resource", resource[0], {"value": resource[0].text, "dimension": dimension, "instead": right}
    if service == "s3" and call == "cp" and not {"--recursive", "--include"} & options.keys():
        for word in found.names[2:3]:
            if word.text.endswith("/") and "$" not in word.text:
                yield "folder", word, {"folder": word.text}
    if service == "ecr" and call == LOGIN:
        yield "login", found.names[1], {}
    if service == "ec2":
        for word in _instances(options):
            match = INSTANCE.search(word.text)
            if match:
                yield "instance", word, {"value": match[0], "right": match["name"]}


def _instances(options: dict[str, tuple[Word, ...]]) -> Sequence[Word]:
    return [word for name in MACHINES for word in options.get(name, ())]
