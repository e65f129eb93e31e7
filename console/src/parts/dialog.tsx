/** Questions and forms above the page. The browser's own dialog keeps the focus inside, gives it back, and closes on Escape. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import type { ApiError } from "../client";
import { ErrorLine } from "./basic";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

export function Dialog({ title, onClose, children, wide }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={dialog} aria-labelledby={id} class={wide ? "wide" : ""} onCancel={cancel} onKeyDown={keepFocus}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

const FOCUSABLE = "a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled), textarea:not(:disabled), [tabindex='0']";

/** Tab goes round inside: the browser would also visit its own address bar. */
function keepFocus(event: KeyboardEvent) {
  if (event.key !== "Tab") return;
  const inside = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>(FOCUSABLE)];
  const end = event.shiftKey ? inside[0] : inside.at(-1);
  const start = event.shiftKey ? inside.at(-1) : inside[0];
  if (document.activeElement !== end) return;
  event.preventDefault();
  start?.focus();
}

interface ConfirmProps {
  title: string;
  children: ComponentChildren;
  /** What the button does, as a verb. */
  action: string;
  danger?: boolean;
  busy: boolean;
  disabled?: boolean;
  error: ApiError | undefined;
  onConfirm: () => void;
  onClose: () => void;
  wide?: boolean;
}

/** A question before something is done. The button that does nothing has the focus. */
export function Confirm(props: ConfirmProps) {
  const { title, children, action, danger, busy, disabled, error, onConfirm, onClose, wide } = props;
  return (
    <Dialog title={title} onClose={onClose} wide={wide}>
      {children}
      <ErrorLine error={error} />
      <div class="buttons">
        <button type="button" onClick={onClose} autofocus>
          Cancel
        </button>
        <button type="button" class={danger ? "danger" : "primary"} onClick={onConfirm} disabled={busy || disabled}>
          {busy ? "…" : action}
        </button>
      </div>
    </Dialog>
  );
}
