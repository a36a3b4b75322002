// The SharedWorker around LiveHub: each tab has a port, and says when it leaves.
import { LiveHub } from "./live-hub";

const hub = new LiveHub(() => new EventSource(new URL("../api/v1/changes/events", self.location.href)));

self.addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0]!;
  const listener = (message: unknown) => port.postMessage(message);
  port.addEventListener("message", (said: MessageEvent<string>) => {
    if (said.data === "bye") hub.remove(listener);
  });
  port.start();
  hub.add(listener);
});
