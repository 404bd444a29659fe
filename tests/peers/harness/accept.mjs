// Reads logs as the harness does: its published v3 codec row by row, strictly, then its restorer.
// One JSON object a line: in, {path, known}; out, {path, events, error, ms, rss}.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { zstdDecompressSync } from 'node:zlib'
import { SessionFormatEventCollector } from '@deepseek-ai/dsh-session-format'
import {
  assertV3RowAdmission,
  releasedV3SessionFormatCodec as codec,
  restoreReleasedV3Artifact,
} from '@deepseek-ai/dsh-session-format-v2-to-v3'

// Every frame by itself: Node decompresses the first one and says how many bytes that took.
function unpack(bytes) {
  const parts = []
  for (let offset = 0; offset < bytes.length; ) {
    const { buffer, engine } = zstdDecompressSync(bytes.subarray(offset), { info: true })
    parts.push(buffer)
    offset += engine.bytesWritten
  }
  return Buffer.concat(parts)
}

function read(path, known) {
  const bytes = readFileSync(path)
  const text = (path.endsWith('.zstd') ? unpack(bytes) : bytes).toString('utf8')
  if (!text.endsWith('\n')) throw new Error('the last line is not complete')
  const [header, ...rows] = text.slice(0, -1).split('\n').map((line) => JSON.parse(line))
  const decoder = codec.createDecoder(header, 'strict')
  const events = new SessionFormatEventCollector()
  for (const row of rows) {
    assertV3RowAdmission(row)
    decoder.decodeRow(row, events)
  }
  const inheritedEventCount = decoder.finish(events)
  const artifact = { header: decoder.header, inheritedEventCount, events: events.values }
  return restoreReleasedV3Artifact(artifact, new Set(known)).events.length
}

for await (const line of createInterface({ input: process.stdin })) {
  const { path, known } = JSON.parse(line)
  const before = performance.now()
  let told
  try {
    told = { path, events: read(path, known), error: null }
  } catch (error) {
    told = { path, events: 0, error: String(error) }
  }
  told.ms = performance.now() - before
  // ru_maxrss, in KB.
  told.rss = process.resourceUsage().maxRSS * 1024
  process.stdout.write(JSON.stringify(told) + '\n')
}
