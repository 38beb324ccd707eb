"""The engine's process of :class:`cpu_serving.apart.EngineApart`: ``python -m cpu_serving.worker FD``.

Messages are pickled tuples over the socket FD. In: ``("open", folder, options)`` first, then ``("submit", request_id,
prompt_ids, sampling)`` and ``("cancel", request_id)``. Out: ``("ready", stats)`` first, then after each step
``("out", outputs, stats)``, and ``("failed", what, why, fix)`` last. The process ends when the other side closes.
On STACK_SIGNAL it writes the stack of each of its threads to stderr, also while a step holds Python's lock.
"""

import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import Any

from cpu_serving.engine import Engine
from cpu_serving.polling import PolledConnection
from serving_base.errors import PlaybookError

STACK_SIGNAL = signal.SIGUSR1


def main(descriptor: int) -> None:
    faulthandler.register(STACK_SIGNAL, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and the server says when to end
    connection = PolledConnection(descriptor)
    try:
        _, folder, options = connection.recv()
        with Engine(Path(folder), **options) as engine:
            connection.send(("ready", engine.stats()))
            serve(engine, connection)
    except (EOFError, OSError):
        return
    except Exception as error:
        told = (error.what, error.why, error.fix) if isinstance(error, PlaybookError) else (repr(error), "", "")
        connection.send(("failed", *told))


def serve(engine: Engine, connection: Any) -> None:
    """Step while there is work, and take what comes between two steps. EOFError when the other side has closed."""
    while True:
        while connection.poll(0 if engine.has_work else None):
            kind, *words = connection.recv()
            if kind == "submit":
                engine.submit(*words)
            else:
                engine.cancel(*words)
        outputs = engine.step()
        connection.send(("out", outputs, engine.stats()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # the engine is closed; what Python's own end does takes longer
