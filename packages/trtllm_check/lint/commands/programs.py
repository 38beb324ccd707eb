"""The programs that the checker knows by name, and which of their options take a value.

Options of docker, mpirun (Open MPI), curl, pip and git: their manuals. The tools of TensorRT-LLM are in the releases.
"""

import re
from typing import NamedTuple

TOOLS = frozenset(
    {
        *("quantize.py", "hf_ptq.py", "convert_checkpoint.py", "trtllm-build", "trt_llm_partition.py"),
        *("run.py", "summarize.py", "fill_template.py", "launch_triton_server.py", "tritonserver"),
        *("trtllm-serve", "trtllm-bench", "trtllm-eval", "hf", "huggingface-cli"),
    }
)
ALIASES = {"pip3": "pip", "apt": "apt-get", "mpiexec": "mpirun", "podman": "docker", "nvidia-docker": "docker"}
MODULES = {"tensorrt_llm.commands.build": "trtllm-build", "tensorrt_llm.commands.serve": "trtllm-serve", "pip": "pip"}
SHELLS = frozenset({"bash", "sh", "zsh"})
PYTHON = re.compile(r"python(3(\.\d+)?)?")
RANKS = ("-n", "-np", "--np", "--n", "--ntasks", "-c")

# What stands in front of another program: the options of it that take a value.
WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "--user", "--group"}),
    "env": frozenset({"-u", "-C", "--unset", "--chdir", "-S"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "numactl": frozenset({"-N", "-m", "-C", "-i"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "nohup": frozenset(),
    "time": frozenset({"-f", "-o"}),
    "exec": frozenset({"-a"}),
    "command": frozenset(),
    "tini": frozenset({"-p", "-e"}),
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
ONE_OPERAND = frozenset({"timeout"})


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
    "--no-binary --only-binary --timeout --retries --proxy --cert --log --src --config-settings --global-option"
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
