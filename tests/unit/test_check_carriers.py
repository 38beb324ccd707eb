"""Commands are read wherever they stand, at their places, and what is not known in them stays unknown."""

import json
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import pytest

from trtllm_check.lint import check_commands
from trtllm_check.lint.carriers import manifests, yaml_faults, yaml_files
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.document import Document
from trtllm_check.lint.kinds import Kind, kind_of_name, kind_of_text
from trtllm_check.lint.reading import read_document

IMAGE = "nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3"
LMI = "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.32.0-tensorrtllm0.12.0-cu125"
BROKEN = "trtllm-build --checkpoint_dir c --output_dir e --max_batch_size 8 --max_output_len 128"
WORDS = BROKEN.split()


def cells(*sources: list[str], kind: str = "code") -> str:
    return json.dumps(
        {"nbformat": 4, "cells": [{"cell_type": kind, "outputs": [], "source": one} for one in sources]}, indent=1
    )


CARRIED: dict[str, tuple[Kind, str]] = {
    "RUN": (
        "dockerfile",
        f"FROM {IMAGE}\n# a comment\nRUN --mount=type=cache,target=/x pip install y && \\\n    {BROKEN}\n",
    ),
    "CMD": ("dockerfile", f"FROM {IMAGE}\nCMD {json.dumps(WORDS)}\n"),
    "ENTRYPOINT": (
        "dockerfile",
        f"ARG B={IMAGE}\nFROM $B\nENTRYPOINT {json.dumps(WORDS[:1])}\nCMD {json.dumps(WORDS[1:])}\n",
    ),
    "RUN <<EOF": ("dockerfile", f"FROM {IMAGE}\nRUN <<EOF\ncd /x\n{BROKEN}\nEOF\nCMD bash\n"),
    "compose list": ("yaml", f"services:\n  a:\n    image: {IMAGE}\n    command: {json.dumps(WORDS)}\n"),
    "compose text": ("yaml", f"services:\n  a:\n    image: {IMAGE}\n    command: >\n      {BROKEN}\n"),
    "Kubernetes": (
        "yaml",
        f"spec:\n  containers:\n  - image: {IMAGE}\n    command: [bash, -c]\n    args:\n    - |\n"
        f"      set -e\n      {BROKEN}\n",
    ),
    "Helm": (
        "yaml",
        "{{- if .Values.x }}\nspec:\n  containers:\n  - image: {{ .Values.image }}\n"
        "    command: [trtllm-build]\n    args:\n"
        + "".join(f"    - {json.dumps(word)}\n" for word in WORDS[1:])
        + "{{- end }}\n",
    ),
    "GitHub": (
        "yaml",
        f"jobs:\n  a:\n    container: {IMAGE}\n    steps:\n    - run: |\n        cd x\n        {BROKEN}\n",
    ),
    "GitLab": ("yaml", f"image: {IMAGE}\na:\n  script:\n  - nvidia-smi\n  - {BROKEN}\n"),
    "Makefile": (
        "makefile",
        "C := c\nall:\n\t@" + BROKEN.replace("c --", "$(C) --", 1).replace(" --m", " \\\n\t  --m") + "\n",
    ),
    "subprocess": ("python", f"import subprocess\nsubprocess.run({WORDS!r}, check=True)\n"),
    "os.system": ("python", f"import os\nn = 8\nos.system(f'{BROKEN.replace('8', '{n}')}')\n"),
    "a list": ("python", f"command = {WORDS!r}\ncommand.extend(['--workers', '2'])\n"),
    "a cell": ("notebook", cells(["import os\n", f"!{BROKEN}\n"])),
    "a bash cell": ("notebook", cells(["%%bash\n", f"{BROKEN}\n"])),
    "cmd.exe": ("windows", 'set "C=D:\\m\\c"\ntrtllm-build.exe --checkpoint_dir %C% ^\n' + " ".join(WORDS[3:]) + "\n"),
    "PowerShell": ("windows", "PS C:\\x> trtllm-build --checkpoint_dir C:\\m\\c `\n  " + " ".join(WORDS[3:]) + "\n"),
}


