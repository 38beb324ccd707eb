"""What SageMaker keeps about models and endpoint configurations: names, what was asked for, tags, lists."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model_server.aws.faults import not_here, validation

Parameters = Mapping[str, Any]
PAGE = 100
NOT_HERE = {
    "ServerlessConfig": "serverless variants",
    "AsyncInferenceConfig": "asynchronous inference",
    "ShadowProductionVariants": "shadow variants",
    "Containers": "models of several containers",
    "InferenceExecutionConfig": "models of several containers",
    "ExplainerConfig": "explainers",
}


@dataclass(frozen=True)
class CreatedResource:
    """A thing as it was created. ``asked`` is the request without its tags."""

    name: str
    arn: str
    asked: Parameters
    created: float = field(default_factory=time.time)


class Registry:
    """Models and endpoint configurations of one account and region, and everything's tags. Safe for threads."""

    def __init__(self, account: str, region: str) -> None:
        self.account, self.region = account, region
        self.lock = threading.RLock()
        self.models: dict[str, CreatedResource] = {}
        self.configs: dict[str, CreatedResource] = {}
        self.tags: dict[str, dict[str, str]] = {}

    def arn(self, kind: str, name: str) -> str:
        return f"arn:aws:sagemaker:{self.region}:{self.account}:{kind}/{name}"

    def create_model(self, asked: Parameters) -> dict[str, Any]:
        refuse_missing_features(asked)
        container = asked.get("PrimaryContainer", {})
        if not container.get("Image"):
            raise not_here("models without PrimaryContainer.Image, such as model packages")
        return {"ModelArn": self._create(self.models, "model", asked["ModelName"], asked).arn}

    def create_endpoint_config(self, asked: Parameters) -> dict[str, Any]:
        refuse_missing_features(asked)
        names = [variant["VariantName"] for variant in asked["ProductionVariants"]]
        if len(set(names)) < len(names):
            raise validation(f"Variant names must be unique, and these are not: {', '.join(names)}")
        with self.lock:
            for variant in asked["ProductionVariants"]:
                refuse_missing_features(variant)
                if "ModelName" not in variant:
                    raise not_here("variants without ModelName, as inference components have them")
                self.find(self.models, "model", variant["ModelName"])
            record = self._create(self.configs, "endpoint-config", asked["EndpointConfigName"], asked)
        return {"EndpointConfigArn": record.arn}

    def find(self, records: Mapping[str, CreatedResource], kind: str, name: str) -> CreatedResource:
        """The record, or SageMaker's ValidationException."""
        record = records.get(name)
        if record is None:
            raise could_not_find(kind, self.arn(kind, name))
        return record

    def delete(self, records: dict[str, CreatedResource], kind: str, name: str) -> dict[str, Any]:
        with self.lock:
            record = self.find(records, kind, name)
            del records[name]
            self.tags.pop(record.arn, None)
        return {}

    def add_tags(self, asked: Parameters) -> dict[str, Any]:
        with self.lock:
            tags = self.tags.setdefault(asked["ResourceArn"], {})
            tags |= read_tags(asked)
        return {"Tags": write_tags(tags)}

    def list_tags(self, asked: Parameters) -> dict[str, Any]:
        return {"Tags": write_tags(self.tags.get(asked["ResourceArn"], {}))}

    def delete_tags(self, asked: Parameters) -> dict[str, Any]:
        with self.lock:
            tags = self.tags.get(asked["ResourceArn"], {})
            for key in asked["TagKeys"]:
                tags.pop(key, None)
        return {}

    def _create(self, records: dict[str, CreatedResource], kind: str, name: str, asked: Parameters) -> CreatedResource:
        record = CreatedResource(
            name, self.arn(kind, name), {key: value for key, value in asked.items() if key != "Tags"}
        )
        with self.lock:
            if name in records:
                raise already_exists(kind, record.arn)
            records[name] = record
            self.tags[record.arn] = read_tags(asked)
        return record


def refuse_missing_features(asked: Parameters) -> None:
    """Raise the fault that names the first thing in ``asked`` that this cloud does not have."""
    for key in asked:
        if key in NOT_HERE:
            raise not_here(f"{NOT_HERE[key]} ({key})")


def could_not_find(kind: str, arn: str) -> Exception:
    return validation(f'Could not find {kind.replace("-", " ")} "{arn}".')


def already_exists(kind: str, arn: str) -> Exception:
    return validation(f'Cannot create already existing {kind.replace("-", " ")} "{arn}".')


def read_tags(asked: Parameters) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in asked.get("Tags", [])}


def write_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def page(
    summaries: Iterable[dict[str, Any]], asked: Parameters, *, key: str, name_of: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    """A List answer: filtered, sorted and cut as ``asked``, with a NextToken while there is more."""
    chosen = [summary for summary in summaries if _wanted(summary, asked, name_of(summary))]
    by_name = asked.get("SortBy") == "Name"
    # SageMaker's default is the newest first.
    descending = asked.get("SortOrder", "Descending") == "Descending"
    chosen.sort(key=name_of if by_name else lambda summary: summary["CreationTime"], reverse=descending)
    start, size = int(asked.get("NextToken", 0)), asked.get("MaxResults", PAGE)
    answer: dict[str, Any] = {key: chosen[start : start + size]}
    if start + size < len(chosen):
        answer["NextToken"] = str(start + size)
    return answer


def _wanted(summary: Mapping[str, Any], asked: Parameters, name: str) -> bool:
    created = summary["CreationTime"]
    return (
        asked.get("NameContains", "").lower() in name.lower()
        and asked.get("StatusEquals", summary.get("EndpointStatus")) == summary.get("EndpointStatus")
        and asked.get("CreationTimeAfter", created) <= created <= asked.get("CreationTimeBefore", created)
    )
