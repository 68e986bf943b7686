"""Whom a robot believes: a team file of public keys, a private key per robot, and a signature on every entry.

A team is a folder: `team.json` goes to every robot, and `keys/robot-N.key` to robot N alone. Numbers are never used
twice. A robot that is lost is revoked: its number stays in the file, and what it says is refused.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mast_swarm.errors import MastError, MastWarning
from mast_swarm.robot.extras import needed
from mast_swarm.robot.stamps import write_whole
from mast_swarm.robot.wire import HASH, SIGNATURE

TEAM_FILE = "team.json"
MOST_ROBOTS = 1 << 16
_KEY = 32  # bytes of a public key


@dataclass(frozen=True)
class Team:
    """Who belongs to a team. identity: 8 bytes; robots: number -> public key, 32 bytes; created: day and time, UTC."""

    identity: bytes
    robots: dict[int, bytes]
    revoked: frozenset[int] = frozenset()
    created: str = ""

    @classmethod
    def load(cls, path: Path) -> Team:
        """The team of a file, or of the folder that `mast team new` made."""
        path = Path(path)
        file = path / TEAM_FILE if path.is_dir() else path
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            identity, robots = bytes.fromhex(fields["team"]), fields["robots"]
            keys = {int(number): bytes.fromhex(key) for number, key in robots.items()}
            revoked = frozenset(int(number) for number in fields["revoked"])
            good = len(identity) == HASH and all(len(key) == _KEY for key in keys.values()) and revoked <= set(keys)
            good &= all(0 <= number < MOST_ROBOTS for number in keys) and len(set(keys.values())) == len(keys)
        except OSError as error:
            raise MastError(f"cannot read the team file {file}: {error.strerror}; `mast team new` makes one") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            good = False
        if not good:
            raise MastError(f"{file} is no team file: `mast team new` makes one")
        return cls(identity, keys, revoked, str(fields.get("created", "")))

    def save(self, file: Path) -> None:
        """Write the file, whole or not at all."""
        fields = {
            "team": self.identity.hex(),
            "created": self.created,
            "robots": {str(number): key.hex() for number, key in sorted(self.robots.items())},
            "revoked": sorted(self.revoked),
        }
        write_whole(file, json.dumps(fields, indent=1) + "\n", 0o644)

    def why_not(self, robot: int) -> str | None:
        """Why nobody believes what a robot says; None: it belongs to the team."""
        if robot in self.revoked:
            return "revoked"
        return None if robot in self.robots else "unknown origin"

    def check(self, robot: int) -> None:
        """Raise an error for a robot that does not belong to the team."""
        why = self.why_not(robot)
        if why is not None:
            found = "was revoked" if why == "revoked" else "is not in the team"
            raise MastError(f"robot {robot} {found}: the team has {_listed(set(self.robots) - self.revoked)}")


def new_team(folder: Path, robots: int) -> Team:
    """Make a folder with a team file and the keys of robots 0, 1, 2, ..."""
    folder = Path(folder)
    if (folder / TEAM_FILE).exists():
        raise MastError(f"{folder} holds a team already: `mast team add {folder}` adds robots to it")
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return _with_robots(folder, Team(secrets.token_bytes(HASH), {}, created=created), robots)


def add_robots(folder: Path, robots: int) -> Team:
    """Make keys for more robots of a team; every robot then needs the new team file."""
    return _with_robots(folder_of(folder), Team.load(folder), robots)


def revoke(folder: Path, robots: Collection[int]) -> Team:
    """Refuse robots from now on; every other robot then needs the new team file."""
    team = Team.load(folder)
    for number in robots:
        if number not in team.robots:
            raise MastError(f"robot {number} is not in the team: the team has {_listed(team.robots)}")
    team = replace(team, revoked=team.revoked | set(robots))
    team.save(folder_of(folder) / TEAM_FILE)
    return team


def folder_of(team: Path) -> Path:
    """The folder of a team that is given by it, or by its file."""
    return Path(team).parent if Path(team).is_file() else Path(team)


def key_file(folder: Path, robot: int) -> Path:
    """Where the folder of a team holds the private key of a robot."""
    return Path(folder) / "keys" / f"robot-{robot}.key"


def _with_robots(folder: Path, team: Team, count: int) -> Team:
    first = max(team.robots, default=-1) + 1
    if not 1 <= count <= MOST_ROBOTS - first:
        raise MastError(f"{count} robots: expected 1 to {MOST_ROBOTS - first}")
    ed25519 = _ed25519()
    serialization = needed("cryptography.hazmat.primitives.serialization", "cryptography", "keys need")
    keys = dict(team.robots)
    try:
        key_file(folder, 0).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(first, first + count):
            private = ed25519.Ed25519PrivateKey.generate()
            text = private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            file = key_file(folder, number)
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "wb") as stream:
                stream.write(text)
            keys[number] = private.public_key().public_bytes_raw()
    except OSError as error:
        raise MastError(f"cannot write {error.filename}: {error.strerror}") from None
    team = replace(team, robots=keys)
    team.save(folder / TEAM_FILE)
    return team


class Trust:
    """What one robot of a team signs with and believes."""

    def __init__(self, team: Team, robot: int, private: Any) -> None:
        team.check(robot)
        self.team, self.robot = team, robot
        self._private = private
        self._public: dict[int, Any] = {}  # made when first needed

    @classmethod
    def load(cls, team: Path, robot: int, key: Path | None = None) -> Trust:
        """Robot number `robot`, from the team's file or folder and its own key file, which no other may read.

        key: that file; None: the one beside the team's file."""
        found = Team.load(team)
        found.check(robot)
        private = load_key(key_file(folder_of(team), robot) if key is None else Path(key))
        if private.public_key().public_bytes_raw() != found.robots[robot]:
            raise MastError(f"the key is not that of robot {robot} in the team file: give each robot its own key")
        return cls(found, robot, private)

    def renewed(self, team: Team) -> Trust:
        """The same robot with the same key, in a team that has changed."""
        return type(self)(team, self.robot, self._private)

    @classmethod
    def unsigned(cls, team: bytes, robot: int, robots: Iterable[int]) -> Trust:
        """A robot that signs nothing and believes whatever arrives in the name of `robots`: for tests and closed rooms.

        team: 8 bytes, the same for all."""
        warnings.warn(
            "messages are neither signed nor verified: whoever reaches the network can steer the team",
            MastWarning,
            stacklevel=2,
        )
        return _Unsigned(Team(team, dict.fromkeys(robots, b"")), robot, None)

    def sign(self, signed: bytes) -> bytes:
        """64 bytes."""
        return self._private.sign(signed)

    def verify(self, origin: int, signed: bytes, signature: bytes) -> bool:
        """Whether a robot of the team has signed this."""
        public = self._public.get(origin)
        try:
            if public is None:
                public = _ed25519().Ed25519PublicKey.from_public_bytes(self.team.robots[origin])
                self._public[origin] = public
            public.verify(signature, signed)
        except (_invalid(), KeyError, ValueError):
            return False
        return True

    def why_not(self, robot: int) -> str | None:
        """As of the team."""
        return self.team.why_not(robot)


