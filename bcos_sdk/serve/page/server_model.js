// The model behind the page, reached through its server.

/** @typedef {import("./types.js").PageModel} PageModel */

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
  async explain(image, targets, kinds) {
    const query = new URLSearchParams();
    for (const target of targets) query.append("target", target);
    for (const kind of kinds) query.append("picture", kind);
    const result = await (await this.#fetch(`explain?${query}`, {method: "POST", body: /** @type {Blob} */ (image)})).json();
    for (const explanation of result.explanations) {
      const entries = Object.entries(explanation.pictures).map(async ([kind, address]) => [kind, await picture(address)]);
      explanation.pictures = Object.fromEntries(await Promise.all(entries));
    }
    return result;
  }

  /** @param {string} path @param {RequestInit} [options] */
  async #fetch(path, options = {}) {
    /** @type {Record<string, string>} */
    const headers = this.#token ? {Authorization: `Bearer ${this.#token}`} : {};
    let answer;
    try {
      answer = await fetch(path, {...options, headers});
    } catch {
      throw new ModelError("The server does not answer.", false);
    }
    if (answer.ok) return answer;
    const text = await answer.json().then(body => body.error, () => answer.statusText);
    throw new ModelError(text, answer.status === 401);
  }
}

/** @param {string} address */
async function picture(address) {
  const image = Object.assign(new Image(), {src: address});
  await image.decode();
  return image;
}
