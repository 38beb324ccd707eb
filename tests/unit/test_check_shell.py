"""Bash by its grammar: what is known of a variable on each way through a script, and what stays unknown."""

from typing import Any

import pytest

from trtllm_check.lint import check_commands
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.shell import grammar, read_commands
from trtllm_check.lint.shell.grammar import source_of, units


def last(text: str) -> list[str]:
    """The words of the last command."""
    return [word.text for word in read_commands(text)[-1].words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TP=4\nPP=2\nx $((TP * PP)) $((TP+1)) $(( (TP - 2) / 2 )) $((-TP)) $((TP % 3))", ["8", "5", "1", "-4", "1"]),
        ("x $((TP * 2)) $((1 / 0)) $((2 ** 3))", ["$((TP * 2))", "$((1 / 0))", "$((2 ** 3))"]),
        ("x ${A:-1} ${B:=2} $B ${C-3}", ["1", "2", "2", "3"]),
        ("A=/m/a.b.c\nx ${A##*/} ${A%.c} ${A%%.*} ${A#/} ${A/m/n}", ["a.b.c", "/m/a.b", "/m/a", "m/a.b.c", "${A}"]),
        ("A=/m/b\nx $(basename $A) $(dirname \"$A\")/y `basename $A m` $(basename a.x .x)", ["b", "/m/y", "b", "a"]),
        ("x $(nproc) \"$(ls -d a b)\" `nproc`", ["$(nproc)", "$(ls -d a b)", "`nproc`"]),
        ("A=$(ls -d /m/*)\nx $A/y", ["${A}/y"]),
        ("A=1\nA+=2\nx $A", ["12"]),
        ("A=1\nunset A\nx $A", ["${A}"]),
        ("read A\nx $A", ["${A}"]),
        ("A=1\nread A\nx $A", ["${A}"]),
        ("if [ $1 = a ]; then T=4; else T=8; fi\nx $T", ["${T}"]),
        ("if [ $1 = a ]; then T=4; else T=4; fi\nx $T", ["4"]),
        ("T=4\nif [ $1 = a ]; then T=8; fi\nx $T", ["${T}"]),
        ("if [ -z \"$T\" ]; then T=8; fi\nx $T", ["8"]),
        ("T=4\n[ -n \"$1\" ] && T=8\nx $T", ["${T}"]),
        ("[ -z \"$T\" ] && T=8\nx $T", ["8"]),
        ("cd a && T=8\nx $T", ["8"]),
        ("case $1 in a) T=1;; b) T=2;; esac\nx $T", ["${T}"]),
        ("for t in 1 2; do x $t; done", ["${t}"]),
        ("for t in 8; do x $t; done", ["8"]),
        ("for t in 8; do :; done\nx $t", ["${t}"]),
        ("i=1\nwhile true; do i=$((i+1)); done\nx $i", ["${i}"]),
        ("T=1\n(T=2; y)\nx $T", ["1"]),
        ("T=1\nf() { T=2; }\nx $T", ["1"]),
        ("f() { T=2; }\nf\nx $T", ["2"]),
        ("A=1\nf() { B=2; }\nA=3\nf\nx $A $B", ["3", "2"]),
        ("f() { local T=2; }\nf\nx $T", ["${T}"]),
        ("f() { local m=$1; x --a $m $2; }\nf a b", ["--a", "a", "b"]),
        ("f() { shift; x \"$@\" ${3:-d}; }\nf a b c", ["b", "c", "d"]),
        ("f() { x $1; f $1; }\nf a", ["a"]),
        ("T=1 y\nx $T", ["${T}"]),
        ("x $'a b' $\"c $0\" \"a\\\"b\\$c\\d\"", ["a b", "c ${0}", "a\"b$c\\d"]),
        ("x {a,b} [1] a=b c\\;d", ["{a,b}", "[1]", "a=b", "c;d"]),
        ("cat <<A > f | x y\n$(z\nA", ["y"]),
        ("x <(sort a) b", ["<(sort a)", "b"]),
    ],
)  # fmt: skip
def test_what_is_known_of_a_variable(text: str, expected: list[str]) -> None:
    words = last(text)
    assert words[1:] == expected


