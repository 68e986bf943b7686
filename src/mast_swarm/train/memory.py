"""What an object keeps from step to step, as JSON and tensors, so that a file can hold it and give it back exactly.

No code is in such a file: reading one makes numbers, arrays, containers, random generators and records of classes that
are loaded already, nothing else.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_PLAIN = (type(None), bool, int, float, str)
_CONSTANT = (FunctionType, BuiltinFunctionType, ModuleType, type, torch.device, torch.dtype)
_CHANCE = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")  # numpy's generators


class Unkept(Exception):
    """Something is of a kind that no file can hold."""


def keep(owner: object) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The attributes of an object, as JSON and as tensors by name. Functions and classes stay with their owner."""
    writer = _Writer()
    try:
        kept = {name: writer.write(value) for name, value in vars(owner).items() if not isinstance(value, _CONSTANT)}
    except TypeError:  # it has no attributes of its own: __slots__, or something built in
        raise Unkept(f"a {type(owner).__name__}") from None
    return kept, writer.tensors


def give_back(owner: object, kept: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Put what `keep` gave back where it was."""
    reader = _Reader(tensors)
    for name, value in kept.items():
        setattr(owner, name, reader.read(value))


class _Writer:
    """Things that two names share stay shared; memory that two things share in part is not kept."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.known: dict[int, int] = {}  # id -> number
        self.alive: list[Any] = []  # so that no id is used again
        self.spans: list[tuple[int, int]] = []

    def write(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if id(value) in self.known:
            return {"same": self.known[id(value)]}
        self.known[id(value)] = len(self.known)
        self.alive.append(value)
        kind = type(value)
        if kind in (list, tuple):
            return {kind.__name__: [self.write(part) for part in value]}
        if kind is dict:
            return {"dict": [[self.write(key), self.write(part)] for key, part in value.items()]}
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return {"scalar": self._stored(torch.from_numpy(_bytes(value))), "dtype": value.dtype.str}
        if kind is np.ndarray and not value.dtype.hasobject:
            self._take(value.__array_interface__["data"][0], value.nbytes)
            stored = self._stored(torch.from_numpy(_bytes(value)))
            return {"array": stored, "dtype": value.dtype.str, "shape": list(value.shape)}
        if kind is Tensor and not value.requires_grad:
            self._take(value.data_ptr(), value.nbytes)
            return {"tensor": self._stored(value.clone()), "device": str(value.device)}
        if kind is np.random.Generator and type(value.bit_generator).__name__ in _CHANCE:
            return {"numpy chance": self.write(value.bit_generator.state)}
        if kind is torch.Generator and value.device.type == "cpu":
            return {"torch chance": self._stored(value.get_state())}
        if kind is random.Random:
            return {"chance": self.write(value.getstate())}
        if dataclasses.is_dataclass(kind) and _class(_name(kind)) is kind and hasattr(value, "__dict__"):
            return {"record": _name(kind), "of": [[name, self.write(part)] for name, part in vars(value).items()]}
        raise Unkept(f"a {kind.__name__}")

    def _stored(self, value: Tensor) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = value
        return name

    def _take(self, start: int, length: int) -> None:
        if length and any(start < end and begin < start + length for begin, end in self.spans):
            raise Unkept("an array that shares its memory with another")
        self.spans.append((start, start + length))


class _Reader:
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.known: list[Any] = []

    def read(self, told: Any) -> Any:
        if type(told) in _PLAIN:
            return told
        if "same" in told:
            return self.known[told["same"]]
        number = len(self.known)
        self.known.append(None)
        self.known[number] = made = self._made(told, number)
        return made

    def _made(self, told: dict[str, Any], number: int) -> Any:
        if "list" in told or "dict" in told:  # known before its parts are, which may name it
            made: Any = [] if "list" in told else {}
            self.known[number] = made
            if "list" in told:
                made.extend(self.read(part) for part in told["list"])
            else:
                for key, part in told["dict"]:
                    name = self.read(key)
                    made[name] = self.read(part)
            return made
        if "tuple" in told:
            return tuple(self.read(part) for part in told["tuple"])
        if "scalar" in told:
            return np.frombuffer(self.tensors[told["scalar"]].numpy().tobytes(), told["dtype"])[0]
        if "array" in told:
            raw = bytearray(self.tensors[told["array"]].numpy().tobytes())
            return np.frombuffer(raw, told["dtype"]).reshape(told["shape"])
        if "tensor" in told:
            return self.tensors[told["tensor"]].to(told["device"], copy=True)
        if "numpy chance" in told:
            state = self.read(told["numpy chance"])
            if state["bit_generator"] not in _CHANCE:
                raise KeyError(state["bit_generator"])
            bits = getattr(np.random, state["bit_generator"])()
            bits.state = state
            return np.random.Generator(bits)
        if "torch chance" in told:
            generator = torch.Generator()
            generator.set_state(self.tensors[told["torch chance"]].clone())
            return generator
        if "chance" in told:
            chance = random.Random()
            chance.setstate(self.read(told["chance"]))
            return chance
        kind: type = _class(told["record"])
        if not dataclasses.is_dataclass(kind):
            raise KeyError(told["record"])
        record = self.known[number] = object.__new__(kind)
        for name, part in told["of"]:
            object.__setattr__(record, name, self.read(part))
        return record


def _bytes(value: Any) -> np.ndarray:
    """The bytes of an array, one after the other."""
    return np.frombuffer(bytearray(np.ascontiguousarray(value).tobytes()), np.uint8)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> Any:
    """A class of a module that is loaded already."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
