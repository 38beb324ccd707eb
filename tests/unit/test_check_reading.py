"""The checker reads what people paste: no text stops it, and each word knows where it stands."""

import shlex
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playbook.profile import load_profile
from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import model_name
from trtllm_check.lint.invocations import Invocation, invocations, regrouped
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.shell import ShellCommand, Word, read_commands
from trtllm_check.recipes import road
from trtllm_check.recipes.command import docker_argv, shell
from trtllm_check.releases import known_releases, load_release

SCRIPT = Path(__file__).parents[1].joinpath("check_script.sh").read_text(encoding="utf-8")
"""A road in many spellings: what the property tests cut to pieces."""


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in read_commands(text)]


def only(text: str, tool: str) -> Invocation:
    (found,) = [invocation for invocation in invocations(read_commands(text)) if invocation.tool == tool]
    return found


def written_at(text: str, word: Word) -> str:
    """What the text holds where ``word`` says that it stands."""
    return text.split("\n")[word.line - 1][word.column - 1 :]


# What each of these is read as.
TEXTS = {
    "a continuation": ("trtllm-build --a b \\\n  --c d", [["trtllm-build", "--a", "b", "--c", "d"]]),
    "several commands on a line": (
        "a 1 && b 2; c 3 | d 4 || e 5 & f",
        [list("a1"), list("b2"), list("c3"), list("d4"), list("e5"), ["f"]],
    ),
    "comments": ("# all\na b # c\na#b", [["a", "b"], ["a#b"]]),
    "quotes": ("""a 'b  c' "d 'e'" f\\ g 'h'"i" '' """, [["a", "b  c", "d 'e'", "f g", "hi", ""]]),
    "variables": (
        "X=1\nY=$X/2\na $Y ${X}3 '$X' \"$X\" $Z ${Z:-4} \\$X",
        [[], [], ["a", "1/2", "13", "$X", "1", "${Z}", "4", "$X"]],
    ),
    "a variable with several words": ("F='--a b'\nx $F \"$F\"", [[], ["x", "--a", "b", "--a b"]]),
    "an array": ('F=(--a "b c")\nF+=(d)\nx "${F[@]}"', [["x", "--a", "b c", "d"]]),
    "an empty variable": ("E=\nx $E y", [[], ["x", "y"]]),
    "export": ("export A=1 B=$A\nx $A", [["export", "A=1", "B=${A}"], ["x", "1"]]),
    "a loop": ("for i in 1 2; do\n  x $i\ndone", [["for", "i", "in", "1", "2"], ["x", "${i}"]]),
    "if": ("if ! x; then y; else z; fi", [["x"], ["y"], ["z"]]),
    "redirections": ("x > f 2>&1 < g y >>h 2>/dev/null", [["x", "y"]]),
    "a substitution": ('x "$(dirname "$0")" z', [["dirname", "${0}"], ["x", '$(dirname "$0")', "z"]]),
    "a heredoc": ("cat <<EOF\nx 'y\nEOF\nz", [["cat"], ["z"]]),
    "a shift that is no heredoc": ("cout << x;\ny", [["cout"], ["y"]]),
    "prompts": ("$ a\n(venv) u@h:~/x$ b\nroot@c0ffee:/app# c\n[ec2-user@ip ~]$ d", [["a"], ["b"], ["c"], ["d"]]),
    "root's prompt": ("# trtllm-build --a b", [["trtllm-build", "--a", "b"]]),
    "a comment that is no prompt": ("# python3 x.py\ntrtllm-build --a b", [["trtllm-build", "--a", "b"]]),
    "continuation prompts": ("$ a \\\n> --b c", [["a", "--b", "c"]]),
    "python's prompt": (">>> import x\n... pass\na", [["a"]]),
    "a notebook": ("%%bash\na b\n!pip install c\n%cd d", [["a", "b"], ["pip", "install", "c"], ["cd", "d"]]),
    "footnotes": ("a --b c \\ *\n --d e \\**\n --f g **", [["a", "--b", "c", "--d", "e", "--f", "g"]]),
    "blanks behind a backslash": ("a --b c \\  \n --d e", [["a", "--b", "c", "--d", "e"]]),
    "Windows line ends": ("a --b c \\\r\n  --d e\r\nf\r\n", [["a", "--b", "c", "--d", "e"], ["f"]]),
    "a missing backslash": ("a --b c\n  --d e", [["a", "--b", "c", "--d", "e"]]),
    "a comment behind a backslash": ("a --b c \\ # x\n --d e", [["a", "--b", "c", "--d", "e"]]),
    "a comment within": ("a --b c \\\n  # --x y \\\n  --d e", [["a", "--b", "c", "--d", "e"]]),
    "typographic dashes": ("a –b —-c", [["a", "–b", "—-c"]]),
    "typographic quotes": ("a “b c” ‘d “e” f’", [["a", "“b c”", "‘d “e” f’"]]),
    "placeholders": ("a --b <your model> <x>/y < in", [["a", "--b", "<your model>", "<x>/y"]]),
    "a list is not a flag": ("a b\n- c", [["a", "b"], ["-", "c"]]),
    "an apostrophe": ("don't do it\na b", [["don't", "do", "it"], ["a", "b"]]),
    "an unclosed quote": ("a --b 'c d\ne f", [["a", "--b", "c d"], ["e", "f"]]),
    "a quote over two commands": (
        "curl -d 'What's'\ndocker run 'x'",
        [["curl", "-d", "Whats"], ["docker", "run", "x"]],
    ),
    "Markdown": ("Don't `x`.\n```bash\na b\n```\n> c\n```python\nd = 1\n!e f\n```\n", [["a", "b"], ["e", "f"]]),
    "shell in a fence of Python": (
        "```python\n# all\nx --a 'b' \\\n  --c d > e 2>&1\ndocker run i\n```\n",
        [["x", "--a", "b", "--c", "d"], ["docker", "run", "i"]],
    ),
    "an elision": ("a --b c ... \\\n  ... \\\n  --d", [["a", "--b", "c", "--d"]]),
    "a byte order mark": ("\ufeffa b", [["a", "b"]]),
    "a hard space": ("a\u00a0--b", [["a", "--b"]]),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_words(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("a \\ *\n --b", [" *"]),
        ("a \\ \n --b", [" "]),
        ("a --b\n --c", [""]),
        ("a --b # x\n --c", ["# x"]),
        ("a --b \\  # x\n --c", ["  # x"]),
        ("a \\\n # b\n --c", ["# b"]),
        ("a --b **", ["**"]),
        ("a \\\r\n --b\r\n", []),
        ("a \\\n --b", []),
        ("a --b\n\n --c", []),
    ],
)
def test_what_a_real_shell_would_stumble_on(text: str, cuts: list[str]) -> None:
    found = [cut for command in read_commands(text) for cut in command.cuts]
    assert [cut.text for cut in found] == cuts
    assert all(written_at(text, cut).startswith(cut.text) for cut in found)


