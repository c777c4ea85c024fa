// Antialiased resizing, pixel by pixel that of Pillow's Image.resize.
//
// Each output pixel is a weighted mean of the input pixels under a filter, which is widened when the picture becomes
// smaller: along rows and along columns. 8-bit pictures use weights of 22 fractional bits and are rounded after each
// pass, so that results are equal and not only near. The order of the passes is that of Pillow 13.

/** @typedef {"bilinear" | "bicubic"} Interpolation */
/** @typedef {[number, number, number, number]} Box left, top, right and bottom */
/** @typedef {{width: number, height: number, channels: number, data: Uint8Array | Uint8ClampedArray}} Pixels */
/** @typedef {{size: number, starts: Int32Array, counts: Int32Array, weights: Float64Array}} Taps */

const FRACTION_BITS = 22;

/** @type {Record<Interpolation, {support: number, weight: (x: number) => number}>} */
const FILTERS = {
  bilinear: {support: 1, weight: x => Math.max(0, 1 - Math.abs(x))},
  bicubic: {support: 2, weight: cubic},
};

/** @param {number} x */
function cubic(x) {
  const a = -0.5;
  x = Math.abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/**
 * The input pixels of each output pixel, and their weights, which add up to 1.
 * @param {number} length @param {number} from @param {number} to @param {number} outputs
 * @param {Interpolation} interpolation
 * @returns {Taps}
 */
export function taps(length, from, to, outputs, interpolation) {
  const filter = FILTERS[interpolation];
  const scale = Math.fround(to - from) / outputs;
  const widening = Math.max(1, scale);
  const support = filter.support * widening;
  const size = Math.ceil(support) * 2 + 1;
  const starts = new Int32Array(outputs), counts = new Int32Array(outputs), weights = new Float64Array(outputs * size);
  for (let output = 0; output < outputs; output++) {
    const centre = from + (output + 0.5) * scale;
    const start = Math.max(0, Math.trunc(centre - support + 0.5));
    const count = Math.min(length, Math.trunc(centre + support + 0.5)) - start;
    let sum = 0;
    for (let tap = 0; tap < count; tap++) {
      const weight = filter.weight((tap + start - centre + 0.5) * (1 / widening));
      weights[output * size + tap] = weight;
      sum += weight;
    }
    for (let tap = 0; sum !== 0 && tap < count; tap++) weights[output * size + tap] /= sum;
    starts[output] = start;
    counts[output] = count;
  }
  return {size, starts, counts, weights};
}

/**
 * Resize the first three channels of an 8-bit picture.
 * @param {Pixels} picture @param {number} width @param {number} height @param {Interpolation} interpolation
 * @param {Box} [box] the part of the picture to resize
 * @returns {Pixels} with three channels
 */
export function resizePixels(picture, width, height, interpolation, box = [0, 0, picture.width, picture.height]) {
  const [left, top, right, bottom] = /** @type {Box} */ (box.map(Math.fround));
  /** @param {Pixels} from */
  const alongRows = from => width === picture.width && left === 0 && right === width ? from
    : {width, height: from.height, channels: 3, data: pass(from.data, from.channels, taps(from.width, left, right, width, interpolation),
      {lines: from.height, lineStep: from.width * from.channels, step: from.channels, outputLine: width * 3, outputStep: 3})};
  /** @param {Pixels} from */
  const alongColumns = from => height === picture.height && top === 0 && bottom === height ? from
    : {width: from.width, height, channels: 3, data: pass(from.data, from.channels, taps(from.height, top, bottom, height, interpolation),
      {lines: from.width, lineStep: from.channels, step: from.width * from.channels, outputLine: 3, outputStep: from.width * 3})};
  const columnsFirst = height < picture.height && picture.height - height > 2 * (picture.width - width);
  const resized = columnsFirst ? alongRows(alongColumns(picture)) : alongColumns(alongRows(picture));
  return resized.channels === 3 ? resized : {width, height, channels: 3, data: withoutAlpha(resized.data)};
}

/**
 * @param {Uint8Array | Uint8ClampedArray} data @param {number} channels @param {Taps} taps
 * @param {{lines: number, lineStep: number, step: number, outputLine: number, outputStep: number}} layout
 */
function pass(data, channels, {size, starts, counts, weights}, {lines, lineStep, step, outputLine, outputStep}) {
  const fixed = new Int32Array(weights.length);
  for (let place = 0; place < weights.length; place++) {
    const scaled = weights[place] * (1 << FRACTION_BITS);
    fixed[place] = Math.trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }
  const outputs = starts.length;
  const result = new Uint8ClampedArray(lines * outputs * 3);
  for (let output = 0; output < outputs; output++) {
    const firstWeight = output * size, count = counts[output], first = starts[output] * step;
    for (let line = 0; line < lines; line++) {
      let red = 1 << (FRACTION_BITS - 1), green = red, blue = red;
      let place = line * lineStep + first;
      for (let tap = 0; tap < count; tap++, place += step) {
        const weight = fixed[firstWeight + tap];
        red += data[place] * weight;
        green += data[place + 1] * weight;
        blue += data[place + 2] * weight;
      }
      const target = line * outputLine + output * outputStep;
      result[target] = red >> FRACTION_BITS;  // the array clamps to 0 to 255
      result[target + 1] = green >> FRACTION_BITS;
      result[target + 2] = blue >> FRACTION_BITS;
    }
  }
  return result;
}

/** @param {Uint8Array | Uint8ClampedArray} data RGBA */
export function withoutAlpha(data) {
  const colours = new Uint8ClampedArray(data.length / 4 * 3);
  for (let from = 0, to = 0; from < data.length; from += 4, to += 3) {
    colours[to] = data[from];
    colours[to + 1] = data[from + 1];
    colours[to + 2] = data[from + 2];
  }
  return colours;
}

/**
 * Resize a map of numbers.
 * @param {Float32Array} map @param {number} mapWidth @param {number} mapHeight @param {number} width
 * @param {number} height @param {Interpolation} [interpolation]
 * @returns {Float32Array}
 */
export function resizeMap(map, mapWidth, mapHeight, width, height, interpolation = "bicubic") {
  const across = width === mapWidth ? map
    : passOfMap(map, taps(mapWidth, 0, mapWidth, width, interpolation), mapHeight, mapWidth, 1, width, 1);
  return height === mapHeight ? across
    : passOfMap(across, taps(mapHeight, 0, mapHeight, height, interpolation), width, 1, width, 1, width);
}

/**
 * @param {Float32Array} map @param {Taps} taps @param {number} lines @param {number} lineStep @param {number} step
 * @param {number} outputLine @param {number} outputStep
 */
function passOfMap(map, {size, starts, counts, weights}, lines, lineStep, step, outputLine, outputStep) {
  const result = new Float32Array(lines * starts.length);
  for (let output = 0; output < starts.length; output++) {
    for (let line = 0; line < lines; line++) {
      let sum = 0;
      for (let tap = 0; tap < counts[output]; tap++) {
        sum += map[line * lineStep + (starts[output] + tap) * step] * weights[output * size + tap];
      }
      result[line * outputLine + output * outputStep] = sum;
    }
  }
  return result;
}
