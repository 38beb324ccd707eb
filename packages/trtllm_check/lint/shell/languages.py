"""What a fence of Markdown calls its language, and what stands in it: blogs mark commands as whatever colours them."""

import re

SHELLS = frozenset({"", "bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "shellsession", "text"})
COMMANDS = (
    r"(?:sudo |time |nohup )?(?:(?:\S*/)?python3? \S|(?:\./|/)?"
    r"[^\s`\[\]()*<>|]*\.(?:py|sh)(?=\s|$)|trtllm-\w|docker |mpirun |curl |git "
    r"|vllm (?:serve|bench) |pip3? |cp |cd |apt(?:-get)? |huggingface-cli |hf |tritonserver "
    r"|export (?!const |let |default |function |async |class |type |interface )|bash |mkdir )"
)
PYTHONS = frozenset({"python", "py", "ipython"})
# Languages of their own whose blocks are read as what they are called.
KEPT = PYTHONS | {
    *("powershell", "ps1", "bat", "batch", "cmd", "docker", "dockerfile", "diff", "patch", "markdown", "md", "systemd"),
    *("rst", "mermaid"),
}
ALIASES = {
    **dict.fromkeys(("python3", "ipython3", "py3", "pycon", "python-repl"), "python"),
    **dict.fromkeys(("jsonc", "json5", "json-with-comments"), "json"),
    **dict.fromkeys(("yaml+jinja", "docker-compose", "compose"), "yaml"),
    **dict.fromkeys(("ps", "pwsh", "posh"), "powershell"),
    **dict.fromkeys(("fish", "ksh", "bash-session", "sh-session", "commandline", "cli"), "bash"),
    **dict.fromkeys(("none", "plaintext", "plain", "txt", "nohighlight"), "text"),
}
MAKEFILES = ("makefile", "make")
COMMAND = re.compile(rf"[ \t]*(?:[$>%#][ ]+)?(?:[A-Za-z_]\w*=\S* +)*{COMMANDS}")
OF_A_SHELL = re.compile(
    r"[ \t]*(?:[$>%#][ ]+)?(?:(?:sudo )?(?:echo|ls|cat|source|conda|wget|tar|nvidia-smi|kubectl|helm|uv|set|tee|make"
    r"|yum|dnf|apk|modelscope|git-lfs|screen|tmux|nohup|ssh|ollama|docker-compose) ?|[A-Z_]\w*=\S*[ \t]*$)"
)
GIVES = re.compile(r"\s--?[A-Za-z]|\\[ \t]*$")


def spoken(written: str, inside: str) -> str:
    """The language of a block: bash for commands, whatever their page calls them; else what is meant by the name."""
    language = ALIASES.get(written, written)
    if language in SHELLS or language in KEPT:
        return language
    is_recipe = language in MAKEFILES and "\t" in inside
    return "bash" if not is_recipe and _is_commands(inside) else language


def _is_commands(inside: str) -> bool:
    """True for lines that begin with one of a shell, and hold a command with an option."""
    begun = False
    for line in inside.split("\n"):
        stripped = line.strip()
        is_command = COMMAND.match(line) is not None
        if is_command and GIVES.search(line):
            return True
        if not begun and stripped and not (is_command or stripped.startswith(("#", "//")) or OF_A_SHELL.match(line)):
            return False
        begun = begun or (bool(stripped) and not stripped.startswith(("#", "//")))
    return False
