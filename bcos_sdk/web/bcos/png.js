// PNG files decoded without the browser's canvas, which loses colours behind transparency and the lower bits of 16.
// The colours are those that Pillow gives after alpha was dropped.

import {toEightBits} from "./depth.js";
import {BcosError} from "./errors.js";
import {orientationOf, upright} from "./orientation.js";

/** @typedef {import("./resample.js").Pixels} Pixels */
/** @typedef {{width: number, height: number, depth: number, kind: number, interlaced: boolean}} Header */

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const PALETTE = 3;
/** @type {Record<number, number>} samples per pixel by the colour type */
const SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4};
const MOST_PIXELS = 50 * 2 ** 20;
/** The seven passes of Adam7: first column, first row, step of columns, step of rows. */
const PASSES = [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];

/** @param {Uint8Array} contents */
export const isPng = contents => SIGNATURE.every((byte, place) => contents[place] === byte);

/** @param {string} reason */
const damaged = reason => new BcosError("image_unreadable", `The PNG file is damaged: ${reason}.`, "Check the file.");

/**
 * @param {Uint8Array} contents
 * @returns {Promise<{pixels: Pixels, notes: string[]}>}
 */
export async function decodePng(contents) {
  const chunks = chunksOf(contents);
  const header = headerOf(chunks.get("IHDR")?.[0]);
  const packed = chunks.get("IDAT");
  if (!packed) throw damaged("it has no pixels");
  const filtered = await inflated(packed, filteredSize(header));
  const samples = samplesOf(header, filtered);
  const {data, notes} = coloursOf(header, samples, chunks);
  const exif = chunks.get("eXIf")?.[0];
  const picture = {width: header.width, height: header.height, channels: 3, data};
  return {pixels: upright(picture, exif ? orientationOf(exif) : 1), notes};
}

/** @param {Uint8Array} contents @returns {Map<string, Uint8Array[]>} */
function chunksOf(contents) {
  const view = new DataView(contents.buffer, contents.byteOffset, contents.byteLength);
  /** @type {Map<string, Uint8Array[]>} */
  const chunks = new Map();
  for (let place = SIGNATURE.length; place + 12 <= contents.length;) {
    const length = view.getUint32(place);
    const name = String.fromCharCode(...contents.subarray(place + 4, place + 8));
    if (place + 12 + length > contents.length) throw damaged(`its chunk ${name} is cut off`);
    const body = contents.subarray(place + 8, place + 8 + length);
    chunks.set(name, [...chunks.get(name) ?? [], body]);
    if (name === "IEND") break;
    place += 12 + length;
  }
  return chunks;
}

/** @param {Uint8Array | undefined} body @returns {Header} */
function headerOf(body) {
  if (body?.length !== 13) throw damaged("it has no header");
  const view = new DataView(body.buffer, body.byteOffset, 13);
  const header = {width: view.getUint32(0), height: view.getUint32(4), depth: body[8], kind: body[9], interlaced: body[12] === 1};
  if (!header.width || !header.height || !SAMPLES[header.kind] || ![1, 2, 4, 8, 16].includes(header.depth)) {
    throw damaged("its header is not valid");
  }
  if (header.width * header.height > MOST_PIXELS) {
    throw new BcosError("image_too_large", `The image has ${header.width} × ${header.height} pixels, the limit is ${MOST_PIXELS.toLocaleString("en")}.`,
      "Make the image smaller.");
  }
  return header;
}

/** @param {Header} header @param {number} width */
const rowBytes = (header, width) => Math.ceil(width * SAMPLES[header.kind] * header.depth / 8);

/** @param {Header} header @returns {{width: number, height: number, pass: number[]}[]} the reduced pictures of Adam7 */
function reduced(header) {
  const passes = header.interlaced ? PASSES : [[0, 0, 1, 1]];
  return passes.map(pass => ({width: Math.max(0, Math.ceil((header.width - pass[0]) / pass[2])),
    height: Math.max(0, Math.ceil((header.height - pass[1]) / pass[3])), pass})).filter(one => one.width && one.height);
}

/** @param {Header} header */
const filteredSize = header => reduced(header).reduce((sum, {width, height}) => sum + height * (1 + rowBytes(header, width)), 0);

