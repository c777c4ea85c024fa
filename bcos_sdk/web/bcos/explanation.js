// One explanation: logit = Σ contributions + Σ bias terms, as numbers and as pictures.

import {completeness, sum} from "./completeness.js";
import {BcosError} from "./errors.js";
import * as pictures from "./pictures.js";
import {CHANNEL_COUNTS} from "./preprocessing.js";

/** @typedef {{index: number | null, label: string, logit: number, probability: number | null}} ExplainedTarget */
/**
 * @typedef {{target: ExplainedTarget, bias: Record<string, number>, completeness: import("./completeness.js").Completeness,
 *   geometry: import("./preprocessing.js").Geometry, contributions: Float32Array, weights: Float32Array,
 *   image: import("./resample.js").Pixels, display: import("./resample.js").Pixels}} Parts
 */

export class Explanation {
  /** @param {Parts} parts */
  constructor(parts) {
    this.target = parts.target;
    /** The named terms of b(x). */
    this.bias = parts.bias;
    this.completeness = parts.completeness;
    this.geometry = parts.geometry;
    /** [height, width]: how much each pixel adds to the logit. */
    this.contributions = parts.contributions;
    /** [channels, height, width]: the row of W(x). */
    this.weights = parts.weights;
    /** The image that the network received. */
    this.image = parts.image;
    /** The same part for people, at least 224 pixels wide and high. */
    this.display = parts.display;
  }

  /** Throw an error unless the terms add up to the logit. */
  requireComplete() {
    const {relative_residual: error, tolerance, passed} = this.completeness;
    if (passed) return;
    throw new BcosError("explanation_incomplete",
      `The explanation of ${this.target.label} does not add up: the terms differ from the logit by ${error.toExponential(1)} of their size, at most ${tolerance.toExponential(0)} is allowed. It is not drawn.`,
      "The device computes wrong results. Try another browser.");
  }

  /** The heat map over the grey image. */
  overlay() {
    this.requireComplete();
    return pictures.overlay(this.display, this.contributions, this.image.width, this.image.height);
  }

  /** Contributions: positive red, negative blue. */
  heatmap() {
    this.requireComplete();
    return pictures.heatmap(this.contributions, this.image.width, this.image.height);
  }

  /** The colours of W(x), opaque where it adds to the logit. */
  rgba() {
    this.requireComplete();
    const {width, height} = this.image, depth = this.weights.length / (width * height);
    const channels = Object.keys(CHANNEL_COUNTS).find(name => CHANNEL_COUNTS[name] === depth) ?? "";
    return pictures.rgba(this.weights, this.contributions, width, height, channels);
  }

  /**
   * The explanation of the difference of two logits of the same image.
   * @param {Explanation} other
   */
  minus(other) {
    this.requireComplete();
    other.requireComplete();
    const contributions = this.contributions.map((value, place) => value - other.contributions[place]);
    const bias = Object.fromEntries(Object.entries(this.bias).map(([name, value]) => [name, value - other.bias[name]]));
    const logit = this.target.logit - other.target.logit;
    const label = `${this.target.label} vs ${other.target.label}`;
    return new Explanation({...this, contributions, bias, target: {index: null, label, logit, probability: null},
      weights: this.weights.map((value, place) => value - other.weights[place]),
      completeness: completeness({logit, sum: sum(contributions) + sum(Object.values(bias)),
        scale: this.completeness.scale + other.completeness.scale, tolerance: this.completeness.tolerance,
        precision: this.completeness.precision})});
  }
}
