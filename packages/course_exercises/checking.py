"""The exercises of the chapter on the checker: a script to mend, exit statuses, a comment without its reason."""

import shlex
from collections.abc import Mapping

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from trtllm_check.lint import check_commands
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.ignoring import RULE, without_ignored

RELEASE = "1.2.1"
COLLEAGUE = """\
python3 examples/quantization/quantize.py --model_dir model --qformat fp8 --kv_cache_dtype fp8 \\
  --tp_size 4 --output_dir ckpt
trtllm-build --checkpoint_dir ckpt --output_dir engine --max_batch_size 64 --max_input_len 4096 \\
  --max_output_len 1024 --enable_xqa enable --workers 4
mpirun -n 8 python3 examples/run.py --engine_dir engine --tokenizer_dir model --max_output_len 64
"""
"""A script with three faults for 1.2.1; exercise 1 mends it."""
LONGEST = 4096 + 1024
KEPT = ("quantize.py", "--qformat fp8", "--kv_cache_dtype fp8", "trtllm-build", "--max_batch_size 64", "run.py")


def check_script(text: str) -> Solution:
    """Exercise 1: the colleague's script, so that 1.2.1 takes it and it does the same."""
    title = "a colleague's script"
    if not text.strip():
        return Solution(title, problem="the script is still empty")
    said = [one.message for one in _findings(text, RELEASE) if one.severity in ("error", "warning")]
    words = " ".join(text.replace("\\\n", " ").split())
    lost = [part for part in KEPT if part not in words]
    longest = words.partition("--max_seq_len ")[2].split(" ")[0]
    return Solution(
        title,
        (
            ExerciseVerdict(
                f"the checker, {RELEASE}",
                "; ".join(said) or "nothing said",
                "nothing said",
                "each finding has its fix",
                not said,
            ),
            ExerciseVerdict(
                "what has to stay",
                f"without {', '.join(lost)}" if lost else "all there",
                "all there",
                "a command that is deleted has no error, and does no work",
                not lost,
            ),
            ExerciseVerdict(
                "prompt and answer together",
                longest or "no --max_seq_len",
                f"--max_seq_len {LONGEST} or more",
                "without it the engine takes what the model allows, and its buffers with it",
                longest.isdigit() and int(longest) >= LONGEST,
            ),
        ),
    )


def _findings(text: str, release: str) -> list[Finding]:
    return without_ignored(check_commands(text, release, gpu="h100", gpus=8), {"": text})


def check_statuses(chosen: Mapping[str, int | None], statuses: Mapping[str, int]) -> Solution:
    """Exercise 2: the exit status of each command; ``statuses`` are the real ones, by the same letters."""
    title = "which exit status"
    verdicts = []
    for letter, status in statuses.items():
        yours = chosen.get(letter)
        if yours is None:
            return Solution(title, problem=f"command {letter} has no status yet")
        why = "1 an error, 0 none, 2 input that cannot be used, 3 nothing that the checker knows"
        verdicts.append(ExerciseVerdict(f"command {letter}", str(yours), str(status), why, yours == status))
    return Solution(title, tuple(verdicts))


def check_comment(answer: Mapping[str, str]) -> Solution:
    """Exercise 3: a command with an error and a comment: ``broken`` gives no reason, ``mended`` has no finding."""
    title = "a comment without its reason"
    if not all(answer.get(word, "").strip() for word in ("broken", "mended")):
        return Solution(title, problem="one is still empty")
    rules = {word: [one.rule for one in _findings(answer[word], RELEASE)] for word in ("broken", "mended")}
    same = _commands(answer["broken"]) == _commands(answer["mended"])
    needed = any(one.severity == "error" for one in check_commands(answer["mended"], RELEASE))
    told = {word: ", ".join(found) or "no finding" for word, found in rules.items()}
    why = "a comment that names no rule or no reason takes nothing away, and is a finding itself"
    return Solution(
        title,
        (
            ExerciseVerdict("broken", told["broken"], RULE, why, RULE in rules["broken"]),
            ExerciseVerdict("mended", told["mended"], "no finding", "name the rule, then say why", not rules["mended"]),
            ExerciseVerdict(
                "without the comment",
                "an error" if needed else "no error",
                "an error",
                f"there has to be something to ignore in {RELEASE}",
                needed,
            ),
            ExerciseVerdict("the command", "the same" if same else "another", "the same", "mend the comment", same),
        ),
    )


def _commands(text: str) -> list[list[str]]:
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


BUILD = "trtllm-build --checkpoint_dir ckpt --output_dir engine --max_batch_size 64 --enable_xqa enable"
REASON = "# playbook: ignore=flag-removed our own wheel still has it"
COMMENTED = {"broken": f"{BUILD}  # playbook: ignore=flag-removed", "mended": f"{REASON}\n{BUILD}"}
REPAIRED = (
    COLLEAGUE.replace("--max_output_len 1024 --enable_xqa enable", f"--max_seq_len {LONGEST}")
    .replace("mpirun -n 8", "mpirun -n 4")
)  # fmt: skip
STATUSES = {"a": 0, "b": 0, "c": 1, "d": 3, "e": 2}
EXERCISES = (
    Exercise(
        number="18-1",
        title="A colleague's script",
        kind="mend",
        minutes=10,
        check=check_script,
        solution=REPAIRED,
        also=(REPAIRED.replace(f"--max_seq_len {LONGEST}", "--max_seq_len 8192"),),
        wrong=(
            Wrong(" ", "the script is still empty"),
            Wrong(COLLEAGUE, "unrecognized arguments: --max_output_len"),
            Wrong(REPAIRED.replace("-n 4", "-n 8"), "8 ranks for an engine of 4"),
            Wrong(REPAIRED.replace(f" --max_seq_len {LONGEST}", ""), "yours no --max_seq_len"),
            Wrong(REPAIRED.replace("--kv_cache_dtype fp8", ""), "without --kv_cache_dtype fp8"),
            Wrong("\n".join(REPAIRED.splitlines()[:4]), "without run.py"),
        ),
    ),
    Exercise(
        number="18-2",
        title="Which exit status?",
        kind="predict",
        minutes=5,
        check=check_statuses,
        solution=STATUSES,
        wrong=(
            Wrong(dict.fromkeys(STATUSES), "command a has no status yet"),
            Wrong(STATUSES | {"a": 1}, "command a: yours 1, expected 0"),
            Wrong(STATUSES | {"c": 0}, "command c: yours 0, expected 1"),
            Wrong(STATUSES | {"d": 0}, "nothing that the checker knows"),
            Wrong(STATUSES | {"e": 1}, "command e: yours 1, expected 2"),
        ),
    ),
    Exercise(
        number="18-3",
        title="A comment without its reason",
        kind="break",
        minutes=5,
        check=check_comment,
        solution=COMMENTED,
        also=(COMMENTED | {"mended": f"{BUILD}  {REASON}"}, COMMENTED | {"broken": f"# playbook: ignore\n{BUILD}"}),
        wrong=(
            Wrong({"broken": "", "mended": ""}, "one is still empty"),
            Wrong(COMMENTED | {"broken": COMMENTED["mended"]}, "broken: yours no finding"),
            Wrong(COMMENTED | {"mended": COMMENTED["broken"]}, "name the rule, then say why"),
            Wrong(COMMENTED | {"mended": f"{REASON.replace('removed', 'moved')}\n{BUILD}"}, "flag-removed, expected"),
            Wrong(COMMENTED | {"mended": BUILD.removesuffix(" --enable_xqa enable")}, "something to ignore"),
        ),
        row="the finding is still there",
    ),
)
