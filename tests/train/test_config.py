"""Settings: recipes, TOML files, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mast_swarm.errors import MastError
from mast_swarm.model.config import LPACConfig
from mast_swarm.tasks.navigation.recipes import PAPER
from mast_swarm.tasks.registry import find, names
from mast_swarm.train.config import (
    MOST_ENVIRONMENTS,
    MOST_EPOCHS,
    MOST_SEED,
    TrainConfig,
    from_plain,
    from_run,
    from_toml,
    plain,
    recipes,
)
from shared import recipe


def test_the_paper_recipe_is_the_papers() -> None:
    paper = recipe("paper")
    assert (paper.environments, paper.steps, paper.replay, paper.batch, paper.epochs) == (32, 200, 20_000, 128, 500)
    assert (paper.lr, paper.schedule, paper.weight_decay, paper.clip, paper.ema) == (1e-4, "constant", 0.0, None, None)
    assert (paper.expert_share, paper.carry, paper.validation, paper.validation_steps) == (0.5, 0.0, 32, 200)
    assert (paper.policy.layers, paper.policy.heads, paper.policy.head_dim) == (4, 4, 64)
    assert paper.policy.exploration_time is None


def test_an_unknown_recipe_names_all() -> None:
    with pytest.raises(MastError, match="unknown recipe 'papper': task navigation has paper, "):
        recipe("papper")


@pytest.mark.parametrize(("task", "name"), [(task, name) for task in names() for name in recipes(find(task))])
def test_settings_survive_json(task: str, name: str) -> None:
    config = recipe(name, task)
    assert from_plain(json.loads(json.dumps(plain(config)))) == config
    assert hash(from_plain(plain(config))) == hash(config)  # tuples are tuples again


def test_toml_replaces_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'epochs = 7\nlr = 1\nclip = "none"\nschedule = "constant"\n[world]\nagents = 30\n[policy]\nlayers = 1'
    )
    best = recipe("best")
    expected = replace(
        best,
        epochs=7,
        lr=1.0,
        clip=None,
        schedule="constant",
        world=replace(best.world, agents=30),
        policy=replace(best.policy, layers=1),
    )
    assert from_toml(file, best) == expected
    assert isinstance(from_toml(file, best).lr, float)
    file.write_text("")
    assert from_toml(file, best) == best


def test_toml_arrays_are_ranges_and_shapes(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "collect = 2\nkeep_every = 3\n[world]\nsigma = [30, 50.5]\npixels = 16\n[policy]\nobservation_dim = [5, 16, 16]"
    )
    best = recipe("best", "coverage")
    made = from_toml(file, best)
    assert made.world == replace(best.world, sigma=(30.0, 50.5), pixels=16)
    assert made.policy == replace(best.policy, observation_dim=(5, 16, 16))
    assert (made.collect, made.keep_every) == (2, 3) and isinstance(made.world.sigma[0], float)


def test_toml_may_name_another_kind_of_policy(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[policy]\nkind = "lpac"\nhops = 2')
    best, lpac = recipe("best", "coverage"), recipe("lpac-k3", "coverage")
    assert from_toml(file, best).policy == LPACConfig(task="coverage", hops=2, observation_dim=(5, 32, 32))
    assert from_toml(file, lpac).policy == replace(lpac.policy, hops=2)  # keeps what the recipe says
    file.write_text('[policy]\nkind = "mast"')
    paper = recipe("paper", "coverage").policy
    assert from_toml(file, lpac).policy == replace(paper, observation_dim=lpac.policy.observation_dim)
    for text, told in (
        ('kind = "lpack"', "unknown setting 'policy.kind = lpack': did you mean policy.kind = lpac"),
        ("kind = [1]", "unknown setting 'policy.kind = [1]'"),
        ('kind = "lpac"\nheads = 2', "unknown setting 'policy.heads'"),
    ):
        file.write_text(f"[policy]\n{text}")
        with pytest.raises(MastError, match=re.escape(told)):
            from_toml(file, best)
    file.write_text('[policy]\nkind = "lpac"')
    with pytest.raises(MastError, match=r"unknown setting 'policy\.kind = lpac'.*policy\.kind = mast"):
        from_toml(file, PAPER)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sigma = 40", "world.sigma is 40: expected [a number, a number]"),
        ("sigma = [40]", "world.sigma is [40]: expected [a number, a number]"),
        ('sigma = ["a", 2]', "world.sigma is 'a': expected a number"),
        ("sigma = [60, 40]", "sigma is drawn from 60..40"),
        ("window = [1, 2, 3]", 'world.window is [1, 2, 3]: expected [a number, a number] or "none"'),
        ("observed = 3", "unknown setting 'world.observed'"),
        ("pixels = 16", "the policy takes 5 x 32 x 32 observed numbers, the world gives 5 x 16 x 16"),
    ],
)
def test_a_mistake_in_the_coverage_world_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f"[world]\n{text}")
    with pytest.raises(MastError, match=re.escape(told)) as caught:
        from_toml(file, recipe("best", "coverage"))
    assert "\n" not in str(caught.value)


def test_the_settings_of_a_run_before_there_was_a_second_task(tmp_path: Path) -> None:
    config = plain(recipe("best"))
    for name in ("collect", "keep_every", "target_limit", "weighted", "mirrored"):
        del config[name]
    for name in ("kind", "action_scale"):
        del config["policy"][name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert from_run(tmp_path) == recipe("best")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("epoch = 3", "unknown setting 'epoch': did you mean epochs"),
        ("expert-share = 0.1", "unknown setting 'expert-share': did you mean expert_share"),
        ("agents = 3", "unknown setting 'agents': did you mean world.agents"),
        ("[policy]\nlayer = 3", "unknown setting 'policy.layer': did you mean policy.layers"),
        ('epochs = "ten"', "epochs is 'ten': expected a whole number"),
        ("epochs = 2.5", "epochs is 2.5: expected a whole number"),
        ("epochs = true", "epochs is True: expected a whole number"),
        ("lr = false", "lr is False: expected a number"),
        ('epochs = "none"', "epochs is 'none': expected a whole number"),
        ('clip = "x"', "clip is 'x': expected a number or \"none\""),
        ('schedule = "linear"', "schedule is 'linear': expected 'constant' or 'cosine'"),
        ("world = 3", "world is 3: expected a table of settings"),
        ("[world]\ndirected = 1", "world.directed is 1: expected true or false"),
        ("lr = inf", "--lr inf"),
        ("[policy]\nhead_dim = 6", "head_dim is 6: expected a multiple of 4"),
        ("epochs = ", "is not TOML"),
    ],
)
def test_a_toml_file_with_a_mistake_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(MastError, match=re.escape(told)) as caught:
        from_toml(file, PAPER)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_a_toml_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MastError, match=r"cannot read .*absent\.toml: No such file"):
        from_toml(tmp_path / "absent.toml", PAPER)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MastError, match="is not TOML"):
        from_toml(tmp_path / "binary.toml", PAPER)


def test_the_settings_of_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(MastError, match="nothing to resume"):
        from_run(tmp_path)
    for text in ("{", '{"epoch": 1}', "[1]", '{"policy": 3}', '{"policy": {"task": []}}', '{"policy": {"task": "x"}}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(MastError, match="cannot read the settings of a run"):
            from_run(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": MOST_EPOCHS + 1},
        {"environments": MOST_ENVIRONMENTS + 1, "replay": 10**6},
        {"updates": 0},
        {"carry": 1.5},
        {"expert_share": -0.1},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"weight_decay": -1.0},
        {"clip": 0.0},
        {"ema": 1.0},
        {"replay": 31},
        {"seed": -1},
        {"seed": MOST_SEED + 1},
        {"validation": 0},
        {"keep_every": 0},
        {"collect": -1},
        {"collect": PAPER.epochs},
        {"collect": 1, "steps": 1},  # 32 samples, and a batch of 128
        {"target_limit": 0.5},
        {"target_limit": float("inf")},
        {"weighted": True},  # in navigation all count alike
        {"mirrored": True},
        {"policy": recipe("best", "coverage").policy},
        {"policy": replace(PAPER.policy, observation_dim=10)},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MastError):
        replace(PAPER, **wrong)


def test_the_settings_import_no_torch() -> None:
    code = "import sys, mast_swarm.train.config; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_setting_has_its_sentence() -> None:
    source = Path(sys.modules[TrainConfig.__module__].__file__ or "").read_text()
    for name in TrainConfig.__dataclass_fields__:
        assert re.search(rf'^    {name}: .*\n    """[^"]+\."""$', source, re.MULTILINE), name
