// The published migration packages import this name, and no published version of this package has
// it. Only the migration from v1 uses it, which is not run here.
export class AssistantStreamAccumulator {
  push() {
    throw new Error('not published')
  }
}
