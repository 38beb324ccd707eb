"""What moto's IAM lacks: SimulatePrincipalPolicy, and who may take a role; the policies, read from moto, decide."""

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from cpu_serving.aws.faults import AwsFault, Response

OPERATION = "SimulatePrincipalPolicy"
NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


def is_simulation(body: bytes) -> bool:
    return parse_qs(body.decode("utf-8", "replace")).get("Action") == [OPERATION]


def simulate_principal_policy(body: bytes, account: str) -> Response:
    """Decide each action on each resource; conditions are not looked at."""
    asked = {key: values[0] for key, values in parse_qs(body.decode()).items()}
    policies = list(policies_of(asked.get("PolicySourceArn", ""), account))
    resources = _members(asked, "ResourceArns") or ["*"]
    results = "".join(
        f"<member><EvalActionName>{escape(action)}</EvalActionName><EvalResourceName>{escape(resource)}"
        f"</EvalResourceName><EvalDecision>{decide(policies, action, resource)}</EvalDecision>"
        "<MatchedStatements/><MissingContextValues/></member>"
        for action in _members(asked, "ActionNames")
        for resource in resources
    )
    answer = (
        f'<{OPERATION}Response xmlns="{NAMESPACE}"><{OPERATION}Result><IsTruncated>false</IsTruncated>'
        f"<EvaluationResults>{results}</EvaluationResults></{OPERATION}Result>"
        f"<ResponseMetadata><RequestId>local</RequestId></ResponseMetadata></{OPERATION}Response>"
    )
    return Response(HTTPStatus.OK, answer.encode(), {"Content-Type": "text/xml"})


def decide(policies: Iterable[str], action: str, resource: str) -> str:
    """IAM's verdict: a Deny beats every Allow, and nothing said means no."""
    from moto.iam.access_control import IAMPolicy, PermissionResult

    verdicts = {IAMPolicy(document).is_action_permitted(action, resource) for document in policies}
    if PermissionResult.DENIED in verdicts:
        return "explicitDeny"
    return "allowed" if PermissionResult.PERMITTED in verdicts else "implicitDeny"


def policies_of(arn: str, account: str) -> list[str]:
    """The policies of a role or user, as JSON. Raises :class:`AwsFault` if there is no such principal."""
    holder = _holder(arn, account)
    inline = holder.policies
    own = inline.values() if isinstance(inline, dict) else [policy["policy_document"] for policy in inline]
    return [*own, *(policy.document for policy in holder.managed_policies.values())]


def may_assume(service: str, role_arn: str, account: str) -> bool:
    """Whether the role's trust policy lets ``service`` take it, for a resource of ``account``."""
    try:
        document = _holder(role_arn, account).assume_role_policy_document
    except AwsFault:
        return False
    return any(_trusts(statement, service, account) for statement in json.loads(document)["Statement"])


def _trusts(statement: dict[str, Any], service: str, account: str) -> bool:
    services = statement.get("Principal", {}).get("Service", [])
    accounts = statement.get("Condition", {}).get("StringEquals", {}).get("aws:SourceAccount", account)
    return (
        statement["Effect"] == "Allow"
        and service in ([services] if isinstance(services, str) else services)
        and account in ([accounts] if isinstance(accounts, str) else accounts)
    )


def _holder(arn: str, account: str) -> Any:
    from moto.iam.models import iam_backends

    backend: Any = iam_backends[account]["aws"]
    name = arn.rpartition("/")[2]
    holders = [*backend.roles.values(), *backend.users.values()]
    holder = next((holder for holder in holders if holder.arn == arn), None)
    if holder is None:
        raise AwsFault(HTTPStatus.NOT_FOUND, "NoSuchEntity", f"The principal {name or arn} cannot be found.")
    return holder


def _members(asked: dict[str, str], name: str) -> list[str]:
    numbers = sorted(int(key.rpartition(".")[2]) for key in asked if key.startswith(f"{name}.member."))
    return [asked[f"{name}.member.{number}"] for number in numbers]
