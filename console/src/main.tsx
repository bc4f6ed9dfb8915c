import { render } from "preact";
import { App } from "./app";
import { startRouting } from "./route";
import { showTheme, takeKeyOfAddress } from "./session";
import "./style.css";

takeKeyOfAddress();
showTheme();
startRouting();
const root = document.getElementById("app");
if (root) render(<App />, root);
