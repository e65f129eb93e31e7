/** Dark, light, or as the system has it; remembered in this browser. */

import { Store } from "./store";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "forebay-theme";
const DARK = "(prefers-color-scheme: dark)";

function remembered(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? "system";
  } catch {
    // Storage may be switched off.
    return "system";
  }
}

export const theme = new Store<Theme>(remembered());
/** What is shown now. */
export const shownTheme = new Store<"light" | "dark">("light");

function show(): void {
  const shown = theme.value === "system" ? (matchMedia(DARK).matches ? "dark" : "light") : theme.value;
  document.documentElement.dataset.theme = shown;
  shownTheme.set(shown);
}

export function followTheme(): void {
  show();
  theme.follow(show);
  matchMedia(DARK).addEventListener("change", show);
}

export function choose(chosen: Theme): void {
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // It then holds until the page is closed.
  }
  theme.set(chosen);
}
