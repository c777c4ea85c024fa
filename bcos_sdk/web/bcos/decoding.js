// From whatever a page has as an image to pixels with three or four channels.

import {BcosError} from "./errors.js";
import {decodePng, isPng} from "./png.js";

/** @typedef {import("./resample.js").Pixels} Pixels */
/**
 * A file or another Blob, or what a canvas can draw: ImageBitmap, ImageData, VideoFrame, <canvas>, <img>, <video>.
 * @typedef {Blob | ImageData | ImageBitmapSource} ImageSource
 */

const TRANSPARENT = "the file has transparent pixels, whose colours a browser does not tell: they are computed from what it shows";

/**
 * Decode without colour management, upright by EXIF.
 * @param {ImageSource} image
 * @returns {Promise<{pixels: Pixels, notes: string[]}>}
 */
export async function decode(image) {
  if (image instanceof ImageData) return {pixels: rgba(image), notes: []};
  if (image instanceof Blob) {
    const start = new Uint8Array(await image.slice(0, 8).arrayBuffer());
    if (isPng(start)) return decodePng(new Uint8Array(await image.arrayBuffer()));
  }
  const data = await drawn(image);
  const notes = image instanceof Blob && hasTransparency(data.data) ? [TRANSPARENT] : [];
  return {pixels: rgba(data), notes};
}

/** @param {ImageSource} image */
async function drawn(image) {
  /** @type {ImageBitmap} */
  let bitmap;
  try {
    bitmap = await createImageBitmap(image, {colorSpaceConversion: "none", premultiplyAlpha: "none"});
  } catch (error) {
    throw new BcosError("image_unreadable", "This is not an image that this browser can decode.",
      "Browsers read JPEG, PNG, WebP, GIF and BMP; save other formats as one of these.");
  }
  const {width, height} = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  if (!context) throw new BcosError("image_too_large", `The browser has no canvas of ${width} × ${height} pixels.`, "Make the image smaller.");
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return context.getImageData(0, 0, width, height);
}

/** @param {ImageData} image @returns {Pixels} */
const rgba = ({width, height, data}) => ({width, height, channels: 4, data: /** @type {Uint8ClampedArray} */ (data)});

/** @param {Uint8ClampedArray} data */
function hasTransparency(data) {
  for (let place = 3; place < data.length; place += 4) if (data[place] < 255) return true;
  return false;
}
