"""Chapter 18: values that its checks accept, and values that they refuse."""

import json
from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case

ERROR, WARNING = Thing(severity="error", message="no"), Thing(severity="warning", message="hm")


class Desk:
    """A folder with the files ``names``; what is written into it goes nowhere."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __truediv__(self, name: str) -> Thing:
        return Thing(write_text=lambda text, encoding: None)

    def iterdir(self) -> list[Path]:
        return [Path(name) for name in self.names]


def answer(status: int = 0, said: str = "", remarks: str = "") -> Thing:
    lines = said.strip().splitlines()
    return Thing(status=status, said=said, remarks=remarks, command="", last_line=lines[-1] if lines else "")


def asking(**said: Thing) -> dict[str, Any]:
    """A checker that answers by the last word it is given: dots and dashes are underscores here."""
    given = {name.replace("_", "."): one for name, one in said.items()}
    ask = Thing(ask=lambda desk, *words: given[words[-1].replace("-", ".")])
    return {"checker": ask, "desk": Desk("build.sh", "build.sh.orig"), "newest": "1.2.1", "json": json, "build": ""}


def counted(old: int = 3, new: int = 5) -> dict[str, Any]:
    names = ("0.8.0", "0.9.0", "0.12.0", "0.13.0", "0.16.0", "1.2.1", "1.3.0rc22")
    rows: dict[str, list[Any]] = {name: [{}] * 2 for name in names} | {"0.9.0": [{}] * old, "1.2.1": [{}] * new}
    return {"by_release": rows, "playbook": Thing(plots=Thing(bars=lambda *given, **named: None))}


def mending(*left: Thing) -> dict[str, Any]:
    """Commands that are mended into a text of which ``left`` is said."""
    first = [Thing(fix=Thing(text="mended"), severity="error", message="old")]
    checks = Thing(check_commands=lambda text, *given, **named: list(left) if text == "mended" else first)
    return {"playbook": checks, "quotes": [None, Thing(text="pasted")], "newest": "1.2.1", "gpu": "h100", "gpus": 8}


def proposals(*left: Thing) -> dict[str, Any]:
    """Findings with one proposal, in which a second look finds ``left``."""
    found = Thing(severity="error", fix=Thing(kind="command", text="python3 fill_template.py"))
    return {"findings": [found], "playbook": Thing(check_commands=lambda command, release: list(left))}


def variables(*found: Thing) -> dict[str, Any]:
    quoted = Thing(quote=lambda name: Thing(text="engine=MPI"))
    check = Thing(articles=quoted, check_commands=lambda text, release: list(found) if "OPTION" in text else [])
    return {"playbook": check}


def statuses(*found: int) -> dict[str, Any]:
    return {"answers": {str(number): answer(status) for number, status in enumerate(found)}}


def told(
    container: str = "1 error for TensorRT-LLM 0.12.0, told by tritonserver:24.08-trtllm",
    wheel: str = "nothing found for TensorRT-LLM 0.10.0, told by tensorrt_llm==0.10.0",
    backend: str = "nothing found for TensorRT-LLM 1.2.1, told by the C++ backend of Triton",
    nothing: str = "nothing found for TensorRT-LLM 1.3.0rc22, the newest: the text tells none",
) -> dict[str, Any]:
    said = {"Dockerfile": container, "install_sh": wheel, "config_pbtxt": backend, "start_sh": nothing}
    return asking(**{name: answer(said=line) for name, line in said.items()})


def fixed(after: int = 0, kept: str = "build.sh.orig", refused: int = 2) -> dict[str, Any]:
    found = asking(config_pbtxt=answer(refused))
    return found | {"desk": Desk("build.sh", kept), "fixed": answer(), "after": answer(after)}


def comments(reason: int = 0, said: str = "[ignore-comment] [flag-removed]") -> dict[str, Any]:
    return {"left": {"with a reason": answer(reason), "without one": answer(1, said)}}


def sarif(*rules: str) -> dict[str, Any]:
    place = {"physicalLocation": {"artifactLocation": {"uri": "Dockerfile"}, "region": {}}}
    driver = {"name": "playbook check", "rules": [{"id": rule} for rule in rules]}
    run = {"tool": {"driver": driver}, "results": [{"locations": [place]} for _ in rules]}
    return asking(Dockerfile=answer(1, json.dumps({"runs": [run]})))


def silent(status: int = 0, remarks: str = "unknown.sh: not read: lines 3") -> dict[str, Any]:
    return asking(unknown_sh=answer(status, remarks=remarks))


CASES = [
    Case("18-07", "no release takes", counted(), counted(old=0)),
    Case("18-07", "later engines refuse more", counted(), counted(new=3)),
    Case("18-09", "0.12.0 takes", mending(), mending(Thing(fix=None, severity="error", message="no"))),
    Case("18-12", "no mended command has an error", proposals(WARNING), proposals(ERROR)),
    Case("18-14", "variables are read", variables(WARNING, ERROR), variables(ERROR)),
    Case("18-18", "the four statuses", statuses(1, 0, 2, 2, 3), statuses(1, 0, 2, 2, 0)),
    Case("18-20", "a container tells", told(), told(container="1 error for TensorRT-LLM 0.9.0")),
    Case("18-20", "a wheel tells", told(), told(wheel="1 error for TensorRT-LLM 0.12.0")),
    Case("18-20", "a backend tells", told(), told(backend="nothing found for TensorRT-LLM 0.12.0")),
    Case("18-20", "a text without evidence", told(), told(nothing="nothing found for TensorRT-LLM 0.12.0")),
    Case("18-23", "the mended script", fixed(), fixed(after=1)),
    Case("18-23", "the script as it was", fixed(), fixed(kept="other.sh")),
    Case("18-23", "another file is not", fixed(), fixed(refused=0)),
    Case("18-26", "a reason takes", comments(), comments(reason=1)),
    Case("18-26", "a comment without one", comments(), comments(said="[flag-removed]")),
    Case("18-26", "and takes nothing", comments(), comments(said="[ignore-comment]")),
    Case("18-28", "SARIF has the same", sarif("flag-removed"), sarif("flag-removed", "unknown-flag")),
    Case(
        "18-30",
        "the log's reason",
        asking(build_log=answer(1, "build.log:5:15: error")),
        asking(build_log=answer(1, "build.log:2:1: error")),
    ),
    Case("18-32", "a wrong path", silent(), silent(status=1)),
    Case("18-32", "and what was not read", silent(), silent(remarks="")),
    Case(
        "18-33",
        "a GPU that is told",
        {"playbook": Thing(check_commands=lambda text, release, **told: [ERROR])},
        {"playbook": Thing(check_commands=lambda text, release, **told: [WARNING])},
    ),
]
