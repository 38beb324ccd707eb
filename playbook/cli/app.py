"""The `playbook` command line. Exit status: 0 ok, 1 a chapter failed, 2 usage, 3 environment, 130 interrupted."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playbook.cli.commands import SHIPPED, commands_command
from playbook.cli.compare import compare_command
from playbook.cli.learner import WorkspaceOption, progress_command, reset_command
from playbook.cli.pages import book_command, build_command, check_page_command, slides_command
from playbook.cli.recorded import recorded_app
from serving_base.command_line import reporting, show_rows
from serving_base.errors import EnvironmentProblem, PlaybookError
from serving_planner.cli import plan_command
from trtllm_check.cli import check_command, explain_command

if TYPE_CHECKING:
    from playbook.course.runner import ChapterResult

CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".import_linter_cache", "build")
SIDE_BY_SIDE = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart=0")
"""Four workers on two cores: two leave a fifth of them idle while they wait for servers, kernels and other children,
three a fifteenth. A later ``-n 0`` takes it back. A worker that dies is not replaced: xdist 3.8 gives its files to the
new one as done, waits for them without end, and never says which test it was.
"""
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

ChapterNames = Annotated[list[str] | None, typer.Argument(help="Chapters, such as 02 05; all of them by default.")]
ProfileOption = Annotated[str, typer.Option(help=f"local, {SHIPPED}")]
ReleaseOption = Annotated[str, typer.Option(help="TensorRT-LLM release; the profile's by default.")]
Values = Annotated[list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="A parameter of the chapters.")]
Out = Annotated[Path | None, typer.Option(help="Folder of this run; a new one under runs/ by default.")]
Seconds = Annotated[int | None, typer.Option(min=1, help="Seconds; the default depends on the profile's lane.")]


@app.callback()
def main() -> None:
    """Llama-3 in FP8, step by step: run the course, record its outputs, test it."""


@app.command("run")
@reporting
def run_command(
    names: ChapterNames = None,
    profile: ProfileOption = "",
    release: ReleaseOption = "",
    workspace: WorkspaceOption = None,
    values: Values = None,
    out: Out = None,
    start: Annotated[str, typer.Option("--from", metavar="CHAPTER", help="Skip the chapters before this one.")] = "",
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Go on after a failed chapter.")] = False,
    cell_timeout: Seconds = None,
    chapter_timeout: Seconds = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Chapters at once; by default what lane and cores allow.")
    ] = None,
) -> None:
    """Run chapters, each after those that it needs; writes executed notebooks, results.json and report.html."""
    from playbook.cli.selection import choose, given_values, make_spec, output_folder
    from playbook.course.notebooks import project_root
    from playbook.course.progress import make_progress
    from playbook.course.report import RunFacts, write_facts, write_report
    from playbook.course.runner import new_results, new_run_folder, run

    chosen = choose(names or [], start)
    given = given_values(values or [], profile=profile, release=release, workspace=workspace)
    spec, active = make_spec(
        chosen,
        given,
        folder=output_folder(out) if out else project_root() / "runs",
        keep_going=keep_going,
        cell_timeout_s=cell_timeout,
        chapter_timeout_s=chapter_timeout,
        jobs=jobs,
    )
    if out is None:
        spec = replace(spec, folder=new_run_folder(spec.folder))
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    facts = RunFacts(
        started, active.name, active.lane, active.release, str(spec.workspace), given, active.model_dump(mode="json")
    )
    results = new_results(spec)
    write_facts(spec.folder, facts)
    try:
        run(spec, results, make_progress())
    finally:
        page = write_report(spec.folder, facts, results)
        typer.echo(f"report: {page}")
    for result in results:
        if result.skipped:
            typer.echo(skip_text(result))
    failed = [result for result in results if result.failure]
    for result in failed:
        typer.echo(failure_text(result), err=True)
    if failed:
        sys.exit(1)


@app.command("chapters")
@reporting
def chapters_command() -> None:
    """List the chapters of the course."""
    from playbook.course.notebooks import chapters

    for item in chapters():
        typer.echo(f"{item.number}  {item.title}")


@app.command("params")
@reporting
def params_command(name: Annotated[str, typer.Argument(metavar="CHAPTER", help="Such as 05.")]) -> None:
    """List a chapter's typed parameters."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from playbook.course.notebooks import chapter, parameters, read

    item = chapter(name)
    table = Table("parameter", "type", "default", "meaning", title=f"{item.number} {item.title}", box=None)
    for parameter in parameters(read(item.path)):
        table.add_row(parameter.name, escape(parameter.type), escape(repr(parameter.default)), escape(parameter.help))
    Console().print(table)


