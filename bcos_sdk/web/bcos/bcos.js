// B-cos models in the browser: predictions, and explanations that add up to the logit.
//
//   import {load} from "./bcos/bcos.js";
//   const client = await load("model/");
//   const {classes} = await client.predict(image);
//   const {explanations: [why]} = await client.explain(image, ["cat", "cat vs dog"]);
//   context.putImageData(new ImageData(...), 0, 0);  // of why.overlay(), why.heatmap() or why.rgba()

import {fetchBundle} from "./bundle.js";
import {completeness, sum, sumOfSizes} from "./completeness.js";
import {decode} from "./decoding.js";
import {BcosError} from "./errors.js";
import {Explanation} from "./explanation.js";
import {Graphs} from "./graphs.js";
import {enlargement} from "./pictures.js";
import {encode, enlargedCrop, prepare} from "./preprocessing.js";
import {checkDevice} from "./runtime.js";
import {MEAN, resolve} from "./targets.js";

export {BcosError, Explanation};

const TOP_K = 5;

/** @typedef {import("./decoding.js").ImageSource} ImageSource */
/** @typedef {import("./targets.js").Target} Target */
/**
 * @typedef {{index: number, label: string, logit: number, probability: number | null}} ClassScore
 * @typedef {{model: string, classes: ClassScore[], notes: string[]}} Prediction the most likely classes first
 * @typedef {{prediction: Prediction, explanations: Explanation[]}} Explained
 * @typedef {{sha256?: string, device?: "auto" | "webgpu" | "wasm", threads?: number, runtime?: string | URL,
 *   progress?: (done: number, total: number) => void}} Options `sha256` pins the bundle, `runtime` is the folder of ONNX Runtime Web
 */

/**
 * Open the bundle in the folder at `url`: verify its files, choose a device, and compare it with the golden record.
 * @param {string | URL} url ends with "/" @param {Options} [options]
 */
export async function load(url, {sha256, device = "auto", threads, runtime = new URL("../runtime/", import.meta.url), progress} = {}) {
  checkDevice(device);
  const bundle = await fetchBundle(url, {sha256, progress});
  const {graphs, refused} = await Graphs.open(bundle, new URL(runtime, globalThis.location?.href), device, threads);
  return new Client(bundle, graphs, refused);
}

export class Client {
  #graphs;

  /** @param {import("./bundle.js").Bundle} bundle @param {Graphs} graphs @param {string[]} refused */
  constructor({manifest, sha256}, graphs, refused) {
    this.manifest = manifest;
    this.sha256 = sha256;
    /** Devices that were tried before this one, and why they are not used. */
    this.refused = refused;
    this.#graphs = graphs;
  }

  get labels() { return this.manifest.labels; }

