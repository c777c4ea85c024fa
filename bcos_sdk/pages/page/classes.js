// The classes of a photograph: the most likely ones and those that are explained as buttons, and a search in all of them.

import {number} from "./certificate.js";
import {byId, element} from "./dom.js";
import {percent} from "./words.js";

/** @typedef {import("./types.js").ClassScore} ClassScore */

const LISTED = 5, MOST_NAMED = 4;
const ROLES = ["for", "against"];

/** The names in the search, by index: labels, with the index if several classes have the label. @type {string[]} */
let names = [];

/** Fill the search with all classes. @param {string[]} labels */
export function nameClasses(labels) {
  const counts = new Map();
  for (const label of labels) counts.set(label.toLowerCase(), (counts.get(label.toLowerCase()) ?? 0) + 1);
  names = labels.map((label, index) => counts.get(label.toLowerCase()) > 1 ? `${label} (${index})` : label);
  byId("labels").replaceChildren(...names.map(name => element("option", "", {value: name})));
  byId("search").hidden = names.length <= LISTED;
}

/** The class that is meant, or an error for people. @param {string} text of the search */
export function searched(text) {
  const wanted = text.trim().toLowerCase();
  const found = names.flatMap((name, index) => wanted && name.toLowerCase().includes(wanted) ? [index] : []);
  const exact = found.filter(index => names[index].toLowerCase() === wanted);
  const [index] = exact.length ? exact : found;
  if (exact.length === 1 || found.length === 1) return {index, label: names[index]};
  const some = found.slice(0, MOST_NAMED).map(one => names[one]).join(", ") + (found.length > MOST_NAMED ? ", …" : "");
  throw new Error(found.length ? `Several classes contain “${text}”: ${some}. Write the whole name.`
    : `There is no class “${text}”. Choose one of the list.`);
}

/** How many scores the list needs: those of all classes if a chosen one is not among the most likely. @param {{listed?: boolean}[]} chosen */
export const scoresFor = chosen => chosen.every(one => one.listed) ? LISTED : names.length;

/**
 * @param {ClassScore[]} classes the most likely first @param {{index: number, label: string}[]} chosen
 * @param {(one: {index: number, label: string, listed: boolean}) => void} choose
 */
export function showClasses(classes, chosen, choose) {
  const focused = /** @type {any} */ (document.activeElement)?.dataset?.index;
  const others = chosen.filter(one => !classes.slice(0, LISTED).some(other => other.index === one.index));
  /** @type {(ClassScore | {index: number, label: string})[]} */
  const shown = [...classes.slice(0, LISTED), ...others.map(one => classes.find(other => other.index === one.index) ?? one)];
  byId("classes").replaceChildren(...shown.map((one, place) => {
    const entry = element("li");
    entry.append(button(one, chosen.findIndex(other => other.index === one.index), chosen.length,
      () => choose({index: one.index, label: one.label, listed: place < LISTED})));
    return entry;
  }));
  if (focused !== undefined) byId("classes").querySelector(`[data-index="${focused}"]`)?.focus();
}

/** @param {any} one @param {number} place among the chosen, or −1 @param {number} count of them @param {() => void} click */
function button({index, label, logit, probability}, place, count, click) {
  const made = element("button", "", {type: "button"});
  made.dataset.index = index;
  made.setAttribute("aria-pressed", place >= 0);
  const name = element("span");
  if (place >= 0 && count === 2) {
    made.dataset.role = ROLES[place];
    name.append(element("b", ROLES[place], {className: "role"}), " ");
  }
  name.append(label);
  const share = logit === undefined ? "" : probability === null ? `logit ${number(logit)}` : percent(probability);
  made.append(name, element("span", share));
  if (typeof probability === "number") made.append(element("progress", "", {max: 1, value: probability}));
  made.addEventListener("click", click);
  return made;
}
