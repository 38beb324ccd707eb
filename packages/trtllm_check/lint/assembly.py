"""How the parts of a document are put together: what is started, with what it reads and what is sent to it."""

import re
from collections.abc import Callable, Iterable, Sequence

from trtllm_check.lint.carriers.cluster_objects import ClusterObject
from trtllm_check.lint.carriers.loose_variables import loose_variables
from trtllm_check.lint.carriers.workloads import ClusterService, ServedContainer
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.facts import stated
from trtllm_check.lint.held_arguments import held_lists
from trtllm_check.lint.invocations import invocations
from trtllm_check.lint.loose_commands import loose_commands
from trtllm_check.lint.loose_requests import loose_requests
from trtllm_check.lint.more_commands import more_commands
from trtllm_check.lint.mounts import Mount, mounts_of
from trtllm_check.lint.option_fences import option_fences
from trtllm_check.lint.option_files import option_files, with_configs
from trtllm_check.lint.parts import Parts
from trtllm_check.lint.programs import TOOLS
from trtllm_check.lint.shell import ShellCommand
from trtllm_check.lint.unread import unread
from trtllm_check.lint.variable_places import where_set
from trtllm_check.lint.written_requests import (
    of_curl,
    of_others,
    written_files,
)

BACKEND = re.compile(r"^[ \t]*backend[ \t]*:[ \t]*[\"'](\w+)[\"']", re.MULTILINE)


def assembled(parts: Parts, add_inside: Callable[[Sequence[ShellCommand]], None]) -> Document:
    """The document of ``parts``; ``add_inside`` puts in what commands hold that stand in others."""
    every: list[ShellCommand] = []
    found = invocations(parts.commands, every)
    known = len(parts.commands)
    add_inside(every)
    if parts.yaml or len(parts.commands) > known:
        commands = with_configs(parts.commands, found, parts.yaml, parts.sources)
        every = []
        found = invocations(commands, every)
    found += invocations(more_commands(every, found, parts.sources), every)
    found += invocations(list(option_fences(parts.sources, found)), every)
    if not any(one.tool in TOOLS for one in found):
        found += invocations([*loose_commands(parts.sources), *held_lists(parts.sources)], every)
    images = list(parts.images)
    mounts: list[Mount] = []
    for docker in (one for one in found if one.tool == "docker"):
        operands = docker.positional
        if len(operands) > 1 and operands[0].text in ("run", "create", "pull"):
            images.append(operands[1])
            mounts += mounts_of(docker, operands[1].text)
            for word in docker.values("-e", "--env"):
                parts.add_variable(word)
    if not parts.environment and not parts.properties:
        for _, text in parts.sources[:1] if len(parts.sources) == 1 else ():
            parts.environment.update(loose_variables(text))
    files = written_files(every)
    requests = [request for one in found if one.tool == "curl" and (request := of_curl(one, files))]
    requests += of_others(every)
    if not any(one.fields for one in (*requests, *parts.requests)):
        sent = list(loose_requests(parts.sources))
        requests = [one for one in requests if all(one.url != other.url for other in sent)] + sent
    return Document(
        commands=tuple(every),
        invocations=tuple(found),
        configs=tuple(parts.configs),
        properties=tuple(parts.properties),
        lmi_environment=parts.environment,
        requests=(*parts.requests, *requests),
        images=tuple(where_set(one, parts.sources) for one in images),
        calls=(*parts.calls, *(() if _is_in_python(parts.configs) else parts.of_triton)),
        workloads=tuple(one for one in parts.workloads if isinstance(one, ServedContainer)),
        aws_calls=tuple(parts.aws_calls),
        faults=tuple(parts.faults),
        names=tuple(parts.names),
        tensors=tuple(parts.tensors),
        services=tuple(one for one in parts.workloads if isinstance(one, ClusterService)),
        objects=tuple(one for one in parts.workloads if isinstance(one, ClusterObject)),
        mounts=tuple(mounts),
        json_configs=tuple(parts.json_configs),
        file_facts=tuple(parts.file_facts),
        said=tuple(map(stated, found)),
        variable_lists=tuple(parts.variable_lists),
        unread=tuple(
            lines for text, commands, read, file in parts.texts for lines in unread(text, commands, found, read, file)
        ),
        unreadable=tuple(parts.unreadable),
        left_out=parts.left_out,
        texts=tuple(parts.sources),
        windows=parts.windows,
        ours=parts.ours,
        option_files=tuple(option_files(parts.yaml, found, parts.sources)),
    )


def _is_in_python(configs: Iterable[ConfigFile]) -> bool:
    """True where all models whose backend the text tells are of the Python backend."""
    backends = {match[1] for config in configs for match in BACKEND.finditer(config.text)}
    return backends == {"python"}
