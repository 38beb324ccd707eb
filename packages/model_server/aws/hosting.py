"""SageMaker's hosting operations: what ``X-Amz-Target: SageMaker.<operation>`` asks for and what it gets."""

from collections.abc import Callable, Mapping
from typing import Any

from model_server.aws.endpoints import Endpoint, Endpoints, Fleet, ProductionVariant
from model_server.aws.faults import not_here, validation
from model_server.aws.registry import CreatedResource, Parameters, Registry, page
from trtllm_check.recipes.service_model import constraint_problems, form_problems, service_model

Operation = Callable[[Parameters], Mapping[str, Any]]
PASSING = frozenset({"Creating", "Updating", "Deleting"})


class Hosting:
    """Answers the operations on models, endpoint configurations, endpoints and tags."""

    def __init__(self, registry: Registry, endpoints: Endpoints) -> None:
        self._registry = registry
        self._endpoints = endpoints
        self._operations: dict[str, Operation] = {
            "CreateModel": registry.create_model,
            "DescribeModel": lambda asked: self._describe(self._model(asked), "Model"),
            "ListModels": self._list_models,
            "DeleteModel": lambda asked: registry.delete(registry.models, "model", asked["ModelName"]),
            "CreateEndpointConfig": registry.create_endpoint_config,
            "DescribeEndpointConfig": lambda asked: self._describe(self._config(asked), "EndpointConfig"),
            "ListEndpointConfigs": self._list_configs,
            "DeleteEndpointConfig": lambda asked: registry.delete(
                registry.configs, "endpoint-config", asked["EndpointConfigName"]
            ),
            "CreateEndpoint": endpoints.create,
            "DescribeEndpoint": lambda asked: describe_endpoint(endpoints.find(asked["EndpointName"])),
            "ListEndpoints": self._list_endpoints,
            "UpdateEndpoint": endpoints.update,
            "DeleteEndpoint": endpoints.delete,
            "AddTags": registry.add_tags,
            "ListTags": registry.list_tags,
            "DeleteTags": registry.delete_tags,
        }

    def call(self, operation: str, asked: Parameters) -> Mapping[str, Any]:
        """The answer's members; raises :class:`AwsFault`."""
        act = self._operations.get(operation)
        if act is None:
            raise not_here(f"SageMaker {operation}")
        check_request(operation, asked)
        return act(asked)

    def _model(self, asked: Parameters) -> CreatedResource:
        return self._registry.find(self._registry.models, "model", asked["ModelName"])

    def _config(self, asked: Parameters) -> CreatedResource:
        return self._registry.find(self._registry.configs, "endpoint-config", asked["EndpointConfigName"])

    def _describe(self, record: CreatedResource, kind: str) -> dict[str, Any]:
        """What was asked for, as far as the answer has room for it. Nothing that was not given appears."""
        members = service_model("sagemaker").operation_model(f"Describe{kind}").output_shape.members
        known = {key: value for key, value in record.asked.items() if key in members}
        return {**known, f"{kind}Arn": record.arn, "CreationTime": record.created}

    def _list_models(self, asked: Parameters) -> dict[str, Any]:
        return _list(self._registry.models.values(), asked, "Model", "Models")

    def _list_configs(self, asked: Parameters) -> dict[str, Any]:
        return _list(self._registry.configs.values(), asked, "EndpointConfig", "EndpointConfigs")

    def _list_endpoints(self, asked: Parameters) -> dict[str, Any]:
        summaries = [
            {
                "EndpointName": endpoint.name,
                "EndpointArn": endpoint.arn,
                "CreationTime": endpoint.created,
                "LastModifiedTime": endpoint.modified,
                "EndpointStatus": endpoint.status,
            }
            for endpoint in self._endpoints.all()
        ]
        return page(summaries, asked, key="Endpoints", name_of=lambda summary: str(summary["EndpointName"]))


def check_request(operation: str, asked: Parameters) -> None:
    """Raise a ValidationException that names every wrong member, as far as SageMaker itself would."""
    shape = service_model("sagemaker").operation_model(operation).input_shape
    if report := form_problems(shape, asked):
        raise validation(f"{operation}: {report}")
    if problems := list(constraint_problems(shape, asked)):
        raise validation(f"{operation}, {len(problems)} wrong: {'; '.join(problems)}")


def describe_endpoint(endpoint: Endpoint) -> dict[str, Any]:
    """DescribeEndpoint's answer, without empty members."""
    fleet = endpoint.serving or endpoint.coming
    answer: dict[str, Any] = {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "EndpointStatus": endpoint.status,
        "CreationTime": endpoint.created,
        "LastModifiedTime": endpoint.modified,
    }
    if fleet is not None:
        answer["EndpointConfigName"] = fleet.config
        answer["ProductionVariants"] = [
            _describe_variant(variant, fleet, endpoint.status) for variant in fleet.variants
        ]
    if endpoint.failure:
        answer["FailureReason"] = endpoint.failure
    if endpoint.deployment:
        answer["LastDeploymentConfig"] = endpoint.deployment
    if endpoint.serving is not None and endpoint.coming is not None:
        answer["PendingDeploymentSummary"] = {
            "EndpointConfigName": endpoint.coming.config,
            "StartTime": endpoint.coming.started,
            "ProductionVariants": [
                _describe_variant(variant, endpoint.coming, "Creating") for variant in endpoint.coming.variants
            ],
        }
    return answer


def _describe_variant(variant: ProductionVariant, fleet: Fleet, status: str) -> dict[str, Any]:
    image = variant.model["PrimaryContainer"]["Image"]
    running = variant.container is not None
    answer = {
        "VariantName": variant.name,
        "CurrentWeight": variant.weight,
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": variant.instances if running else 0,
        "DesiredInstanceCount": variant.instances,
        "DeployedImages": [{"SpecifiedImage": image, "ResolutionTime": fleet.started}],
    }
    if status in PASSING:
        answer["VariantStatus"] = [{"Status": status, "StartTime": fleet.started}]
    for key in ("ManagedInstanceScaling", "RoutingConfig"):
        if key in variant.asked:
            answer[key] = variant.asked[key]
    return answer


def _list(records: Any, asked: Parameters, kind: str, key: str) -> dict[str, Any]:
    summaries = [
        {f"{kind}Name": record.name, f"{kind}Arn": record.arn, "CreationTime": record.created} for record in records
    ]
    return page(summaries, asked, key=key, name_of=lambda summary: str(summary[f"{kind}Name"]))
