// Answers with the files that were stored when the page was first visited, and adds headers that a plain file server
// does not send: cross-origin isolation, without which browsers give WebAssembly one thread, and the policy for workers.

/** @type {{version: string, policy: string, files: string[]}} */
const SITE = {version: "", policy: "", files: []};
const scope = /** @type {any} */ (self);
const runtime = new URL(scope.location.href).searchParams.get("runtime");
const PREFIX = `bcos ${scope.registration.scope} `;
const CACHE = `${PREFIX}${SITE.version} ${runtime}`;
const OTHER_RUNTIME = runtime === "webgpu" ? /^runtime\/ort(\.wasm\.|-wasm-simd-threaded\.(js|wasm)$)/ : /^runtime\/ort.*(webgpu|asyncify)/;

async function store() {
  const cache = await caches.open(CACHE);
  const wanted = SITE.files.filter(file => !OTHER_RUNTIME.test(file));
  await Promise.all(["./", ...wanted].map(async file => {
    const answer = await fetch(new Request(file, {cache: "no-cache"}));
    if (!answer.ok) throw new Error(`${file}: the server answers ${answer.status}`);
    await cache.put(file, answer);
  }));
  await scope.skipWaiting();
}

async function removeOld() {
  for (const name of await caches.keys()) if (name.startsWith(PREFIX) && name !== CACHE) await caches.delete(name);
}

/** @param {Request} request */
async function answerTo(request) {
  const stored = await (await caches.open(CACHE)).match(request, {ignoreSearch: true});
  const answer = stored ?? await fetch(request);
  if (answer.type !== "basic" && answer.type !== "default") return answer;
  const headers = new Headers(answer.headers);
  headers.set("Content-Security-Policy", SITE.policy);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  return new Response(answer.body, {status: answer.status, statusText: answer.statusText, headers});
}

scope.addEventListener("install", (/** @type {any} */ event) => event.waitUntil(store()));
scope.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(removeOld()));
scope.addEventListener("fetch", (/** @type {any} */ event) => {
  const {method, url} = event.request;
  if (method === "GET" && url.startsWith(scope.registration.scope)) event.respondWith(answerTo(event.request));
});
