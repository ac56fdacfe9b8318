/** The files of an allocation or a task: folders, previews of text and images, download. Contents are shown as text, never run. */
import { html, useEffect, useState } from "../../../vendor/preact.js";
import { get, send, url } from "../../core/api.js";
import { bytes, command, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { query, setQuery } from "../../core/router.js";
import { Command } from "../../parts/copy.js";
import { Empty, Loaded, Time } from "../../parts/page.js";
import { LocalTable } from "../../parts/table.js";

const PREVIEW_MAX = 64 * 1024;
const IMAGE_MAX = 4 * 1024 * 1024;
const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

const parts = (path) => path.split("/").filter(Boolean);
const inside = (path, name) => `/${[...parts(path), name].join("/")}`;

function Path({ path }) {
  const names = parts(path);
  return html`
    <nav class="crumbs" aria-label="Folder"><button class="quiet" onClick=${() => setQuery({ path: "" }, { replace: false })}>/</button>
      ${names.map((name, at) =>
        html`<button key=${at} class="quiet"
        onClick=${() => setQuery({ path: `/${names.slice(0, at + 1).join("/")}`, file: "" }, { replace: false })}>${plain(name)}</button>
        <span aria-hidden="true">/</span>`)}</nav>
  `;
}

const COLUMNS = [
  {
    id: "name",
    title: "Name",
    value: (file) => `${file.IsDir ? 0 : 1}${file.Name}`,
    size: "minmax(8rem, 3fr)",
    cell: (file) =>
      html`<button class="link-like quiet" onClick=${() => open(file)}>${plain(file.Name)}${file.IsDir ? "/" : ""}</button>`,
  },
  {
    id: "size",
    title: "Size",
    value: (file) => file.Size,
    number: true,
    size: "6rem",
    cell: (file) => (file.IsDir ? "" : bytes(file.Size)),
  },
  {
    id: "time",
    title: "Changed",
    from: /** @type {"md"} */ ("md"),
    value: (file) => file.ModTime,
    size: "11rem",
    cell: (file) => html`<${Time} at=${new Date(file.ModTime)} />`,
  },
  { id: "mode", title: "Mode", from: /** @type {"lg"} */ ("lg"), size: "8rem", cell: (file) => html`<code>${file.FileMode}</code>` },
];

const open = (file) => setQuery({ path: file.IsDir ? file.path : query("path"), file: file.IsDir ? "" : file.path }, { replace: false });

function Image({ alloc, path, kind }) {
  const [source, setSource] = useState("");
  useEffect(() => {
    let isDisposed = false;
    send("GET", `/v1/client/fs/cat/${alloc.ID}`, { query: { path, namespace: alloc.Namespace } }).then(async (answer) => {
      const buffer = await answer.arrayBuffer();
      if (isDisposed || buffer.byteLength > IMAGE_MAX) return;
      const text = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join("");
      setSource(`data:${kind};base64,${btoa(text)}`);
    });
    return () => (isDisposed = true);
  }, [path]);
  return source ? html`<img src=${source} alt="Preview" style=${{ maxWidth: "100%" }} />` : html`<p class="loading">Loading…</p>`;
}

function Text({ alloc, path, size }) {
  const [tail, setTail] = useState(false);
  const offset = tail ? Math.max(0, size - PREVIEW_MAX) : 0;
  const state = useData(
    async (signal) => {
      const response = await send("GET", `/v1/client/fs/readat/${alloc.ID}`, {
        query: { path, offset, limit: PREVIEW_MAX, namespace: alloc.Namespace },
        signal,
      });
      return new TextDecoder().decode(await response.arrayBuffer());
    },
    [path, offset],
  );
  return html`
    ${size > PREVIEW_MAX
      && html`<p class="filters"><button aria-pressed=${!tail} onClick=${() => setTail(false)}>Head</button>
      <button aria-pressed=${tail} onClick=${() => setTail(true)}>Tail</button><span class="dim">${bytes(PREVIEW_MAX)} of ${bytes(size)}
      </span></p>`}
    <${Loaded} state=${state}>
      ${(text) => html`<pre class="code" tabindex="0" aria-label="Contents">${text ? plain(text) : "(empty)"}</pre>`}<//>
  `;
}

function File({ alloc, path }) {
  const state = useData((signal) => get(`/v1/client/fs/stat/${alloc.ID}`, { path, namespace: alloc.Namespace }, { signal }), [path]);
  const address = url(`/v1/client/fs/cat/${alloc.ID}`, { path, namespace: alloc.Namespace });
  const name = parts(path).at(-1) ?? "file";
  const kind = IMAGES[name.split(".").at(-1)?.toLowerCase() ?? ""];
  return html`
    <${Loaded} state=${state}>${(file) => html`
      <p class="filters"><strong>${plain(name)}</strong> <span class="dim">${bytes(file.Size)}</span>
        <a class="button" href=${address} download=${name}>Download</a>
        <button onClick=${() => setQuery({ file: "" })}>Back to the folder</button></p>
      ${kind && file.Size <= IMAGE_MAX ? html`<${Image} alloc=${alloc} path=${path} kind=${kind} />`
        : html`<${Text} alloc=${alloc} path=${path} size=${file.Size} />`}
      <${Command} text=${command(["alloc", "fs"], {}, [alloc.ID, path])} />
    `}<//>
  `;
}

function Folder({ alloc, path }) {
  const state = useData(
    (signal) => get(`/v1/client/fs/ls/${alloc.ID}`, { path, namespace: alloc.Namespace }, { signal }),
    [alloc.ID, path],
  );
  return html`
    <${Loaded} state=${state}>${(
      files,
    ) => html`<${LocalTable} name="files" label="Files" columns=${COLUMNS}
      rows=${(files ?? []).map((file) => ({ ...file, path: inside(path, file.Name) }))} keyOf=${(file) => file.Name}
      search=${(file) => file.Name} sort="name" empty=${html`<${Empty}>The folder is empty.<//>`} main=${true} />`}<//>
    <${Command} text=${command(["alloc", "fs"], {}, [alloc.ID, path])} />
  `;
}

export function Tab({ alloc, task }) {
  const path = query("path") || (task ? `/${task}` : "/");
  const file = query("file");
  return html`<${Path} path=${file || path} />
    ${file ? html`<${File} key=${file} alloc=${alloc} path=${file} />` : html`<${Folder} alloc=${alloc} path=${path} />`}`;
}
