"""The exercises of the chapter on Triton: a file mended, settings chosen for a load, a template left open and filled.

The repository's own check judges the files, as the chapter runs it; Little's law judges the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from model_server.triton.repository import ServingOptions, check_config, fill_templates
from serving_base.errors import UsageError
from trtllm_check.lint.pbtxt import Message

RELEASE = "0.12.0"
BATCH = 64

# Exercise 1: a config.pbtxt that Triton would not load.

BROKEN_CONFIG = """\
name: "postprocesing"
backend: "python"
max_batch_size: ${triton_max_batch_size}
input [ { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_TEXT dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_PROCESSOR } ]
parameters { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } }
"""
MENDED_CONFIG = """\
name: "postprocessing"
backend: "python"
max_batch_size: 64
input [ { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "tokenizer_dir" value: { string_value: "/engines/llama3/tokenizer" } }
"""
MODEL = "postprocessing"


def check_config_text(text: str) -> Solution:
    """Exercise 1: the file as Triton must read it, with everything still in it that the model needs."""
    title = "Mend a config.pbtxt"
    if not text.strip():
        return Solution(title, problem="the file is empty")
    config, findings = check_config(MODEL, text)
    errors = [finding for finding in findings if finding.severity == "error"]
    if config is None or errors:
        return Solution(title, problem="Triton would not load it\n  " + "\n  ".join(map(str, errors)))
    needs = {
        "backend": ("python", config.text("backend"), "the model is a program in Python"),
        "max_batch_size": (str(BATCH), config.text("max_batch_size"), "the engine's batch, as the task says"),
        "input TOKENS_BATCH": ("TYPE_INT32", _type_of(config, "input", "TOKENS_BATCH"), "ids are whole numbers"),
        "output OUTPUT": ("TYPE_STRING", _type_of(config, "output", "OUTPUT"), "the ensemble passes on a text"),
        "instances": ("1", str(len(config.messages("instance_group"))), "the group of instances must stay"),
        "tokenizer_dir": ("a folder", _tokenizer(config), "without it the model cannot turn ids into text"),
    }
    verdicts = [
        ExerciseVerdict(name, yours or "-", wanted, why, yours == wanted)
        for name, (wanted, yours, why) in needs.items()
    ]
    return Solution(title, tuple(verdicts))


def _type_of(config: Message, side: str, name: str) -> str:
    return next((one.text("data_type") for one in config.messages(side) if one.text("name") == name), "")


def _tokenizer(config: Message) -> str:
    values = [
        entry.messages("value") for entry in config.messages("parameters") if entry.text("key") == "tokenizer_dir"
    ]
    return "a folder" if values and values[0] and values[0][-1].text("string_value") else ""


# Exercise 2: settings for a load.

LOAD: Mapping[str, float] = {
    "requests_per_minute": 400,
    "stay_s": 8.0,
    "first_token_s": 0.5,
    "longest_wait_s": 2.0,
    "engine_batch": 64,
}
"""Requests that arrive, seconds that one stays in the engine, the promise for its first token, the longest wait in
Triton's queue, and the engine's max_batch_size."""
DELAY_SHARE = 0.01
"""Of the promised first token, what a deliberate wait for more requests may take."""
CHOSEN = (
    "triton_max_batch_size",
    "bls_instance_count",
    "max_queue_size",
    "max_queue_delay_microseconds",
    "decoupled_mode",
)


def check_settings(answer: Mapping[str, Any], *, load: Mapping[str, float] = LOAD) -> Solution:
    """Exercise 2: values of the release's template variables that serve ``load``; any that fit are right."""
    title = "Settings for a load"
    missing = [name for name in CHOSEN if answer.get(name) in (None, "")]
    if missing:
        return Solution(title, problem=f"no value yet for {', '.join(missing)}")
    given = {name: str(value).lower() for name, value in answer.items()}
    problem = "; ".join(_errors(_serving() | given))
    if problem:
        return Solution(title, problem=problem)
    rate = load["requests_per_minute"] / 60
    together, batch = math.ceil(rate * load["stay_s"]), int(load["engine_batch"])
    room, delay_us = int(rate * load["longest_wait_s"]), int(DELAY_SHARE * load["first_token_s"] * 1e6)
    in_flight = f"{rate:.2f} requests a second times {load['stay_s']:g} s are {together} at once"
    ranges = {
        "triton_max_batch_size": (together, batch, f"{in_flight}; the engine takes {batch}"),
        "bls_instance_count": (together, None, f"an instance of the BLS serves one request at a time, and {in_flight}"),
        "max_queue_size": (1, room, f"0 is no limit; a longer queue waits more than {load['longest_wait_s']:g} s"),
        "max_queue_delay_microseconds": (0, delay_us, "in flight, nobody waits for a batch to fill"),
    }
    verdicts = [_within(name, int(given[name]), *limits) for name, limits in ranges.items()]
    why = "a streamed answer is many responses to one request"
    verdicts.append(
        ExerciseVerdict("decoupled_mode", given["decoupled_mode"], "true", why, given["decoupled_mode"] == "true")
    )
    return Solution(title, tuple(verdicts))


def _within(name: str, yours: int, low: int, high: int | None, why: str) -> ExerciseVerdict:
    expected = f"{low} or more" if high is None else f"{low} to {high}"
    return ExerciseVerdict(name, str(yours), expected, why, low <= yours and (high is None or yours <= high))


def _serving() -> dict[str, str]:
    """A value for every variable of the release's templates, as the course fills them."""
    return ServingOptions(Path("/engines/llama3"), Path("/engines/llama3/tokenizer"), max_batch_size=BATCH).values()


def _errors(values: Mapping[str, str]) -> list[str]:
    """What stops a server that is filled with ``values``; an unknown variable is told, not raised."""
    try:
        configs = fill_templates(RELEASE, values)
    except UsageError as error:
        return [f"{error.what}: {error.fix}"]
    findings = [finding for name, text in configs.items() for finding in check_config(name, text)[1]]
    return [str(finding) for finding in findings if finding.severity == "error"]


# Exercise 3: leave a value out, and give it.

EFFECTS: Mapping[str, tuple[str, str]] = {
    "the parser stops": ("is not filled", "a number, a boolean or a type stands without quotes"),
    "a placeholder is taken for a name": ("is still", "a quoted placeholder is a text like any other"),
}
"""What happens -> the words of the finding, and the reason."""


def check_open(answer: Mapping[str, Sequence[str]]) -> Solution:
    """Exercise 3: for each effect a variable that has it when it is left out, and the value that repairs it."""
    title = "Leave it open"
    verdicts = []
    for effect, (words, why) in EFFECTS.items():
        given = tuple(answer.get(effect) or ())
        if len(given) != 2:
            return Solution(title, problem=f"give (variable, value) for {effect!r}")
        variable, value = map(str, given)
        base = _serving()
        left = _errors({name: kept for name, kept in base.items() if name != variable})
        provoked = [finding for finding in left if words in finding]
        verdicts.append(
            ExerciseVerdict(
                f"{effect}, without {variable}",
                (left or ["nothing is found"])[0],
                f"a finding that says {words!r}",
                why,
                bool(provoked),
            )
        )
        again = _errors(base | {variable: value})
        known = variable != "triton_backend" or value == base[variable]
        verdicts.append(
            ExerciseVerdict(
                f"{effect}, with {variable}:{value}",
                (again or ["nothing is found" if known else f"the server looks for a backend {value!r}"])[0],
                "a repository without an error",
                "the value has to be one that the model can use",
                bool(value) and not again and known,
            )
        )
    return Solution(title, tuple(verdicts))


_SETTINGS = {
    "triton_max_batch_size": 64,
    "bls_instance_count": 64,
    "max_queue_size": 12,
    "max_queue_delay_microseconds": 0,
    "decoupled_mode": True,
}
_OPEN = {
    "the parser stops": ("triton_max_batch_size", "64"),
    "a placeholder is taken for a name": ("triton_backend", "tensorrtllm"),
}

EXERCISES = (
    Exercise(
        number="05-1",
        title="Leave it open",
        kind="break",
        minutes=10,
        check=check_open,
        solution=_OPEN,
        also=(
            {
                "the parser stops": ("max_queue_size", "8"),
                "a placeholder is taken for a name": ("tokenizer_dir", "/engines/llama3"),
            },
        ),
        wrong=(
            Wrong(dict.fromkeys(EFFECTS, ()), "give (variable, value)"),
            Wrong(_OPEN | {"the parser stops": ("triton_backend", "tensorrtllm")}, "stands without quotes"),
            Wrong(_OPEN | {"the parser stops": ("triton_max_batch_size", "many")}, "has to be one that the model"),
            Wrong(_OPEN | {"a placeholder is taken for a name": ("batching_strategy", "v1")}, "nothing is found"),
            Wrong(_OPEN | {"a placeholder is taken for a name": ("triton_backend", "trtllm")}, "a backend 'trtllm'"),
            Wrong(_OPEN | {"the parser stops": ("batch_size", "64")}, "has a variable 'batch_size'"),
        ),
        row="`Expected integer or identifier, got: $`",
    ),
    Exercise(
        number="05-2",
        title="Mend a config.pbtxt",
        kind="mend",
        minutes=10,
        check=check_config_text,
        solution=MENDED_CONFIG,
        also=(MENDED_CONFIG.replace("count: 1 kind: KIND_CPU", "count: 2 kind: KIND_AUTO"),),
        wrong=(
            Wrong(BROKEN_CONFIG, "is not filled"),
            Wrong(BROKEN_CONFIG.replace("${triton_max_batch_size}", "64"), "TYPE_TEXT"),
            Wrong(MENDED_CONFIG.replace("postprocessing", "postprocesing"), "Triton wants the folder's name"),
            Wrong(MENDED_CONFIG.replace("/engines/llama3/tokenizer", "${tokenizer_dir}"), "fill tokenizer_dir"),
            Wrong("\n".join(MENDED_CONFIG.splitlines()[:4]), "the ensemble passes on a text"),
            Wrong(MENDED_CONFIG.replace("64", "16"), "yours 16, expected 64"),
            Wrong("", "the file is empty"),
        ),
    ),
    Exercise(
        number="05-3",
        title="Settings for a load",
        kind="choose",
        minutes=10,
        check=check_settings,
        solution=_SETTINGS,
        also=(_SETTINGS | {"triton_max_batch_size": 56, "max_queue_size": "8", "decoupled_mode": "true"},),
        wrong=(
            Wrong(dict.fromkeys(CHOSEN), "no value yet for triton_max_batch_size"),
            Wrong(_SETTINGS | {"triton_max_batch_size": 32}, "yours 32, expected 54 to 64"),
            Wrong(_SETTINGS | {"bls_instance_count": 1}, "serves one request at a time"),
            Wrong(_SETTINGS | {"max_queue_size": 0}, "0 is no limit"),
            Wrong(_SETTINGS | {"max_queue_size": 100}, "waits more than 2 s"),
            Wrong(_SETTINGS | {"max_queue_delay_microseconds": 100_000}, "nobody waits for a batch"),
            Wrong(_SETTINGS | {"decoupled_mode": False}, "many responses to one request"),
            Wrong(_SETTINGS | {"queue_size": 4}, "has a variable 'queue_size'"),
        ),
    ),
)