@app.command("record")
@reporting
def record_command(
    names: ChapterNames = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Run on the embedded lane, and write the outputs back into notebooks/.

    Without a workspace the chapters before those named run too, in a fresh one.
    """
    from playbook.chapter import RECORDED_FILE, recorded_time
    from playbook.cli.selection import choose, make_spec
    from playbook.course.notebook_checks import static_problems
    from playbook.course.notebooks import chapters, project_root, read
    from playbook.course.progress import make_progress
    from playbook.course.record import record, record_times
    from playbook.course.runner import new_results, run
    from serving_base.checks import usable_cores

    wanted = choose(names or [])
    to_run = wanted if workspace else [item for item in chapters() if item.number <= wanted[-1].number]
    with tempfile.TemporaryDirectory(prefix="playbook-record-") as folder:
        space = workspace or Path(folder, "workspace")
        spec, _ = make_spec(to_run, {"workspace": str(space)}, folder=Path(folder, "run"), jobs=1)
        spec.folder.mkdir()
        results = new_results(spec)
        run(spec, results, make_progress())
        problems = []
        done = {
            item.number: result.seconds for item, result in zip(to_run, results, strict=True) if result.status == "ok"
        }
        own = RECORDED_FILE.is_relative_to(project_root())  # another course's times are not this package's
        if own:
            record_times(spec.lane, done, cores=usable_cores(), day=date.today())
        for item, result in zip(to_run, results, strict=True):
            if result.failure:
                typer.echo(failure_text(result), err=True)
            elif result.skipped:
                typer.echo(skip_text(result))
            elif item in wanted and result.status == "ok":
                took = recorded_time(item.number, spec.lane) if own else ""
                record(item.path, spec.folder / result.notebook, workspace=spec.workspace, took=took)
                typer.echo(f"recorded {item.path.name}")
                problems += [f"{item.path.name}: {problem}" for problem in static_problems(read(item.path))]
    for problem in problems:
        typer.echo(problem, err=True)
    if problems or any(result.failure for result in results):
        sys.exit(1)


@app.command("lab", context_settings=PASS_ON)
@reporting
def lab_command(context: typer.Context) -> None:
    """Open JupyterLab on the course, without its news; further options go to JupyterLab."""
    from playbook.course.kernel_env import interactive_environment
    from playbook.course.notebooks import chapters, project_root

    root = project_root()
    first = chapters()[0].path.relative_to(root)
    argv = [sys.executable, "-m", "jupyterlab", f"--notebook-dir={root}", f"--LabApp.default_url=/lab/tree/{first}"]
    os.execve(sys.executable, [*argv, *context.args], os.environ | interactive_environment())


@app.command("test", context_settings=PASS_ON)
@reporting
def test_command(context: typer.Context) -> None:
    """Run everything that CI checks; further options go to pytest."""
    tools = Path(sys.executable).parent
    steps = [
        [sys.executable, "-m", "ruff", "check"],
        [sys.executable, "-m", "ruff", "format", "--check"],
        [str(tools / "lint-imports")],
        [sys.executable, "-m", "pytest", *SIDE_BY_SIDE, *context.args],
    ]
    types = [sys.executable, "-m", "mypy"]
    with ThreadPoolExecutor(1) as beside:
        typed = beside.submit(ended, types, capture_output=True, text=True)
        failed = [step for step in steps if not passes(step)]
        done = typed.result()
    typer.echo(f"$ {shlex.join(types)}\n{done.stdout or ''}{done.stderr or ''}", nl=False)
    failed += [types] if done.returncode else []
    for step in failed:
        typer.echo(f"failed: {shlex.join(step)}", err=True)
    if failed:
        sys.exit(1)
    typer.echo("all checks passed")


def passes(argv: Sequence[str]) -> bool:
    """Show a command, run it in the project's root, and say whether it succeeded."""
    typer.echo(f"$ {shlex.join(argv)}")
    return ended(argv).returncode == 0


def ended(argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
    """A command, run in the project's root."""
    from playbook.course.notebooks import project_root

    keeping_bytecode = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    try:
        return subprocess.run(argv, cwd=project_root(), check=False, env=keeping_bytecode, **options)
    except FileNotFoundError as error:
        raise EnvironmentProblem(
            f"{argv[0]} is not installed", why="the tests need the development tools", fix="run: make setup"
        ) from error


@app.command("docs")
@reporting
def docs_command() -> None:
    """Write the generated pages of docs/ again: claims.md, releases.md and the others."""
    from playbook.cli.docs import generated_pages
    from playbook.course.notebooks import project_root

    for name, text in generated_pages(app).items():
        page = project_root() / "docs" / name
        page.write_text(text())
        typer.echo(f"wrote docs/{name}")


@app.command("cost")
@reporting
def cost_command(
    endpoint_url: Annotated[str, typer.Option(help="A local cloud; empty: your real account.")] = "",
    region: Annotated[str, typer.Option(help="AWS region; empty: the configured one.")] = "",
    workspace: WorkspaceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List the SageMaker endpoints that bill now: all of the account in one region, and those of the local cloud."""
    from playbook import billing
    from playbook.cli.selection import workspace_folder

    addresses = [endpoint_url] if endpoint_url else ["", *billing.local_clouds(workspace_folder(str(workspace or "")))]
    found = [billing.look(address, region) for address in addresses]
    if as_json:
        typer.echo(json.dumps([account.to_json() for account in found]))
        return
    for account in found:
        typer.echo(f"{account.where}: {account.summary}")
        show_rows([item.row() for item in account.endpoints])


@app.command("clean")
@reporting
def clean_command(
    everything: Annotated[bool, typer.Option("--all", help="Also .venv and .envs; making them takes minutes.")] = False,
) -> None:
    """Remove workspace/, runs/ and caches of this checkout."""
    from playbook.course.notebooks import project_root

    root = project_root()
    folders = [root / name for name in ("workspace", "runs", *CACHES)]
    for source in ("playbook", "packages", "tests", "notebooks"):
        folders += [*(root / source).rglob("__pycache__"), *(root / source).rglob(".ipynb_checkpoints")]
    if everything:
        folders += [root / ".venv", root / ".envs"]
    for folder in folders:
        if folder.is_symlink():
            typer.echo(f"left alone: {folder} is a link")
        elif folder.is_dir():
            shutil.rmtree(folder)
            if folder.parent == root:
                typer.echo(f"removed {folder.relative_to(root)}/")


app.command("compare")(compare_command)
app.command("progress")(progress_command)
app.command("book")(book_command)
app.command("slides")(slides_command)
app.command("build")(build_command)
app.command("reset")(reset_command)
app.add_typer(recorded_app, name="recorded")
app.command("commands")(reporting(commands_command))
app.command("check")(reporting(check_command))
app.command("check-page")(check_page_command)
app.command("plan")(reporting(plan_command))
app.command("explain", context_settings={"ignore_unknown_options": True})(reporting(explain_command))


def failure_text(result: "ChapterResult") -> str:
    """A failed chapter as what, why and fix."""
    failure = result.failure
    assert failure is not None
    where = f" in code cell {failure.cell}" if failure.cell else ""
    what = f"{result.chapter} failed{where} ({failure.kind}): {failure.what}"
    return str(PlaybookError(what, why=failure.why, fix=failure.fix))


def skip_text(result: "ChapterResult") -> str:
    """A chapter that ended early on purpose: what was not done, why, and what would run it."""
    end = result.skipped
    assert end is not None
    lines = [f"{result.chapter} skipped: {end.what}"]
    lines += [f"  why: {end.why}"] if end.why else []
    return "\n".join([*lines, f"  to run it: {end.fix}"])
