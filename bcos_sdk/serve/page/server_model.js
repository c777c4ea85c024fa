// The model behind the page, reached through its server.

import {say} from "./dom.js";

/** @typedef {import("./types.js").PageModel} PageModel */

const FOR_PEOPLE = {
  image_unreadable: "This file cannot be read as a picture.",
  image_too_large: "This picture is too large for the server.",
  body_too_large: "This file is too large for the server.",
};
const MOST_TRIES = 20;

export class ModelError extends Error {
  /** @param {string} message @param {boolean} unauthorized */
  constructor(message, unauthorized) { super(message); this.unauthorized = unauthorized; }
}

/** @implements {PageModel} */
export class ServerModel {
  #token = "";
  live = false;

  /** @param {string} token */
  useToken(token) { this.#token = token; }

  async info() { return {about: "", ...await (await this.#fetch("page/info")).json()}; }

  /** @param {string} name */
  async sample(name) { return (await this.#fetch(`page/samples/${encodeURIComponent(name)}`)).blob(); }

  /** @type {PageModel["explain"]} */
  async explain(image, chosen, kinds, scores) {
    const query = new URLSearchParams();
    if (chosen) {
      query.append("index", String(chosen.index));
      if (chosen.against !== undefined) query.append("against", String(chosen.against));
      query.append("top_k", String(Math.min(scores, 1000)));
    }
    for (const kind of kinds) query.append("picture", kind);
    const result = await (await this.#fetch(`explain?${query}`, {method: "POST", body: /** @type {Blob} */ (image)})).json();
    for (const explanation of result.explanations) {
      const entries = Object.entries(explanation.pictures).map(async ([kind, address]) => [kind, await picture(address)]);
      explanation.pictures = Object.fromEntries(await Promise.all(entries));
    }
    return result;
  }

  /** Ask again while the server starts, and a few times while it is busy. @param {string} path @param {RequestInit} [options] */
  async #fetch(path, options = {}) {
    for (let tries = 1; ; tries++) {
      const answer = await this.#ask(path, options);
      if (answer.ok) return answer;
      const {error, code, retryable} = await answer.json().catch(() => ({error: answer.statusText}));
      const isStarting = code === "not_ready";
      if (answer.status !== 503 || !retryable || (!isStarting && tries >= MOST_TRIES)) {
        throw new ModelError(FOR_PEOPLE[/** @type {keyof FOR_PEOPLE} */ (code)] ?? error, answer.status === 401);
      }
      say(isStarting ? "The model is starting …" : "The server is busy. The page asks again …");
      await new Promise(resolve => setTimeout(resolve, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
    }
  }

  /** @param {string} path @param {RequestInit} options */
  async #ask(path, options) {
    /** @type {Record<string, string>} */
    const headers = this.#token ? {Authorization: `Bearer ${this.#token}`} : {};
    try {
      return await fetch(path, {...options, headers});
    } catch {
      throw new ModelError("The server does not answer.", false);
    }
  }
}

/** @param {string} address */
async function picture(address) {
  const image = Object.assign(new Image(), {src: address});
  await image.decode();
  return image;
}
