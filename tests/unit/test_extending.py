"""docs/extending.md: its examples are still what the code and the data beside them take."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbook.profile import load_profile
from serving_base.yaml_files import read_yaml
from trtllm_check.recipes import road
from trtllm_check.releases import load_release
from trtllm_check.releases.load import DATA_DIR
from trtllm_check.rules import all_rules
from trtllm_check.rules.table import RULES_DIR

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "packages" / "serving_base" / "facts"
CORPUS = ROOT / "packages" / "trtllm_check" / "lint" / "corpus"
PAGE = (ROOT / "docs" / "extending.md").read_text()
Raw = dict[str, Any]


def examples(title: str) -> list[str]:
    """The diffs of a task."""
    (task,) = (part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE) if part.startswith(f"{title}\n"))
    return re.findall(r"^```diff\n(.*?)^```", task, re.MULTILINE | re.DOTALL)


def parts(diff: str) -> list[tuple[str, str]]:
    """What its ``+++`` lines say, each with the lines below it."""
    found = re.split(r"^\+\+\+ (.*)\n", diff, flags=re.MULTILINE)[1:]
    return list(zip(found[::2], found[1::2], strict=True))


def one(entries: Raw) -> Raw:
    """The only entry of a mapping of names."""
    (entry,) = entries.values()
    assert isinstance(entry, dict)
    return entry


def added(diff: str) -> str:
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line.startswith("+"))


def read(diff: str) -> Any:
    return yaml.safe_load(added(diff))


def is_like(entry: Raw, others: Iterable[Raw]) -> bool:
    """It has every key that all the others have, and none that none has."""
    keys = [set(other) for other in others]
    return set.intersection(*keys) <= set(entry) <= set.union(*keys)


def apply_to(folder: Path, where: str, diff: str) -> None:
    """Do what a line such as ``tools/a.yml, tools/b.yml, at the end of read`` says."""
    for name in re.findall(r"[\w/.-]+\.yml", where):
        text = (folder / name).read_text()
        if taken := "".join(f"{line[1:]}\n" for line in diff.splitlines() if line.startswith("-")):
            head, key, rest = text.partition(where.rpartition("under ")[2] + ":\n")
            assert key and taken in rest, (name, taken)
            text = head + key + rest.replace(taken, added(diff), 1)
        elif "at the end of read" in where:
            text = re.sub(r"^read:\n(?:  - .*\n)+", lambda found: found[0] + added(diff), text, flags=re.MULTILINE)
        else:
            text += added(diff)
        (folder / name).write_text(text)


def test_the_release_is_read_back_and_has_its_commands(tmp_path: Path) -> None:
    data = tmp_path / "releases" / "data"
    shutil.copytree(DATA_DIR, data)
    shutil.copytree(DATA_DIR.parents[1] / "flows", tmp_path / "flows")
    (diff,) = examples("A release")
    more = 0
    for where, change in parts(diff):
        apply_to(data, where, change)
        more += len(re.findall(r"[\w/.-]+\.yml", where)) * added(change).count("\n")
    assert f"is {more} lines more and one less" in PAGE
    release = load_release("1.4.0", data)
    assert list(release.tools) == list(load_release("1.3.0rc22").tools)
    assert release.checkouts["modelopt"].tag == release.pins["nvidia-modelopt"] in release.tool("hf_ptq.py").source
    assert release.tool("trtllm-serve").arguments["--max_batch_size"].default == 4096
    assert {command.stage for command in road(load_profile("p5"), release).commands} >= {"quantize", "serve"}


def test_the_rule_and_its_text_are_like_the_others() -> None:
    rule, text = examples("A rule of the checker")
    ((name, entry),) = read(rule).items()
    shipped = [known for file in RULES_DIR.glob("*.yml") for known in read_yaml(file).values()]
    assert is_like(entry, shipped) and name not in {known.id for known in all_rules()}
    assert is_like(entry["says"][0], [say for known in shipped for say in known["says"]])
    assert is_like(read(text), [case for file in CORPUS.glob("*.yml") if "text" in (case := read_yaml(file))])
    assert read(text)["findings"][0]["rule"] == name


def test_the_gpu_the_instance_and_the_price_are_like_the_others() -> None:
    gpu, instance, price = (read(change) for _, change in parts(examples("A GPU, an instance, a price")[0]))
    assert is_like(one(gpu), read_yaml(FACTS / "gpus.yml").values())
    assert is_like(one(instance), read_yaml(FACTS / "instances.yml").values())
    assert is_like(price[0], read_yaml(FACTS / "prices.yml")["instances"])
    assert one(instance)["gpu"] in gpu
    assert price[0]["instance"] in instance


def test_the_model_is_like_the_others() -> None:
    known = read_yaml(FACTS / "models.yml")
    shape, variant = (read(part) for part in re.split(r"^@@.*\n", examples("A model")[0], flags=re.MULTILINE))
    assert is_like(one(shape), known["shapes"].values())
    assert is_like(one(variant), known["variants"].values())
    assert one(variant)["shape"] in shape


def test_the_image_is_like_the_others() -> None:
    images = DATA_DIR / "lmi"
    (image,) = read(examples("An LMI image")[0])
    assert is_like(image, read_yaml(images / "images.yml")["images"])
    assert (images / "families" / f"{image['family']}.yml").is_file()


def test_the_profile_loads_and_has_commands(tmp_path: Path) -> None:
    mine = tmp_path / "g6e.yml"
    mine.write_text(added(examples("A profile")[0]))
    profile = load_profile(str(mine))
    assert road(profile, load_release(profile.release)).commands


@pytest.mark.parametrize(
    ("entry", "expected"), [({"a": 1, "b": 2}, True), ({"b": 2}, False), ({"a": 1, "d": 2}, False)]
)
def test_an_entry_that_is_not_like_the_others_is_seen(entry: Raw, expected: bool) -> None:
    assert is_like(entry, [{"a": 1}, {"a": 1, "b": 2}]) == expected
