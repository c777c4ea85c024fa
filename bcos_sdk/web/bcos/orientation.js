// Upright pictures: the orientation tag of EXIF, and the eight turns that it stands for.

/** @typedef {import("./resample.js").Pixels} Pixels */

const ORIENTATION = 0x0112;
/** @type {Record<number, (view: DataView, at: number, little: boolean) => number>} */
const WHOLE_NUMBERS = {
  1: (view, at) => view.getUint8(at),
  3: (view, at, little) => view.getUint16(at, little),
  4: (view, at, little) => view.getUint32(at, little),
};

/**
 * The orientation in the first directory of EXIF; 1 if there is none, or if the directory is damaged.
 * @param {Uint8Array} exif
 */
export function orientationOf(exif) {
  const view = new DataView(exif.buffer, exif.byteOffset, exif.byteLength);
  try {
    const start = view.getUint32(0) === 0x45786966 ? 6 : 0;  // "Exif", followed by two zero bytes
    const order = view.getUint16(start), little = order === 0x4949;
    if (!little && order !== 0x4d4d) return 1;
    const directory = start + view.getUint32(start + 4, little);
    const entries = view.getUint16(directory, little);
    for (let entry = 0; entry < entries; entry++) {
      const at = directory + 2 + 12 * entry;
      if (view.getUint16(at, little) !== ORIENTATION) continue;
      return WHOLE_NUMBERS[view.getUint16(at + 2, little)]?.(view, at + 8, little) ?? 1;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return 1;
}

/**
 * The picture mirrored and turned as EXIF says.
 * @param {Pixels} picture @param {number} orientation
 * @returns {Pixels}
 */
export function upright(picture, orientation) {
  if (!(orientation >= 2 && orientation <= 8)) return picture;
  const {width, height, channels, data} = picture;
  const isTurned = orientation >= 5;
  const mirrorsX = [2, 3, 7, 8].includes(orientation), mirrorsY = [3, 4, 6, 7].includes(orientation);
  const result = new Uint8ClampedArray(data.length);
  const newWidth = isTurned ? height : width, newHeight = isTurned ? width : height;
  for (let y = 0, to = 0; y < newHeight; y++) {
    for (let x = 0; x < newWidth; x++) {
      const [across, down] = isTurned ? [y, x] : [x, y];
      const column = mirrorsX ? width - 1 - across : across, row = mirrorsY ? height - 1 - down : down;
      const from = (row * width + column) * channels;
      for (let channel = 0; channel < channels; channel++) result[to++] = data[from + channel];
    }
  }
  return {width: newWidth, height: newHeight, channels, data: result};
}
