// The frame of all pages: the key, the header, the tabs and the help.

import { useEffect, useRef, useState } from "preact/hooks";
import { forgetRefusal, lastRefusal, me, type Me } from "./api";
import { KEYS, listen } from "./keyboard";
import { useLoad } from "./load";
import { Busy, Dialog, ErrorBox } from "./parts";
import { COLLECTION_TABS, INDEX_TABS, linkTo, route, type Route } from "./route";
import { key, setKey, setShortcuts, setTheme, shortcuts, theme, useCell, type Theme } from "./session";
import { CollectionPage } from "./views/collection";
import { IndexPage } from "./views/index";
import { Overview } from "./views/overview";
import { ServerView } from "./views/live";

const THEMES: [Theme, string][] = [
  ["auto", "Auto"],
  ["light", "Light"],
  ["dark", "Dark"],
];

function nextTheme(): void {
  const at = THEMES.findIndex(([value]) => value === theme.value);
  setTheme(THEMES[(at + 1) % THEMES.length]?.[0] ?? "auto");
}

function KeyPage() {
  const [given, setGiven] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <main id="content" class="key-page" tabIndex={-1}>
      <h1>
        <img src="icon.svg" alt="" width={36} height={36} /> Bathyal
      </h1>
      {lastRefusal && (
        <p class="error" role="alert">
          {lastRefusal}
        </p>
      )}
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          forgetRefusal();
          if (given.trim()) setKey(given.trim());
        }}
      >
        <label class="field wide">
          <span>Key</span>
          <input
            type="password"
            class="mono"
            autocomplete="off"
            ref={field}
            value={given}
            onInput={(event) => setGiven(event.currentTarget.value)}
          />
        </label>
        <button>Open</button>
      </form>
      <p class="quiet">
        The <code>secret</code> of a key in the server’s file of keys. It stays in this tab, and is forgotten when the
        tab is closed. With a key that may only read, nothing can be changed here.
      </p>
    </main>
  );
}

function Help({ close }: { close: () => void }) {
  const on = useCell(shortcuts);
  return (
    <Dialog title="Keyboard" close={close}>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              {keys.split(" ").map((one) => (one === "…" ? ` ${one} ` : <kbd key={one}>{one}</kbd>))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <label class="check">
        <input type="checkbox" checked={on} onChange={(event) => setShortcuts(event.currentTarget.checked)} />
        Single letters and digits are shortcuts
      </label>
    </Dialog>
  );
}

function Tabs({ here }: { here: Route }) {
  if (here.page !== "collection" && here.page !== "index") return null;
  const kind = here.page === "collection" ? "collections" : "indexes";
  const tabs: [string, string][] = here.page === "collection" ? COLLECTION_TABS : INDEX_TABS;
  return (
    <nav class="tabs" aria-label={`Views of ${here.name}`}>
      {tabs.map(([tab, text]) => (
        <a key={tab} href={linkTo(kind, here.name, tab)} aria-current={tab === here.tab ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}

function Header({ here, known, help }: { here: Route; known: Me; help: () => void }) {
  const shown = useCell(theme);
  return (
    <header class="top">
      <a class="brand" href="#/" aria-label="Bathyal, overview">
        <img src="icon.svg" alt="" width={22} height={22} />
        <b>Bathyal</b>
      </a>
      <nav aria-label="Pages">
        <a href="#/" aria-current={here.page === "overview" ? "page" : undefined}>
          Overview
        </a>
        <a href="#/server" aria-current={here.page === "server" ? "page" : undefined}>
          Server
        </a>
      </nav>
      <div class="space" />
      <span class="right" title={known.prefix ? `for names that begin with ${known.prefix}` : "for all names"}>
        {known.name} <small>{known.right === "write" ? "may write" : "read only"}</small>
      </span>
      <button class="plain icon" onClick={nextTheme} title="Light, dark, or as the system has it (t)">
        <span class="hidden">Theme: </span>
        {THEMES.find(([value]) => value === shown)?.[1]}
      </button>
      <button class="plain icon" onClick={help} aria-label="Keyboard help" title="Keyboard (?)">
        ?
      </button>
      <button class="plain icon" onClick={() => setKey(null)}>
        Leave
      </button>
    </header>
  );
}

function title(here: Route): string {
  if (here.page === "collection" || here.page === "index") return `${here.name} · ${here.tab} – Bathyal`;
  return here.page === "server" ? "Server – Bathyal" : "Bathyal";
}

function Pages({ here, known }: { here: Route; known: Me }) {
  if (here.page === "overview") return <Overview />;
  if (here.page === "server") return <ServerView />;
  return (
    <main id="content" tabIndex={-1}>
      <h1>{here.name}</h1>
      <Tabs here={here} />
      {here.page === "collection" ? (
        <CollectionPage key={here.name} name={here.name} tab={here.tab} query={here.query} me={known} />
      ) : (
        <IndexPage key={here.name} name={here.name} tab={here.tab} query={here.query} />
      )}
    </main>
  );
}

function Signed() {
  const here = useCell(route);
  const [help, setHelp] = useState(false);
  const { value: known, error, busy, again } = useLoad(me, []);
  const first = useRef(true);
  const place = here.page + ("name" in here ? here.name : "");
  useEffect(() => listen({ help: () => setHelp(true), theme: nextTheme }), []);
  useEffect(() => {
    document.title = title(here);
  }, [here]);
  useEffect(() => {
    // Those who hear the page are told of a new one.
    if (!first.current) document.getElementById("content")?.focus({ preventScroll: true });
    first.current = false;
  }, [place]);
  if (!known) {
    return (
      <main id="content" tabIndex={-1}>
        <h1 class="hidden">Bathyal</h1>
        <Busy on={busy} />
        <ErrorBox error={error} again={again} />
      </main>
    );
  }
  return (
    <>
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("content")?.focus();
        }}
      >
        Skip to the content
      </a>
      <Header here={here} known={known} help={() => setHelp(true)} />
      <Pages here={here} known={known} />
      <footer>Bathyal {known.version}</footer>
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}

export function App() {
  return useCell(key) ? <Signed /> : <KeyPage />;
}
