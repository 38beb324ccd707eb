"""Pages with several recipes: each section is checked for the release that it names itself."""

from trtllm_check.lint.reading import read_document
from trtllm_check.lint.recipes import check_page, recipes

BUILD = "trtllm-build --checkpoint_dir a --output_dir b --max_output_len 512 --max_batch_size 8\n"
RECIPE = """## Llama, {name}

```bash
git clone -b v{clone} https://github.com/NVIDIA/TensorRT-LLM.git
pip install tensorrt_llm=={wheel}
{build}```

"""


def recipe(name: str, clone: str, wheel: str = "", build: str = BUILD) -> str:
    return RECIPE.format(name=name, clone=clone, wheel=wheel or clone, build=build)


def errors(page: str, release: str = "") -> list[tuple[int, str]]:
    found, _ = check_page(read_document(page), page, release)
    return [(one.line, one.rule) for one in found if one.severity == "error"]


def test_each_recipe_is_checked_for_its_own_release() -> None:
    page = "# Two models\n\n" + recipe("old", "0.9.0") + recipe("new", "0.12.0")
    assert errors(page) == [(16, "flag-removed")]
    asked = check_page(read_document(page), page).asked
    assert (asked.release, asked.how) == ("0.9.0, 0.12.0", "each told by its own section")


def test_what_is_asked_for_goes_before_what_the_sections_say() -> None:
    page = recipe("old", "0.9.0") + recipe("new", "0.12.0")
    assert (6, "flag-removed") in errors(page, "0.12.0")


def test_sections_of_one_recipe_are_held_against_each_other() -> None:
    install = "## Install\n\n```bash\npip install tensorrt_llm==0.9.0\n```\n\n"
    page = install + recipe("build", "0.12.0")
    assert recipes(page) == []
    assert any(rule.startswith(("wheel", "clone")) for _, rule in errors(page))


def test_a_section_that_names_two_releases_is_no_recipe_of_its_own() -> None:
    assert recipes(recipe("mixed", "0.9.0", "0.12.0") + recipe("new", "0.12.0")) == []


def test_headings_within_a_block_part_nothing() -> None:
    inside = "# a comment\n" + BUILD
    assert recipes(recipe("one", "0.12.0", build=inside) + recipe("two", "0.12.0", build=inside)) == []