  /** For people: "WebGPU", "WebAssembly, 4 threads". */
  get device() { return this.#graphs.device; }

  /**
   * The most likely classes of an image.
   * @param {ImageSource} image @param {{topK?: number}} [options]
   * @returns {Promise<Prediction>}
   */
  async predict(image, {topK = TOP_K} = {}) {
    const {encoded, notes} = await this.#load(image);
    return this.#prediction(await this.#graphs.predict(encoded), topK, notes);
  }

  /**
   * Explain classes of an image: an index, a label, "mean", "A vs B", or a list of these; by default the `topK` most likely.
   * @param {ImageSource} image @param {Target | Target[] | null} [targets] @param {{topK?: number}} [options]
   * @returns {Promise<Explained>} Explanations that do not add up are an error.
   */
  async explain(image, targets = null, {topK = 1} = {}) {
    const wanted = resolve(targets, topK, this.manifest);
    const loaded = await this.#load(image);
    const outputs = await this.#graphs.explain(loaded.encoded, wanted.rows);
    const prediction = this.#prediction(outputs.logits, Math.max(TOP_K, topK), loaded.notes);
    const rows = wanted.rows.map((row, place) => this.#row(loaded, outputs, row, place));
    for (const row of rows) row.requireComplete();
    const explanations = wanted.explanations.map(([row, against]) => against === null ? rows[row] : rows[row].minus(rows[against]));
    for (const explanation of explanations) explanation.requireComplete();
    return {prediction, explanations};
  }

  close() { return this.#graphs.close(); }

  /** @param {ImageSource} image */
  async #load(image) {
    const {pixels: picture, notes} = await decode(image), spec = this.manifest.input;
    const {pixels, geometry} = prepare(picture, spec);
    return {pixels, geometry, notes, picture, encoded: encode(pixels, spec.channels)};
  }

  /** @param {Float32Array} logits @param {number} topK @param {string[]} notes @returns {Prediction} */
  #prediction(logits, topK, notes) {
    if (!logits.every(Number.isFinite)) throw new BcosError("inference_failed", "The logits are not finite.", "Try another browser.");
    const probabilities = this.#probabilities(logits);
    const ranked = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
    return {model: this.manifest.model.name, classes: ranked.slice(0, topK).map(index => this.#score(index, logits, probabilities)), notes};
  }

  /** @param {number} index @param {Float32Array} logits @param {number[] | null} probabilities @returns {ClassScore} */
  #score(index, logits, probabilities) {
    return {index, label: this.labels?.[index] ?? String(index), logit: logits[index], probability: probabilities?.[index] ?? null};
  }

  /** @param {Float32Array} logits */
  #probabilities(logits) {
    const {probability} = this.manifest;
    if (probability === "none") return null;
    if (probability === "sigmoid") return Array.from(logits, logit => 1 / (1 + Math.exp(-logit)));
    const largest = logits.reduce((most, logit) => Math.max(most, logit), -Infinity);
    const powers = Array.from(logits, logit => Math.exp(logit - largest)), total = sum(powers);
    return powers.map(power => power / total);
  }

  /**
   * @param {{pixels: import("./resample.js").Pixels, picture: import("./resample.js").Pixels, encoded: Float32Array,
   *   geometry: import("./preprocessing.js").Geometry}} loaded
   * @param {import("./graphs.js").Outputs} outputs @param {number} row what was asked for @param {number} place
   */
  #row({pixels, picture, encoded, geometry}, {logits, classes, weights, biasTerms}, row, place) {
    const {bias_terms: names, classes: count, tolerance, precision, input} = this.manifest;
    const index = classes[place], isMean = index === count;
    if (!(index >= 0 && index <= count) || (row >= 0 && row !== index)) {
      throw new BcosError("inference_failed", `The graph explained the class ${index}, requested was ${row}.`, "Try another browser.");
    }
    const target = isMean ? {index: null, label: MEAN, logit: sum(logits) / count, probability: null}
      : this.#score(index, logits, this.#probabilities(logits));
    const contributions = contributionsOf(weights[place], encoded, pixels.width * pixels.height);
    const terms = biasTerms[place];
    const scale = sumOfSizes(contributions) + sumOfSizes(terms) + (isMean ? sumOfSizes(logits) / count : 0);
    const factor = enlargement(pixels.width, pixels.height);
    return new Explanation({target, contributions, weights: weights[place], geometry, image: pixels,
      display: factor === 1 ? pixels : enlargedCrop(picture, geometry, input, factor),
      bias: Object.fromEntries(names.map((name, term) => [name, terms[term]])),
      completeness: completeness({logit: target.logit, sum: sum(contributions) + sum(terms), scale, tolerance, precision})});
  }
}

/** W(x) ⊙ x, summed over channels. @param {Float32Array} weights @param {Float32Array} encoded @param {number} area */
function contributionsOf(weights, encoded, area) {
  const contributions = new Float32Array(area);
  for (let place = 0; place < area; place++) {
    let total = 0;
    for (let at = place; at < weights.length; at += area) total += weights[at] * encoded[at];
    contributions[place] = total;
  }
  return contributions;
}
