// State of this tab: the key, the theme, and what was chosen. The key never leaves the tab's own storage.

import { useEffect, useState } from "preact/hooks";

const KEY = "bathyal.key";
const THEME = "bathyal.theme";
const SHORTCUTS = "bathyal.shortcuts";

export type Theme = "auto" | "light" | "dark";

/** A value that components follow. */
export class Cell<T> {
  private listeners = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set(value: T): void {
    if (value === this.current) return;
    this.current = value;
    for (const listener of [...this.listeners]) listener();
  }

  follow(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export function useCell<T>(cell: Cell<T>): T {
  const [, redraw] = useState(0);
  useEffect(() => cell.follow(() => redraw((count) => count + 1)), [cell]);
  return cell.value;
}

/** Storage may be forbidden; the console then forgets with the page. */
function stored(storage: () => Storage, name: string): string | null {
  try {
    return storage().getItem(name);
  } catch {
    return null;
  }
}

function store(storage: () => Storage, name: string, value: string | null): void {
  try {
    if (value === null) storage().removeItem(name);
    else storage().setItem(name, value);
  } catch {
    // The value lives as long as the page.
  }
}

const tab = () => window.sessionStorage;
const browser = () => window.localStorage;

export const key = new Cell<string | null>(stored(tab, KEY));
export const theme = new Cell<Theme>((stored(browser, THEME) as Theme | null) ?? "auto");
export const shortcuts = new Cell<boolean>(stored(browser, SHORTCUTS) !== "off");
/** True if addresses in rows are loaded as pictures, which asks other hosts. It ends with the page. */
export const images = new Cell<boolean>(false);

export function setKey(value: string | null): void {
  store(tab, KEY, value);
  key.set(value);
}

export function setShortcuts(on: boolean): void {
  store(browser, SHORTCUTS, on ? "on" : "off");
  shortcuts.set(on);
}

export function setTheme(value: Theme): void {
  store(browser, THEME, value === "auto" ? null : value);
  theme.set(value);
  showTheme();
}

export function showTheme(): void {
  const root = document.documentElement;
  if (theme.value === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
}

/** Takes a key out of `#key=...`, and removes it from the address and from the history. */
export function takeKeyOfAddress(): void {
  const found = /^#key=([^&]+)$/.exec(window.location.hash);
  if (!found?.[1]) return;
  try {
    setKey(decodeURIComponent(found[1]));
  } catch {
    setKey(found[1]);
  }
  window.history.replaceState(null, "", window.location.pathname);
}
