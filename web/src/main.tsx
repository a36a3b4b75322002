import { render } from "preact";
import { App } from "./app";
import { applyTheme, load, type Theme } from "./lib/saved";
import "./style.css";

applyTheme(load<Theme>("theme", "system"));
render(<App />, document.getElementById("app")!);
