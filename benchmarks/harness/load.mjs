// Loads and repairs a log with the harness's own reader: load.mjs ROOT. Prints events, ms and MB.
import { Context } from '@deepseek-ai/cordis'
import SessionStore, { SessionId } from '@deepseek-ai/dsh-session'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'

const context = new Context()
await context.plugin(SessionStore)
await context.plugin(Jsonl, { root: process.argv[2], compression: 'zstd' })
const before = performance.now()
const { events } = await context.sessionPersistence.load(SessionId('long'))
const ms = performance.now() - before
// ru_maxrss, in KB.
const rss = process.resourceUsage().maxRSS * 1024
console.log(JSON.stringify({ events: events.length, ms, rss }))
await context.fiber.dispose()
