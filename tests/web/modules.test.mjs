// The modules that talk to the network and to ONNX Runtime Web, with stand-ins for both. Run by test_browser_modules.py.

import assert from "node:assert/strict";
import {createHash} from "node:crypto";
import {readFile} from "node:fs/promises";
import {test} from "node:test";

const [root, bundle] = [process.env.BCOS_MODULES, process.env.BCOS_BUNDLE];
const {fetchBundle} = await import(`${root}/bundle.js`);
const {Graphs} = await import(`${root}/graphs.js`);
const {devices, nameOf} = await import(`${root}/runtime.js`);
const {Client, load} = await import(`${root}/bcos.js`);
const {encode} = await import(`${root}/preprocessing.js`);
const HOME = "http://host/model/";
const manifest = JSON.parse(await readFile(`${bundle}/manifest.json`, "utf8"));

/** Answer requests with the files of the bundle, or with others. */
function serve(changed = {}) {
  globalThis.fetch = async url => {
    const name = String(url).slice(HOME.length);
    const body = name in changed ? changed[name] : await readFile(`${bundle}/${name}`).catch(() => null);
    return body === null ? new Response("", {status: 404}) : new Response(body);
  };
}

const refused = (code, message) => error => error.code === code && message.test(error.message);

test("a bundle as it was exported is fetched and verified", async () => {
  serve();
  const steps = [];
  const found = await fetchBundle(HOME, {progress: (done, total) => steps.push([done, total])});
  assert.deepEqual(found.manifest, manifest);
  assert.equal(found.sha256, createHash("sha256").update(await readFile(`${bundle}/manifest.json`)).digest("hex"));
  assert.equal(found.weights.length, manifest.files[manifest.weights].size);
  assert.equal(found.golden.logits.length, manifest.classes);
  assert.deepEqual(steps.at(-1), [steps[0][1], steps[0][1]]);
  assert.ok(steps.every(([done], place) => place === 0 || done > steps[place - 1][0]));
});

test("the digest pins the bundle", async () => {
  serve();
  await assert.rejects(fetchBundle(HOME, {sha256: "0".repeat(64)}), refused("bundle_invalid", /manifest\.json has the hash/));
});

test("parts are joined", async () => {
  const weights = await readFile(`${bundle}/${manifest.weights}`);
  serve({"parts.json": JSON.stringify({[manifest.weights]: ["a", "b"]}), a: weights.subarray(0, 1000), b: weights.subarray(1000), [manifest.weights]: null});
  assert.deepEqual(Buffer.from((await fetchBundle(HOME)).weights), weights);
  serve({"parts.json": JSON.stringify({[manifest.weights]: ["b", "a"]}), a: weights.subarray(0, 1000), b: weights.subarray(1000)});
  await assert.rejects(fetchBundle(HOME), refused("bundle_invalid", /is not the file that was exported/));
  serve({"parts.json": JSON.stringify({[manifest.weights]: ["a", "b", "a"]}), a: weights.subarray(0, 1000), b: weights.subarray(1000)});
  await assert.rejects(fetchBundle(HOME), refused("bundle_invalid", /is larger than/));
});

test("other manifests are refused", async () => {
  const cases = [["{", /is not JSON/], [JSON.stringify({...manifest, schema_version: 3}), /has the version 3/],
    [JSON.stringify({...manifest, map: [5, 2, 1]}), /returns a map/], [JSON.stringify({...manifest, files: {}}), /has no hash of/],
    [JSON.stringify({...manifest, input: {...manifest.input, channels: "none"}}), /takes arrays/]];
  for (const [text, message] of cases) {
    serve({"manifest.json": text});
    await assert.rejects(fetchBundle(HOME), refused("bundle_invalid", message));
  }
});

test("a server that does not answer is an error of its own", async () => {
  globalThis.fetch = async () => { throw new TypeError("network"); };
  await assert.rejects(fetchBundle(HOME), refused("bundle_invalid", /the server does not answer/));
});

test("an unknown device is an error before anything is fetched", async () => {
  globalThis.fetch = async () => assert.fail("nothing is fetched");
  await assert.rejects(load(HOME, {device: "gpu", runtime: HOME}), refused("input_invalid", /no device "gpu"/));
});

/** A browser with these abilities. */
function browser({isolated = false, cores = 4, adapter = null}) {
  globalThis.crossOriginIsolated = isolated;
  Object.defineProperty(globalThis, "navigator", {configurable: true, value: {hardwareConcurrency: cores, gpu: {requestAdapter: async () => adapter}}});
}

