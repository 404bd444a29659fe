// Reads v0 logs with the harness's own reader and closes what they leave open.
// One JSON object a line: in, {root, compression}; out, {events} or {error, message}.
import { createInterface } from 'node:readline'
import { Context } from '@deepseek-ai/cordis'
import SessionStore, { SessionId } from '@deepseek-ai/dsh-session'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'

for await (const line of createInterface({ input: process.stdin })) {
  const context = new Context()
  let told
  try {
    await context.plugin(SessionStore)
    await context.plugin(Jsonl, JSON.parse(line))
    told = { events: (await context.sessionPersistence.load(SessionId('s'))).events }
  } catch (error) {
    told = { error: error.name, message: String(error.message) }
  }
  process.stdout.write(JSON.stringify(told) + '\n')
  await context.fiber.dispose()
}
