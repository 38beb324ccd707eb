"""Stand-in for Nsight Systems in a container: takes nsys's options, and writes reports, exports and sums as nsys does.

A report (.nsys-rep) is opaque; here it holds the launches that an export and a sum are made from. Names of kernels
are real ones (tests/fixtures/kernel_names.yml); their number follows the engine's layers, their times are made up.
Only a window of iterations that the run reaches gives a report; without mpirun's variable there is one rank.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from stand_ins import Machine

VERSION = "NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0"
RANK = "%q{OMPI_COMM_WORLD_RANK}"
LM_HEAD = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
GEMM = {
    "fp8": "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "bf16": LM_HEAD,
}
FMHA = "fmha_v2_flash_attention_{}_64_128_S_q_paged_kv_128_causal_tma_ws_sm90_kernel"
XQA = "kernel_mha"
NORM = "void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, __nv_fp8_e4m3, false>"
ALL_REDUCE = (
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8>(tensorrt_llm::kernels::AllReduceParams)"
)
ROPE = "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16, __nv_bfloat16, 256, 128, false>"
ACTIVATION = "__myl_SiluMul_myl0_4"
Launch = tuple[str, int, int]
"""Name, start and end in nanoseconds."""


def parser() -> argparse.ArgumentParser:
    """Options of nsys 2024.5 that the recipe uses, with the values that each takes."""
    top = argparse.ArgumentParser(prog="nsys", allow_abbrev=False)
    top.add_argument("--version", action="version", version=VERSION)
    commands = top.add_subparsers(dest="command", required=True)
    profile = commands.add_parser("profile", allow_abbrev=False)
    profile.add_argument("-t", "--trace", type=known("cuda", "nvtx", "osrt", "cublas", "cudnn", "mpi", "none"))
    profile.add_argument("-s", "--sample", choices=["process-tree", "system-wide", "cpu", "none"])
    profile.add_argument("--cuda-graph-trace", choices=["graph", "node"], default="graph")
    profile.add_argument("-c", "--capture-range", choices=["none", "cudaProfilerApi", "nvtx", "hotkey"])
    profile.add_argument("--capture-range-end", choices=["none", "stop", "stop-shutdown", "repeat", "repeat-shutdown"])
    profile.add_argument("-f", "--force-overwrite", choices=["true", "false"], default="false")
    profile.add_argument("-o", "--output", required=True)
    profile.add_argument("application", nargs=argparse.REMAINDER)
    stats = commands.add_parser("stats", allow_abbrev=False)
    stats.add_argument("-r", "--report", choices=["cuda_gpu_kern_sum"])
    stats.add_argument("-f", "--format", choices=["csv"])
    stats.add_argument("-o", "--output", required=True)
    stats.add_argument("input", type=Path)
    export = commands.add_parser("export", allow_abbrev=False)
    export.add_argument("-t", "--type", choices=["sqlite"])
    export.add_argument("-f", "--force-overwrite", choices=["true", "false"], default="false")
    export.add_argument("-o", "--output", type=Path, required=True)
    export.add_argument("input", type=Path)
    return top


def known(*names: str):  # type: ignore[no-untyped-def]
    def check(text: str) -> list[str]:
        if wrong := set(text.split(",")) - set(names):
            raise argparse.ArgumentTypeError(f"illegal trace {wrong}")
        return text.split(",")

    return check


def nsys(machine: Machine, words: list[str]) -> int:
    machine.note("nsys", words)
    given = parser().parse_args(words)
    return {"profile": profile, "stats": stats, "export": export}[given.command](given)


def profile(given: argparse.Namespace) -> int:
    """Run the application; then one report per rank, if the window of iterations was reached."""
    status = subprocess.call(given.application)
    window = os.environ.get("TLLM_PROFILE_START_STOP", os.environ.get("TLLM_GPTM_PROFILE_START_STOP", ""))
    if status or not window or given.capture_range != "cudaProfilerApi" or "cuda" not in given.trace:
        return status
    first, _, last = window.partition("-")
    if int(last or first) >= int(option(given.application, "--max_output_len")):
        return status  # the run ended before
    engine = json.loads((Path(option(given.application, "--engine_dir")) / "config.json").read_text(encoding="utf-8"))
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    for rank in range(ranks) if RANK in given.output else (0,):
        report = Path(f"{given.output.replace(RANK, str(rank))}.nsys-rep")
        if report.exists() and given.force_overwrite == "false":
            print(f"Failed to create '{report}': File exists.")
            return 1
        steps = range(int(first), int(last or first) + 1)
        rows = list(launches(engine, steps, rank, ranks, given.cuda_graph_trace))
        report.write_text(json.dumps({"device": rank, "launches": rows}), encoding="utf-8")
        print(f"Generated:\n    {report}")
    return 0


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def launches(engine: dict, steps: range, rank: int, ranks: int, graphs: str) -> Iterator[Launch]:  # type: ignore[type-arg]
    """Every kernel of ``steps``; rank 0 waits long in the first all-reduce. A graph that is not opened is no kernel."""
    if graphs == "graph" and 0 not in steps:
        return
    config, plugins = engine["pretrained_config"], engine.get("build_config", {}).get("plugin_config", {})
    fmha = FMHA.format("e4m3" if plugins.get("use_fp8_context_fmha") in (True, "enable") else "bf16")
    gemm = GEMM["fp8" if config["quantization"]["quant_algo"] == "FP8" else "bf16"]
    at, waited = 0, False
    for step in steps:
        attention = XQA if step else fmha
        scale = 1 if step else 20
        layer = [(NORM, 4), (gemm, 20), (ROPE, 3), (attention, 15), (gemm, 15)]
        layer += [(NORM, 4), (gemm, 40), (ACTIVATION, 4), (gemm, 25)]
        reduce = [(ALL_REDUCE, 9)] if ranks > 1 else []
        names = [*layer[:5], *reduce, *layer[5:], *reduce] * config["num_hidden_layers"]
        for name, us in [*names, (LM_HEAD, 200), ("void tensorrt_llm::kernels::topKStage1<float, 256, 8>", 9)]:
            wait = 500 if name == ALL_REDUCE and not waited and rank == 0 else 0
            waited |= name == ALL_REDUCE
            yield name, at, at + 1000 * (us * scale + wait)
            at += 1000 * (us * scale + wait) + 500


def stats(given: argparse.Namespace) -> int:
    """The kernel sum as CSV, and beside the report its export, which is used again if it is there."""
    if not given.input.is_file():
        print(f"ERROR: {given.input} does not exist.", file=sys.stderr)
        return 1
    database = given.input.with_suffix(".sqlite")
    if not database.exists():
        print(f"Generating SQLite file {database} from {given.input}")
        write_sqlite(given.input, database)
    print(f"Processing [{database}] with [/opt/nvidia/nsight-systems-cli/2024.5.1/reports/cuda_gpu_kern_sum.py]...")
    query = """SELECT sum(end - start), count(*), avg(end - start), min(end - start), max(end - start), value
        FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName GROUP BY value ORDER BY 1 DESC"""
    with closing(sqlite3.connect(database)) as file:
        rows = file.execute(query).fetchall()
    total = sum(row[0] for row in rows)
    titles = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    lines = [
        f'{100 * ns / total:.1f},{ns},{count},{mean:.1f},{mean:.1f},{least},{most},0.0,"{name}"'
        for ns, count, mean, least, most, name in rows
    ]
    Path(f"{given.output}_cuda_gpu_kern_sum.csv").write_text("\n".join([titles, *lines]) + "\n", encoding="utf-8")
    return 0


def export(given: argparse.Namespace) -> int:
    if given.output.exists() and given.force_overwrite == "false":
        print(f"{given.output} already exists. Use --force-overwrite true.", file=sys.stderr)
        return 1
    given.output.unlink(missing_ok=True)
    write_sqlite(given.input, given.output)
    return 0


def write_sqlite(report: Path, path: Path) -> None:
    """The tables of an export that hold kernels and their names."""
    recorded = json.loads(report.read_text(encoding="utf-8"))
    names = sorted({name for name, _, _ in recorded["launches"]})
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
        columns = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, demangledName INTEGER"
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns}, shortName INTEGER)")
        rows = [
            (start, end, recorded["device"], 7, names.index(name), names.index(name))
            for name, start, end in recorded["launches"]
        ]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