def test_places_and_environment() -> None:
    text = "export A=1\nB=2 x --c \\\n  'd e' $A\n"
    export, command = read_commands(text)
    assert [(word.line, word.column) for word in command.words] == [(2, 5), (2, 7), (3, 3), (3, 9)]
    assert (command.line, command.end_line) == (2, 3)
    assert command.env == {"A": "1", "B": "2"} and export.env == {}
    assert [word.text for word in command.assignments] == ["B=2"]


def test_places_inside_quotes_and_heredocs() -> None:
    text = "bash -c \"cd x && trtllm-build \\\n --a 'b c'\"\nbash <<EOF\n trtllm-build --d\nEOF\n"
    first, second = [found for found in invocations(read_commands(text)) if found.tool == "trtllm-build"]
    assert [(word.text, word.line, word.column) for word in first.arguments] == [("--a", 2, 2), ("b c", 2, 6)]
    assert (second.path.line, second.path.column) == (4, 2)


@pytest.mark.parametrize(
    ("text", "tool", "launcher", "image", "ranks"),
    [
        ("python3 -u ../x/run.py --a", "run.py", "python3 -u", "", None),
        ("./run.py --a", "run.py", "", "", None),
        ("/opt/bin/trtllm-build --a", "trtllm-build", "", "", None),
        ("python -m tensorrt_llm.commands.build --a", "trtllm-build", "python -m", "", None),
        ("python3 -m pip install a", "pip", "python3 -m", "", None),
        ("pip3 install a", "pip", "", "", None),
        ("mpirun -np 8 --mca a b -x C=1 python3 run.py", "run.py", "mpirun -np 8 --mca a b -x C=1 python3", "", 8),
        ("srun -n 4 trtllm-llmapi-launch trtllm-serve m", "trtllm-serve", "srun -n 4 trtllm-llmapi-launch", "", 4),
        ("sudo -E nohup timeout -k 1 9 trtllm-build", "trtllm-build", "sudo -E nohup timeout -k 1 9", "", None),
        ("docker run --rm -it -p80:80 i:1 trtllm-build", "trtllm-build", "docker run --rm -it", "i:1", None),
        ("docker run --entrypoint trtllm-build i --a", "trtllm-build", "docker run --entrypoint", "i", None),
        ("docker run i bash -c 'mpirun -n 2 run.py'", "run.py", "docker run i mpirun -n 2", "i", 2),
        ("docker run --name n i x\ndocker exec -w /x n trtllm-build", "trtllm-build", "docker exec -w /x n", "i", None),
        ("docker run -it i bash\ntrtllm-build", "trtllm-build", "", "i", None),
        ("docker run -it i\nexit\ntrtllm-build", "trtllm-build", "", "", None),
        ("docker run i bash -c 'trap x INT; \"$@\"' bash mpirun -n 2 run.py", "run.py", "docker run i -c trap", "i", 2),
        ("cat > a.sh <<'EOF'\ntrtllm-build\nEOF", "trtllm-build", "", "", None),
        ("nsys profile -o x python3 run.py --a", "run.py", "nsys profile -o x python3", "", None),
        ("on host img mpirun -n 2 python3 run.py --a", "run.py", "on host img mpirun -n 2 python3", "", 2),
        ("x=$(trtllm-build --a)", "trtllm-build", "", "", None),
    ],
)  # fmt: skip
def test_unwrapping(text: str, tool: str, launcher: str, image: str, ranks: int | None) -> None:
    found = only(text, tool)
    assert " ".join(word.text for word in found.launcher).startswith(launcher)
    assert (found.image, found.ranks) == (image, ranks)


