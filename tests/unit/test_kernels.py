"""Kernel names get their class, profilers' files are read, and the shipped H200 steps add up as their report says."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from each import each
from gpu_measurements import hopper, kernels
from gpu_measurements.hopper import link_us, measured_all_reduces, measured_attention, plain_floor_us
from gpu_measurements.sources import NO_MATCH, PATTERNS_PATH, Patterns, classify, patterns, read_capture
from playbook.articles import table
from serving_base.errors import UsageError

NAMES = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "kernel_names.yml").read_text(encoding="utf-8"))
CAPTURES = sorted(kernels.hopper_captures())

# Microseconds of a step, rank 0, as the report of the measurement has them (wait for the other rank left out).
PUBLISHED = {
    ("8b-bf16", "prefill4096"): {"total": 91484, "gemm": 75832, "lm_head": 248, "attention": 8584, "kv_write": 853},
    ("8b-fp8", "prefill4096"): {"total": 55378, "gemm": 39126, "lm_head": 248, "attention": 8148, "kv_write": 824},
    ("8b-fp8kv", "prefill4096"): {"total": 57651, "gemm": 39282, "lm_head": 249, "attention": 9299, "kv_write": 1536},
    ("8b-bf16", "decode32"): {"total": 6089, "gemm": 3885, "lm_head": 268, "attention": 1544, "kv_write": 73},
    ("8b-fp8", "decode32"): {"total": 4941, "gemm": 2688, "lm_head": 266, "attention": 1523, "kv_write": 73},
    ("8b-fp8kv", "decode32"): {"total": 4844, "gemm": 2682, "lm_head": 268, "attention": 1348, "kv_write": 131},
    ("8b-bf16", "decode1"): {"total": 4731, "gemm": 3732, "lm_head": 247, "attention": 415, "kv_write": 65},
    ("8b-fp8", "decode1"): {"total": 3117, "gemm": 2063, "lm_head": 244, "attention": 402, "kv_write": 69},
    ("70b-tp2-bf16", "prefill4096"): {"total": 481350, "gemm": 393256, "all_reduce": 41529, "attention": 23389},
    ("70b-tp2-fp8", "prefill4096"): {"total": 307006, "gemm": 211219, "all_reduce": 42280, "attention": 24524},
    ("70b-tp2-fp8kv", "prefill4096"): {"total": 312458, "gemm": 211160, "all_reduce": 42302, "attention": 27714},
    ("70b-tp2-bf16", "decode32"): {"total": 23424, "gemm": 18166, "all_reduce": 1535, "attention": 2408, "other": 129},
    ("70b-tp2-fp8", "decode32"): {"total": 17145, "gemm": 11631, "all_reduce": 1535, "attention": 2346, "other": 131},
    ("70b-tp2-fp8kv", "decode32"): {"total": 16829, "gemm": 11459, "all_reduce": 1535, "attention": 2056, "other": 129},
    ("70b-tp2-fp8-customar", "decode32"): {"total": 16561, "gemm": 11673, "all_reduce": 939, "attention": 2331},
}
FUSED_WITH_NORM = {
    ("70b-tp2-bf16", "decode32"): 742,
    ("70b-tp2-fp8", "decode32"): 1058,
    ("8b-fp8", "prefill4096"): 6918,
}


@each("entry", NAMES)
def test_a_real_name_gets_its_class_precision_and_fusion(entry: dict[str, str]) -> None:
    assert "seen" in entry or "symbol" in entry
    found = classify(entry["name"])
    wanted = (entry["class"], entry["precision"], entry.get("of", "operands"), entry.get("fused", ""))
    assert (found.kernel_class, found.precision, found.precision_of, found.fused) == wanted


ARTICLE = {  # row: what its FP8 column and its BF16 column say by their names alone
    "gemm": ("gemm", "both", "operands", "nothing"),
    "mmha": ("decode_attention", "decode", "KV cache", "nothing"),
    "fmha": ("context_attention", "prefill", "nothing", "nothing"),
    "fmha compiled": ("context_attention", "prefill", "operands", None),
}


@pytest.mark.parametrize(("row", "wanted"), list(zip(table("aws-kernels").records(), ARTICLE.items(), strict=True)))
def test_every_name_of_the_article_s_table_is_read(
    row: dict[str, str], wanted: tuple[str, tuple[str | None, ...]]
) -> None:
    label, (kernel_class, phase, *in_fp8) = wanted
    assert row["OP/Kernel"].startswith(label)
    for column, expected in zip(("TensorRT FP8", "TensorRT BF16"), in_fp8, strict=True):
        if expected is None:
            assert row[column] == "/"
            continue
        assert row[column] in {entry["name"] for entry in NAMES}
        found = kernels.reading(row[column])
        assert (found["class"], found["phase"], found["in FP8"]) == (kernel_class, phase, expected)


def test_a_name_that_tells_no_type_says_so() -> None:
    assert kernels.reading("kernel_mha") == {
        "class": "decode_attention",
        "phase": "decode",
        "precision": "the name does not tell",
        "in FP8": "?",
    }


def test_the_list_of_names_is_long_and_covers_the_classes() -> None:
    assert len(NAMES) >= 60 and len({entry["name"] for entry in NAMES}) == len(NAMES)
    decided_by_context = {"lm_head"}
    assert {entry["class"] for entry in NAMES} == set(patterns().classes) - decided_by_context


def test_every_pattern_has_evidence_and_decides_a_name() -> None:
    """A pattern that an earlier one shadows would never decide anything."""
    assert all(pattern.evidence for pattern in (*patterns().cuda, *patterns().openvino))
    decided = {classify(entry["name"]) for entry in NAMES}
    assert [pattern.regex.pattern for pattern in patterns().cuda if pattern not in decided] == []


def test_order_matters() -> None:
    """Read backwards, the list loses precisions and fusions, and takes a fused all-reduce for a norm."""
    wrong = []
    for entry in NAMES:
        match = next((pattern for pattern in patterns().cuda[::-1] if pattern.regex.search(entry["name"])), NO_MATCH)
        if (match.kernel_class, match.precision) != (entry["class"], entry["precision"]):
            wrong.append(entry["name"])
    assert "userbuffers_fp16_sum_inplace_gpu_mc_rmsnorm_quant" in wrong and len(wrong) >= 10


def test_patterns_refuse_a_class_that_is_not_declared() -> None:
    raw = yaml.safe_load(PATTERNS_PATH.read_text(encoding="utf-8"))
    raw["cuda"][0]["class"] = "allreduce"
    with pytest.raises(ValueError, match="not declared: allreduce"):
        Patterns.model_validate(raw)


def test_unknown_flow_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown flow"):
        classify("x", "rocm")


# --- the shipped captures


@pytest.mark.parametrize(("run", "step", "rank"), CAPTURES)
def test_at_least_99_percent_of_every_shipped_capture_is_classified(run: str, step: str, rank: int) -> None:
    table = kernels.kernel_table(kernels.hopper_capture(run, step, rank=rank))
    assert kernels.unclassified_share(table) < 0.01
    assert table["share"].sum() == pytest.approx(1)
    assert (table["class"] == "lm_head").sum() == 1


def test_the_shipped_kernel_sum_is_classified_to_98_percent_and_says_what_is_missing() -> None:
    table = kernels.kernel_table(kernels.hopper_kernel_sum())
    assert 0 < kernels.unclassified_share(table) < 0.02
    assert set(table.loc[table["class"] == "unclassified", "kernel"]) == {"triton_poi_fused_4", "triton_poi_fused_1"}


@pytest.mark.parametrize(("run", "step"), PUBLISHED)
def test_steps_add_up_to_the_published_figures(run: str, step: str) -> None:
    table = kernels.hopper_table(run, step)
    totals = kernels.by_group(table)["us_per_step"]
    for group, us in PUBLISHED[run, step].items():
        assert (table["total_us"].sum() if group == "total" else totals[group]) == pytest.approx(us, abs=0.6)
    if (run, step) in FUSED_WITH_NORM:
        assert totals["elementwise"] + totals.get("quantize", 0) == pytest.approx(FUSED_WITH_NORM[run, step], abs=0.6)


def test_tables_name_their_source_and_origin() -> None:
    table = kernels.hopper_table("70b-tp2-fp8", "decode32")
    assert list(table.columns) == [
        *("step", "phase", "kernel", "class", "precision", "precision_from", "fused", "calls", "total_us"),
        *("us_per_step", "share", "source", "origin"),
    ]
    assert set(table["origin"]) == {"measured on 2 x NVIDIA H200, 2026-11-20, vLLM 0.26.0, random weights"}
    assert set(table["phase"]) == {"decode"} and set(table["step"]) == {"70b-tp2-fp8 decode32"}


def test_an_unshipped_capture_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        kernels.hopper_capture("405b-fp8", "decode32")
    assert "8b-bf16 decode1" in caught.value.fix


# --- context


def events(*rows: tuple[str, float, float], stream: int = 7) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["kernel", "start_us", "duration_us"])
    return frame.assign(stream=stream, device=0)


KV_WRITE = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>"
NVJET = "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT"


def classes(table: pd.DataFrame) -> dict[str, str]:
    return dict(zip(table["kernel"], table["class"], strict=True))


def test_a_nameless_kernel_is_the_rotary_embedding_only_before_a_kv_write() -> None:
    before = events((NVJET, 0, 9), ("triton_poi_fused_4", 10, 1), (KV_WRITE, 12, 1))
    after = events((NVJET, 0, 9), (KV_WRITE, 10, 1), ("triton_poi_fused_4", 12, 1))
    assert classes(kernels.kernel_table(before))["triton_poi_fused_4"] == "rope"
    assert classes(kernels.kernel_table(after))["triton_poi_fused_4"] == "unclassified"


def test_the_follower_is_on_the_same_stream() -> None:
    one, other = events(("triton_poi_fused_4", 0, 1)), events((KV_WRITE, 2, 1), stream=8)
    table = kernels.kernel_table(pd.concat([one, other], ignore_index=True))
    assert classes(table)["triton_poi_fused_4"] == "unclassified"


def test_flash_attention_takes_its_phase_from_the_step() -> None:
    frame = events(("void flash::flash_fwd_kernel<128>", 0, 5))
    found = [kernels.kernel_table(frame, phase=phase)["class"][0] for phase in ("prefill", "decode", "")]
    assert found == ["context_attention", "decode_attention", "attention"]
    with pytest.raises(UsageError, match="unknown phase"):
        kernels.kernel_table(frame, phase="generation")  # type: ignore[arg-type]


def test_lm_head_is_the_gemm_that_runs_once_a_step() -> None:
    rows = [
        ("layer_nvjet_sm90_tst_64x8", 4, 40.0),
        ("head_nvjet_sm90_tst_512x8", 2, 9.0),
        ("nvjet_sm90_qqtst_8", 2, 3.0),
    ]
    frame = pd.DataFrame(rows, columns=["kernel", "calls", "total_us"])
    table = kernels.kernel_table(frame, steps=2).set_index("kernel")
    assert table["class"].to_dict() == {
        "layer_nvjet_sm90_tst_64x8": "gemm",
        "head_nvjet_sm90_tst_512x8": "lm_head",
        "nvjet_sm90_qqtst_8": "gemm",  # FP8: quantization leaves lm_head alone
    }
    assert table["us_per_step"].sum() == 26
    lonely = kernels.kernel_table(frame.head(1).assign(calls=2), steps=2)
    assert list(lonely["class"]) == ["gemm"]  # a benchmark of one GEMM has no layers


def test_precision_says_how_it_is_known() -> None:
    frame = events((NVJET, 0, 1), ("void cublasLt::splitKreduce_kernel<32>", 2, 1), (NVJET, 4, 1))
    known = kernels.kernel_table(frame, gemm_precision="fp8").set_index("kernel")
    assert known[["precision", "precision_from"]].to_numpy().tolist() == [["bf16", "name"], ["fp8", "context"]]
    unknown = kernels.kernel_table(frame).set_index("kernel")
    assert unknown[["precision", "precision_from"]].to_numpy().tolist() == [["bf16", "name"], ["unknown", ""]]


def test_steps_below_one_are_refused() -> None:
    with pytest.raises(UsageError, match="steps is 0"):
        kernels.kernel_table(events((NVJET, 0, 1)), steps=0)


# --- time


def test_busy_time_is_the_union() -> None:
    frame = events(("a", 0, 10), ("b", 2, 3), ("c", 8, 4), ("d", 20, 1))
    assert kernels.busy_us(frame) == 13
    assert frame["duration_us"].sum() == 18
    with pytest.raises(UsageError, match="no intervals"):
        kernels.busy_us(pd.DataFrame({"kernel": ["a"], "calls": [1], "total_us": [1.0]}))


def test_the_wait_is_cut_call_by_call() -> None:
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    own = events((nccl, 0, 100), ("a", 100, 5), (nccl, 110, 10))
    peer = events((nccl, 90, 9), ("a", 100, 5), (nccl, 108, 12))
    cut = kernels.shorter_all_reduces(own, peer)
    assert cut["duration_us"].tolist() == [9, 5, 10]
    assert own["duration_us"].tolist() == [100, 5, 10]  # left as it was
    with pytest.raises(UsageError, match="2 all-reduces and the other 1"):
        kernels.shorter_all_reduces(own, peer.head(2))


def test_comparison_has_ratios_only_where_both_sides_ran() -> None:
    sums = pd.DataFrame({"kernel": [NVJET, "scaleMatrix<"], "calls": [9, 9], "total_us": [10.0, 2.0]})
    tables = {"BF16": kernels.kernel_table(sums.head(1).assign(total_us=20.0)), "FP8": kernels.kernel_table(sums)}
    table = kernels.compare(tables)
    assert table.loc["layer GEMMs", "BF16/FP8"] == 2
    assert table["BF16/FP8"].isna()["quantize"]
    assert table.loc["total"].to_dict() == {
        "BF16 us": 20,
        "FP8 us": 12,
        "BF16 share": 1,
        "FP8 share": 1,
        "BF16/FP8": pytest.approx(20 / 12),
    }
    assert table.loc["unclassified", "FP8 us"] == 0  # always there
    text = kernels.readable(table)
    assert list(text.loc["quantize"]) == ["0", "2", "0.0%", "16.7%", ""]


# --- files

KERN_SUM = """Generating SQLite file trace.sqlite from trace.nsys-rep
Processing [trace.sqlite] with [/opt/nvidia/nsight-systems/2024.4.2/reports/cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

"Time (%)","Total Time (ns)","Instances","Avg (ns)","Med (ns)","Min (ns)","Max (ns)","StdDev (ns)","Name"
60.0,6000000,100,60000.0,60000.0,50000,70000,1000.0,"nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT"
40.0,4000000,50,80000.0,80000.0,50000,90000,1000.0,"void foo<(int)21, 72>(char const*, int)"

Processing [trace.sqlite] with [cuda_gpu_mem_time_sum.py]...
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,999,1,999,999,999,999,0,[CUDA memcpy Host-to-Device]
"""
EXPECTED = {
    "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT": (100, 6000.0),
    "void foo<(int)21, 72>(char const*, int)": (50, 4000.0),
}


def written(tmp_path: Path, text: str, name: str = "report.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def sums(frame: pd.DataFrame) -> dict[str, tuple[int, Any]]:
    columns = zip(frame["kernel"], frame["calls"], frame["total_us"], strict=True)
    return {kernel: (calls, pytest.approx(total_us)) for kernel, calls, total_us in columns}


def test_a_kernel_sum_is_read_past_its_preamble_and_before_the_next_report(tmp_path: Path) -> None:
    assert sums(read_capture(written(tmp_path, KERN_SUM))) == EXPECTED


@pytest.mark.parametrize(
    ("header", "first"),
    [
        ('"Time (%)","Total Time (us)","Instances","Avg (us)","Name"', "60.0,6000,100,60,"),
        ('"Time (%)","Total Time (ms)","Instances","Avg (ms)","Name"', "60.0,6.0,100,0.06,"),
        ('"Time (%)","Total Time (s)","Instances","Avg (s)","Name"', "60.0,0.006,100,0.00006,"),
        ("Time(%),Total Time (ns),Instances,Average,Name", "60.0,6000000,100,60000,"),  # gpukernsum
        ("Time(%),Total Time,Instances,Average,Name", '60.0,"6,000,000",100,60000,'),
        ('"NVTX Range","Kern Inst","Total Time (ns)","Avg (ns)","Kernel Name"', "decode,100,6000000,60000,"),
        ('"Time (%)","Total Time (ns)","Instances","Category","Operation"', "60.0,6000000,100,CUDA_KERNEL,"),
    ],
)
def test_report_and_unit_variants(tmp_path: Path, header: str, first: str) -> None:
    frame = read_capture(written(tmp_path, f'{header}\n{first}"{NVJET}"\n'))
    assert sums(frame) == {NVJET: (100, 6000.0)}


def test_a_kernel_in_several_rows_is_summed(tmp_path: Path) -> None:
    header = '"NVTX Range","Kern Inst","Total Time (ns)","Kernel Name"'
    frame = read_capture(written(tmp_path, f'{header}\nprefill,1,1000,"k"\ndecode,2,3000,"k"\n'))
    assert sums(frame) == {"k": (3, 4.0)}


def test_cuda_gpu_trace_gives_events(tmp_path: Path) -> None:
    text = f'Start (ns),Duration (ns),CorrId,Device,Strm,Name\n3000,2000,1,NVIDIA H100 (0),7,"{NVJET}"\n'
    frame = read_capture(written(tmp_path, text))
    assert frame.iloc[0].to_dict() == {
        "kernel": NVJET,
        "start_us": 3,
        "duration_us": 2,
        "stream": 7,
        "device": "NVIDIA H100 (0)",
    }


@pytest.mark.parametrize("text", ["", "hello\n", "Name,Size\nx,1\n"])
def test_a_csv_without_a_kernel_report_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="no header of a kernel report") as caught:
        read_capture(written(tmp_path, text))
    assert "cuda_gpu_kern_sum" in caught.value.fix


def sqlite_file(tmp_path: Path, *, kernels_table: bool = True, devices: tuple[int, ...] = (0,)) -> Path:
    path = tmp_path / "trace.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, NVJET), (2, "kernel_mha")])
        if kernels_table:
            columns = "start, end, deviceId, streamId, demangledName, shortName"
            database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
            for device in devices:
                rows = [(9000, 12000, device, 7, 2, 2), (1000, 5000, device, 7, 1, 1)]
                database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
            database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, streamId, copyKind)")
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (5000, 6000, {devices[0]}, 7, 1)")
    return path


def test_an_sqlite_export_gives_events_in_order_with_their_names(tmp_path: Path) -> None:
    frame = read_capture(sqlite_file(tmp_path))
    assert frame[["kernel", "start_us", "duration_us"]].to_numpy().tolist() == [
        [NVJET, 1, 4],
        ["Memcpy", 5, 1],
        ["kernel_mha", 9, 3],
    ]
    assert set(kernels.kernel_table(frame)["class"]) == {"gemm", "copy", "decode_attention"}


def test_an_sqlite_export_of_several_devices_asks_for_one(tmp_path: Path) -> None:
    path = sqlite_file(tmp_path, devices=(0, 1))
    with pytest.raises(UsageError, match="2 devices: 0, 1"):
        read_capture(path)
    assert len(read_capture(path, device=1)) == 2
    with pytest.raises(UsageError, match="no kernels of device 5"):
        read_capture(path, device=5)


def test_an_export_without_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no CUDA kernels"):
        read_capture(sqlite_file(tmp_path, kernels_table=False))


def chrome(*rows: dict[str, Any]) -> str:
    return json.dumps({"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "tid": 7, "pid": 0, **row} for row in rows]})


def test_a_chrome_trace_is_read_plain_and_zipped(tmp_path: Path) -> None:
    text = chrome(
        {"name": NVJET, "cat": "kernel", "args": {"device": 3}},
        {"name": "aten::mm", "cat": "cpu_op"},
        {"name": "Memset (Device)", "cat": "gpu_memset", "args": {"device": 3}},
    )
    plain = read_capture(written(tmp_path, text, "trace.json"))
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(text.encode()))
    assert plain["kernel"].tolist() == [NVJET, "Memset (Device)"] and set(plain["device"]) == {3}
    assert read_capture(tmp_path / "trace.json.gz").equals(plain)


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "{not json", chrome({"name": "aten::mm", "cat": "cpu_op"})])
def test_a_trace_without_gpu_kernels_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a Chrome trace|holds no GPU kernels"):
        read_capture(written(tmp_path, text, "trace.json"))


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"{}" * 999)[:-9])
    with pytest.raises(UsageError, match="not a Chrome trace"):
        read_capture(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        read_capture(tmp_path / "nothing.csv")


def test_the_same_step_from_three_formats_is_the_same_table(tmp_path: Path) -> None:
    frame = read_capture(kernels.hopper_capture("8b-fp8", "decode32"))
    path = tmp_path / "step.sqlite"
    with sqlite3.connect(path) as database:
        names = sorted(set(frame["kernel"]))
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(names)))
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, demangledName)")
        rows = [
            (round(1e3 * start), round(1e3 * (start + duration)), 0, 7, names.index(kernel))
            for start, duration, kernel in zip(frame["start_us"], frame["duration_us"], frame["kernel"], strict=True)
        ]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)", rows)
    own = kernels.by_group(kernels.kernel_table(frame))["us_per_step"]
    from_sqlite = kernels.by_group(kernels.kernel_table(path))["us_per_step"]
    from_sum = kernels.by_group(kernels.kernel_table(kernels.hopper_kernel_sum()))["us_per_step"]
    assert from_sqlite.to_numpy() == pytest.approx(own.to_numpy(), rel=1e-3)
    assert from_sum["gemm"] == pytest.approx(own["gemm"], abs=0.1)


@pytest.mark.parametrize(
    ("run", "isl", "users", "ttft_ms", "tpot_ms", "tokens_per_s"),
    [
        ("8b-bf16", 1024, 128, 603, 28.38, 3677),
        ("8b-fp8", 1024, 32, 309, 6.10, 3659),
        ("8b-fp8kv", 128, 64, 136, 4.41, 11711),
        ("70b-fp8", 1024, 16, 1324, 27.85, 415),
        ("70b-tp2-fp8-customar", 1024, 1, 83, 12.36, 77.3),
    ],
)
def test_the_serving_points_are_those_of_the_report(
    run: str, isl: int, users: int, ttft_ms: float, tpot_ms: float, tokens_per_s: float
) -> None:
    point = hopper.serving(run, isl=isl)[users]
    assert (point.isl, point.osl, point.users) == (isl, 128, users)
    assert point.ttft_ms_p50 == pytest.approx(ttft_ms, rel=0.01)
    assert point.tpot_ms_p50 == pytest.approx(tpot_ms, abs=0.01)
    assert point.output_tokens_per_s == pytest.approx(tokens_per_s, abs=0.5)
    assert point.power_w_p50 <= 700 and point.sm_mhz_p50 <= 1980


def test_a_serving_run_that_does_not_ship_is_named() -> None:
    with pytest.raises(UsageError, match="no serving run 8b-int4 with isl 1024") as caught:
        hopper.serving("8b-int4")
    assert "8b-fp8 with isl 1024" in caught.value.fix


def test_the_measured_all_reduces_lie_above_their_bytes() -> None:
    points = measured_all_reduces()
    assert [point.payload_bytes for point in points] == [2**power for power in range(14, 29)]
    assert all(point.best_us > link_us(point.payload_bytes, 450e9) for point in points)
    assert points[0].best_us == points[0].custom_us and points[-1].custom_us is None
    assert link_us(450e9, 450e9, 4) == 1.5e6


def test_measured_attention_holds_every_point_and_its_plain_floor_is_the_formula() -> None:
    prefill, decode = measured_attention("8b", "prefill"), measured_attention("8b", "decode")
    assert (len(prefill), len(decode)) == (28, 12)
    (point,) = [p for p in prefill if (p.batch, p.tokens, p.kernel, p.dtype) == (1, 8192, "fa3", "bf16")]
    assert point.us == 785.01
    # 4 passes over 32 heads x 1,024^2 scores of 2 bytes, at 4,255 GB/s
    assert plain_floor_us(1024, 32) == pytest.approx(4 * 32 * 1024**2 * 2 / 4.255e6)
    assert plain_floor_us(2048, 32) == pytest.approx(4 * plain_floor_us(1024, 32))
