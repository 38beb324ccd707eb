"""The benchmark of a class on one machine sees what it says it sees: ports, failures, and two users on one port."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.classroom.run import User, in_common, look, watch

LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def listening() -> tuple["subprocess.Popen[bytes]", int]:
    process = subprocess.Popen([sys.executable, "-c", LISTENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    return process, int(process.stdout.readline())


def test_a_users_processes_ports_and_memory_are_seen_and_the_end_is_waited_for(tmp_path: Path) -> None:
    course, port = listening()
    lab, lab_port = listening()
    user = User("1", tmp_path, course, lab)
    with course, lab:
        assert look(user) == {port, lab_port} == user.ports
        assert user.processes == 2 and 0 < user.peak_bytes < user.peak_with_lab_bytes == user.now_bytes
        assert course.stdin and lab.stdin
        course.stdin.close()
        assert watch([user], 0.01)[1] == []
        assert course.poll() == 0
        lab.stdin.close()


def test_two_users_on_one_port_are_told() -> None:
    assert in_common({"1": {8000, 8001}, "2": {8002, 8001}, "3": {9}}) == {"port 8001: users 1, 2"}


@pytest.mark.parametrize(
    ("status", "code", "passed", "failed"),
    [("ok", 0, ["05"], []), ("failed", 1, [], ["05 failed"]), ("", 3, [], ["exit status 3"])],
)
def test_a_row_says_what_passed_and_what_failed(
    status: str, code: int, passed: list[str], failed: list[str], tmp_path: Path
) -> None:
    if status:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "results.json").write_text(json.dumps([{"chapter": "05-triton", "status": status}]))
    ended = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])
    ended.wait()
    user = User("1", tmp_path, ended, ended)
    assert (user.passed, user.failed) == (passed, failed)
    assert user.row().endswith(f"| {'; '.join(failed) or '-'} |")
