"""A connection that is asked whether something has come."""

import socket
from multiprocessing.connection import Connection

import pytest

from cpu_serving.polling import PolledConnection


def test_it_says_whether_a_message_or_the_end_has_come() -> None:
    ours, theirs = socket.socketpair()
    asked, other = PolledConnection(ours.detach()), Connection(theirs.detach())
    assert not asked.poll() and not asked.poll(0.001)
    other.send(("out", [1, 2]))
    assert asked.poll() and asked.poll(None)
    assert asked.recv() == ("out", [1, 2])
    assert not asked.poll()
    other.close()
    assert asked.poll(None)
    with pytest.raises(EOFError):
        asked.recv()
    asked.close()
