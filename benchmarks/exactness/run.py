"""python -m benchmarks.exactness.run ENGINE [MODEL] ...: are the answers transformers' own, and Triton's the engine's?

The shipped model's held-out questions, greedy. transformers answers them in bfloat16, with the Python and on the device
of the engine; then the engine does, one by one and all at once; then it behind the course's Triton repository, over
``--streams`` gRPC streams: token ids and text, in one answer and streamed. Printed is how many answers equal those of
transformers, and those of the engine one by one. For each question whose ids part from those of transformers: where,
and how far apart the two tokens' logits are in float32. The exit status is 1 where a way through Triton is not the
engine's own.

An engine in FP8 is another model than MODEL in bfloat16: of it only the second column is a promise.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.exactness import logits
from benchmarks.exactness.differences import Parting, explained, parting
from model_server.answers import complete
from model_server.engines import EngineOptions, opener_of, warm_up
from model_server.protocol import Sampling
from model_server.text import TextCodec
from model_server.triton.repository import ServingOptions, write_repository
from model_server.triton.server import TritonServer
from serving_base import reference_run
from serving_base.processes import stream_command, users_environment
from serving_base.servers import choose_ports
from serving_clients import triton
from tiny_llama import MODEL_DIR
from tiny_llama.data import read_questions
from vllm_serving.engine import EngineFolder
from vllm_serving.environment import find_vllm

Answer = tuple[int, ...]
Question = TypeVar("Question")
Given = TypeVar("Given")
NOT_TORCHS = dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "OMP_NUM_THREADS", "LD_LIBRARY_PATH"))


@dataclass(frozen=True)
class Asked:
    """``texts`` are ``prompts`` as the text model takes them, special tokens written out."""

    codec: TextCodec
    texts: tuple[str, ...]
    prompts: tuple[Answer, ...]
    new_tokens: int

    @classmethod
    def of(cls, engine: Path, count: int, new_tokens: int) -> "Asked":
        codec = TextCodec.load(engine / "tokenizer")
        questions = [item["question"] for item in read_questions("held")[:count]]
        texts = tuple(codec.render_chat([{"role": "user", "content": question}]) for question in questions)
        prompts = tuple(tuple(codec.encode(text, special_tokens=False)) for text in texts)
        return cls(codec, texts, prompts, new_tokens)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.new_tokens, end_id=self.codec.end_id)


def main(
    engine: Path,
    model: Annotated[Path, typer.Argument(help="what transformers loads")] = MODEL_DIR,
    questions: int = 64,
    new_tokens: int = 64,
    streams: Annotated[int, typer.Option(help="requests at once through Triton")] = 16,
    release: str = "0.12.0",
) -> None:
    asked = Asked.of(engine, questions, new_tokens)
    torch = Torch.of(engine)
    expected, device = torch.answers(model, asked)
    alone, together = engine_answers(engine, asked)
    with served(engine, release, streams) as running:
        ids = {
            f"Triton, ids, {word}": ask_ids(running, asked, streams, streaming=word == "streamed")
            for word in ("one answer", "streamed")
        }
        texts = {
            f"Triton, text, {word}": ask_texts(running, asked, streams, streaming=word == "streamed")
            for word in ("one answer", "streamed")
        }
    ways = {"engine, one by one": alone, "engine, all at once": together, **ids}
    Console(width=120).print(counted(asked, expected, alone, ways, texts, device))
    for line in torch.explain(model, asked, expected, ways):
        print(line)
    sys.exit(0 if all(answers == alone for answers in ids.values()) and same_text(asked, alone, texts) else 1)


@dataclass(frozen=True)
class Torch:
    """The Python of an engine and the device that its transformers shall use; None: its processor."""

    python: Path
    device_map: str | None

    @classmethod
    def of(cls, engine: Path) -> "Torch":
        builder = json.loads((engine / "config.json").read_text(encoding="utf-8"))["builder"]["name"]
        if builder != "vllm":
            return cls(Path(sys.executable), None)
        found = find_vllm(Path(EngineFolder.read(engine).python))
        return cls(found.python, "auto" if found.device == "cuda" else None)

    def answers(self, model: Path, asked: Asked) -> tuple[list[Answer], str]:
        """Without the end token; and where they were computed."""
        job = {"prompts": asked.prompts, "texts": [], "max_new_tokens": asked.new_tokens}
        found = self._run(reference_run.__file__, model, job)
        answers = [tuple(ids[:-1] if ids[-1] == asked.codec.end_id else ids) for ids in found["answers"]]
        return answers, f"{found['device']}, torch {found['torch']}, transformers {found['transformers']}"

    def explain(
        self, model: Path, asked: Asked, expected: Sequence[Answer], ways: Mapping[str, Sequence[Answer]]
    ) -> Iterator[str]:
        """A sentence for every parting, with the ways that it was found in."""
        found: dict[Parting, list[str]] = {}
        for way, answers in ways.items():
            for question, pair in enumerate(zip(expected, answers, strict=True)):
                if part := parting(question, *pair):
                    found.setdefault(part, []).append(way)
        cases = [
            {
                "ids": [*asked.prompts[part.question], *expected[part.question][: part.at]],
                "tokens": [asked.codec.end_id if token is None else token for token in part.tokens],
            }
            for part in found
        ]
        scores = self._run(logits.__file__, model, {"cases": cases}) if cases else []
        for (part, names), score in zip(found.items(), scores, strict=True):
            yield f"{explained(part, **score)}; in: {', '.join(names)}"

    def _run(self, script: str, model: Path, job: Mapping[str, Any]) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder) / name) for name in ("job.json", "result.json")]
            Path(files[0]).write_text(json.dumps({**job, "model": str(model), "device_map": self.device_map}))
            stream_command([str(self.python), script, *files], env=NOT_TORCHS, base=users_environment())
            return json.loads(Path(files[1]).read_text(encoding="utf-8"))


def engine_answers(engine: Path, asked: Asked) -> tuple[list[Answer], list[Answer]]:
    """One by one, and all at once."""
    opened = opener_of(engine).open_engine(engine, EngineOptions(threads=1))
    try:
        warm_up(opened)
        alone = [complete(opened, [prompt], asked.sampling)[0].token_ids for prompt in asked.prompts]
        return alone, [answer.token_ids for answer in complete(opened, asked.prompts, asked.sampling)]
    finally:
        opened.close()


@contextmanager
def served(engine: Path, release: str, streams: int) -> Iterator[TritonServer]:
    http, grpc, metrics = choose_ports((0, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        options = ServingOptions(engine, engine / "tokenizer", max_batch_size=streams, add_special_tokens=False)
        write_repository(Path(folder), release, options.values())
        with TritonServer(Path(folder), http_port=http, grpc_port=grpc, metrics_port=metrics) as running:
            yield running


def ask_ids(running: TritonServer, asked: Asked, streams: int, *, streaming: bool) -> list[Answer]:
    def one(prompt: Answer) -> Answer:
        numbers = {
            "input_ids": [list(prompt)],
            "input_lengths": [[len(prompt)]],
            "request_output_len": [[asked.new_tokens]],
            "end_id": [[asked.codec.end_id]],
        }
        tensors = {name: np.array(value, np.int32) for name, value in numbers.items()}
        tensors["streaming"] = np.array([[streaming]])
        pieces = triton.grpc_infer(running.grpc_url, "tensorrt_llm", tensors)
        return tuple(int(token) for piece in pieces for token in piece["output_ids"].reshape(-1))

    return _at_once(streams, one, asked.prompts)


def ask_texts(running: TritonServer, asked: Asked, streams: int, *, streaming: bool) -> list[str]:
    def one(text: str) -> str:
        end_id = asked.codec.end_id
        return "".join(triton.grpc_stream(running.grpc_url, text, asked.new_tokens, end_id=end_id, stream=streaming))

    return _at_once(streams, one, asked.texts)


def _at_once(streams: int, ask: Callable[[Question], Given], questions: Sequence[Question]) -> list[Given]:
    with ThreadPoolExecutor(streams) as pool:
        return list(pool.map(ask, questions))


def counted(
    asked: Asked,
    expected: Sequence[Answer],
    alone: Sequence[Answer],
    ways: Mapping[str, Sequence[Answer]],
    texts: Mapping[str, Sequence[str]],
    device: str,
) -> Table:
    """How many answers of each way equal transformers', and the engine's one by one."""
    title = f"equal answers; transformers on {device}"
    shown = Table("way", "as transformers", "as the engine one by one", title=title)
    for way, answers in ways.items():
        shown.add_row(way, *(_equal(answers, other) for other in (expected, alone)))
    for way, given in texts.items():
        shown.add_row(way, *(_equal(given, list(map(asked.codec.decode, other))) for other in (expected, alone)))
    return shown


def _equal(found: Sequence[object], expected: Sequence[object]) -> str:
    same = sum(one == other for one, other in zip(found, expected, strict=True))
    return f"{same} / {len(expected)}"


def same_text(asked: Asked, alone: Sequence[Answer], texts: Mapping[str, Sequence[str]]) -> bool:
    return all(list(given) == list(map(asked.codec.decode, alone)) for given in texts.values())


if __name__ == "__main__":
    typer.run(main)
