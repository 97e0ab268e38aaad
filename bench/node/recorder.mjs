// Notes what happens to each task, in nanoseconds on the monotonic clock.
const never = null;

export class Recorder {
  constructor(tasks) {
    this.start = process.hrtime.bigint();
    this.tasks = tasks;
    this.called = tasks.map(() => never);
    this.storedAt = tasks.map(() => never);
    this.runs = [];
    this.done = new Set();
    this.ended = new Promise((resolve) => (this.end = resolve));
  }

  now() {
    return Number(process.hrtime.bigint() - this.start);
  }

  begin() {
    this.began = this.now();
  }

  call(tasks) {
    const now = this.now();
    for (const t of tasks) this.called[t.id] = now;
  }

  stored(tasks) {
    const now = this.now();
    for (const t of tasks) this.storedAt[t.id] = now;
  }

  // The handler of a task: it works for as long as the plan says.
  async handle(id) {
    const start = this.now();
    const work = this.tasks[id]?.work;
    if (work) await new Promise((resolve) => setTimeout(resolve, work / 1e6));
    this.runs.push([id, start, this.now()]);
    this.done.add(id);
    if (this.done.size === this.tasks.length) this.end();
  }

  trace() {
    return { began: this.began, called: this.called, stored: this.storedAt, runs: this.runs };
  }
}
