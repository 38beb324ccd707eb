"""IAM SimulatePrincipalPolicy, which moto lacks: the policies of a role or user, read from moto, decide."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from playbook.lanes.embedded.aws.faults import AwsFault, Response

OPERATION = "SimulatePrincipalPolicy"
NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


def is_simulation(body: bytes) -> bool:
    return parse_qs(body.decode("utf-8", "replace")).get("Action") == [OPERATION]


def simulate_principal_policy(body: bytes, account: str) -> Response:
    """Decide each action on each resource; conditions are not looked at."""
    asked = {key: values[0] for key, values in parse_qs(body.decode()).items()}
    policies = list(_policies(asked.get("PolicySourceArn", ""), account))
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


def _policies(arn: str, account: str) -> Iterable[str]:
    from moto.iam.models import iam_backends

    backend: Any = iam_backends[account]["aws"]
    name = arn.rpartition("/")[2]
    holders = [*backend.roles.values(), *backend.users.values()]
    holder = next((holder for holder in holders if holder.arn == arn), None)
    if holder is None:
        raise AwsFault(HTTPStatus.NOT_FOUND, "NoSuchEntity", f"The principal {name or arn} cannot be found.")
    inline = holder.policies
    yield from inline.values() if isinstance(inline, dict) else (policy["policy_document"] for policy in inline)
    for policy in holder.managed_policies.values():
        yield policy.document


def _members(asked: dict[str, str], name: str) -> list[str]:
    numbers = sorted(int(key.rpartition(".")[2]) for key in asked if key.startswith(f"{name}.member."))
    return [asked[f"{name}.member.{number}"] for number in numbers]
