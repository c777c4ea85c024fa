// From 16-bit values to the 8 bits of the network's input. The counterpart of bcos_sdk/images/_depth.py.

const DEPTHS = [8, 10, 12, 14, 16];

/**
 * The upper 8 bits of the values, which have as many bits as the file states, or else as are usual for such values.
 * @param {Uint16Array} values @param {number[]} significant the bytes of the chunk sBIT of a PNG
 * @returns {{pixels: Uint8Array, notes: string[]}}
 */
export function toEightBits(values, significant) {
  let top = 0;
  for (const value of values) if (value > top) top = value;
  const stated = statedDepth(values, top, significant);
  const found = DEPTHS.find(depth => top < 2 ** depth) ?? 16;
  const isStated = stated !== null && top < 2 ** stated;
  const depth = isStated ? Math.max(8, stated) : found;
  const note = isStated ? `16-bit values: scaled as ${stated} bits, as the file states`
    : `16-bit values up to ${top}: scaled as ${found} bits (0 to ${2 ** found - 1})`;
  const pixels = Uint8Array.from(values, value => value >> (depth - 8));
  return {pixels, notes: depth < 16 && top ? [note] : []};
}

/**
 * PNG wants samples scaled to all 16 bits, but some writers leave them unscaled. Samples below 1 << bits are unscaled
 * unless their lower bits are all 0, as those of a dark scaled picture are.
 * @param {Uint16Array} values @param {number} top @param {number[]} significant
 */
function statedDepth(values, top, significant) {
  const ofColours = [2, 4].includes(significant.length) ? significant.slice(0, -1) : significant;
  const bits = Math.max(0, ...ofColours);
  if (!(bits > 0 && bits <= 16)) return null;
  const lower = 2 ** (16 - bits) - 1;
  return top >= 2 ** bits || !values.some(value => value & lower) ? 16 : bits;
}