@pytest.mark.parametrize("text", ["sed -i --x run.py --y", "which trtllm-build", "grep -r --x run.py --y", "vi run.py"])
def test_a_tool_that_is_only_mentioned(text: str) -> None:
    assert invocations(read_commands(text)) == []


def test_environment_of_what_is_wrapped() -> None:
    text = "export A=1\nC=3 docker run -e B=2 -e C -e A=4 i env D=5 mpirun -x E=6 run.py"
    assert only(text, "run.py").env == {"A": "4", "B": "2", "C": "3", "D": "5", "E": "6"}
    assert only(text, "docker").env == {"A": "1", "C": "3"}


def test_arguments_of_programs() -> None:
    docker = only("docker run -itv a:b --gpus=all --shm-size 2g -eX=1 img cmd -x", "docker")
    assert [given.name for given in docker.given if given.flag] == ["-i", "-t", "-v", "--gpus", "--shm-size", "-e"]
    assert [word.text for word in docker.positional] == ["run", "img", "cmd", "-x"]
    assert (docker.value("-v"), docker.value("--gpus"), docker.value("-e")) == ("a:b", "all", "X=1")
    curl = only("curl -sSXPOST host:8000/v2 -d'{\"a\": 1}' -H 'B: c'", "curl")
    assert (curl.value("-X"), curl.value("-d"), curl.value("-H"), curl.has("-S")) == ("POST", '{"a": 1}', "B: c", True)
    git = only("git clone -b v1 --depth 1 URL dir", "git")
    assert [word.text for word in git.positional] == ["clone", "URL", "dir"]
    assert only("docker build -t x -f y .", "docker").value("-t") == "x"


