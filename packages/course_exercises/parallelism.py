"""The exercises of the chapter on parallelism: a row cut, the bytes of a step, a manifest to mend, ranks.

A stub raises ``NotImplementedError``; that is reported loudly and stops nothing. Any right solution passes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from cpu_serving.parallel.wire import layer_sums_bytes
from serving_base.facts.models import known_shape
from trtllm_check.deployment import Deployment
from trtllm_check.lint import check_commands
from trtllm_check.recipes.kubernetes import NodeGroup, manifest_problems, manifests, node_group

TOLERANCE = 1e-9
RANKS = (2, 4)
RowCut = Callable[[np.ndarray, np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]


def check_row_cut(row_cut: RowCut) -> Solution:
    """Exercise 1: ``row_cut(x, weight, rank, ranks)`` gives a rank's parts of both; the ranks' products add up to y."""
    title = "a row cut"
    made = np.random.default_rng(14)
    x, weight = made.standard_normal((3, 8)), made.standard_normal((5, 8))
    verdicts = []
    for ranks in RANKS:
        try:
            parts = [row_cut(x.copy(), weight.copy(), rank, ranks) for rank in range(ranks)]
            total = sum(part @ share.T for part, share in parts)
            held = {share.size for _, share in parts}
        except NotImplementedError as error:
            return Solution(title, problem=str(error))
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            return Solution(title, problem=f"{ranks} ranks: {type(error).__name__}: {str(error)[:120]}")
        difference = float(np.abs(total - x @ weight.T).max()) if np.shape(total) == (3, 5) else float("inf")
        verdicts += [
            ExerciseVerdict(
                f"{ranks} ranks, sum of the products",
                f"off by {difference:.3g}",
                "y",
                "each rank multiplies its columns of x with the same columns of the weight",
                difference < TOLERANCE,
            ),
            ExerciseVerdict(
                f"{ranks} ranks, numbers on each",
                f"{sorted(held)}",
                f"[{weight.size // ranks}]",
                "a rank holds its share of the weight and no more",
                held == {weight.size // ranks},
            ),
        ]
    return Solution(title, tuple(verdicts))


SENT: Mapping[str, tuple[str, int, int, str]] = {
    "the small model, 160 tokens, TP 2": ("tiny", 160, 2, "two sums a layer; with two ranks the ring's factor is 1"),
    "70B, one token, TP 8": (
        "llama-3-70b-instruct",
        1,
        8,
        "the ring's factor is 2 (p - 1) / p, with 8 ranks 1.75",
    ),
    "70B, 4096 tokens, TP 4": ("llama-3-70b-instruct", 4096, 4, "every token of the step is summed"),
    "70B, 64 tokens, TP 1": ("llama-3-70b-instruct", 64, 1, "one rank sends nothing"),
}
"""Case -> model, tokens of the step, ranks, and why; activations have two bytes, in FP8 models too."""
ACTIVATION_BYTES = 2


def check_bytes(bytes_sent: Callable[[int, int, int, int], float]) -> Solution:
    """Exercise 2: ``bytes_sent(layers, tokens, hidden, ranks)`` a rank for the layers of one step, BF16 activations."""
    title = "bytes of a step"
    verdicts = []
    for given, (model, tokens, ranks, why) in SENT.items():
        shape = known_shape(model)
        try:
            yours = float(bytes_sent(shape.num_hidden_layers, tokens, shape.hidden_size, ranks))
        except NotImplementedError as error:
            return Solution(title, problem=str(error))
        except (TypeError, ValueError, ArithmeticError) as error:
            return Solution(title, problem=f"{given}: {type(error).__name__}: {error}")
        expected = layer_sums_bytes(shape.num_hidden_layers, tokens, shape.hidden_size, ACTIVATION_BYTES, ranks)
        right = abs(yours - expected) <= 1e-9 * max(expected, 1.0)
        verdicts.append(ExerciseVerdict(given, f"{yours:,.0f}", f"{expected:,.0f}", why, right))
    return Solution(title, tuple(verdicts))


def two_machines() -> NodeGroup:
    """A 70B with TP 8 over two P5, what a test mends."""
    given = {"name": "p5", "model": "llama-3-70b-instruct", "instance": "p5.48xlarge", "tp": 8}
    return node_group(Deployment.model_validate(given), pp=2)


def broken_manifests(group: NodeGroup) -> list[dict[str, Any]]:
    """LeaderWorkerSet and Service of ``group`` with four faults: two that a schema sees not, two in one Service."""
    made, service = manifests(group)
    template = made["spec"]["leaderWorkerTemplate"]
    template["restartPolicy"] = "Always"
    template["size"] = 1
    service["spec"]["selector"]["role"] = "worker"
    service["spec"]["ports"][0]["targetPort"] = 8080
    return [made, service]


def check_mended(mend: Callable[[dict[str, Any], dict[str, Any]], object], group: NodeGroup) -> Solution:
    """Exercise 3: ``mend(leader_worker_set, service)`` changes the broken manifests of ``group`` until all fits."""
    title = "the manifest"
    documents = broken_manifests(group)
    right = manifests(group)[0]["spec"]["leaderWorkerTemplate"]
    try:
        mend(*documents)
    except NotImplementedError as error:
        return Solution(title, problem=str(error))
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        return Solution(title, problem=f"mend: {type(error).__name__}: {error}")
    try:
        problems = manifest_problems(copy.deepcopy(documents))
        pod = documents[0]["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]
        same = pod == right["leaderTemplate"]["spec"]["containers"][0]
    except (TypeError, LookupError, AttributeError) as error:
        return Solution(title, problem=f"the manifests have lost a part: {type(error).__name__}: {error}")
    policy = documents[0]["spec"]["leaderWorkerTemplate"].get("restartPolicy", "left out")
    whole = policy == right["restartPolicy"]
    why_whole = "ranks that lost one of them wait for ever: the group has to start again as one"
    return Solution(
        title,
        (
            ExerciseVerdict(
                "schemas, and the parts together", "; ".join(problems) or "valid", "valid", "", not problems
            ),
            ExerciseVerdict("what a lost pod does", policy, right["restartPolicy"], why_whole, whole),
            ExerciseVerdict(
                "the leader's container",
                "unchanged" if same else "another",
                "unchanged",
                "the engine keeps its ranks and its port; the rest has to fit it",
                same,
            ),
        ),
    )


def row_cut(x: np.ndarray, weight: np.ndarray, rank: int, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    size = x.shape[1] // ranks
    own = slice(rank * size, (rank + 1) * size)
    return x[:, own], weight[:, own]


def _by_numpy(x: np.ndarray, weight: np.ndarray, rank: int, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array_split(x, ranks, axis=1)[rank], np.array_split(weight, ranks, axis=1)[rank]


def _every_other(x: np.ndarray, weight: np.ndarray, rank: int, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    return x[:, rank::ranks], weight[:, rank::ranks]


def bytes_sent(layers: int, tokens: int, hidden: int, ranks: int) -> float:
    return 2 * layers * tokens * hidden * 2 * 2 * (ranks - 1) / ranks


def mend(workers: dict[str, Any], service: dict[str, Any]) -> None:
    template = workers["spec"]["leaderWorkerTemplate"]
    template["size"] = 2
    template["restartPolicy"] = "RecreateGroupOnPodRestart"
    service["spec"]["selector"]["role"] = "leader"
    service["spec"]["ports"][0]["targetPort"] = 8000


def _by_the_ports_name(workers: dict[str, Any], service: dict[str, Any]) -> None:
    mend(workers, service)
    service["spec"]["ports"][0]["targetPort"] = "http"


def _no_restart(workers: dict[str, Any], service: dict[str, Any]) -> None:
    mend(workers, service)
    workers["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "None"


def _one_machine(workers: dict[str, Any], service: dict[str, Any]) -> None:
    mend(workers, service)
    workers["spec"]["leaderWorkerTemplate"]["size"] = 1


def _to_the_workers(workers: dict[str, Any], service: dict[str, Any]) -> None:
    mend(workers, service)
    service["spec"]["selector"]["role"] = "worker"


def _another_port(workers: dict[str, Any], service: dict[str, Any]) -> None:
    mend(workers, service)
    service["spec"]["ports"][0]["targetPort"] = 8080


def _smaller_engine(workers: dict[str, Any], service: dict[str, Any]) -> None:
    _one_machine(workers, service)
    container = workers["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]
    container["command"][-1] = container["command"][-1].replace("--pipeline-parallel-size 2", "")


RELEASE = "0.12.0"
QUANTIZE = "python3 quantize.py --model_dir model --qformat fp8 --kv_cache_dtype fp8 --output_dir checkpoint"
BUILD = "trtllm-build --checkpoint_dir checkpoint --output_dir engine"
LAUNCH = "python3 scripts/launch_triton_server.py --model_repo repository --world_size"
RANKS_OF_EIGHT = {
    "quantize": f"{QUANTIZE} --tp_size 4 --pp_size 2",
    "broken": f"{LAUNCH} 4",
    "mended": f"{LAUNCH} 8",
}


def check_ranks(answer: Mapping[str, str]) -> Solution:
    """Exercise 4: a checkpoint, and two starts of a server for its engine: one with other ranks, one with its own."""
    title = "ranks that do not fit"
    tools = {"quantize": "quantize.py", "broken": "launch_triton_server.py", "mended": "launch_triton_server.py"}
    for word, tool in tools.items():
        if tool not in answer.get(word, ""):
            return Solution(title, problem=f"{word} is no command of {tool} yet")
    said = {}
    for word in ("broken", "mended"):
        found = check_commands("\n".join([answer["quantize"], BUILD, answer[word]]), RELEASE, gpu="h100", gpus=8)
        said[word] = [one for one in found if one.severity == "error"]
    text = {word: "; ".join(one.message for one in found) or "no error" for word, found in said.items()}
    ranks = [one.rule for one in said["broken"]] == ["ranks-not-tp-pp"]
    why = "start more or fewer ranks than TP x PP, and change nothing else"
    return Solution(
        title,
        (
            ExerciseVerdict("broken", text["broken"], "ranks that are not TP x PP", why, ranks),
            ExerciseVerdict("mended", text["mended"], "no error", "as many ranks as TP x PP", not said["mended"]),
        ),
    )


EXERCISES = (
    Exercise(
        number="14-1",
        title="A row cut",
        kind="compute",
        minutes=10,
        check=check_row_cut,
        solution=row_cut,
        also=(_by_numpy, _every_other),
        wrong=(
            Wrong(lambda x, weight, rank, ranks: (x, weight), "off by"),
            Wrong(lambda x, weight, rank, ranks: (x, np.array_split(weight, ranks)[rank]), "ValueError"),
            Wrong(lambda x, weight, rank, ranks: (x / ranks, weight), "a rank holds its share"),
            Wrong(
                lambda x, weight, rank, ranks: (
                    row_cut(x, weight, rank, ranks)[0],
                    _every_other(x, weight, rank, ranks)[1],
                ),
                "the same columns of the weight",
            ),
            Wrong(lambda x, weight, rank, ranks: row_cut(x, weight, 0, ranks), "off by"),
            Wrong(lambda x, weight, rank, ranks: (x, row_cut(x, weight, rank, ranks)[1]), "ValueError"),
            Wrong(lambda x, weight, rank, ranks: None, "TypeError"),
        ),
    ),
    Exercise(
        number="14-2",
        title="The bytes of a 70B",
        kind="compute",
        minutes=10,
        check=check_bytes,
        solution=bytes_sent,
        wrong=(
            Wrong(lambda layers, tokens, hidden, ranks: 4 * layers * tokens * hidden, "one rank sends nothing"),
            Wrong(
                lambda layers, tokens, hidden, ranks: bytes_sent(layers, tokens, hidden, ranks) / 2, "two sums a layer"
            ),
            Wrong(
                lambda layers, tokens, hidden, ranks: bytes_sent(layers, tokens, hidden, ranks) * ranks,
                "with 8 ranks 1.75",
            ),
            Wrong(
                lambda layers, tokens, hidden, ranks: bytes_sent(layers, 1, hidden, ranks), "every token of the step"
            ),
            Wrong(lambda layers, tokens, hidden, ranks: 0, "70B, one token, TP 8: yours 0"),
        ),
    ),
    Exercise(
        number="14-4",
        title="Mend a manifest",
        kind="mend",
        minutes=10,
        check=check_mended,
        solution=mend,
        also=(_by_the_ports_name,),
        wrong=(
            Wrong(lambda workers, service: None, "restartPolicy"),
            Wrong(_no_restart, "what a lost pod does: yours None"),
            Wrong(_one_machine, "pods"),
            Wrong(_to_the_workers, "role"),
            Wrong(_another_port, "8080"),
            Wrong(_smaller_engine, "the leader's container: yours another"),
            Wrong(lambda workers, service: service.clear(), "kind None is none of"),
            Wrong(lambda workers, service: workers["spec"]["nothing"], "KeyError"),
        ),
        context=lambda: {"group": two_machines()},
    ),
    Exercise(
        number="14-3",
        title="Ranks that do not fit",
        kind="break",
        minutes=5,
        check=check_ranks,
        solution=RANKS_OF_EIGHT,
        also=(
            {"quantize": f"{QUANTIZE} --tp_size 8", "broken": f"{LAUNCH} 2", "mended": f"{LAUNCH} 8"},
            {"quantize": f"{QUANTIZE} --tp_size 2", "broken": f"{LAUNCH} 1", "mended": f"{LAUNCH} 2"},
        ),
        wrong=(
            Wrong(dict.fromkeys(RANKS_OF_EIGHT, ""), "quantize is no command of quantize.py yet"),
            Wrong(RANKS_OF_EIGHT | {"broken": f"{LAUNCH} 8"}, "start more or fewer ranks"),
            Wrong(RANKS_OF_EIGHT | {"mended": f"{LAUNCH} 4"}, "mended: yours launch_triton_server.py stops"),
            Wrong(RANKS_OF_EIGHT | {"mended": f"{QUANTIZE} --tp_size 4"}, "mended is no command of launch_triton"),
            Wrong(RANKS_OF_EIGHT | {"broken": f"{LAUNCH} four"}, "start more or fewer ranks"),
        ),
        row="`mpiSize == tp*pp`",
    ),
)
