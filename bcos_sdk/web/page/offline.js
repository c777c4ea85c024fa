// Keeps the files of the page on this device, so that it works without a network after the first visit.

import {byId} from "./dom.js";

/** @param {import("./browser_model.js").BrowserModel} model */
export async function workOffline(model) {
  if (!model.runtime || !navigator.serviceWorker) return;  // browsers have it on HTTPS and localhost only
  try {
    await navigator.serviceWorker.register(`service_worker.js?runtime=${model.runtime}`);
    await navigator.serviceWorker.ready;
    const couldUseThreads = !crossOriginIsolated && model.runtime === "wasm" && navigator.hardwareConcurrency > 1;
    byId("about").textContent += ` It now works without a network.${couldUseThreads ? " Reload the page to use more threads." : ""}`;
  } catch {
    byId("about").textContent += " The browser does not keep it for use without a network.";
  }
}

/** Forget the stored files, because one of them is damaged. The next visit fetches them again. */
export async function forgetStored() {
  const registration = await navigator.serviceWorker?.getRegistration();
  if (!registration) return;
  await registration.unregister();
  for (const name of await caches.keys()) if (name.startsWith(`bcos ${registration.scope} `)) await caches.delete(name);
}
