"""Sessions of the AWS SDK: one that can reach nothing but this machine, and one for a real account."""

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from serving_base.errors import EnvironmentProblem, UsageError
from serving_clients.security import is_loopback

DUMMY = "testing"
"""Access key and secret key of the loopback: a signature that no real account accepts."""
READ_TIMEOUT_S = 70.0
"""A container may take 60 s to answer (InvokeEndpoint in botocore's model of sagemaker-runtime)."""


@dataclass(frozen=True)
class AwsSession:
    """Makes boto3 clients. ``endpoint_url`` is empty for a real account; ``boto`` is the ``boto3.Session``."""

    boto: Any
    region: str
    endpoint_url: str = ""

    @property
    def is_loopback(self) -> bool:
        return bool(self.endpoint_url)

    def client(self, service: str, config: Any = None) -> Any:
        """A boto3 client; ``config``: a ``botocore.config.Config`` over this session's own."""
        own = _config()
        return self.boto.client(service, config=own.merge(config) if config else own)


def loopback_session(endpoint_url: str, region: str, *, secret: str = DUMMY) -> AwsSession:
    """A session for a local AWS at ``endpoint_url``. It takes nothing from the environment or from ``~/.aws``.

    Raises :class:`UsageError` for an address that is not on this machine. Whatever a client is told later, a request
    to another host is stopped before it is sent. Its ``boto`` may be given to other SDKs: they reach the same place.
    """
    host = urlsplit(endpoint_url).hostname or ""
    if not is_loopback(host):
        raise UsageError(
            f"{endpoint_url} is not on this machine",
            why="the dummy credentials are for the local cloud only",
            fix="use an address such as http://127.0.0.1:5000, or real_session() for a real account",
        )
    session = _deaf_session()
    session.set_credentials(DUMMY, secret)
    session.register("before-send", refuse_other_hosts)
    return AwsSession(_bound_session(session, region, endpoint_url), region, endpoint_url)


def real_session(region: str = "") -> AwsSession:
    """A session with boto3's own credentials chain: environment, profile, SSO, the instance's role.

    Raises :class:`EnvironmentProblem` without credentials or region.
    """
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        boto = boto3.Session(region_name=region or None)
        credentials = boto.get_credentials()
    except BotoCoreError as error:
        raise EnvironmentProblem("the AWS configuration cannot be used", why=str(error), fix="mend it") from error
    if credentials is None:
        raise EnvironmentProblem(
            "there are no AWS credentials on this machine",
            why="boto3 looked in the environment, in ~/.aws and at the instance's role",
            fix="aws sso login, or attach a role to the instance; never write keys into a notebook",
        )
    if not boto.region_name:
        raise EnvironmentProblem("no AWS region is set", fix="pass region=, or export AWS_DEFAULT_REGION")
    return AwsSession(boto, boto.region_name)


def refuse_other_hosts(request: Any, **_event: Any) -> None:
    """Handler of botocore's ``before-send``: :class:`UsageError` unless the request stays on this machine."""
    host = urlsplit(request.url).hostname or ""
    if not is_loopback(host):
        raise UsageError(
            f"a request to {host} was stopped",
            why="this session is for the local cloud, and no request of it may leave the machine",
            fix="use real_session() for a real account",
        )


def _bound_session(session: Any, region: str, endpoint_url: str) -> Any:
    """A ``boto3.Session`` all of whose clients go to ``endpoint_url``, whatever they are told."""
    import boto3
    from botocore.config import Config

    # Without a proxy even where the environment names one, and with bucket names in the path.
    local = Config(proxies={}, s3={"addressing_style": "path"})

    class BoundSession(boto3.Session):  # type: ignore[misc]
        def client(self, service_name: str, *args: Any, **options: Any) -> Any:
            options["config"] = (options.get("config") or Config()).merge(local)
            return super().client(service_name, *args, **options | {"endpoint_url": endpoint_url})

    return BoundSession(botocore_session=session, region_name=region)


def _deaf_session() -> Any:
    """A botocore session without its environment variables and files: every setting has its default."""
    from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES as VARIABLES
    from botocore.session import Session

    deaf = {name: (None, None, default, convert) for name, (_, _, default, convert) in VARIABLES.items()}
    for name in ("config_file", "credentials_file"):
        deaf[name] = (None, None, os.devnull, None)
    return Session(session_vars=deaf)


def _config() -> Any:
    from botocore.config import Config

    return Config(read_timeout=READ_TIMEOUT_S, connect_timeout=10, retries={"mode": "standard"})
