"""The exercises of chapter 14 accept what is right, in any form, and refuse the usual mistakes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from course_exercises.parallelism import broken_manifests, check_bytes, check_mended, check_row_cut
from gpu_measurements.all_reduce import link_us, measured_all_reduces
from playbook.profile import load_profile
from trtllm_check.recipes.kubernetes import NodeGroup, manifest_problems, node_group

Array = np.ndarray
Parts = tuple[Array, Array]


def by_slices(x: Array, weight: Array, rank: int, ranks: int) -> Parts:
    size = x.shape[1] // ranks
    own = slice(rank * size, (rank + 1) * size)
    return x[:, own], weight[:, own]


def by_numpy(x: Array, weight: Array, rank: int, ranks: int) -> Parts:
    return np.array_split(x, ranks, axis=1)[rank], np.array_split(weight, ranks, axis=1)[rank]


def every_other(x: Array, weight: Array, rank: int, ranks: int) -> Parts:
    return x[:, rank::ranks], weight[:, rank::ranks]


@pytest.mark.parametrize("row_cut", [by_slices, by_numpy, every_other])
def test_right_row_cuts(row_cut: Callable[..., Parts]) -> None:
    assert check_row_cut(row_cut).solved


@pytest.mark.parametrize(
    "row_cut",
    [
        lambda x, weight, rank, ranks: (x, weight),  # nothing is cut: the sum counts it once for each rank
        lambda x, weight, rank, ranks: (x, np.array_split(weight, ranks)[rank]),  # a column cut
        lambda x, weight, rank, ranks: (x / ranks, weight),  # right sum, and every rank holds all
        lambda x, weight, rank, ranks: (by_slices(x, weight, rank, ranks)[0], every_other(x, weight, rank, ranks)[1]),
        lambda x, weight, rank, ranks: by_slices(x, weight, 0, ranks),  # always the first part
        lambda x, weight, rank, ranks: (x, by_slices(x, weight, rank, ranks)[1]),  # x is whole
        lambda x, weight, rank, ranks: None,
    ],
)
def test_wrong_row_cuts(row_cut: Callable[..., Parts]) -> None:
    found = check_row_cut(row_cut)
    assert not found.solved and "NOT SOLVED YET" in str(found)


def test_right_bytes() -> None:
    assert check_bytes(lambda layers, tokens, hidden, ranks: 8 * layers * tokens * hidden * (ranks - 1) / ranks).solved


@pytest.mark.parametrize(
    "bytes_sent",
    [
        lambda layers, tokens, hidden, ranks: 4 * layers * tokens * hidden,  # without the ring
        lambda layers, tokens, hidden, ranks: 4 * layers * tokens * hidden * (ranks - 1) / ranks,  # one sum a layer
        lambda layers, tokens, hidden, ranks: 4 * layers * tokens * hidden * 2 * (ranks - 1),  # not over p
        lambda layers, tokens, hidden, ranks: 2 * layers * tokens * hidden * 2 * (ranks - 1) / ranks,  # FP8 bytes
        lambda layers, tokens, hidden, ranks: 8 * layers * hidden * (ranks - 1) / ranks,  # one token
        lambda layers, tokens, hidden, ranks: 0,
    ],
)
def test_wrong_bytes(bytes_sent: Callable[[int, int, int, int], float]) -> None:
    assert not check_bytes(bytes_sent).solved


@pytest.fixture
def group() -> NodeGroup:
    return node_group(load_profile("p5"), pp=2)


def mend(workers: dict[str, Any], service: dict[str, Any], **left: bool) -> None:
    template = workers["spec"]["leaderWorkerTemplate"]
    if not left.get("size"):
        template["size"] = 2
    if not left.get("policy"):
        template["restartPolicy"] = "RecreateGroupOnPodRestart"
    if not left.get("role"):
        service["spec"]["selector"]["role"] = "leader"
    if not left.get("port"):
        service["spec"]["ports"][0]["targetPort"] = "http" if left.get("named") else 8000


@pytest.mark.parametrize("named", [False, True])
def test_right_mending(group: NodeGroup, named: bool) -> None:
    assert check_mended(group, lambda one, other: mend(one, other, named=named)).solved


def smaller_engine(workers: dict[str, Any], service: dict[str, Any]) -> None:
    mend(workers, service, size=True)
    container = workers["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]
    container["command"][-1] = container["command"][-1].replace("--pipeline-parallel-size 2", "")


def no_restart(workers: dict[str, Any], service: dict[str, Any]) -> None:
    mend(workers, service)
    workers["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "None"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda one, other: None,
        lambda one, other: mend(one, other, size=True),
        lambda one, other: mend(one, other, policy=True),
        lambda one, other: mend(one, other, role=True),
        lambda one, other: mend(one, other, port=True),
        smaller_engine,
        no_restart,
        lambda one, other: other.clear(),
        lambda one, other: one["spec"]["nothing"]["here"],
    ],
)
def test_wrong_mending(group: NodeGroup, wrong: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    assert not check_mended(group, wrong).solved


def test_the_broken_manifests_are_broken_in_two_ways(group: NodeGroup) -> None:
    documents = broken_manifests(group)
    assert "restartPolicy" in manifest_problems(documents)[0]
    documents[0]["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "RecreateGroupOnPodRestart"
    assert len(manifest_problems(documents)) == 3  # the pods, the selector, the port


def stub(*given: object) -> Any:
    raise NotImplementedError("write it")


def test_a_stub_is_reported_and_stops_nothing(group: NodeGroup) -> None:
    for found in (check_row_cut(stub), check_bytes(stub), check_mended(group, stub)):
        assert not found.solved and "write it" in str(found)


def test_the_measured_all_reduces_lie_above_their_bytes() -> None:
    points = measured_all_reduces()
    assert [point.payload_bytes for point in points] == [2**power for power in range(14, 29)]
    assert all(point.best_us > link_us(point.payload_bytes, 450e9) for point in points)
    assert points[0].best_us == points[0].custom_us and points[-1].custom_us is None
    assert link_us(450e9, 450e9, 4) == 1.5e6
