"""Chapter 05: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case

ANSWER = "un, deux, trois"
CONFIG = 'name: "tensorrt_llm"\nbackend: "tensorrtllm"\nmax_batch_size: 16\n'
CONFIG += 'output [ { name: "output_ids" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
NOTE, ERROR = Thing(severity="note"), Thing(severity="error")


def repository(config: str = CONFIG, finding: Thing = NOTE) -> dict[str, Any]:
    """A repository of which every file holds ``config``, and a check of it that finds ``finding``."""

    class Folder:
        def __truediv__(self, name: str) -> "Folder":
            return self

        def read_text(self) -> str:
            return config

    checks = Thing(check_repository=lambda path: [finding])
    return {"repository": Thing(path=Folder()), "playbook": Thing(model_repository=checks)}


def server(**health: object) -> dict[str, Any]:
    answer = Thing(**({"live": True, "ready": True, "models": {"ensemble": True}} | health))
    clients = Thing(triton=Thing(health=lambda url, models: answer))
    return {"server": Thing(http_url=""), "templates": {}, "playbook": Thing(clients=clients)}


def triton(**does: object) -> dict[str, Any]:
    given = {"server": Thing(http_url="", metrics_url=""), "prompt": "", "options": {}, "answer": ANSWER}
    return given | {"playbook": Thing(clients=Thing(triton=Thing(**does)))}


def streamed(*pieces: str) -> dict[str, Any]:
    return triton(generate_stream=lambda *words, **options: iter(pieces))


def misspelt(status: int) -> dict[str, Any]:
    def refuse(*words: object, **options: object) -> None:
        raise ValueError("ensemble has no input 'temprature'")

    return triton(generate=refuse) | {"httpx": Thing(post=lambda *words, **options: Thing(status_code=status))}


def three_ways(by_hand: str = ANSWER, bls: str = ANSWER) -> dict[str, Any]:
    return triton(generate=lambda *words, **options: bls) | {"by_hand": by_hand}


def answered(*texts: str, count: int = 64) -> dict[str, Any]:
    """Streams that brought ``texts``, of ``count`` questions whose own answer is ANSWER."""
    many = (texts * count)[:count]
    return {"timelines": [Thing(text=text) for text in many], "alone": [ANSWER], "order": [0] * count, "clients": 4}


def counted(requests: int = 9, active: float = 0.0, used: float = 0.0) -> dict[str, Any]:
    figures = {
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used"}': used,
        'nv_trt_llm_request_metrics{request_type="active"}': active,
    }
    load = Thing(counted_when=lambda read, expected: {"requests": requests})
    stub = Thing(clients=Thing(triton=Thing(metrics=lambda url: figures)), load=load)
    return {
        "server": Thing(metrics_url=""),
        "counted": None,
        "before": {"requests": 5},
        "order": [0] * 4,
        "playbook": stub,
    }


def replies(refuses: bool = True, answers: bool = True) -> dict[str, Any]:
    """A server that refuses the article's payload, and answers the checker's."""

    def post(url: str, json: dict[str, object], **options: object) -> Thing:
        article = "inputs" in json
        body = {"error": "missing"} if article else {"text_output": "yes"} if answers else {"error": "no"}
        return Thing(json=lambda: body, is_client_error=article and refuses)

    import json
    import shlex

    proposal = shlex.join(["curl", "-d", json.dumps({"text_input": "What?", "max_tokens": 9})])
    return {
        "proposal": proposal,
        "sent": {"payload": {"inputs": "What?"}},
        "server": Thing(http_url=""),
        "httpx": Thing(post=post),
        "json": json,
        "shlex": shlex,
    }


def ended(stubs: tuple[int, ...] = (), regions: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"server": Thing(stop=lambda: Thing(stubs=stubs, regions=regions))}


TENSORS = "by hand and through tensorrt_llm_bls"
CASES = [
    Case("05-08", "the filled repository has no error", repository(), repository(finding=ERROR)),
    Case("05-08", "the engine's model keeps", repository(), repository(config='backend: "python"')),
    Case("05-10", "found: unfilled", {"config": CONFIG}, {"config": CONFIG.replace("16", "4").replace("FP32", "FP16")}),
    Case("05-13", "the server is live and ready", server(), server(ready=False)),
    Case("05-13", "all five models are ready", server(), server(models={"ensemble": False})),
    Case("05-16", "the server counts in French", {"answer": ANSWER, "direct": ANSWER}, {"answer": "one, two"}),
    Case("05-16", "the server's answer is the engine's", {"answer": ANSWER, "direct": ANSWER}, {"direct": "deux"}),
    Case("05-18", "the answer comes in pieces", streamed("un, deux", ", trois"), streamed(ANSWER)),
    Case("05-18", "the streamed pieces join", streamed("un, deux", ", trois"), streamed("un", "deux")),
    Case("05-20", "Triton accepts the misspelt field", misspelt(200), misspelt(400)),
    Case("05-23", TENSORS, three_ways(), three_ways(by_hand="one, two"), profile="p5"),
    Case("05-23", "by hand, through the three models", three_ways(), three_ways(by_hand="deux, un")),
    Case("05-23", "through tensorrt_llm_bls too", three_ways(), three_ways(bls="deux, un")),
    Case("05-26", "every stream brought an answer", answered(ANSWER), answered(ANSWER, ""), profile="p5"),
    Case("05-26", "all 64 answers equal", answered(ANSWER), answered(ANSWER, "deux")),
    Case("05-30", "the server counted every request", counted(), counted(requests=8)),
    Case("05-30", "no request is left", counted(), counted(active=1.0)),
    Case("05-30", "no KV cache block", counted(), counted(used=3.0)),
    Case("client-4", "the server refuses the article's payload", replies(), replies(refuses=False)),
    Case("client-4", "it answers the proposal", replies(), replies(answers=False)),
    Case("05-34", "the server left nothing behind", ended(), ended(stubs=(7,))),
]
