// The frame: who is logged in, navigation, the page of the present place, the command palette.
import type { VNode } from "preact";
import { lazy } from "./lib/lazy";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { ApiError, get, post, remove, useSession, whenLoggedOut } from "./lib/api";
import { onConnection, startLive, stopLive } from "./lib/live";
import { go, href, parsePlace, usePlace, type Place } from "./lib/router";
import { onOutdated } from "./lib/query";
import { applyTheme, load, save, type Theme } from "./lib/saved";
import { UserContext } from "./lib/user";
import type { Session } from "./lib/types";
import { act, Empty, Failure, Loading, Messages } from "./ui/bits";
import { Palette, useShortcuts } from "./ui/palette";
import { Experiments, preloadExperiments } from "./pages/experiments";
import { Login } from "./pages/login";

const Experiment = lazy(() => import("./pages/experiment").then((page) => page.ExperimentPage));
const TrialView = lazy(() => import("./pages/trial").then((page) => page.TrialPage));
const Compare = lazy(() => import("./pages/compare").then((page) => page.ComparePage));
const Flows = lazy(() => import("./pages/flows").then((page) => page.FlowsPage));
const FlowRun = lazy(() => import("./pages/flow-run").then((page) => page.FlowRunPage));
const Models = lazy(() => import("./pages/models").then((page) => page.ModelsPage));
const Cluster = lazy(() => import("./pages/cluster").then((page) => page.ClusterPage));
const Users = lazy(() => import("./pages/users").then((page) => page.UsersPage));

const BY_PATH: Record<string, { preload: () => void }> = { trials: TrialView, compare: Compare, flows: Flows, models: Models, cluster: Cluster, users: Users };

/** Fetches the script of the page that will be opened while the session is still being asked for. */
function preloadScript(place: Place): void {
  const parts = place.parts[0] === "login" ? parsePlace(`#${place.query.get("to") ?? "/"}`).parts : place.parts;
  if (parts[0] === "experiments" && parts.length > 1) Experiment.preload();
  else if (parts[0]) BY_PATH[parts[0]]?.preload();
}

/** Asks for what the list will show before the frame around it is drawn. */
function preloadData(): void {
  const parts = parsePlace(location.hash).parts;
  if (parts.length === 0 || (parts.length === 1 && parts[0] === "experiments")) preloadExperiments();
}

