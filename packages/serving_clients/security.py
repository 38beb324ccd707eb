"""Secrets that stay in the environment, the header that carries one, and where it may be sent."""

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from serving_base.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    import ssl

VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
HIDDEN = "[secret]"


@dataclass(frozen=True)
class Secret:
    """The name of an environment variable. Its value is read when it is needed and kept nowhere."""

    variable: str

    def __post_init__(self) -> None:
        if not VARIABLE.fullmatch(self.variable):
            # Not repeated here: what was given may be the secret itself.
            raise UsageError(
                "a Secret takes the name of an environment variable, in capitals",
                why="what was given is not such a name; if it is the secret itself, it is in your code: replace it",
                fix='export it, and write Secret("MY_TOKEN")',
            )

    def reveal(self) -> str:
        """The value, as it is now. :class:`EnvironmentProblem` without one, or where a header cannot carry it."""
        value = os.environ.get(self.variable, "").strip()
        if not value:
            raise EnvironmentProblem(f"${self.variable} is not set", fix=f"export {self.variable}=...")
        if not (value.isascii() and value.isprintable()):
            raise EnvironmentProblem(f"${self.variable} holds characters that no header may carry", fix="set it again")
        return value


@dataclass(frozen=True)
class Credential:
    """A secret and the header that carries it: ``Authorization: Bearer ...`` unless told otherwise."""

    secret: Secret
    header: str = "Authorization"
    scheme: str = "Bearer"

    def header_value(self) -> str:
        return f"{self.scheme} {self.secret.reveal()}".strip()

    def redacted(self, text: str) -> str:
        """``text`` without the secret, which a server or a proxy may have repeated in its error."""
        return without_values(text, (self.secret.variable,))


@dataclass(frozen=True)
class Tls:
    """How the server's certificate is verified. ``ca_bundle``: a PEM file instead of the system's authorities."""

    ca_bundle: Path | None = None
    verify: bool = True

    def context(self) -> "ssl.SSLContext":
        return _new_context(self) if self.ca_bundle else _system_context(self)


def _new_context(tls: Tls) -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context(cafile=str(tls.ca_bundle) if tls.ca_bundle else None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


_system_context = cache(_new_context)
"""The system's authorities are read once: 30 ms."""


VERIFIED = Tls()
"""By the system's authorities."""


def refuse_exposure(url: str, credential: Credential | None, tls: Tls) -> None:
    """:class:`UsageError` if sending ``credential`` to ``url`` would show it to others on the way."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise UsageError("the URL holds a user name or password", fix="take it out and use Credential(Secret(...))")
    if credential is None or is_loopback(parts.hostname or ""):
        return
    if parts.scheme not in ("https", "grpcs"):
        raise UsageError(
            f"${credential.secret.variable} would go to {parts.hostname} in plain text",
            fix="use TLS (https://..., or tls=Tls() for gRPC), or a server on this machine",
        )
    if not tls.verify:
        raise UsageError(
            f"${credential.secret.variable} would go to {parts.hostname} without knowing who that is",
            fix="leave verify=True; for an authority of your own give Tls(ca_bundle=...)",
        )


def without_values(text: str, variables: Iterable[str]) -> str:
    """``text`` with the values of these environment variables hidden."""
    for variable in variables:
        value = os.environ.get(variable, "").strip()
        text = text.replace(value, HIDDEN) if value else text
    return text


def is_loopback(host: str) -> bool:
    """True for ``localhost`` and the addresses of the loopback; other names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
