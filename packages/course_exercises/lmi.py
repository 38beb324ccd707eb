"""The exercises of the chapter on LMI and SageMaker: a file mended, a bill, a start that fails, and an orderly end.

The image's own rules judge files, the local cloud's container refuses them, and the dated price makes the bill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.facts.prices import price
from trtllm_check.recipes.lmi import check_properties
from trtllm_check.serving_properties import parse_line, parse_properties, write_properties

IMAGE = "0.33.0-tensorrtllm0.21.0-cu128"
INSTANCE = "ml.p5.48xlarge"

# Exercise 1: a serving.properties for another image.

BROKEN_PROPERTIES = """\
engine=MPI
option.model_id=s3://your-bucket/llama3-70b/
option.tensor_parallel_degre=8
option.rolling_batch=trtllm
option.max_num_tokens=16384
option.quantize=fp8 # weights and cache
option.use_fp8_context_fmha=true
"""
MENDED_PROPERTIES = """\
engine=Python
option.model_id=s3://your-bucket/llama3-70b/
option.tensor_parallel_degree=8
option.rolling_batch=disable
option.async_mode=true
option.max_num_tokens=16384
option.quant_algo=fp8
option.kv_cache_quant_algo=fp8
option.use_fp8_context_fmha=enable
"""
MEANT: Mapping[str, tuple[str, str]] = {
    "option.model_id": ("s3://your-bucket/llama3-70b/", "the checkpoint stays where it is"),
    "option.tensor_parallel_degree": ("8", "an unknown key is dropped, and the model would not fit one GPU"),
    "option.async_mode": ("true", "this image serves through its asynchronous handler"),
    "option.max_num_tokens": ("16384", "the limit was meant, and the image reads it"),
    "option.quant_algo": ("fp8", "without it the endpoint serves 16-bit weights and looks healthy"),
    "option.kv_cache_quant_algo": ("fp8", "the cache has a key of its own, and FP8 attention needs it"),
    "option.use_fp8_context_fmha": ("enable", "FP8 attention was meant to be on"),
}
"""What the file means on the image of :data:`IMAGE`: key -> value and reason."""


def check_file(text: str) -> Solution:
    """Exercise 1: the image finds nothing in the file, and the file still means what it meant."""
    title = "A serving.properties for a newer image"
    if not text.strip():
        return Solution(title, problem="the file is empty")
    if found := sorted(check_properties(text, IMAGE), key=lambda one: one.line):
        told = (f"line {one.line}: {one.message.replace(IMAGE, 'the image')}: {one.why}" for one in found)
        return Solution(title, problem="the image would not do what it says\n  " + "\n  ".join(told))
    settings = parse_properties(text)
    verdicts = []
    for key, (wanted, why) in MEANT.items():
        yours = settings.get(key, "not set")
        verdicts.append(ExerciseVerdict(key, yours, wanted, why, yours == wanted))
    return Solution(title, tuple(verdicts))


# Exercise 2: what an endpoint costs.


def endpoint_usd(created: datetime, deleted: datetime, instances: int, usd_per_hour: float) -> float:
    return (deleted - created).total_seconds() / 3600 * instances * usd_per_hour


FRIDAY = datetime(2026, 11, 20, 18, 0, tzinfo=UTC)
MONDAY = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
CENT = 0.01


def check_bill(answer: Callable[[datetime, datetime, int, float], float]) -> Solution:
    """Exercise 2: USD of an endpoint from its creation to its deletion, for three endpoints at the dated price."""
    each = price(INSTANCE).usd_per_hour
    cases = (
        ("two hours, one instance", FRIDAY, FRIDAY + timedelta(hours=2), 1),
        ("a weekend, one instance", FRIDAY, MONDAY, 1),
        ("twenty minutes, three instances", FRIDAY, FRIDAY + timedelta(minutes=20), 3),
    )
    verdicts = []
    for said, created, deleted, instances in cases:
        yours = answer(created, deleted, instances, each)
        expected = (deleted - created) / timedelta(hours=1) * instances * each
        why = "every instance bills from creation to deletion, idle or busy, by the second"
        verdicts.append(
            ExerciseVerdict(said, f"{yours:,.2f} USD", f"{expected:,.2f} USD", why, abs(yours - expected) < CENT)
        )
    return Solution("What a forgotten endpoint costs", tuple(verdicts))


def _days_forgotten(created: datetime, deleted: datetime, instances: int, usd_per_hour: float) -> float:
    return (deleted - created).seconds / 3600 * instances * usd_per_hour


def _one_instance(created: datetime, deleted: datetime, instances: int, usd_per_hour: float) -> float:  # noqa: ARG001
    return endpoint_usd(created, deleted, 1, usd_per_hour)


def _whole_hours(created: datetime, deleted: datetime, instances: int, usd_per_hour: float) -> float:
    return (deleted - created).total_seconds() // 3600 * instances * usd_per_hour


# Exercise 3: a line that stops the start.

STOPPED = "would not start"


def check_start(answer: Mapping[str, str], *, text: str = MENDED_PROPERTIES) -> Solution:
    """Exercise 3: ``broken`` is a line with which the container of the image ends, ``repaired`` the same key mended."""
    title = "A line that stops the start"
    lines = {name: str(answer.get(name) or "").strip() for name in ("broken", "repaired")}
    parsed = {name: parse_line(line) for name, line in lines.items()}
    if not all(parsed.values()):
        return Solution(title, problem="give a line key=value for 'broken' and one for 'repaired'")
    key, repaired_key = (match["key"] for match in parsed.values() if match)
    reason, left = (_failure(text, line) for line in lines.values())
    findings = [str(one) for one in check_properties(_with(text, lines["repaired"]), IMAGE)]
    return Solution(
        title,
        (
            ExerciseVerdict(
                lines["broken"],
                reason or "the container starts",
                f"a FailureReason that names {key}",
                "only a line that the image refuses stops it; one that it ignores starts without a word",
                STOPPED in reason and key in reason,
            ),
            ExerciseVerdict(
                lines["repaired"],
                left or "; ".join(findings) or f"{repaired_key}, and the container starts",
                f"{key} with a value that the image reads",
                "the repair keeps the key and gives what the image takes",
                key == repaired_key and not left and not findings,
            ),
        ),
    )


def _with(text: str, line: str) -> str:
    """The file with this line in it, in the place of one of the same key."""
    return write_properties(parse_properties(text) | parse_properties(line))


def _failure(text: str, line: str) -> str:
    """What a container of the local cloud would leave as the reason of its failure; nothing if it starts."""
    from model_server.aws.deployment import check_settings
    from model_server.aws.endpoints import ContainerFailed

    try:
        check_settings(parse_properties(_with(text, line)), IMAGE)
    except ContainerFailed as error:
        return str(error).replace("\n", " ")
    return ""


# Exercise 4: the order of the end.

ENDING: Mapping[str, str] = {
    "deregister_scalable_target": "application-autoscaling",
    "delete_alarms": "cloudwatch",
    "delete_endpoint": "sagemaker",
    "delete_schedule": "scheduler",
    "delete_endpoint_config": "sagemaker",
    "delete_model": "sagemaker",
    "delete_objects": "s3",
}
"""The calls that end an endpoint and all that belongs to it -> the service."""
BEFORE: tuple[tuple[str, str, str], ...] = (
    ("deregister_scalable_target", "delete_endpoint", "a target whose endpoint is away is hard to let go of"),
    ("delete_endpoint", "delete_schedule", "until the endpoint is gone, its schedule is the last resort"),
    ("delete_endpoint", "delete_endpoint_config", "an endpoint that lives still needs its configuration"),
    ("delete_endpoint_config", "delete_model", "the configuration names the model"),
    ("delete_model", "delete_objects", "the model names the files"),
)


def check_end(answer: Sequence[str]) -> Solution:
    """Exercise 4: every call once, in an order in which nothing loses what it still needs."""
    title = "The order of the end"
    given = list(answer)
    if not given:
        return Solution(title, problem="the list is still empty")
    if unknown := [name for name in given if name not in ENDING]:
        return Solution(title, problem=f"{', '.join(unknown)} is none of the calls")
    if missing := [name for name in ENDING if given.count(name) != 1]:
        return Solution(title, problem=f"each call stands in it once: look at {', '.join(missing)}")
    verdicts = []
    for first, second, why in BEFORE:
        right = given.index(first) < given.index(second)
        yours = f"{first} first" if right else f"{second} first"
        verdicts.append(ExerciseVerdict(f"{first}, {second}", yours, f"{first} first", why, right))
    return Solution(title, tuple(verdicts))


_ORDER: Any = list(ENDING)
_STOP: Any = {"broken": "option.use_fp8_context_fmha=true", "repaired": "option.use_fp8_context_fmha=enable"}

EXERCISES = (
    Exercise(
        number="07-1",
        title="A serving.properties for a newer image",
        kind="mend",
        minutes=15,
        check=check_file,
        solution=MENDED_PROPERTIES,
        also=(MENDED_PROPERTIES.replace("option.rolling_batch=disable\n", ""),),
        wrong=(
            Wrong("", "the file is empty"),
            Wrong(BROKEN_PROPERTIES, "has a comment in its value"),
            Wrong(BROKEN_PROPERTIES.replace(" # weights and cache", ""), "the image does not take engine=MPI"),
            Wrong(MENDED_PROPERTIES.replace("parallel_degree", "parallel_degre"), "is ignored by"),
            Wrong(MENDED_PROPERTIES.replace("option.quant_algo=fp8\n", ""), "16-bit weights and looks healthy"),
            Wrong(MENDED_PROPERTIES.replace("option.tensor_parallel_degree=8\n", ""), "yours not set, expected 8"),
            Wrong(MENDED_PROPERTIES.replace("=enable", "=true"), "option.use_fp8_context_fmha=true"),
        ),
    ),
    Exercise(
        number="07-2",
        title="What a forgotten endpoint costs",
        kind="compute",
        minutes=5,
        check=check_bill,
        solution=endpoint_usd,
        also=(lambda created, deleted, instances, each: (deleted - created) / timedelta(hours=1) * instances * each,),
        wrong=(
            Wrong(_days_forgotten, "a weekend, one instance"),
            Wrong(_one_instance, "twenty minutes, three instances"),
            Wrong(_whole_hours, "by the second"),
            Wrong(lambda *_: 0.0, "idle or busy"),
        ),
    ),
    Exercise(
        number="07-3",
        title="A line that stops the start",
        kind="break",
        minutes=5,
        check=check_start,
        solution=_STOP,
        also=({"broken": "engine=MPI", "repaired": "engine=Python"},),
        wrong=(
            Wrong({"broken": "", "repaired": ""}, "give a line key=value"),
            Wrong(_STOP | {"broken": "option.quantize=fp8"}, "starts without a word"),
            Wrong(_STOP | {"repaired": "option.use_fp8_context_fmha=on"}, "gives what the image takes"),
            Wrong(_STOP | {"repaired": "engine=Python"}, "the repair keeps the key"),
        ),
        row="`Failed` right away, `FailureReason` names an option",
    ),
    Exercise(
        number="07-4",
        title="The order of the end",
        kind="choose",
        minutes=5,
        check=check_end,
        solution=_ORDER,
        also=([*_ORDER[:1], *_ORDER[2:], "delete_alarms"],),
        wrong=(
            Wrong([], "the list is still empty"),
            Wrong([*_ORDER[:2], "stop_endpoint", *_ORDER[2:]], "stop_endpoint is none of the calls"),
            Wrong(_ORDER[:3], "look at delete_schedule"),
            Wrong(_ORDER[::-1], "its schedule is the last resort"),
            Wrong(["delete_endpoint", *_ORDER[:2], *_ORDER[3:]], "hard to let go of"),
            Wrong([*_ORDER[:4], "delete_model", "delete_endpoint_config", "delete_objects"], "names the model"),
        ),
    ),
)
