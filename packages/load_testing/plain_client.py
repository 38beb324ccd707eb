"""A plain streaming client for Triton's generate_stream: threads and sockets, nothing else. The check on AIPerf."""

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

from load_testing.results import Load, RequestRecord
from load_testing.workload import WorkItem
from serving_base.errors import RequestRefused
from serving_base.servers import TEXT_MODEL

TOOL = "plain client"
TIMEOUT_S = 120.0


class StreamClient:
    """Asks and notes when each piece of text arrives. One connection per thread, kept open."""

    def __init__(self, url: str, *, model: str = TEXT_MODEL, timeout_s: float = TIMEOUT_S) -> None:
        self._address = urlsplit(url).netloc
        self._path = f"/v2/models/{model}/generate_stream"
        self._timeout_s = timeout_s
        self._mine = threading.local()
        self._opened: list[http.client.HTTPConnection] = []

    def ask(self, item: WorkItem) -> tuple[float, list[float]]:
        """``time.perf_counter`` at sending and at each piece that holds text. Raises RequestRefused or OSError."""
        body = json.dumps(item.body())
        connection = self._connection()
        sent_s = time.perf_counter()
        arrived_s = []
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            for now_s, event in _events(connection.getresponse()):
                if "error" in event:
                    raise RequestRefused("the server refused the request", why=str(event["error"]))
                if event["text_output"]:
                    arrived_s.append(now_s)
        except BaseException:
            connection.close()  # what is left of this answer must not be read as the next one's
            raise
        return sent_s, arrived_s

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = http.client.HTTPConnection(self._address, timeout=self._timeout_s)
            self._opened.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[float, dict[str, object]]]:
    """Server-sent events with their arrival; an error that comes as plain JSON counts as an event."""
    for line in response:
        now_s = time.perf_counter()
        if line.startswith((b"data:", b"{")):
            yield now_s, json.loads(line.removeprefix(b"data:"))


def closed_loop(
    url: str,
    items: Sequence[WorkItem],
    *,
    concurrency: int,
    requests: int = 0,
    stop: threading.Event | None = None,
    run: str = "",
) -> list[RequestRecord]:
    """``concurrency`` streams, each sending its next request when an answer ends.

    ``requests`` in all, or until ``stop`` is set. The items are used in turn, from the first again after the last.
    """
    load = Load(mode="closed", concurrency=concurrency)
    turns: Iterator[WorkItem] = itertools.cycle(items)
    if requests:
        turns = itertools.islice(turns, requests)
    taking = threading.Lock()

    def stream(ask: Callable[[WorkItem, float], RequestRecord]) -> Iterator[RequestRecord]:
        while not (stop and stop.is_set()):
            with taking:
                item = next(turns, None)
            if item is None:
                return
            yield ask(item, 0.0)

    with closing(StreamClient(url)) as client, ThreadPoolExecutor(concurrency) as pool:
        asker = _asker(client, load, run or f"{TOOL}, {concurrency} streams")
        streams = [pool.submit(lambda: list(stream(asker))) for _ in range(concurrency)]
        return [record for one in streams for record in one.result()]


def open_loop(
    url: str,
    items: Sequence[WorkItem],
    *,
    rate_per_s: float,
    requests: int,
    connections: int,
    seed: int,
    run: str = "",
) -> list[RequestRecord]:
    """Poisson arrivals. With every one of the ``connections`` busy a request waits here: sent later than scheduled."""
    load = Load(mode="open", concurrency=connections, rate_per_s=rate_per_s)
    draw = random.Random(seed)
    due_s = itertools.accumulate(draw.expovariate(rate_per_s) for _ in range(requests))
    turns = zip(itertools.cycle(items), due_s)
    with closing(StreamClient(url)) as client, ThreadPoolExecutor(connections) as pool:
        ask = _asker(client, load, run or f"{TOOL}, {rate_per_s:.1f} requests/s")
        return list(pool.map(lambda turn: ask(*turn), turns))


def _asker(client: StreamClient, load: Load, run: str) -> Callable[[WorkItem, float], RequestRecord]:
    """A function that waits until a request is due, sends it and makes its record."""
    began_s, began_unix_s = time.perf_counter(), time.time()

    def ask(item: WorkItem, due_s: float) -> RequestRecord:
        time.sleep(max(0.0, began_s + due_s - time.perf_counter()))
        now_s = time.perf_counter()
        error = ""
        try:
            sent_s, arrived_s = client.ask(item)
        except (RequestRefused, OSError, http.client.HTTPException, ValueError) as failure:
            sent_s, arrived_s, error = now_s, [], str(failure) or type(failure).__name__
        if not arrived_s:
            error = error or "the answer held no text"
        return RequestRecord(
            run=run,
            tool=TOOL,
            load=load,
            began_unix_s=began_unix_s,
            prompt=item.name,
            scheduled_s=due_s if load.mode == "open" else sent_s - began_s,
            sent_s=sent_s - began_s,
            first_token_s=arrived_s[0] - began_s if arrived_s else None,
            last_token_s=arrived_s[-1] - began_s if arrived_s else None,
            isl_tokens=item.isl_tokens,
            osl_tokens=0 if error else item.osl_tokens,
            gaps_ms=tuple(1000 * (after - before) for before, after in itertools.pairwise(arrived_s)),
            error=error,
        )

    return ask
