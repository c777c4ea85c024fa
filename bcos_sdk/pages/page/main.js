// The page: from a photograph to its classes, and from one or two chosen classes to their evidence.

import {watchCamera} from "./camera.js";
import {terms, verdict} from "./certificate.js";
import {nameClasses, scoresFor, searched, showClasses} from "./classes.js";
import {byId, element, say} from "./dom.js";
import {chosenKind, showPictures, watchDrawing} from "./drawing.js";
import {MEANING} from "./words.js";

/** @typedef {{index: number, label: string, listed?: boolean}} Class `listed`: among the most likely */
/** @typedef {import("./types.js").PageModel} PageModel */
/** @typedef {import("./types.js").Result} Result */

/** @type {import("./types.js").Kind[]} */
const KINDS = ["display", "overlay", "heatmap", "rgba"];
/** `shown` is what the page explains now: a call that fails leaves it. @type {{image: Blob | null, chosen: Class[], call: number, shown: {image: Blob | null, chosen: Class[]}}} */
const state = {image: null, chosen: [], call: 0, shown: {image: null, chosen: []}};
/** @type {PageModel} */
let model;

/** @param {() => Promise<void>} work */
async function attempt(work) {
  try {
    await work();
  } catch (error) {
    const {message, hint, unauthorized} = /** @type {any} */ (error);
    say([message, hint].filter(Boolean).join(" "), true);
    byId("loading").hidden = true;
    byId("token-form").hidden = !unauthorized && byId("token-form").hidden;
    if (unauthorized) byId("token").focus();
  }
}

/** @returns {import("./types.js").Chosen | null} */
const target = () => state.chosen.length ? {index: state.chosen[0].index, against: state.chosen[1]?.index} : null;

async function explain() {
  if (!state.image) return;
  const call = ++state.call, {image} = state;
  say("Computing …");
  byId("result").setAttribute("aria-busy", "true");
  try {
    const result = await model.explain(image, target(), KINDS, scoresFor(state.chosen));
    if (call !== state.call) return;  // the answer to an older click
    if (!state.chosen.length) state.chosen = [{...result.prediction.classes[0], listed: true}];
    show(result);
    state.shown = {image, chosen: state.chosen};
    say(`${result.prediction.classes[0].label} is the most likely class${result.milliseconds ? ` (${Math.round(result.milliseconds)} ms)` : ""}.`);
  } catch (error) {
    if (call !== state.call) return;
    if (state.shown.image === image) state.chosen = state.shown.chosen;
    else byId("result").hidden = true;  // a picture of another image must not stay
    throw error;
  } finally {
    if (call === state.call) byId("result").removeAttribute("aria-busy");
  }
}

/** @param {Result} result */
function show({prediction, explanations: [explanation]}) {
  const chosen = state.chosen.length ? state.chosen : prediction.classes.slice(0, 1);
  showClasses(prediction.classes, chosen, one => attempt(() => choose(one)));
  const question = chosen.length === 2 ? `What speaks for ${chosen[0].label} and not for ${chosen[1].label}?`
    : `What speaks for ${explanation.target.label}?`;
  byId("question").textContent = question;
  byId("legend").textContent = chosen.length === 2
    ? `Red pixels speak for ${chosen[0].label} more than for ${chosen[1].label}, blue pixels the other way round.`
    : "Red pixels speak for it, blue pixels against it.";
  const {good, text} = verdict(explanation.completeness);
  byId("verdict").textContent = text;
  byId("verdict").className = good ? "good" : "bad";
  byId("verdict").title = MEANING;
  byId("terms").replaceChildren(...terms(explanation).map(([name, value]) => {
    const row = element("tr");
    row.append(element("td", name), element("td", value));
    return row;
  }));
  byId("notes").replaceChildren(...prediction.notes.map(note => element("li", note)));
  byId("result").hidden = false;
  showPictures(explanation.pictures, question);
}

/** @param {Class} one */
async function choose(one) {
  const known = state.chosen.findIndex(other => other.index === one.index);
  if (known >= 0 && state.chosen.length === 2) state.chosen = state.chosen.filter((_, place) => place !== known);
  else if (known < 0) state.chosen = state.chosen.length === 2 ? [one] : [...state.chosen, one];
  await explain();
}

/** @param {Blob} image */
async function open(image) {
  if (!image.size) throw new Error("This file is empty. Choose another photograph.");
  state.image = image;
  state.chosen = [];
  await explain();
}

/** @param {ImageBitmap} frame of the camera */
async function explainFrame(frame) {
  if (state.image) {  // the class was chosen for the photograph
    state.image = state.shown.image = null;
    state.chosen = [];
    state.call++;
    byId("result").removeAttribute("aria-busy");
  }
  const began = performance.now();
  const result = await model.explain(frame, target(), ["display", chosenKind()], scoresFor(state.chosen));
  show(result);
  const whole = performance.now() - began;
  say(`${result.prediction.classes[0].label}, ${Math.round(result.milliseconds ?? whole)} ms per explanation, ${(1000 / whole).toFixed(1)} frames per second.`);
}

/** @param {FileList | File[]} files */
function openFirst(files) {
  const image = [...files].find(file => file.type.startsWith("image/"));
  if (image) attempt(() => open(image));
  else say("This is no picture.", true);
}

async function showModel() {
  const loading = byId("loading");
  const info = await model.info((done, total) => {
    loading.hidden = done >= total;
    Object.assign(loading, {max: total, value: done});
    say(done < total ? `Loading the model: ${(done / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB` : "Starting the model …");
  });
  loading.hidden = byId("token-form").hidden = true;
  byId("title").textContent = document.title = `${info.name}: what speaks for a class?`;
  byId("about").textContent = info.about;
  byId("independent").hidden = info.probability !== "sigmoid";
  nameClasses(info.labels);
  byId("samples").replaceChildren(...await Promise.all(info.samples.map(async name => {
    const blob = await model.sample(name);
    const button = element("button", "", {type: "button", title: name});
    button.append(element("img", "", {src: URL.createObjectURL(blob), alt: `sample ${name}`}));
    button.addEventListener("click", () => attempt(() => open(blob)));
    return button;
  })));
  say("");
}

/** Show the model, and wait for photographs. @param {PageModel} given */
export function start(given) {
  model = given;
  byId("file").addEventListener("change", (/** @type {any} */ event) => { openFirst(event.target.files); event.target.value = ""; });
  byId("choose").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); byId("file").click(); }
  });
  document.addEventListener("paste", event => { if (event.clipboardData?.files.length) openFirst(event.clipboardData.files); });
  document.addEventListener("dragover", event => { event.preventDefault(); document.body.classList.add("dropping"); });
  document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
  document.addEventListener("drop", event => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    openFirst(event.dataTransfer?.files ?? []);
  });
  byId("token-form").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    model.useToken?.(byId("token").value);
    attempt(showModel);
  });
  byId("search").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    attempt(async () => {
      await choose(searched(byId("wanted").value));
      byId("wanted").value = "";
    });
  });
  watchDrawing();
  watchCamera({open: blob => attempt(() => open(blob)), explainFrame: model.live ? explainFrame : null});
  return attempt(showModel);
}
