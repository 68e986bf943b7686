"""`mast export`: what one robot computes, as ONNX files that run without torch, with a manifest that says how.

Graphs come from torch's TorchScript exporter. The newer one gives the same numbers, takes ten times as long and needs a
further package. onnxruntime then folds what is constant, by rewritings that hold on any machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mast_swarm import __version__, zoo
from mast_swarm.errors import MastError, unknown
from mast_swarm.files import read_json, write_json
from mast_swarm.interop.graphs import Function, functions
from mast_swarm.interop.manifest import describe, sha256
from mast_swarm.interop.parity import Difference, compare, real_world
from mast_swarm.model.config import ModelConfig
from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import config_of, load_learned
from mast_swarm.robot.exported import MANIFEST, Exported, read_manifest
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import WorldConfig
from mast_swarm.train.config import from_run
from mast_swarm.zoo import CONFIG_FILE, WEIGHTS_FILE

OPSET = 17
LIMIT = 1e-4  # of the difference between fp32 files and torch, in units of the longest command
PRECISIONS = ("fp32", "fp16", "int8")
_SMALL = 1024  # numbers of a tensor that stays in fp32 where weights are stored in fp16


def export(
    policy: str | Path, folder: str | Path, *, precision: str = "fp32", task: str | None = None
) -> dict[str, Any]:
    """Write a policy's functions for one robot to a folder, which must be new or empty; gives the manifest.

    policy: a shipped one as TASK/NAME, or a folder. precision: fp32; fp16 (weights stored in half the space, sums in
    fp32); or int8 (products in 8 bits but in perceive). task: the policy's task as path/to/file.py:TASK, where it is
    not installed. Raises an error, and writes nothing, if what onnxruntime computes differs from torch.
    """
    onnx = packages()
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if str(folder) in tasks.policies() and str(policy) not in tasks.policies():
        raise MastError(f"the policy comes first, then the folder: mast export {folder} {policy}")
    folder, source = Path(folder), policy_folder(policy)
    _check_unused(folder)
    described = _world_config(config_of(source), source, task)  # first: a task may bring a perception of its own
    learned = load_learned(source).eval().requires_grad_(False)
    made = functions(learned)
    with _new_folder(folder) as part:
        for name, function in made.items():
            write(onnx, function, part / f"{name}.onnx")
        manifest = describe(learned, source / WEIGHTS_FILE, described, made, str(policy)) | {"opset": OPSET}
        world = None if described is None else real_world(tasks.task_of(described).make(described))
        exact = _measured(learned, part, manifest, "fp32", world)
        if not (exact.worst <= LIMIT and exact.message <= LIMIT):  # neither is NaN
            raise MastError(
                f"onnxruntime differs from torch by {exact.worst:.1e} in a command and {exact.message:.1e} in a "
                f"message, over {exact.states} states: expected at most {LIMIT:g}; nothing was written"
            )
        manifest["parity"] = {**_told(exact), "limit": LIMIT}
        if precision != "fp32":
            for name in made:
                _reduce(onnx, part / f"{name}.onnx", precision)
            manifest["loss"] = _told(_measured(learned, part, manifest, precision, world))
        write_json(part / MANIFEST, manifest)
    return manifest


def packages() -> Any:
    """The module onnx; where one of the packages of the extra is missing, an error that says what to install."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise MastError(f"exporting needs the package {error.name}: pip install 'mast-swarm[export]'") from None
    return onnx


def policy_folder(policy: str | Path) -> Path:
    """The folder of a policy, or an error that names the nearest shipped ones."""
    folder, shipped = Path(policy), tasks.policies()
    if not folder.is_dir() and str(policy) not in shipped:
        if folder.exists():
            raise MastError(f"'{folder}' is a file: expected a policy folder, or TASK/NAME of a shipped policy")
        raise unknown("policy", str(policy), shipped)
    if not folder.is_dir():
        return shipped[str(policy)]
    zoo.check_no_run(folder)
    if not (folder / CONFIG_FILE).exists():
        if (folder / MANIFEST).exists():
            made_of = read_manifest(folder)["policy"]
            raise MastError(f"'{folder}' is exported already, robots run it as it is: give {made_of} to export anew")
        raise MastError(
            f"'{folder}' is no policy folder, it has no {CONFIG_FILE}: give one that `mast train` wrote, or TASK/NAME "
            "of a shipped policy"
        )
    return folder


def _check_unused(folder: Path) -> None:
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise MastError(f"cannot read '{folder}': {error.strerror}; give another folder") from None
    if used:
        raise MastError(f"'{folder}' is already used: give a folder that is new or empty")


