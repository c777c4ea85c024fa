// Short names for what every part of the page does with the document.

/** @param {string} id @returns {any} */
export const byId = id => document.getElementById(id);

/**
 * @param {string} name @param {string} [text] @param {object} [properties]
 * @returns {any} the new element
 */
export function element(name, text = "", properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  if (text) made.textContent = text;
  return made;
}

/** Show a message. @param {string} text @param {boolean} [bad] */
export function say(text, bad = false) {
  byId("status").textContent = text;
  byId("status").className = bad ? "bad" : "";
}
