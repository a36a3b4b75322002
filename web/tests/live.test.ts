import { describe, expect, it } from "vitest";
import { concerns } from "../src/lib/live";
import { LiveHub, type LiveMessage } from "../src/lib/live-hub";
import { ApiError } from "../src/lib/api";
import { afterFailure, onOutdated, Runner, setOutdated } from "../src/lib/query";

class FakeSource {
  readyState = 1;
  isClosed = false;
  private callbacks = new Map<string, (event: MessageEvent<string>) => void>();
  addEventListener(name: string, callback: (event: MessageEvent<string>) => void): void {
    this.callbacks.set(name, callback);
  }
  close(): void {
    this.isClosed = true;
  }
  send(name: string, data: unknown = null): void {
    this.callbacks.get(name)?.({ data: JSON.stringify(data) } as MessageEvent<string>);
  }
}

describe("the hub", () => {
  const make = () => {
    const sources: FakeSource[] = [];
    const waiting: (() => void)[] = [];
    const hub = new LiveHub(() => sources[sources.push(new FakeSource()) - 1]!, (callback) => void waiting.push(callback));
    return { hub, sources, waiting };
  };
  it("has one connection for any number of tabs, and none without", () => {
    const { hub, sources } = make();
    const tabs = [() => {}, () => {}, () => {}];
    tabs.forEach((tab) => hub.add(tab));
    expect(sources.length).toBe(1);
    tabs.forEach((tab) => hub.remove(tab));
    expect(sources[0]!.isClosed).toBe(true);
    hub.add(tabs[0]!);
    expect(sources.length).toBe(2);
  });
  it("tells every tab, and a late one that it may have missed something", () => {
    const { hub, sources } = make();
    const first: LiveMessage[] = [];
    const late: LiveMessage[] = [];
    hub.add((message) => first.push(message));
    sources[0]!.send("change", { subjects: ["metrics:1"] });
    hub.add((message) => late.push(message));
    expect(first).toContainEqual({ kind: "change", subjects: ["metrics:1"] });
    expect(late).toContainEqual({ kind: "change", subjects: null });
    sources[0]!.send("change", { subjects: ["metrics:2"] });
    expect(late.at(-1)).toEqual({ kind: "change", subjects: ["metrics:2"] });
  });
  it("connects again after a refusal, and leaves a mere interruption to the browser", () => {
    const { hub, sources, waiting } = make();
    const states: LiveMessage[] = [];
    hub.add((message) => states.push(message));
    sources[0]!.send("open");
    sources[0]!.send("error");
    expect(states.at(-1)).toEqual({ kind: "state", isOpen: false });
    expect(waiting.length).toBe(0);
    sources[0]!.readyState = 2;
    sources[0]!.send("error");
    waiting.splice(0).forEach((callback) => callback());
    expect(sources.length).toBe(2);
  });
});

describe("interests", () => {
  it.each([
    [["metrics:1"], ["metrics:1", "logs:2"], true],
    [["metrics:1"], ["metrics:11"], false],
    [["logs:"], ["logs:9"], true],
    [["logs:"], ["metrics:9"], false],
    [[], ["logs:9"], true],
    [[], [], false],
    [["metrics:1"], null, true],
  ] as [string[], string[] | null, boolean][])("%j of %j: %s", (wanted, changed, expected) => {
    expect(concerns(wanted, changed)).toBe(expected);
  });
});

describe("fetching", () => {
  it("a change during a fetch is fetched after it, once", async () => {
    let runs = 0;
    const release: (() => void)[] = [];
    const runner = new Runner(() => new Promise((done) => { runs += 1; release.push(() => done()); }), 0, (callback) => callback());
    runner.request();
    runner.request();
    runner.request();
    expect(runs).toBe(1);
    release[0]!();
    await new Promise((done) => setTimeout(done, 0));
    expect(runs).toBe(2);
    release[1]!();
    await new Promise((done) => setTimeout(done, 0));
    expect(runs).toBe(2);
    runner.stop();
    runner.request();
    expect(runs).toBe(2);
  });
});

describe("a failure to fetch again", () => {
  it("leaves what was there, unless it is gone", () => {
    expect(afterFailure("old", new ApiError(500, "broken"))).toBe("old");
    expect(afterFailure("old", new ApiError(0, "no answer"))).toBe("old");
    expect(afterFailure("old", new ApiError(404, "not found"))).toBe(null);
  });
  it("is reported until every query is up to date again", () => {
    const seen: (string | null)[] = [];
    const stop = onOutdated((error) => seen.push(error && error.message));
    const [first, second] = [{}, {}];
    setOutdated(first, null);
    setOutdated(first, new Error("a"));
    setOutdated(second, new Error("b"));
    setOutdated(first, null);
    setOutdated(second, null);
    stop();
    setOutdated(first, new Error("unheard"));
    setOutdated(first, null);
    expect(seen).toEqual(["a", "a", "b", null]);
  });
});
