"""What the checker says of pages that projects ship for their own release: findings by project and tag.

A page that a project ships for its own release is fine until proven otherwise. No page is stored here: ``list`` writes
repository, state, commit, path and SHA-256 of each page of a folder of git mirrors, ``run`` reads those pages there.

    python benchmarks/checker/regression.py list MIRRORS
    python benchmarks/checker/regression.py run MIRRORS [--held-out] [--show RULE]

MIRRORS holds a bare or plain git repository OWNER+NAME (or OWNER+NAME/repo) of each repository of refs.yml.
"""

import argparse
import hashlib
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from serving_base.errors import NotUnderstood
from serving_base.yaml_files import read_yaml
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.evidence import told
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.kinds import kind_of_name
from trtllm_check.lint.reading import read_document
from trtllm_check.releases.load import container_release

HERE = Path(__file__).parent
LIST = HERE / "pages.tsv"
EXCEPTIONS = HERE / "exceptions.yml"
KINDS = re.compile(r"\.(?:md|rst|sh|ipynb|ya?ml|pbtxt|properties|py)$|(?:^|/)(?:Dockerfile[^/]*|Makefile)$")
NOT_PAGES = re.compile(r"(?:^|/)(?:src/main|src/test|tests?/|setup/djl_python|\.github/ISSUE|tensorrt_llm/tests)")
ABOUT = re.compile(rb"trtllm|tensorrt[-_]llm|fill_template|option\.\w|OPTION_|rolling_batch|convert_checkpoint", re.I)
LARGEST = 1_000_000
HELD_OUT = "01"  # first characters of the SHA-256 of pages that nobody looks at while the checker is changed


class Page(NamedTuple):
    repository: str
    state: str
    commit: str
    release: str
    path: str
    sha256: str

    @property
    def is_held_out(self) -> bool:
        return self.sha256[0] in HELD_OUT


class Verdict(NamedTuple):
    page: Page
    findings: tuple[Finding, ...]
    problem: str
    seconds: float


def git(folder: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True).stdout


def mirror(mirrors: Path, repository: str) -> Path:
    folder = mirrors / repository.replace("/", "+")
    return folder / "repo" if (folder / "repo").is_dir() else folder


