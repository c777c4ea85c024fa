// The model of the page, run by the browser itself in a worker: no image leaves the device.

import {forgetStored} from "./offline.js";

/** @typedef {import("./types.js").PageModel} PageModel */
/** @typedef {import("./worker.js").Requests} Requests */

/** @implements {PageModel} */
export class BrowserModel {
  #worker = new Worker(new URL("worker.js", import.meta.url), {type: "module"});
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void}>} */
  #waiting = new Map();
  #calls = 0;
  /** @type {Promise<import("./types.js").Info> | null} */
  #opened = null;
  /** @type {(done: number, total: number) => void} */
  #progress = () => {};
  live = true;
  /** Which files of ONNX Runtime Web are used, or null before the model is loaded. @type {"webgpu" | "wasm" | null} */
  runtime = null;

  constructor() {
    this.#worker.addEventListener("message", ({data}) => this.#receive(data));
    this.#worker.addEventListener("error", event => this.#fail(event.message || "The worker of the page cannot be started."));
  }

  /** @type {PageModel["info"]} */
  info(progress) {
    this.#progress = progress;
    return this.#opened = this.#open();
  }

  async #open() {
    const site = await record();
    const {device, refused, labels, probability} = await this.#load(site.bundle_sha256);
    this.runtime = device === "WebGPU" ? "webgpu" : "wasm";
    return {name: site.name, samples: site.samples, labels, probability, about: `Computed on this device with ${device}. Your images are not sent anywhere.${refused.map((/** @type {string} */ reason) => ` Not used: ${reason}`).join("")}`};
  }

  /** @param {string} sha256 @returns {Promise<{device: string, refused: string[], labels: string[], probability: string}>} */
  async #load(sha256) {
    try {
      return await this.#call("load", {sha256});
    } catch (error) {
      if (/** @type {any} */ (error).code === "bundle_invalid") await forgetStored();
      throw error;
    }
  }

  /** @param {string} name */
  async sample(name) { return (await fetch(`samples/${encodeURIComponent(name)}`)).blob(); }

  /** @type {PageModel["explain"]} */
  async explain(image, chosen, kinds, scores) {
    await this.#opened;  // a model that was refused explains nothing, for the same reason
    return this.#call("explain", {image, chosen, kinds, scores}, image instanceof ImageBitmap ? [image] : []);
  }

  /**
   * @template {keyof Requests} Method
   * @param {Method} method @param {Requests[Method]} given @param {Transferable[]} [transferred]
   * @returns {Promise<any>}
   */
  #call(method, given, transferred = []) {
    return new Promise((resolve, reject) => {
      this.#waiting.set(++this.#calls, {resolve, reject});
      this.#worker.postMessage({call: this.#calls, method, given}, transferred);
    });
  }

  /** @param {any} data */
  #receive({call, progress, result, error}) {
    if (progress) {
      this.#progress(progress[0], progress[1]);
      return;
    }
    const caller = this.#waiting.get(call);
    this.#waiting.delete(call);
    if (error) caller?.reject(Object.assign(new Error(error.message), {hint: error.hint, code: error.code}));
    else caller?.resolve(result);
  }

  /** @param {string} reason */
  #fail(reason) {
    for (const {reject} of this.#waiting.values()) reject(new Error(reason));
    this.#waiting.clear();
  }
}

/** What the site says about its model. @returns {Promise<{name: string, samples: string[], bundle_sha256: string}>} */
async function record() {
  const answer = await fetch("site.json").catch(() => null);
  if (!answer?.ok) throw new Error(`site.json cannot be fetched: the server ${answer ? `answers ${answer.status}` : "does not answer"}.`);
  const site = await answer.json().catch(() => null);
  if (!site?.bundle_sha256) throw new Error("site.json is not the file that bcos-sdk web writes. Copy the whole folder to the server again.");
  return site;
}
