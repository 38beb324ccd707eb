"""The requests that put an LMI container behind a SageMaker endpoint: exactly the dictionaries that boto3 takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from serving_base.errors import UsageError
from trtllm_check.recipes.service_model import request_problems

__all__ = [
    "EndpointSpec",
    "create_endpoint",
    "create_endpoint_config",
    "create_model",
    "create_schedule",
    "ending_policy",
    "ending_trust_policy",
    "execution_policy",
    "expires_at",
    "invoke_endpoint",
    "invoke_policy",
    "is_ours",
    "put_metric_alarm",
    "put_scaling_policy",
    "register_scalable_target",
    "schedule_name",
    "scheduling_policy",
    "tags",
    "trust_policy",
    "update_endpoint",
    "validate",
]


Policy = dict[str, Any]
Request = dict[str, Any]
VARIANT = "AllTraffic"
OWNER_TAG, OWNER = "playbook", "llama3-fp8"
EXPIRY_TAG = "playbook-expires"
CANARY_PERCENT = 10
DELETE_ENDPOINT = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
"""EventBridge Scheduler's name for the call (AWS documentation, "Using universal targets")."""
RETRIES = {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 86400}
"""The most that the API allows: an endpoint that is being created or updated may refuse its deletion for a while."""
Strategy = Literal["canary", "rolling"]
ScalingMetric = Literal[
    "SageMakerVariantConcurrentRequestsPerModelHighResolution", "SageMakerVariantInvocationsPerInstance"
]
CONCURRENCY_METRIC: ScalingMetric = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


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


@dataclass(frozen=True)
class EndpointSpec:
    """One endpoint with one variant. ``version`` names the model and the configuration, which cannot be changed later.

    ``model_data``: ``s3://.../model.tar.gz``, or a folder (``s3://.../``), which SageMaker copies to ``/opt/ml/model``.
    Without network the container fetches nothing itself, so the folder must then hold the model, too.
    """

    name: str
    image_uri: str
    model_data: str
    role_arn: str
    expires_at: datetime
    version: int = 1
    instance_type: str = "ml.p5.48xlarge"
    instance_count: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    network_isolation: bool = False
    subnet_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    kms_key_id: str = ""
    startup_timeout_s: int = 1800
    download_timeout_s: int = 1800

    def __post_init__(self) -> None:
        if self.expires_at.tzinfo is None:
            raise UsageError("expires_at has no time zone", fix="use datetime.now(UTC) + timedelta(minutes=...)")
        if self.network_isolation and not self.model_data.endswith("/"):
            raise UsageError(
                "an isolated container needs its model as a folder in S3",
                why="without network it cannot fetch option.model_id; SageMaker itself copies a folder beforehand",
                fix="upload serving.properties and the engine under one prefix and pass s3://.../ as model_data",
            )

    @property
    def model_name(self) -> str:
        """Also the name of the endpoint's configuration."""
        return f"{self.name}-v{self.version}"

    @property
    def scaling_target(self) -> Request:
        return {
            "ServiceNamespace": "sagemaker",
            "ResourceId": f"endpoint/{self.name}/variant/{VARIANT}",
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        }


def validate(service: str, operation: str, request: Mapping[str, Any]) -> list[str]:
    """What botocore's model of ``service`` forbids in ``request``: names, types, enums, patterns, limits."""
    return request_problems(service, operation, request)


def tags(spec: EndpointSpec) -> list[dict[str, str]]:
    """Whose it is, and until when it may live. SageMaker itself ends nothing then: :func:`create_schedule` does."""
    expiry = spec.expires_at.astimezone(UTC).isoformat(timespec="seconds")
    return [{"Key": OWNER_TAG, "Value": OWNER}, {"Key": EXPIRY_TAG, "Value": expiry}]


def is_ours(found: Sequence[Mapping[str, str]]) -> bool:
    """True if these tags are of an endpoint that the playbook made."""
    return {"Key": OWNER_TAG, "Value": OWNER} in [dict(tag) for tag in found]


def expires_at(found: Sequence[Mapping[str, str]]) -> datetime | None:
    """When the time to live in these tags is over; None without one."""
    for tag in found:
        if tag["Key"] == EXPIRY_TAG:
            return datetime.fromisoformat(tag["Value"])
    return None


def create_model(spec: EndpointSpec) -> Request:
    """Image, model data and role under one name. Costs nothing."""
    container: Request = {"Image": spec.image_uri, "Environment": dict(spec.environment)}
    if spec.model_data.endswith("/"):
        source = {"S3Uri": spec.model_data, "S3DataType": "S3Prefix", "CompressionType": "None"}
        container["ModelDataSource"] = {"S3DataSource": source}
    else:
        container["ModelDataUrl"] = spec.model_data
    request: Request = {
        "ModelName": spec.model_name,
        "PrimaryContainer": container,
        "ExecutionRoleArn": spec.role_arn,
        "EnableNetworkIsolation": spec.network_isolation,
        "Tags": tags(spec),
    }
    if spec.subnet_ids:
        request["VpcConfig"] = {"Subnets": list(spec.subnet_ids), "SecurityGroupIds": list(spec.security_group_ids)}
    return request


