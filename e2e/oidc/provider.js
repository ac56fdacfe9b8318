// A certified OIDC provider with its development pages: any user name logs in. `node provider.js PORT CONFIG`.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { Provider } from "oidc-provider";

const [port, config] = process.argv.slice(2);
const { clients, claims } = JSON.parse(config);
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const signing = { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: randomUUID() };
const provider = new Provider(`http://localhost:${port}`, {
  clients,
  jwks: { keys: [signing] },
  claims: { openid: ["sub"], profile: ["name", "team", "groups"] },
  features: { devInteractions: { enabled: true } },
  pkce: { required: () => true },
  ttl: { Interaction: 300, Session: 300, Grant: 300, AccessToken: 300, AuthorizationCode: 60, IdToken: 300 },
  // Its own fetch asks no loopback address, where the keys of the agent under test are.
  fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
  cookies: { keys: ["a key of tests"] },
  findAccount: async (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id, ...claims[id] }) }),
});
provider.on("grant.error", (ctx, error) => console.log(error.error, error.error_detail));
provider.listen(Number(port), "localhost");
