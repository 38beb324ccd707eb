"""The known failure that the output of a command shows; the failures are in ``trtllm_check/lint/logs.yml``."""

from trtllm_check.lint.logs import Sign, known, signs

FINDINGS = signs()
KILLED = (137, -9)


def diagnose(output: str, returncode: int) -> Sign | None:
    """The known failure that this output shows, or None."""
    found = known(output)
    if found is None and returncode in KILLED:
        return next(sign for sign in FINDINGS if sign.rule == "killed")
    return found
