/** The shared worker: one hub of live updates for all pages of this browser. */
import { Hub } from "./hub.js";

const hub = new Hub();

/** @type {any} */ (self).onconnect = (event) => {
  const port = event.ports[0];
  hub.add(port, (message) => port.postMessage(message));
  port.onmessage = (message) => (message.data === "bye" ? hub.drop(port) : hub.receive(port, message.data));
  port.start();
};
