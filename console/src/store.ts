/** A value that parts of the page follow. */

import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  #value: T;
  #followers = new Set<(value: T) => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const follower of [...this.#followers]) follower(value);
  }

  follow(follower: (value: T) => void): () => void {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(() => store.value);
  useEffect(() => {
    // It may have changed between the first drawing and this.
    setValue(() => store.value);
    return store.follow((next) => setValue(() => next));
  }, [store]);
  return value;
}
