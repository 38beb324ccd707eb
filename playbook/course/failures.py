"""Why a chapter ended before its last cell, told as a class of failure with what to do next."""

import re
from dataclasses import dataclass

from nbformat import NotebookNode

from serving_base import errors
from serving_base.errors import PlaybookError
from serving_clients import requests as client_errors


@dataclass(frozen=True)
class Failure:
    """One failed chapter: its class (`kind`), what happened, why, what to do, and in which code cell (from 1).

    A chapter that was skipped on purpose (`errors.Skipped`) is told in the same words; it is no failure.
    """

    kind: str
    what: str
    why: str = ""
    fix: str = ""
    cell: int | None = None

    @property
    def on_purpose(self) -> bool:
        return self.kind == SKIPPED


@dataclass(frozen=True)
class FailureClass:
    kind: str
    signature: str
    fix: str


DEAD_KERNEL_FIX = "the log beside the notebook holds its last words; if memory ran out, close other programs"
TIMEOUT_FIX = "give it more time (--cell-timeout, --chapter-timeout), or find out what it waits for in the log"
SKIPPED = "skipped"
EARLY_EXIT_FIX = "remove the exit; to end early on purpose raise an error that says why"

# The first signature that is found in "ErrorName: message" decides.
CLASSES = (
    FailureClass(SKIPPED, r"^Skipped", "the chapter says which parameter runs the rest"),
    FailureClass(
        "missing artifact",
        r"^(Missing|Stale|Foreign)Artifact",
        "run the earlier chapters with the same profile and workspace",
    ),
    FailureClass("check failed", r"^(CheckFailed|AssertionError)", "see 'If it went wrong' in the chapter"),
    FailureClass("early exit", r"^SystemExit", EARLY_EXIT_FIX),
    FailureClass("usage", r"^(ProfileError|UsageError)", "mend the profile or the parameters: playbook params CHAPTER"),
    FailureClass(
        "disk full",
        r"No space left on device|Disk quota exceeded|database or disk is full",
        "free disk space, or choose a workspace on a larger disk: --workspace DIR",
    ),
    FailureClass(
        "memory",
        r"^(\w+\.)*(MemoryError|OutOfMemoryError)|std::bad_alloc|out of memory|Cannot allocate memory",
        "close other programs, or lower the batch and sequence limits of the profile",
    ),
    FailureClass(
        "port taken",
        r"Address already in use|port \d+ is (already )?taken",
        "end the server that has the port (ss -ltnp), or choose another one",
    ),
    FailureClass(
        "network",
        r"name resolution|getaddrinfo|Network is unreachable|Max retries exceeded|ProxyError|OfflineModeIsEnabled"
        r"|LocalEntryNotFoundError|^(\w+\.)*(ConnectTimeout|ConnectError|ReadTimeout|NewConnectionError)",
        "check the connection and the proxy; the embedded lane itself needs no network",
    ),
    FailureClass(
        "server",
        r"^(ServerError|RequestRefused|Refused|Overloaded|Unreachable|TimedOut|BrokenStream)\b",
        "read the server's log, which the message names",
    ),
    FailureClass(
        "environment", r"^(EnvironmentProblem|ModuleNotFoundError)|cannot open shared object file", "run: make setup"
    ),
)


def classify(error_name: str, message: str, *, cell: int | None = None) -> Failure:
    """The failure that an error stands for. A PlaybookError's own why and fix are kept."""
    what, why, fix = split_message(message)
    headline = f"{error_name}: {message}"
    if not any(issubclass(getattr(room, error_name, object), PlaybookError) for room in (errors, client_errors)):
        what = headline
    for known in CLASSES:
        if re.search(known.signature, headline):
            return Failure(known.kind, what, why, fix or known.fix, cell)
    return Failure("error", what, why, fix or "the executed notebook holds the traceback", cell)


def split_message(message: str) -> tuple[str, str, str]:
    """Undo `str(PlaybookError)`: what, why, fix; of another error everything is what."""
    match = re.fullmatch(r"(?s)(?P<what>.*?)(?:\n  why: (?P<why>.*?))?(?:\n  fix: (?P<fix>.*))?", message)
    if match is None:
        return message, "", ""
    return match["what"], match["why"] or "", match["fix"] or ""


def unfinished(notebook: NotebookNode) -> Failure | None:
    """A failure if an executed notebook left early: papermill itself calls `raise SystemExit(0)` a success."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    for number, cell in enumerate(code, start=1):
        exited = any(output.get("ename") == "SystemExit" for output in cell.outputs)
        if exited or not cell.get("execution_count"):
            last = number if exited else number - 1
            return Failure(
                "early exit",
                f"code cell {last} of {len(code)} ended the notebook before its end",
                "the cells after it did not run, so nothing that they claim was checked",
                EARLY_EXIT_FIX,
                last,
            )
    return None
