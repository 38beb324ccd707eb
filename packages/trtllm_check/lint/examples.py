"""The real commands in ``lint/corpus``, with what must be found in each: for the tests and docs/checks.md."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint import check_commands
from trtllm_check.lint.documents.document import Document, read_document
from trtllm_check.lint.documents.kinds import Kind
from trtllm_check.lint.report.finding import Finding

CORPUS = Path(__file__).parent / "corpus"

NAMES: dict[Kind, str] = {
    "shell": "commands.sh",
    "config.pbtxt": "config.pbtxt",
    "serving.properties": "serving.properties",
    "environment": ".env",
    "request": "request.json",
}


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
    """All of them, by name."""
    return tuple(_snippet(path) for path in sorted(CORPUS.glob("*.yml")))


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
