"""Pages that tell of failures: what somebody reports is read, and what a guide explains or a file gathers is not."""

import pytest

from trtllm_check.lint import target
from trtllm_check.lint.page_logs import read_page
from trtllm_check.lint.reading import read_document

NO_MEMORY = (
    "ValueError: Free memory on device cuda:0 (82.96/121.69 GiB) on startup is less than desired GPU memory utilization"
    " (0.7, 85.18 GiB)."
)
NO_QUOTA = "ResourceLimitExceeded: The account-level service limit 'ml.g4dn.xlarge for endpoint usage' is 0 Instances"
UNKNOWN = "ERROR 05-20 03:26:38 [dump_input.py:68] Dumping input data"
BUG = "## {title}[Bug] it does not start\n\n### Describe the bug\n\n```\n" + NO_MEMORY + "\n```\n"
PART = "## {title}\n\nAn error occurred:\n\n```\n" + NO_QUOTA + "\n```\n\n**Cause:** one.\n\n**Fix:** another.\n\n"
WORDS = "The service says so in its log, and nowhere else. " * 60


@pytest.mark.parametrize(
    ("page", "rules"),
    [
        (BUG.format(title=""), ["vllm-free-memory"]),
        (BUG.format(title="Issue #11: ") + BUG.format(title="Issue #12: "), []),
        (f"I get this:\n\n```\n{NO_MEMORY}\n```\n", ["vllm-free-memory"]),
        (f"I get this:\n\n```\n{NO_MEMORY}\n```\n\nInterpretation:\nAnother process had the rest.\n", []),
        (f"I get this:\n\n```\n{NO_QUOTA}\n```\n\n{WORDS}\n", ["sagemaker-quota"]),
        (PART.format(title="One") + PART.format(title="Two") + WORDS, []),
        (f"I get this:\n\n```\n{UNKNOWN}\n```\n", ["unexplained-error"]),
        (f"# How\n\nI get this:\n\n## Report\n\n```text\n{UNKNOWN}\n```\n\n## Logs\n\nStrip the colours.\n", []),
        (f"If `pip install` says:\n\n```\n{NO_QUOTA}\n```\n\nthen ask for more.\n", []),
    ],
    ids=["report", "reports", "error", "explained", "quota", "guide", "unknown", "document", "condition"],
)
def test_what_is_explained_or_gathered_is_not_told_again(page: str, rules: list[str]) -> None:
    assert [one.rule for one in read_page(page)] == rules


def test_a_container_beside_another_release_in_a_sentence_tells_none() -> None:
    container = "docker image `nvcr.io/nvidia/tritonserver:24.05-trtllm-py3`"
    command = "```bash\ntrtllm-build --checkpoint_dir c --output_dir e\n```\n"
    assert target(read_document(f"It is based on {container}.\n\n{command}")).release == "0.9.0"
    of_another = f"It is based on TensorRT-LLM-0.10.0, using {container}.\n\n{command}"
    assert target(read_document(of_another)).release != "0.9.0"
