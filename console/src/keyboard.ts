// Keys that work on every page. A single letter can be switched off, for those who speak to their computer.

import { COLLECTION_TABS, INDEX_TABS, goTo, linkTo, route } from "./route";
import { shortcuts } from "./session";

export const KEYS: [keys: string, what: string][] = [
  ["?", "this help"],
  ["o", "overview"],
  ["v", "server"],
  ["1 … 6", "tabs of a collection or an index"],
  ["/", "the filter, or the search of names"],
  ["t", "light, dark, or as the system has it"],
  ["↑ ↓ PgUp PgDn Home End", "go through rows; Enter opens one"],
  ["← → ↑ ↓", "go from point to point of a map; Enter opens one"],
  ["Ctrl+Space", "completions of a filter; ↑ ↓ choose, Tab or Enter takes one"],
  ["Esc", "close a dialog or completions"],
];

/** Returns true if a key press is text for a field. */
function isText(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLInputElement ||
    target instanceof HTMLTextAreaElement ||
    target instanceof HTMLSelectElement
  );
}

export function listen(act: { help: () => void; theme: () => void }): () => void {
  const press = (event: KeyboardEvent) => {
    if (!shortcuts.value || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isText(event.target) || document.querySelector("dialog[open]")) return;
    const here = route.value;
    const tab = Number(event.key) - 1;
    if (event.key === "?") act.help();
    else if (event.key === "o") goTo("#/");
    else if (event.key === "v") goTo("#/server");
    else if (event.key === "t") act.theme();
    else if (event.key === "/") {
      const filter = document.querySelector<HTMLElement>("[data-filter]");
      if (!filter) return;
      filter.focus();
    } else if (here.page === "collection" && COLLECTION_TABS[tab]) {
      goTo(linkTo("collections", here.name, COLLECTION_TABS[tab][0]));
    } else if (here.page === "index" && INDEX_TABS[tab]) {
      goTo(linkTo("indexes", here.name, INDEX_TABS[tab][0]));
    } else return;
    event.preventDefault();
  };
  document.addEventListener("keydown", press);
  return () => document.removeEventListener("keydown", press);
}
