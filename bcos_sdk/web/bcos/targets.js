// Targets: classes by index or label, "mean", differences "A vs B"; by default the most likely classes.

import {BcosError} from "./errors.js";

/**
 * @typedef {number | string | {target: number | string, against?: number | string}} Target
 * @typedef {{classes: number, ranks: number, labels: string[] | null}} Classes
 * @typedef {{rows: number[], explanations: [number, number | null][]}} Resolved `rows` are targets of the graph: a class,
 *   −rank, or the number of classes for the mean. An explanation is a place in `rows`, and one to subtract or null.
 */

export const MEAN = "mean";
const VERSUS = " vs ";

/**
 * @param {Target | Target[] | null | undefined} targets @param {number} topK @param {Classes} classes
 * @returns {Resolved}
 */
export function resolve(targets, topK, classes) {
  if (targets === null || targets === undefined) {
    const count = Math.min(topK, classes.classes);
    if (!(Number.isInteger(count) && count >= 1 && count <= classes.ranks)) {
      throw unknown(`topK is ${topK}, expected 1 to ${classes.ranks} for this model`, "Use a smaller topK, or pass targets.");
    }
    return {rows: Array.from({length: count}, (_, place) => -1 - place), explanations: Array.from({length: count}, (_, place) => [place, null])};
  }
  const list = Array.isArray(targets) ? targets : [targets];
  if (!list.length) throw new BcosError("input_invalid", "The list of targets is empty.", "Leave it out for the most likely class.");
  const pairs = list.map(target => pairOf(target, classes));
  const rows = [...new Set(pairs.flat().filter(row => row !== null))];
  return {rows, explanations: pairs.map(([row, against]) => [rows.indexOf(row), against === null ? null : rows.indexOf(against)])};
}

/** @param {Target} target @param {Classes} classes @returns {[number, number | null]} */
function pairOf(target, classes) {
  if (typeof target === "object") return [rowOf(target.target, classes), rowOf(target.against ?? MEAN, classes)];
  if (typeof target === "string" && target.includes(VERSUS) && !named(target, classes).length) {
    const place = target.indexOf(VERSUS);
    return [rowOf(target.slice(0, place).trim(), classes), rowOf(target.slice(place + VERSUS.length).trim(), classes)];
  }
  return [rowOf(target, classes), null];
}

/** @param {number | string} target @param {Classes} classes */
function rowOf(target, classes) {
  if (typeof target === "number") {
    if (Number.isInteger(target) && target >= 0 && target < classes.classes) return target;
    throw unknown(`There is no class ${target}`, `Classes are 0 to ${classes.classes - 1}.`);
  }
  const found = named(target, classes);
  if (target === MEAN && !found.length) return classes.classes;
  const exact = found.filter(index => classes.labels?.[index] === target);
  if ((exact.length || found.length) === 1) return (exact.length ? exact : found)[0];
  throw unknown(`There is no class ${JSON.stringify(target)}`, found.length ? `Several classes have this label: ${found.join(", ")}. Use an index.`
    : classes.labels ? "`labels` lists all labels." : "This model has no labels. Use an index.");
}

/** The classes with this label, or with this name among those that a label lists. @param {string} name @param {Classes} classes */
function named(name, classes) {
  const wanted = name.toLowerCase();
  return (classes.labels ?? []).flatMap((label, index) => {
    const known = label.toLowerCase();
    return known === wanted || known.split(",").some(part => part.trim() === wanted) ? [index] : [];
  });
}

/** @param {string} message @param {string} hint */
const unknown = (message, hint) => new BcosError("unknown_target", `${message}.`, hint);
