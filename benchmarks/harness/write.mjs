// Has the harness's own store write a log: write.mjs ROOT EVENTS SHAPE. Prints how many events.
// SHAPE is how answers come: "streamed" (some two hundred chunks an answer, packed into rows as the
// harness does), "short" (twenty chunks), "unpacked" (streamed, a row for each chunk), "plain" (short,
// a row for each chunk, a request in each turn) or "calls" (no chunks, ten calls an answer).
import { Context } from '@deepseek-ai/cordis'
import SessionStore, { SessionId } from '@deepseek-ai/dsh-session'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'

const [root, wanted, shape] = [process.argv[2], Number(process.argv[3]), process.argv[4]]
const bare = shape === 'unpacked' || shape === 'plain'
const context = new Context()
await context.plugin(SessionStore)
await context.plugin(Jsonl, { root, compression: 'zstd', packChunks: !bare })
const session = context.sessions.create(SessionId('long'))
const words = 'the file a run reads then writes and checks what came of it before going on'.split(' ')
const source = { kind: 'model', provider: 'mock', model: 'mock-1' }
const usage = { inputTokens: 100, outputTokens: 20, cacheReadTokens: 0 }
let written = 0

function add(type, data, more) {
  session.append(type, data, more)
  return written++
}

function stream(place, blocks) {
  const seqs = []
  const chunk = (data) => seqs.push(add('assistant/chunk', { ...place, chunk: data }))
  blocks.forEach((block, index) => {
    chunk({ type: 'block-start', index, blockType: block.type })
    if (block.type === 'tool-call') {
      const name = { id: block.id, name: block.name }
      for (const part of block.arguments.match(/.{1,6}/g)) {
        chunk({ type: 'tool-call-delta', index, ...name, argumentsDelta: part })
      }
    } else {
      for (const part of block.text.match(/ ?[^ ]+/g)) {
        chunk({ type: `${block.type}-delta`, index, text: part })
      }
    }
  })
  blocks.forEach((block, index) => chunk({ type: 'block-end', index, block }))
  chunk({ type: 'usage', usage })
  chunk({ type: 'finish', reason: { kind: 'tool-calls' } })
  return seqs
}

function text(count, from) {
  return Array.from({ length: count }, (_, i) => words[(from + i * i) % words.length]).join(' ')
}

const length = shape === 'short' || shape === 'plain' ? 6 : 60

function answer(place, number) {
  const call = (i) => ({
    type: 'tool-call',
    id: `call-${number}-${i}`,
    name: 'bash',
    arguments: JSON.stringify({ command: `ls -la /demo/project/${number}/${i}` }),
  })
  const calls = Array.from({ length: shape === 'calls' ? 10 : 1 }, (_, i) => call(i))
  const content = [
    { type: 'reasoning', text: text(length, number) },
    { type: 'text', text: text(2 * length, number + 3) },
    ...calls,
  ]
  const message = { role: 'assistant', content, source, id: `answer-${number}` }
  const sourceEventSeqs = shape === 'calls' ? [] : stream(place, content)
  add('assistant/message', { ...place, message, usage }, { surfaceOp: 'append', sourceEventSeqs })
  for (const { id, name, arguments: raw } of calls) {
    const cited = add('tool/call', { ...place, callId: id, name, arguments: raw })
    const inner = [{ type: 'text', text: text(40, number) }]
    const block = { type: 'tool-result', toolCallId: id, content: inner, isError: false }
    const result = { source: { kind: 'tool', callId: id }, content: [block], role: 'user' }
    add(
      'tool/result',
      { ...place, message: { ...result, id: `result-${id}` }, meta: { exitCode: 0 } },
      { surfaceOp: 'append', sourceEventSeqs: [cited] },
    )
  }
}

for (let turn = 1, number = 1; written < wanted; turn++) {
  const content = [{ type: 'text', text: text(20, turn) }]
  add('turn/start', { turn })
  for (let step = 1; step <= 4 && written < wanted; step++, number++) {
    const place = { turn, step }
    add('step/start', place)
    if (step === 1) {
      const message = { content, source: { kind: 'user' }, role: 'user', id: `user-${turn}` }
      add('user/message', message, { surfaceOp: 'append' })
    }
    if (number === 1 || (shape === 'plain' && step === 1)) {
      const config = { provider: 'mock', model: 'mock-1' }
      add('request/header', { header: { config, system: 'You test.' }, reason: 'initial' })
      add('request/context', { ...config, contextWindow: 128000 })
    }
    answer(place, number)
    // The last step is left open: loading has something to repair.
    if (written < wanted) add('step/end', place)
  }
  if (written < wanted) add('turn/end', { turn, reason: { kind: 'completed' } })
  await context.sessions.flush(session)
}
console.log(JSON.stringify({ events: written }))
await context.fiber.dispose()
