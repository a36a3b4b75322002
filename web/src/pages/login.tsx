// Logging in to a shared master; on one's own machine `trek web` prints a link instead.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { post } from "../lib/api";
import type { Session } from "../lib/types";
import { Command } from "../ui/bits";

export function Login({ onEnter }: { onEnter: (session: Session) => void }): VNode {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    setBusy(true);
    try {
      onEnter(await post<Session>("/session", { name: form.get("name"), password: form.get("password") }));
    } catch (error) {
      setProblem((error as Error).message);
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form class="card login-card" onSubmit={submit}>
        <svg viewBox="0 0 32 32" aria-hidden="true" class="login-logo"><rect width="32" height="32" rx="7" class="brand-box" /><path d="M5 25 12.5 10l5 8.5L21 13l6 12z" class="brand-hill" /><circle cx="22.5" cy="8" r="2.5" class="brand-sun" /></svg>
        <h1>Log in to Trek</h1>
        <label class="field">
          <span>User name</span>
          <input class="input" name="name" autocomplete="username" required />
        </label>
        <label class="field">
          <span>Password</span>
          <input class="input" name="password" type="password" autocomplete="current-password" required />
        </label>
        {problem && <p class="problem" role="alert">{problem}</p>}
        <button class="button primary" disabled={isBusy}>Log in</button>
        <hr />
        <p class="muted small">On your own machine you need no password. This prints a link that logs you in:</p>
        <Command text="trek web" />
      </form>
    </main>
  );
}
