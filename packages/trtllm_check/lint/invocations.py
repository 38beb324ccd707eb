"""Which of the commands start a tool that we know, in which container, on how many ranks."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from trtllm_check.lint.hosted_words import hosted_words
from trtllm_check.lint.programs import (
    ALIASES,
    EXISTING,
    HOLDERS,
    MENTIONS,
    MODULES,
    ONE_OPERAND,
    OWN,
    PROGRAMS,
    PYTHON,
    RANKS,
    SHELLS,
    TOOLS,
    VLLM_IMAGE,
    WRAPPERS,
    Given,
    arguments_of,
    group,
)
from trtllm_check.lint.shell import ShellCommand, Word, read_inside
from trtllm_check.lint.shell.words import file_name
from trtllm_check.releases import Tool

SCRIPT = re.compile(r"#!\S*(?:/|env )(?:ba|da|z)?sh\b")
DEEPEST = 20
ENVIRONMENT = re.compile(r"[A-Za-z_]\w*=")
SHELL_OPTION = re.compile(r"[-+][a-zA-Z]+")
SEPARATOR = re.compile(r"[/\\]")  # of paths on Windows too
A_PROGRAM = re.compile(r"[\w./~$@{}+-]+")
MOST_BEFORE = 24  # words of an unknown program's own in front of the tool that it starts
OF_A_FILE = re.compile(r"--?[\w-]*(?:dir|path|output|out|folder|name|log|file)")  # before a path that starts nothing
OWN_VLLM = re.compile(r"(?:^|/)[\w.-]*vllm[\w.-]*(?::[\w.-]+)?$|^\$\{?(?:\w+_)?VLLM_(?:\w+_)?IMAGE\b")
HELD = re.compile(
    r"(?:--(?:wrap|command)=)?(?=(?:[A-Z_]+=\S+[ \t]+)*[^\s=]+[ \t][\s\S])(?!--?\w)"
)  # a script in a word, behind its option
PROFILERS = frozenset({"nsys", "ncu", "nvprof", "strace", "perf", "accelerate", "torchrun"})


class Invocation(NamedTuple):
    """One start of ``tool``: a tool of a release, or docker, mpirun, curl, git, pip, cp, apt-get, hf, python ...

    A tool inside another (``docker run IMAGE mpirun -n 8 python3 run.py``) makes an invocation of its own.
    ``launcher``: the words in front of the tool's own (``mpirun -n 8 python3``); ``path``: the tool as written;
    ``image``: the container it runs in, "" if unknown; what follows an interactive ``docker run`` runs in that one.
    ``folder``: the name of the one that the text goes into before it, "" if unknown.
    ``ranks``: of mpirun around it. ``arguments``: the words behind the tool's own, ``given``: the same, grouped.
    """

    tool: str
    command: ShellCommand
    given: tuple[Given, ...]
    arguments: tuple[Word, ...]
    launcher: tuple[Word, ...]
    path: Word
    image: str
    ranks: int | None
    env: Mapping[str, str]
    folder: str = ""

    def find(self, *flags: str) -> Given | None:
        """The last use of any of ``flags``."""
        for given in reversed(self.given):
            if given.flag in flags or (not given.flag.isascii() and given.name in flags):
                return given
        return None

    def value(self, *flags: str) -> str | None:
        """The first value of the last use of any of ``flags``; "" for a flag without one, None if not given."""
        given = self.find(*flags)
        return None if given is None else "".join(word.text for word in given.values[:1])

    def values(self, *flags: str) -> list[Word]:
        """All values of all uses of any of ``flags``, for options that may be repeated."""
        return [
            word
            for given in self.given
            if given.flag in flags or (not given.flag.isascii() and given.name in flags)
            for word in given.values
        ]

    def has(self, *flags: str) -> bool:
        return self.find(*flags) is not None

    @property
    def positional(self) -> tuple[Word, ...]:
        """Arguments without a flag: an image, a requirement, a URL, a sub-command."""
        return tuple(word for given in self.given if not given.flag for word in given.values)


class _Surroundings(NamedTuple):
    """What the words around a command say about it."""

    command: ShellCommand
    env: Mapping[str, str]
    launcher: tuple[Word, ...] = ()
    image: str = ""
    ranks: int | None = None
    depth: int = 0


class _Reader:
    def __init__(self) -> None:
        self.found: list[Invocation] = []
        self.commands: list[ShellCommand] = []  # those of scripts behind the ones that hold them
        self.containers: dict[str, str] = {}  # name -> image
        self.inside = ""  # the image of an interactive container that the following commands run in
        self.folder, self.file = "", ""  # where ``cd`` went last, and in which file

    def read(self, command: ShellCommand) -> None:
        self.commands.append(command)
        if [word.text for word in command.words] == ["exit"]:
            self.inside = ""
        if command.file != self.file:
            self.folder, self.file = "", command.file
        if len(command.words) > 1 and command.words[0].text in ("cd", "pushd"):
            self.folder = file_name(command.words[1].text)
        self.unwrap(command.words, _Surroundings(command, command.env, image=command.image or self.inside))

    def unwrap(self, words: tuple[Word, ...], around: _Surroundings) -> None:
        if not words or around.depth > DEEPEST:
            return
        around = around._replace(depth=around.depth + 1)
        path, rest = words[0], words[1:]
        if " " in path.text.strip() and not rest:  # a whole command line in one word
            self.inner(path, around)
            return
        name = file_name(path.text)
        name = ALIASES.get(name, name)
        if name in WRAPPERS:
            self.wrapper(name, words, around)
        elif name == "uv" and rest[:1] and rest[0].text == "pip":
            self.unwrap(rest, _behind(around, words[:1]))
        elif name == "uv" and rest[:1] and rest[0].text == "run":
            self.wrapper("uv run", rest, _behind(around, words[:1]))
        elif name in SHELLS:
            self.shell(rest, around)
        elif name == "eval" and rest:
            self.unwrap(rest, _behind(around, words[:1]))
        elif name in ("cat", "tee"):
            self.script(around.command, around)
        elif PYTHON.fullmatch(name):
            self.python(words, around)
        elif name == "docker" and rest[:1] and rest[0].text == "compose":
            self.stranger(words, around)
        elif name == "docker":
            self.docker(words, around)
        elif name == "mpirun":
            self.mpirun(words, around)
        elif name == "vllm":
            self.vllm(path, rest, around)
        elif name == "trtllm" and rest[:1] and f"trtllm-{rest[0].text}" in EXISTING:  # another program, meant so
            meant = Word(f"trtllm-{rest[0].text}", path.line, path.column)
            before = around.command.words[: -len(words)]
            command = around.command._replace(words=(*before, meant, *rest[1:]))  # as a correction has to begin
            self.add(meant.text, meant, rest[1:], around._replace(command=command))
        elif name == "hf" and rest[:1] and rest[0].text == "jobs":  # of Hugging Face: an image, and what runs in it
            self.stranger(words, around)
        elif name in PROGRAMS or name in TOOLS or (OWN.fullmatch(name) and rest and not path.text.endswith("/")):
            self.add(name, path, rest, around)
        elif hosted := hosted_words(words):
            program, serve = (Word(text, path.line, path.column) for text in ("vllm", "serve"))
            command = around.command._replace(words=(program, serve, *hosted))  # what a correction is about
            self.add("vllm", path, (serve, *hosted), around._replace(command=command))
        elif name in HOLDERS:
            self.holder(words, around)
        elif name not in MENTIONS:
            self.stranger(words, around)

    def holder(self, words: tuple[Word, ...], around: _Surroundings) -> None:
        """``ssh HOST "cd x && ..."``, ``tmux send-keys "..." C-m``, ``sbatch --wrap="..."``: a script in one word."""
        held = [(number, HELD.match(word.text)) for number, word in enumerate(words) if number]
        scripts = [(words[number].part(match.end()), number) for number, match in held if match]
        for script, number in scripts:
            self.inner(script, _behind(around, words[:number]))
        if not scripts:
            self.inner_text(around)
            self.stranger(words, around)

    def stranger(self, words: tuple[Word, ...], around: _Surroundings) -> None:
        """An unknown program with the command line of a known one: ``nsys profile python3 run.py --x``."""
        if not A_PROGRAM.fullmatch(words[0].text):
            return  # prose
        for number, word in enumerate(words[1 : MOST_BEFORE + 1], 1):
            if file_name(word.text) in SHELLS and any(re.fullmatch(r"-\w*c", one.text) for one in words[number + 1 :]):
                self.unwrap(words[number:], _behind(around, words[:number]))
                return
            name = "" if "=" in word.text or OF_A_FILE.fullmatch(words[number - 1].text) else file_name(word.text)
            if name == "vllm" and [one.text for one in words[number + 1 : number + 2]] != ["serve"]:
                continue
            is_module = words[number - 1].text == "-m" and word.text in MODULES
            if (name in TOOLS or is_module or (OWN.fullmatch(name) and words[0].text in PROFILERS)) and any(
                later.text.startswith("--") for later in words[number + 1 :]
            ):
                starts = (i for i, one in enumerate(words[:number]) if i and _launches(one))
                start = next(starts, number)
                self.unwrap(words[start:], _behind(around, words[:start]))
                return

    def add(self, tool: str, path: Word, rest: tuple[Word, ...], around: _Surroundings) -> Invocation:
        invocation = Invocation(
            tool=tool,
            command=around.command,
            given=arguments_of(tool, rest),
            arguments=rest,
            launcher=around.launcher,
            path=path,
            image=around.image,
            ranks=around.ranks,
            env=around.env,
            folder=self.folder,
        )
        self.found.append(invocation)
        return invocation

    def vllm(self, path: Word, rest: tuple[Word, ...], around: _Surroundings) -> None:
        """vLLM, and what somebody starts behind it: an image's entry point takes a program for an argument."""
        self.add("vllm", path, rest, around)
        if len(rest) > 1 and rest[0].text == "serve":
            name = file_name(rest[1].text)
            if name in SHELLS or name == "vllm" or PYTHON.fullmatch(name):
                self.unwrap(rest[1:], _behind(around, (path, rest[0])))

    def wrapper(self, name: str, words: tuple[Word, ...], around: _Surroundings) -> None:
        options = WRAPPERS[name]
        if name == "command" and words[1:2] and words[1].text in ("-v", "-V"):
            return  # asks only whether there is one
        end = _options_end(words, lambda flag: 1 if flag in options else 0)
        if name in ONE_OPERAND:
            end += 1
        env = dict(around.env)
        while end < len(words) and ENVIRONMENT.match(words[end].text):
            key, _, value = words[end].text.partition("=")
            env[key] = value
            end += 1
        given = group(words[1:end], lambda flag: 1 if flag in options else 0)
        ranks = _ranks(given, ("-n", "--ntasks")) if name == "srun" else None
        self.unwrap(words[end:], _behind(around, words[:end], env=env, ranks=ranks or around.ranks))

    def shell(self, rest: tuple[Word, ...], around: _Surroundings) -> None:
        for number, word in enumerate(rest):
            if re.fullmatch(r"-\w*c", word.text) and number + 1 < len(rest):
                while number + 2 < len(rest) and SHELL_OPTION.fullmatch(rest[number + 1].text):
                    number += 1  # its options stand in front of the script
                if rest[number + 1].text == "--" and number + 2 < len(rest):
                    number += 1
                self.inner(rest[number + 1], around, around.env)
                if "${@}" in rest[number + 1].text or "$@" in rest[number + 1].text:
                    self.unwrap(rest[number + 3 :], _behind(around, rest[: number + 3]))
                return
            if not word.text.startswith("-"):  # a script, and perhaps what it starts
                self.stranger(rest[number:], _behind(around, rest[:number]))
                return
        self.inner_text(around)

    def script(self, command: ShellCommand, around: _Surroundings) -> None:
        """``cat > run.sh <<EOF``: what is in the script."""
        names = [redirect.target.text for redirect in command.redirects if redirect.operator in (">", ">>")]
        bodies = [redirect.target.text for redirect in command.redirects if redirect.operator == "<<"]
        if any(name.endswith(".sh") for name in [*names, *(word.text for word in command.words[1:])]) or (
            names and any(SCRIPT.match(body) for body in bodies)
        ):
            self.inner_text(around)

    def inner_text(self, around: _Surroundings) -> None:
        for redirect in around.command.redirects:
            if redirect.operator in ("<<", "<<<"):
                self.inner(redirect.target, around)

    def inner(self, word: Word, around: _Surroundings, outside: Mapping[str, str] | None = None) -> None:
        """``outside``: the variables that are known to reach it."""
        for read in read_inside(word, around.command.file, env=outside):
            command = read._replace(inside=True)
            env = {**around.env, **command.env}
            self.commands.append(command._replace(image=around.image))
            self.unwrap(command.words, around._replace(command=command, env=env))

    def python(self, words: tuple[Word, ...], around: _Surroundings) -> None:
        end = _options_end(words, lambda flag: 1 if flag in ("-m", "-c", "-W", "-X") else 0, stop=("-m", "-c"))
        if end + 1 < len(words) and words[end].text == "-m":
            tool = MODULES.get(words[end + 1].text)
            if tool:
                self.add(tool, words[end + 1], words[end + 2 :], _behind(around, words[: end + 1]))
                return
        name = SEPARATOR.split(words[end].text)[-1] if end < len(words) else ""
        if name in TOOLS or name in PROGRAMS:
            self.add(name, words[end], words[end + 1 :], _behind(around, words[:end]))
        else:
            self.add("python", words[0], words[1:], around)
            if behind := [number for number, word in enumerate(words) if number > end and word.text == "--"]:
                self.unwrap(words[behind[0] + 1 :], _behind(around, words[: behind[0] + 1]))

    def docker(self, words: tuple[Word, ...], around: _Surroundings) -> None:
        invocation = self.add("docker", words[0], words[1:], around)
        operands = invocation.positional
        if not operands or operands[0].text not in ("run", "exec", "create"):
            return
        if len(operands) < 2:
            return
        target = operands[1].text
        name = invocation.value("--name")
        image = target
        if operands[0].text == "exec":
            image = self.containers.get(target, "")
        elif name:
            self.containers[name] = target
        command = operands[2:]
        env = {}
        for word in invocation.values("-e", "--env"):
            key, sign, value = word.text.partition("=")
            env[key] = value if sign else around.env.get(key, "")
        interactive = invocation.has("-i", "--interactive") and invocation.has("-t", "--tty")
        if interactive and (not command or (len(command) == 1 and file_name(command[0].text) in SHELLS)):
            self.inside = image
        entrypoint = invocation.values("--entrypoint")
        launcher = words[: len(words) - len(command)]
        inner = _behind(around, launcher, env=env)._replace(image=image)
        if _starts_vllm(target, command) and operands[0].text == "run" and not entrypoint and command:
            self.add("vllm", operands[1], (Word("serve", operands[1].line, operands[1].column), *command), inner)
        self.unwrap((*(one for one in entrypoint[-1:] if one.text), *command), inner)  # "" takes the image's own away

    def mpirun(self, words: tuple[Word, ...], around: _Surroundings) -> None:
        invocation = self.add("mpirun", words[0], words[1:], around)
        ranks = _ranks(invocation.given, RANKS)
        env = dict(around.env)
        for word in invocation.values("-x"):
            key, sign, value = word.text.partition("=")
            if sign:
                env[key] = value
        command = invocation.positional
        for number, word in enumerate(command):
            if word.text == ":":
                command = command[:number]
                ranks = None
                break
        start = next((i for i, word in enumerate(words) if command and word is command[0]), len(words))
        self.unwrap(command, _behind(around, words[:start], env=env, ranks=ranks))


