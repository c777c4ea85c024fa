// A bundle on a web server: manifest.json, and the files that it lists, each verified with its hash.

import {BcosError} from "./errors.js";
import {readNpz} from "./npz.js";
import {CHANNEL_COUNTS} from "./preprocessing.js";
import {sha256} from "./sha256.js";

/**
 * @typedef {{schema_version: number, model: {name: string}, input: import("./preprocessing.js").InputSpec,
 *   classes: number, labels: string[] | null, map?: number[], probability: "sigmoid" | "softmax" | "none",
 *   bias_terms: string[], ranks: number, precision: "fp32" | "fp16", tolerance: number,
 *   predict_graph: string, explain_graph: string, weights: string, golden: string,
 *   parity_limits: Record<string, number>, files: Record<string, {size: number, sha256: string}>}} Manifest
 * @typedef {{target: number, pixels: Uint8Array, logits: Float32Array, weights: Float32Array, jump: number}} Golden
 * @typedef {{manifest: Manifest, sha256: string, predict: Uint8Array, explain: Uint8Array, weights: Uint8Array,
 *   golden: Golden}} Bundle
 * @typedef {(done: number, total: number) => void} Progress bytes
 */

const SCHEMA_VERSION = 2;
const AGAIN = "Reload the page. If this happens again, the files on the server are damaged: write them again.";

/** @param {string} reason @param {string} [hint] */
const invalid = (reason, hint = AGAIN) => new BcosError("bundle_invalid", `The model cannot be used: ${reason}.`, hint);

/**
 * Fetch the bundle in the folder at `url` and verify its files.
 * @param {string | URL} url ends with "/"
 * @param {{sha256?: string, progress?: Progress}} [options] `sha256` is that of the manifest, which pins all files
 * @returns {Promise<Bundle>}
 */
export async function fetchBundle(url, {sha256: expected, progress = () => {}} = {}) {
  const folder = new URL(url, globalThis.location?.href);
  const written = new Uint8Array(await (await get(new URL("manifest.json", folder))).arrayBuffer());
  const found = await sha256(written);
  if (expected !== undefined && found !== expected) throw invalid(`manifest.json has the hash ${found}, expected ${expected}`);
  const manifest = parsed(written);
  const wanted = [manifest.predict_graph, manifest.explain_graph, manifest.golden, manifest.weights];
  const parts = await partsIn(folder);
  const total = wanted.reduce((sum, name) => sum + recordOf(manifest, name).size, 0);
  let done = 0;
  const contents = [];
  for (const name of wanted) {
    contents.push(await verified(folder, name, recordOf(manifest, name), parts[name] ?? [name], bytes => progress(done += bytes, total)));
  }
  const [predict, explain, golden, weights] = contents;
  return {manifest, sha256: found, predict, explain, weights, golden: goldenOf(golden, manifest)};
}

/** @param {Uint8Array} written @returns {Manifest} */
function parsed(written) {
  let manifest;
  try {
    manifest = JSON.parse(new TextDecoder().decode(written));
  } catch {
    throw invalid("manifest.json is not JSON");
  }
  if (manifest.schema_version !== SCHEMA_VERSION) {
    throw invalid(`manifest.json has the version ${manifest.schema_version}, expected ${SCHEMA_VERSION}`, "Export the model with this version of bcos-sdk.");
  }
  if (!(manifest.input.channels in CHANNEL_COUNTS) || manifest.map) {
    throw invalid(manifest.map ? "it returns a map" : "it takes arrays instead of pictures", "Use the Python client.");
  }
  return manifest;
}

/** @param {Manifest} manifest @param {string} name */
function recordOf(manifest, name) {
  const record = manifest.files[name];
  if (!record) throw invalid(`manifest.json has no hash of ${name}`);
  return record;
}

/** The parts of large files by name. A folder without parts.json is a bundle as it was exported. @param {URL} folder */
async function partsIn(folder) {
  const answer = await fetch(new URL("parts.json", folder)).catch(() => null);
  return answer?.ok ? /** @type {Record<string, string[]>} */ (await answer.json()) : {};
}

/**
 * @param {URL} folder @param {string} name @param {{size: number, sha256: string}} record @param {string[]} parts
 * @param {(bytes: number) => void} progress
 */
async function verified(folder, name, record, parts, progress) {
  const contents = new Uint8Array(record.size);
  let filled = 0;
  for (const part of parts) {
    const reader = (await get(new URL(part, folder))).body?.getReader();
    for (let read = await reader?.read(); read && !read.done; read = await reader?.read()) {
      if (filled + read.value.length > record.size) throw invalid(`${name} is larger than ${record.size} bytes`);
      contents.set(read.value, filled);
      filled += read.value.length;
      progress(read.value.length);
    }
  }
  if (filled !== record.size) throw invalid(`${name} has ${filled} bytes, expected ${record.size}`);
  const found = await sha256(contents);
  if (found !== record.sha256) {
    throw invalid(`${name} is not the file that was exported, its SHA-256 is ${found.slice(0, 16)}…, expected ${record.sha256.slice(0, 16)}…`);
  }
  return contents;
}

/** @param {URL} url */
async function get(url) {
  const name = url.pathname.split("/").pop();
  const answer = await fetch(url).catch(() => { throw invalid(`${name} cannot be fetched: the server does not answer`, "Check the connection, then reload the page."); });
  if (!answer.ok) throw invalid(`${name} cannot be fetched: the server answers ${answer.status}`);
  return answer;
}

/** @param {Uint8Array} contents @param {Manifest} manifest @returns {Golden} */
function goldenOf(contents, manifest) {
  const arrays = readNpz(contents);
  /** @param {string} name */
  const data = name => {
    const array = arrays.get(name);
    if (!array) throw invalid(`its golden record has no ${name}`);
    return array.data;
  };
  return {target: Number(data("target")[0]), pixels: /** @type {Uint8Array} */ (data("pixels")),
    logits: /** @type {Float32Array} */ (data("logits")), weights: /** @type {Float32Array} */ (data("weights")),
    jump: arrays.has("jump") ? Number(data("jump")[0]) : 0};
}
