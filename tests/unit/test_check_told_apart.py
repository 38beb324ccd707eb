"""What a text tells of itself, where it names no release: whose script it shows, which releases, whose handler."""

import json

from each import each
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.reading import read_document

SPAN = (
    "```bash\ntrtllm-build --checkpoint_dir c --output_dir e --tp_size 4\n```\n\n"
    "> All of this holds for TensorRT-LLM v{first}.x ~ v{last}.x\n"
)
OLD_TEMPLATE = (
    'name: "tensorrt_llm"\nbackend: "tensorrtllm"\nmax_batch_size: 128\n'
    "model_transaction_policy {{ decoupled: {decoupled} }}\n"
    'parameters: {{ key: "gpt_model_type" value: {{ string_value: "inflight_fused_batching" }} }}\n'
    'parameters: {{ key: "gpt_model_path" value: {{ string_value: "${{engine_dir}}" }} }}\n'
    'parameters: {{ key: "max_num_sequences" value: {{ string_value: "{sequences}" }} }}\n'
)
PRINTED = (
    "# One node\n\n```\n{printed}\n```\n\n# Two nodes\n\n```bash\n"
    "docker run -d --rm --gpus all --ipc=host nvcr.io/nvidia/tensorrt-llm/release:1.0.0 sleep infinity\n```\n"
)
BUILDER = (
    "```bash\ngit clone https://github.com/{project}.git\ncd {folder}\n```\n\n"
    "```bash\npython build.py --hf_model_dir m --enable_context_fmha --paged_kv_cache --output_dir e\n```\n\n"
    "```\n[TensorRT-LLM] TensorRT-LLM version: 0.8.0\n```\n"
)
WORDS = (
    "- **TensorRT-LLM**: {said}\n- or `nvcr.io/nvidia/tensorrt-llm/release:0.21.0rc1`\n\n"
    "```bash\npip install tensorrt-llm\n```\n"
)
HANDLER = ["%%writefile model.py\n", "def handle(inputs):\n", '    return inputs.get_as_json()["prompt"]\n']
ASKING = [
    "import sagemaker\n",
    'image = sagemaker.image_uris.retrieve(framework="djl-deepspeed", region="us-east-1", version="0.27.0")\n',
    'predictor = sagemaker.Predictor("djl-inference", serializer=sagemaker.serializers.JSONSerializer())\n',
    'print(predictor.predict({"prompt": "Large models are"}))\n',
]
PARTS = (
    "```bash\npip install --upgrade sagemaker\n```\n\n```python\nfrom sagemaker import Model, multidatamodel\n\n"
    'model = multidatamodel.MultiDataModel("m", "s3://b/m/", model=Model("djl"))\n```\n'
)


def found(text: str) -> dict[str, str]:
    """Each rule with its severity, but hints."""
    document = read_document(text)
    said = {one.rule: one.severity for one in check_commands(document, target(document))}
    return {rule: severity for rule, severity in said.items() if severity != "info"}


def notebook(*cells: list[str]) -> str:
    code: list[dict[str, object]] = [
        {"cell_type": "code", "source": one, "outputs": [], "metadata": {}, "execution_count": None} for one in cells
    ]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


@each(("first", "last", "is_told"), [("0.9", "0.12", True), ("0.13", "1.0", False)])
def test_a_page_may_be_for_several_releases(first: str, last: str, is_told: bool) -> None:
    assert ("flag-removed" not in found(SPAN.format(first=first, last=last))) is is_told


@each(
    ("decoupled", "sequences", "expected"),
    [
        ("${decoupled_mode}", "${max_num_sequences}", set()),
        ("${decoupled_mode}", "64", {"unfilled-variable"}),
    ],
)
def test_a_template_before_0_8_is_one_as_it_is(decoupled: str, sequences: str, expected: set[str]) -> None:
    text = OLD_TEMPLATE.format(decoupled=decoupled, sequences=sequences)
    assert found(text).keys() & {"unfilled-variable", "unknown-parameter"} == expected


@each(
    ("printed", "is_told"),
    [("[TensorRT-LLM] TensorRT-LLM version: 1.1.0", False), ("pip install tensorrt_llm==1.1.0", True)],
)
def test_what_a_program_prints_tells_nothing_of_another_container(printed: str, is_told: bool) -> None:
    assert ("container-of-another-release" in found(PRINTED.format(printed=printed))) is is_told


@each(
    ("project", "folder", "is_ours"),
    [("Tlntin/Qwen-TensorRT-LLM", "qwen2", False), ("NVIDIA/TensorRT-LLM", "TensorRT-LLM", True)],
)
def test_a_builder_of_another_project_is_no_example(project: str, folder: str, is_ours: bool) -> None:
    assert ("example-folder" in found(BUILDER.format(project=project, folder=folder))) is is_ours


@each(("said", "right"), [("0.20.0", "0.20.0"), ("", "0.21.0")])
def test_words_tell_the_release_beside_a_container(said: str, right: str) -> None:
    document = read_document(WORDS.format(said=said))
    (one,) = [one for one in check_commands(document, target(document)) if one.rule == "wheel-of-another-release"]
    assert f"tensorrt-llm=={right}" in one.fix.text


@each(("cells", "is_lmis"), [([HANDLER, ASKING], False), ([ASKING], True)])
def test_a_handler_of_the_notebooks_own_reads_what_it_likes(cells: list[list[str]], is_lmis: bool) -> None:
    assert ("lmi-request" in found(notebook(*cells))) is is_lmis


def test_parts_of_an_sdk_that_went_together_are_told_once() -> None:
    assert found(PARTS) == {"sagemaker-sdk": "warning"}
