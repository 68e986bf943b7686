"""What one robot's step costs, and what has to be installed for it: python -m benchmarks.robot_step.

A step is perceive and decide with 100 known robots, on one core: by onnxruntime, as on robots, against the same weights
in torch. Then messages that are verified per second, and size on disk and import time of the packages of the extra
`robot` against torch. All times are those that the processor worked, so that other work on the machine counts little.
The file is benchmarks/results/robot_step.json.
"""

from __future__ import annotations

import importlib.metadata as metadata
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import benchmark
from benchmarks.robot_security import FORM, entry, node
from mast_swarm.robot.wire import Header

ROOT = Path(__file__).parents[1]
POLICIES = {"navigation/mast-m": 250.0, "coverage/mast-m": 256.0}  # -> metres around the robot that the others are in
KNOWN, STEPS = 100, 200


def step(policy: str, reach: float) -> dict[str, Any]:
    """Milliseconds of one robot's step in onnxruntime and in torch, which take turns."""
    import torch

    from mast_swarm import zoo
    from mast_swarm.interop.onnx import export
    from mast_swarm.model.policy import load_learned
    from mast_swarm.robot import Exported

    torch.set_num_threads(1)
    luck = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        export(policy, Path(scratch) / "robot")
        exported = Exported(Path(scratch) / "robot")
    learned = load_learned(zoo.policies()[policy]).eval().requires_grad_(False)
    features = luck.normal(size=exported.manifest["observation"]["shape"]).astype(np.float32)
    messages = luck.normal(size=(KNOWN, exported.manifest["d_msg"])).astype(np.float32)
    positions = luck.uniform(-reach, reach, (KNOWN, 2))
    messages[0] = exported.perceive(features)

    def in_onnxruntime() -> np.ndarray:
        return exported.decide(np.concatenate([exported.perceive(features)[None], messages[1:]]), positions)

    @torch.no_grad()
    def in_torch() -> np.ndarray:
        own = learned.perceive(torch.from_numpy(features)[None, None])
        all_of_them = torch.cat([own, torch.from_numpy(messages)[None, 1:]], dim=1)
        return learned.decide(all_of_them, torch.from_numpy(positions)[None])[0, 0].numpy()

    difference = float(np.abs(in_onnxruntime() - in_torch()).max())
    times: dict[str, list[float]] = {"onnxruntime": [], "torch": []}
    for _ in range(STEPS):
        for name, run in (("onnxruntime", in_onnxruntime), ("torch", in_torch)):
            began = time.process_time()
            run()
            times[name].append(1e3 * (time.process_time() - began))
    found: dict[str, Any] = {"policy": policy, "known": KNOWN, "steps": STEPS, "differ_by": difference}
    for name, spent in times.items():
        found[f"{name}_median_ms"] = round(float(np.median(spent)), 3)
        found[f"{name}_99_ms"] = round(float(np.quantile(spent, 0.99)), 3)
    return found


def verified(count: int = 2000) -> dict[str, Any]:
    """Messages that a robot verifies per second, and that it reads, verifies and keeps."""
    luck = random.Random(0)
    entries = [entry(luck, 3, stamp) for stamp in range(count)]
    datagrams = [FORM.datagram(Header(3, number + 1), [one]) for number, one in enumerate(entries)]
    checker, keeper = node(1), node(1)
    began = time.process_time()
    good = sum(checker.trust.verify(3, FORM.signed(one.body), one.signature) for one in entries)
    between = time.process_time()
    for number, data in enumerate(datagrams):
        keeper.on_datagram(3, data, number * 10**9)  # a second passes between two, so that none is too much
    ends = time.process_time()
    assert good == keeper.counters.entries_kept == count
    return {
        "bytes_per_message": FORM.entry_size,
        "verified_per_second": round(count / (between - began)),
        "kept_per_second": round(count / (ends - between)),
    }


def installed(name: str) -> tuple[set[str], int]:
    """A package and those that it needs, as they are installed here; and their bytes on disk."""
    waiting, found = [name], set()
    while waiting:
        one = re.split(r"[^\w.-]", waiting.pop(), maxsplit=1)[0].lower()
        if one in found:
            continue
        try:
            needs = metadata.requires(one) or []
        except metadata.PackageNotFoundError:  # for other systems
            continue
        found.add(one)
        waiting += [text for text in needs if "extra ==" not in text]
    return found, sum(_size(one) for one in found)


def _size(name: str) -> int:
    files = (Path(str(file.locate())) for file in metadata.distribution(name).files or ())
    return sum(file.stat().st_size for file in files if file.is_file())


def imports(code: str, times: int = 7) -> float:
    """Seconds that a fresh interpreter takes for some imports, less those of one that imports nothing; medians."""

    def seconds(said: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", said], check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    spent = [(seconds(code), seconds("pass")) for _ in range(times)]
    return float(np.median([whole - empty for whole, empty in spent]))


def packages() -> list[dict[str, Any]]:
    """The extra `robot` and torch: size on disk with all that they need, and import time."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = []
    robot = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in extras["robot"]]
    loads = "import mast_swarm.robot, onnxruntime, cryptography.hazmat.primitives.asymmetric.ed25519"
    for what, names, code in (
        ("the extra robot", robot, loads),
        ("the extra robot, with Zenoh", robot, loads + ", zenoh"),
        ("torch", ["torch"], "import torch"),
    ):
        every: set[str] = set()
        for name in names:
            every |= installed(name)[0]
        row = {"what": what, "packages": len(every), "megabytes": round(sum(map(_size, every)) / 1e6)}
        rows.append(row | {"import_s": round(imports(code), 3), "torch": metadata.version("torch")})
    return rows


def measured() -> dict[str, Any]:
    steps = [step(policy, reach) for policy, reach in POLICIES.items()]
    return {"steps": steps, "verified": verified(), "packages": packages()}


if __name__ == "__main__":
    benchmark("robot_step", __doc__, measured)
