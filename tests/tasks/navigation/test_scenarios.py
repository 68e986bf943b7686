"""Scenarios: where robots and goals may start, and what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import kstest

from mast_swarm.errors import MastError
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.scenarios import sample, scenario

NAMES = [
    "clusters",
    "clusters-1",
    "clusters-5",
    "clusters-10",
    "clusters-20",
    "clusters-5-10",
    "circle",
    "two-lines",
]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**50), name=st.sampled_from([*NAMES, "text:Hi"]), agents=st.integers(20, 120))
def test_counts_and_separation(seed, name, agents):
    for points in sample(name, NavigationConfig(agents=agents), seed):
        assert points.shape == (agents, 2)
        assert points.dtype == np.float32
        assert pdist(points.astype(float)).min() >= 5 - 1e-6


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**50), size=st.sampled_from([5, 10, 20, 25]))
def test_clusters_lie_in_disks_that_do_not_overlap(seed, size):
    robots, _ = sample(f"clusters-{size}", NavigationConfig(), seed)
    radius = 25 * size**0.5
    groups = [robots[first : first + size] for first in range(0, 100, size)]
    for group in groups:
        assert pdist(group).max() <= 2 * radius + 1e-3


def test_cluster_disks_are_uniform_in_area():
    spread = []
    for seed in range(60):
        robots, _ = sample("clusters-25", NavigationConfig(separation=0.01, width=1000.0), seed)
        for first in range(0, 100, 25):
            group = robots[first : first + 25].astype(float)
            spread.append(np.linalg.norm(group - group.mean(0), axis=1) / (5 * 0.01 * 5))
    squared = np.concatenate(spread) ** 2  # uniform in [0, 1] if the points are uniform over the disk
    assert squared.mean() == pytest.approx(0.5 * 24 / 25, abs=0.03)


def test_ring_and_lines_are_where_the_paper_puts_them():
    w = 1000
    radii, left, right = [], [], []
    for seed in range(30):
        robots, _ = sample("circle", NavigationConfig(), seed)
        radii.append(np.linalg.norm(robots, axis=1))
        robots, goals = sample("two-lines", NavigationConfig(), seed)
        left.append(robots)
        right.append(goals)
    r = np.concatenate(radii)
    assert r.min() >= 3 * w / 16 - 1e-3
    assert r.max() <= 5 * w / 16 + 1e-3
    share = (r**2 - (3 * w / 16) ** 2) / ((5 * w / 16) ** 2 - (3 * w / 16) ** 2)
    assert kstest(share, "uniform").pvalue > 1e-3
    x, y = np.concatenate(left).T
    assert x.min() >= -3 * w / 8 - 1e-3
    assert x.max() <= -w / 4 + 1e-3
    assert kstest((y + w / 2) / w, "uniform").pvalue > 1e-3
    assert np.concatenate(right)[:, 0].min() >= w / 4 - 1e-3


@pytest.mark.parametrize(("word", "agents"), [("ICRA", 100), ("MAST", 500), ("Ω", 30), ("i", 3), ("ROBOTS", 1000)])
def test_text_has_any_word_and_any_number(word, agents):
    config = NavigationConfig(agents=agents)
    _, goals = sample(f"text:{word}", config, 1)
    assert goals.shape == (agents, 2)
    assert np.abs(goals).max() <= 0.4 * config.side + 1
    assert not np.array_equal(goals, sample(f"text:{word}", config, 2)[1])


def test_letters_look_like_letters():
    _, goals = sample("text:II", NavigationConfig(agents=200), 0)
    assert (np.abs(goals[:, 0]) > 5).all()  # nothing between the two strokes
    _, hollow = sample("text:O", NavigationConfig(agents=200), 0)
    assert np.linalg.norm(hollow, axis=1).min() > 50


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("clutsers", {}, "did you mean clusters-K"),
        ("clusters-500", {}, "clusters of 500 but there are 100 robots"),
        ("clusters-x", {}, "'x' is not a cluster size"),
        ("clusters-1-2-3", {}, "give one size, or two"),
        ("clusters-1", {"width": 30.0}, "too dense"),
        ("clusters-10", {"width": 300.0}, "too dense"),
        ("text:ICRA", {"agents": 5000, "width": 300.0}, "too dense"),
        ("text: ", {}, "nothing to spell"),
        ("text:\u6f22", {}, "no outline"),
        ("file:/nowhere/starts.csv", {}, "cannot read start states from /nowhere/starts.csv"),
        ("circle-3", {}, "unknown scenario 'circle-3'"),
    ],
)
def test_what_cannot_be_met_says_so(name, fields, said):
    with pytest.raises(MastError, match=said):
        sample(name, NavigationConfig(**{"scenario": name, **fields}), 0)


def test_negative_seed():
    with pytest.raises(MastError, match="seed is -1"):
        sample("clusters", NavigationConfig(), -1)


def test_every_registered_scenario_has_a_summary():
    assert {s.name for s in scenario} >= {"clusters", "circle", "two-lines", "text", "file"}
    assert all(s.summary for s in scenario)
    assert scenario.find("two-lines")[1] == ""


def write(path, rows):
    path.write_text("environment,kind,x,y\n" + "\n".join(rows) + "\n")
    return f"file:{path}"


def test_start_states_from_a_file(tmp_path):
    rows = [f"{e},{kind},{10 * i + e},{i}" for e in (0, 1) for kind in ("robot", "goal") for i in range(3)]
    name = write(tmp_path / "starts.csv", rows)
    config = NavigationConfig(agents=3)
    assert sample(name, config, 0)[0][:, 0].tolist() == [0, 10, 20]
    assert sample(name, config, 1)[1][:, 0].tolist() == [1, 11, 21]
    assert np.array_equal(sample(name, config, 2)[0], sample(name, config, 0)[0])  # the file's environments in turn
    with pytest.raises(MastError, match="has 3 robots per environment but 4 were asked: give that number, or none"):
        sample(name, NavigationConfig(agents=4), 0)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["0,robot,1,2", "0,goal,1"], "line 3: 3 columns"),
        (["0,robot,1,2", "0,tree,1,2"], "line 3: kind is 'tree'"),
        (["0,robot,one,2"], "line 2: 'one,2' is not two numbers"),
        (["0,robot,nan,2"], "line 2: x,y is nan"),
        (["0,robot,1e39,2"], "line 2: x,y is 1e.39,2.0; give metres, at most"),
        (['0,robot,"1,2', "0,goal,1,2"], "line 2: unexpected end of data; look for a quote that is not closed"),
        (["0,robot,1,2"], "environment 0 has 0 goals"),
        ([], "no rows"),
    ],
)
def test_a_bad_row_is_named(tmp_path, rows, said):
    with pytest.raises(MastError, match=said):
        sample(write(tmp_path / "bad.csv", rows), NavigationConfig(agents=1), 0)


def test_a_file_that_excel_wrote(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_text("environment,kind,x,y\r\n0,robot,1,2\r\n0,goal,3,4\r\n", encoding="utf-8-sig")
    assert sample(f"file:{path}", NavigationConfig(agents=1), 0)[1].tolist() == [[3, 4]]


def test_a_file_without_header(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("1,2,3,4\n")
    with pytest.raises(MastError, match="line 1: expected the header"):
        sample(f"file:{path}", NavigationConfig(agents=1), 0)
