"""An inference container as SageMaker hosts them, which speaks LMI's schema, on the embedded engine.

``python -m model_server.aws.container --model DIR --port N`` serves GET /ping and POST /invocations on the
loopback. DIR stands for /opt/ml/model: serving.properties, and the engine folder unless ``--engine`` names it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from model_server.aws import lmi
from model_server.aws.server import HOST, confine_process, require_loopback
from model_server.aws.service import Format, Service, Tokens, Work
from model_server.loop import JobQueueFull, one_line
from serving_base.errors import EngineError, RequestRefused

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

Result = TypeVar("Result")
DEFAULT_PORT = 8080
FAILED_DEPENDENCY, SERVICE_UNAVAILABLE = 424, 503


def application(service: Service, failed: threading.Event) -> Starlette:
    """The HTTP side. ``failed`` is set when the model could not be loaded."""
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    def answer(status: int, body: bytes) -> Response:
        return Response(body, status, {"Content-Type": lmi.JSON})

    gone = answer(SERVICE_UNAVAILABLE, b"")  # nobody reads it

    async def ping(_: Request) -> Response:
        state = "Healthy" if service.healthy else "Starting"
        return answer(200 if service.healthy else SERVICE_UNAVAILABLE, f'{{"status": "{state}"}}'.encode())

    async def invocations(request: Request) -> Response:
        if not service.healthy:
            return answer(SERVICE_UNAVAILABLE, unavailable_body("the model is not loaded"))
        try:
            work = service.read(await request.body())
            return await respond(request, work)
        except (lmi.BadRequest, RequestRefused) as error:
            return answer(FAILED_DEPENDENCY, lmi.error_body(str(error).replace("\n", " ")))
        except EngineError as error:
            return answer(FAILED_DEPENDENCY, lmi.error_body(one_line(error)))
        except JobQueueFull as full:
            message = f"{full.waiting} requests wait already, and job_queue_size is {full.limit}"
            return answer(SERVICE_UNAVAILABLE, unavailable_body(message))

    async def respond(request: Request, work: Work) -> Response:
        headers = {"Content-Type": work.format.content_type}
        if not work.request.stream:
            finished = await unless_gone(request, collect(work))
            return gone if finished is None else Response(work.format.whole(finished), headers=headers)
        begun = await unless_gone(request, service.begin(work))
        if begun is None:
            return gone
        job, tokens = begun
        # The task runs however the response ends, and the body's generator may never have been started.
        return StreamingResponse(
            stream_body(work.format, tokens), headers=headers, background=BackgroundTask(service.end, job)
        )

    async def collect(work: Work) -> lmi.Answer:
        job, tokens = await service.begin(work)
        try:
            async for so_far, _ in tokens:
                finished = so_far
        finally:
            service.end(job)
        return finished

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loading = asyncio.ensure_future(load())
        yield
        await loading
        service.close()

    async def load() -> None:
        # Starlette's own thread pool, so that what streaming needs is imported before the first caller comes.
        await run_in_threadpool(service.load)
        if service.failure:
            failed.set()

    routes = [Route("/ping", ping), Route("/invocations", invocations, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


async def stream_body(form: Format, tokens: Tokens) -> AsyncIterator[bytes]:
    """One chunk for each token, then what ends the stream."""
    async for answer, token in tokens:
        yield form.chunk(answer, token)
    if rest := form.end(answer):
        yield rest


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result | None:
    """The result of ``work``, or None when the client went first; then ``work`` is cancelled."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        leaving.cancel()
        working.cancel()


async def disconnected(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def unavailable_body(message: str) -> bytes:
    """As DJL Serving's front end answers when it cannot take a request."""
    return json.dumps({"code": SERVICE_UNAVAILABLE, "type": "ServiceUnavailableException", "message": message}).encode()


def serve(service: Service, listener: socket.socket) -> None:
    """Serve until SIGINT, or until the model could not be loaded."""
    import uvicorn

    failed = threading.Event()

    def stop_when_failed() -> None:
        failed.wait()
        server.should_exit = True

    config = uvicorn.Config(
        application(service, failed),
        loop="asyncio",
        http="h11",
        log_level="warning",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    server = uvicorn.Server(config)
    threading.Thread(target=stop_when_failed, daemon=True).start()
    server.run(sockets=[listener])


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="stands for /opt/ml/model")
    parser.add_argument("--engine", type=Path, help="the engine folder; without it, option.model_id or DIR")
    parser.add_argument("--image", default="", help="whose schema to speak: an image or its tag")
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--port", type=int, default=int(os.environ.get("SAGEMAKER_BIND_TO_PORT", DEFAULT_PORT)))
    parser.add_argument("--address-file", type=Path, help="gets the address once it listens")
    options = parser.parse_args(argv)
    confine_process()
    require_loopback(options.host, wanted="bind")
    service = Service(options.model, options.engine or options.model, options.image)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen(1024)
        if options.address_file is not None:
            partial = options.address_file.with_suffix(".new")
            partial.write_text(f"http://{HOST}:{listener.getsockname()[1]}", encoding="utf-8")
            partial.rename(options.address_file)
        serve(service, listener)
    if service.failure:
        sys.exit(service.failure)


if __name__ == "__main__":
    main()
