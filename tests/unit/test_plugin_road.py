"""The parts of a plugin: each with a source that is named, and the chapter's own operation has them."""

import pytest
from pydantic import ValidationError

from serving_base.yaml_files import read_yaml
from trtllm_check.plugins import ROAD_FILE, _Road, plugin_generator, plugin_parts, plugin_sources, pytorch_operation


def test_every_fact_has_its_source() -> None:
    sources = plugin_sources()
    assert {one.source for one in plugin_parts()} | {plugin_generator().source, pytorch_operation().source} <= set(
        sources
    )
    assert all(one.url.startswith("https://") and one.read for one in sources.values())


def test_a_fact_without_its_source_is_refused() -> None:
    told = read_yaml(ROAD_FILE)
    told["sources"].pop("plugin")
    with pytest.raises(ValidationError, match="no source is called plugin"):
        _Road.model_validate(told)


def test_a_link_names_the_commit_that_was_read() -> None:
    for one in plugin_sources().values():
        if "@" in one.read:
            assert one.read.split("@")[1][:8] in one.url
