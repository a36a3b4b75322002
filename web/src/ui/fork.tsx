// A fork with an edited config, which the server checks as one types.
import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { post } from "../lib/api";
import { go, href } from "../lib/router";
import type { ConfigCheck, ExperimentDetails } from "../lib/types";
import { toYaml } from "../lib/yaml";
import { Dialog, tell, Toggle } from "./bits";

export function Fork({ details, onClose }: { details: ExperimentDetails; onClose: () => void }): VNode {
  const [text, setText] = useState(() => toYaml(details.config) + "\n");
  const [check, setCheck] = useState<ConfigCheck | null>(null);
  const [isContinued, setContinued] = useState(false);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    let isGone = false;
    const timer = setTimeout(() => {
      post<ConfigCheck>(`/experiments/${details.id}/fork/check`, { config: text }).then(
        (found) => !isGone && setCheck(found),
        (error: Error) => !isGone && setCheck({ is_valid: false, message: error.message, line: null, config: {} }),
      );
    }, 300);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [text]);
  const create = async () => {
    setBusy(true);
    try {
      const made = await post<ExperimentDetails>(`/experiments/${details.id}/fork`, { config: text, is_continued: isContinued });
      tell(`Created experiment ${made.id}.`);
      onClose();
      go(href(["experiments", made.id]));
    } catch (error) {
      setBusy(false);
      setCheck({ is_valid: false, message: (error as Error).message, line: null, config: {} });
    }
  };
  return (
    <Dialog title={`Fork experiment ${details.id}`} onClose={onClose} wide>
      <p class="muted small">The same code with the config below. It is checked as you type.</p>
      <textarea class={`input config${check && !check.is_valid ? " wrong" : ""}`} aria-label="Config as YAML" spellcheck={false} value={text} onInput={(event) => { setCheck(null); setText(event.currentTarget.value); }} />
      <p class={check === null ? "muted" : check.is_valid ? "good" : "problem"} role="status" data-testid="fork-check">
        {check === null ? "Checking …" : check.is_valid ? "This config is valid." : check.message}
      </p>
      <div class="dialog-actions">
        {details.best_trial !== null && <Toggle label="Start from the best checkpoint" value={isContinued} onChange={setContinued} />}
        <button class="button primary" disabled={isBusy || !check?.is_valid} onClick={create}>Create the fork</button>
      </div>
    </Dialog>
  );
}
