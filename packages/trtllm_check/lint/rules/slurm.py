"""Slurm around TensorRT-LLM and vLLM: as many tasks as ranks, and as many GPUs as the job has."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.served import ServedModel, served
from trtllm_check.lint.shell.words import Word, lines_of, word_at

KEYWORD = "SBATCH"
LAUNCH = "trtllm-llmapi-launch"
HEREDOC = re.compile(r"<<-?[ ]*[\"']?(?P<name>\w+)")
DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(?P<option>--?[A-Za-z][\w-]*)(?:[=\s][ \t]*(?P<value>[^\s#]+))?", re.MULTILINE)
NAMES = {"-N": "nodes", "-n": "ntasks", "-G": "gpus", "--nodes": "nodes", "--ntasks": "ntasks", "--gpus": "gpus"}
NAMES |= {"--ntasks-per-node": "per_node", "--tasks-per-node": "per_node", "--gpus-per-node": "node_gpus"}
NAMES |= {"--gres": "gres", "--gpus-per-task": "task_gpus"}
GRES = re.compile(r"gpu(?::[A-Za-z][\w.-]*)?:(?P<count>\d+)")
COUNT = re.compile(r"(?:[A-Za-z][\w.-]*:)?(?P<count>\d+)")
ALLOCATED = re.compile(r"^[ \t]*(?:\$ )?salloc (?P<words>[^\n|;&]+)$", re.MULTILINE)
STARTERS = ("srun", "sbatch")
BY_TASK = re.compile(r"SLURM_(?:PROCID|LOCALID|NODEID)|--node-rank|--nnodes|--multi-prog")
SCRIPT = re.compile(r"\A#!.*sh\b")
NO_SCRIPT = re.compile(r"\A(?P<line>(?:##+!|#[ \t]+!|#(?=/)|!)[ \t]*/(?:usr/)?bin/(?:env[ \t]+)?\w*sh\b[^\n]*)")
MEMORY = re.compile(
    r"^#SBATCH[ \t]+(?P<option>--mem(?:-per-(?:gpu|cpu))?)[= \t][ \t]*(?P<value>[1-9]\d{0,2})(?=\s|$)", re.MULTILINE
)
# A line that looks like one of #SBATCH, and a step of the nodes beside the first.
NEARLY = re.compile(r"^#(?P<word>[A-Za-z]{5,8})[ \t]+--?[A-Za-z]", re.MULTILINE)
NEAR = 0.8
THE_OTHERS = re.compile(
    r"\bsrun\b[^\n]*?[ ](?P<option>(?:-N|--nodes|-n|--ntasks)[ =]?[\"']?"
    r"\$\(\([ ]*\$?\{?SLURM_(?:NNODES|JOB_NUM_NODES)\}?[ ]*-[ ]*1[ ]*\)\))"
)
SEVERAL_NODES = re.compile(r"SLURM_(?:NNODES|JOB_NUM_NODES)[}\"]*[ ]*(?:-gt|-ge|-ne|>|!=)")
PER_NODE = re.compile(r"^#SBATCH[ \t]+--n?tasks-per-node\b[^\n]*", re.MULTILINE)
RUNNERS = ("run.py", "summarize.py", "tritonserver", "trtllm-serve", "trtllm-bench")
OF_RANKS = ("trtllm-serve", "trtllm-bench")
MOST = 10_000


class SlurmJob(NamedTuple):
    """What a job or a step asks for; None for what it does not say, or leaves open."""

    nodes: int | None = None
    ntasks: int | None = None
    per_node: int | None = None
    gpus: int | None = None
    node_gpus: int | None = None
    task_gpus: int | None = None

    @property
    def tasks(self) -> int | None:
        if self.ntasks is not None:
            return self.ntasks
        return self.nodes * self.per_node if self.nodes is not None and self.per_node is not None else None

    @property
    def all_gpus(self) -> int | None:
        if self.gpus is not None:
            return self.gpus
        if self.node_gpus is not None:
            return (self.nodes or 1) * self.node_gpus
        return (self.tasks or self.nodes or 1) * self.task_gpus if self.task_gpus is not None else None

    def beside(self, other: "SlurmJob") -> "SlurmJob":
        """A step's own words before the job's."""
        own = self._asdict()
        if self.ntasks is None and (self.nodes is not None or self.per_node is not None):
            other = other._replace(ntasks=None)
        return SlurmJob(**{name: value if value is not None else getattr(other, name) for name, value in own.items()})


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release, texts = platform.release.name, dict(document.texts)
    jobs = {file: _job(text) for file, text in document.texts if "#SBATCH" in text}
    starts = [one for one in served(document) if one.invocation is not None and not one.is_part]
    for one in starts:
        yield from _tasks(one, jobs, release)
        yield from _copies(one, jobs, texts.get(one.file, ""), release)
    for one in starts if len(starts) == 1 and not jobs else ():
        yield from _gpus(one, _allocated(texts.get(one.file, "")), release)
    for file, job in jobs.items():
        here = [one for one in starts if one.file == file]
        if len(here) == 1:
            yield from _gpus(here[0], job, release)
        yield from _total(texts[file], file, job, release)
    for file, text in document.texts:
        if "#SBATCH" in text and (begin := NO_SCRIPT.match(text)):
            known: dict[str, Any] = {"line": begin["line"]}
            yield from drafts(release, "sbatch-line", Word(begin["line"], 1, 1), form="script", file=file, **known)
        if SCRIPT.match(text) and "#SBATCH" in text:
            yield from _late(text, file, release)
            yield from _crowded(document, text, file, jobs[file], release)
            yield from _memory(text, file, release)
            yield from _misspelt(text, file, release)
            yield from _no_others(text, file, jobs[file], release)


def _misspelt(text: str, file: str, release: str) -> Iterator[Draft]:
    """``#SBTACH --time=1:00:00``: a comment."""
    for match in NEARLY.finditer(text):
        word = match["word"]
        is_near = sorted(word.upper()) == sorted(KEYWORD) or SequenceMatcher(None, word.upper(), KEYWORD).ratio() > NEAR
        if word != KEYWORD and is_near:
            known: dict[str, Any] = {"word": f"#{word}"}
            place = Word(f"#{word}", text.count("\n", 0, match.start()) + 1, 1)
            yield from drafts(release, "sbatch-line", place, form="misspelt", file=file, **known)


