import { useStore } from "../store";
import { choose, theme, THEMES, type Theme } from "../theme";

const TITLES: Record<Theme, string> = { system: "System", light: "Light", dark: "Dark" };

export function ThemeSwitch() {
  const chosen = useStore(theme);
  return (
    <select aria-label="Theme" value={chosen} onChange={(event) => choose(event.currentTarget.value as Theme)}>
      {THEMES.map((name) => (
        <option key={name} value={name}>
          {TITLES[name]}
        </option>
      ))}
    </select>
  );
}
