"""The real commands in ``lint/corpus``, with what must be found in each, and docs/checks.md, which shows them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from serving_base.errors import UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.lint import check_commands
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.kinds import Kind
from trtllm_check.lint.log_places import RaisedPart, places
from trtllm_check.lint.logs import Sign, signs
from trtllm_check.lint.logs import families as log_families
from trtllm_check.lint.programs import PROGRAMS, TOOLS
from trtllm_check.lint.reading import read_document
from trtllm_check.rules import TOPICS, Entry, Rule, topic
from trtllm_check.rules.table import worded

CORPUS = Path(__file__).parent / "corpus"

PARTS = re.compile(r"\{[^{}]*\}")  # what a command fills in of a message
NAMES: dict[Kind, str] = {
    "shell": "commands.sh",
    "config.pbtxt": "config.pbtxt",
    "serving.properties": "serving.properties",
    "environment": ".env",
    "request": "request.json",
    "dockerfile": "Dockerfile",
    "yaml": "deployment.yaml",
    "python": "serve.py",
    "windows": "commands.ps1",
    "terraform": "main.tf",
    "systemd": "unit.service",
    "program": "program.js",
    "requirements": "requirements.txt",
}
MOST_LINES = 16
AROUND = 4
PAIN = re.compile(r" \(pains? [\d, and]+\)")  # a row of the list that the corpus was written from
HEAD = """# What the checker finds

`playbook check [--release R] [--gpu h100] [--gpus 8] FILE|DIR|- ...` reads a script or anything pasted, a
Dockerfile, compose, Kubernetes, Helm or CI file, a unit of systemd, a Makefile, Python, a notebook, a config.pbtxt,
serving.properties, LMI's variables, a request, a program of another language or a folder, and says what TensorRT-LLM
R would do with it. It runs nothing. Without `--release` the release is the one that the text tells by a container, an
image, a wheel, a clone, a log or its flags, and the report says by which; if it tells none, the newest.
`playbook check --log FILE` reads the output of a tool that failed, and `playbook check --about RULE` shows what this
page says of one finding. Exit status: 1 for an error, 0 without one, 2 for
input that cannot be used, 3 for a text that was not understood.

**error**: the tool refuses, or its result is wrong. **warning**: silently not what was meant, or not certain.
**info**: good to know, shown with `--hints`. What the text does not tell is unknown, and a rule that needs it is
silent: without `--gpu` and `--gpus`, or a text that tells them, there is little on memory or hardware. *Words in
italics* stand for what the text holds.

This page is made from the rules and from `packages/trtllm_check/lint/corpus` by `make docs`; a test keeps them equal.
"""
WORKPLACES = """## Where you work

| `--format` | For |
|---|---|
| `text` | people: what, why, the corrected command, the source |
| `json` | programs: `{release, findings}` |
| `sarif` | SARIF 2.1.0: code scanning (`github/codeql-action/upload-sarif`) and editors |
| `github` | GitHub Actions: annotations beside the lines of a pull request |
| `gcc` | editors and problem matchers: `file:line:column: error: message [rule]` |

A viewer of SARIF shows it so:

![Two findings in a viewer of SARIF: rule, file, what, why, the corrected command, the source](sarif.png)

The picture is of Microsoft's `@microsoft/sarif-web-component` 0.6.0-29 in a headless Chromium on 2026-11-25, with
`playbook check serve.sh --format sarif` of a script of four lines. Code scanning on GitHub shows the text without
Markdown.

A finding that may stay is taken away by a comment, on its line or on a line of its own before the command. It names
the rule and the reason; a comment without either takes nothing away and is a finding itself (`ignore-comment`):

```text
# playbook: ignore=flag-removed this image has our own build of 0.12
trtllm-build --checkpoint_dir ckpt --output_dir engine --max_output_len 128
```

As a hook of [pre-commit](https://pre-commit.com), in `.pre-commit-config.yaml` (which files it takes stands in
`.pre-commit-hooks.yaml`):

```yaml
- repo: THE ADDRESS OF THIS REPOSITORY
  rev: A TAG OR COMMIT
  hooks:
    - id: playbook-check
      args: [--release, 1.2.1, --gpu, h100]
```

In a browser, as a page of one file into which anyone pastes a text: `playbook check-page` writes
`build/checker/index.html` (about 15 MB), with Pyodide, bash's grammar and this very checker in it. Open it from the
file: it needs no network and may use none. Its `Copy link` makes a link that carries the text behind the `#`, which
a browser sends to nobody. It was
driven from its file in Chromium 156, Firefox 153 and WebKitGTK 2.50: paste, keyboard, link, dark theme, a narrow
window, a stopped check, a listening server that it must not reach. `tests/browser/drive_checker.py` does so with
whatever browsers are installed. What the page is made of is fetched once by npm and pip, in the versions and with the
sums of `packages/check_page/archives.yml`.

