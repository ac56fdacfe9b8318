/**
 * Writing a job: the editor with the server's own findings, variables, templates, the plan with its differences and what it would
 * place, then run. `?edit=ID` begins with a job's source; a suggestion of "why it waits" is applied to it.
 */
import { html, useEffect, useState } from "../../vendor/preact.js";
import { ApiError, call, get, put, segment } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { findings, withEdits, withJsonEdits } from "../core/hcl.js";
import { useData } from "../core/load.js";
import { go, guard, href, query } from "../core/router.js";
import { missing } from "../core/session.js";
import { words } from "../core/words.js";
import { Command } from "../parts/copy.js";
import { Editor } from "../parts/editor.js";
import { Heading, Loaded, Section } from "../parts/page.js";
import { PlanView } from "../parts/plan.js";
import { Templates } from "../parts/templates.js";
import { toast } from "../parts/toast.js";

const EXAMPLE = `job "example" {
  type = "service"

  group "app" {
    count = 1

    network {
      port "http" {}
    }

    task "server" {
      driver = "docker"

      config {
        image = "busybox:1"
        command = "httpd"
        args = ["-v", "-f", "-p", "\${NOMAD_PORT_http}"]
        ports = ["http"]
      }

      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
`;
const isJson = (text) => text.trimStart().startsWith("{");

/** The text to begin with: a job's source, its JSON where it came without one, or the example. */
async function beginning(signal) {
  const id = query("edit");
  if (!id) return { text: EXAMPLE, variables: "", notes: [], job: null };
  const where = { namespace: query("namespace", "default") };
  const path = `/v1/job/${segment(id)}`;
  const version = query("version");
  const job = await get(path, { ...where, version }, { signal });
  const submission = await get(`${path}/submission`, { ...where, version: version || job.Version }, { signal }).catch(() => null);
  const text = submission?.Source || JSON.stringify({ Job: job }, null, 2);
  const variables =
    submission?.Variables ||
    Object.entries(submission?.VariableFlags ?? {})
      .map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
      .join("\n");
  const wanted = query("apply") ? JSON.parse(sessionStorage.getItem("yurt-edits") ?? "null") : null;
  if (!wanted) return { text, variables, notes: [], job };
  const edited = (isJson(text) ? withJsonEdits : withEdits)(text, wanted.group, wanted.edits);
  return { text: edited.text, variables, notes: edited.left, job, applied: edited.text !== text };
}

/** The job of a text as the API takes it. */
async function parse(text, variables, signal) {
  if (isJson(text)) {
    const body = JSON.parse(text);
    return body.Job ?? body;
  }
  return (await call("POST", "/v1/jobs/parse", { body: { JobHCL: text, Variables: variables, Canonicalize: true }, signal })).data;
}

/** What the server finds in a text, with places. */
async function check(text, variables) {
  if (!text.trim()) return [];
  try {
    await parse(text, variables);
    return [];
  } catch (error) {
    const found = findings(/** @type {Error} */ (error).message);
    if (found.length) return found;
    return error instanceof ApiError
      ? [{ line: 1, column: 1, message: error.message }]
      : [{ line: 1, column: 1, message: /** @type {Error} */ (error).message }];
  }
}

const submissionOf = (text, variables) => ({ Source: text, Format: isJson(text) ? "json" : "hcl2", Variables: variables });

