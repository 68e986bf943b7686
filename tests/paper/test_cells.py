"""Cells: known by their settings, kept whole or not at all, never mixed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast_swarm.errors import MastError
from mast_swarm.paper.cells import Cell, Result, Store, evaluation, training

DOCS = Path(__file__).parents[2] / "docs"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def result(values: list[float]) -> Result:
    return Result(pa.table({"episode": pa.array(range(len(values))), "x": pa.array(values)}), {"seconds": 1.5})


NAMES = st.text(max_size=4).filter(lambda name: name not in ("form", "kind"))


@given(st.dictionaries(NAMES, PLAIN, max_size=4), NAMES, PLAIN)
def test_the_key_is_that_of_the_settings(settings: dict, name: str, value: object) -> None:
    cell = Cell("evaluate", settings)
    assert Cell("evaluate", dict(reversed(settings.items())), "another label").key == cell.key
    assert Cell("train", settings).key != cell.key
    if name not in settings:
        assert Cell("evaluate", settings | {name: value}).key != cell.key


@pytest.mark.parametrize("name", ["form", "kind"])
def test_no_setting_takes_the_place_of_what_a_key_has_already(name: str) -> None:
    with pytest.raises(MastError, match=f"a setting is called {name}"):
        Cell("train", {name: 1})


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    cell = Cell("evaluate", {"a": 1}, "some label/with strokes")
    path = Store(tmp_path).save(cell, result([0.25, 0.5]))
    assert path.parent == tmp_path / "cells" and "/" not in path.stem
    found = Store(tmp_path).load(cell)
    assert found is not None and found.table["x"].to_pylist() == [0.25, 0.5] and found.about == {"seconds": 1.5}
    assert Store(tmp_path).load(Cell("evaluate", {"a": 2})) is None


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other settings", "other numbers", "no notes"])
def test_a_damaged_cell_counts_as_missing(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    cell, store = Cell("evaluate", {"a": 1}), Store(tmp_path)
    path = store.save(cell, result([0.25, 0.5]))
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "bit":
        table = bytearray(content)
        table[40] ^= 1
        path.write_bytes(bytes(table))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other settings":
        other = store.save(Cell("evaluate", {"a": 2}), result([0.25, 0.5]))
        other.replace(path)
    elif damage == "other numbers":
        table = pq.read_table(path)
        changed = table.set_column(1, "x", pa.array([0.25, 0.75])).replace_schema_metadata(table.schema.metadata)
        pq.write_table(changed, path)
    else:
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    assert Store(tmp_path).load(cell) is None
    assert "counts as missing" in capsys.readouterr().err
    fresh = Store(tmp_path)
    fresh.save(cell, result([1.0]))
    found = Store(tmp_path).load(cell)
    assert found is not None and found.table["x"].to_pylist() == [1.0]


def test_a_cell_that_is_called_otherwise_has_one_file(tmp_path: Path) -> None:
    first, later = Cell("evaluate", {"a": 1}, "z before"), Cell("evaluate", {"a": 1}, "a now")
    Store(tmp_path).save(first, result([0.5]))
    store = Store(tmp_path)
    path = store.save(later, result([0.75]))
    assert list((tmp_path / "cells").iterdir()) == [path] and path.stem == later.name
    for one in (store, Store(tmp_path)):
        kept = one.load(first)
        assert kept is not None and kept.table["x"].to_pylist() == [0.75]


def test_the_kept_results_have_one_file_per_cell() -> None:
    names = [path.stem.rpartition("-")[2] for path in (DOCS / "results/cells").glob("*.parquet")]
    assert len(names) > 1000 and len(names) == len(set(names))


def test_a_cell_depends_on_weights_and_on_how_a_policy_is_trained() -> None:
    shipped = evaluation("navigation", "mast-m", agents=10)
    assert len(shipped.settings["weights"]) == 16 and "weights" not in evaluation("navigation", "dhba-8").settings
    one, other = (training("navigation", "paper", "x", seed=seed) for seed in (1, 2))
    cells = [evaluation("navigation", policy, agents=10) for policy in (one, other)]
    assert cells[0].key != cells[1].key and cells[0].needs is one
    assert evaluation("navigation", "lsap", delay=None).key == evaluation("navigation", "lsap").key


def test_files_of_a_policy_are_kept_beside(tmp_path: Path) -> None:
    cell, store = training("navigation", "tiny", "x"), Store(tmp_path)
    assert store.files(cell) is None
    store.save(cell, Result(pa.table({"epoch": [1]}), {}, {"config.json": b"{}", "model.safetensors": b"w"}))
    assert Store(tmp_path).files(cell) == {"config.json": b"{}", "model.safetensors": b"w"}
