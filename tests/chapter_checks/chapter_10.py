"""Chapter 10: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case


def choices(**names: Any) -> dict[str, Any]:
    return {"choices": Thing(show=list, **names)}


WAY: dict[str, Any] = {"simulated": True, "ttft_ms": 190.0, "tpot_ms": 29.0, "output_tokens_per_s": 12000.0}
WAY |= {"cost_usd_per_million_output_tokens": 1.25, "instance": "p5.48xlarge"}
ARTIFACT = Thing(name="engine", removable=True, megabytes=5.0)


def chosen(*ways: dict[str, Any]) -> dict[str, Any]:
    ranked = [Thing(**way) for way in ways]
    return choices() | {"columns": {"instance [planned]": "instance"}, "chosen": Thing(ranked=ranked, rejected=())}


def left(*rows: Thing) -> dict[str, Any]:
    """The workspace after the removal of its one artifact."""
    removing = choices(remove=lambda workspace, names: [ARTIFACT], artifacts=lambda workspace: list(rows))
    return removing | {"rows": [ARTIFACT], "remove_artifacts": True}


def factors(speed: float = 3.4, energy: float = 2.0) -> dict[str, Any]:
    """What the planner gives for one model; and a format that gives 1.5 times the tokens."""
    hopper = Thing(serving=lambda run: {1: Thing(output_tokens_per_s=150.0 if run == "8b-fp8" else 100.0)})
    explained = {"llama3-8b": {"tokens/s, times": speed, "energy, less by": energy}}
    return {"playbook": Thing(hopper=hopper), "explained": explained}


CASES = [
    Case(
        "10-16",
        "no two readers get the same first choice",
        choices(recommend=lambda wanted: [Thing(title=" ".join(wanted))]),
        choices(recommend=lambda wanted: [Thing(title="Amazon Bedrock")]),
    ),
    Case("10-talk-c", "GPU and format explain less", factors(), factors(speed=7.0)),
    Case("10-talk-c", "and less than half of the factor of 5", factors(), factors(energy=4.0)),
    Case("10-plan-c", "some way keeps the promise", chosen(WAY), chosen({**WAY, "simulated": False})),
    Case(
        "10-20",
        "what chapter 08 measured is found, if it ran",
        choices(measured_tokens_per_s=lambda workspace: 0.0),
        choices(measured_tokens_per_s=lambda workspace: 40.0),
    ),
    Case(
        "10-36",
        "no process of this workspace is left",
        choices(running=lambda workspace: []),
        choices(running=lambda workspace: ["tritonserver (pid 7)"]),
    ),
    Case("10-39", "none of them is left", left(), left(ARTIFACT)),
    Case(
        "10-claim-b",
        "the same rate is impossible, suspect or possible",
        {},
        {"playbook": Thing(plan=Thing(verify=lambda claim: Thing(word="possible")))},
    ),
]