/** @param {Uint8Array[]} packed @param {number} size */
async function inflated(packed, size) {
  const result = new Uint8Array(size);
  const reader = new Blob(/** @type {BlobPart[]} */ (packed)).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  let filled = 0;
  try {
    while (filled < size) {
      const {done, value} = await reader.read();
      if (done) break;
      result.set(value.subarray(0, size - filled), filled);
      filled += Math.min(value.length, size - filled);
    }
  } catch {
    throw damaged("its pixels cannot be decompressed");
  } finally {
    reader.cancel().catch(() => {});
  }
  if (filled < size) throw damaged("it has too few pixels");
  return result;
}

/**
 * The samples of all pixels, as numbers of 8 or 16 bits; those with fewer bits are not scaled yet.
 * @param {Header} header @param {Uint8Array} filtered
 */
function samplesOf(header, filtered) {
  const perPixel = SAMPLES[header.kind], wide = header.depth === 16;
  const samples = new (wide ? Uint16Array : Uint8Array)(header.width * header.height * perPixel);
  const step = Math.max(1, perPixel * header.depth / 8);
  let place = 0;
  for (const {width, height, pass: [left, top, across, down]} of reduced(header)) {
    const length = rowBytes(header, width);
    let above = /** @type {Uint8Array} */ (new Uint8Array(length));
    for (let row = 0; row < height; row++, place += length + 1) {
      const line = filtered.subarray(place + 1, place + 1 + length);
      unfilter(filtered[place], line, above, step);
      above = line;
      for (let column = 0; column < width; column++) {
        const to = ((top + row * down) * header.width + left + column * across) * perPixel;
        for (let sample = 0; sample < perPixel; sample++) samples[to + sample] = sampleAt(line, column * perPixel + sample, header.depth);
      }
    }
  }
  return samples;
}

/** @param {Uint8Array} line @param {number} place @param {number} depth */
function sampleAt(line, place, depth) {
  if (depth === 8) return line[place];
  if (depth === 16) return line[2 * place] << 8 | line[2 * place + 1];
  const bit = place * depth;
  return line[bit >> 3] >> (8 - depth - (bit & 7)) & (1 << depth) - 1;
}

/** @param {number} filter @param {Uint8Array} line @param {Uint8Array} above @param {number} step */
function unfilter(filter, line, above, step) {
  if (filter > 4) throw damaged(`it has a row with the filter ${filter}`);
  for (let place = 0; filter && place < line.length; place++) {
    const before = place < step ? 0 : line[place - step], corner = place < step ? 0 : above[place - step];
    line[place] += filter === 1 ? before : filter === 2 ? above[place]
      : filter === 3 ? before + above[place] >> 1 : paeth(before, above[place], corner);
  }
}

/** @param {number} before @param {number} above @param {number} corner */
function paeth(before, above, corner) {
  const fromBefore = Math.abs(above - corner), fromAbove = Math.abs(before - corner);
  const fromCorner = Math.abs(before + above - 2 * corner);
  return fromBefore <= fromAbove && fromBefore <= fromCorner ? before : fromAbove <= fromCorner ? above : corner;
}

/**
 * @param {Header} header @param {Uint8Array | Uint16Array} samples @param {Map<string, Uint8Array[]>} chunks
 * @returns {{data: Uint8Array, notes: string[]}}
 */
function coloursOf(header, samples, chunks) {
  const perPixel = SAMPLES[header.kind], grey = perPixel < 3;
  const palette = header.kind === PALETTE ? chunks.get("PLTE")?.[0] : undefined;
  if (header.kind === PALETTE && !palette) throw damaged("it has no palette");
  const data = new (samples instanceof Uint16Array ? Uint16Array : Uint8Array)(header.width * header.height * 3);
  const scale = header.depth < 8 ? 255 / ((1 << header.depth) - 1) : 1;
  for (let from = 0, to = 0; from < samples.length; from += perPixel, to += 3) {
    for (let colour = 0; colour < 3; colour++) {
      data[to + colour] = palette ? palette[samples[from] * 3 + colour] ?? 0 : samples[from + (grey ? 0 : colour)] * scale;
    }
  }
  if (data instanceof Uint8Array) return {data, notes: []};
  const {pixels, notes} = toEightBits(data, [...chunks.get("sBIT")?.[0] ?? []]);
  return {data: pixels, notes};
}
