// Runs the model in a thread of its own, so that the page stays responsive.

import {load} from "../bcos/bcos.js";

/** @typedef {import("./types.js").Kind} Kind */
/** @typedef {{load: {sha256: string}, explain: {image: Blob | ImageBitmap, chosen: import("./types.js").Chosen | null, kinds: Kind[], scores: number}}} Requests */
/** @typedef {import("../bcos/explanation.js").Explanation} Explanation */

/** @type {Promise<import("../bcos/bcos.js").Client>} */
let loading;

const METHODS = {
  /** @param {Requests["load"]} given */
  async load({sha256}) {
    let last = 0;
    loading = load(new URL("../model/", import.meta.url), {sha256, progress: (done, total) => {
      if (done < total && performance.now() - last < 50) return;
      last = performance.now();
      postMessage({progress: [done, total]});
    }});
    const client = await loading;
    const {probability, classes} = client.manifest;
    const labels = client.labels ?? Array.from({length: classes}, (_, index) => String(index));
    return {device: client.device, refused: client.refused, labels, probability};
  },

  /** @param {Requests["explain"]} given */
  async explain({image, chosen, kinds, scores}) {
    const client = await loading;
    const began = performance.now();
    const target = chosen && (chosen.against === undefined ? chosen.index : {target: chosen.index, against: chosen.against});
    const {prediction, explanations} = await client.explain(image, target, {topK: chosen ? scores : 1});
    const milliseconds = performance.now() - began;
    return {prediction, milliseconds, explanations: await Promise.all(explanations.map(one => drawn(one, kinds)))};
  },
};

/** @param {Explanation} explanation @param {Kind[]} kinds */
async function drawn(explanation, kinds) {
  /** @type {Record<string, ImageBitmap>} */
  const pictures = {};
  for (const kind of kinds) {
    const {width, height, data} = kind === "display" ? opaque(explanation.display) : explanation[kind]();
    pictures[kind] = await createImageBitmap(new ImageData(data, width, height));
  }
  const {target, bias, completeness} = explanation;
  return {target, bias, completeness, pictures};
}

/** @param {import("../bcos/resample.js").Pixels} pixels */
function opaque({width, height, channels, data}) {
  const result = new Uint8ClampedArray(4 * width * height).fill(255);
  for (let place = 0; place < width * height; place++) {
    for (let colour = 0; colour < 3; colour++) result[4 * place + colour] = data[channels * place + colour];
  }
  return {width, height, data: result};
}

addEventListener("message", async ({data: {call, method, given}}) => {
  try {
    const result = await METHODS[/** @type {keyof Requests} */ (method)](given);
    const pictures = "explanations" in result ? result.explanations.flatMap(one => Object.values(one.pictures)) : [];
    postMessage({call, result}, {transfer: pictures});
  } catch (error) {
    const {message, hint, code} = /** @type {any} */ (error);
    postMessage({call, error: {message, hint, code}});
  }
});
