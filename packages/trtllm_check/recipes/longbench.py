"""LongBench as a benchmark's data: the set that FMBench takes unless it is given another.

A row has the fields of zai-org/LongBench (huggingface.co, formerly THUDM/LongBench): ``input``, ``context``,
``answers``, ``length``, ``dataset``, ``language``, ``all_classes`` and ``_id``. Its ``data.zip`` holds one file of JSON
lines per subset. Prompt and filters are those of FMBench: aws-samples/foundation-model-benchmarking-tool@39ce6b9c,
fmbench/prompt_template/prompt_template_llama3.txt and 1_generate_data.ipynb.
"""

import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving_base.errors import UsageError
from trtllm_check.recipes.run import chat_prompt

DATASET = "zai-org/LongBench"
LICENCE = "MIT (THUDM/LongBench, LICENSE); its texts come from data sets with licences of their own"
SUBSETS = ("2wikimqa", "2wikimqa_e", "hotpotqa", "hotpotqa_e", "narrativeqa", "triviaqa", "triviaqa_e")
"""Those of FMBench's docs/byo_dataset.md."""
SAMPLE = Path(__file__).with_name("longbench_sample.jsonl")
"""Six rows of the same form. The texts are our own, and short."""
TEMPLATE_KEYS = ("input", "context")
INSTRUCTION = (
    "Answer the question with the help of the text between the marks. "
    "If it is not said there, say that you do not know. Use three sentences at most."
)


class Row(BaseModel):
    """One question about one text. ``length``: words of the context, or characters in Chinese."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    input: str
    context: str = Field(min_length=1)
    answers: tuple[str, ...]
    length: int
    dataset: str
    language: str
    id: str = Field(alias="_id")

    @property
    def prompt(self) -> str:
        """Llama-3's chat format around instruction, text and question. FMBench's own template words it otherwise."""
        return chat_prompt(f"{INSTRUCTION}\n```\n{self.context}\n```\nQuestion: {self.input}")


@dataclass(frozen=True)
class Prompt:
    """A prompt of a workload: what :func:`trtllm_check.recipes.fmbench.write` and a load generator need of it."""

    name: str
    text: str
    isl_tokens: int


def fetch_command(folder: str) -> list[str]:
    """The command that puts ``data.zip`` (about 114 MB) into ``folder``; the set is open, no token is needed."""
    return ["hf", "download", DATASET, "data.zip", "--repo-type", "dataset", "--local-dir", folder]


def fmbench_names(subsets: Sequence[str] = SUBSETS) -> list[str]:
    """``source_data_files`` of FMBench: it then fetches the subsets itself, with the library ``datasets``."""
    return [f"hf:THUDM/LongBench/{name}/test" for name in subsets]


def read(path: Path, subset: str = "") -> list[Row]:
    """Rows of a file of JSON lines, or of ``subset`` in LongBench's ``data.zip``.

    :class:`UsageError` names the first line that is no row, or the subsets that the archive has.
    """
    return [_row(line, f"{path}:{number}") for number, line in enumerate(_lines(path, subset), 1) if line.strip()]


def prompts(
    rows: Iterable[Row], count_tokens: Callable[[str], int], *, shortest: int, longest: int, language: str = "en"
) -> list[Prompt]:
    """The rows in this language whose whole prompt has ``shortest`` to ``longest`` tokens, in their order.

    FMBench filters alike: what is too long is left out and not cut, so a question never loses its text.
    """
    found = [(row, row.prompt) for row in rows if row.language == language]
    counted = [Prompt(f"{row.dataset}-{row.id}", text, count_tokens(text)) for row, text in found]
    kept = [one for one in counted if shortest <= one.isl_tokens <= longest]
    if not kept:
        lengths = sorted(one.isl_tokens for one in counted)
        raise UsageError(
            f"no prompt in {language!r} has {shortest} to {longest} tokens",
            why=f"theirs have {lengths[0]} to {lengths[-1]}" if lengths else "no row has this language",
            fix="widen the range, or take another subset",
        )
    return kept


def _lines(path: Path, subset: str) -> list[str]:
    if path.suffix != ".zip":
        return path.read_text(encoding="utf-8").splitlines()
    with zipfile.ZipFile(path) as archive:
        names = {Path(name).stem: name for name in archive.namelist() if name.endswith(".jsonl")}
        if subset not in names:
            raise UsageError(
                f"{path} has no subset {subset!r}", fix=f"use one of: {', '.join(sorted(names)) or 'none: no jsonl'}"
            )
        return archive.read(names[subset]).decode("utf-8").splitlines()


def _row(line: str, where: str) -> Row:
    try:
        return Row.model_validate(json.loads(line))
    except (ValueError, ValidationError) as error:
        raise UsageError(f"{where} is no row of LongBench", why=str(error), fix="see the fields of Row") from error
