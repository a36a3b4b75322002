// The files that a trial keeps of its user's own: images as they are, everything else as downloads.
import type { VNode } from "preact";
import { address, get } from "../lib/api";
import { ago, bytes, moment } from "../lib/format";
import { useQuery } from "../lib/query";
import { useNow } from "../lib/saved";
import type { Artifact, Trial } from "../lib/types";
import { Card, Empty, Failure, Loading } from "./bits";

export function Artifacts({ trial }: { trial: Trial }): VNode {
  const now = useNow(false);
  const { data, error, reload } = useQuery(`artifacts ${trial.id}`, () => get<Artifact[]>(`/trials/${trial.id}/artifacts`), { subjects: [`metrics:${trial.id}`] });
  if (error) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading />;
  if (data.length === 0) return <Empty title="No artifacts"><p>Files that the trial logs with `log_artifact`, and evaluation reports, are shown here.</p></Empty>;
  const link = (one: Artifact) => address(`/trials/${trial.id}/artifacts/file`, { name: one.name });
  return (
    <>
      {data.filter((one) => one.content_type.startsWith("image/")).map((one) => (
        <Card key={one.name} title={one.name}>
          <img class="artifact" src={`${link(one)}&of=${one.time_s}`} alt={one.name} loading="lazy" />
        </Card>
      ))}
      <Card title="Files">
        <div class="scroll-x">
          <table class="plain-table">
            <thead><tr><th>Name</th><th>Size</th><th>Kept</th><th><span class="hidden">Actions</span></th></tr></thead>
            <tbody>
              {data.map((one) => (
                <tr key={one.name}>
                  <td><code>{one.name}</code></td>
                  <td class="num">{bytes(one.num_bytes)}</td>
                  <td><time title={moment(one.time_s)}>{ago(one.time_s, now)}</time></td>
                  <td class="row-actions"><a class="button small" href={link(one)} download={one.name.split("/").at(-1) ?? one.name}>Download</a></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Card>
    </>
  );
}
