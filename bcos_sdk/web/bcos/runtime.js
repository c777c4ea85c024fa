// ONNX Runtime Web: which device runs the graphs, and one session per graph.

import {BcosError} from "./errors.js";

/**
 * @typedef {{data: any, dims: readonly number[]}} Tensor
 * @typedef {{run(feeds: Record<string, Tensor>, fetches: readonly string[]): Promise<Record<string, Tensor>>,
 *   release(): Promise<void>}} Session
 * @typedef {{env: any, Tensor: new (type: string, data: any, dims: number[]) => Tensor,
 *   InferenceSession: {create(graph: Uint8Array, options: object): Promise<Session>}}} Library
 * @typedef {{kind: "webgpu" | "wasm", threads: number}} Device
 */

const MOST_THREADS = 8, ERRORS_ONLY = 3;
const LIBRARIES = {
  webgpu: {script: "ort.webgpu.min.js", glue: "ort-wasm-simd-threaded.asyncify.js", binary: "ort-wasm-simd-threaded.asyncify.wasm"},
  wasm: {script: "ort.wasm.min.js", glue: "ort-wasm-simd-threaded.js", binary: "ort-wasm-simd-threaded.wasm"},
};
const PROVIDERS = {
  // In the layout NHWC, onnxruntime-web 1.30 computes wrong convolutions of 6 channels, of which B-cos images have 6
  // (onnxruntime issue 29651).
  webgpu: {name: "webgpu", preferredLayout: "NCHW"},
  wasm: "wasm",
};

/** @param {string} wanted */
export function checkDevice(wanted) {
  if (!["auto", "webgpu", "wasm"].includes(wanted)) {
    throw new BcosError("input_invalid", `There is no device ${JSON.stringify(wanted)}.`, 'Use the device "auto", "webgpu" or "wasm".');
  }
}

/** @param {Device} device */
export const nameOf = ({kind, threads}) =>
  kind === "webgpu" ? "WebGPU" : `WebAssembly, ${threads === 1 ? "one thread" : `${threads} threads`}`;

/**
 * The devices to try, the fastest first.
 * @param {"auto" | "webgpu" | "wasm"} wanted @param {number} [threads]
 * @returns {Promise<Device[]>}
 */
export async function devices(wanted, threads) {
  /** @type {Device[]} */
  const found = [];
  if (wanted !== "wasm" && await hasGpu({software: wanted === "webgpu"})) found.push({kind: "webgpu", threads: 1});
  if (wanted !== "webgpu") {
    const possible = globalThis.crossOriginIsolated ? Math.min(MOST_THREADS, navigator.hardwareConcurrency || 1) : 1;
    const count = Math.min(possible, threads ?? possible);
    if (count > 1) found.push({kind: "wasm", threads: count});
    found.push({kind: "wasm", threads: 1});
  }
  if (!found.length) throw new BcosError("device_unavailable", "This browser has no WebGPU.", 'Use the device "auto" or "wasm".');
  return found;
}

/** A GPU that is emulated in software is slower than WebAssembly. @param {{software: boolean}} accepted */
async function hasGpu({software}) {
  try {
    const adapter = await /** @type {any} */ (navigator).gpu?.requestAdapter();
    return Boolean(adapter) && (software || !(adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter));
  } catch {
    return false;
  }
}

/** The graphs of one bundle on one device. */
export class Runtime {
  #library;
  #weights;

  /** @param {Device} device @param {Library} library @param {{path: string, data: Uint8Array}} weights */
  constructor(device, library, weights) {
    this.device = device;
    this.#library = library;
    this.#weights = weights;
  }

  /** @param {Device} device @param {URL} folder of the library's files @param {{path: string, data: Uint8Array}} weights */
  static async open(device, folder, weights) {
    const {script, glue, binary} = LIBRARIES[device.kind];
    // The number of threads is fixed when the library starts, so each number has its own instance of the module.
    const address = new URL(`${script}?threads=${device.threads}`, folder);
    const library = /** @type {Library} */ (await import(address.href));
    library.env.logLevel = "error";
    library.env.wasm.numThreads = device.threads;
    library.env.wasm.wasmPaths = {mjs: new URL(glue, folder).href, wasm: new URL(binary, folder).href};
    return new Runtime(device, library, weights);
  }

  /** @param {Uint8Array} graph @returns {Promise<Session>} */
  session(graph) {
    return this.#library.InferenceSession.create(graph, {
      executionProviders: [PROVIDERS[this.device.kind]], externalData: [this.#weights], graphOptimizationLevel: "all",
      logSeverityLevel: ERRORS_ONLY});
  }

  /** @param {Float32Array} data @param {number[]} shape */
  floats(data, shape) { return new this.#library.Tensor("float32", data, shape); }

  /** @param {number[]} values @param {number[]} shape */
  integers(values, shape) { return new this.#library.Tensor("int64", BigInt64Array.from(values, BigInt), shape); }
}
