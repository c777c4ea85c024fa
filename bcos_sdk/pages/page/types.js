// What the page needs from a model, wherever the model runs. Types only.

/** @typedef {"display" | "overlay" | "heatmap" | "rgba"} Kind a picture of an explanation; "display" is the photograph */
/** @typedef {{index: number, label: string, logit: number, probability: number | null}} ClassScore */
/** @typedef {{index: number, against?: number}} Chosen a class by its index, and one to subtract: labels may repeat, or look like an index */
/** @typedef {{relative_residual: number, passed: boolean, sum: number}} Completeness */
/**
 * @typedef {{target: {label: string, logit: number}, bias: Record<string, number>, completeness: Completeness,
 *   pictures: Partial<Record<Kind, ImageBitmap | HTMLImageElement>>}} Explanation
 * @typedef {{prediction: {classes: ClassScore[], notes: string[]}, explanations: Explanation[], milliseconds?: number}} Result
 * @typedef {{name: string, samples: string[], about: string, labels: string[], probability: string}} Info
 *   `about`: where the model runs, for people; `labels`: of all classes, by index
 */
/**
 * An error has a text for people in `message`, and `unauthorized` if a token is missing.
 * @typedef {object} PageModel
 * @property {boolean} live whether it explains the frames of a camera as they come
 * @property {(progress: (done: number, total: number) => void) => Promise<Info>} info
 * @property {(name: string) => Promise<Blob>} sample
 * @property {(image: Blob | ImageBitmap, chosen: Chosen | null, kinds: Kind[], scores: number) => Promise<Result>} explain
 *   `chosen`: null for the most likely class; `scores`: how many classes get a score if one is chosen
 * @property {(token: string) => void} [useToken]
 */

export {};
