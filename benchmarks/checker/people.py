"""What the checker finds in scripts and configurations of people, which were labelled before it saw them.

No text is stored here: people.yml has repository, commit, path and SHA-256 of each case, and what is wrong in it.

    python -m benchmarks.checker.people MIRRORS [--show]

MIRRORS holds a git repository OWNER+NAME (or OWNER+NAME/repo) of each case. A finding counts for a problem where its
rule or its message matches; a case without problems is fine, and an error in it is false until it is judged by hand.
"""

import argparse
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.checker.regression import git, mirror
from serving_base.errors import NotUnderstood
from serving_base.yaml_files import read_yaml
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.kinds import kind_of_name
from trtllm_check.lint.reading import read_document

CASES = Path(__file__).with_name("people.yml")


def findings(text: str, name: str) -> list[Finding] | None:
    """Errors and warnings; None for a text that was not understood."""
    try:
        document = read_document(text, kind_of_name(name))
        if not document.is_understood:
            return None
        return [one for one in check_commands(document, target(document)) if one.severity != "info"]
    except NotUnderstood:
        return None


def case_text(case: dict[str, Any], mirrors: Path) -> str:
    data = git(mirror(mirrors, case["repository"]), "cat-file", "blob", f"{case['commit']}:{case['path']}")
    if hashlib.sha256(data).hexdigest() != case["sha256"]:
        raise SystemExit(f"{case['path']} of {case['repository']} is another text than the listed one")
    return data.decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mirrors", type=Path)
    parser.add_argument("--show", action="store_true", help="print what was missed and what was said")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for case in read_yaml(CASES):
        found = findings(case_text(case, options.mirrors), case["path"])
        said = [f"{one.rule}: {one.message} {one.why}" for one in found or []]
        problems = case.get("problems", [])
        missed = [one["what"] for one in problems if not any(re.search(one["match"], line) for line in said)]
        errors = sum(one.severity == "error" for one in found or [])
        counts += Counter(cases=1, problems=len(problems), missed=len(missed), findings=len(said))
        counts += Counter({"not understood": found is None, "fine": not problems})
        counts["fine with an error"] += bool(not problems and errors)
        if options.show and (missed or said):
            print(f"{case['repository']} {case['path']}", *(f"  missed: {one}" for one in missed), sep="\n")
            print(*(f"  {one.line}: {one.severity} {one.rule}: {one.message}" for one in found or []), sep="\n")
    print(
        {
            name: counts[name]
            for name in ("cases", "problems", "missed", "findings", "fine", "fine with an error", "not understood")
        }
    )


if __name__ == "__main__":
    main()
