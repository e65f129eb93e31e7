import { render } from "preact";
import { App } from "./app";
import { followLocation } from "./route";
import { followTheme } from "./theme";
import "uplot/dist/uPlot.min.css";
import "./style/theme.css";
import "./style/base.css";
import "./style/frame.css";
import "./style/controls.css";
import "./style/tables.css";
import "./style/overview.css";
import "./style/objects.css";
import "./style/dialogs.css";
import "./style/small.css";

followTheme();
followLocation();

addEventListener("DOMContentLoaded", () => {
  const root = document.getElementById("app");
  if (root) render(<App />, root);
});
