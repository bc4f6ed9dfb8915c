// Addresses within the console: everything after `#`, so that the server knows one page only.

import { Cell } from "./session";

export type CollectionTab = "rows" | "search" | "recall" | "map" | "live" | "about";
export type IndexTab = "search" | "recall" | "map" | "live";

export type Route =
  | { page: "overview" }
  | { page: "server" }
  | { page: "collection"; name: string; tab: CollectionTab; query: URLSearchParams }
  | { page: "index"; name: string; tab: IndexTab; query: URLSearchParams };

export const COLLECTION_TABS: [CollectionTab, string][] = [
  ["rows", "Rows"],
  ["search", "Search"],
  ["recall", "Recall"],
  ["map", "Map"],
  ["live", "Live"],
  ["about", "About"],
];

export const INDEX_TABS: [IndexTab, string][] = [
  ["search", "Search"],
  ["recall", "Recall"],
  ["map", "Map"],
  ["live", "Live"],
];

function parse(hash: string): Route {
  const [path = "", rest = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page, name = "", tab = ""] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const query = new URLSearchParams(rest);
  if (page === "server") return { page };
  if (page === "collections" && name) {
    const found = COLLECTION_TABS.find(([known]) => known === tab)?.[0] ?? "rows";
    return { page: "collection", name, tab: found, query };
  }
  if (page === "indexes" && name) {
    const found = INDEX_TABS.find(([known]) => known === tab)?.[0] ?? "search";
    return { page: "index", name, tab: found, query };
  }
  return { page: "overview" };
}

export const route = new Cell<Route>({ page: "overview" });

export function startRouting(): void {
  const read = () => route.set(parse(window.location.hash));
  window.addEventListener("hashchange", read);
  read();
}

export function linkTo(kind: "collections" | "indexes", name: string, tab = "", query = ""): string {
  const tail = (tab ? `/${tab}` : "") + (query ? `?${query}` : "");
  return `#/${kind}/${encodeURIComponent(name)}${tail}`;
}

export function goTo(address: string): void {
  window.location.hash = address.replace(/^#/, "");
}