class _Unsigned(Trust):
    def sign(self, signed: bytes) -> bytes:
        return bytes(SIGNATURE)

    def verify(self, origin: int, signed: bytes, signature: bytes) -> bool:
        return True


def load_key(file: Path) -> Any:
    """A private key from a file that its owner alone may read."""
    serialization = needed("cryptography.hazmat.primitives.serialization", "cryptography", "keys need")
    try:
        with open(file, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode & 0o777
            text = stream.read(10_000)
    except OSError as error:
        raise MastError(
            f"cannot read the key file {file}: {error.strerror}; put the robot's key there, or give --key FILE"
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise MastError(f"others may use the key file {file} (mode {mode:03o}): chmod 600 {file}")
    try:
        private = serialization.load_pem_private_key(text, None)
    except (ValueError, TypeError, needed("cryptography.exceptions", "cryptography", "keys need").UnsupportedAlgorithm):
        private = None
    if not isinstance(private, _ed25519().Ed25519PrivateKey):
        raise MastError(f"{file} is no Ed25519 key: `mast team new` makes them")
    return private


def _listed(numbers: Iterable[int]) -> str:
    """Numbers in words: those that follow each other as one."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [", ".join(map(str, run)) if len(run) < 3 else f"{run[0]} to {run[-1]}" for run in runs]
    return ", ".join(told) or "none"


def _ed25519() -> Any:
    return needed("cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography", "signatures need")


def _invalid() -> type[Exception]:
    return needed("cryptography.exceptions", "cryptography", "signatures need").InvalidSignature
