"""A table that grows by parts: the same rows as one write would make, at a cost that does not grow with the parts."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.parquet import read_metadata

from auditcore.jobs.growing import Growing
from auditcore.store import Run

KEYS = ("artifact", "layer")


def part(artifact: str, layer: int, n: int, value: float = 0.0) -> pd.DataFrame:
    ids = [f"{artifact}{layer}-{i}" for i in range(n)]
    seed = pd.array([0, *[None] * (n - 1)], dtype="Int64")
    return pd.DataFrame({"id": ids, "artifact": artifact, "layer": layer, "seed": seed, "value": value})


def add(growing: Growing, frame: pd.DataFrame) -> None:
    growing.add(frame, {"artifact": frame["artifact"].iloc[0], "layer": int(frame["layer"].iloc[0])})


def test_parts_come_out_whole_and_in_order(tmp_path) -> None:
    run = Run(tmp_path)
    growing = Growing(run, "t", KEYS)
    parts = [part(artifact, layer, 3 + layer) for artifact in ("it's", 'a "b"') for layer in range(6)]
    for frame in parts:
        add(growing, frame)
    growing.fold()
    pd.testing.assert_frame_equal(run.read("t"), pd.concat(parts, ignore_index=True), check_dtype=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.parquet"]  # no part is left
    growing.fold()  # nothing waits: nothing happens
    assert run.tables() == ["t"]


@pytest.mark.parametrize("folded", [True, False])
def test_a_place_that_is_done_again_is_replaced(tmp_path, folded: bool) -> None:
    run = Run(tmp_path)
    growing = Growing(run, "t", KEYS)
    for layer in range(3):
        add(growing, part("a", layer, 4))
    if folded:
        growing.fold()
    resumed = Growing(run, "t", KEYS)
    add(resumed, part("a", 2, 5, value=7.0))
    resumed.fold()
    wanted = pd.concat([part("a", 0, 4), part("a", 1, 4), part("a", 2, 5, value=7.0)], ignore_index=True)
    pd.testing.assert_frame_equal(run.read("t"), wanted, check_dtype=False)


def test_what_a_killed_worker_left_waits_for_the_next(tmp_path) -> None:
    run = Run(tmp_path)
    for layer in range(3):
        add(Growing(run, "t", KEYS), part("a", layer, 2))  # a new object each time, as after a kill
    assert len(run.read("t")) < 6
    Growing(run, "t", KEYS).fold()
    assert run.read("t")["layer"].tolist() == [0, 0, 1, 1, 2, 2]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=25))
def test_rows_are_written_a_few_times_however_many_parts_there_are(sizes: list[int]) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        growing, written, seen = Growing(run, "t", KEYS), 0, 0
        original = Growing.fold

        def fold() -> None:
            nonlocal written
            if growing._waiting():
                original(growing)
                written += read_metadata(growing.path).num_rows

        growing.fold = fold  # type: ignore[method-assign]
        for layer, size in enumerate(sizes):
            add(growing, part("a", layer, size))
            seen += size
            assert len(run.read("t")) * 2 >= seen  # a page sees half of it or more
        growing.fold()
        assert len(run.read("t")) == seen
        assert written <= 3 * seen
