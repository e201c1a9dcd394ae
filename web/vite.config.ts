import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'
import { licenses } from './scripts/licenses.mjs'
import { preload } from './scripts/preload.mjs'

// `npm run mock` listens here; `npm run dev` passes on to it what a peer would answer.
const mock = 'http://127.0.0.1:4310'

export default defineConfig({
  plugins: [svelte(), licenses(), preload('mpegts', 'index.html')],
  build: {
    outDir: '../crates/gateway/page',
    emptyOutDir: true,
    target: 'es2022',
    sourcemap: false,
    // Data URLs would need an exception in the Content-Security-Policy.
    assetsInlineLimit: 0,
    // The polyfill is for browsers older than the target.
    modulePreload: { polyfill: false },
    // Letters and digits alone after the last dash: a server can tell a hashed name by its look.
    rollupOptions: { input: ['index.html', 'coordinator.html', 'onion.html'], output: { hashCharacters: 'hex' } },
    // hls.js, loaded only where mpegts.js cannot play, is the largest part.
    chunkSizeWarningLimit: 450,
  },
  server: {
    proxy: Object.fromEntries(
      ['/api', '/events', '/stream.ts', '/index.m3u8', '/segments'].map((path) => [path, mock]),
    ),
  },
  test: { include: ['test/**/*.test.ts'] },
})
