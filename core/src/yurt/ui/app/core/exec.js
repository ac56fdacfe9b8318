/**
 * A command in a task, over a websocket of the API. The cookie signs in; the agent checks the origin before it opens.
 *
 * Frames are JSON with base64 data. A heartbeat every ten seconds keeps proxies from closing an idle session.
 */
import { region, url } from "./api.js";

const HEARTBEAT_MS = 10000;
/** Ends of a websocket that are none of the command: the other side goes away, is gone, or starts again. */
const BROKEN = new Set([1001, 1006, 1012]);

const encode = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
const decode = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

/**
 * @param {{path: string, query: Record<string, any>, output: (text: string) => void,
 *   ended: (code: number, problem: string, isBroken: boolean) => void, opened?: () => void}} wanted `isBroken`: the
 *   connection was lost while the command ran.
 * @returns {{write: (text: string) => void, resize: (columns: number, rows: number) => void, close: () => void}}
 */
export function openExec({ path, query, output, ended, opened = () => {} }) {
  const address = new URL(url(path, { ...query, region: region.value }), location.href);
  address.protocol = address.protocol.replace("http", "ws");
  const socket = new WebSocket(address);
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let over = false;
  let isOpen = false;
  const end = (code, problem, isBroken = false) => {
    if (over) return;
    over = true;
    clearInterval(timer);
    ended(code, problem, isBroken);
  };
  const post = (frame) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(frame));
  const timer = setInterval(() => post({}), HEARTBEAT_MS);
  socket.onopen = () => {
    isOpen = true;
    opened();
  };
  socket.onmessage = (event) => {
    const frame = JSON.parse(event.data);
    for (const kind of ["stdout", "stderr"])
      if (frame[kind]?.data) output(decoders[kind].decode(decode(frame[kind].data), { stream: true }));
    if (frame.exited) {
      end(frame.result?.exit_code ?? 0, "");
      socket.close();
    }
  };
  socket.onclose = (event) => {
    const reason = event.reason
      || (event.code === 1000 ? "" : "The connection ended. The task may have stopped, or the policy forbids it.");
    end(-1, reason, isOpen && BROKEN.has(event.code));
  };
  return {
    write: (text) => post({ stdin: { data: encode(new TextEncoder().encode(text)) } }),
    resize: (columns, rows) => post({ tty_size: { width: columns, height: rows } }),
    close: () => {
      end(-1, "");
      socket.close();
    },
  };
}
