"""What must hold between arguments, checkpoint and GPU: the conditions of the rulebook, and the ranks."""

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import DocumentFacts, output
from trtllm_check.lint.finding import Draft, Drop, Edit, Platform, Put, drafts, gpu_of
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import RANKS, Given
from trtllm_check.lint.rules.arguments import is_checked, missing
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release, Tool
from trtllm_check.rules import Condition
from trtllm_check.rules.table import TOPICS, CommandFacts, met

FAMILY = "pairs"
BUILD = "trtllm-build"
SWITCH_ON = "switch on"
SERVER, ORCHESTRATOR = "tritonserver", "TRTLLM_ORCHESTRATOR"
LAUNCHERS = ("mpirun", "mpiexec", "srun")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All conditions of the table, and the number of ranks."""
    gpu = gpu_of(platform)
    for serve in document.of("trtllm-serve"):
        yield from _served_engine(document, serve, platform.release.name)
    for invocation in document.invocations:
        if is_checked(invocation, platform.release) and not missing(invocation, platform.release):
            facts = document.facts_of(invocation)
            yield from _table(document, platform, invocation, facts, gpu.architecture if gpu else "")
            yield from _fixed_ranks(document, platform.release, invocation)
            yield from _ranks(platform.release, invocation, facts)
        elif invocation.tool == SERVER and invocation.ranks is not None and not _is_orchestrated(document):
            yield from _ranks(platform.release, invocation, document.facts_of(invocation))


def _served_engine(document: Document, serve: Invocation, release: str) -> Iterator[Draft]:
    """``trtllm-serve ENGINE --tp_size 2`` of an engine of the text with other ranks."""
    operands = [posixpath.normpath(word.text) for word in serve.positional]
    build = next((one for one in document.of(BUILD) if output(one) in operands), None)
    facts = document.facts_of(build) if build is not None else None
    for flag, built in (("--tp_size", facts.tp), ("--pp_size", facts.pp)) if facts and build else ():
        given = serve.find(flag)
        number = _number(serve.value(flag))
        if given is not None and build is not None and built is not None and number not in (None, 1, built):
            known: dict[str, Any] = {"tool": serve.tool, "flag": flag, "given": number, "built": built}
            known["line"] = build.path.line
            yield from drafts(release, "ranks-not-tp-pp", given.word, form="of the engine", invocation=serve, **known)


def _is_orchestrated(document: Document) -> bool:
    """True where Triton itself starts the workers, on ranks of their own."""
    return any(ORCHESTRATOR in text for _, text in document.texts)


def _table(
    document: Document, platform: Platform, invocation: Invocation, facts: DocumentFacts, arch: str
) -> Iterator[Draft]:
    found: set[tuple[str, str, Word]] = set()
    release = platform.release.name
    case = command_facts(platform, invocation, facts, arch)
    for rule, condition in met(TOPICS, case, release):
        given = invocation.find(condition.at)
        place = given.word if given else invocation.path
        if (rule.id, condition.form, place) in found:
            continue
        found.add((rule.id, condition.form, place))
        edited, edits = invocation, _edits(case.tool, condition)
        maker = checkpoint_maker(document, invocation)
        if condition.quantize and maker:
            edited, edits = maker, tuple(Put(flag, value) for flag, value in condition.quantize.items())
        yield from drafts(
            release,
            rule.id,
            place,
            form=condition.form,
            edits=edits,
            invocation=edited,
            **case.known(condition),
        )


def command_facts(platform: Platform, invocation: Invocation, facts: DocumentFacts, arch: str) -> CommandFacts:
    """A command of the text as the rulebook sees it."""
    known = {
        "weights": facts.weights,
        "kv_cache": facts.kv_cache,
        "tp": facts.tp,
        "arch": arch,
        "gpu": platform.gpu,
        "max_batch_size": _number(invocation.value("--max_batch_size")),
    }
    last = {given.name: given for given in invocation.given}  # asked for once for each condition

    def value(flag: str) -> str | None:
        return "".join(word.text for word in last[flag].values[:1]) if flag in last else None

    return CommandFacts(invocation.tool, platform.release.tools[invocation.tool], value, known)


def checkpoint_maker(document: Document, build: Invocation) -> Invocation | None:
    """The quantize.py of the text that wrote the checkpoint of ``build``, if there is one."""
    folder = build.value("--checkpoint_dir")
    if build.tool != BUILD:
        return None
    everything = (document.lookups.writers("quantize.py", folder) if folder else []) or document.of("quantize.py")
    return everything[-1] if everything else None


def _edits(tool: Tool, condition: Condition) -> tuple[Edit, ...]:
    edits: list[Edit] = [Drop(flag) for flag in condition.drop]
    for flag, value in condition.put.items():
        argument = tool.argument(flag)
        switch = argument is not None and argument.is_switch
        edits.append(Put(flag, None if switch else "enable" if value == SWITCH_ON else value))
    return tuple(edits)


def _fixed_ranks(document: Document, release: Release, invocation: Invocation) -> Iterator[Draft]:
    """ranks-fixed-by-checkpoint: of the releases whose trtllm-build takes the ranks too."""
    if invocation.tool != BUILD:
        return
    if not invocation.has("--tp_size", "--pp_size"):
        return
    others = tuple(given for given in invocation.given if given.name not in ("--tp_size", "--pp_size"))
    facts = document.facts_of(invocation._replace(given=others))
    for flag, known in (("--tp_size", facts.tp), ("--pp_size", facts.pp)):
        given = invocation.find(flag)
        value = _number(invocation.value(flag))
        if given and known and value and known != value and release.tools[BUILD].has(flag):
            yield from drafts(
                release.name,
                "ranks-fixed-by-checkpoint",
                given.word,
                edits=(Drop(flag),),
                invocation=invocation,
                flag=flag,
                value=value,
                known=known,
            )


def _ranks(release: Release, invocation: Invocation, facts: DocumentFacts) -> Iterator[Draft]:
    """ranks-not-tp-pp."""
    world = engine_world(facts, release)
    started = started_ranks(invocation)
    if world is None or started is None or started.number == world:
        return
    yield from drafts(
        release.name,
        "ranks-not-tp-pp",
        started.place,
        edits=(Put(started.flag, str(world)),),
        invocation=started.by(invocation),
        tool=invocation.tool,
        ranks=started.number,
        world=world,
        tp=facts.tp,
        pp=facts.pp,
    )


class Started(NamedTuple):
    """The number of ranks as a command says it: by ``flag`` of its own, or of the launcher in front."""

    number: int
    flag: str
    place: Word

    def by(self, invocation: Invocation) -> Invocation:
        """The command that ``flag`` belongs to."""
        if invocation.has(self.flag):
            return invocation
        words = invocation.launcher
        return invocation._replace(tool=LAUNCHERS[0], path=words[0], arguments=words[1:], given=_launcher(words))


def started_ranks(invocation: Invocation) -> Started | None:
    """How many ranks an engine is started on, where the command says it in so many words."""
    if invocation.tool == "launch_triton_server.py" and not orchestrated(invocation):
        given = invocation.find("--world_size")
    elif invocation.tool in ("run.py", "summarize.py", "mmlu.py", SERVER):
        given = next(iter(_launcher(invocation.launcher)), None) if invocation.ranks is not None else None
    else:
        return None
    number = _number(given.values[0].text if given and given.values else None)
    return Started(number, given.flag, given.word) if given and number is not None else None


def orchestrated(launch: Invocation) -> bool:
    """True if the server starts its workers itself: then its ranks are not the engine's."""
    return launch.has("--multi-model", "--disable-spawn-processes", "--multimodal_gpu0_cuda_mem_pool_bytes")


def engine_world(facts: DocumentFacts, release: Release) -> int | None:
    """The ranks of the engine, None if unknown; a Hugging Face checkpoint has none."""
    if facts.tp is None or facts.pp is None or not release.builds_engines:
        return None
    return facts.tp * facts.pp


def _launcher(words: tuple[Word, ...]) -> tuple[Given, ...]:
    """``mpirun -n 8`` among the words in front of a tool."""
    found = []
    start = next((number for number, word in enumerate(words) if PurePosixPath(word.text).name in LAUNCHERS), 0)
    words = words[start:]
    for number, word in enumerate(words):
        flag, sign, _ = word.text.partition("=")
        if flag in RANKS and sign:
            found.append(Given(flag, (word.part(len(flag) + 1),), word))
        elif flag in RANKS:
            found.append(Given(flag, words[number + 1 : number + 2], word))
    return tuple(found)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 9 else None
