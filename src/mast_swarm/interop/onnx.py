"""`mast export`: what one robot computes, as ONNX files that run without torch, with a manifest that says how.

Graphs come from torch's TorchScript exporter. The newer one gives the same numbers, takes ten times as long and needs a
further package. onnxruntime then folds what is constant, by rewritings that hold on any machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mast_swarm import __version__
from mast_swarm.errors import MastError, unknown
from mast_swarm.files import read_json, write_json
from mast_swarm.interop.graphs import Carry, Function, functions
from mast_swarm.interop.parity import Difference, compare, real_world
from mast_swarm.model.learned import WEIGHTS_FILE, Learned
from mast_swarm.model.policy import Policy, load_learned
from mast_swarm.robot.exported import FORMAT, MANIFEST, Exported
from mast_swarm.tasks import base as tasks
from mast_swarm.tasks.base import WorldConfig
from mast_swarm.train.config import from_run

OPSET = 17
LIMIT = 1e-4  # of the difference between fp32 files and torch, in units of the longest command
PRECISIONS = ("fp32", "fp16", "int8")
_SMALL = 1024  # numbers of a tensor that stays in fp32 where weights are stored in fp16


def export(
    policy: str | Path, folder: str | Path, *, precision: str = "fp32", task: str | None = None
) -> dict[str, Any]:
    """Write a policy's functions for one robot to a folder, which must be new or empty; gives the manifest.

    policy: a shipped one as TASK/NAME, or a folder. precision: fp32; fp16 (weights stored in half the space, sums in
    fp32); or int8 (products in 8 bits). task: the policy's task as path/to/file.py:TASK, where it is not installed.
    Raises an error, and writes nothing, if what onnxruntime computes differs from torch.
    """
    onnx = _packages()
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    folder, source = Path(folder), _policy_folder(policy)
    _check_unused(folder)
    learned = load_learned(source).eval().requires_grad_(False)
    described = _world_config(learned, source, task)
    made = functions(learned)
    with _new_folder(folder) as part:
        for name, function in made.items():
            (part / f"{name}.onnx").write_bytes(_graph(onnx, function))
        manifest = _manifest(learned, source, described, made, policy)
        world = None if described is None else real_world(tasks.task_of(described).make(described))
        exact = _measured(learned, part, manifest, "fp32", world)
        if not max(exact.message, exact.worst) <= LIMIT:
            raise MastError(
                f"onnxruntime differs from torch by {exact.worst:.1e} in a command and {exact.message:.1e} in a message, "
                f"over {exact.states} states: expected at most {LIMIT:g}; nothing was written"
            )
        manifest["parity"] = {**_told(exact), "limit": LIMIT}
        if precision != "fp32":
            for name in made:
                _reduce(onnx, part / f"{name}.onnx", precision)
            manifest["loss"] = _told(_measured(learned, part, manifest, precision, world))
        write_json(part / MANIFEST, manifest)
    return manifest


def _packages() -> Any:
    """The module onnx; where one of the packages of the extra is missing, an error that says what to install."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise MastError(f"exporting needs the package {error.name}: pip install 'mast-swarm[export]'") from None
    return onnx


def _policy_folder(policy: str | Path) -> Path:
    """The folder of a policy, or an error that names the nearest shipped ones."""
    folder, shipped = Path(policy), tasks.policies()
    if not folder.is_dir() and str(policy) not in shipped:
        if folder.exists():
            raise MastError(f"'{folder}' is a file: expected a policy folder, or TASK/NAME of a shipped policy")
        raise unknown("policy", str(policy), shipped)
    return folder if folder.is_dir() else shipped[str(policy)]


def _check_unused(folder: Path) -> None:
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise MastError(f"cannot read '{folder}': {error.strerror}; give another folder") from None
    if used:
        raise MastError(f"'{folder}' is already used: give a folder that is new or empty")