def _no_others(text: str, file: str, job: SlurmJob, release: str) -> Iterator[Draft]:
    """``srun -N $((SLURM_NNODES - 1))`` in a job of one node."""
    for match in THE_OTHERS.finditer(text) if job.nodes == 1 and not SEVERAL_NODES.search(text) else ():
        place = word_at(text, match.start("option"), match["option"])
        yield from drafts(release, "tasks-and-ranks", place, form="no node", file=file, option=match["option"])


def _late(text: str, file: str, release: str) -> Iterator[Draft]:
    """A line of #SBATCH behind the first command."""
    begun = inside = ""
    for number, line in enumerate(lines_of(text), 1):
        opened = HEREDOC.search(line)
        if inside or opened:  # a job that the script writes
            inside = "" if line.strip() == inside else inside or (opened["name"] if opened else "")
            begun = begun or line.strip()
            continue
        if begun and DIRECTIVE.match(line):
            known: dict[str, Any] = {"directive": line.strip(), "command": begun}
            yield from drafts(release, "sbatch-line", Word(line.strip(), number, 1), file=file, **known)
            return
        if line.strip() and not line.lstrip().startswith("#"):
            begun = begun or line.strip()[:60]


def _memory(text: str, file: str, release: str) -> Iterator[Draft]:
    """``--mem=64``: megabytes."""
    for match in MEMORY.finditer(text):
        place = Word(match["value"], text.count("\n", 0, match.start()) + 1, match.start("value") - match.start() + 1)
        known: dict[str, Any] = {"option": match["option"], "value": match["value"]}
        yield from drafts(release, "sbatch-line", place, form="memory", file=file, **known)


def _crowded(document: Document, text: str, file: str, job: SlurmJob, release: str) -> Iterator[Draft]:
    """More tasks on a node than GPUs, each of them a rank of an engine."""
    line = PER_NODE.search(text)
    if line is None or job.per_node is None or not job.node_gpus or job.per_node <= job.node_gpus:
        return
    ranks = [one for one in document.of(*RUNNERS) if one.command.file == file]
    steps = [_step(one.launcher) for one in ranks]
    if not ranks or not all(step is not None and step.ntasks is None and step.per_node is None for step in steps):
        return
    known: dict[str, Any] = {"tool": ranks[0].tool, "tasks": job.per_node, "gpus": job.node_gpus}
    place = Word(line[0], text.count("\n", 0, line.start()) + 1, 1)
    yield from drafts(release, "tasks-and-ranks", place, form="crowded", file=file, **known)


def _number(text: str, pattern: re.Pattern[str] = COUNT) -> int | None:
    match = pattern.fullmatch(text)
    return int(match["count"]) if match and int(match["count"]) < MOST else None


def _filled(given: Mapping[str, str]) -> SlurmJob:
    values = {name: _number(text) for name, text in given.items() if name != "gres"}
    if "gres" in given and values.get("node_gpus") is None:
        values["node_gpus"] = _number(given["gres"], GRES)
    return SlurmJob(**values)


