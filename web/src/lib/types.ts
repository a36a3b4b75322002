// The models of the REST API that the page reads; see src/trek/client/models.py.

export type State = "queued" | "running" | "paused" | "completed" | "errored" | "killed";
export type Role = "viewer" | "editor" | "admin";
export type Level = "debug" | "info" | "warning" | "error" | "critical";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface User {
  name: string;
  role: Role;
  is_active: boolean;
  created_s: number;
}

export interface Session {
  user: User;
  csrf: string;
  version: string;
}

export interface Experiment {
  id: number;
  name: string;
  description: string;
  state: State;
  progress: number;
  metric: string;
  smaller_is_better: boolean;
  searcher: string;
  hyperparameters: JsonObject;
  best_metric: number | null;
  best_trial: number | null;
  best_hparams: JsonObject;
  num_trials: number;
  labels: string[];
  owner: string;
  is_archived: boolean;
  parent: number | null;
  error: string;
  failure: string;
  created_s: number;
  started_s: number | null;
  ended_s: number | null;
}

export interface Trial {
  id: number;
  experiment_id: number;
  key: number;
  state: State;
  hparams: JsonObject;
  seed: number;
  progress: number;
  batches: number;
  length: Record<string, number>;
  slots: number;
  restarts: number;
  run: number;
  best_metric: number | null;
  latest_metrics: Record<string, number>;
  checkpoint: string | null;
  waiting: string;
  error: string;
  traceback: string;
  failure: string;
  created_s: number;
  started_s: number | null;
  ended_s: number | null;
}

export interface ExperimentDetails extends Experiment {
  config: JsonObject;
  archive: string;
  provenance: JsonObject;
  trials: Trial[];
  warnings: string[];
}

export interface Curve {
  trial_id: number;
  batches: number[];
  epochs: number[];
  times: number[];
  /** Null where a value is not finite. */
  values: (number | null)[];
  num_undefined: number;
}

export interface MetricNames {
  group: string;
  names: string[];
}

export interface Artifact {
  name: string;
  num_bytes: number;
  time_s: number;
  content_type: string;
}

export interface Checkpoint {
  uuid: string;
  trial_id: number;
  experiment_id: number;
  batches: number;
  path: string;
  num_bytes: number;
  metrics: Record<string, number | null>;
  time_s: number;
  is_deleted: boolean;
}

export interface LogLine {
  id: number;
  trial_id: number;
  rank: number;
  run: number;
  time_s: number;
  level: Level;
  text: string;
}

export interface LogOutline {
  count: number;
  step: number;
  anchors: number[];
  tracebacks: number[];
}

export interface Rung {
  bracket: number;
  length: number;
  unit: string;
  divisor: number;
  is_last: boolean;
  entries: { trial_id: number; metric: number | null; went_on: boolean }[];
}

export interface CodeFile {
  path: string;
  num_bytes: number;
}

export interface CodeText extends CodeFile {
  text: string;
  is_text: boolean;
}

export interface ConfigCheck {
  is_valid: boolean;
  message: string;
  line: number | null;
  config: JsonObject;
}

export interface TrialEvent {
  id: number;
  time_s: number;
  run: number;
  kind: string;
  text: string;
}

export interface WorkerChange {
  run: number;
  time_s: number;
  generation: number;
  worker: number | null;
  text: string;
  num_workers: number;
}

export interface Job {
  trial_id: number;
  experiment_id: number;
  name: string;
  state: State;
  slots: number;
  priority: number;
  weight: number;
  waiting: string;
}

export interface Cluster {
  version: string;
  pid: number;
  slots: number;
  free_slots: number;
  running_trials: number;
  queued_trials: number;
  active_experiments: number;
}

export interface RegisteredModel {
  name: string;
  description: string;
  owner: string;
  created_s: number;
  versions: { number: number; checkpoint: string; notes: string; created_s: number }[];
}

export interface Token {
  id: number;
  description: string;
  created_s: number;
  expires_s: number;
  token: string;
}

export interface FlowRun {
  id: string;
  flow: string;
  state: string;
  owner: string;
  params: JsonObject;
  source: string | null;
  started_s: number;
  ended_s: number | null;
  num_steps: Record<string, number>;
  error: string;
}

export interface FlowStep {
  name: string;
  state: string;
  attempt: number;
  seconds: number | null;
  reason: string | null;
  error: string | null;
}

export interface FlowRunDetails extends FlowRun {
  graph: { name: string; after: string[] }[];
  steps: FlowStep[];
}

export interface FlowSummary {
  name: string;
  num_runs: number;
  last_run: FlowRun;
}

export const ENDED: readonly State[] = ["completed", "errored", "killed"];