def errors(document: Document, release: str = "0.12.0") -> list[str]:
    return [one.rule for one in check_commands(document, release) if one.severity == "error"]


@pytest.mark.parametrize("name", CARRIED)
def test_the_command_is_found_where_it_stands(name: str) -> None:
    kind, text = CARRIED[name]
    document = read_document(text, kind)
    assert document.is_understood
    (found,) = [one for one in check_commands(document, "0.12.0") if one.severity == "error"]
    assert found.rule == "flag-removed"
    assert "--max_output_len" in text.split("\n")[found.line - 1]
    (build,) = document.of("trtllm-build")
    if IMAGE in text:
        assert build.image == IMAGE or kind == "python"


@pytest.mark.parametrize("name", ["RUN", "compose list", "Kubernetes", "subprocess", "a cell", "PowerShell"])
def test_a_pasted_file_is_taken_for_what_it_is(name: str) -> None:
    kind, text = CARRIED[name]
    assert kind_of_text(text) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/Dockerfile", "dockerfile"),
        ("Dockerfile.gpu", "dockerfile"),
        ("x.dockerfile", "dockerfile"),
        ("docker-compose.yml", "yaml"),
        ("Makefile", "makefile"),
        ("a.ipynb", "notebook"),
        ("a.ps1", "windows"),
    ],
)
def test_kinds_by_name(name: str, kind: str) -> None:
    assert kind_of_name(name) == kind


