// Lets the browser fetch and compile the player while the rest of the page `html` starts: it is wanted at once, and asked
// for only when the page's own code has run.
export function preload(name, html) {
  return {
    name: 'preload',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler(_html, { path, bundle = {} }) {
        if (path !== `/${html}`) return []
        const chunk = Object.values(bundle).find((output) => output.type === 'chunk' && output.name === name)
        if (chunk === undefined) throw new Error(`no chunk is called ${name}`)
        return [{ tag: 'link', attrs: { rel: 'modulepreload', crossorigin: true, href: `/${chunk.fileName}` }, injectTo: 'head' }]
      },
    },
  }
}
