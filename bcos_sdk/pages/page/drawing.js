// The photograph, and above it the drawing of the explanation: overlay, colours of W(x) or heat map, with an opacity.

import {byId} from "./dom.js";

/** @typedef {import("./types.js").Kind} Kind */
/** @type {{kind: Kind, pictures: import("./types.js").Explanation["pictures"], title: string}} */
const shown = {kind: "overlay", pictures: {}, title: ""};

export const chosenKind = () => shown.kind;

/** @param {import("./types.js").Explanation["pictures"]} pictures @param {string} title what they show */
export function showPictures(pictures, title) {
  Object.assign(shown, {pictures, title});
  draw();
}

function draw() {
  paint(byId("photograph"), shown.pictures.display);
  paint(byId("drawing"), shown.pictures[shown.kind]);
  byId("drawing").setAttribute("aria-label", `${shown.title} (${shown.kind})`);
  byId("drawing").style.opacity = byId("opacity").value / 100;
  for (const button of byId("kinds").children) button.setAttribute("aria-pressed", button.dataset.kind === shown.kind);
}

/** @param {HTMLCanvasElement} canvas @param {ImageBitmap | HTMLImageElement | undefined} picture */
function paint(canvas, picture) {
  if (!picture) return;
  [canvas.width, canvas.height] = [picture.width, picture.height];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = "#fff";  // where W(x) is transparent, the photograph must not look like its colours
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, 0);
}

export function watchDrawing() {
  byId("kinds").addEventListener("click", (/** @type {any} */ event) => {
    if (!event.target.dataset.kind) return;
    shown.kind = event.target.dataset.kind;
    draw();
  });
  byId("opacity").addEventListener("input", draw);
}
