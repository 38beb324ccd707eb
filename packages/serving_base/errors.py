"""Errors of the playbook. Each says what happened, why, and what to do next."""

from collections.abc import Iterable
from pathlib import Path


class PlaybookError(Exception):
    """Base of every error that the playbook raises on purpose.

    ``what`` happened, ``why`` it matters or came about, ``fix``: what to do next. ``exit_code`` is what the
    command line returns: 1 a chapter failed, 2 wrong usage, 3 the environment lacks something.
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook: the reader needs the fix, not our stack."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(PlaybookError):
    """A wrong name, parameter or option."""

    exit_code = 2


class EnvironmentProblem(PlaybookError):
    """The machine or the installation lacks something."""

    exit_code = 3


class Skipped(PlaybookError):
    """A chapter that ends here because what it needs was not given, such as the consent to a price. No failure.

    Raise it in a cell: ``what`` the rest would have done (with its price), ``why`` it does not, ``fix``: what to give
    it. The runner notes the chapter as "skipped", goes on with the next one, and its exit status stays 0.
    """

    exit_code = 0


class NotYaml(UsageError):
    """A file that is not one document of YAML."""


class NotUnderstood(UsageError):
    """A text in which there is nothing that the checker has rules for, or that names a release without facts."""

    exit_code = 3


class NotInRelease(UsageError):
    """A stage, format or tool that a TensorRT-LLM release does not have."""


class ProfileError(UsageError):
    """A profile with unknown keys or impossible values."""


class MissingArtifact(PlaybookError):
    """An artifact of an earlier stage is not there."""


class StaleArtifact(PlaybookError):
    """An artifact whose inputs or settings have changed since it was made."""


class ForeignArtifact(PlaybookError):
    """An artifact made by another release, for another GPU or world size, or by nobody we know."""


class CheckFailed(PlaybookError):
    """A claim of a chapter that this run did not confirm."""


class CheckpointError(PlaybookError):
    """A checkpoint that cannot be read as it stands."""


class EngineError(PlaybookError):
    """The engine refused a request or could not run."""


class ServerError(PlaybookError):
    """The inference server did not start, died, or did not stop."""


class RequestRefused(PlaybookError):
    """The server answered a request with an error."""


class CommandFailed(PlaybookError):
    """A command ended with another exit code than 0."""

    def __init__(
        self, what: str, *, returncode: int, log_path: Path | None = None, why: str = "", fix: str = ""
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.returncode = returncode
        self.log_path = log_path


def nearest(text: str, known: Iterable[str]) -> str:
    """The one of ``known`` that looks most like ``text``; there is always one, however far."""
    from difflib import SequenceMatcher

    return max(known, key=lambda name: SequenceMatcher(None, text.lower(), name).ratio())
