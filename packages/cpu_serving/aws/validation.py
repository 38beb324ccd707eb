"""Checks a request against botocore's own model of the service, as far as SageMaker itself would."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from cpu_serving.aws.faults import validation


class ServiceModel:
    """One service of botocore. ``check`` raises a ValidationException that names every wrong member."""

    def __init__(self, service: str) -> None:
        self._service = service

    @cached_property
    def _model(self) -> Any:
        import botocore.session

        return botocore.session.get_session().get_service_model(self._service)

    def output_members(self, operation: str) -> frozenset[str]:
        """Names of what an operation answers."""
        return frozenset(self._model.operation_model(operation).output_shape.members)

    def check(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """Names, types and required members by botocore's validator; enums, patterns and limits by the model."""
        from botocore.validate import ParamValidator

        from trtllm_check.recipes.service_model import constraint_problems

        shape = self._model.operation_model(operation).input_shape
        report = ParamValidator().validate(dict(parameters), shape)
        if report.has_errors():
            raise validation(f"{operation}: {report.generate_report()}")
        problems = list(constraint_problems(shape, parameters, ""))
        if problems:
            raise validation(f"{operation}, {len(problems)} wrong: {'; '.join(problems)}")
