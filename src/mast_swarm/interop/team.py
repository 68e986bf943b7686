"""A whole team in one graph: what every robot decides from what it alone holds, for a page in a browser.

`graphs.Decide` is one robot and is run once per robot. A page runs a hundred robots many times a second, so this graph
takes all of them at a time. It computes what `comms.decentral.decide` computes, from lists that the page makes
(`web/src/views.js`).

Symbols: U different messages that anybody holds; V views, each what one robot holds (or what several robots hold in
common); C entries of the widest view, sorted by level: own robots first, then those of their windows, and so on. Layer
l of L computes R_l rows: of each view the entries of levels 0 to L - l, on which its command depends. In layer 1 rows
that read the same messages, in whichever views they are, are computed once: R_1 counts these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from mast_swarm.errors import MastError
from mast_swarm.interop.graphs import _PREDICTED, Function, Perceive, _tables, _turned
from mast_swarm.model.mast import Block
from mast_swarm.model.policy import Policy

_LARGE = 1024  # numbers of a tensor that is worth storing in less space
_SMALLEST = 2.0**-25  # half of the smallest number in fp16
_MASKED = -1e30  # a score that weighs nothing; rows that only fill up a view have no other, and infinities give NaN


class Team(nn.Module):
    """The predictions of all robots, and of each layer the attention weights.

    messages [U, d_msg] float32, positions [U, 2] float64 metres. For each place of each view, [V, C] int64: entry, its
    message; merged, its row in layer 1; number, its row in the layers above. Rows are sorted by level, then by view.
    Where they lie: first_view and first_column [R_1] int64, view and column [R_2]. allowed [V, M_1, C] bool: who
    attends to whom. rows [L] int64: R_1 .. R_L; widths [L + 1] int64: how many places of a view layer 1 reads, and how
    many layers 1 .. L write (M_1 .. M_L). Places that are not used hold 0 and allow nothing.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy, d = policy, policy.config.width
        self.blocks = cast(list[Block], list(policy.mast.blocks))
        self.queries, self.others = nn.ModuleList(), nn.ModuleList()
        for block in self.blocks:  # fewer rows ask than are asked
            query, other, qkv = nn.Linear(d, d), nn.Linear(d, 2 * d), block.attention.qkv
            query.load_state_dict({"weight": qkv.weight[:d], "bias": qkv.bias[:d]})
            other.load_state_dict({"weight": qkv.weight[d:], "bias": qkv.bias[d:]})
            self.queries.append(query)
            self.others.append(other)
        self.requires_grad_(False)

    def forward(
        self,
        messages: Tensor,
        positions: Tensor,
        entry: Tensor,
        merged: Tensor,
        number: Tensor,
        first_view: Tensor,
        first_column: Tensor,
        view: Tensor,
        column: Tensor,
        allowed: Tensor,
        rows: Tensor,
        widths: Tensor,
    ) -> tuple[Tensor, ...]:
        policy, heads, d = self.policy, self.policy.config.heads, self.policy.config.width
        x, added = policy.encoding.embed(policy.lift(messages), positions), None  # [U, d]
        turn = _tables(policy.encoding.rotation(positions - positions[:1]))  # [U, 1, d_a]
        weights: list[Tensor] = []
        for layer, block in enumerate(self.blocks):
            read, written, asked = widths[layer], widths[layer + 1], rows[layer]
            at_view, at_column = (first_view, first_column) if layer == 0 else (view[:asked], column[:asked])
            # What each place is below this layer, and on which rows of it this layer's rows stand.
            below = entry if layer == 0 else merged if layer == 1 else number
            itself = below.flatten().index_select(0, at_view * widths[0] + at_column)
            asking = itself.max() + 1  # rows are sorted by level, so those that ask come first
            x, h = block.before_attention(x, added)
            q = self.queries[layer](h[:asking]).reshape(-1, heads, d // heads)
            k, v = (part.reshape(-1, heads, d // heads) for part in self.others[layer](h).split(d, dim=-1))
            if turn is not None:
                q, k = _turned(q, (turn[0][:asking], turn[1][:asking])), _turned(k, turn)
                turn = turn[0].index_select(0, itself), turn[1].index_select(0, itself)
            # Of narrow views the last places have no row here: nobody there attends to them, and any row does.
            keys = below[:, :read] if layer < 2 else below[:, :read].minimum(rows[layer - 1] - 1)
            queries = below[:, :written].minimum(asking - 1)
            # [V, H, M, d_a], [V, H, d_a, K], [V, H, K, d_a]
            q, k, v = q[queries].permute(0, 2, 1, 3), k[keys].permute(0, 2, 3, 1), v[keys].permute(0, 2, 1, 3)
            score = q @ k * policy.config.head_dim**-0.5
            weight = score.where(allowed[:, None, :written, :read], _MASKED).softmax(-1)
            weights.append(weight)
            answer = (weight @ v).permute(0, 2, 1, 3).reshape(-1, d)  # [V M, d]
            answer = answer.index_select(0, at_view * written + at_column)
            x, added = block.after_attention(x.index_select(0, itself), answer)
        return policy.act(policy.mast.final(x, added)), *weights


def exact_halves(onnx: Any, file: Path) -> None:
    """Store in fp16 those large tensors of a file that lose nothing but numbers below 3e-8 by it: weights in bf16."""
    model = onnx.load(file)
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims) < _LARGE:
            continue
        name, values = tensor.name, onnx.numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        if np.abs(halves.astype(np.float32) - values).max() <= _SMALLEST:
            tensor.CopyFrom(onnx.numpy_helper.from_array(halves, f"{name}.fp16"))
            casts.append(onnx.helper.make_node("Cast", [f"{name}.fp16"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, file)


def team_functions(policy: Policy) -> dict[str, Function]:
    """`perceive` as robots have it, and `team`."""
    if not isinstance(policy, Policy) or policy.config.variant == "C":
        raise MastError("the playground runs MAST policies of variant M or L: others are not functions of what is held")
    config = policy.config
    layers, shape = config.layers, tuple(config.observation_shape)
    example = (
        torch.zeros(4, config.message_width),
        torch.arange(8, dtype=torch.float64).view(4, 2),
        torch.tensor([[0, 1, 2], [1, 3, 0]]),
        torch.tensor([[0, 2, 4], [1, 3, 0]]),
        torch.tensor([[0, 2, 0], [1, 3, 0]]),
        torch.tensor([0, 1, 0, 1, 0]),
        torch.tensor([0, 0, 1, 1, 2]),
        torch.tensor([0, 1, 0, 1]),
        torch.tensor([0, 0, 1, 1]),
        torch.ones(2, 3, 3, dtype=torch.bool),
        torch.tensor([5, *[4] * (layers - 1)]),
        torch.tensor([3, 3, *[2] * (layers - 1)]),
    )
    places, where = "int64 [V, C]: at each place of each view ", "int64 [R]: of each row of "
    inputs = {
        "messages": f"float32 [U, {config.message_width}]: the different messages that robots hold",
        "positions": "float64 [U, 2]: where each was sent, metres",
        "entry": f"{places}its message; 0 where a place is not used",
        "merged": f"{places}its row in layer 1",
        "number": f"{places}its row in the layers above",
        "first_view": f"{where}layer 1 its view",
        "first_column": f"{where}layer 1 its place there",
        "view": f"{where}layer 2 its view",
        "column": f"{where}layer 2 its place there",
        "allowed": "bool [V, M, C]: who attends to whom",
        "rows": f"int64 [{layers}]: how many rows each layer computes",
        "widths": f"int64 [{layers + 1}]: places that layer 1 reads, and that each layer writes",
    }
    outputs = {"prediction": f"float32 [n, {policy.outputs}]: {_PREDICTED[policy.outputs]}"}
    outputs |= {f"weights_{layer}": "float32 [V, H, M, K]: who attended to whom" for layer in range(1, layers + 1)}
    axes = {"messages": {0: "U"}, "positions": {0: "U"}, "prediction": {0: "n"}, "allowed": {0: "V", 1: "M", 2: "C"}}
    axes |= {name: {0: "R1"} for name in ("first_view", "first_column")} | {n: {0: "R2"} for n in ("view", "column")}
    axes |= {name: {0: "V", 1: "C"} for name in ("entry", "merged", "number")}
    axes |= {f"weights_{layer}": {0: "V", 2: f"M{layer}", 3: f"K{layer}"} for layer in range(1, layers + 1)}
    listed = ", ".join(map(str, shape))
    perceive = Function(
        Perceive(policy),
        {"features": f"float32 [R, {listed}]: what R robots sense"},
        {"message": f"float32 [R, {config.message_width}]"},
        {"features": {0: "robots"}, "message": {0: "robots"}},
        (torch.zeros(2, *shape),),
    )
    return {"perceive": perceive, "team": Function(Team(policy), inputs, outputs, axes, example)}
