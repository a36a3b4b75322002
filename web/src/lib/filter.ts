// The search box of lists: words, and conditions such as `state:running lr>0.01 best<0.3 owner:ann`.
import { flatten } from "./flatten";
import type { Experiment, Json } from "./types";

export interface Condition {
  name: string;
  operator: ":" | "=" | "!=" | "<" | "<=" | ">" | ">=";
  value: string;
}

export interface Search {
  words: string[];
  conditions: Condition[];
}

const CONDITION = /^([\w.\-]+)(!=|<=|>=|:|=|<|>)(.+)$/;

export function parseSearch(text: string): Search {
  const search: Search = { words: [], conditions: [] };
  for (const part of text.match(/[^\s"]*"[^"]*"|\S+/g) ?? []) {
    const found = CONDITION.exec(part);
    if (found) {
      const value = found[3]!.replaceAll('"', "");
      search.conditions.push({ name: found[1]!, operator: found[2] as Condition["operator"], value });
    } else {
      search.words.push(part.replaceAll('"', "").toLowerCase());
    }
  }
  return search;
}

export function matches(experiment: Experiment, search: Search): boolean {
  const text = `${experiment.id} ${experiment.name} ${experiment.description} ${experiment.labels.join(" ")} ${experiment.owner}`;
  const lower = text.toLowerCase();
  return (
    search.words.every((word) => lower.includes(word)) &&
    search.conditions.every((condition) => fulfils(fieldOf(experiment, condition.name), condition))
  );
}

/** A field by its name: of the experiment, or a hyperparameter of its best trial or config. */
export function fieldOf(experiment: Experiment, name: string): Json | undefined {
  const own: Record<string, Json> = {
    id: experiment.id,
    name: experiment.name,
    state: experiment.state,
    owner: experiment.owner,
    label: experiment.labels,
    labels: experiment.labels,
    searcher: experiment.searcher,
    metric: experiment.metric,
    progress: experiment.progress * 100,
    best: experiment.best_metric,
    trials: experiment.num_trials,
    archived: experiment.is_archived,
    duration: experiment.started_s === null ? null : (experiment.ended_s ?? Date.now() / 1000) - experiment.started_s,
  };
  if (name in own) return own[name];
  if (name === experiment.metric) return experiment.best_metric;
  return hyperparameter(experiment.best_hparams, name) ?? hyperparameter(experiment.hyperparameters, name);
}

function hyperparameter(params: Experiment["hyperparameters"], name: string): Json | undefined {
  const flat = flatten(params);
  return flat.get(name) ?? [...flat].find(([key]) => key.endsWith(`.${name}`) || key === `${name}.val`)?.[1];
}

function fulfils(field: Json | undefined, { operator, value }: Condition): boolean {
  if (field === undefined || field === null) return operator === "!=";
  const wanted = Number(value);
  if (operator === "<" || operator === "<=" || operator === ">" || operator === ">=") {
    if (typeof field !== "number" || Number.isNaN(wanted)) return false;
    return { "<": field < wanted, "<=": field <= wanted, ">": field > wanted, ">=": field >= wanted }[operator];
  }
  const texts = (Array.isArray(field) ? field : [field]).map((one) => String(one).toLowerCase());
  const isEqual = texts.includes(value.toLowerCase()) || (typeof field === "number" && field === wanted);
  if (operator === "!=") return !isEqual;
  return isEqual || (operator === ":" && texts.some((one) => one.includes(value.toLowerCase())));
}
