"""The local cloud stays on this machine: each guard is shown to stop what the other one would let through."""

import subprocess
import sys

import pytest

from model_server.aws import runtime
from model_server.aws.server import NotLoopback, require_loopback, require_loopback_url

FAR = "192.0.2.1"  # TEST-NET-1: nobody has it


def confined(code: str) -> str:
    """What a process prints that is confined to the loopback and then runs ``code``."""
    start = "import socket, sys\nfrom model_server.aws.server import confine_process\nconfine_process()\n"
    attempt = "".join(f"    {line}\n" for line in code.splitlines())
    ending = "except Exception as error:\n    print(type(error).__name__, error.args[0])\nelse:\n    print('passed')\n"
    return subprocess.run(
        [sys.executable, "-c", start + "try:\n" + attempt + ending], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        f"socket.create_connection(('{FAR}', 80), 1)",
        f"socket.socket().connect(('{FAR}', 80))",
        f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ('{FAR}', 53))",
        "socket.socket().bind(('0.0.0.0', 0))",
        "socket.socket().bind(('', 0))",
        "socket.socket(socket.AF_INET6).connect(('2001:db8::1', 80))",
        "socket.getaddrinfo('sagemaker.us-east-1.amazonaws.com', 443)",
        "import boto3; boto3.client('sts', 'us-east-1', aws_access_key_id='x', aws_secret_access_key='y')"
        ".get_caller_identity()",
        "import urllib.request as u; u.urlopen('http://169.254.169.254/latest/meta-data/', timeout=1)",
    ],
)
def test_a_confined_process_cannot_leave(code: str) -> None:
    printed = confined(code)
    assert "refused to" in printed and "passed" not in printed


def test_a_confined_process_can_use_the_loopback() -> None:
    code = (
        "a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\nsocket.create_connection(a.getsockname()).close()"
    )
    assert confined(code + "\nsocket.getaddrinfo('localhost', 80)") == "passed"


@pytest.mark.parametrize(
    "url", [f"http://{FAR}:8080", "https://127.0.0.1", "http://runtime.sagemaker.us-east-1.amazonaws.com", "http://"]
)
def test_the_forwarder_refuses_other_machines(url: str) -> None:
    with pytest.raises(NotLoopback):
        runtime.connect(url, 1)


def test_without_the_forwarders_guard_the_process_still_cannot_leave() -> None:
    code = (
        "from model_server.aws import runtime\n"
        "runtime.require_loopback_url = lambda url: None\n"
        f"runtime.connect('http://{FAR}:80', 1).connect()"
    )
    assert confined(code) == f"NotLoopback refused to look up {FAR}"


def test_without_both_guards_it_would_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guards are what stops it, not the lack of a network."""
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *rest: object, **more: object) -> _Nothing:
        asked.append(address)
        return _Nothing()

    monkeypatch.setattr(runtime, "require_loopback_url", lambda url: None)
    monkeypatch.setattr("socket.create_connection", connect)
    runtime.connect(f"http://{FAR}:80", 1).connect()
    assert asked == [(FAR, 80)]


class _Nothing:
    def setsockopt(self, *arguments: object) -> None: ...


def test_the_server_and_the_container_bind_to_the_loopback_only() -> None:
    from model_server.aws import container, fake

    with pytest.raises(NotLoopback, match=r"bind 0\.0\.0\.0"):
        fake.listen(lambda environ, start: [], 0, host="0.0.0.0")
    arguments = ["-m", container.__name__, "--model", ".", "--port", "0", "--host", "0.0.0.0"]
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert ended.returncode == 1 and "refused to bind 0.0.0.0" in ended.stderr


@pytest.mark.parametrize(
    "code",
    [
        "fake.listen = lambda *rest: leave()\nfake.main(['--root', '.'])",
        "container.serve = lambda *rest: leave()\ncontainer.main(['--model', '.', '--port', '0'])",
    ],
)
def test_both_programs_confine_themselves(code: str) -> None:
    """Before anything else runs in them, whatever that then tries."""
    start = "import socket\nfrom model_server.aws import container, fake\n"
    leave = f"def leave():\n    socket.create_connection(('{FAR}', 80), 1)\n"
    ended = subprocess.run([sys.executable, "-c", start + leave + code], capture_output=True, text=True)
    assert ended.returncode == 1 and f"refused to look up {FAR}" in ended.stderr


def test_addresses() -> None:
    require_loopback("127.0.0.1")
    require_loopback("::1")
    require_loopback("localhost")
    require_loopback_url("http://127.0.0.1:5000")
    for host in ("0.0.0.0", "10.0.0.1", "localhost.example", "127.0.0.1.example"):
        with pytest.raises(NotLoopback):
            require_loopback(host)
