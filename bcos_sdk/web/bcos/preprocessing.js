// From the pixels of a picture to the network's input: resize the shorter side, crop the centre, append 1 − rgb.
// The counterpart of bcos_sdk/images/_geometry.py, _transform.py and _encode.py.

import {BcosError} from "./errors.js";
import {resizePixels} from "./resample.js";

/** @typedef {import("./resample.js").Pixels} Pixels */
/** @typedef {import("./resample.js").Box} Box */
/**
 * @typedef {{size: [number, number], resize: number | null, crop: [number, number] | null,
 *   interpolation: import("./resample.js").Interpolation, channels: string}} InputSpec sizes are height, width
 * @typedef {{original: [number, number], box: Box}} Geometry the part of the original that the network received
 */

const MOST_PIXELS = 50 * 2 ** 20;
/** @type {Record<string, number>} */
export const CHANNEL_COUNTS = {"rgb+complement": 6, rgb: 3, "grey+complement": 2, grey: 1};
const LEVELS = Float32Array.from({length: 256}, (_, level) => level / 255);

/**
 * Where the network's input lies: resize to `resized`, then cut out `crop`; width before height.
 * @param {number} width @param {number} height @param {InputSpec} spec
 */
export function placement(width, height, spec) {
  const resized = spec.resize === null ? [width, height]
    : width <= height ? [spec.resize, Math.trunc(spec.resize * height / width)]
      : [Math.trunc(spec.resize * width / height), spec.resize];
  if (spec.crop === null) return {resized, crop: [0, 0, ...resized]};
  const left = halfToEven((resized[0] - spec.crop[1]) / 2), top = halfToEven((resized[1] - spec.crop[0]) / 2);
  return {resized, crop: [left, top, left + spec.crop[1], top + spec.crop[0]]};
}

/** @param {number} value */
function halfToEven(value) {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

/**
 * Resize and crop a picture to the size of the network's input.
 * @param {Pixels} picture @param {InputSpec} spec
 * @returns {{pixels: Pixels, geometry: Geometry}}
 */
export function prepare(picture, spec) {
  const {width, height} = picture, {resized, crop} = placement(width, height, spec);
  const found = `The image has ${width} × ${height} pixels`;
  if (Math.max(width * height, resized[0] * resized[1]) > MOST_PIXELS) {
    throw new BcosError("image_too_large", `${found}, or would have more after resizing than ${MOST_PIXELS.toLocaleString("en")}.`,
      "Make it smaller, or crop it to a less extreme shape.");
  }
  if (spec.crop !== null && (resized[0] < spec.crop[1] || resized[1] < spec.crop[0])) {
    throw new BcosError("input_invalid", `${found}, too few for a crop of ${spec.crop[1]} × ${spec.crop[0]}.`, "Use a larger image.");
  }
  const coloured = spec.channels.startsWith("grey") ? grey(picture) : picture;
  const whole = resizePixels(coloured, resized[0], resized[1], spec.interpolation);
  const pixels = cropped(whole, crop);
  if (pixels.width !== spec.size[1] || pixels.height !== spec.size[0]) {
    throw new BcosError("input_invalid", `${found}, but this model takes ${spec.size[1]} × ${spec.size[0]} and does not resize.`,
      "Resize or crop the image.");
  }
  const across = width / resized[0], down = height / resized[1];
  return {pixels, geometry: {original: [width, height],
    box: [crop[0] * across, crop[1] * down, Math.min(crop[2] * across, width), Math.min(crop[3] * down, height)]}};
}

/** @param {Pixels} picture @param {number[]} box @returns {Pixels} */
function cropped(picture, [left, top, right, bottom]) {
  const width = right - left, height = bottom - top;
  const data = new Uint8ClampedArray(width * height * 3);
  for (let row = 0; row < height; row++) {
    const from = ((top + row) * picture.width + left) * 3;
    data.set(picture.data.subarray(from, from + width * 3), row * width * 3);
  }
  return {width, height, channels: 3, data};
}

/** @param {Pixels} picture @returns {Pixels} the luma of ITU-R 601 in all channels, rounded as Pillow rounds it */
function grey(picture) {
  const {data, channels} = picture;
  const result = new Uint8ClampedArray(picture.width * picture.height * 3);
  for (let from = 0, to = 0; to < result.length; from += channels, to += 3) {
    const luma = (data[from] * 19595 + data[from + 1] * 38470 + data[from + 2] * 7471 + 0x8000) >> 16;
    result.fill(luma, to, to + 3);
  }
  return {width: picture.width, height: picture.height, channels: 3, data: result};
}

/**
 * The network's input: [r, g, b, 1 − r, 1 − g, 1 − b], or other channels, each a plane [height, width].
 * @param {Pixels} pixels @param {string} channels
 */
export function encode(pixels, channels) {
  const area = pixels.width * pixels.height, depth = CHANNEL_COUNTS[channels];
  const colours = channels.startsWith("grey") ? 1 : 3;
  const encoded = new Float32Array(depth * area);
  for (let colour = 0; colour < colours; colour++) {
    for (let place = 0; place < area; place++) encoded[colour * area + place] = LEVELS[pixels.data[place * 3 + colour]];
  }
  for (let place = colours * area; place < encoded.length; place++) encoded[place] = 1 - encoded[place - colours * area];
  return encoded;
}

/**
 * The part of the picture that the network received, `factor` times as large, for people.
 * @param {Pixels} picture @param {Geometry} geometry @param {InputSpec} spec @param {number} factor
 */
export function enlargedCrop(picture, {box}, spec, factor) {
  return resizePixels(picture, spec.size[1] * factor, spec.size[0] * factor, "bicubic", box);
}