def create_endpoint_config(spec: EndpointSpec) -> Request:
    """Which instances, how many, and how long they may take to start. Costs nothing."""
    variant = {
        "VariantName": VARIANT,
        "ModelName": spec.model_name,
        "InstanceType": spec.instance_type,
        "InitialInstanceCount": spec.instance_count,
        "InitialVariantWeight": 1.0,
        "ModelDataDownloadTimeoutInSeconds": spec.download_timeout_s,
        "ContainerStartupHealthCheckTimeoutInSeconds": spec.startup_timeout_s,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    request: Request = {
        "EndpointConfigName": spec.model_name,
        "ProductionVariants": [variant],
        "Tags": tags(spec),
    }
    return request | ({"KmsKeyId": spec.kms_key_id} if spec.kms_key_id else {})


def create_endpoint(spec: EndpointSpec) -> Request:
    """From here on it bills, until the endpoint is deleted."""
    return {"EndpointName": spec.name, "EndpointConfigName": spec.model_name, "Tags": tags(spec)}


def schedule_name(name: str) -> str:
    """The schedule that ends endpoint ``name``."""
    return f"{name}-end"


def create_schedule(spec: EndpointSpec, role_arn: str) -> Request:
    """The end of the time to live: EventBridge Scheduler deletes the endpoint then, under ``role_arn``, once.

    For ``create_schedule`` and ``update_schedule`` of boto3's "scheduler" alike. Send it before ``create_endpoint``:
    a run that dies in between leaves a schedule without an endpoint, never an endpoint without an end. AWS calls the
    target within the minute that the time names, and deletes the schedule after the call.
    """
    end = spec.expires_at.astimezone(UTC)
    return {
        "Name": schedule_name(spec.name),
        "Description": f"Ends endpoint {spec.name} of the Llama-3 FP8 playbook",
        "ScheduleExpression": f"at({end:%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": DELETE_ENDPOINT,
            "RoleArn": role_arn,
            "Input": json.dumps({"EndpointName": spec.name}),
            "RetryPolicy": RETRIES,
        },
    }


def update_endpoint(spec: EndpointSpec, strategy: Strategy, *, alarms: Sequence[str] = ()) -> Request:
    """Move a running endpoint to the configuration of this ``version``, back again if one of ``alarms`` goes off.

    "canary" starts a second fleet and gives it 10 % first: for a while twice the instances bill. "rolling" replaces
    them in batches of at most a half (the API's limit), and needs that many more.
    """
    policy: Request = {}
    if strategy == "canary":
        policy["BlueGreenUpdatePolicy"] = {
            "TrafficRoutingConfiguration": {
                "Type": "CANARY",
                "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": CANARY_PERCENT},
                "WaitIntervalInSeconds": 300,
            },
            "TerminationWaitInSeconds": 300,
            "MaximumExecutionTimeoutInSeconds": 2 * spec.startup_timeout_s,
        }
    else:
        policy["RollingUpdatePolicy"] = {
            "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 50},
            "WaitIntervalInSeconds": 300,
            "MaximumExecutionTimeoutInSeconds": 2 * spec.startup_timeout_s,
        }
    if alarms:
        policy["AutoRollbackConfiguration"] = {"Alarms": [{"AlarmName": name} for name in alarms]}
    return {
        "EndpointName": spec.name,
        "EndpointConfigName": spec.model_name,
        "RetainAllVariantProperties": True,
        "DeploymentConfig": policy,
    }


def put_metric_alarm(spec: EndpointSpec, *, metric: str = "Invocation5XXErrors") -> Request:
    """Goes off after one minute with an error: what rolls an update back."""
    return {
        "AlarmName": f"{spec.name}-{metric}",
        "Namespace": "AWS/SageMaker",
        "MetricName": metric,
        "Dimensions": [
            {"Name": "EndpointName", "Value": spec.name},
            {"Name": "VariantName", "Value": VARIANT},
        ],
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "notBreaching",
    }


def register_scalable_target(spec: EndpointSpec, *, min_instances: int, max_instances: int) -> Request:
    return {**spec.scaling_target, "MinCapacity": min_instances, "MaxCapacity": max_instances}


def put_scaling_policy(spec: EndpointSpec, *, target: float, metric: ScalingMetric = CONCURRENCY_METRIC) -> Request:
    """Keep ``metric`` per instance near ``target``. Concurrency is measured every 10 s, invocations every 60 s.

    A large model takes minutes to start, so instances are given back slowly.
    """
    return {
        **spec.scaling_target,
        "PolicyName": f"{spec.name}-{metric}",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": target,
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
            "ScaleOutCooldown": 60,
            "ScaleInCooldown": 900,
        },
    }


def invoke_endpoint(spec: EndpointSpec, body: str) -> Request:
    """For ``invoke_endpoint`` and ``invoke_endpoint_with_response_stream`` alike."""
    return {"EndpointName": spec.name, "ContentType": "application/json", "Body": body}