def test_arguments_of_a_release() -> None:
    text = "trtllm-build --gather_all_token_logits x --workers 8 9 –tp_size=2 --seed -1"
    build = only(text, "trtllm-build")
    assert build.value("--workers") == "8" and build.value("--tp_size") == "2" and build.value("--seed") == "-1"
    given = build.find("--tp_size")
    assert given is not None and given.flag == "–tp_size"
    again = regrouped(build, load_release("0.12.0").tool("trtllm-build"))
    assert [(given.flag, [word.text for word in given.values]) for given in again[:4]] == [
        ("--gather_all_token_logits", []),
        ("", ["x"]),
        ("--workers", ["8"]),
        ("", ["9"]),
    ]


def test_every_tool_of_every_release_is_known() -> None:
    tools = {name for release in known_releases() for name in load_release(release).tools}
    unread = {tool for tool in tools if not invocations(read_commands(f"{tool} --x"))}
    assert tools > unread == {"mmlu.py"}  # of it only what the course uses is known


def test_a_document() -> None:
    document = read_document(SCRIPT)
    bf16, fp8 = document.of("trtllm-build")
    known = document.facts_of(fp8)
    assert (known.weights, known.kv_cache, known.tp, known.model) == ("fp8", "fp8", 8, "llama-3-70b")
    assert document.facts_of(bf16).weights == "full_prec"
    assert document.facts.weights == "" and document.facts.tp == 8
    (run,) = document.of("run.py")
    assert document.facts_of(run).weights == "fp8" and document.facts_of(run).world == 8
    assert [(file.path, file.line, file.text.split("\n")[0]) for file in document.properties] == [
        ("", 39, "engine=MPI")
    ]
    assert {name: value.text for name, value in document.lmi_environment.items()} == {
        "OPTION_QUANTIZE": "fp8",
        "HF_MODEL_ID": "meta-llama/Meta-Llama-3-70B-Instruct",
    }
    assert [(mount.host, mount.inside) for mount in document.mounts] == [("${PWD}", "/w"), ("/models", "/models")]
    assert len(document.images) == 2
    (request,) = document.requests
    assert request.fields == {"text_input": "What is FP8?", "max_new_tokens": 20} and request.method == "POST"
    place = request.at("max_new_tokens")
    assert written_at(SCRIPT, place).startswith('"max_new_tokens"')


CONFIG = 'name: "tensorrt_llm"\nbackend: "tensorrtllm"\nmax_batch_size: ${triton_max_batch_size}\n'


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        (CONFIG, "configs"),
        (f"see\n```\n{CONFIG}```\n", "configs"),
        (f"cat > r/tensorrt_llm/config.pbtxt <<'EOF'\n{CONFIG}EOF\n", "configs"),
        ("# x\nengine=MPI\noption.quantize=fp8\n", "properties"),
        ("```properties\noption.quantize=fp8\n```", "properties"),
        ('{"inputs": "a", "parameters": {}}', "requests"),
        ('{"inputs": "a", "parameters"', "requests"),
        ("curl localhost:8080/ping", "requests"),
        ("curl -d @- h/v2 <<EOF\n{}\nEOF", "requests"),
        ("OPTION_QUANTIZE=fp8\nHF_MODEL_ID=a b\n", "lmi_environment"),
        ('{"OPTION_QUANTIZE": "fp8"}', "lmi_environment"),
        ("export OPTION_QUANTIZE=fp8", "lmi_environment"),
        ("curl -LO https://host/file", "invocations"),
    ],
)
def test_kinds(text: str, attribute: str) -> None:
    document = read_document(text)
    others = {"configs", "properties", "requests", "lmi_environment"} - {attribute}
    assert getattr(document, attribute)
    assert [other for other in others if getattr(document, other)] == []


