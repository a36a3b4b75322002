// The registry: models and their versions.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { get, post, remove } from "../lib/api";
import { ago, count, moment } from "../lib/format";
import { useQuery } from "../lib/query";
import { useNow } from "../lib/saved";
import type { RegisteredModel } from "../lib/types";
import { mayChange, mayCreate, useUser } from "../lib/user";
import { act, Card, Command, Dialog, Empty, Failure, Loading } from "../ui/bits";
import { Markdown } from "../ui/markdown";

export function ModelsPage(): VNode {
  const user = useUser();
  const now = useNow();
  const { data, error, reload } = useQuery("models", () => get<RegisteredModel[]>("/models"));
  const [isAdding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState<RegisteredModel | null>(null);
  if (error && data === null) return <Failure error={error} retry={reload} />;
  if (data === null) return <Loading what="Loading the models" />;
  return (
    <>
      <header class="page-head">
        <div class="title-row">
          <h1>Models</h1>
          <div class="actions">{mayCreate(user) && <button class="button primary" onClick={() => setAdding(true)}>New model</button>}</div>
        </div>
      </header>
      {data.length === 0 && (
        <Empty title="No models are registered">
          <p>A model is a name under which checkpoints have version numbers. Register one on a trial's page, or with:</p>
          <Command text="trek model register my-model CHECKPOINT" />
        </Empty>
      )}
      {data.map((model) => (
        <Card key={model.name} title={model.name} actions={<><span class="muted small">{model.owner} · {count(model.versions.length, "version")}</span>{mayChange(user, model.owner) && <button class="button small danger" onClick={() => setDeleting(model)}>Delete</button>}</>}>
          {model.description && <Markdown text={model.description} />}
          {model.versions.length > 0 && (
            <div class="scroll-x">
              <table class="plain-table">
                <thead><tr><th>Version</th><th>Checkpoint</th><th>Notes</th><th>Registered</th><th><span class="hidden">Actions</span></th></tr></thead>
                <tbody>
                  {model.versions.map((version) => (
                    <tr key={version.number}>
                      <td class="strong">{version.number}</td>
                      <td><code>{version.checkpoint.slice(0, 16)}</code></td>
                      <td class="break">{version.notes}</td>
                      <td><time title={moment(version.created_s)}>{ago(version.created_s, now)}</time></td>
                      <td class="row-actions"><a class="button small" href={`api/v1/checkpoints/${encodeURIComponent(version.checkpoint)}/files`} download={`${model.name}-${version.number}.tar`}>Download</a></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Card>
      ))}
      {isAdding && (
        <Dialog title="New model" onClose={() => setAdding(false)}>
          <form onSubmit={async (event) => {
            event.preventDefault();
            const form = new FormData(event.currentTarget);
            if (await act(() => post("/models", { name: form.get("name"), description: form.get("description") }), "Created.")) { setAdding(false); reload(); }
          }}>
            <label class="field"><span>Name</span><input class="input" name="name" required autofocus pattern="[A-Za-z0-9][A-Za-z0-9 ._\-]*" /></label>
            <label class="field"><span>Description, in Markdown</span><textarea class="input" name="description" /></label>
            <div class="dialog-actions"><button class="button primary">Create</button></div>
          </form>
        </Dialog>
      )}
      {deleting && (
        <Dialog title={`Delete ${deleting.name}?`} onClose={() => setDeleting(null)}>
          <p>Its versions are forgotten; the checkpoints stay until their experiments are deleted or keep fewer.</p>
          <div class="dialog-actions"><button class="button danger" onClick={() => { const { name } = deleting; setDeleting(null); void act(() => remove(`/models/${encodeURIComponent(name)}`), "Deleted.").then(reload); }}>Delete</button></div>
        </Dialog>
      )}
    </>
  );
}
