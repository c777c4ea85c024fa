// Figures and sentences that all pages show in the same words. The report contains this file in its own script.

/** What a certificate says, and what it does not say. */
export const MEANING = "Complete: contributions and bias add up to the logit. This says nothing about whether the class is right.";

/** @param {number} p */
export function percent(p) {
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  if (p < 1 && p >= 0.9995) return "> 99.9 %";
  return (100 * p).toFixed(1) + " %";
}

/** @param {number} value */
export const signed = value => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
