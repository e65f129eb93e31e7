import { render } from "preact";
import { App } from "./app";
import { followLocation } from "./route";
import { followTheme } from "./theme";
import "uplot/dist/uPlot.min.css";
import "./app.css";

followTheme();
followLocation();

addEventListener("DOMContentLoaded", () => {
  const root = document.getElementById("app");
  if (root) render(<App />, root);
});
