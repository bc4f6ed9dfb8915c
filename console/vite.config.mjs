import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../crates/server/console",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // The server serves these names; the tag of a file tells browsers that it has changed.
    rollupOptions: { output: { entryFileNames: "console.js", assetFileNames: "console.[ext]" } },
  },
});
