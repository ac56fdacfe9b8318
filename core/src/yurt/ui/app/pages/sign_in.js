/**
 * Signing in: with a token's secret, with a login method (OIDC in the browser, JWT as text), or with a one-time token of
 * `yurt ui -authenticate`, which comes in the address's fragment. The token goes to the server once and stays in no script.
 */
import { html, useEffect, useState } from "../../vendor/preact.js";
import { call } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { go, query } from "../core/router.js";
import { config, session, signIn, signOut } from "../core/session.js";
import { Command } from "../parts/copy.js";
import { Fields } from "../parts/form.js";
import { Empty, Heading, Section } from "../parts/page.js";
import { toast } from "../parts/toast.js";
import { You } from "./access.js";

const PENDING = "yurt-oidc";
const redirectUri = () => `${location.origin}/ui/sign-in`;

/** A path of these pages to go back to; anything else leads to the first page. */
export const backTo = (text) => (/^\/ui(\/[^/\\]|$)/.test(text) ? text : "/ui/");

function nonce() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Go to the provider; what its answer must match is kept for this tab. */
async function beginOidc(method, back) {
  const ClientNonce = nonce();
  const { data } = await call("POST", "/v1/acl/oidc/auth-url", {
    body: { AuthMethodName: method, RedirectURI: redirectUri(), ClientNonce },
  });
  sessionStorage.setItem(PENDING, JSON.stringify({ method, ClientNonce, back }));
  location.assign(data.AuthURL);
}

/** The proof in the address after the provider's redirect, or null. */
function oidcAnswer() {
  const params = new URLSearchParams(location.search);
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "null");
  if (!pending || !params.get("state")) return null;
  sessionStorage.removeItem(PENDING);
  if (params.get("error")) throw new TypeError(`The provider refused: ${params.get("error_description") ?? params.get("error")}`);
  return {
    back: pending.back,
    proof: {
      AuthMethodName: pending.method,
      RedirectURI: redirectUri(),
      ClientNonce: pending.ClientNonce,
      State: params.get("state") ?? "",
      Code: params.get("code") ?? "",
      Iss: params.get("iss") ?? "",
    },
  };
}

/** A one-time token in the address is asked about, not used silently: a link of a stranger could sign in as somebody else. */
function OneTime({ token, finish }) {
  return html`
    <${Section} title="Sign in with a one-time token">
      <p>The address brought a one-time token, for example from <code>yurt ui -authenticate</code>. Use it only if you asked for it.</p>
      <div class="buttons"><button class="primary" onClick=${() => finish({ OneTimeSecretID: token })}>Sign in with it</button></div>
    <//>
  `;
}

function Methods({ methods, finish, problem }) {
  const [jwt, setJwt] = useState({ token: "" });
  return methods.map(
    (method) => html`
    <${Section} key=${method.Name} title=${`${plain(method.Name)}${method.Default ? " (default)" : ""}`} note=${method.Type}>
      ${
        method.Type === "OIDC"
          ? html`<button class="primary"
            onClick=${() =>
            beginOidc(method.Name, backTo(query("back"))).catch((error) => problem(error.message))}>Sign in with ${plain(method.Name)}
            </button>`
          : html`<form class="form" onSubmit=${(event) => {
              event.preventDefault();
              finish({ AuthMethodName: method.Name, LoginToken: jwt.token });
            }}><${Fields} fields=${[{ name: "token", label: "JWT", kind: "password", required: true }]} values=${jwt} change=${setJwt} />
              <div class="buttons"><button class="primary" type="submit">Sign in</button></div></form>`
      }
    <//>`,
  );
}

function leave(back) {
  go(back, { replace: true });
}

export function SignIn() {
  const [values, setValues] = useState({ secret: "" });
  const [problem, setProblem] = useState("");
  const [oneTime, setOneTime] = useState("");
  const finish = async (proof, back = backTo(query("back"))) => {
    try {
      await signIn(proof);
      setValues({ secret: "" });
      toast("Signed in");
      leave(back);
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  useEffect(() => {
    const found = /^#ott=(.+)$/.exec(location.hash);
    if (found) {
      history.replaceState(null, "", location.pathname + location.search);
      setOneTime(decodeURIComponent(found[1]));
    }
    try {
      const answer = oidcAnswer();
      if (answer) {
        history.replaceState(null, "", location.pathname);
        finish(answer.proof, answer.back);
      }
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  }, []);
  const { ACL, SignedIn, IsSecure } = session.value;
  if (!ACL) return html`<${Heading} title="Sign in" /><${Empty}>Access control is off: there is nothing to sign in to.<//>`;
  const out = async () => {
    await signOut();
    toast("Signed out");
  };
  return html`
    <${Heading} title=${SignedIn ? "Signed in" : "Sign in"}>
      ${SignedIn && html`<div class="actions"><button onClick=${out}>Sign out</button></div>`}<//>
    ${problem && html`<p class="note bad" role="alert">${plain(problem)}</p>`}
    ${!IsSecure && html`<p class="note">The connection is not encrypted: others on the network can read the session.</p>`}
    ${oneTime && html`<${OneTime} token=${oneTime} finish=${finish} />`}
    <${Section} title="Token">
      <form class="form" onSubmit=${(event) => {
        event.preventDefault();
        finish({ SecretID: values.secret.trim() });
      }}>
        <${Fields} fields=${[
          { name: "secret", label: "Secret id of a token", kind: "password", required: true,
          hint: "It is sent to the agent once; the browser keeps a session cookie that scripts cannot read." }]} values=${values}
          change=${setValues} />
        <div class="buttons"><button class="primary" type="submit">Sign in</button></div>
      </form>
      <${Command} text=${command(["ui"], { authenticate: true })} />
    <//>
    <${Methods} methods=${config.value.AuthMethods ?? []} finish=${finish} problem=${setProblem} />
    ${SignedIn && html`<${You} />`}
  `;
}
