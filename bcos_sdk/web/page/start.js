import {BrowserModel} from "./browser_model.js";
import {start} from "./main.js";
import {workOffline} from "./offline.js";

const model = new BrowserModel();
start(model).then(() => workOffline(model));
