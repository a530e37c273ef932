/**
 * Estimate of the tokens that a model reads for a value: four characters of JSON each.
 *
 * The same rule as the relay's rows have. Real counts depend on the model.
 */

const CHARACTERS = 4;

/** @param {unknown} value */
export function tokensOf(value) {
  return Math.ceil((JSON.stringify(value) ?? "").length / CHARACTERS);
}
