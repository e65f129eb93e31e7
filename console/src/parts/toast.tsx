/** Short news of what was done, which go by themselves. */

import { Store, useStore } from "../store";

const SHOWN_MS = 6000;

interface Toast {
  id: number;
  text: string;
}

const toasts = new Store<Toast[]>([]);
let last = 0;

export function tell(text: string): void {
  const id = (last += 1);
  toasts.set([...toasts.value, { id, text }]);
  setTimeout(() => drop(id), SHOWN_MS);
}

const drop = (id: number) => toasts.set(toasts.value.filter((toast) => toast.id !== id));

export function Toasts() {
  const shown = useStore(toasts);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.map(({ id, text }) => (
        <div key={id} class="toast">
          {text}
        </div>
      ))}
    </div>
  );
}