def test_a_here_document_holds_anything() -> None:
    text = "cat > f <<'E' 2>&1 | tee log\n\"unclosed ( $(x\ncase for\nE\ny z\ncat <<-F <<G\n\ta\n\tF\nb\nG\n"
    cat, tee, y, two = read_commands(text)
    assert [redirect.target.text for redirect in cat.redirects if redirect.operator == "<<"] == [
        '"unclosed ( $(x\ncase for\n'
    ]
    assert [[word.text for word in one.words] for one in (tee, y)] == [["tee", "log"], ["y", "z"]]
    assert [redirect.target.text for redirect in two.redirects] == ["\ta\n", "b\n"]
    (body,) = [redirect.target for redirect in cat.redirects if redirect.operator == "<<"]
    assert body.places[0] == (2, 1)


@pytest.mark.parametrize(
    "broken",
    ["foo (bar) baz", "done", "x $(y", "if true", "a | | b", "} else {", "x `y", ")"],
)
def test_a_line_that_bash_refuses_costs_no_other(broken: str) -> None:
    text = f"a 1\n{broken}\nfor i in 1; do\n  trtllm-build --x \\\n    --y '2\n3'\ndone\nz\n"
    found = [[word.text for word in one.words] for one in read_commands(text)]
    assert found[0] == ["a", "1"] and found[-1] == ["z"]
    assert ["trtllm-build", "--x", "--y", "2\n3"] in found


def test_no_unit_has_an_error_in_it() -> None:
    text = "don't\nx (y\nfor a in\nif\n'\n\"\n$(\n`\n<<A\ncase x in\n" * 20
    for unit in units(source_of(text, text).text):
        assert not any(node.has_error for node in unit.statements)


@pytest.mark.parametrize(
    "head",
    [
        'if [ "$1" = 8 ]; then N=8; else N=4; fi',
        "N=$1",
        "N=$(nvidia-smi -L | wc -l)",
        "case $1 in a) N=8;; *) N=4;; esac",
    ],
)
def test_no_error_rests_on_an_unknown_value(head: str) -> None:
    text = f"{head}\ntrtllm-build --checkpoint_dir c --output_dir e --workers $N --gemm_plugin $N\n"
    assert [one for one in check_commands(read_document(text), "0.12.0") if one.severity == "error"] == []
    wrong = "N=bf\ntrtllm-build --checkpoint_dir c --output_dir e --gemm_plugin $N\n"
    assert [one.rule for one in check_commands(read_document(wrong), "0.12.0") if one.severity == "error"] == [
        "bad-value"
    ]


@pytest.mark.parametrize(
    "line", ["if foo; then", "for x in y", "case x", "x=(", "echo 'a b", "a &&", "don't do ( this"]
)
def test_a_text_of_openings_is_parsed_about_once(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each character is handed to the parser a few times, however many lines have lost their end."""
    handed: list[int] = []
    parsed = grammar._parsed

    def counted(text: str) -> Any:
        handed.append(len(text))
        return parsed(text)

    monkeypatch.setattr(grammar, "_parsed", counted)
    text = "".join(f"{line} {number}\n" for number in range(3_000))
    assert sum(1 for _ in grammar.units(text)) <= 3_000
    assert sum(handed) < (grammar.MOST_GROWTH + 6) * len(text)


def test_a_loop_is_read_behind_openings_without_an_end() -> None:
    lost = "if lost; then\n" * 40
    loop = "for one in a b; do\n" + "  echo one\n" * 20 + "  trtllm-build --gemm_plugin auto\ndone\n"
    assert [one.words[0].text for one in read_commands(lost + loop)][-1] == "trtllm-build"
