"""Chapter 15: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

import playbook
from chapter_cells import Case

FLOWS = playbook.flows
OFFERS = FLOWS.flow_table()
RELEASES = FLOWS.option_releases()
COUNTS = FLOWS.option_counts()
WHOLE = {row["release"]: row["read there"] for row in COUNTS if row["read there"]}
GONE = FLOWS.options_gone("0.21.0", "1.0.0")
MOVED = {name: new for name, new in GONE.items() if new}
TARGET = playbook.load_profile("p5-8b")
MADE = {name: FLOWS.open_door("trtllm-serve", TARGET, "c", name) for name in RELEASES}
CLEAN = dict.fromkeys(RELEASES, ())
LMI = playbook.recipes.lmi
MIXED = (
    "use_cuda_graph: true\nmax_bach_size: 64\nenable_chunked_context: true\n"
    "kv_cache_config:\n  free_gpu_mem_fraction: 0.9\nsampler_type: TRTLLMSampler\n"
)
FOUND = FLOWS.check_options(MIXED, "1.0.0")
ANSWER = "un, deux, trois"


def flows(**changed: Any) -> Thing:
    return Thing(**{**vars(FLOWS), **changed})


def without_word() -> list[dict[str, Any]]:
    return [row | {"stable": 0} if row["release"] == "1.0.0" else row for row in COUNTS]


def findings(place: str, **changed: Any) -> dict[str, Any]:
    """The findings, with one of them changed."""
    return {"findings": [one.model_copy(update=changed) if one.option == place else one for one in FOUND]}


def layout(**changed: Any) -> dict[str, Any]:
    weight = Thing(name="up.weight", scale=changed.pop("scale", 0.01))
    names = changed.pop("names", {"up.weight": weight, "up.input_scale": None})
    says = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"} | changed
    return {"says": says, "stored": [weight], "tensors": names}


def released(**changed: Any) -> dict[str, Any]:
    """What cell 15-28 reads."""
    return {
        "flows": FLOWS,
        "lmi": LMI,
        "made": MADE,
        "refused": CLEAN,
        "target": TARGET,
        "serve_release": "1.1.0",
    } | changed


def doors(properties: str = "", argv: tuple[str, ...] = ()) -> dict[str, Any]:
    text = properties or FLOWS.open_door("lmi", TARGET, "s3://b/c/", "1.1.0").text
    names = flows(open_door=lambda *given: Thing(argv=argv)) if argv else FLOWS
    return {"flows": names, "properties": text, "made": MADE, "target": TARGET, "serve_release": "1.1.0"}


def asked(inputs: str = ANSWER, messages: str = ANSWER) -> dict[str, Any]:
    course = Thing(generate=lambda *given, **named: [ANSWER])
    said = {"inputs": inputs, "messages": messages}
    return {"playbook": course, "engine": None, "own": {"inputs": "x"}, "answers": said}


OFFERED = {"flows": FLOWS, "offers": OFFERS}
READ = {"flows": FLOWS, "counts": COUNTS, "whole": WHOLE}
SUCCESSORS = {"flows": FLOWS, "moved": MOVED, "gone": GONE}
OLD_ENGINES = [row | {"engines": "works"} for row in OFFERS]
OTHER_SUCCESSOR = {"x": Thing(to="build_workspace")}
OLD_FILE = {"1.1.0": Thing(text=MADE["0.20.0"].text)}
TYPO = Thing(check_properties=lambda text, tag: ["a finding"], vllm_image=LMI.vllm_image, fitted=LMI.fitted)


def ways(*, after: str) -> dict[str, Any]:
    """Two ways to run a model, the first of which is there in ``after``."""
    rows = [{"way": "run.py", "releases": after}, {"way": "PyTorch flow (no engine)", "releases": "from 0.17.0"}]
    package = Thing(table=lambda rows: None)
    return {"flows": Thing(ways_to_run=lambda: rows, last_engine_release=lambda: "1.2.1"), "playbook": package}


CASES = [
    Case(
        "15-lora-c",
        "the releases' own data",
        {"flows": FLOWS},
        {"flows": flows(lora_names=lambda: {"--lora_plugin": False})},
    ),
    Case("15-06", "a release with engines still exists", OFFERED, {"flows": flows(last_engine_release=lambda: "9.9")}),
    Case("15-06", "what comes after it has no tool", OFFERED, {"offers": OLD_ENGINES}),
    Case("15-10", "every release from 0.19 on has options", READ, {"counts": COUNTS[1:]}),
    Case("15-10", "NVIDIA has a word on options from 1.0 on", READ, {"counts": without_word()}),
    Case("15-12", "the guess is a number of options", {"flows": FLOWS, "guess": 40}, {"guess": 400}),
    Case("15-15", "every successor is an option of 1.0", SUCCESSORS, {"moved": OTHER_SUCCESSOR}),
    Case("15-15", "no option that is gone is still known", SUCCESSORS, {"gone": {"max_seq_len": None}}),
    Case("15-18", "every wrong line is named", {"findings": FOUND}, {"findings": FOUND[1:]}),
    Case(
        "15-18",
        "a typing error finds its option",
        {"findings": FOUND},
        findings("max_bach_size", nearest="max_seq_len"),
    ),
    Case("15-18", "a name of an older release says which", {"findings": FOUND}, findings("use_cuda_graph", has=("9",))),
    Case("15-18", "one of a newer release does, too", {"findings": FOUND}, findings("sampler_type", has=("0.19.0",))),
    Case("15-23", "weights and cache are FP8", layout(), layout(kv_cache_quant_algo=None)),
    Case("15-23", "every FP8 weight has its scale", layout(), layout(scale=None)),
    Case("15-23", "and a scale for its activations", layout(), layout(names={"up.weight": None})),
    Case("15-28", "each release takes its own file", released(), {"refused": CLEAN | {"1.0.0": ("a finding",)}}),
    Case("15-28", "0.20 does not take 1.1's", released(), {"made": MADE | OLD_FILE}),
    Case("15-28", "LMI's image takes its file", released(), {"lmi": TYPO}),
    Case("15-34", "the two schemas get the same answer", asked(), asked(messages="one, two")),
    Case("15-34", "and it is the engine's own", asked(), asked("one", "one")),
    Case("15-38", "tp reaches all three doors", doors(), doors(properties="engine=Python\n")),
    Case("15-38", "tp reaches all three doors", doors(), doors(argv=("vllm", "serve"))),
    Case("15-ways-b", "only the way without an engine goes on", ways(after="to 1.2.1"), ways(after="from 0.9.0")),
]
