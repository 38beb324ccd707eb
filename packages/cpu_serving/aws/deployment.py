"""Starts the container process of a variant: brings its model, checks its settings, waits until it is healthy."""

import http.client
import itertools
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from cpu_serving.aws.endpoints import ContainerFailed
from cpu_serving.aws.loopback import HOST
from cpu_serving.aws.registry import Parameters
from cpu_serving.aws.storage import ObjectStore, fetch_model_data
from serving_base.errors import PlaybookError
from serving_base.processes import Environment, GuardedProcess, start_guarded
from trtllm_check.serving_properties import MODEL_ID, merge_settings, write_properties

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
        argv = [sys.executable, "-m", "cpu_serving.aws.container", "--model", str(model_folder)]
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
