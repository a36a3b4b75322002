// What the searcher did: who came to which rung, who went on, and why the others did not.
import type { VNode } from "preact";
import { get } from "../lib/api";
import { count, number } from "../lib/format";
import { useQuery } from "../lib/query";
import { href } from "../lib/router";
import type { ExperimentDetails, Rung } from "../lib/types";
import { Card, Empty, Failure, Loading } from "./bits";

export function SearchView({ details }: { details: ExperimentDetails }): VNode {
  const { data, error, reload } = useQuery(`rungs ${details.id}`, () => get<Rung[]>(`/experiments/${details.id}/rungs`), { subjects: [`experiment:${details.id}`] });
  if (error) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading what="Asking the searcher" />;
  if (data.length === 0) {
    return (
      <Card title={`Searcher: ${details.searcher}`}>
        <Empty title="This searcher has no rungs">
          <p>Each of its {count(details.trials.length, "trial")} trains to its full length. Adaptive searchers (asha, adaptive_asha) stop the weaker ones early.</p>
        </Empty>
      </Card>
    );
  }
  const brackets = [...new Set(data.map((rung) => rung.bracket))];
  return (
    <>
      {brackets.map((bracket) => (
        <Card key={bracket} title={brackets.length > 1 ? `Bracket ${bracket + 1}` : `Searcher: ${details.searcher}`}>
          <div class="rungs">
            {data.filter((rung) => rung.bracket === bracket).map((rung) => <RungColumn key={rung.length} rung={rung} details={details} />)}
          </div>
        </Card>
      ))}
    </>
  );
}

function RungColumn({ rung, details }: { rung: Rung; details: ExperimentDetails }): VNode {
  const states = new Map(details.trials.map((one) => [one.id, one.state]));
  return (
    <section class="rung" aria-label={`${rung.length} ${rung.unit}`}>
      <h3>{number(rung.length)} {rung.unit}</h3>
      <p class="muted small">{rung.is_last ? "the full length" : `1 of ${number(rung.divisor)} goes on`}</p>
      <ol>
        {rung.entries.map((entry, at) => (
          <li key={entry.trial_id} class={entry.went_on ? "on" : rung.is_last ? "end" : "out"} title={why(rung, at, states.get(entry.trial_id) ?? "")}>
            <a href={href(["trials", entry.trial_id])}>trial {entry.trial_id}</a>
            <span class="num">{number(entry.metric)}</span>
            <span class="small muted">{entry.went_on ? "went on" : rung.is_last ? "finished" : states.get(entry.trial_id) === "running" ? "running" : "stopped"}</span>
          </li>
        ))}
      </ol>
      {rung.entries.length === 0 && <p class="muted small">nobody yet</p>}
    </section>
  );
}

export function why(rung: Rung, at: number, state: string): string {
  const entry = rung.entries[at]!;
  const of = rung.entries.length;
  if (entry.metric === null) return `trial ${entry.trial_id} failed or reported no finite value, so it counts as the worst`;
  if (rung.is_last) return `trial ${entry.trial_id} trained to the full length; place ${at + 1} of ${of}`;
  if (entry.went_on) return `trial ${entry.trial_id} is number ${at + 1} of ${of} here, among the best 1 of ${rung.divisor}`;
  if (state === "running" || state === "queued") return `trial ${entry.trial_id} is number ${at + 1} of ${of} so far`;
  return `trial ${entry.trial_id} was stopped here: number ${at + 1} of ${of}, and 1 of ${rung.divisor} goes on`;
}
