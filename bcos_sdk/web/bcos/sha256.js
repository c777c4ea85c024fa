// SHA-256 in hexadecimal digits. Browsers have it only on HTTPS and localhost, so elsewhere it is computed here.

/** @param {(n: number) => number} root @param {number} count the first 32 bits of the fractions of roots of primes */
function fractions(root, count) {
  const found = [];
  for (let number = 2; found.length < count; number++) {
    let isPrime = true;
    for (let divisor = 2; divisor * divisor <= number; divisor++) isPrime &&= number % divisor !== 0;
    if (isPrime) found.push((root(number) % 1) * 2 ** 32 | 0);
  }
  return Int32Array.from(found);
}

const START = fractions(Math.sqrt, 8), ROUNDS = fractions(Math.cbrt, 64);

/** @param {Uint8Array} bytes @returns {Promise<string>} */
export async function sha256(bytes) {
  const digest = globalThis.crypto?.subtle
    ? new Uint8Array(await crypto.subtle.digest("SHA-256", /** @type {Uint8Array<ArrayBuffer>} */ (bytes))) : computedHere(bytes);
  return [...digest].map(byte => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {Uint8Array} bytes */
export function computedHere(bytes) {
  const whole = bytes.length & ~63, rest = bytes.length - whole;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(bytes.subarray(whole));
  tail[rest] = 0x80;
  const ends = new DataView(tail.buffer);
  ends.setUint32(tail.length - 8, bytes.length / 2 ** 29);
  ends.setUint32(tail.length - 4, bytes.length << 3);
  const state = START.slice(), words = new Int32Array(64);
  for (const part of [bytes.subarray(0, whole), tail]) {
    const view = new DataView(part.buffer, part.byteOffset, part.byteLength);
    for (let place = 0; place < part.length; place += 64) block(state, words, view, place);
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, place) => digest.setInt32(4 * place, word));
  return new Uint8Array(digest.buffer);
}

/** @param {Int32Array} state @param {Int32Array} words @param {DataView} view @param {number} place */
function block(state, words, view, place) {
  for (let i = 0; i < 16; i++) words[i] = view.getInt32(place + 4 * i);
  for (let i = 16; i < 64; i++) {
    const a = words[i - 15], b = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + ((a >>> 7 | a << 25) ^ (a >>> 18 | a << 14) ^ a >>> 3)
      + ((b >>> 17 | b << 15) ^ (b >>> 19 | b << 13) ^ b >>> 10) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const one = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + ROUNDS[i] + words[i] | 0;
    const two = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
    h = g; g = f; f = e; e = d + one | 0; d = c; c = b; b = a; a = one + two | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] = state[i] + word | 0; });
}
