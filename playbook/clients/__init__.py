"""Clients of the served model: the production client, and thin ones for each server (`triton`, `sagemaker`, `aws`).

Every name is loaded when it is first used, so importing the package costs nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playbook.clients.client import Client as Client
    from playbook.clients.client import finish as finish
    from playbook.clients.errors import BrokenStream as BrokenStream
    from playbook.clients.errors import Cancelled as Cancelled
    from playbook.clients.errors import ClientError as ClientError
    from playbook.clients.errors import DeadlineExceeded as DeadlineExceeded
    from playbook.clients.errors import Overloaded as Overloaded
    from playbook.clients.errors import QueueFull as QueueFull
    from playbook.clients.errors import Refused as Refused
    from playbook.clients.errors import TimedOut as TimedOut
    from playbook.clients.errors import Unreachable as Unreachable
    from playbook.clients.faults import FAULTS as FAULTS
    from playbook.clients.requests import SamplingOptions as SamplingOptions
    from playbook.clients.requests import TextRequest as TextRequest
    from playbook.clients.requests import TextResult as TextResult
    from playbook.clients.requests import Timeouts as Timeouts
    from playbook.clients.retry import ONCE as ONCE
    from playbook.clients.retry import RetryBudget as RetryBudget
    from playbook.clients.retry import RetryPolicy as RetryPolicy
    from playbook.clients.retry import may_repeat as may_repeat
    from playbook.clients.sagemaker_endpoint import SageMakerEndpoint as SageMakerEndpoint
    from playbook.clients.sagemaker_endpoint import one_attempt as one_attempt
    from playbook.clients.security import Credential as Credential
    from playbook.clients.security import Secret as Secret
    from playbook.clients.security import Tls as Tls
    from playbook.clients.triton_grpc import TritonGrpc as TritonGrpc
    from playbook.clients.triton_http import TritonHttp as TritonHttp

_HOME = {
    "BrokenStream": "errors",
    "Cancelled": "errors",
    "Client": "client",
    "ClientError": "errors",
    "Credential": "security",
    "DeadlineExceeded": "errors",
    "FAULTS": "faults",
    "ONCE": "retry",
    "Overloaded": "errors",
    "QueueFull": "errors",
    "Refused": "errors",
    "RetryBudget": "retry",
    "RetryPolicy": "retry",
    "SageMakerEndpoint": "sagemaker_endpoint",
    "SamplingOptions": "requests",
    "Secret": "security",
    "TextRequest": "requests",
    "TextResult": "requests",
    "TimedOut": "errors",
    "Timeouts": "requests",
    "Tls": "security",
    "TritonGrpc": "triton_grpc",
    "TritonHttp": "triton_http",
    "Unreachable": "errors",
    "finish": "client",
    "may_repeat": "retry",
    "one_attempt": "sagemaker_endpoint",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