def test_a_folder(tmp_path: Path) -> None:
    files = {
        "repository/tensorrt_llm/config.pbtxt": CONFIG,
        "lmi/serving.properties": "engine=MPI\n",
        "build.sh": "trtllm-build --checkpoint_dir ckpt\n",
        "ckpt/config.json": '{"quantization": {"quant_algo": "FP8"}, "mapping": {"tp_size": 4}}',
        "engine/config.json": '{"build_config": {"plugin_config": {"use_paged_context_fmha": true}}}',
        "broken/config.json": "{",
        "binary.sh": "\x00\udcff",
        ".git/x.sh": "trtllm-build\n",
        "data.bin": "x",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    document = read_document(tmp_path)
    assert [(file.path, file.model) for file in document.configs] == [
        ("repository/tensorrt_llm/config.pbtxt", "tensorrt_llm")
    ]
    assert [file.path for file in document.properties] == ["lmi/serving.properties"]
    (build,) = document.invocations
    known = document.facts_of(build)
    assert build.command.file == "build.sh"
    assert (known.weights, known.kv_cache, known.tp) == ("fp8", "auto", 4)
    assert read_document(tmp_path / "lmi/serving.properties").properties


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b"),
        ("/models/llama3-8b", "llama-3-8b"),
        ("nvidia/Llama-3.1-405B-Instruct-FP8", "llama-3.1-405b"),
        ("Llama-3_3-70B", "llama-3.3-70b"),
        ("llama-3-1-8b", "llama-3.1-8b"),
        ("llama-2-13b-hf", "llama-2-13b"),
        ("/models/llama", ""),
    ],
)
def test_model_names(text: str, name: str) -> None:
    assert model_name(text) == name


@pytest.mark.parametrize(
    ("text", "weights", "kv_cache"),
    [
        ("quantize.py --qformat int4_awq --kv_cache_dtype int8", "int4_awq", "int8"),
        ("quantize.py", "full_prec", "auto"),
        ("convert_checkpoint.py --use_weight_only --weight_only_precision int4_gptq", "int4_gptq", "auto"),
        ("convert_checkpoint.py --use_weight_only --int8_kv_cache", "int8_wo", "int8"),
        ("convert_checkpoint.py --smoothquant 0.5", "int8_sq", "auto"),
        ("convert_checkpoint.py --use_fp8 --fp8_kv_cache", "fp8", "fp8"),
        ("hf_ptq.py --qformat nvfp4 --kv_cache_qformat none", "nvfp4", "auto"),
        ("quantize.py --qformat fp8\nconvert_checkpoint.py", "", "auto"),
        ("trtllm-build", "", ""),
    ],
)
def test_precision(text: str, weights: str, kv_cache: str) -> None:
    facts = read_document(text).facts
    assert (facts.weights, facts.kv_cache) == (weights, kv_cache)


@pytest.mark.parametrize("release", ["0.8.0", "0.16.0", "1.2.1"])
def test_what_the_recipes_write_is_read_back(release: str) -> None:
    commands = road(load_profile("p5", release), load_release(release)).commands
    assert commands
    for command in commands:
        assert list(command.argv) in words(shell(command))
        assert list(docker_argv(command, {"/a": "/b"})) in words(shlex.join(docker_argv(command, {"/a": "/b"})))


