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


YEARS = {
    "0.12": """
description: mnist_pytorch_const
data: {url: https://example.org/mnist.tar.gz}
hyperparameters: {learning_rate: 1.0, global_batch_size: 64, n_filters1: 32, dropout1: 0.25}
searcher: {name: single, metric: validation_error, max_steps: 5, smaller_is_better: true}
entrypoint: model_def:MNistTrial
""",
    "0.13": """
description: a search
hyperparameters:
  global_batch_size: {type: const, val: 64}
  units: {type: int, minval: 8, maxval: 64}
  rate: {type: log, minval: -5.0, maxval: 1.0, base: 10}
searcher: {name: adaptive_simple, metric: loss, max_length: {epochs: 4}, max_trials: 16}
entrypoint: model_def:Net
bind_mounts: [{host_path: /data, container_path: /data}]
environment: {environment_variables: [NCCL_DEBUG=INFO], image: example/image}
min_validation_period: {batches: 100}
""",
    "0.17": """
name: nested
labels: [vision, test]
hyperparameters:
  global_batch_size: 64
  optimizer: {name: {type: categorical, vals: [sgd, adam]}, lr: {type: double, minval: 0.001, maxval: 0.1}}
searcher: {name: adaptive_asha, metric: loss, max_length: {batches: 937}, max_trials: 16, mode: aggressive, divisor: 4}
entrypoint: model_def:Net
resources: {slots_per_trial: 1, weight: 2, priority: 42, resource_pool: compute, agent_label: big, shm_size: 1g}
checkpoint_storage: {type: s3, bucket: weights, save_experiment_best: 1, save_trial_best: 1, save_trial_latest: 0}
checkpoint_policy: best
reproducibility: {experiment_seed: 777}
""",
    "0.21": """
name: core
entrypoint: python3 -m determined.launch.torch_distributed --nnodes=1 -- python3 train.py --epochs 2
hyperparameters: {}
searcher: {name: single, metric: x, max_length: 1}
resources: {slots_per_trial: 2, shm_size: 4294967296, devices: []}
environment: {image: {cpu: a, cuda: b, rocm: c}, drop_capabilities: [], registry_auth: {username: a}}
max_restarts: 0
""",
    "0.27": """
name: a trial with a launcher
workspace: Research
project: Digits
entrypoint: python3 -m determined.launch.horovod --autohorovod --trial model_def:Net
hyperparameters: {global_batch_size: 64}
records_per_epoch: 50000
searcher: {name: async_halving, metric: loss, max_length: {epochs: 8}, max_trials: 8, num_rungs: 3, divisor: 2}
profiling: {enabled: true, begin_on_batch: 0, end_after_batch: 100}
optimizations: {aggregation_frequency: 2, mixed_precision: O1, average_aggregated_gradients: true}
""",
    "0.38": """
name: by time
entrypoint: python3 train.py
hyperparameters: {lr: {type: log, minval: -4, maxval: -1}}
searcher: {name: adaptive_asha, metric: loss, time_metric: batches, max_time: 1000, max_trials: 8, mode: standard}
log_policies: [{name: OOM, pattern: .*CUDA out of memory.*, action: cancel_retries}]
retention_policy: {log_retention_days: 7}
integrations: {webhooks: {webhook_name: [a]}}
environment: {proxy_ports: [{proxy_port: 8265, proxy_tcp: true}]}
""",
}
"""Configs by the version of Determined that they are written for."""


@pytest.mark.parametrize("version", YEARS)
def test_configs_of_all_years_are_read(version: str) -> None:
    config = parse(base=YEARS[version])
    ignored = [line for line in config.warnings() if line.startswith("no effect here")]
    assert len(set(ignored)) == len(ignored), "one line each"
    assert bool(ignored) == (version != "0.12")
    assert ExperimentConfig.parse(config.normal_form()) == config


@pytest.mark.parametrize(
    ("entrypoint", "expected"),
    [
        ("python3 -m determined.launch.torch_distributed python3 train.py -x", ["python3", "train.py", "-x"]),
        ("python3 -m determined.launch.torch_distributed --nnodes=1 -- train.sh", ["train.sh"]),
        ("python -m determined.launch.horovod --autohorovod --trial model_def:Net", "model_def:Net"),
        ("python3 -m determined.exec.harness model_def:Net", "model_def:Net"),
        ("python3 -m determinedly.launch x y", ["python3", "-m", "determinedly.launch", "x", "y"]),
    ],
)
def test_a_launcher_is_left_out_of_an_entrypoint(entrypoint: str, expected: Any) -> None:
    config = parse(f"entrypoint: {entrypoint}")
    assert config.entrypoint == expected
    assert ("in the entrypoint" in "".join(config.warnings())) == ("determined." in entrypoint)


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
    searcher = {"name": "sync_halving", "metric": "loss", "num_rungs": 3, "target_trial_steps": 16, "step_budget": 48}
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
