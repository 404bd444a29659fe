"""The benchmarks measure what they say, add up, and leave nothing. No test looks at the numbers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interlock.actors.bench import calls, harness, slices
from interlock.actors.bench.calls import bench_calls
from interlock.actors.bench.floor import Floor
from interlock.actors.bench.flush import bench_flush
from interlock.actors.bench.histogram import Histogram
from interlock.actors.bench.measure import ROUNDS, measure
from interlock.actors.bench.report import as_json, as_markdown, table
from interlock.actors.bench.scratch import scratch
from interlock.actors.bench.slices import Slice, run_many, run_one
from interlock.actors.cli.bench import app
from interlock.actors.errors import ToolError
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_events
from typer.testing import CliRunner

#: A budget in which every client acts at least once in each round, and hardly more.
TINY = 0.01


def histogram_of(durations: list[int]) -> Histogram:
    made = Histogram()
    for ns in durations:
        made.record(ns)
    return made


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_within_a_128th_of_the_duration_of_that_rank(
    durations: list[int], percent: int
) -> None:
    rank = max(1, -(-len(durations) * percent // 100))
    exact = sorted(durations)[rank - 1]
    found = histogram_of(durations).percentile_us(percent) * 1000
    assert abs(found - exact) <= exact / 128 + 0.5


@given(st.lists(st.integers(0, 10**12)), st.lists(st.integers(0, 10**12)))
def test_merged_histograms_count_what_both_counted(one: list[int], other: list[int]) -> None:
    merged = histogram_of(one)
    merged.merge(histogram_of(other))
    assert merged.buckets_us() == histogram_of(one + other).buckets_us()
    assert merged.count == len(one) + len(other) == sum(n for _, n in merged.buckets_us())


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Histogram().percentile_us(50)


def test_a_slice_runs_each_client_at_least_once_and_at_most_so_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "MOST", 3)

    async def operation() -> int:
        return 7

    assert run_one(lambda: 7, 0.0).latency.count == 1
    assert run_one(lambda: 7, 3600.0).latency.count == 3
    assert asyncio.run(run_many([operation] * 5, 0.0)).latency.count == 5
    assert asyncio.run(run_many([operation] * 5, 3600.0)).cycle.count == 15


def test_a_failing_client_ends_the_slice_with_its_own_error() -> None:
    async def fails() -> int:
        raise ToolError("TOOL_FAILED", "the disk is on fire")  # type: ignore[arg-type]

    async def waits() -> int:
        await asyncio.Event().wait()
        return 0

    with pytest.raises(ToolError, match="on fire"):
        asyncio.run(run_many([waits, fails], 3600.0))


def test_the_floor_appends_a_record_for_every_duration_it_counts(tmp_path: Path) -> None:
    with Floor(tmp_path) as floor:
        counted = floor.run(0.0).latency.count + floor.run(TINY).latency.count
        assert (tmp_path / "floor").stat().st_size == counted * 256
    assert list(tmp_path.iterdir()) == []


def test_floor_and_loads_alternate_in_every_round(tmp_path: Path) -> None:
    order: list[int] = []

    def load(clients: int) -> slices.Load:
        def run(_seconds: float) -> Slice:
            size = (tmp_path / "floor").stat().st_size
            assert size > grown[-1] or len(order) < 2, "no floor was measured before this slice"
            grown.append(size)
            order.append(clients)
            return run_one(lambda: 1, 0.0)

        return run

    grown = [0]
    measured = measure(
        tmp_path, "sessions", {("interlock", 1): load(1), ("interlock", 4): load(4)}, TINY
    )
    assert order == [1, 4] * (1 + ROUNDS), "one round to get warm, then those that count"
    assert [row.done.latency.count for row in measured.rows] == [ROUNDS, ROUNDS]
    assert measured.floor.count == sum(row.floor.count for row in measured.rows)


FLUSHED = ("interlock", "interlock-file")


def check(
    document: dict, unit: str, counts: list[int], systems: tuple[str, ...] = ("interlock",)
) -> None:
    assert document["floor_us"] > 0
    assert [(row["system"], row[unit]) for row in document["rows"]] == [
        (system, count) for system in systems for count in counts
    ]
    for row in document["rows"]:
        assert row["count"] == sum(n for _, n in row["histogram"])
        assert row["count"] >= ROUNDS * row[unit]
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert row["histogram"][0][0] <= row["p50_us"]
        assert row["per_second"] > 0
        assert row["ratio"] == pytest.approx(row["p50_us"] / row["floor_us"], rel=0.01, abs=0.01)
    assert document["floor"]["count"] >= ROUNDS * len(counts)


@pytest.mark.slow
def test_every_flush_that_is_counted_is_an_event_in_a_log(tmp_path: Path) -> None:
    measured = bench_flush(tmp_path, [1, 3], TINY)
    document = as_json(measured)
    check(document, "sessions", [1, 3], FLUSHED)
    logs = [
        log
        for system in FLUSHED
        for log in JsonlBackend(tmp_path / system, durability="none").list()
    ]
    events = [event for log in logs for event in read_events(log.path)]
    flushed = sum(event.type == "user/message" for event in events)
    warm = len(logs) + sum(row.warm_up for row in measured.rows)
    assert flushed == sum(row["count"] for row in document["rows"]) + warm
    assert len(logs) == 2 * (1 + 3)


@pytest.mark.slow
def test_every_call_that_is_counted_has_its_result_in_a_log(tmp_path: Path) -> None:
    measured = bench_calls(tmp_path, [1, 2], TINY)
    document = as_json(measured)
    check(document, "agents", [1, 2])
    logs = list(JsonlBackend(tmp_path).list())
    types = [event.type for log in logs for event in read_events(log.path)]
    warm = len(logs) + sum(row.warm_up for row in measured.rows)
    made = sum(row["count"] for row in document["rows"]) + warm
    assert types.count("tool/call") == types.count("tool/result") == made
    assert types.count("turn/end") == len(logs)
    for row in document["rows"]:
        assert row["step_p50_us"] >= row["p50_us"], "a step is at least its call"


def test_a_call_that_fails_is_no_measurement() -> None:
    from interlock.actors import ToolResult

    failed = ToolResult(call_id="call-0", name="nothing", is_error=True, code="CHECKPOINT_FAILED")
    with pytest.raises(ToolError, match=r"'s1'.*'call-0'.*CHECKPOINT_FAILED"):
        calls._check("s1", [failed])


@pytest.mark.slow
def test_the_command_prints_one_json_document_and_leaves_no_file(tmp_path: Path) -> None:
    options = ["--sessions", "2", "--seconds", str(TINY), "--root", str(tmp_path / "a" / "b")]
    ran = CliRunner().invoke(app, ["flush", *options, "--json"])
    assert ran.exit_code == 0, ran.output
    check(json.loads(ran.stdout), "sessions", [2], FLUSHED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_peer_is_measured_in_the_same_rounds_and_one_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(harness.shutil, "which", lambda name: None)
    told: list[str] = []
    measured = bench_flush(tmp_path, [2], TINY, peers=True, skipped=told.append)
    check(as_json(measured), "sessions", [2], (*FLUSHED, "sqlite"))
    assert told == ["harness is left out: npm is not there"]


@pytest.mark.slow
def test_the_command_prints_a_table_with_the_floor_and_a_row_for_each_count(tmp_path: Path) -> None:
    options = ["--agents", "2,1,2", "--seconds", str(TINY), "--root", str(tmp_path)]
    ran = CliRunner().invoke(app, ["calls", *options], env={"COLUMNS": "100"})
    assert ran.exit_code == 0, ran.output
    firsts = [line.split("│")[1:3] for line in ran.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in pair] for pair in firsts] == [
        ["floor", "-"],
        ["interlock", "1"],
        ["interlock", "2"],
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("counts", ["", "1,x", "0", "-3", "1,20000"])
def test_counts_that_are_none_are_refused_before_anything_starts(
    counts: str, tmp_path: Path
) -> None:
    ran = CliRunner().invoke(app, ["flush", "--sessions", counts, "--root", str(tmp_path / "x")])
    assert ran.exit_code == 2
    assert not (tmp_path / "x").exists()


def test_the_tables_for_people_and_files_have_the_same_cells(tmp_path: Path) -> None:
    measured = measure(
        tmp_path,
        "agents",
        {("interlock", 1): lambda _: run_one(lambda: 1, 0.0)},
        TINY,
        cycle="step",
    )
    cells = table(measured)
    assert len({len(row) for row in cells}) == 1
    lines = as_markdown(measured).splitlines()
    assert [
        [c.strip() for c in line.strip("|").split("|")] for line in (lines[0], *lines[2:])
    ] == cells


def test_the_scratch_directory_goes_also_when_the_benchmark_fails(tmp_path: Path) -> None:
    parent = tmp_path / "new"

    def fail() -> None:
        with scratch(parent) as directory:
            (directory / "log").write_text("x")
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert not parent.exists()


def test_the_scratch_directory_leaves_what_others_put_beside_it(tmp_path: Path) -> None:
    parent = tmp_path / "new"
    with scratch(parent) as directory:
        (parent / "theirs").write_text("x")
    assert not directory.exists()
    assert [path.name for path in parent.iterdir()] == ["theirs"]
