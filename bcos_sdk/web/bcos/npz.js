// The arrays of an .npz file that numpy.savez wrote: a zip archive without compression that contains .npy files.

import {BcosError} from "./errors.js";

/** @typedef {{shape: number[], data: Uint8Array | Float32Array | Float64Array | BigInt64Array}} NumpyArray */

const END_OF_DIRECTORY = 0x06054b50, ENTRY = 0x02014b50;
/** @type {Record<string, new (buffer: ArrayBuffer) => NumpyArray["data"]>} */
const TYPES = {"|u1": Uint8Array, "<f4": Float32Array, "<f8": Float64Array, "<i8": BigInt64Array};

/** @param {string} reason */
const unusable = reason => new BcosError("bundle_invalid", `The golden record of the bundle is not usable: ${reason}.`, "Export the model again.");

/** @param {Uint8Array} contents @returns {Map<string, NumpyArray>} */
export function readNpz(contents) {
  const view = new DataView(contents.buffer, contents.byteOffset, contents.byteLength);
  const end = contents.length - 22;
  if (end < 0 || view.getUint32(end, true) !== END_OF_DIRECTORY) throw unusable("it is no zip archive");
  const arrays = new Map();
  let place = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left; left--) {
    if (place + 46 > end || view.getUint32(place, true) !== ENTRY) throw unusable("its directory is damaged");
    if (view.getUint16(place + 10, true)) throw unusable("it is compressed");
    const size = view.getUint32(place + 24, true), local = view.getUint32(place + 42, true);
    const nameLength = view.getUint16(place + 28, true);
    const name = new TextDecoder().decode(contents.subarray(place + 46, place + 46 + nameLength));
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    arrays.set(name.replace(/\.npy$/, ""), readNpy(contents.subarray(start, start + size)));
    place += 46 + nameLength + view.getUint16(place + 30, true) + view.getUint16(place + 32, true);
  }
  return arrays;
}

/** @param {Uint8Array} contents @returns {NumpyArray} */
function readNpy(contents) {
  if (contents[6] !== 1) throw unusable("it has an array of another version");
  const headerEnd = 10 + contents[8] + 256 * contents[9];
  const header = new TextDecoder().decode(contents.subarray(10, headerEnd));
  const type = TYPES[header.match(/'descr': '(.*?)'/)?.[1] ?? ""];
  const shape = header.match(/'shape': \((.*?)\)/)?.[1].split(",").filter(side => side.trim()).map(Number);
  if (!type || !shape || header.includes("'fortran_order': True")) throw unusable(`it has an array ${header.trim()}`);
  return {shape, data: new type(contents.slice(headerEnd).buffer)};
}
