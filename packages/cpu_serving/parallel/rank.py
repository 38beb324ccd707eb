"""One rank of :class:`cpu_serving.parallel.ranks.Ranks`: ``python -m cpu_serving.parallel.rank FD``.

Messages are pickled tuples over the socket FD. In: ``("open", rank, ranks, store, folder, timeout_s)`` first, then
``("run", layout, microbatches, options)`` and ``("sum", values)``. Out: ``("ready", None)`` first, then for each
``("done", result)``, and ``("failed", what, why, fix)`` last. The process ends when the other side closes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cpu_serving.checkpoint import read_checkpoint
from cpu_serving.llama import LlamaWeights
from cpu_serving.parallel.cuts import RankLayout, rank_weights
from cpu_serving.parallel.pipeline import PipelineRank, RankReport
from cpu_serving.parallel.shard import Shard
from cpu_serving.parallel.wire import Wire
from serving_base.errors import PlaybookError


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and the parent says when to end
    connection: Connection = Connection(descriptor)
    try:
        _, rank, ranks, store, folder, timeout_s = connection.recv()
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        meeting = dist.FileStore(store, ranks)  # type: ignore[attr-defined]
        dist.init_process_group(
            "gloo", store=meeting, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout_s)
        )
        weights = read_checkpoint(Path(folder))
        connection.send(("ready", None))
        while True:
            kind, *words = connection.recv()
            answer = run(weights, rank, *words) if kind == "run" else both_sums(rank, ranks, *words)
            connection.send(("done", answer))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        told = (error.what, error.why, error.fix) if isinstance(error, PlaybookError) else (repr(error), "", "")
        connection.send(("failed", *told))


def run(
    weights: LlamaWeights,
    rank: int,
    layout: RankLayout,
    microbatches: Sequence[Sequence[int]],
    options: Mapping[str, Any],
) -> RankReport | None:
    """What this rank does in ``layout``; None for one that has no place in it."""
    if rank >= layout.world_size:
        return None
    stage, _ = layout.place(rank)
    wire = Wire(rank, [layout.rank(stage, part) for part in range(layout.tp)])
    held = rank_weights(weights, layout, rank, options["mistake"])
    turn = PipelineRank(Shard(held, weights.shape, wire, options["mistake"]), wire, layout, rank)
    logits = turn.run(microbatches, options["rounds"], watch=options["watch"])
    first = turn.part == 0
    return RankReport(
        stage,
        turn.part,
        tuple(turn.turns),
        wire.traffic(),
        held.linear_values,
        tuple(logits) if first else (),
        turn.texts if first else (),
        turn.watched if first and options["watch"] else None,
    )


def both_sums(rank: int, ranks: int, values: int) -> tuple[bool, float, dict[str, Any]]:
    """Whether our ring's sum of ``values`` numbers is gloo's: equal bits, largest difference, and our traffic."""
    import torch
    import torch.distributed as dist

    made = torch.randn(values, generator=torch.Generator().manual_seed(rank))
    wire = Wire(rank, range(ranks))
    ours, theirs = wire.all_reduce(made, "layers"), made.clone()
    dist.all_reduce(theirs)
    return bool(torch.equal(ours, theirs)), float((ours - theirs).abs().max()), wire.traffic()


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # gloo's own end would wait for ranks that have ended already
