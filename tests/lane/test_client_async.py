"""The client for asyncio against the real server: the others' answers, and a queue with an order that is obeyed."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_server.triton.server import TritonServer
from serving import PROMPTS, build_tiny_engine, serving, write_tiny_repository
from serving_clients import (
    AsyncTriton,
    Client,
    ClientError,
    Overloaded,
    Place,
    Refused,
    SamplingOptions,
    TextRequest,
    TritonGrpc,
    Unreachable,
    triton,
)

pytestmark = [pytest.mark.server]

POLICY = """
dynamic_batching {{
  priority_levels: 2
  default_priority_level: 2
  default_queue_policy {{
    timeout_action: REJECT
    default_timeout_microseconds: {default_us}
    allow_timeout_override: true
    max_queue_size: 6
  }}
}}
"""
REQUEST = TextRequest(PROMPTS[0], 32, SamplingOptions(end_id=-1))
WAITING = 'nv_inference_pending_request_count{model="tensorrt_llm_bls"'


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("async") / "engine")


@pytest.fixture(scope="module")
def server(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with serving(tmp_path_factory.mktemp("async-plain"), engine) as running:
        yield running


@pytest.fixture(params=[60_000_000, 0], ids=["a minute", "no time of its own"])
def ordered(request: pytest.FixtureRequest, engine: Path, tmp_path: Path) -> Iterator[tuple[TritonServer, int]]:
    repository = write_tiny_repository(tmp_path / "repository", engine)
    config = repository / "tensorrt_llm_bls" / "config.pbtxt"
    alone = re.sub(r"max_batch_size: \d+", "max_batch_size: 1", config.read_text())
    config.write_text(alone + POLICY.format(default_us=request.param))
    with TritonServer(repository) as running:
        yield running, request.param


def test_answers_are_those_of_the_other_client_all_in_one_thread(server: TritonServer) -> None:
    async def ask() -> list[str]:
        async with AsyncTriton(server.grpc_url) as client:
            return await asyncio.gather(*(client.generate(REQUEST) for _ in range(20)))

    with Client(TritonGrpc(server.grpc_url)) as client:
        expected = client.generate(REQUEST).text
    assert set(asyncio.run(ask())) == {expected}


def test_a_refusal_and_a_server_that_is_not_there_are_the_clients_errors(server: TritonServer) -> None:
    async def ask(address: str, request: TextRequest) -> None:
        async with AsyncTriton(address) as client:
            await client.generate(request)

    with pytest.raises(Refused):
        asyncio.run(ask(server.grpc_url, TextRequest(PROMPTS[0] * 1000, 4)))
    with pytest.raises(Unreachable):
        asyncio.run(ask("127.0.0.1:1", REQUEST))


def test_priority_and_limit_are_obeyed_and_patience_only_below_a_time_of_the_policy(
    ordered: tuple[TritonServer, int],
) -> None:
    server, default_us = ordered
    order: list[str] = []
    refused: dict[str, ClientError] = {}

    async def ask(client: AsyncTriton, name: str, place: Place) -> None:
        try:
            await client.generate(REQUEST, place)
            order.append(name)
        except ClientError as error:
            refused[name] = error

    async def until_waiting(count: int) -> None:
        answered = len(order)
        while len(order) == answered:  # from the next answer on the queue only shrinks
            if sum(value for name, value in triton.metrics(server.metrics_url).items() if WAITING in name) >= count:
                break
            await asyncio.sleep(0.01)

    async def crowd() -> None:
        async with AsyncTriton(server.grpc_url, model="tensorrt_llm_bls") as client, asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(ask(client, f"normal {number}", Place()))
            await until_waiting(3)
            group.create_task(ask(client, "urgent", Place(priority=1)))
            group.create_task(ask(client, "hurried", Place(patience_s=0.001)))
            await until_waiting(4)
            for number in range(20):
                group.create_task(ask(client, f"late {number}", Place()))

    asyncio.run(crowd())
    normal = [name for name in order if name.startswith(("normal", "urgent"))]
    assert normal.index("urgent") < len(normal) - 1
    late = [error for name, error in refused.items() if name.startswith("late")]
    assert late
    assert all(isinstance(error, Overloaded) for error in refused.values())
    assert ("hurried" in refused) == (default_us > 0)  # with 0 the request's own time counts for nothing


def test_a_place_in_the_queue_is_told_in_whole_microseconds() -> None:
    assert Place().fields() == {"priority": 0}
    assert Place(1, 0.25).fields() == {"priority": 1, "timeout": 250_000}
    assert Place(patience_s=1e-9).fields()["timeout"] == 1