def _world_config(policy: Learned, source: Path, task: str | None) -> WorldConfig | None:
    """The settings of the world that the policy learned in, as its run has them, or the task's own; None: no task.

    source: the policy's folder, whose parent is that of the run.
    """
    shape = policy.config.observation_shape
    written = read_json(source.parent / "config.json")
    if written is not None and "world" in written:
        return from_run(source.parent).world
    if task is None and not policy.config.task:
        return None
    if task is None and policy.config.task not in tasks.names():
        raise MastError(
            f"the policy is for the task {policy.config.task}, which is not installed: give --task path/to/file.py:TASK"
        )
    found = tasks.find(task or policy.config.task)
    if policy.config.task not in ("", found.name):
        raise MastError(f"the policy is for the task {policy.config.task}, not for {found.name}")
    config = found.Config().fitted([shape])
    if not config.shows(shape):
        raise MastError(
            f"the policy takes observations of shape {list(shape)} and the world of {found.name} with its own settings "
            f"gives {list(config.observation_shape or ())}: export it from the folder of its run, which has the settings"
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


def _graph(onnx: Any, function: Function) -> bytes:
    """The ONNX file of a function."""
    made = io.BytesIO()
    with _quiet(), torch.enable_grad():  # with gradients the policy's parts take their plain ways
        torch.onnx.export(
            function.module.eval(),
            function.example,
            made,
            dynamo=False,
            opset_version=OPSET,
            input_names=list(function.inputs),
            output_names=list(function.outputs),
            dynamic_axes=function.axes,
        )
    model = _folded(onnx, made.getvalue())
    for node in model.graph.node:
        node.ClearField("doc_string")  # where in our source it comes from
    model.producer_name, model.producer_version = "mast-swarm", __version__
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = {**function.inputs, **function.outputs}[value.name]
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _folded(onnx: Any, content: bytes) -> Any:
    """The model with what is constant in it computed."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        model = onnx.load(options.optimized_model_filepath)
    used = {node.domain for node in model.graph.node}
    for number in reversed(range(len(model.opset_import))):
        if model.opset_import[number].domain not in used:
            del model.opset_import[number]
    return model


def _reduce(onnx: Any, file: Path, precision: str) -> None:
    """Rewrite a file in fp16 or int8."""
    if precision == "fp16":
        model = onnx.load(file)
        _halve(onnx, model.graph)
        onnx.save(model, file)
        return
    with _quiet():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        kinds = ["MatMul", "Gemm"]  # convolutions in 8 bits are slow or missing on most CPUs
        quantize_dynamic(file, file, op_types_to_quantize=kinds, per_channel=True, weight_type=QuantType.QInt8)


def _halve(onnx: Any, graph: Any) -> None:
    """Store the large fp32 tensors of a graph in fp16, to be read as fp32: half the space, the same operations."""
    import numpy as np

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
        file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(folder.glob("*.onnx"))
    }
    write_json(folder / MANIFEST, manifest)
    return compare(policy, Exported(folder), world)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _told(found: Difference) -> dict[str, Any]:
    """A difference as the manifest has it."""
    return {
        "states": found.states,
        "largest_command_difference": found.worst,
        "mean_command_difference": found.mean,
        "largest_message_difference": found.message,
    }


def _manifest(
    policy: Learned, source: Path, world: WorldConfig | None, made: dict[str, Function], name: str | Path
) -> dict[str, Any]:
    """All that a robot needs to know but the files' hashes and how exact they are."""
    config = policy.config
    radius, layers = config.attention_radius, getattr(config, "layers", None)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "made_by": f"mast-swarm {__version__}",
        "policy": Path(name).name if Path(name).is_dir() else str(name),
        "kind": config.kind,
        "task": config.task or None,
        "variant": getattr(config, "variant", None),
        "weights": {"file": WEIGHTS_FILE, "sha256": _sha256(source / WEIGHTS_FILE)},
        "d_msg": config.message_width,
        "outputs": policy.outputs,
        "dtype": "float32",
        "action_scale": config.action_scale,
        "action_scale_is": "applied in the files already",
        "attention_radius_m": radius,
        "receptive_field_m": None if radius is None else radius * layers,
        "receptive_field_is": "news of robots farther than this changes nothing and may be left out; null: all counts",
        "exploration": None,
        "opset": OPSET,
        "functions": {key: {"inputs": one.inputs, "outputs": one.outputs} for key, one in made.items()},
        "observation": _observation(policy, world),
    }
    if isinstance(policy, Policy) and policy.config.exploration_time is not None:
        manifest["exploration"] = {
            "time_s": policy.config.exploration_time,
            "reach_m": policy.config.exploration_reach,
            "is": "mast_swarm.robot.explore makes commands of predictions",
        }
    if world is not None:
        manifest["control"] = {
            "dt_s": world.dt,
            "max_speed_m_s": world.max_speed,
            "is": "seconds between two decisions; a command of length 1 is this speed",
        }
    if "carry" in made:
        manifest["exchange"] = _exchange(made["carry"].module)
    return manifest


def _observation(policy: Learned, world: WorldConfig | None) -> dict[str, Any]:
    """What perceive reads: the parts of the features in their order."""
    shape = policy.config.observation_shape
    parts = [] if world is None else [asdict(part) for part in world.sensed()]
    images = len(shape) == 3
    while images and len(parts) > shape[0]:  # a policy may take the first maps alone
        parts.pop()
    sizes = [1 if images else int(Tensor.numel(torch.empty(part["shape"]))) for part in parts]
    if sum(sizes) != shape[0]:
        parts = []
    for part, first in zip(parts, [sum(sizes[:number]) for number in range(len(parts))], strict=True):
        part["first"] = first  # number of its first value, or of its channel
    return {
        "shape": list(shape),
        "dtype": "float32",
        "features": parts,
        "features_are": "in this order; what is measured, in its unit, is divided by the scale; first: the number of the "
        "first value, or of the channel"
        if parts
        else "not named by the task",
        "world": None if world is None else asdict(world),
    }


def _exchange(carry: Any) -> dict[str, Any]:
    """What LPAC's robots send each other."""
    assert isinstance(carry, Carry)
    return {
        "floats": carry.size,
        "hops": carry.policy.config.hops,
        "widths": carry.widths,
        "is": "Every tau seconds a robot sends all that hear it two things: `sent`, as carry last gave it, and its "
        "degree, the number of robots that it hears now. With what it has heard it runs carry: one row of heard and one "
        "of degrees for each robot. Before the first exchange it has heard nobody. At a control instant it takes its new "
        "message and position, runs carry on what the last exchange brought, and acts on the command. If it exchanges "
        "several times in a control period, it runs carry after each with the same message and position.",
        "order_of_sent": "layer by layer; in a layer z_0, z_1 .. z_(hops - 1), each as wide as `widths` says; z_0 is the "
        "layer's input, z_k what the robot made of its neighbours' z_(k - 1): their sum weighted by 1 / sqrt(own degree x "
        "theirs), which carry computes",
    }
