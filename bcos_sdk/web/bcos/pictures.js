// Explanations as colours: the counterpart of bcos_sdk/pictures/_maps.py. A picture is RGBA with 8 bits per channel.

import {resizeMap} from "./resample.js";

/** @typedef {import("./resample.js").Pixels} Pixels */
/** @typedef {{width: number, height: number, data: Uint8ClampedArray<ArrayBuffer>}} Picture */

const SIDE = 224, SMOOTHING_WINDOW = 15, PERCENTILE = 99.5, EPSILON = 1e-12;

/** The smallest whole factor that makes both sides at least 224 pixels long. @param {number} width @param {number} height */
export const enlargement = (width, height) => Math.ceil(SIDE / Math.min(width, height));

/**
 * The heat map over the grey image `display`: positive red, negative blue.
 * @param {Pixels} display @param {Float32Array} contributions @param {number} width @param {number} height of the map
 * @returns {Picture}
 */
export function overlay(display, contributions, width, height) {
  const strength = resizeMap(strengthOf(contributions), width, height, display.width, display.height);
  const {data, channels} = display;
  return coloured(display.width, display.height, place => {
    const at = place * channels, grey = (0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2]) / 255;
    const value = Math.max(-1, Math.min(1, strength[place])), rest = grey * (1 - Math.abs(value));
    return [rest + Math.max(0, value), rest, rest + Math.max(0, -value), 1];
  });
}

/**
 * Contributions: positive red, negative blue, zero white.
 * @param {Float32Array} contributions @param {number} width @param {number} height
 * @returns {Picture}
 */
export function heatmap(contributions, width, height) {
  const strength = strengthOf(contributions);
  return coloured(width, height, place => {
    const value = strength[place], rest = 1 - Math.abs(value);
    return value > 0 ? [1, rest, rest, 1] : [rest, rest, 1, 1];
  });
}

/**
 * The colours of W(x), opaque where its length is large and the contribution is not negative.
 * @param {Float32Array} weights [channels, height, width] @param {Float32Array} contributions
 * @param {number} width @param {number} height @param {string} channels
 * @param {number} [smooth] width of the smoothing window
 * @returns {Picture}
 */
export function rgba(weights, contributions, width, height, channels, smooth = smoothingWindow(enlargement(width, height))) {
  const area = width * height, depth = weights.length / area, half = channels.endsWith("+complement") ? depth / 2 : depth;
  const lengths = new Float64Array(area), colours = new Float32Array(3 * area);
  for (let place = 0; place < area; place++) {
    let largest = 0, squares = 0;
    for (let plane = 0; plane < depth; plane++) {
      const weight = weights[plane * area + place];
      largest = Math.max(largest, Math.abs(weight));
      squares += weight * weight;
    }
    lengths[place] = contributions[place] < 0 ? 0 : Math.sqrt(squares);
    for (let colour = 0; colour < 3; colour++) {
      const plane = half === 1 ? 0 : colour;
      const own = Math.max(0, weights[plane * area + place] / (largest + EPSILON));
      const other = half < depth ? Math.max(0, weights[(plane + half) * area + place] / (largest + EPSILON)) : null;
      colours[3 * place + colour] = other === null ? (channels === "rgb" ? own : 0) : own / (own + other + EPSILON);
    }
  }
  const smoothed = smooth > 1 ? boxMean(lengths, width, height, smooth) : lengths;
  const limit = percentile(smoothed, PERCENTILE);
  return coloured(width, height, place => [...colours.subarray(3 * place, 3 * place + 3),
    limit > 0 ? Math.min(1, smoothed[place] / limit) : Number(smoothed[place] > 0)]);
}

/** 15 pixels wide after enlargement; halves round to even. @param {number} factor */
function smoothingWindow(factor) {
  const exact = SMOOTHING_WINDOW / factor;
  return Math.max(1, exact % 1 === 0.5 ? 2 * Math.round(exact / 2) : Math.round(exact));
}

/** Contributions scaled to [−1, 1]. @param {Float32Array} contributions */
function strengthOf(contributions) {
  const limit = percentile(Float64Array.from(contributions, Math.abs), PERCENTILE);
  return contributions.map(value => limit > 0 ? Math.max(-1, Math.min(1, value / limit)) : Math.sign(value));
}

/**
 * The mean over a square window with zeros outside; an even one has its extra row and column below and to the right.
 * @param {Float64Array} values @param {number} width @param {number} height @param {number} window
 */
export function boxMean(values, width, height, window) {
  const across = meanAlong(values, width, height, window, 1, width);
  return meanAlong(across, height, width, window, width, 1);
}

/** @param {Float64Array} values @param {number} length @param {number} lines @param {number} window @param {number} step @param {number} lineStep */
function meanAlong(values, length, lines, window, step, lineStep) {
  const before = (window - 1) >> 1, after = window >> 1;
  const result = new Float64Array(values.length);
  for (let line = 0; line < lines; line++) {
    for (let place = 0; place < length; place++) {
      let sum = 0;
      for (let at = Math.max(0, place - before); at <= Math.min(length - 1, place + after); at++) sum += values[line * lineStep + at * step];
      result[line * lineStep + place * step] = sum / window;
    }
  }
  return result;
}

/** As numpy.percentile: linear between the two nearest ranks. @param {Float64Array} values @param {number} percent */
export function percentile(values, percent) {
  const sorted = values.slice().sort();
  const rank = percent / 100 * (sorted.length - 1), lower = Math.floor(rank);
  return sorted[lower] + (rank - lower) * (sorted[Math.min(lower + 1, sorted.length - 1)] - sorted[lower]);
}

/** @param {number} width @param {number} height @param {(place: number) => number[]} colour in [0, 1] @returns {Picture} */
function coloured(width, height, colour) {
  const data = new Uint8ClampedArray(4 * width * height);
  for (let place = 0; place < width * height; place++) {
    const [red, green, blue, alpha] = colour(place);
    data[4 * place] = red * 255;  // the array rounds and clamps
    data[4 * place + 1] = green * 255;
    data[4 * place + 2] = blue * 255;
    data[4 * place + 3] = alpha * 255;
  }
  return {width, height, data};
}