function usePlan() {
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const run = async (text, variables) => {
    setBusy(true);
    setProblem("");
    setPlan(null);
    try {
      const job = await parse(text, variables);
      const { data } = await call("POST", `/v1/job/${segment(job.ID)}/plan`, {
        body: { Job: job, Diff: true },
        query: { namespace: job.Namespace },
      });
      setPlan({ job, answer: data, text, variables });
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
    setBusy(false);
  };
  return { plan, problem, busy, run, setProblem, forget: () => setPlan(null) };
}

async function submit({ job, answer, text, variables }) {
  const { EvalID, Warnings } = await put(
    "/v1/jobs",
    { Job: job, EnforceIndex: true, JobModifyIndex: answer.JobModifyIndex, Submission: submissionOf(text, variables) },
    { namespace: job.Namespace },
  );
  guard.question = null;
  if (Warnings) toast(Warnings, "bad");
  toast(`Job "${job.ID}" was registered${EvalID ? `, evaluation ${EvalID.slice(0, 8)}` : ""}`);
  go(href(["jobs", job.ID], { namespace: job.Namespace === "default" ? "" : job.Namespace }));
}

function Upload({ take }) {
  const read = async (files) => files?.[0] && take(await files[0].text());
  return html`<label
    class="button">Open a file<input type="file" accept=".hcl,.nomad,.json" hidden onChange=${(event) => read(event.target.files)} />
    </label>`;
}

function save(text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = isJson(text) ? "job.json" : "job.nomad.hcl";
  link.click();
  URL.revokeObjectURL(link.href);
}

function Form({ begun }) {
  const [text, setText] = useState(begun.text);
  const [variables, setVariables] = useState(begun.variables);
  const { plan, problem, busy, run, setProblem, forget } = usePlan();
  const lacks = missing(["submit-job", "plan-job"]);
  useEffect(
    () => () => {
      guard.question = null;
    },
    [],
  );
  useEffect(() => {
    if (begun.applied) run(begun.text, begun.variables);
  }, []);
  const change = (next) => {
    setText(next);
    forget();
    guard.question = next === begun.text ? null : "The job file was changed and not run. Leave it?";
  };
  const start = () => submit(plan).catch((error) => setProblem(error.message));
  const drop = (event) => {
    if (!event.dataTransfer?.files?.length) return;
    event.preventDefault();
    event.dataTransfer.files[0].text().then(change);
  };
  return html`
    ${begun.notes.length > 0 && html`<div class="note">To be changed by hand: ${begun.notes.map(plain).join("; ")}.</div>`}
    ${begun.applied && html`<div class="note">The smallest change that helps is applied; the plan below shows it.</div>`}
    <div onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
      <${Editor} text=${text} change=${change} language=${isJson(text) ? "json" : "hcl"} label="Job file"
        check=${(now) => check(now, variables)} words=${words} />
    </div>
    <details open=${Boolean(variables)}><summary>Variables</summary>
      <textarea aria-label="Variables of the job file" rows="4" value=${variables} spellcheck="false" placeholder='name = "value"'
      onInput=${(
      event,
    ) => {
      setVariables(event.target.value);
      forget();
    }}></textarea></details>
    <div class="filters">
      <button class=${plan ? "" : "primary"} disabled=${busy} aria-disabled=${Boolean(lacks)} title=${lacks}
        onClick=${() => (lacks ? toast(lacks, "bad") : run(text, variables))}>${busy ? "Planning…" : "Plan"}</button>
      ${plan && html`<button class="primary" onClick=${start}>Run</button>`}
      <span class="grow"></span><${Upload} take=${change} /><button onClick=${() => save(text)}>Save as a file</button>
        <${Templates} text=${text} take=${change} />
    </div>
    ${problem && html`<div class="note bad" role="alert"><pre>${plain(problem)}</pre></div>`}
    ${plan && html`<${PlanView} job=${plan.job} answer=${plan.answer} />`}
    <${Section} title="The same on the command line"><${Command} text=${command(["job", "plan"], {}, ["job.nomad.hcl"])} />
      <${Command} text=${command(["job", "run"], { "check-index": plan?.answer.JobModifyIndex ?? "" }, ["job.nomad.hcl"])} /><//>
  `;
}

export function Run() {
  const state = useData(beginning, [query("edit"), query("version"), query("apply")]);
  const title = query("edit") ? `Edit ${query("edit")}` : "Run a job";
  return html`<${Heading} title=${title} crumbs=${[["Jobs", "/ui/jobs"]]} />
    <${Loaded} state=${state}>${(begun) => html`<${Form} key=${query("edit") + query("version")} begun=${begun} />`}<//>`;
}
