"""The blocks of docs/robots.md that come from benchmarks of robots: faults, attacks, floods, and what a step costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from blocks import load, table

from mast_swarm.evaluate.results import interval

FAULTS = "benchmarks/results/robot-faults.json"
SECURITY = "benchmarks/results/robot-security.json"
STEP = "benchmarks/results/robot_step.json"


def _success(row: dict[str, Any], seconds: int) -> float:
    return float(row["success"][str(seconds)])


def _with_half(values: list[float], sign: str = "") -> str:
    """A mean and half its 95 % interval, if there are enough for one."""
    if len(values) < 2:
        return f"{np.mean(values):{sign}.3f}, one start state"
    mean, half = interval(np.array(values))
    if half is None:  # too few for an interval
        return f"{mean:{sign}.3f}, {len(values)} start states"
    return f"{mean:{sign}.3f} ± {half:.3f}"


def faults() -> str:
    found = load(FAULTS)
    seconds, body = found["seconds"], []
    plain = {
        row["seed"]: _success(row, seconds) for row in found["rows"] if row["fault"] == "none" and not row["crash"]
    }
    for fault, words in found["faults"].items():
        rows = [row for row in found["rows"] if row["fault"] == fault]
        good = [row for row in rows if not row["crash"] and row["seed"] in plain]
        if not good:
            continue
        differences = [_success(row, seconds) - plain[row["seed"]] for row in good]
        body.append(
            [
                words,
                str(len(rows)),
                _with_half([_success(row, seconds) for row in good]),
                "" if fault == "none" else _with_half(differences, "+"),
                f"{np.mean([row['age_median_s'] for row in good]):.1f} s",
                *(
                    str(count)
                    for count in (
                        sum(bool(row["crash"]) for row in rows),
                        sum(row["commands_missing"] for row in good),
                        sum(row["stamps_back"] for row in good),
                        sum(row["false_news"] for row in good),
                    )
                ),
            ]
        )
    head = [f"fault, {found['robots']} robots, t = {seconds} s", "runs", "success rate of the living"]
    head += [
        "difference to no fault",
        "age of news, median",
        "crashes",
        "commands missing",
        "stamps back",
        "false news",
    ]
    return table(head, body)


def attacks() -> str:
    body = []
    for row in load(SECURITY)["attacks"]:
        reasons = ", ".join(f"`{reason}` {count}" for reason, count in row["counted_as"].items())
        used = [str(row[name]) for name in ("used", "passed_on", "counted")]
        body.append([row["attack"], f"{row['sent']:,}", *used, reasons])
    return table(["attack", "datagrams", "used", "passed on", "counted", "counted as"], body)


def fuzz() -> str:
    found = load(SECURITY)["fuzz"]
    resident, traced = found["resident_growth_bytes"] / 1e6, found["traced_growth_bytes"] / 1e3
    refused = sum(found["refused"].values())
    row = [f"{found['datagrams']:,}", str(found["exceptions"]), str(found["false_news"]), f"{refused:,}"]
    row += [f"{resident:.1f} MB", f"{traced:.1f} kB over {found['traced_over']:,} datagrams"]
    head = ["fuzzed datagrams", "exceptions", "false news", "refusals counted", "growth of the process"]
    return table([*head, "growth of what Python holds"], [row])


def floods() -> str:
    words = {
        "none": "no flood",
        "garbage": "random bytes",
        "repeated": "one good datagram again and again",
        "bad signatures": "entries with bad signatures",
        "signed": "new entries, rightly signed by the flooder",
    }
    body = [
        [
            words[row["flood"]],
            f"{row['datagrams_per_second']:,}",
            f"{row['age_median_s']:.2f} s",
            f"{row['age_99_s']:.2f} s",
            f"{row['late_median_ms']:.0f} ms",
            f"{row['late_worst_ms']:.0f} ms",
            f"{row['deadlines_missed']} of {row['instants']}",
        ]
        for row in load(SECURITY)["floods"]
    ]
    head = ["flood from one robot of the team", "datagrams taken per second", "age of others' news, median", "99 %"]
    return table([*head, "command after its instant, median", "worst", "deadlines missed"], body)


def step() -> str:
    found = load(STEP)
    body = [
        [
            f"`{row['policy']}`",
            *(f"{row[f'{name}_{what}_ms']:.1f} ms" for name in ("onnxruntime", "torch") for what in ("median", "99")),
        ]
        for row in found["steps"]
    ]
    head = f"one step, {found['steps'][0]['known']} known robots, one core ({found['machine']['cpu']})"
    return table([head, "onnxruntime, median", "99 %", "torch, median", "99 %"], body)


def verified() -> str:
    found = load(STEP)["verified"]
    row = [f"{found[name]:,}" for name in ("bytes_per_message", "verified_per_second", "kept_per_second")]
    return table(["bytes of a message", "verified per second", "read, verified and kept per second"], [row])


def packages() -> str:
    body = [
        [row["what"], str(row["packages"]), f"{row['megabytes']} MB", f"{row['import_s']:.2f} s"]
        for row in load(STEP)["packages"]
    ]
    return table(["what", "packages, with those they need", "on disk", "import, processor time"], body)


NUMBERS: dict[str, Callable[[], str]] = {
    "robot-faults": faults,
    "robot-attacks": attacks,
    "robot-fuzz": fuzz,
    "robot-floods": floods,
    "robot-step": step,
    "robot-verified": verified,
    "robot-packages": packages,
}