# --- any text ---------------------------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *"\n\n\n   \t'\"`\\$(){}[]<>|&;#*=-–“”‘’…éx",
        *("\r\n", "\u2028", "\x85", "\x00", "\\\n", "\\ *\n", "<<EOF", "EOF", "```", "```python", "# ", "$ ", ">>> "),
        *("$(", "${", "${A:-", "A=", "A=(", "$A", "A=$A$A\n", "export ", "for ", "do ", "--x", "-it ", "option.a=b\n"),
        *("sudo ", "bash -c ", "docker run ", "mpirun -n ", "python3 ", "run.py ", "curl -d ", '{"a": ', 'name: "x"\n'),
    ]
)
TEXT = st.one_of(
    st.text(max_size=200),
    st.lists(FRAGMENTS, max_size=60).map("".join),
    st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", errors="replace")),
    st.tuples(st.integers(0, len(SCRIPT)), st.integers(0, len(SCRIPT))).map(lambda cut: SCRIPT[min(cut) : max(cut)]),
)
QUICK = settings(max_examples=200, deadline=None, derandomize=True)


def all_words(document: Document) -> list[Word]:
    found: list[Word] = [*document.images, *document.lmi_environment.values()]
    commands: list[ShellCommand] = [*document.commands, *(one.command for one in document.invocations)]
    for command in commands:
        found += [*command.words, *command.assignments, *command.cuts, *(one.target for one in command.redirects)]
    found += [word for one in document.invocations for given in one.given for word in (given.word, *given.values)]
    found += [request.place for request in document.requests]
    return found


@QUICK
@given(TEXT)
@example("cat << EOF > x.sh\nbash <<X\nEOF")
@example("A=1\n" + "A=$A$A\n" * 60 + "x $A")
@example("sudo " * 3000)
@example("$(" * 3000)
@example("bash -c " + "'" * 999)
def test_any_text_is_read_and_every_place_is_in_it(text: str) -> None:
    document = read_document(text)
    lines = text.split("\n")
    for word in all_words(document):
        assert len(word.places) in (0, len(word.text))
        for line, column in [(word.line, word.column), *word.places[:1], *word.places[-1:]]:
            assert 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1
    for command in document.commands:
        assert 1 <= command.line <= command.end_line <= len(lines)


@QUICK
@given(TEXT)
def test_words_stand_where_they_say(text: str) -> None:
    """A word without quotes, escapes and variables is in the text as it is."""
    for command in read_commands(text):
        for word in command.words:
            written = written_at(text, word)
            if word.text and not set(written[: len(word.text) + 1]) & set("'\"\\$`“”‘’„‚"):
                assert written.startswith(word.text)


@QUICK
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20), min_size=1, max_size=8))
def test_what_shlex_writes_is_read_back(arguments: list[str]) -> None:
    line = shlex.join(["x", *arguments])
    assert words(line) == [["x", *arguments]]


@QUICK
@given(st.lists(st.sampled_from(SCRIPT.split("\n")), max_size=30))
def test_reading_is_stable(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert read_document(text) == read_document(text)


def test_a_hundred_lines_are_read_at_once() -> None:
    text = (SCRIPT * 3)[: len("\n".join((SCRIPT * 3).split("\n")[:100]))]
    read_document(text)
    times = []
    for _ in range(5):
        start = time.process_time()
        read_document(text)
        times.append(time.process_time() - start)
    assert text.count("\n") >= 99
    assert min(times) < 0.02


def test_hostile_texts_take_no_time() -> None:
    start = time.process_time()
    for text in (
        "$(" * 2000,
        "'" * 20_001,
        '"\\' * 10_000,
        "“" * 10_000,
        "<a" * 10_000,
        "`" * 5_001,
        "--a\n" * 5000,
        "<<A " * 1000,
    ):
        read_document(text)
    assert time.process_time() - start < 5


def test_a_last_block_ends_with_its_fence_also_without_a_new_line() -> None:
    page = "```bash\nvllm serve Qwen/Qwen3-8B \\\n  --tool-call-parser hermes \\\n```"
    (command,) = read_document(page).commands
    assert (command.line, command.end_line) == (2, 3)