VARIABLES: dict[str, tuple[Kind, str]] = {
    "a model's environment": (
        "python",
        f"image = '{LMI}'\nenv = {{'HF_MODEL_ID': 'm', 'OPTION_ROLLING_BATCH': 'trtlm'}}\n",
    ),
    "one by one": ("python", f"image = '{LMI}'\nenv = {{}}\nenv['OPTION_ROLLING_BATCH'] = 'trtlm'\n"),
    "a notebook": ("notebook", cells([f"image = '{LMI}'\n", "env = {'OPTION_ROLLING_BATCH': 'trtlm'}\n"])),
    "compose": ("yaml", f"services:\n  a:\n    image: {LMI}\n    environment:\n    - OPTION_ROLLING_BATCH=trtlm\n"),
    "Kubernetes": (
        "yaml",
        f"spec:\n  containers:\n  - image: {LMI}\n    env:\n    - name: OPTION_ROLLING_BATCH\n      value: trtlm\n",
    ),
    "CloudFormation": (
        "yaml",
        f"Resources:\n  M:\n    PrimaryContainer:\n      Image: {LMI}\n      Environment:\n"
        f"        OPTION_ROLLING_BATCH: trtlm\n",
    ),
    "ENV": ("dockerfile", f"FROM {LMI}\nENV OPTION_ROLLING_BATCH=trtlm\n"),
    "a file in YAML": (
        "yaml",
        f"image: {LMI}\ndata:\n  serving.properties: |\n    engine=Python\n    option.rolling_batch=trtlm\n",
    ),
    "a file of a cell": (
        "notebook",
        cells(
            [f"image = '{LMI}'\n"],
            ["%%writefile serving.properties\n", "engine=Python\n", "option.rolling_batch=trtlm\n"],
        ),
    ),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_settings_of_lmi_are_found_where_they_stand(name: str) -> None:
    kind, text = VARIABLES[name]
    (found,) = [one for one in check_commands(read_document(text, kind), "0.12.0") if one.severity == "error"]
    assert found.rule == "lmi-value-refused"
    assert "trtlm" in text.split("\n")[found.line - 1]


UNKNOWN: dict[str, tuple[Kind, str]] = {
    "an argument": (
        "python",
        "def run(n):\n    subprocess.run(['trtllm-build', '--checkpoint_dir', 'c', '--max_batch_size', n])\n",
    ),
    "a field": ("python", "os.system('trtllm-build --checkpoint_dir c --max_batch_size {}'.format(n))\n"),
    "a secret": (
        "yaml",
        "spec:\n  containers:\n  - image: x\n"
        "    command: [trtllm-build, --max_batch_size, $(N), --checkpoint_dir, c]\n",
    ),
    "a template": (
        "yaml",
        "a:\n  image: x\n  command: [trtllm-build, --max_batch_size, '{{ .Values.n }}', --checkpoint_dir, c]\n",
    ),
    "make": ("makefile", "all:\n\ttrtllm-build --checkpoint_dir c --max_batch_size $(shell nproc)\n"),
    "ARG": ("dockerfile", "FROM x\nARG N\nRUN trtllm-build --checkpoint_dir c --max_batch_size $N\n"),
    "elsewhere": ("python", "env = {'HF_MODEL_ID': 'm', 'OPTION_ROLLING_BATCH': rolling}\n"),
    "substitution": ("shell", "N=`python3 -c 'print(1, 2)'`\ntrtllm-build --checkpoint_dir c --max_batch_size $N\n"),
    "elision": ("shell", "trtllm-build --checkpoint_dir <your checkpoint> --max_batch_size {n} ... [more]\n"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_error_rests_on_what_is_not_known(name: str) -> None:
    kind, text = UNKNOWN[name]
    assert errors(read_document(text, kind)) == []


def test_prose_and_links_start_nothing() -> None:
    page = "Use the\n[`fill_template.py`](../tools/fill_template.py) script.\n\nThen `run.py` it.\n"
    assert not read_document(page).of("fill_template.py", "run.py")


def test_an_alias_that_multiplies_is_read_once() -> None:
    rows = ["a: &a [x]"] + [
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert not read_document("\n".join(rows), "yaml").is_understood


@pytest.mark.parametrize(
    "head",
    [
        "image: vllm/vllm-openai:v0.6.0",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: vllm}\nspec: {template: *k}",
        "AWSTemplateFormatVersion: 2010-09-09\nResources: {a: {Type: AWS::SageMaker::Model, Properties: {vllm: *k}}}",
    ],
    ids=["list", "manifest", "template"],
)
def test_what_aliases_multiply_goes_to_nobody_who_follows_each(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["a: &a {x: y}"] + [
        f"{b}: &{b} {{{', '.join(f'k{at}: *{a}' for at in range(9))}}}"
        for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True)
    ]
    text = "\n".join([*rows, head.replace("*k", "*l"), ""])
    readers = [(yaml_files, "workloads"), (yaml_files, "resources"), (manifests, "faults")]
    calls = 0
    original = yaml_faults._twice

    def followed(*_: object, **__: object) -> Iterator[None]:
        pytest.fail("every alias would be followed", pytrace=False)  # a traceback would print what they stand for

    def counted(*arguments: Any) -> Iterator[FormFault]:
        nonlocal calls
        calls += 1
        if calls > 1000:
            pytest.fail("every alias is followed", pytrace=False)
        return original(*arguments)

    for module, name in readers:
        monkeypatch.setattr(module, name, followed)
    monkeypatch.setattr(yaml_faults, "_twice", counted)
    read_document(text, "yaml")
    assert calls > len(rows)


def test_what_stands_inside_itself_goes_to_nobody_who_follows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def followed(*_: object, **__: object) -> Iterator[None]:
        pytest.fail("every alias would be followed", pytrace=False)

    for module, name in [(yaml_files, "workloads"), (yaml_files, "resources"), (manifests, "faults")]:
        monkeypatch.setattr(module, name, followed)
    read_document("image: vllm/vllm-openai:v0.6.0\nspec: &spec {a: *spec, b: [*spec, *spec]}\n", "yaml")


def test_variables_of_a_dockerfile_hold_below() -> None:
    text = dedent("""\
        FROM base
        ENV OUT=/engine
        ARG SIZE=8
        RUN trtllm-build --output_dir $OUT --max_batch_size ${SIZE}
        """)
    (build,) = read_document(text, "dockerfile").of("trtllm-build")
    assert (build.value("--output_dir"), build.value("--max_batch_size")) == ("/engine", "8")
