/** Job templates, kept as variables under `nomad/job-templates/`, where Nomad's UI keeps them too: choose, save, delete. */
import { html, useState } from "../../vendor/preact.js";
import { get, put, remove, segment } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { useData } from "../core/load.js";
import { ActionButton, ask } from "./action.js";
import { openDialog } from "./dialog.js";
import { Empty, Loaded } from "./page.js";

const PREFIX = "nomad/job-templates/";
const pathOf = (name) => `/v1/var/${PREFIX}${segment(name)}`;

const BUILT_IN = [
  {
    name: "Service with a port",
    text: `job "web" {
  type = "service"

  group "web" {
    count = 2

    network {
      port "http" {}
    }

    service {
      name     = "web"
      port     = "http"
      provider = "nomad"
    }

    task "server" {
      driver = "docker"

      config {
        image = "busybox:1"
        command = "httpd"
        args = ["-f", "-p", "\${NOMAD_PORT_http}"]
        ports = ["http"]
      }

      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
`,
  },
  {
    name: "Batch job with parameters",
    text: `job "convert" {
  type = "batch"

  parameterized {
    payload       = "optional"
    meta_required = ["input"]
  }

  group "convert" {
    task "run" {
      driver = "exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "echo converting $NOMAD_META_input"]
      }
    }
  }
}
`,
  },
  {
    name: "Periodic job",
    text: `job "nightly" {
  type = "batch"

  periodic {
    crons            = ["0 3 * * *"]
    prohibit_overlap = true
  }

  group "nightly" {
    task "run" {
      driver = "exec"

      config {
        command = "/bin/date"
      }
    }
  }
}
`,
  },
  {
    name: "Training on a GPU",
    text: `job "train" {
  type = "batch"

  group "train" {
    task "run" {
      driver = "docker"

      config {
        image   = "pytorch/pytorch"
        command = "python"
        args    = ["-c", "import torch; print(torch.cuda.get_device_name())"]
      }

      resources {
        cpu    = 4000
        memory = 16384

        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
`,
  },
];

function Choice({ text, take, close }) {
  const state = useData((signal) => get("/v1/vars", { prefix: PREFIX, namespace: "*" }, { signal }), []);
  const [problem, setProblem] = useState("");
  const use = async (row) => {
    try {
      take((await get(`/v1/var/${row.Path}`, { namespace: row.Namespace })).Items.template);
      close();
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  const drop = (row) => ({
    label: "Delete",
    danger: true,
    needs: ["variables:destroy"],
    namespace: row.Namespace,
    question: `Deletes the template ${row.Path.slice(PREFIX.length)}.`,
    command: command(["var", "purge"], {}, [row.Path]),
    run: () => remove(`/v1/var/${row.Path}`, { namespace: row.Namespace }),
    done: "The template was deleted",
  });
  return html`
    ${problem && html`<p class="bad" role="alert">${plain(problem)}</p>`}
    <h3>Built in</h3>
    <ul class="list">${BUILT_IN.map(
      (each) =>
        html`<li key=${each.name}><strong>${each.name}</strong><span class="right"><button onClick=${() => {
          take(each.text);
          close();
        }}>Use</button></span></li>`,
    )}</ul>
    <h3>Saved</h3>
    <${Loaded} state=${state}>
      ${(rows) => (
      rows?.length ? html`
      <ul class="list">
      ${rows.map((row) =>
      html`<li key=${row.Namespace + row.Path}><strong>${plain(row.Path.slice(PREFIX.length))}
      </strong> <span class="dim">${plain(row.Namespace)}</span>
      <span class="right actions"><button onClick=${() => use(row)}>Use</button><${ActionButton} action=${drop(row)} /></span></li>`)}
      </ul>` : html`<${Empty}>None yet.<//>`)}<//>
    <div class="buttons"><button onClick=${() => ask(keep(text))}>Save this job file as a template</button></div>
  `;
}

/** Keeps a job file as a template. */
const keep = (text) => ({
  label: "Save template",
  needs: ["variables:write"],
  namespace: "default",
  fields: [
    { name: "name", label: "Name", required: true },
    { name: "description", label: "Description" },
  ],
  command: ({ name }) => command(["var", "put"], {}, [`${PREFIX}${name || "NAME"}`, "template=@job.nomad.hcl"]),
  run: ({ name, description }) =>
    put(pathOf(name), { Namespace: "default", Path: `${PREFIX}${name}`, Items: { template: text, description } },
      { namespace: "default" }),
  done: "The template was saved",
});

export const Templates = ({ text, take }) =>
  html`<button onClick=${() =>
    openDialog("Templates", ({ close }) => html`<${Choice} text=${text} take=${take} close=${close} />`,
    { wide: true })}>Templates</button>`;