export const NAVIGATION = [
  { path: "experiments", title: "Experiments", key: "e", icon: "M3 17 8 9l4 5 3-4 6 7z" },
  { path: "flows", title: "Flows", key: "f", icon: "M4 6h6v4H4zM14 4h6v4h-6zM14 15h6v4h-6zM10 8h2v9h2v-1h-1V7h1V6h-2z" },
  { path: "models", title: "Models", key: "m", icon: "M12 3 4 7v10l8 4 8-4V7zm0 2.2L17.5 8 12 10.8 6.5 8z" },
  { path: "cluster", title: "Cluster", key: "c", icon: "M4 5h16v4H4zM4 10h16v4H4zM4 15h16v4H4z" },
  { path: "users", title: "Users", key: "u", icon: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm-8 8c0-4 3.6-6 8-6s8 2 8 6z" },
] as const;

export function App(): VNode {
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [failure, setFailure] = useState<Error | null>(null);
  const enter = (next: Session | null) => {
    useSession(next);
    setSession(next);
    if (next) startLive();
    else stopLive();
  };
  // Before the first paint: what is asked for now is there sooner.
  useLayoutEffect(() => {
    whenLoggedOut(() => enter(null));
    preloadScript(parsePlace(location.hash));
    openSession().then(enter, setFailure);
  }, []);
  if (failure) return <main class="login"><Failure error={failure} retry={() => location.reload()} /></main>;
  if (session === undefined) return <Loading what="Connecting" />;
  if (session === null) return <><Login onEnter={enter} /><Messages /></>;
  return (
    <UserContext.Provider value={session.user}>
      <Frame session={session} onLeave={() => enter(null)} />
    </UserContext.Provider>
  );
}

/** The session of the link that brought the reader here, else of the cookie; null if there is neither. */
async function openSession(): Promise<Session | null> {
  const place = parsePlace(location.hash);
  const code = place.parts[0] === "login" ? place.query.get("code") : null;
  if (code) {
    const target = place.query.get("to") ?? "/";
    go(target.startsWith("/") ? target : "/", { replace: true }); // the code must not stay in the address
    try {
      const session = await post<Session>("/session", { code });
      preloadData();
      return session;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 403) throw error;
    }
  }
  preloadData();
  try {
    return await get<Session>("/session");
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

function Frame({ session, onLeave }: { session: Session; onLeave: () => void }): VNode {
  const place = usePlace();
  const [isMenuOpen, setMenuOpen] = useState(false);
  const [isConnected, setConnected] = useState(true);
  const [theme, setTheme] = useState<Theme>(() => load<Theme>("theme", "system"));
  const [isPaletteOpen, setPaletteOpen] = useShortcuts();
  const [outdated, setOutdated] = useState<Error | null>(null);
  useEffect(() => onConnection(setConnected), []);
  useEffect(() => onOutdated(setOutdated), []);
  useEffect(() => {
    setMenuOpen(false);
    document.title = titleOf(place);
  }, [place.path]);
  const changeTheme = () => {
    const next: Theme = theme === "dark" ? "light" : theme === "light" ? "system" : "dark";
    save("theme", next);
    applyTheme(next);
    setTheme(next);
  };
  const leave = () => act(() => remove("/session")).then((isDone) => isDone && onLeave());
  return (
    <div class="frame">
      <nav class={`side${isMenuOpen ? " open" : ""}`} aria-label="Main">
        <a class="skip" href={`#${place.path}`} onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>
          Skip to content
        </a>
        <a class="brand" href="#/experiments">
          <svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" class="brand-box" /><path d="M5 25 12.5 10l5 8.5L21 13l6 12z" class="brand-hill" /><circle cx="22.5" cy="8" r="2.5" class="brand-sun" /></svg>
          Trek
        </a>
        <ul>
          {NAVIGATION.map((one) => (
            <li key={one.path}>
              <a href={`#/${one.path}`} aria-current={isAt(place, one.path) ? "page" : undefined}>
                <svg viewBox="0 0 24 24" aria-hidden="true"><path d={one.icon} /></svg>
                {one.title}
              </a>
            </li>
          ))}
        </ul>
        <div class="side-foot">
          <button class="side-button" onClick={() => setPaletteOpen(true)}>
            Search <kbd>Ctrl K</kbd>
          </button>
          <button class="side-button" onClick={changeTheme}>Theme: {theme}</button>
          <a class="side-button" href="docs" target="_blank" rel="noopener">REST API</a>
          <div class="who">
            <span>
              {session.user.name} <span class="muted">({session.user.role})</span>
            </span>
            <button class="link" onClick={leave}>Log out</button>
          </div>
          <span class="muted small">Trek {session.version}</span>
        </div>
      </nav>
      <header class="top">
        <button class="button ghost" aria-label="Menu" aria-expanded={isMenuOpen} onClick={() => setMenuOpen(!isMenuOpen)}>☰</button>
        <strong>Trek</strong>
        <button class="button ghost" aria-label="Search" onClick={() => setPaletteOpen(true)}>⌕</button>
      </header>
      <main id="content" tabIndex={-1}>
        {!isConnected && (
          <div class="banner" role="status">
            The connection is interrupted. The page catches up when it is back; if the control plane ended, run <code>trek web</code>.
          </div>
        )}
        {isConnected && outdated && <div class="banner" role="status">What is shown may be out of date. {outdated.message}</div>}
        <Page place={place} />
      </main>
      {isPaletteOpen && <Palette onClose={() => setPaletteOpen(false)} />}
      <Messages />
    </div>
  );
}

function Page({ place }: { place: Place }): VNode {
  const [first, second, third] = place.parts;
  const id = Number(second);
  switch (first) {
    case undefined:
    case "login":
      return <Experiments />;
    case "experiments":
      return second === undefined ? <Experiments /> : <Experiment key={id} id={id} />;
    case "trials":
      return <TrialView key={id} id={id} />;
    case "compare":
      return <Compare />;
    case "flows":
      return second !== undefined && third !== undefined ? <FlowRun key={place.path} flow={second} run={third} /> : <Flows key={second ?? ""} flow={second ?? null} />;
    case "models":
      return <Models />;
    case "cluster":
      return <Cluster />;
    case "users":
      return <Users />;
    default:
      return (
        <Empty title="There is no such page">
          <p>The address may be mistyped. <a href={href(["experiments"])}>All experiments</a></p>
        </Empty>
      );
  }
}

function isAt(place: Place, path: string): boolean {
  const first = place.parts[0] ?? "experiments";
  return first === path || (path === "experiments" && (first === "trials" || first === "compare"));
}

function titleOf(place: Place): string {
  const [first, second] = place.parts;
  const noun = first ? first.charAt(0).toUpperCase() + first.slice(1) : "Experiments";
  return `${second ? `${noun.replace(/s$/, "")} ${second}` : noun} · Trek`;
}