def _starts_vllm(image: str, command: Sequence[Word]) -> bool:
    """True for vLLM's image, and for one of somebody's own of its name that is given a model as an option first."""
    return VLLM_IMAGE.search(image) is not None or (
        OWN_VLLM.search(image) is not None and bool(command) and command[0].text.startswith("--model")
    )


def invocations(commands: Iterable[ShellCommand], every: list[ShellCommand] | None = None) -> list[Invocation]:
    """The tools that ``commands`` start, in order; a wrapper before what it wraps.

    ``every`` gets ``commands``, and behind each those of the scripts in it: of ``bash -c``, of ``ssh``, of what is
    written to a file.
    """
    reader = _Reader()
    for command in commands:
        reader.read(command)
    if every is not None:
        every += reader.commands
    return reader.found


def regrouped(invocation: Invocation, tool: Tool) -> tuple[Given, ...]:
    """The arguments as ``tool`` of one release takes them: a switch takes no value, a plain flag takes one.

    ``Invocation.given`` gives each flag of an argparse tool every word up to the next flag.
    """

    def takes(flag: str) -> int | None:
        argument = tool.argument(flag)
        if argument is None:
            return None
        if argument.is_switch:
            return 0
        return argument.nargs if isinstance(argument.nargs, int) else None if argument.nargs in ("+", "*") else 1

    return group(invocation.arguments, takes)


def _behind(
    around: _Surroundings, launcher: tuple[Word, ...], *, env: Mapping[str, str] | None = None, ranks: int | None = None
) -> _Surroundings:
    return around._replace(
        launcher=(*around.launcher, *launcher),
        env=around.env if env is None else env,
        ranks=around.ranks if ranks is None else ranks,
    )


def _options_end(words: tuple[Word, ...], takes: Callable[[str], int], stop: tuple[str, ...] = ()) -> int:
    """Where the options behind ``words[0]`` end."""
    end = 1
    while end < len(words) and words[end].text.startswith("-") and words[end].text not in stop:
        if words[end].text == "--":
            return end + 1
        end += 1 + takes(words[end].text)
    return min(end, len(words))


def _launches(word: Word) -> bool:
    name = file_name(word.text)
    return name in ("mpirun", "mpiexec") or PYTHON.fullmatch(name) is not None


def _ranks(given: Iterable[Given], flags: tuple[str, ...]) -> int | None:
    for one in given:
        if one.name in flags and one.values and one.values[0].text.isdecimal():
            return int(one.values[0].text)
    return None