def _world_config(policy: ModelConfig, source: Path, task: str | None) -> WorldConfig | None:
    """The settings of the world that the policy learned in, as its run has them, or the task's own; None: no task.

    source: the policy's folder, whose parent is that of the run.
    """
    shape = policy.observation_shape
    written = read_json(source.parent / "config.json")
    if written is not None and "world" in written:
        return from_run(source.parent).world
    if task is None and not policy.task:
        return None
    if task is None and policy.task not in tasks.names():
        raise MastError(
            f"the policy is for the task {policy.task}, which is not installed: give --task path/to/file.py:TASK"
        )
    found = tasks.find(task or policy.task)
    if policy.task not in ("", found.name):
        raise MastError(f"the policy is for the task {policy.task}, not for {found.name}")
    config = found.Config().fitted([shape])
    if not config.shows(shape):
        raise MastError(
            f"the policy takes observations of shape {list(shape)} and the world of {found.name} with its own "
            f"settings gives {list(config.observation_shape or ())}: export it from the folder of its run, which has "
            "the settings"
        )
    return config


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `folder` when the block ends well, and is removed when not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise MastError(f"cannot write to '{folder}': {error.strerror}; give another folder") from None
    try:
        yield part
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o777 & ~umask)  # mkdtemp keeps it to its owner
        part.replace(folder)
    except OSError as error:
        raise MastError(f"cannot write to '{folder}': {error.strerror}; give another folder") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn of what we do on purpose."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def write(onnx: Any, function: Function, file: Path) -> None:
    """Write the ONNX file of a function."""
    try:
        with _quiet(), torch.enable_grad():  # with gradients the policy's parts take their plain ways
            torch.onnx.export(
                function.module.eval(),
                function.example,
                file,
                dynamo=False,
                opset_version=OPSET,
                input_names=list(function.inputs),
                output_names=list(function.outputs),
                dynamic_axes=function.axes,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        why = str(error).strip().split("\n")[0]
        raise MastError(f"{file.name} cannot be written: {why}; use operations that ONNX has") from None
    _fold(file)
    model = onnx.load(file)
    used = {node.domain for node in model.graph.node}
    for number in reversed(range(len(model.opset_import))):
        if model.opset_import[number].domain not in used:
            del model.opset_import[number]
    for node in model.graph.node:
        node.ClearField("doc_string")  # where in our source it comes from
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = {**function.inputs, **function.outputs}[value.name]
    model.producer_name, model.producer_version = "mast-swarm", __version__
    onnx.checker.check_model(model)
    onnx.save(model, file)


def _fold(file: Path) -> None:
    """Compute what is constant in a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(file)
    options.log_severity_level = 3  # errors
    onnxruntime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])


def _reduce(onnx: Any, file: Path, precision: str) -> None:
    """Rewrite a file in fp16 or int8."""
    if precision == "fp16":
        model = onnx.load(file)
        _halve(onnx, model.graph)
        onnx.save(model, file)
        return
    if file.stem == "perceive":  # its inputs differ by so much that 8 bits for all of them lose too much
        return
    with _quiet():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # Unsigned: on CPUs without VNNI products of signed and unsigned bytes overflow.
        kinds = ["MatMul", "Gemm"]
        quantize_dynamic(file, file, op_types_to_quantize=kinds, per_channel=True, weight_type=QuantType.QUInt8)


def _halve(onnx: Any, graph: Any) -> None:
    """Store the large fp32 tensors of a graph in fp16, to be read as fp32: half the space, the same operations."""
    casts = []
    for tensor in graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims) < _SMALL:
            continue
        name, values = tensor.name, onnx.numpy_helper.to_array(tensor)
        if np.abs(values).max() > np.finfo(np.float16).max:
            raise MastError(f"weights as large as {np.abs(values).max():g} do not fit in fp16: use fp32 or int8")
        tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name}.fp16"))
        casts.append(onnx.helper.make_node("Cast", [f"{name}.fp16"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _measured(policy: Learned, folder: Path, manifest: dict[str, Any], precision: str, world: Any) -> Difference:
    """The files in the folder against the policy; their hashes and sizes are written into the manifest first."""
    manifest["precision"] = precision
    manifest["files"] = {
        file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in sorted(folder.glob("*.onnx"))
    }
    write_json(folder / MANIFEST, manifest)
    return compare(policy, Exported(folder), world)


def _told(found: Difference) -> dict[str, Any]:
    """A difference as the manifest has it."""
    return {
        "states": found.states,
        "largest_command_difference": found.worst,
        "mean_command_difference": found.mean,
        "largest_message_difference": found.message,
    }
