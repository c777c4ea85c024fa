// The camera: take one picture, or explain its frames as fast as the model can.

import {byId, element, say} from "./dom.js";

/** @type {MediaStream | null} */
let stream = null;
let isLive = false;

/**
 * @param {{open: (picture: Blob) => void, explainFrame: ((frame: ImageBitmap) => Promise<void>) | null}} actions
 *   `explainFrame` is null if the model does not explain live
 */
export function watchCamera({open, explainFrame}) {
  const video = byId("video");
  byId("live").hidden = explainFrame === null;
  byId("camera").addEventListener("click", async () => {
    try {
      stream ??= await navigator.mediaDevices.getUserMedia({video: {facingMode: "environment"}});
    } catch {
      say("The camera cannot be used. Browsers allow it on localhost and over HTTPS only, and with your permission.", true);
      return;
    }
    video.srcObject = stream;
    byId("shooting").hidden = false;
    await video.play();
    byId(explainFrame ? "live" : "shoot").focus();
  });
  byId("stop").addEventListener("click", close);
  byId("shoot").addEventListener("click", () => {
    takePicture(video, open);
    close();
  });
  byId("live").addEventListener("click", async () => {
    if (!explainFrame) return;
    if (isLive) {
      setLive(false);
      return;
    }
    await run(video, explainFrame);
    if (stream) takePicture(video, open);  // the last frame can be examined
  });
}

/** @param {HTMLVideoElement} video @param {(picture: Blob) => void} open */
function takePicture(video, open) {
  const canvas = element("canvas", "", {width: video.videoWidth, height: video.videoHeight});
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob(open, "image/png");
}

/** @param {HTMLVideoElement} video @param {(frame: ImageBitmap) => Promise<void>} explainFrame */
async function run(video, explainFrame) {
  setLive(true);
  while (isLive) {
    try {
      await explainFrame(await createImageBitmap(video));
    } catch (error) {
      setLive(false);
      say(/** @type {Error} */ (error).message, true);
    }
    await new Promise(requestAnimationFrame);
  }
}

/** @param {boolean} value */
function setLive(value) {
  isLive = value;
  byId("live").setAttribute("aria-pressed", String(value));
}

function close() {
  setLive(false);
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = null;
  byId("shooting").hidden = true;
}
