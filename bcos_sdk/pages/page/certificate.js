// The certificate of an explanation in plain words.

/** @param {number} value */
export const number = value => value.toLocaleString("en", {minimumFractionDigits: 3, maximumFractionDigits: 3});

/** @param {import("./types.js").Completeness} figures */
export function verdict(figures) {
  const error = figures.relative_residual.toExponential(1);
  return figures.passed
    ? {good: true, text: `Yes. The pixels and the bias terms add up to the score of the network. What is missing is rounding: ${error} of the terms.`}
    : {good: false, text: `No. The terms do not add up (${error} is missing). Do not trust this picture.`};
}

/** Names and values of the terms, the score last. @param {import("./types.js").Explanation} explanation */
export function terms(explanation) {
  const bias = Object.entries(explanation.bias);
  const fromPixels = explanation.completeness.sum - bias.reduce((total, [, value]) => total + value, 0);
  /** @type {[string, number][]} */
  const rows = [["From the pixels", fromPixels]];
  for (const [name, value] of bias) rows.push([`Not from the pixels: ${name}`, value]);
  rows.push([`Score (logit) of ${explanation.target.label}`, explanation.target.logit]);
  return rows.map(([name, value]) => [name, number(value)]);
}
