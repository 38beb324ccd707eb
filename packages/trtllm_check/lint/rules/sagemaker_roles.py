"""Roles of SageMaker's models that are declared beside them: whether the service may take them."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word

RULE = "sagemaker-role"
SERVICE = "sagemaker."  # amazonaws.com, or what a template fills in
USED_TERRAFORM = re.compile(r"\bexecution_role_arn\s*=\s*aws_iam_role\.(?P<name>[\w-]+)\.arn")
USED_TEMPLATE = re.compile(r"\bExecutionRoleArn:\s*(?:!GetAtt\s+|\{?\s*\"?Fn::GetAtt\"?:\s*\[\s*)[\"']?(?P<name>\w+)")
BLOCK = re.compile(
    r"^(?:resource|data|module|variable|output|locals|provider|terraform)\b[^\n{]*\{[^\n]*\n(?:(?!\}).*\n)*\}?",
    re.MULTILINE,
)
HEAD = re.compile(r"(?P<kind>resource|data)\s+\"(?P<type>aws_iam_\w+)\"\s+\"(?P<name>[\w-]+)\"")
DOCUMENT = re.compile(r"\bassume_role_policy\s*=\s*data\.aws_iam_policy_document\.(?P<name>[\w-]+)\.json")
SERVICES = re.compile(r"[\"']?(?P<service>[a-z][\w-]*(?:\.[a-z][\w-]*)*\.amazonaws\.com)\b")
PRINCIPAL = re.compile(r"Principal|principals|AssumeRolePolicyDocument|assume_role_policy")


class Role(NamedTuple):
    """The text of a role's declaration, and where it begins."""

    text: str
    start: int


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        for used, find in ((USED_TERRAFORM, _terraform), (USED_TEMPLATE, _template)):
            for name in dict.fromkeys(match["name"] for match in used.finditer(text)):
                role = find(text, name)
                services = list(dict.fromkeys(SERVICES.findall(role.text))) if role is not None else []
                if role is None or not services or SERVICE in role.text or PRINCIPAL.search(role.text) is None:
                    continue
                place = Word(name, text.count("\n", 0, role.start) + 1, 1)
                known: dict[str, Any] = {"name": name, "services": ", ".join(services)}
                yield from drafts(platform.release.name, RULE, place, file=file, **known)


def _terraform(text: str, name: str) -> Role | None:
    """The resource of a role, with the document of its trust where that stands apart."""
    blocks = {
        (head["kind"], head["name"]): Role(block[0], block.start())
        for block in BLOCK.finditer(text)
        if (head := HEAD.match(block[0])) is not None
    }
    role = blocks.get(("resource", name))
    if role is None:
        return None
    apart = DOCUMENT.search(role.text)
    if apart is None:
        return role
    trust = blocks.get(("data", apart["name"]))
    return Role(f"{trust.text} assume_role_policy", role.start) if trust is not None else None


def _template(text: str, name: str) -> Role | None:
    """A resource of CloudFormation: its name, and all that is indented below it, up to its policies."""
    head = re.search(rf"^(?P<indent>[ ]+){re.escape(name)}:[ ]*\n", text, re.MULTILINE)
    if head is None:
        return None
    end = re.compile(rf"^[ ]{{0,{len(head['indent'])}}}\S", re.MULTILINE).search(text, head.end())
    body = text[head.end() : end.start() if end else len(text)]
    return Role(body, head.start()) if "AWS::IAM::Role" in body else None
