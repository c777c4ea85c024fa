// Errors with the codes of the Python package.

export class BcosError extends Error {
  /**
   * @param {string} code part of the interface: it never changes its meaning
   * @param {string} message what failed, with which value
   * @param {string} [hint] what to do
   */
  constructor(code, message, hint = "") {
    super(message);
    this.name = "BcosError";
    this.code = code;
    this.hint = hint;
  }
}