def _job(text: str) -> SlurmJob:
    found = {
        NAMES[match["option"]]: match["value"]
        for match in DIRECTIVE.finditer(text)
        if match["option"] in NAMES and match["value"]
    }
    return _filled(found)


def _step(words: Sequence[Word], starter: str = "srun") -> SlurmJob | None:
    """The srun in front of a tool."""
    texts = [word.text for word in words]
    return _asked(texts[texts.index(starter) + 1 :]) if starter in texts else None


def _allocated(text: str) -> SlurmJob:
    """What one salloc of the text asks for."""
    found = list(ALLOCATED.finditer(text))
    return _asked(found[0]["words"].split()) if len(found) == 1 else SlurmJob()


def _asked(own: Sequence[str]) -> SlurmJob:
    """The options of srun, sbatch or salloc."""
    found: dict[str, str] = {}
    for number, text in enumerate(own):
        name, sign, value = text.partition("=")
        if name not in NAMES:
            continue
        found[NAMES[name]] = value if sign else own[number + 1] if number + 1 < len(own) else ""
    return _filled(found)


def _tasks(one: ServedModel, jobs: Mapping[str, SlurmJob], release: str) -> Iterator[Draft]:
    """The tasks of srun, or the ranks of mpirun, beside the ranks of the model."""
    invocation = one.invocation
    if invocation is None or one.tool not in OF_RANKS or not any(LAUNCH in word.text for word in invocation.launcher):
        return
    needed = _needed(invocation, one)
    step = _step(invocation.launcher)
    tasks = invocation.ranks if step is None else step.beside(jobs.get(one.file, SlurmJob())).tasks
    if needed is None or tasks is None or tasks == needed:
        return
    starter = "srun" if step is not None else "mpirun"
    place = next((word for word in invocation.launcher if word.text in ("srun", "mpirun", "mpiexec")), invocation.path)
    known: dict[str, Any] = {"tool": one.tool, "starter": starter, "tasks": tasks, "needed": needed}
    form = "" if tasks < needed else "more"
    yield from drafts(release, "tasks-and-ranks", place, form=form, file=one.file, **known)


def _copies(one: ServedModel, jobs: Mapping[str, SlurmJob], text: str, release: str) -> Iterator[Draft]:
    """``srun vllm serve`` of several tasks on a node: as many servers, all on one port."""
    invocation = one.invocation
    step = _step(invocation.launcher) if invocation is not None and one.tool == "vllm serve" else None
    if invocation is None or step is None:
        return
    job = step.beside(jobs.get(one.file, SlurmJob()))
    if job.tasks is not None and job.tasks > (job.nodes or 1) and not BY_TASK.search(text):
        place = next(word for word in invocation.launcher if word.text == "srun")
        known: dict[str, Any] = {"tool": one.tool, "tasks": job.tasks}
        yield from drafts(release, "tasks-and-ranks", place, form="copies", file=one.file, **known)


def _needed(invocation: Invocation, one: ServedModel) -> int | None:
    """tp x pp; None where one of them is left open."""
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        if name in one.options and one.number(name) is None:
            return None
    if invocation.has("--extra_llm_api_options", "--config") and "tensor_parallel_size" not in one.options:
        return None
    return one.ranks


def _gpus(one: ServedModel, job: SlurmJob, release: str) -> Iterator[Draft]:
    """A server of more ranks than its step or its job has GPUs."""
    launcher = one.invocation.launcher if one.invocation is not None else ()
    steps = [step for name in STARTERS if (step := _step(launcher, name)) is not None]
    have = next((step.all_gpus for step in steps if step.all_gpus is not None), job.all_gpus)
    if have is None or not have or one.gpus <= have:
        return
    known: dict[str, Any] = {"tool": one.tool, "gpus": one.gpus, "have": have}
    yield from drafts(
        release, "tasks-and-ranks", one.place("tensor_parallel_size"), form="GPUs", file=one.file, **known
    )


def _total(text: str, file: str, job: SlurmJob, release: str) -> Iterator[Draft]:
    """``--gpus=4`` of a job whose tasks ask for more among them."""
    wanted = job.tasks * job.task_gpus if job.tasks is not None and job.task_gpus is not None else 0
    if job.gpus is None or wanted <= job.gpus:
        return
    line = next(one for one in DIRECTIVE.finditer(text) if NAMES.get(one["option"]) == "gpus")
    known: dict[str, Any] = {"gpus": job.gpus, "tasks": job.tasks, "each": job.task_gpus, "wanted": wanted}
    place = Word(line[0], text.count("\n", 0, line.start()) + 1, 1)
    yield from drafts(release, "tasks-and-ranks", place, form="total", file=file, **known)
