"""What is wrong with a script is found wherever people put it: in a page, a workflow, a manifest, a notebook."""

import json
import re
from collections.abc import Callable
from textwrap import indent
from typing import Any

import pytest

from trtllm_check.lint import check_commands
from trtllm_check.lint.kinds import Kind
from trtllm_check.lint.page import Snippet, snippets
from trtllm_check.lint.reading import read_document

BEGINS_WITH_A_COMMAND = re.compile(
    r"(?:\s*(?:#.*)?\n)*\s*(?:[A-Za-z_./]\S*=\S* )*(?:sudo |export |cd )?[./\w$-]+(?:\s|$)"
)
LONGEST = 2_500
EVERY = 4  # of the corpus' scripts one in four: each carrier takes seconds


def notebook(text: str) -> str:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": f"%%bash\n{text}",
    }
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}, indent=1)


def manifest(text: str) -> str:
    return (
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: build\nspec:\n  template:\n    spec:\n"
        "      restartPolicy: Never\n      containers:\n        - name: build\n          image: r.example/tools:1\n"
        "          resources: {limits: {nvidia.com/gpu: 8}}\n          command: [bash, -c]\n"
        f"          args:\n            - |\n{indent(text, ' ' * 14)}"
    )


def workflow(text: str) -> str:
    head = "name: build\non: push\njobs:\n  build:\n    runs-on: [self-hosted, gpu]\n    steps:\n"
    return f"{head}      - uses: actions/checkout@v4\n      - run: |\n{indent(text, ' ' * 10)}"


def written_file(text: str) -> str:
    return f"cat > run.sh <<'END'\n{text}END\nchmod +x run.sh\n./run.sh\n"


def remote(text: str) -> str:
    return f"ssh gpu01 bash -s <<'END'\n{text}END\n"


def function(text: str) -> str:
    return f'#!/usr/bin/env bash\nset -euo pipefail\n\nmain() {{\n{indent(text, "  ")}}}\n\nmain "$@"\n'


def page(text: str) -> str:
    return f"# How we do it\n\nRun these:\n\n```bash\n{text}```\n\nThat is all.\n"


def web_page(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<p>Run this:</p>\n<pre><code class="language-bash">{text}</code></pre>\n'


def program(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'import subprocess\n\nsubprocess.run("""\n{text}""", shell=True, check=True)\n'


def playbook(text: str) -> str:
    return f"- hosts: gpu\n  tasks:\n    - name: go\n      ansible.builtin.shell: |\n{indent(text, ' ' * 8)}"


def scripts() -> list[Snippet]:
    """Those with something wrong that nothing hinders from standing in another text."""
    found = [one for one in snippets() if one.kind == "shell" and one.text and one.findings]
    found = [one for one in found if "```" not in one.text and "<<" not in one.text and len(one.text) < LONGEST]
    return [one for one in found if BEGINS_WITH_A_COMMAND.match(one.text)][::EVERY]


@pytest.mark.parametrize(
    ("wrap", "kind", "least"),
    [
        (page, None, 0.95),
        (web_page, None, 0.95),
        (function, None, 0.94),
        (written_file, None, 0.94),
        (remote, None, 0.94),
        (workflow, "yaml", 0.94),
        (manifest, "yaml", 0.88),
        (playbook, "yaml", 0.92),
        (notebook, "notebook", 0.86),
        (program, "python", 0.93),
    ],
)
def test_what_is_wrong_is_found_in_other_texts(wrap: Callable[[str], str], kind: Kind | None, least: float) -> None:
    wanted = lost = 0
    missing = []
    for snippet in scripts():
        text = f"{snippet.text.rstrip()}\n"
        rules = {one["rule"] for one in snippet.findings if one["severity"] != "info"}
        found = check_commands(read_document(wrap(text), kind), snippet.release, snippet.gpu, snippet.gpus)
        gone = rules - {one.rule for one in found}
        wanted, lost = wanted + len(rules), lost + len(gone)
        missing += [f"{snippet.name}: {one}" for one in sorted(gone)]
    assert wanted > 100
    assert 1 - lost / wanted >= least, "\n".join(missing)
