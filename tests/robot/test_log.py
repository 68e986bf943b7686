"""Logs in MCAP, read back by the reader of `mcap`."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import blocked
from mast_swarm.errors import MastError
from mast_swarm.robot import Counters
from mast_swarm.robot.log import SCHEMAS, Log
from mast_swarm.robot.pilot import Step

reading = pytest.importorskip("mcap.reader")
START = 1_700_000_000 * 10**9


def step(number: int, ages: dict[int, float] | None = None) -> Step:
    """What a robot did at one instant."""
    ages = {7: 0.5, 2: 1.5, 4: 9.0} if ages is None else ages
    counters = Counters(bytes_in=99, refused=Counter({"duplicate": 4}))
    return Step(number, START + number * 10**9, (1.5, -2.5), (0.0, 3.0), ages, 0.01, 3, 1, {}, counters)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is what a schema says, as far as the schemas here go."""
    kind = schema.get("type")
    if kind == "object":
        more = schema.get("additionalProperties")
        known = schema.get("properties", {})
        return isinstance(value, dict) and all(
            fits(one, known[name]) if name in known else more is not None and fits(one, more)
            for name, one in value.items()
        )
    if kind == "array":
        return isinstance(value, list) and all(fits(one, schema["items"]) for one in value)
    return isinstance(value, {"number": (int, float), "integer": int, "string": str}[str(kind)])


def test_steps_come_back(tmp_path: Path) -> None:
    file = tmp_path / "robot.mcap"
    with Log(file, 3, frame="utm") as log:
        for number in range(5):
            log(step(number, {} if number == 0 else None))
    with file.open("rb") as stream:
        reader = reading.make_reader(stream)
        found = [(schema, channel, message) for schema, channel, message in reader.iter_messages()]
        statistics = reader.get_summary().statistics
    assert statistics.message_count == 20 and len(found) == 20
    assert (statistics.message_start_time, statistics.message_end_time) == (START, START + 4 * 10**9)
    for schema, channel, message in found:
        name = channel.topic.removeprefix("/robot_3/")
        assert (schema.encoding, channel.message_encoding) == ("jsonschema", "json")
        assert json.loads(schema.data) == SCHEMAS[name] and fits(json.loads(message.data), SCHEMAS[name])
    last = {channel.topic: json.loads(message.data) for _, channel, message in found}
    assert {schema.name for schema, _, _ in found} >= {"foxglove.PoseInFrame"}
    pose = last["/robot_3/pose"]
    assert pose["timestamp"] == {"sec": 1_700_000_004, "nsec": 0} and pose["frame_id"] == "utm"
    assert pose["pose"]["position"] == {"x": 1.5, "y": -2.5, "z": 0.0}
    assert 2 * math.atan2(pose["pose"]["orientation"]["z"], pose["pose"]["orientation"]["w"]) == pytest.approx(
        math.pi / 2
    )
    assert last["/robot_3/command"]["speed"] == 3.0 and last["/robot_3/command"]["deadlines_missed"] == 1
    news = last["/robot_3/news"]
    assert (news["known"], news["youngest_s"], news["median_s"], news["oldest_s"]) == (3, 0.5, 1.5, 9.0)
    assert news["robots"][0] == {"robot": 2, "age_s": 1.5}
    assert last["/robot_3/counters"]["bytes_in"] == 99 and last["/robot_3/counters"]["refused"] == {"duplicate": 4}


def test_a_log_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    file = tmp_path / "robot.mcap"
    log = Log(file, 0)
    for number in range(4000):  # some parts of a megabyte each
        log(step(number))
        if number % 1000 == 0:
            log._stream.flush()
    log._stream.flush()
    whole = file.read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole)
    log.close()
    log.close()
    with cut.open("rb") as stream:
        count = 0
        try:
            for _ in reading.NonSeekingReader(stream).iter_messages(log_time_order=False):
                count += 1
        except Exception:  # the end is missing
            pass
    assert count > 4000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_ends_the_log_and_not_the_robot(capsys: pytest.CaptureFixture[str]) -> None:
    with Log("/dev/full", 3) as log:
        for number in range(2000):  # more than is kept in memory before it is written
            log(step(number))
    told = capsys.readouterr().err.splitlines()
    assert told == ["mast: the log /dev/full ends here: No space left on device"]


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(MastError, match=r"cannot write the log .*: No such file or directory"):
        Log(tmp_path / "none" / "x.mcap", 0)
    code = """
sys.modules["mcap"] = None
from mast_swarm.errors import MastError
from mast_swarm.robot.log import Log
try: Log("x.mcap", 0)
except MastError as error: print(error)
"""
    assert blocked.run(code).strip() == "logs need the package mcap: pip install 'mast-swarm[mcap]'"
