// The certificate of an explanation: logit = Σ contributions + Σ bias terms, up to rounding.
// The counterpart of the certificate in bcos_sdk/contract.py.

/** @typedef {"fp32" | "fp16"} Precision */
/**
 * @typedef {{logit: number, sum: number, scale: number, tolerance: number, precision: Precision, residual: number,
 *   relative_residual: number, passed: boolean}} Completeness as in the JSON of the Python package
 */

/** @type {Record<Precision, number>} the largest tolerance that is applied, whatever a manifest states */
export const TOLERANCE_CAPS = {fp32: 1e-4, fp16: 2e-3};

/** @param {Iterable<number>} values in float64 */
export function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

/** @param {Iterable<number>} values */
export function sumOfSizes(values) {
  let total = 0;
  for (const value of values) total += Math.abs(value);
  return total;
}

/**
 * @param {{logit: number, sum: number, scale: number, tolerance: number, precision: Precision}} figures
 * @returns {Completeness}
 */
export function completeness({logit, sum, scale, tolerance, precision}) {
  tolerance = Math.min(tolerance, TOLERANCE_CAPS[precision]);
  const residual = logit - sum;
  const isFinite = [logit, sum, scale].every(Number.isFinite);
  return {logit, sum, scale, tolerance, precision, residual,
    relative_residual: residual === 0 ? 0 : Math.abs(residual) / scale,
    passed: isFinite && Math.abs(residual) <= tolerance * scale};
}
