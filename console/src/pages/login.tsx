import { useEffect, useRef, useState } from "preact/hooks";
import { logIn } from "../client";
import { ErrorLine } from "../parts/basic";
import { ThemeSwitch } from "../parts/theme-switch";
import { useAction } from "../poll";

/** Asks for the keys of an administrator. The page behind it stays in the address and is shown afterwards. */
export function Login({ why }: { why: string | undefined }) {
  const [accessKey, setAccessKey] = useState("");
  const [secretKey, setSecretKey] = useState("");
  const first = useRef<HTMLInputElement>(null);
  const { run, busy, error } = useAction(() => logIn(accessKey.trim(), secretKey.trim()));
  useEffect(() => {
    document.title = "Log in – Forebay";
    first.current?.focus();
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    run();
  };
  return (
    <main class="login">
      <form onSubmit={submit}>
        <h1>
          <img src="icon.svg" alt="" width="28" height="28" /> Forebay
        </h1>
        <p class={why ? "why" : "hint"} role="status">
          {why ?? "Log in with the keys of a user who has an admin grant."}
        </p>
        <label>
          Access key
          <input
            ref={first}
            name="username"
            autocomplete="username"
            autocapitalize="off"
            spellcheck={false}
            required
            value={accessKey}
            onInput={(event) => setAccessKey(event.currentTarget.value)}
          />
        </label>
        <label>
          Secret key
          <input
            name="password"
            type="password"
            autocomplete="current-password"
            required
            value={secretKey}
            onInput={(event) => setSecretKey(event.currentTarget.value)}
          />
        </label>
        <ErrorLine error={error} />
        <div class="buttons">
          <ThemeSwitch />
          <button type="submit" class="primary" disabled={busy}>
            {busy ? "Logging in …" : "Log in"}
          </button>
        </div>
      </form>
    </main>
  );
}