test("WebGPU is tried first, then threads, then one thread", async () => {
  const names = async (wanted, threads) => (await devices(wanted, threads)).map(nameOf);
  browser({isolated: true, adapter: {}});
  assert.deepEqual(await names("auto"), ["WebGPU", "WebAssembly, 4 threads", "WebAssembly, one thread"]);
  assert.deepEqual(await names("wasm", 2), ["WebAssembly, 2 threads", "WebAssembly, one thread"]);
  assert.deepEqual(await names("webgpu"), ["WebGPU"]);
  browser({cores: 64});
  assert.deepEqual(await names("auto"), ["WebAssembly, one thread"]);
  browser({cores: 64, isolated: true});
  assert.equal((await names("auto"))[0], "WebAssembly, 8 threads");
  await assert.rejects(devices("webgpu"), refused("device_unavailable", /no WebGPU/));
  browser({adapter: {info: {isFallbackAdapter: true}}});
  assert.deepEqual(await names("auto"), ["WebAssembly, one thread"]);
  assert.deepEqual(await names("webgpu"), ["WebGPU"]);
});

/** A runtime whose sessions answer with what `answer` makes of the golden record. */
function runtimeFor(opened, answer, device = {kind: "wasm", threads: 1}) {
  const {golden} = opened;
  const session = {released: false, async release() { session.released = true; }, async run({targets}, fetches) {
    const count = targets?.data.length ?? 1;
    const outputs = {logits: golden.logits, classes: targets?.data.map(target => target < 0n ? BigInt(golden.target) : target),
      weights: new Float32Array(count * golden.weights.length), bias_terms: new Float32Array(count * manifest.bias_terms.length)};
    for (let row = 0; row < count; row++) outputs.weights.set(golden.weights, row * golden.weights.length);
    const changed = answer({...outputs});
    return Object.fromEntries(fetches.map(name => [name, {data: changed[name], dims: []}]));
  }};
  return {device, session: async () => session, floats: (data, dims) => ({data, dims}), opened: session,
    integers: (values, dims) => ({data: BigInt64Array.from(values, BigInt), dims})};
}

/** Bias terms with which the golden explanation adds up. */
function complete(opened) {
  const {height, width} = {height: manifest.input.size[0], width: manifest.input.size[1]};
  const encoded = encode({width, height, channels: 3, data: opened.golden.pixels}, manifest.input.channels);
  const total = encoded.reduce((sum, value, place) => sum + value * opened.golden.weights[place], 0);
  return outputs => ({...outputs, bias_terms: Float32Array.of(opened.golden.logits[opened.golden.target] - total)});
}

const image = opened => ({width: manifest.input.size[1], height: manifest.input.size[0],
  data: Uint8ClampedArray.from({length: opened.golden.pixels.length / 3 * 4}, (_, place) => place % 4 === 3 ? 255 : opened.golden.pixels[(place >> 2) * 3 + place % 4])});

test("graphs are compared with the golden record before they are used", async () => {
  serve();
  const opened = await fetchBundle(HOME);
  const good = new Graphs(opened, runtimeFor(opened, complete(opened)));
  const pixels = new Float32Array(opened.golden.weights.length);
  assert.deepEqual(await good.predict(pixels), opened.golden.logits);
  const faults = {logits: outputs => ({...outputs, logits: outputs.logits.map(value => value * 1.001)}),
    weights: outputs => ({...outputs, weights: outputs.weights.map(value => value * 1.01)}),
    "logits ": outputs => ({...outputs, logits: outputs.logits.map(() => NaN)})};
  for (const [name, fault] of Object.entries(faults)) {
    const runtime = runtimeFor(opened, fault);
    const graphs = new Graphs(opened, runtime);
    await assert.rejects(graphs.explain(pixels, [0]), refused("self_test_failed", new RegExp(`${name.trim()} differ from the golden record`)));
    assert.ok(runtime.opened.released);
  }
});

test("an explanation that does not add up is an error", async () => {
  globalThis.ImageData = Object;
  serve();
  const opened = await fetchBundle(HOME);
  const client = new Client(opened, new Graphs(opened, runtimeFor(opened, complete(opened))), []);
  const {prediction, explanations: [one]} = await client.explain(image(opened), opened.golden.target);
  assert.equal(one.target.index, opened.golden.target);
  assert.equal(prediction.classes[0].logit, Math.max(...opened.golden.logits));
  assert.ok(one.completeness.passed);
  assert.equal(one.overlay().width, one.display.width);
  let calls = 0;
  const later = outputs => calls++ ? {...complete(opened)(outputs), bias_terms: Float32Array.of(1)} : outputs;
  const broken = new Client(opened, new Graphs(opened, runtimeFor(opened, later)), []);
  await assert.rejects(broken.explain(image(opened), opened.golden.target), refused("explanation_incomplete", /does not add up/));
  one.completeness.passed = false;
  for (const draw of [() => one.overlay(), () => one.heatmap(), () => one.rgba(), () => one.minus(one)]) {
    assert.throws(draw, refused("explanation_incomplete", /not drawn/));
  }
  await assert.rejects(client.explain(image(opened), "wolf"), refused("unknown_target", /no class "wolf"/));
});
