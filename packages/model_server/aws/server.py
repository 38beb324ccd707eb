"""Starts and ends the local cloud, a fake AWS in a process of its own, and keeps its processes on this machine."""

import ipaddress
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from serving_base.errors import EnvironmentProblem, ServerError
from serving_base.processes import Environment, GuardedProcess, start_guarded

HOST = "127.0.0.1"
NAMES = frozenset({"localhost", ""})


class NotLoopback(EnvironmentProblem):
    """Something would have left this machine."""


def confine_process() -> None:
    """From now on Python's sockets in this process refuse every other address; it cannot be undone.

    An audit hook (PEP 578): libraries get around it only with sockets of their own, outside Python's module.
    """
    sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"):
        opened, address = arguments
        if opened.family in (socket.AF_INET, socket.AF_INET6) and address is not None:
            require_loopback(str(address[0]), wanted=event.partition(".")[2])
    elif event == "socket.getaddrinfo" and arguments[0] is not None:
        host = arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
        require_loopback(host, wanted="look up")


def require_loopback(host: str, *, wanted: str = "connect to") -> None:
    """Raise :class:`NotLoopback` unless ``host`` is this machine's loopback."""
    if host in NAMES and wanted != "bind":
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass  # a name: those that mean the loopback are above
    raise NotLoopback(
        f"refused to {wanted} {host or 'every address'}",
        why="the local cloud never leaves this machine",
        fix=f"use {HOST}",
    )


def require_loopback_url(url: str) -> None:
    """Raise :class:`NotLoopback` unless ``url`` is plain HTTP to the loopback."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise NotLoopback(f"refused {url}", why="the local cloud speaks HTTP on the loopback only", fix=f"use {HOST}")
    require_loopback(parts.hostname or "0.0.0.0")


ACCOUNT_ID = "123456789012"
"""moto's own."""
REGION = "us-east-1"
ROLE_NAME = "sagemaker-execution"
SCHEDULER_ROLE_NAME = "scheduler-execution"
ADDRESS_FILE = "address"
SECRET = "testing"
"""Access key id and secret of the dummy credentials, the only ones that the local cloud takes."""

READY_TIMEOUT_S = 60.0
POLL_S = 0.02
DUMMY_CREDENTIALS: Environment = {
    "AWS_ACCESS_KEY_ID": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_REGION": REGION,
    "AWS_SESSION_TOKEN": None,
    "AWS_PROFILE": None,
    "AWS_DEFAULT_PROFILE": None,
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""For an environment in which no real account can be found."""


class LocalCloud:
    """``with LocalCloud(folder) as cloud: boto3.client("s3", **cloud.client_options)``.

    ``folder`` gets the log, the models of endpoints and the logs of their containers. The port is one that is free.
    Stopping ends every container; so does the end of this process, however it comes.
    """

    region = REGION
    account_id = ACCOUNT_ID
    role_arn = f"arn:aws:iam::{ACCOUNT_ID}:role/{ROLE_NAME}"
    scheduler_role_arn = f"arn:aws:iam::{ACCOUNT_ID}:role/{SCHEDULER_ROLE_NAME}"

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.log_path = self.folder / "cloud.log"
        self.ready_s = 0.0
        self._process: GuardedProcess | None = None
        self._url = ""

    def start(self) -> None:
        """Start and wait until it answers. Raises :class:`ServerError` with the log's last lines."""
        if self._process is not None:
            raise ServerError("this local cloud runs already", fix="stop() it first")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ADDRESS_FILE).unlink(missing_ok=True)
        self.log_path.unlink(missing_ok=True)
        started = time.monotonic()
        self._process = start_guarded(
            [sys.executable, "-m", "model_server.aws.fake", "--root", str(self.folder)],
            env=DUMMY_CREDENTIALS,
            log_path=self.log_path,
            name="local cloud",
        )
        try:
            self._url = self._wait_for_address(self._process, started + READY_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.monotonic() - started

    def stop(self) -> None:
        """End it and every container. Safe to call twice."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def endpoint_url(self) -> str:
        """``http://127.0.0.1:PORT``, for every service."""
        self._running()
        return self._url

    @property
    def pid(self) -> int:
        """Process id of the guard above the fake AWS."""
        return self._running().pid

    @property
    def client_options(self) -> dict[str, Any]:
        """Arguments for ``boto3.client``."""
        return {
            "endpoint_url": self.endpoint_url,
            "region_name": REGION,
            "aws_access_key_id": SECRET,
            "aws_secret_access_key": SECRET,
        }

    @property
    def environment(self) -> dict[str, str | None]:
        """Variables that send an SDK to this cloud and to no other; None removes a variable."""
        return {**DUMMY_CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint_url}

    def _running(self) -> GuardedProcess:
        if self._process is None:
            raise ServerError("the local cloud is not running", fix="start() it")
        return self._process

    def _wait_for_address(self, process: GuardedProcess, deadline: float) -> str:
        address = self.folder / ADDRESS_FILE
        while not address.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                late = process.returncode is None
                what = f"was not ready after {READY_TIMEOUT_S:g} s" if late else "ended before it was ready"
                raise ServerError(
                    f"the local cloud {what}",
                    why="its log ends:\n" + process.tail(),
                    fix=f"the whole log is {self.log_path}",
                )
            time.sleep(POLL_S)
        return address.read_text(encoding="utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
