"""config.pbtxt of the five models of inflight_batcher_llm, rendered from a release's facts."""

from functools import cache
from pathlib import Path

from trtllm_check.releases.templates import release_templates

TEMPLATE = Path(__file__).with_name("config.pbtxt.j2")


@cache
def render_templates(release: str) -> dict[str, str]:
    """config.pbtxt of each model, with the ``${...}`` of that release still in it."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    models = release_templates(release).models
    return {name: template.render(name=name, model=model) for name, model in models.items()}
