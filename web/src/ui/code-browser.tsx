// The code that ran, file by file, and how it differs from that of another experiment.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { get } from "../lib/api";
import { diffLines } from "../lib/diff";
import { bytes } from "../lib/format";
import { useQuery } from "../lib/query";
import { useParam } from "../lib/router";
import type { CodeFile, CodeText } from "../lib/types";
import { Card, Empty, Entry, Failure, Loading } from "./bits";

export function CodeBrowser({ experimentId }: { experimentId: number }): VNode {
  const files = useQuery(`files ${experimentId}`, () => get<CodeFile[]>(`/experiments/${experimentId}/files`), { subjects: null });
  const [path, setPath] = useParam("file");
  const [other, setOther] = useParam("against");
  const otherId = /^\d+$/.test(other) ? Number(other) : null;
  if (files.error) return <Failure error={files.error} retry={files.reload} />;
  if (files.data === null) return <Loading what="Unpacking the code" />;
  if (files.data.length === 0) return <Empty title="No files" />;
  const chosen = path || (files.data.find((one) => one.path.endsWith(".py")) ?? files.data[0]!).path;
  return (
    <Card
      title="Code"
      actions={
        <label class="choice">
          <span>Compare with experiment</span>
          <Entry hint="id" isNumber value={other} onEnter={setOther} />
        </label>
      }
    >
      <div class="code-browser">
        <ul class="files" aria-label="Files">
          {files.data.map((one) => (
            <li key={one.path}>
              <button class={`file${one.path === chosen ? " chosen" : ""}`} aria-current={one.path === chosen ? "true" : undefined} onClick={() => setPath(one.path)}>
                {one.path} <span class="muted small">{bytes(one.num_bytes)}</span>
              </button>
            </li>
          ))}
        </ul>
        {otherId === null ? <FileText experimentId={experimentId} path={chosen} /> : <FileDiff from={otherId} to={experimentId} path={chosen} />}
      </div>
    </Card>
  );
}

function useFile(experimentId: number, path: string) {
  return useQuery(`file ${experimentId} ${path}`, () => get<CodeText>(`/experiments/${experimentId}/file`, { path }), { subjects: null });
}

function FileText({ experimentId, path }: { experimentId: number; path: string }): VNode {
  const { data, error } = useFile(experimentId, path);
  if (error) return <Failure error={error} />;
  if (data === null) return <Loading />;
  if (!data.is_text) return <p class="muted pad">{path} is not text, or longer than 1 MiB.</p>;
  return (
    <pre class="code numbered" tabIndex={0} aria-label={path}>
      {data.text.split("\n").map((line, at) => <span key={at} class="code-line">{line}{"\n"}</span>)}
    </pre>
  );
}

function FileDiff({ from, to, path }: { from: number; to: number; path: string }): VNode {
  const before = useFile(from, path);
  const after = useFile(to, path);
  const [isWhole, setWhole] = useState(false);
  if (after.error) return <Failure error={after.error} />;
  if (after.data === null || before.isLoading) return <Loading />;
  const lines = diffLines(before.data?.text ?? "", after.data.text);
  const isSame = lines.every((line) => line.kind === "same");
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - 3), at + 4).some((line) => line.kind !== "same"));
  return (
    <div class="diff-box">
      <p class="muted small">
        {before.error ? `Experiment ${from} has no such file.` : isSame ? `The same as in experiment ${from}.` : `Changes since experiment ${from}.`}{" "}
        <button class="link" onClick={() => setWhole(!isWhole)}>{isWhole ? "Only changes" : "Whole file"}</button>
      </p>
      <pre class="code" tabIndex={0} aria-label={`Changes of ${path}`}>
        {lines.map((line, at) =>
          isWhole || near[at] ? <span key={at} class={`diff ${line.kind}`}>{line.kind === "added" ? "+" : line.kind === "removed" ? "−" : " "} {line.text}{"\n"}</span> : null,
        )}
      </pre>
    </div>
  );
}
