import {start} from "./main.js";
import {ServerModel} from "./server_model.js";

start(new ServerModel());
