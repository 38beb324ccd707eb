"""Starts the container process of a variant: brings its model, checks its settings, waits until it is healthy.

The model data comes from the local cloud's own S3.
"""

import http.client
import itertools
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from model_server.aws.endpoints import ContainerFailed
from model_server.aws.registry import Parameters
from model_server.aws.server import HOST
from serving_base.errors import PlaybookError
from serving_base.processes import Environment, GuardedProcess, start_guarded
from trtllm_check.serving_properties import MODEL_ID, merge_settings, write_properties


class ObjectStore:
    """S3 through ``client()``, a boto3 client that is made when it is first needed."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def fetch_archive(self, uri: str, folder: Path) -> None:
        """Unpack the ``.tar.gz`` at ``uri``; a member that points outside of the folder is refused."""
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder.with_name("model.tar.gz")
        bucket, key = split_uri(uri)
        self._download(bucket, key, archive)
        try:
            with tarfile.open(archive, "r:gz") as opened:
                opened.extractall(folder, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            raise ContainerFailed(f"{uri} could not be unpacked: {error}") from error
        finally:
            archive.unlink(missing_ok=True)

    def fetch_prefix(self, uri: str, folder: Path) -> None:
        """Copy every object below ``uri``."""
        bucket, prefix = split_uri(uri)
        prefix = prefix if prefix.endswith("/") or not prefix else prefix + "/"
        folder.mkdir(parents=True, exist_ok=True)
        keys = self._keys(bucket, prefix)
        if not keys:
            raise ContainerFailed(f"nothing at {uri}: upload the model's files there")
        for key in keys:
            path = (folder / key.removeprefix(prefix)).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ContainerFailed(f"s3://{bucket}/{key} would be written outside of the model's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._download(bucket, key, path)

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        from botocore.exceptions import ClientError

        try:
            pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            keys = [str(item["Key"]) for found in pages for item in found.get("Contents", [])]
        except ClientError as error:
            raise ContainerFailed(f"s3://{bucket}/{prefix}: {error.response['Error']['Message']}") from error
        return [key for key in keys if not key.endswith("/")]

    def _download(self, bucket: str, key: str, path: Path) -> None:
        from botocore.exceptions import ClientError

        try:
            body = self._client().get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            raise ContainerFailed(f"s3://{bucket}/{key}: {error.response['Error']['Message']}") from error
        path.write_bytes(body)


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of ``s3://bucket/key``."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise ContainerFailed(f"{uri} is not an address in S3")
    return parts.netloc, parts.path.lstrip("/")


def fetch_model_data(store: ObjectStore, container: Mapping[str, Any], folder: Path) -> None:
    """Fill ``folder``, which stands for /opt/ml/model, as a ContainerDefinition says."""
    folder.mkdir(parents=True, exist_ok=True)
    if container.get("ModelDataUrl"):
        store.fetch_archive(container["ModelDataUrl"], folder)
        return
    source = container.get("ModelDataSource", {}).get("S3DataSource")
    if source is None:
        return
    if source["CompressionType"] == "None" and source["S3DataType"] == "S3Prefix":
        store.fetch_prefix(source["S3Uri"], folder)
    elif source["CompressionType"] == "Gzip" and source["S3DataType"] == "S3Object":
        store.fetch_archive(source["S3Uri"], folder)
    else:
        kind = f"{source['S3DataType']} with CompressionType {source['CompressionType']}"
        raise ContainerFailed(f"the local cloud takes S3Prefix uncompressed or S3Object with Gzip, not {kind}")


OPT_ML_MODEL = "/opt/ml/model"
POLL_S = 0.05
LOG_LINES = 8
NO_CREDENTIALS: Environment = {
    "AWS_ACCESS_KEY_ID": None,
    "AWS_SECRET_ACCESS_KEY": None,
    "AWS_SESSION_TOKEN": None,
    "AWS_ENDPOINT_URL": None,
}
"""The container gets its model from us and needs no credentials, not even dummies."""


class LocalContainer:
    """A container process. Its address is known when it listens."""

    def __init__(self, process: GuardedProcess, address_file: Path) -> None:
        self._process = process
        self._address_file = address_file

    @property
    def url(self) -> str:
        return self._address_file.read_text(encoding="utf-8").strip()

    def wait_until_healthy(self, timeout_s: float, cancelled: threading.Event) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._healthy():
            if self._process.poll() is not None:
                raise ContainerFailed(
                    f"The container ended with exit status {self._process.returncode} before it answered /ping."
                    f" Its log ends:\n{self._process.tail(LOG_LINES)}"
                )
            if time.monotonic() > deadline:
                raise ContainerFailed(
                    f"The container did not pass the ping health check in {timeout_s:g} s."
                    f" Its log ends:\n{self._process.tail(LOG_LINES)}"
                )
            if cancelled.wait(POLL_S):
                raise ContainerFailed("the endpoint was deleted")

    def stop(self) -> None:
        self._process.stop()

    def _healthy(self) -> bool:
        if not self._address_file.exists():
            return False
        port = int(self.url.rpartition(":")[2])
        connection = http.client.HTTPConnection(HOST, port, timeout=2)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class ContainerLauncher:
    """Starts containers below ``root``/<endpoint>/<variant>-<number>."""

    def __init__(self, root: Path, store: ObjectStore) -> None:
        self._root = root
        self._store = store
        self._numbers = itertools.count(1)

    def start(self, endpoint: str, variant: str, model: Parameters) -> LocalContainer:
        """Bring the model and start the process. Raises :class:`ContainerFailed`."""
        definition = model["PrimaryContainer"]
        folder = self._root / endpoint / f"{variant}-{next(self._numbers)}"
        model_folder = folder / "model"
        fetch_model_data(self._store, definition, model_folder)
        path = model_folder / "serving.properties"
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        settings = merge_settings(text, definition.get("Environment", {}))
        check_settings(settings, definition["Image"])
        engine = self._engine_folder(settings, folder)
        # What holds is written down, so that the process needs nothing of the model's environment.
        path.write_text(write_properties(settings), encoding="utf-8")
        address_file = folder / "address"
        argv = [sys.executable, "-m", "model_server.aws.container", "--model", str(model_folder)]
        argv += ["--engine", str(engine), "--image", definition["Image"], "--port", "0"]
        process = start_guarded(
            [*argv, "--address-file", str(address_file)],
            env=NO_CREDENTIALS,
            log_path=folder / "container.log",
            name=f"container of {endpoint}/{variant}",
            grace_s=3.0,
        )
        return LocalContainer(process, address_file)

    def _engine_folder(self, settings: Mapping[str, str], folder: Path) -> Path:
        model_id = settings.get(MODEL_ID, "")
        if model_id.startswith("s3://"):
            self._store.fetch_prefix(model_id, folder / "engine")
            return folder / "engine"
        if model_id in ("", OPT_ML_MODEL) or model_id.startswith(f"{OPT_ML_MODEL}/"):
            return folder / "model" / model_id.removeprefix(OPT_ML_MODEL).lstrip("/")
        raise ContainerFailed(
            f"{MODEL_ID}={model_id}: the local cloud reaches no model hub."
            " Upload the engine folder and give its address, s3://bucket/prefix/"
        )


def check_settings(settings: Mapping[str, str], image: str) -> None:
    """Raise :class:`ContainerFailed` with what this image's own rules refuse."""
    from trtllm_check.recipes.lmi import check_properties

    try:
        findings = check_properties(write_properties(settings), image)
    except PlaybookError as error:
        raise ContainerFailed(str(error)) from error
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        lines = [f"{finding.key}: {finding.message} ({finding.why}; {finding.fix})" for finding in errors]
        raise ContainerFailed("The container would not start with this serving.properties:\n" + "\n".join(lines))
