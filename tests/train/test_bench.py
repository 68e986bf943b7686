"""What a benchmark of training says of the time on a GPU."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from mast_swarm.train.bench import _by_kind, _told_milliseconds
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.trainer import RunOptions, Trainer


def test_kernels_are_summed_by_kind() -> None:
    found = _by_kind(
        {
            "_forward_whole": 30.0,
            "_backward_whole": 50.0,
            "nvjet_sm90_tst_128x256_64x4_2x4_h_bz_coopA_NNN": 120.0,
            "void cublasLt::splitKreduce_kernel<32, 16, int>": 40.0,
            "triton_per_fused__to_copy_add_native_layer_norm_backward_view_12": 90.0,
            "triton_poi_fused_leaky_relu_view_4": 50.0,
            "sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16": 7.0,
            "void at::native::multi_tensor_apply_kernel<Adam>": 75.0,
            "triton_poi_fused__to_copy_11": 20.0,
            "Memset (Unknown)": 11.0,
        }
    )
    assert list(found) == [
        "products", "norms", "attention", "optimiser", "activations", "convolutions", "casts, sums and copies",
    ]  # fmt: skip
    assert found["products"] == 160 and found["attention"] == 80 and found["casts, sums and copies"] == 31
    assert sum(found.values()) == pytest.approx(493)
    assert _by_kind({}) == {}


def test_the_expert_has_what_it_asks_for_when_robots_have_sensed(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(small, RunOptions(tmp_path, torch.device("cpu")))
    collector = trainer.collector
    look, wait = type(collector).look, type(collector).wait
    monkeypatch.setattr(type(collector), "look", lambda self, keep=True: (time.sleep(0.02), look(self, keep)))
    assert 20 <= (_told_milliseconds(trainer) or 0) < 500
    assert collector.look.__func__ is not look and collector.wait.__func__ is wait  # as they were before
