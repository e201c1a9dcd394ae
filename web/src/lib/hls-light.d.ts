// The light build has no types of its own; its interface is a part of the whole one's.
declare module 'hls.js/light' {
  export { default } from 'hls.js'
}