def states(folder: Path, entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """State of a repository and its release."""
    yield from entry.get("tags", {}).items()
    names = git(folder, "for-each-ref", "--format=%(refname:short)", "refs/heads").decode().split()
    for name in names:
        month = re.fullmatch(r"r(\d\d\.\d\d)", name) if entry.get("containers") else None
        if month and (release := container_release(f"nvcr.io/nvidia/tritonserver:{month[1]}-trtllm-python-py3")):
            yield name, "" if entry.get("told") else release
        version = re.fullmatch(r"(\d+\.\d+\.\d+)(-lmi\d+)?-dlc", name) if entry.get("images") else None
        if version and tuple(map(int, version[1].split("."))) >= (0, 27, 0):
            yield name, ""


def listed(mirrors: Path) -> Iterator[Page]:
    """The pages of all states, each text once for each release."""
    seen: set[tuple[str, str]] = set()
    for repository, entry in read_yaml(HERE / "refs.yml").items():
        folder = mirror(mirrors, repository)
        for state, release in states(folder, entry):
            commit = git(folder, "rev-parse", f"{state}^{{commit}}").decode().strip()
            for line in git(folder, "ls-tree", "-r", commit).decode().split("\n")[:-1]:
                (_, kind, blob), path = line.split("\t")[0].split(), line.split("\t")[1]
                if kind != "blob" or not KINDS.search(path) or NOT_PAGES.search(path) or (blob, release) in seen:
                    continue
                seen.add((blob, release))
                try:
                    data = git(folder, "cat-file", "blob", blob)
                except subprocess.CalledProcessError:
                    continue  # a mirror may lack large files
                if len(data) <= LARGEST and ABOUT.search(data):
                    yield Page(repository, state, commit, release, path, hashlib.sha256(data).hexdigest())


def read_list() -> list[Page]:
    pages: list[Page] = []
    head: tuple[str, ...] = ()
    for line in LIST.read_text(encoding="utf-8").splitlines():
        cells = line.split("\t")
        if cells[0]:
            head = tuple(cells)
        else:
            pages.append(Page(head[0], head[1], head[2], head[3], cells[1], cells[2]))
    return pages


def write_list(pages: Iterable[Page]) -> None:
    """A line for each state, and below it, indented, one for each page of it."""
    lines: list[str] = []
    head: tuple[str, ...] = ()
    for page in pages:
        if page[:4] != head:
            head = page[:4]
            lines.append("\t".join(head))
        lines.append(f"\t{page.path}\t{page.sha256}")
    LIST.write_text("\n".join(lines) + "\n", encoding="utf-8")


def findings_of(text: str, name: str, release: str) -> list[Finding]:
    """As ``playbook check`` does it, for the release that the text tells, else for its state's."""
    document = read_document(text, kind_of_name(name))
    if not document.is_understood:
        raise NotUnderstood("not understood")
    found = told(document)
    if release and (found is None or found.kind == "flag"):
        return check_commands(document, release)
    return check_commands(document, target(document))


def judged(page: Page, mirrors: Path) -> Verdict:
    data = git(mirror(mirrors, page.repository), "cat-file", "blob", f"{page.commit}:{page.path}")
    if hashlib.sha256(data).hexdigest() != page.sha256:
        raise SystemExit(f"{page.path} of {page.repository} {page.state} is another text than the listed one")
    start = time.perf_counter()
    try:
        findings, problem = findings_of(data.decode(errors="replace"), page.path, page.release), ""
    except Exception as error:  # what a page ends the checker with is a result here
        findings, problem = [], f"{type(error).__name__}: {error}"
    return Verdict(page, tuple(findings), problem, time.perf_counter() - start)


def excepted(page: Page, finding: Finding, exceptions: list[dict[str, str]]) -> bool:
    """True for an error that was checked by hand: the page is wrong."""
    return any(
        one["repository"] == page.repository
        and one["rule"] == finding.rule
        and re.search(one["path"], page.path)
        and re.search(one["message"], finding.message)
        for one in exceptions
    )


def table(verdicts: Iterable[Verdict], exceptions: list[dict[str, str]]) -> Iterator[str]:
    rows: dict[tuple[str, str], Counter[str]] = {}
    total: Counter[str] = Counter()
    for one in verdicts:
        row = rows.setdefault((one.page.repository, one.page.state), Counter())
        for counts in (row, total):
            counts["pages"] += 1
            counts["not read"] += bool(one.problem)
            counts["findings"] += len(one.findings)
            errors = [found for found in one.findings if found.severity == "error"]
            false = [found for found in errors if not excepted(one.page, found, exceptions)]
            counts["true errors"] += len(errors) - len(false)
            counts["false errors"] += len(false)
            counts["pages with one"] += bool(false)
    columns = ("pages", "not read", "findings", "true errors", "false errors", "pages with one")
    yield "\t".join(("repository", "state", *columns))
    for key, row in [*rows.items(), (("all", ""), total)]:
        yield "\t".join((*key, *(str(row[column]) for column in columns)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("list", "run"))
    parser.add_argument("mirrors", type=Path)
    parser.add_argument("--held-out", action="store_true", help="only the pages that were set aside")
    parser.add_argument("--show", default="", help="print each false error of the rules that match")
    parser.add_argument("--match", default="", help="only paths that match")
    options = parser.parse_args()
    if options.action == "list":
        write_list(listed(options.mirrors))
        return
    exceptions = read_yaml(EXCEPTIONS) if EXCEPTIONS.is_file() else []
    pages = [page for page in read_list() if page.is_held_out == options.held_out]
    verdicts = [judged(page, options.mirrors) for page in pages if re.search(options.match, page.path)]
    print("\n".join(table(verdicts, exceptions)))
    false: Counter[str] = Counter()
    for one in verdicts:
        for found in one.findings:
            if found.severity == "error" and not excepted(one.page, found, exceptions):
                false[found.rule] += 1
                if options.show and re.search(options.show, found.rule):
                    place = f"{one.page.repository} {one.page.state} {one.page.path}:{found.line}"
                    print(f"{place}: {found.rule}: {found.message}")
    print("\nfalse errors by rule:", dict(false.most_common()))
    print("not read:", dict(Counter(one.problem[:70] for one in verdicts if one.problem).most_common(12)))
    seconds = sorted(one.seconds for one in verdicts)
    print(f"seconds a page: median {seconds[len(seconds) // 2]:.3f}, largest {seconds[-1]:.3f}")


if __name__ == "__main__":
    main()
