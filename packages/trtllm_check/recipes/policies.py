"""IAM policies around an endpoint: who may invoke it, what it may do itself, and who may end it."""

from collections.abc import Mapping
from typing import Any

Policy = dict[str, Any]


def invoke_policy(endpoint_arn: str) -> Policy:
    """What a caller needs, and no more: invoking this one endpoint (streaming is the same action)."""
    return _policy({"Effect": "Allow", "Action": ["sagemaker:InvokeEndpoint"], "Resource": endpoint_arn})


def execution_policy(*, bucket: str, region: str, account_id: str, image_account_id: str) -> Policy:
    """What the endpoint itself needs: read its model, pull its image, write its log."""
    log_group = f"arn:aws:logs:{region}:{account_id}:log-group:/aws/sagemaker/Endpoints/*"
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    write_log = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    image = f"arn:aws:ecr:{region}:{image_account_id}:repository/djl-inference"
    return _policy(
        {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": f"arn:aws:s3:::{bucket}/*"},
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": f"arn:aws:s3:::{bucket}"},
        {"Effect": "Allow", "Action": pull, "Resource": image},
        {"Effect": "Allow", "Action": ["ecr:GetAuthorizationToken"], "Resource": "*"},
        {"Effect": "Allow", "Action": write_log, "Resource": log_group},
    )


def trust_policy() -> Policy:
    """Who may take the execution role: SageMaker."""
    return _policy(_assumed_by("sagemaker.amazonaws.com"))


def ending_policy(endpoint_arn: str) -> Policy:
    """What the scheduler's role needs, and no more: deleting this endpoint, or all that match the ARN."""
    return _policy({"Effect": "Allow", "Action": ["sagemaker:DeleteEndpoint"], "Resource": endpoint_arn})


def ending_trust_policy(account_id: str) -> Policy:
    """Who may take the scheduler's role: EventBridge Scheduler, and only for schedules of this account.

    Without the condition a schedule of somebody else's account could use the role ("confused deputy").
    """
    condition = {"StringEquals": {"aws:SourceAccount": account_id}}
    return _policy(_assumed_by("scheduler.amazonaws.com") | {"Condition": condition})


def scheduling_policy(schedule_arn: str, role_arn: str) -> Policy:
    """What whoever creates the endpoint needs on top: to plan its end, read it, and take it back."""
    actions = [
        "scheduler:CreateSchedule",
        "scheduler:UpdateSchedule",
        "scheduler:GetSchedule",
        "scheduler:DeleteSchedule",
    ]
    passed = {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}
    return _policy(
        {"Effect": "Allow", "Action": actions, "Resource": schedule_arn},
        {"Effect": "Allow", "Action": ["iam:PassRole"], "Resource": role_arn, "Condition": passed},
    )


def _assumed_by(service: str) -> Policy:
    return {"Effect": "Allow", "Principal": {"Service": service}, "Action": ["sts:AssumeRole"]}


def _policy(*statements: Mapping[str, Any]) -> Policy:
    return {"Version": "2012-10-17", "Statement": [dict(statement) for statement in statements]}
