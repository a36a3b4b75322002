"""Configs of another platform: those that users have are read, and what has no effect here is said in a line each."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trek.errors import ConfigError
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_ignored import IGNORED

BASE = """
name: digits
entrypoint: model_def:Digits
hyperparameters: {global_batch_size: 64, lr: 0.1}
searcher: {name: single, metric: loss, max_length: {batches: 100}}
"""


def parse(extra: str = "", *, base: str = BASE) -> ExperimentConfig:
    return ExperimentConfig.parse({**yaml.safe_load(base), **(yaml.safe_load(extra) or {})})


OLD = """
description: a search of 2020
data: {url: https://example.org/data.tar.gz}
entrypoint: model_def:Digits
batches_per_step: 50
bind_mounts: [{host_path: /data, container_path: /data, read_only: true}]
checkpoint_policy: all
checkpoint_storage: {type: shared_fs, host_path: /checkpoints, storage_path: x, propagation: rprivate}
debug: false
environment:
  image: {cpu: example/cpu, gpu: example/gpu}
  environment_variables: {cpu: [A=1], gpu: [B=2]}
  force_pull_image: false
  registry_auth: {username: somebody}
hyperparameters: {global_batch_size: {type: const, val: 32}, lr: {type: log, base: 10, minval: -4.0, maxval: -1.0}}
internal: null
max_restarts: 0
min_checkpoint_period: {batches: 0}
min_validation_period: {batches: 0}
optimizations:
  aggregation_frequency: 2
  average_aggregated_gradients: true
  auto_tune_tensor_fusion: false
  gradient_compression: false
  grad_updates_size_file: null
  mixed_precision: O0
  tensor_fusion_cycle_time: 5
  tensor_fusion_threshold: 64
records_per_epoch: 0
resources: {agent_label: "", native_parallel: false, shm_size: null, slots_per_trial: 1, weight: 1, max_slots: null}
searcher: {name: adaptive_simple, metric: loss, smaller_is_better: true, max_steps: 40, max_trials: 16, mode: standard}
security: {kerberos: {config_file: krb5.conf}}
"""
NEW = """
name: digits
workspace: Research
project: Digits
entrypoint: python3 train.py --epochs 3
environment: {image: example/image, proxy_ports: [], add_capabilities: [SYS_PTRACE], pod_spec: {spec: {}}}
hyperparameters: null
integrations: {pachyderm: {dataset: {project: x}}}
log_policies:
  - {name: ECC, pattern: ".*uncorrectable ECC.*", action: exclude_node}
  - {name: OOM, pattern: ".*out of memory.*", action: cancel_retries}
max_restarts: 0
preemption_timeout: 600
profiling: {enabled: false, sync_timings: true}
resources: {resource_pool: big, is_single_node: true, devices: [], slots_per_trial: 0}
retention_policy: {log_retention_days: 90}
searcher: {name: random, metric: loss, max_trials: 2, source_trial_id: null}
slurm: {sbatch_args: [--mem-per-cpu=10]}
tensorboard_storage: {type: shared_fs, host_path: /t}
"""


def test_a_config_of_long_ago_is_read() -> None:
    config = parse(base=OLD)
    assert config.environment.environment_variables == {"A": "1", "B": "2"}
    assert config.training.accumulate == 2
    assert config.training.validation_period is None
    assert config.searcher.length.count == 2000
    lines = config.warnings()
    assert lines[:2] == [
        "no effect here: bind_mounts (trials see the folders of their machine).",
        "no effect here: debug.",
    ]
    assert not any("internal" in line for line in lines), "a null is the default"


def test_a_config_of_the_last_version_is_read() -> None:
    config = parse(base=NEW)
    assert config.searcher.max_length is None
    assert config.resources.slots_per_trial == 1
    assert [policy.name for policy in config.log_policies] == ["OOM"]
    assert "no effect here: log_policies: exclude_node." in config.warnings()


def test_a_trial_without_a_length_trains_one_epoch_and_says_so() -> None:
    config = parse("searcher: {name: single, metric: loss}")
    assert (config.searcher.length.unit, config.searcher.length.count) == ("epochs", 1)
    assert config.warnings() == ["searcher.max_length is missing: each trial trains for 1 epoch."]


def test_what_has_no_effect_is_still_known_after_the_config_was_stored() -> None:
    config = parse("workspace: Research")
    again = ExperimentConfig.parse(config.normal_form())
    assert again == config
    assert again.warnings() == ["no effect here: workspace (use labels)."]


def test_a_budget_pays_for_about_as_many_trials_as_it_did() -> None:
    searcher = {"name": "sync_halving", "metric": "l", "num_rungs": 3, "target_trial_steps": 16, "step_budget": 48}
    config = parse(yaml.safe_dump({"searcher": {**searcher, "divisor": 4, "train_stragglers": True}}))
    # Of 16 trials, all train 1 step, 4 train 4, and 1 trains 16: 16 + 12 + 12 steps.
    assert config.searcher.model_dump()["max_trials"] == round(48 / 40 * 16)
    assert config.warnings() == ["no effect here: searcher.train_stragglers."]


@pytest.mark.parametrize("path", IGNORED, ids=".".join)
def test_every_key_without_effect_is_named_in_the_warning(path: tuple[str, ...]) -> None:
    raw = yaml.safe_load(BASE)
    holder = raw
    for key in path[:-1]:
        holder = holder.setdefault(key, {})
    holder[path[-1]] = "something"
    (line,) = ExperimentConfig.parse(raw).warnings()
    assert ".".join(path) in line


@given(
    key=st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=12),
    section=st.sampled_from(["", "resources", "environment", "optimizations"]),
)
def test_other_unknown_keys_stay_errors(key: str, section: str) -> None:
    raw: dict[str, Any] = yaml.safe_load(BASE)
    schema = ExperimentConfig.model_json_schema()
    known = {path[-1] for path in IGNORED} | set(schema["properties"]) | {"clip_norm", "slots", "slots_per_trial"}
    if key in known:
        return
    (raw.setdefault(section, {}) if section else raw)[key] = 1
    with pytest.raises(ConfigError, match="is not a known key"):
        ExperimentConfig.parse(raw)