As a step of a GitHub workflow (`action.yml`; `.github/workflows/action.yml` tries it on a good and on a broken script):

```yaml
- uses: OWNER/REPOSITORY@REF
  with:
    files: deploy/*.sh models/
    release: 1.2.1
    sarif: playbook.sarif # optional, for upload-sarif
```
"""
LOGS = """## Logs

What `playbook check --log` says of the output of a tool that failed; a file called .log, .out or .err, and a text that
looks like one, is read so without being called a log. The reason comes before what follows from it: single failures,
the more specific first, then kinds of failures, and a line such as "engine core initialization failed" only where
nothing else is known. Of an error whose words say nothing the frames of its traceback tell which part failed. An
error that none of them explains is `unexplained-error`, shown with its line, and the exit status is 1: a log with an
error never counts as one without. Lines that call themselves information or a warning are no errors. On the page of
somebody who reports a failure (an issue with its commands and its logs) the logs are read, too; a manual that quotes an
error is not read so. How well this works on logs that it never saw stands in `benchmarks/checker/README.md`.
"""
SIGNS = """### Single failures

| Finding | What happened | What to do | Source |
|---|---|---|---|
"""
KINDS = """### Kinds of failures

Asked where no single failure is recognised; a word in braces comes from the line.

| Finding | What happened | What to do | Source |
|---|---|---|---|
"""

RAISED = """### Where an error was raised

Asked where the words of the first error tell no kind of failure; the innermost frame counts that one of these knows.

| Finding | What failed | What to do | Source |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Snippet:
    """One file of the corpus; of a repository ``text`` is empty and ``files`` are its files by their path."""

    name: str
    about: str
    release: str
    findings: tuple[dict[str, Any], ...]
    kind: Kind
    gpu: str = ""
    gpus: int | None = None
    text: str = ""
    files: tuple[tuple[str, str], ...] = ()

    def write(self, folder: Path) -> Path:
        """The file that a user would have, or the folder."""
        for name, text in self.files or ((NAMES[self.kind], self.text),):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder if self.files else path

    def document(self) -> Document:
        """What that file or folder holds."""
        with TemporaryDirectory() as folder:
            return read_document(self.write(Path(folder)))

    def check(self, source: str | Path | Document | None = None) -> list[Finding]:
        """The findings under the snippet's conditions: its own, or those in ``source``."""
        return check_commands(self.document() if source is None else source, self.release, self.gpu, self.gpus)


@cache
def snippets() -> tuple[Snippet, ...]:
    """All of them, by number."""
    paths = sorted(CORPUS.glob("*.yml"), key=lambda path: int(path.stem.partition("-")[0]))
    return tuple(map(_snippet, paths))


@cache
def found_in(name: str) -> tuple[Finding, ...]:
    """The findings in the snippet of this name, as its user would have them."""
    return tuple(next(one for one in snippets() if one.name == name).check())


def _snippet(path: Path) -> Snippet:
    entry = read_yaml(path)
    return Snippet(
        path.stem,
        entry["about"],
        entry["release"],
        tuple(entry["findings"]),
        "config.pbtxt" if entry["kind"] == "repository" else entry["kind"],
        entry.get("gpu") or "",
        entry.get("gpus"),
        entry.get("text", ""),
        tuple(entry.get("files", {}).items()),
    )


def page() -> str:
    known = {title: found for name, title in TOPICS.items() if (found := _checked(name))}
    contents = [f"- [{title}](#{_anchor(title)})" for title in known]
    parts = [HEAD, "\n".join([*contents, "- [Logs](#logs)", "- [Where you work](#where-you-work)"])]
    for title, rules in known.items():
        parts += [f"## {title}", *map(_entry, rules)]
    logs = [LOGS, SIGNS + _rows(signs()), KINDS + _rows(log_families()), RAISED + _rows(places())]
    return "\n\n".join([*parts, *logs, WORKPLACES])


def _rows(known: Sequence[Sign | RaisedPart]) -> str:
    return "\n".join(f"| `{one.rule}` | {_cell(one.cause)} | {_cell(one.fix)} | {_cell(one.source)} |" for one in known)


def rule_ids() -> list[str]:
    """The ids of all rules that the checker decides."""
    return [rule.id for name in TOPICS for rule in _checked(name)]


