"""The programs that the checker knows by name, which of their options take a value, and words grouped by that.

Options of docker, mpirun (Open MPI), curl, pip and git: their manuals. The tools of TensorRT-LLM are in the releases.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from trtllm_check.lint.shell.words import Word

TOOLS = frozenset(
    {
        *("quantize.py", "hf_ptq.py", "convert_checkpoint.py", "trtllm-build", "trt_llm_partition.py"),
        *("run.py", "summarize.py", "fill_template.py", "launch_triton_server.py", "tritonserver"),
        *("trtllm-serve", "trtllm-bench", "trtllm-eval", "hf", "huggingface-cli", "vllm"),
        *("genai-perf", "aiperf", "perf_analyzer", "benchmark_serving.py", "lm_eval", "lm-eval"),
        *("guidellm", "vllm_router.app", "locust"),
        *("gptManagerBenchmark", "gptSessionBenchmark", "bertBenchmark"),
    }
)
EXISTING = frozenset(  # commands that TensorRT-LLM installs: setup.py, console_scripts and scripts
    f"trtllm-{name}" for name in ("build", "serve", "bench", "eval", "refit", "prune", "llmapi-launch", "hlapi-launch")
)
OWN = re.compile(r"trtllm-[a-z]+(?:-[a-z]+)*")  # of TensorRT-LLM, or meant so
ALIASES = {
    "pip3": "pip",
    "apt": "apt-get",
    "mpiexec": "mpirun",
    **dict.fromkeys(("podman", "nvidia-docker", "nerdctl"), "docker"),
}
MODULES = {
    "tensorrt_llm.commands.build": "trtllm-build",
    "tensorrt_llm.commands.serve": "trtllm-serve",
    "pip": "pip",
    "lm_eval": "lm_eval",
    "vllm_router.app": "vllm_router.app",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
# Lines that start a tool; the name of vLLM alone is any name.
TOOL_NAMES = "|".join([*(re.escape(name) for name in sorted(TOOLS - {"vllm"})), r"vllm (?:serve|bench)\b"])
# Images whose entry point is `vllm serve` (before 0.11.1 the module of the same arguments): vLLM docker/Dockerfile.
VLLM_IMAGE = re.compile(r"(?:^|/)vllm-openai(?:-[a-z]+)?(?::|@|$)")
# Images whose entry point is a server -> its program; of TGI: its Dockerfile at v0.8.2 to v3.3.7.
SERVER_ENTRIES = (
    (VLLM_IMAGE, "vllm serve"),
    (re.compile(r"(?:^|/)text-generation-inference(?::|@|$)"), "text-generation-launcher"),
)
# Images that serve models on GPUs: vLLM, Triton with TensorRT-LLM, NVIDIA's TensorRT-LLM, LMI, SGLang, TGI, NIM.
SERVER_IMAGE = re.compile(
    r"(?:^|/)(?:vllm-openai(?!-cpu)(?:-[a-z]+)?|vllm|sglang|text-generation-inference)(?::(?!.*cpu)|@|$)"
    r"|nvidia/tritonserver:[^:]*-trtllm-|nvidia/tensorrt-llm/|/djl-inference:(?!.*cpu)|nvcr\.io/nim/(?!.*embed)"
)
# The same and their images for CPUs and for embeddings: whoever names one wants a model served.
MODEL_IMAGE = re.compile(
    rf"{SERVER_IMAGE.pattern}|(?:^|/)(?:vllm-openai(?:-[a-z]+)?|vllm-omni|vllm|sglang|text-generation-inference"
    r"|text-embeddings-inference|djl-serving)(?::|@|$)|nvidia/tensorrt-?llm:"
)
SHELLS = frozenset({"bash", "sh", "zsh", "fish", "ksh", "dash"})
PYTHON = re.compile(r"python(3(\.\d+)?)?")
OPENAI_SERVER = "vllm.entrypoints.openai.api_server"
PLAIN_SERVER = "vllm.entrypoints.api_server"  # has /generate and none of OpenAI's paths
RANKS = ("-n", "-np", "--np", "--n", "--ntasks", "-c")

# What stands in front of another program: the options of it that take a value.
WRAPPERS: dict[str, frozenset[str]] = {
    # Helpers that scripts write for themselves.
    **dict.fromkeys(("run", "run_cmd", "run_command", "exec_cmd"), frozenset[str]()),
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "--user", "--group"}),
    "env": frozenset({"-u", "-C", "--unset", "--chdir", "-S"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "numactl": frozenset({"-N", "-m", "-C", "-i"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "nohup": frozenset(),
    "uv run": frozenset({"-p", "--python", "--with", "--extra", "--group", "--directory", "--project", "--env-file"}),
    "time": frozenset({"-f", "-o"}),
    "exec": frozenset({"-a"}),
    "command": frozenset(),
    "tini": frozenset({"-p", "-e"}),
    "dumb-init": frozenset({"-r", "--rewrite"}),
    "standard-supervisor": frozenset(),  # of SageMaker's containers
    "trtllm-llmapi-launch": frozenset(),
    "srun": frozenset({"-n", "-N", "-p", "-A", "-J", "-t", "-w", "-G", "-c"}),
}
# What names a tool without starting it.
MENTIONS = frozenset(
    {
        *("cat", "less", "head", "tail", "ls", "vi", "vim", "nano", "sed", "grep", "chmod", "which", "echo", "printf"),
        *("find", "rm", "mv", "ln", "wget", "tar", "diff", "man", "for", "type", "tee", "awk", "test", "["),
    }
)
# What runs a script that it is given in one word, elsewhere or later.
HOLDERS = frozenset(
    {
        *("ssh", "pdsh", "clush", "tmux", "screen", "su", "sbatch", "gcloud", "pm2", "sky", "vastai", "lxc"),
        *("script", "bsub", "parallel", "trap", "at", "byobu", "xterm", "hyperfine", "nix-shell", "watch"),
    }
)
ONE_OPERAND = frozenset({"timeout"})
FLAG = re.compile(r"(?P<name>(?:-{1,2}|[-–—−]{1,2})[A-Za-z][^=\s]*)(?P<value>=.*)?", re.DOTALL)
DASHES = re.compile(r"[-–—−]+")
Takes = Callable[[str], int | None]
"""How many values a flag takes; None: all up to the next flag."""


class Program(NamedTuple):
    """A program whose options we know: those in ``valued`` take a value, those in ``two_values`` two.

    Behind ``operands`` operands there is another command line. ``clusters``: ``-it`` stands for ``-i -t``.
    """

    valued: frozenset[str] = frozenset()
    two_values: frozenset[str] = frozenset()
    operands: int | None = None
    clusters: bool = True

    def takes(self, flag: str) -> int:
        return 2 if flag in self.two_values else int(flag in self.valued)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DOCKER_VALUED = _names(
    "-a --add-host --annotation --attach --blkio-weight -c --cap-add --cap-drop --cgroup-parent --cgroupns --cidfile "
    "--cpu-period --cpu-quota --cpu-shares --cpus --cpuset-cpus --cpuset-mems --device --device-cgroup-rule --dns "
    "--dns-option --dns-search --domainname -e --entrypoint --env --env-file --expose --gpus --group-add "
    "--health-cmd --health-interval --health-retries --health-timeout -h --hostname --ip --ip6 --ipc --isolation "
    "-l --label --label-file --link --log-driver --log-opt --mac-address -m --memory --memory-reservation "
    "--memory-swap --memory-swappiness --mount --name --net --net-alias --network --network-alias --oom-score-adj "
    "-p --pid --pids-limit --platform --publish --pull --restart --runtime --security-opt --shm-size --stop-signal "
    "--stop-timeout --storage-opt --sysctl --tmpfs -u --ulimit --user --userns --uts -v --volume --volume-driver "
    "--volumes-from -w --workdir"
)
MPIRUN_VALUED = _names(
    "-n -np --np --n -c -H -host --host -hostfile --hostfile -machinefile --machinefile -x -N -npernode --npernode "
    "-map-by --map-by -bind-to --bind-to -rank-by --rank-by -wdir --wdir -wd --wd --timeout -output-filename "
    "--output-filename --rankfile -rf --prefix --path -path --tune -am --app -iface --personality"
)
CURL_VALUED = _names(
    "-A -b -c -C -d -D -e -E -F -H -K -m -o -P -Q -r -t -T -u -U -w -x -X -y -Y -z --request --header --data "
    "--data-raw --data-binary --data-ascii --data-urlencode --json --output --user --max-time --connect-timeout "
    "--retry --retry-delay --retry-max-time --url --form --upload-file --user-agent --write-out --cacert --cert "
    "--key --proxy --cookie --resolve --unix-socket --limit-rate --range --referer"
)
PIP_VALUED = _names(
    "-r -c -e -i -f -t --requirement --constraint --editable --index-url --extra-index-url --find-links --target "
    "--upgrade-strategy --prefix --root --trusted-host --progress-bar --cache-dir --python-version --platform "
    "--no-binary --only-binary --timeout --retries --proxy --cert --log --src --config-settings --config-setting -C "
    "--global-option"
)
GIT_VALUED = _names(
    "-b --branch --depth -C -o --origin --reference -c --config -j --jobs -u --upload-pack --template --filter "
    "--shallow-since --shallow-exclude -B -m --message"
)
DOCKER_BUILD_VALUED = _names("-f --file -t --tag --build-arg --target")
PROGRAMS: dict[str, Program] = {
    "docker": Program(DOCKER_VALUED, operands=2),
    "mpirun": Program(MPIRUN_VALUED, two_values=_names("-mca --mca -gmca --gmca"), operands=1, clusters=False),
    "curl": Program(CURL_VALUED),
    "git": Program(GIT_VALUED),
    "pip": Program(PIP_VALUED),
    "cp": Program(_names("-t -S --target-directory --suffix")),
    "apt-get": Program(_names("-o -t -c --option --target-release")),
    "python": Program(_names("-m -c -W -X"), operands=1),
}
SWITCHES: dict[str, frozenset[str]] = {
    "fill_template.py": _names("-i --in_place"),
    "huggingface-cli": _names("--force-download --resume-download --quiet --add-to-git-credential"),
    "hf": _names("--force-download --quiet --add-to-git-credential"),
}
HUB_LISTS = _names("--include --exclude")


class Given(NamedTuple):
    """One flag with its values as written, without ``=``; ``flag`` is empty for a positional argument.

    ``word`` is where the flag (or the positional argument) stands. ``-it`` of docker and the like is two flags.
    """

    flag: str
    values: tuple[Word, ...]
    word: Word

    @property
    def name(self) -> str:
        """The flag with ASCII dashes: ``--tp_size`` for ``–tp_size``."""
        return self.flag if self.flag.isascii() else DASHES.sub("--", self.flag, count=1)


def arguments_of(tool: str, words: Sequence[Word]) -> tuple[Given, ...]:
    """The arguments of ``tool`` by what is known of it in any release."""
    if tool in PROGRAMS:
        return tuple(_group_program(words, PROGRAMS[tool]))
    switches = SWITCHES.get(tool, frozenset())
    others = 1 if tool in ("hf", "huggingface-cli") else None
    return group(words, lambda flag: 0 if flag in switches else None if flag in HUB_LISTS else others)


def group(words: Sequence[Word], takes: Takes) -> tuple[Given, ...]:
    """Flags with as many values as they take; other words are positional, each on its own."""
    found: list[Given] = []
    flags = [FLAG.fullmatch(word.text) for word in words]
    position = 0
    while position < len(words):
        word, match = words[position], flags[position]
        position += 1
        if match is None:
            found.append(Given("", (word,), word))
            continue
        flag = match["name"]
        if match["value"] is not None:
            found.append(Given(flag, (word.part(len(flag) + 1),), word))
            continue
        wanted = takes(Given(flag, (), word).name)
        end = position
        while end < len(words) and (wanted is None or end - position < wanted) and not flags[end]:
            end += 1
        found.append(Given(flag, tuple(words[position:end]), word))
        position = end
    return tuple(found)


def _group_program(words: Sequence[Word], program: Program) -> Iterator[Given]:
    position = operands = 0
    while position < len(words):
        word = words[position]
        position += 1
        is_option = word.text.startswith("-") and len(word.text) > 1
        if operands == program.operands or not is_option:
            operands += operands != program.operands
            if word.text in ("build", "buildx") and operands == 1 and program.operands == 2:
                program = program._replace(valued=program.valued | DOCKER_BUILD_VALUED)
            yield Given("", (word,), word)
            continue
        flag = word.text
        if program.clusters and not flag.startswith("--"):
            *switches, last = _letters(word, program)
            yield from (Given(switch, (), word) for switch in switches)
            flag = last
            inline = word.part(len(switches) + 2) if len(word.text) > len(switches) + 2 else None
            if inline is not None and inline.text.startswith("="):
                inline = inline.part(1)
        else:
            flag, sign, _ = word.text.partition("=")
            inline = word.part(len(flag) + 1) if sign else None
        if inline is not None:
            yield Given(flag, (inline,), word)
            continue
        end = position + program.takes(flag)
        yield Given(flag, tuple(words[position:end]), word)
        position = end


def _letters(word: Word, program: Program) -> list[str]:
    """``-it`` to ``-i -t``, up to the first that takes a value: the rest is the value."""
    letters: list[str] = []
    for letter in word.text[1:]:
        letters.append(f"-{letter}")
        if program.takes(letters[-1]):
            break
    return letters
