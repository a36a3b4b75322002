import { defineConfig } from "vite";

// Relative addresses, so that the page works under any path prefix.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/trek/master/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
  },
  worker: { format: "es" },
});
