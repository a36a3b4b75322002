// Users, for admins, and everybody's own tokens and password.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { get, patch, post, remove } from "../lib/api";
import { ago, moment } from "../lib/format";
import { useQuery } from "../lib/query";
import { useNow } from "../lib/saved";
import type { Role, Token, User } from "../lib/types";
import { useUser } from "../lib/user";
import { act, Card, Choice, Command, Dialog, Empty, Failure, Loading } from "../ui/bits";

const ROLES = [["viewer", "viewer"], ["editor", "editor"], ["admin", "admin"]] as const;

export function UsersPage(): VNode {
  const me = useUser();
  const users = useQuery("users", () => get<User[]>("/users"));
  const isUser = users.data?.some((one) => one.name === me.name) ?? false;
  if (users.error && users.data === null) return <Failure error={users.error} retry={users.reload} />;
  if (users.data === null) return <Loading what="Loading the users" />;
  return (
    <>
      <header class="page-head"><h1>Users and tokens</h1></header>
      <UserList me={me} users={users.data} reload={users.reload} />
      {isUser ? <><Tokens /><OwnPassword me={me} /></> : (
        <Card title="Tokens">
          <p class="muted">You own this home, and need neither a password nor tokens. Users of a shared master have their own:</p>
          <Command text="trek token create --description ci" />
        </Card>
      )}
    </>
  );
}

function UserList({ me, users, reload }: { me: User; users: User[]; reload: () => void }): VNode {
  const [isAdding, setAdding] = useState(false);
  const isAdmin = me.role === "admin";
  const now = useNow(false);
  const change = (user: User, body: Partial<User>) => act(() => patch(`/users/${encodeURIComponent(user.name)}`, body), "Changed.").then(reload);
  return (
    <Card title="Users" actions={isAdmin && <button class="button small primary" onClick={() => setAdding(true)}>Add a user</button>}>
      {users.length === 0 ? <Empty title="No users"><p>A master that others can reach needs users; on your own machine there is nothing to do.</p></Empty> : (
        <div class="scroll-x">
          <table class="plain-table">
            <thead><tr><th>Name</th><th>Role</th><th>May log in</th><th>Since</th></tr></thead>
            <tbody>
              {users.map((user) => (
                <tr key={user.name}>
                  <td class="strong">{user.name}{user.name === me.name ? " (you)" : ""}</td>
                  <td>{isAdmin && user.name !== me.name ? <Choice label={`Role of ${user.name}`} isHidden value={user.role} options={ROLES} onChange={(role: Role) => void change(user, { role })} /> : user.role}</td>
                  <td>{isAdmin && user.name !== me.name ? <button class="button small" onClick={() => void change(user, { is_active: !user.is_active })}>{user.is_active ? "Yes: deactivate" : "No: activate"}</button> : user.is_active ? "yes" : "no"}</td>
                  <td><time title={moment(user.created_s)}>{ago(user.created_s, now)}</time></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {isAdding && (
        <Dialog title="Add a user" onClose={() => setAdding(false)}>
          <form onSubmit={async (event) => {
            event.preventDefault();
            const form = new FormData(event.currentTarget);
            if (await act(() => post("/users", { name: form.get("name"), password: form.get("password"), role: form.get("role") }), "Added.")) { setAdding(false); reload(); }
          }}>
            <label class="field"><span>Name</span><input class="input" name="name" required autofocus autocomplete="off" /></label>
            <label class="field"><span>Password, at least 8 characters</span><input class="input" name="password" type="password" minLength={8} required autocomplete="new-password" /></label>
            <label class="field"><span>Role</span><select class="input" name="role">{ROLES.map(([id]) => <option key={id} value={id} selected={id === "editor"}>{id}</option>)}</select></label>
            <div class="dialog-actions"><button class="button primary">Add</button></div>
          </form>
        </Dialog>
      )}
    </Card>
  );
}

function Tokens(): VNode {
  const now = useNow();
  const { data, error, reload } = useQuery("tokens", () => get<Token[]>("/tokens"));
  const [made, setMade] = useState<Token | null>(null);
  return (
    <Card title="Your tokens">
      {error && <Failure error={error} retry={reload} />}
      <form class="toolbar" onSubmit={async (event) => {
        event.preventDefault();
        const form = event.currentTarget;
        const description = String(new FormData(form).get("description"));
        await act(async () => setMade(await post<Token>("/tokens", { description })));
        form.reset();
        reload();
      }}>
        <input class="input" name="description" placeholder="What is the token for?" aria-label="What is the token for?" required />
        <button class="button">Create a token</button>
      </form>
      <div class="scroll-x">
        <table class="plain-table">
          <thead><tr><th>Description</th><th>Created</th><th>Expires</th><th><span class="hidden">Actions</span></th></tr></thead>
          <tbody>
            {(data ?? []).map((token) => (
              <tr key={token.id}>
                <td>{token.description || "–"}</td>
                <td><time title={moment(token.created_s)}>{ago(token.created_s, now)}</time></td>
                <td>{moment(token.expires_s)}</td>
                <td class="row-actions"><button class="button small danger" onClick={() => act(() => remove(`/tokens/${token.id}`), "Revoked.").then(reload)}>Revoke</button></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {made && (
        <Dialog title="Your new token" onClose={() => setMade(null)}>
          <p>It is shown only now. Set it as <code>TREK_TOKEN</code>.</p>
          <Command text={made.token} />
        </Dialog>
      )}
    </Card>
  );
}

function OwnPassword({ me }: { me: User }): VNode {
  return (
    <Card title="Your password">
      <form class="toolbar" onSubmit={async (event) => {
        event.preventDefault();
        const target = event.currentTarget;
        const form = new FormData(target);
        if (await act(() => patch(`/users/${encodeURIComponent(me.name)}`, { old_password: form.get("old"), password: form.get("new") }), "Changed. Log in again.")) location.reload();
      }}>
        <input class="input" name="old" type="password" placeholder="Present password" aria-label="Present password" required autocomplete="current-password" />
        <input class="input" name="new" type="password" minLength={8} placeholder="New password" aria-label="New password" required autocomplete="new-password" />
        <button class="button">Change</button>
      </form>
    </Card>
  );
}
