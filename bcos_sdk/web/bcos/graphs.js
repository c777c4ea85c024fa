// The graphs of a bundle on a device, each compared with the golden record before it is used.

import {BcosError} from "./errors.js";
import {encode} from "./preprocessing.js";
import {devices, nameOf, Runtime} from "./runtime.js";

/** @typedef {import("./bundle.js").Bundle} Bundle */
/** @typedef {import("./runtime.js").Session} Session */
/**
 * @typedef {{logits: Float32Array, classes: number[], weights: Float32Array[], biasTerms: Float32Array[]}} Outputs
 *   `classes`, `weights` and `biasTerms` have one entry per target
 */

// Factors on the limits of the export, as in the self-test of the Python client.
const FACTORS = {fp32: 10, fp16: 2};
const LARGEST_ERROR = 0.2;
const FETCHED = ["logits", "classes", "weights", "bias_terms"];

export class Graphs {
  #bundle;
  #runtime;
  /** @type {Map<"predict" | "explain", Promise<Session>>} */
  #sessions = new Map();

  /** @param {Bundle} bundle @param {Runtime} runtime */
  constructor(bundle, runtime) {
    this.#bundle = bundle;
    this.#runtime = runtime;
  }

  get device() { return nameOf(this.#runtime.device); }

  /**
   * The graphs on the fastest device that reproduces the golden record.
   * @param {Bundle} bundle @param {URL} folder of ONNX Runtime Web @param {"auto" | "webgpu" | "wasm"} wanted @param {number} [threads]
   * @returns {Promise<{graphs: Graphs, refused: string[]}>} `refused`: which devices were tried before, and why they failed
   */
  static async open(bundle, folder, wanted, threads) {
    const refused = [];
    for (const device of await devices(wanted, threads)) {
      try {
        const graphs = new Graphs(bundle, await Runtime.open(device, folder, {path: bundle.manifest.weights, data: bundle.weights}));
        await graphs.#tested("explain");
        return {graphs, refused};
      } catch (error) {
        refused.push(`${nameOf(device)}: ${error instanceof Error ? error.message : error}`);
      }
    }
    throw new BcosError("self_test_failed", `The model runs on no device of this browser. ${refused.join(" ")}`, "Try another browser.");
  }

  /** @param {Float32Array} image @returns {Promise<Float32Array>} the logits */
  async predict(image) { return this.#predict(await this.#tested("predict"), image); }

  /** @param {Float32Array} image @param {number[]} targets @returns {Promise<Outputs>} */
  async explain(image, targets) { return this.#explain(await this.#tested("explain"), image, targets); }

  async close() {
    for (const session of this.#sessions.values()) await (await session).release();
    this.#sessions.clear();
  }

  /** The session of a graph, opened and tested on first use. @param {"predict" | "explain"} graph @returns {Promise<Session>} */
  #tested(graph) {
    let session = this.#sessions.get(graph);
    if (!session) {
      session = this.#open(graph);
      this.#sessions.set(graph, session);
      session.catch(() => this.#sessions.delete(graph));
    }
    return session;
  }

  /** @param {"predict" | "explain"} graph */
  async #open(graph) {
    const {golden, manifest} = this.#bundle;
    const session = await this.#runtime.session(this.#bundle[graph]);
    try {
      const {size: [height, width], channels} = manifest.input;
      const image = encode({width, height, channels: 3, data: golden.pixels}, channels);
      if (graph === "predict") {
        this.#compare("logits", await this.#predict(session, image), golden.logits);
      } else {
        const {logits, weights: [weights]} = await this.#explain(session, image, [golden.target]);
        this.#compare("logits", logits, golden.logits);
        this.#compare("weights", weights, golden.weights, golden.jump);
      }
    } catch (error) {
      await session.release();
      throw error;
    }
    return session;
  }

  /** @param {"logits" | "weights"} name @param {Float32Array} found @param {Float32Array} golden @param {number} [jump] */
  #compare(name, found, golden, jump = 0) {
    const {parity_limits: limits, precision} = this.#bundle.manifest;
    const limit = Math.min(FACTORS[precision] * limits[name] + jump, LARGEST_ERROR);
    const error = relativeDistance(found, golden);
    if (error <= limit) return;
    throw new BcosError("self_test_failed",
      `self-test failed: ${name} differ from the golden record by ${error.toExponential(1)}, limit ${limit.toExponential(1)}.`);
  }

  /** @param {Session} session @param {Float32Array} image */
  async #predict(session, image) {
    const {logits} = await session.run({image: this.#image(image)}, ["logits"]);
    return /** @type {Float32Array} */ (logits.data);
  }

  /** @param {Session} session @param {Float32Array} image @param {number[]} targets @returns {Promise<Outputs>} */
  async #explain(session, image, targets) {
    const outputs = await session.run({image: this.#image(image), targets: this.#runtime.integers(targets, [1, targets.length])}, FETCHED);
    /** @param {Float32Array} all */
    const perTarget = all => targets.map((_, row) => all.slice(row * all.length / targets.length, (row + 1) * all.length / targets.length));
    return {logits: outputs.logits.data, classes: Array.from(outputs.classes.data, Number),
      weights: perTarget(outputs.weights.data), biasTerms: perTarget(outputs.bias_terms.data)};
  }

  /** @param {Float32Array} image */
  #image(image) {
    const [height, width] = this.#bundle.manifest.input.size;
    return this.#runtime.floats(image, [1, image.length / (height * width), height, width]);
  }
}

/** ‖found − golden‖ / ‖golden‖ @param {Float32Array} found @param {Float32Array} golden */
function relativeDistance(found, golden) {
  if (found.length !== golden.length) return Infinity;
  let distance = 0, size = 0;
  for (let place = 0; place < golden.length; place++) {
    distance += (found[place] - golden[place]) ** 2;
    size += golden[place] ** 2;
  }
  return size === 0 ? (distance === 0 ? 0 : Infinity) : Math.sqrt(distance / size);
}