def about(name: str) -> str:
    """What this page says of one finding, by the name in its report. :class:`UsageError` for a name that is none."""
    for rule in (rule for title in TOPICS for rule in _checked(title) if rule.id == name):
        return _entry(rule)
    told: list[Sign | RaisedPart] = [*signs(), *log_families(), *places()]
    rows = {one.rule: one for one in told}
    if name in rows:
        one = rows[name]
        parts = (
            f"### `{name}`",
            "**error**, in a log",
            _sentence(one.cause),
            f"Fix: {one.fix}",
            f"Source: {one.source}",
        )
        return "\n\n".join(parts)
    near = get_close_matches(name, [*rule_ids(), *rows], 3)
    raise UsageError(
        f"the checker has no finding {name!r}",
        fix=f"write {' or '.join(near)}" if near else "take a name from a report, or see docs/checks.md",
    )


def _checked(name: str) -> list[Rule]:
    return [rule for rule in topic(name) if rule.is_checked]


def _range(text: Entry) -> str:
    if text.since and text.until:
        return f" in {text.since}" + (f" to {text.until}" if text.until != text.since else "")
    return f" from {text.since} on" if text.since else f" up to {text.until}" if text.until else ""


def _entry(rule: Rule) -> str:
    examples = _examples(rule)
    source = "; ".join(_unique(entry.source for entry in rule.says if entry.source)) or examples[0][1].source
    messages = _unique(_template(entry.message) for entry in rule.says)
    what = "\n".join(f"- {_sentence(text)}" for text in messages) if len(messages) > 1 else _sentence(messages[0])
    why = "; or ".join(text.rstrip(".") for text in _unique(_template(entry.why) for entry in rule.says))
    return "\n\n".join(
        [
            f"### `{rule.id}`",
            f"**{', '.join(sorted({f'{entry.severity}{_range(entry)}' for entry in rule.says}))}**",
            what,
            f"Why: {_sentence(why)}",
            *([_escaped(_sentence(rule.note))] if rule.note else []),
            *(part for example in examples for part in _shown(*example)),
            f"Source: {_escaped(source)}",
        ]
    )


def _examples(rule: Rule) -> list[tuple[Snippet, Finding]]:
    """The shortest snippet in which the rule is found, of each of its forms that the corpus has."""
    fitting = [one for one in snippets() if any(expected["rule"] == rule.id for expected in one.findings)]
    found: dict[str, tuple[Snippet, Finding]] = {}
    for snippet in sorted(fitting, key=lambda one: len(one.text) or sum(len(text) for _, text in one.files)):
        for finding in found_in(snippet.name):
            if finding.rule == rule.id:
                found.setdefault(_form(rule, finding), (snippet, finding))
    forms = dict.fromkeys(entry.form for entry in rule.says)
    return [found[form] for form in forms if form in found]


def _form(rule: Rule, finding: Finding) -> str:
    """The form of ``rule`` whose message ``finding`` has; its first one where the checker's code words the message."""
    forms = (entry.form for entry in rule.says if _fits(entry.message, finding.message))
    return next(forms, rule.says[0].form)


def _fits(template: str, message: str) -> bool:
    parts = PARTS.split(template)
    return re.fullmatch(".*".join(map(re.escape, parts)), message, re.DOTALL) is not None


def _shown(snippet: Snippet, finding: Finding) -> Iterator[str]:
    machine = f" --gpu {snippet.gpu}" if snippet.gpu else ""
    machine += f" --gpus {snippet.gpus}" if snippet.gpus else ""
    about = PAIN.sub("", snippet.about)
    yield f"Example, `--release {snippet.release}{machine}`: {_escaped(about)}"
    yield _block(_part(dict(snippet.files).get(finding.file, snippet.text), finding.line))
    place = f"{finding.file}:{finding.line}:{finding.column}".lstrip(":")
    yield f"> {place}: **{finding.severity}** {_escaped(finding.message)}"
    if finding.fix.kind == "command":
        yield "Fix:"
        yield _block(finding.fix.text)
    else:
        yield f"Fix: {_escaped(finding.fix.text)}"


def _part(text: str, line: int) -> str:
    """The whole text, or what stands around ``line``."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    start, end = max(0, line - 1 - AROUND), line + AROUND
    return "\n".join([*(["..."] if start else []), *lines[start:end], *(["..."] if end < len(lines) else [])])


def _block(text: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}text\n{text}\n{fence}"


def _template(text: str) -> str:
    return worded(_escaped(text), "*{}*")


def _escaped(text: str) -> str:
    return re.sub(r"([<*|])", r"\\\1", re.sub(r"\s+", " ", text))


def _cell(text: str) -> str:
    return _escaped(text)


def _sentence(text: str) -> str:
    first = text.partition(" ")[0]
    is_name = first in TOOLS or first in PROGRAMS  # a tool's name is written as it is called
    return f"{text[:1] if is_name else text[:1].upper()}{text[1:].rstrip('.')}."


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
