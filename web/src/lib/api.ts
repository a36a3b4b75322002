// The REST API as typed calls. It is the only file that fetches; errors say what to do.
import type { Session } from "./types";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

let csrf = "";
let onLoggedOut: () => void = () => {};

export function useSession(session: Session | null): void {
  csrf = session?.csrf ?? "";
}

/** Called when the server no longer knows the session. */
export function whenLoggedOut(callback: () => void): void {
  onLoggedOut = callback;
}

export type Query = Record<string, string | number | boolean | null | undefined>;

/** The address of a route. Relative, so that it works under any prefix. */
export function address(path: string, query: Query = {}): string {
  const entries = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(entries.map(([key, value]) => [key, String(value)])).toString();
  return `api/v1${path}${text ? `?${text}` : ""}`;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await send("GET", address(path, query), undefined, signal)).json() as Promise<T>;
}

/** A page of a list, and where the next one begins. */
export async function getPage<T>(path: string, query: Query = {}): Promise<{ items: T[]; next: string | null }> {
  const reply = await send("GET", address(path, query));
  return { items: (await reply.json()) as T[], next: reply.headers.get("x-next-cursor") };
}

export async function post<T>(path: string, body?: unknown): Promise<T> {
  return read<T>(await send("POST", address(path), body));
}

export async function patch<T>(path: string, body: unknown): Promise<T> {
  return read<T>(await send("PATCH", address(path), body));
}

export async function remove(path: string): Promise<void> {
  await send("DELETE", address(path));
}

async function read<T>(reply: Response): Promise<T> {
  const text = await reply.text();
  return (text ? JSON.parse(text) : null) as T;
}

async function send(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = {};
  if (method !== "GET") headers["x-trek-csrf"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  const init: RequestInit = { method, headers, cache: "no-cache", credentials: "same-origin" };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (signal) init.signal = signal;
  let reply: Response;
  try {
    reply = await fetch(url, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The control plane does not answer. If it ended, run `trek web` for a new link.");
  }
  if (!reply.ok) throw await failure(reply, url);
  return reply;
}

async function failure(reply: Response, url: string): Promise<ApiError> {
  if (reply.status === 401 && !url.startsWith("api/v1/session")) onLoggedOut();
  try {
    const { message } = (await reply.json()) as { message: string };
    return new ApiError(reply.status, sentence(message));
  } catch {
    return new ApiError(reply.status, `The control plane answered ${reply.status}.`);
  }
}

export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
