// Reads [[name, arguments], …] from stdin, calls these functions of the module, and prints their results as JSON.

const TYPES = {Uint8Array, Uint8ClampedArray, Uint16Array, Int32Array, Float32Array, Float64Array, BigInt64Array};

function unpacked(value) {
  if (value?.base64 !== undefined) {
    const bytes = Uint8Array.from(Buffer.from(value.base64, "base64"));
    return new TYPES[value.type](bytes.buffer);
  }
  if (Array.isArray(value)) return value.map(unpacked);
  return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, unpacked(inner)])) : value;
}

function packed(value) {
  if (ArrayBuffer.isView(value)) {
    const base64 = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
    return {type: value.constructor.name, base64};
  }
  if (value instanceof Map) return packed(Object.fromEntries(value));
  if (Array.isArray(value)) return value.map(packed);
  return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, packed(inner)])) : value;
}

const module = await import(process.argv[2]);
let text = "";
for await (const part of process.stdin) text += part;
const results = [];
for (const [name, given] of JSON.parse(text)) {
  try {
    results.push(packed(await module[name](...given.map(unpacked))));
  } catch (error) {
    results.push({error: error.code ?? error.name, message: error.message});
  }
}
process.stdout.write(JSON.stringify(results));
