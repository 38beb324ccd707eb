"""Endpoints and the containers behind them: created, updated and deleted while their status can be watched."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from model_server.aws.faults import AwsFault, not_here, validation
from model_server.aws.registry import Parameters, Registry, already_exists, could_not_find, read_tags

HEALTH_CHECK_TIMEOUT_S = 240
SERVING = frozenset({"InService", "Updating"})
REASON_LIMIT = 1024


class ContainerFailed(Exception):
    """A container that did not come into service, and why."""


class Container(Protocol):
    """A container process of one variant."""

    @property
    def url(self) -> str: ...
    def wait_until_healthy(self, timeout_s: float, cancelled: threading.Event) -> None:
        """Raises :class:`ContainerFailed`."""

    def stop(self) -> None: ...


class Launcher(Protocol):
    """Starts containers."""

    def start(self, endpoint: str, variant: str, model: Parameters) -> Container:
        """``model``: a CreateModel request. Raises :class:`ContainerFailed`."""


@dataclass
class ProductionVariant:
    """A production variant. It has one container here, whatever its instance count says."""

    asked: Parameters
    model: Parameters
    weight: float
    instances: int
    container: Container | None = None

    @property
    def name(self) -> str:
        return str(self.asked["VariantName"])


@dataclass
class Fleet:
    """The variants of one endpoint configuration."""

    config: str
    variants: list[ProductionVariant]
    started: float = field(default_factory=time.time)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self) -> None:
        """Each container is stopped once, also when a deletion meets a start that has just failed."""
        with self.lock:
            containers = [variant.container for variant in self.variants]
            for variant in self.variants:
                variant.container = None
        for container in containers:
            if container is not None:
                container.stop()


@dataclass
class Endpoint:
    """An endpoint; ``serving`` answers requests, ``coming`` is on its way into service."""

    name: str
    arn: str
    coming: Fleet | None
    serving: Fleet | None = None
    status: str = "Creating"
    failure: str = ""
    deployment: Parameters | None = None
    created: float = field(default_factory=time.time)
    modified: float = field(default_factory=time.time)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def become(self, status: str, failure: str = "") -> None:
        self.status, self.failure, self.modified = status, failure, time.time()


class Endpoints:
    """All endpoints of a :class:`Registry`."""

    def __init__(self, registry: Registry, launcher: Launcher) -> None:
        self._registry = registry
        self._launcher = launcher
        self._endpoints: dict[str, Endpoint] = {}
        self._lock = registry.lock
        self._random = random.Random(0)

    def create(self, asked: Parameters) -> dict[str, Any]:
        if "DeploymentConfig" in asked:
            raise not_here("a DeploymentConfig at CreateEndpoint; give it to UpdateEndpoint")
        with self._lock:
            name, arn = asked["EndpointName"], self._registry.arn("endpoint", asked["EndpointName"])
            if name in self._endpoints:
                raise already_exists("endpoint", arn)
            endpoint = Endpoint(name, arn, self._fleet(asked["EndpointConfigName"]))
            self._endpoints[name] = endpoint
            self._registry.tags[arn] = read_tags(asked)
        self._begin(self._deploy, endpoint)
        return {"EndpointArn": arn}

    def update(self, asked: Parameters) -> dict[str, Any]:
        """Blue/green: the old containers serve until the new ones are healthy. Canary waits are kept, not waited."""
        with self._lock:
            endpoint = self.find(asked["EndpointName"])
            if endpoint.status != "InService" or endpoint.serving is None:
                raise validation(f"Cannot update endpoint {endpoint.arn}: its status is {endpoint.status}.")
            fleet = self._fleet(asked["EndpointConfigName"])
            if asked.get("RetainAllVariantProperties"):
                excluded = {item["VariantPropertyType"] for item in asked.get("ExcludeRetainedVariantProperties", [])}
                _retain(endpoint.serving, fleet, excluded)
            if not asked.get("RetainDeploymentConfig"):
                endpoint.deployment = asked.get("DeploymentConfig")
            endpoint.coming = fleet
            endpoint.become("Updating")
        self._begin(self._deploy, endpoint)
        return {"EndpointArn": endpoint.arn}

    def delete(self, asked: Parameters) -> dict[str, Any]:
        with self._lock:
            endpoint = self.find(asked["EndpointName"])
            if endpoint.status == "Deleting":
                raise validation(f"Endpoint {endpoint.arn} is being deleted already.")
            endpoint.become("Deleting")
            endpoint.cancelled.set()
        self._begin(self._remove, endpoint)
        return {}

    def find(self, name: str) -> Endpoint:
        """The endpoint, or SageMaker's ValidationException."""
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise could_not_find("endpoint", self._registry.arn("endpoint", name))
        return endpoint

    def all(self) -> list[Endpoint]:
        with self._lock:
            return list(self._endpoints.values())

    def route(self, name: str, target: str = "") -> tuple[str, str]:
        """Variant name and container address for one request: ``target``, or one drawn by the weights."""
        with self._lock:
            endpoint = self._endpoints.get(name)
            if endpoint is None:
                raise _invalid(f"Endpoint {name} of account {self._registry.account} not found.")
            if endpoint.status not in SERVING or endpoint.serving is None:
                raise _invalid(f"Endpoint {name} is not in service: its status is {endpoint.status}.")
            variants = endpoint.serving.variants
            if target and target not in [variant.name for variant in variants]:
                raise _invalid(f"Endpoint {name} has no variant {target}.")
            variant = next((v for v in variants if v.name == target), None) or self._draw(variants)
            if variant.container is None:
                raise AwsFault(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", f"{variant.name} has no container")
            return variant.name, variant.container.url

    def close(self) -> None:
        """Stop every container."""
        for endpoint in self.all():
            endpoint.cancelled.set()
        for endpoint in self.all():
            for fleet in (endpoint.coming, endpoint.serving):
                if fleet is not None:
                    fleet.stop()

    def _draw(self, variants: list[ProductionVariant]) -> ProductionVariant:
        weights = [variant.weight for variant in variants]
        if not sum(weights):
            raise _invalid("every variant of the endpoint has the weight 0")
        return self._random.choices(variants, weights)[0]

    def _fleet(self, config_name: str) -> Fleet:
        config = self._registry.find(self._registry.configs, "endpoint-config", config_name)
        variants = []
        for asked in config.asked["ProductionVariants"]:
            model = self._registry.find(self._registry.models, "model", asked["ModelName"])
            weight, count = asked.get("InitialVariantWeight", 1.0), asked.get("InitialInstanceCount", 1)
            variants.append(ProductionVariant(asked, model.asked, weight, count))
        return Fleet(config_name, variants)

    def _begin(self, work: Callable[[Endpoint], None], endpoint: Endpoint) -> None:
        threading.Thread(target=work, args=(endpoint,), name=endpoint.name, daemon=True).start()

    def _deploy(self, endpoint: Endpoint) -> None:
        fleet = endpoint.coming
        assert fleet is not None
        try:
            self._launch(endpoint, fleet)
        except ContainerFailed as error:
            fleet.stop()
            self._give_up(endpoint, str(error)[:REASON_LIMIT])
            return
        except Exception as error:
            fleet.stop()
            self._give_up(endpoint, f"the local cloud could not start the container: {error!r}"[:REASON_LIMIT])
            raise
        with self._lock:
            deleted = endpoint.cancelled.is_set()
            if not deleted:
                old, endpoint.serving, endpoint.coming = endpoint.serving, fleet, None
                endpoint.become("InService")
        if deleted:
            fleet.stop()
        elif old is not None:
            old.stop()

    def _launch(self, endpoint: Endpoint, fleet: Fleet) -> None:
        for variant in fleet.variants:
            if endpoint.cancelled.is_set():
                raise ContainerFailed("the endpoint was deleted")
            variant.container = self._launcher.start(endpoint.name, variant.name, variant.model)
        for variant in fleet.variants:
            assert variant.container is not None
            timeout = variant.asked.get("ContainerStartupHealthCheckTimeoutInSeconds", HEALTH_CHECK_TIMEOUT_S)
            variant.container.wait_until_healthy(timeout, endpoint.cancelled)

    def _give_up(self, endpoint: Endpoint, reason: str) -> None:
        """A failed creation is final; a failed update leaves the old fleet in service."""
        with self._lock:
            if endpoint.status != "Deleting":
                endpoint.coming = None if endpoint.serving is not None else endpoint.coming
                endpoint.become("InService" if endpoint.serving is not None else "Failed", reason)

    def _remove(self, endpoint: Endpoint) -> None:
        for fleet in (endpoint.coming, endpoint.serving):
            if fleet is not None:
                fleet.stop()
        with self._lock:
            self._endpoints.pop(endpoint.name, None)
            self._registry.tags.pop(endpoint.arn, None)


def _invalid(message: str) -> AwsFault:
    """The runtime's name for a request that makes no sense."""
    return AwsFault(HTTPStatus.BAD_REQUEST, "ValidationError", message)


def _retain(old: Fleet, new: Fleet, excluded: Iterable[str]) -> None:
    before: Mapping[str, ProductionVariant] = {variant.name: variant for variant in old.variants}
    for variant in new.variants:
        known = before.get(variant.name)
        if known is not None and "DesiredWeight" not in excluded:
            variant.weight = known.weight
        if known is not None and "DesiredInstanceCount" not in excluded:
            variant.instances = known.instances
