// Takes one queue for Node through one course, as cmd/queues does with those for
// Go. On standard input, as lines of JSON: the course, "go", "stop". On standard output the
// answers: "ready"; "ended" with what it cost; "stopped" with what happened and how many
// tasks are left.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import { Recorder } from "./recorder.mjs";
import { openBullMQ } from "./bullmq.mjs";
import { openGroupMQ } from "./groupmq.mjs";

const settle = 300; // ms

// Every command of every client, as each has this method.
let sent = 0;
const { sendCommand } = Redis.prototype;
Redis.prototype.sendCommand = function (...args) {
  sent++;
  return sendCommand.apply(this, args);
};

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const receive = async () => {
  const { value, done } = await lines.next();
  if (done) process.exit(1); // the Go program has gone
  return JSON.parse(value);
};
const send = (message) => new Promise((sent) => process.stdout.write(JSON.stringify(message) + "\n", sent));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function enqueueAll(system, recorder, { tasks, batch }, over) {
  const start = recorder.now();
  const due = (t) => t.at <= recorder.now() - start;
  for (let i = 0; i < tasks.length && !over(); ) {
    if (!due(tasks[i])) await pause(Math.max(1, (tasks[i].at - (recorder.now() - start)) / 1e6));
    if (!due(tasks[i])) continue;
    let n = 1;
    while (n < batch && i + n < tasks.length && due(tasks[i + n])) n++;
    const some = tasks.slice(i, i + n);
    recorder.call(some);
    await system.enqueue(some);
    recorder.stored(some);
    i += n;
  }
}

const course = await receive();
const recorder = new Recorder(course.tasks);
const settings = {
  connection: { host: course.host, port: course.port, maxRetriesPerRequest: null },
  workers: { concurrency: course.workers },
};
const system = {
  bullmq: () => openBullMQ({ ...settings, ttl: 30_000, delay: 10, jobs: { attempts: 1 } }),
  groupmq: () => openGroupMQ({ ...settings, jobs: { jobTimeoutMs: 30_000 } }),
}[course.queue]();
const worker = system.worker((id) => recorder.handle(id));
let over = false;
if (course.stored) await enqueueAll(system, recorder, course, () => over);
else await worker.start();
await pause(settle);
await send({ event: "ready" });

await receive(); // go
const before = sent;
const cpu = process.cpuUsage();
recorder.begin();
const limit = setTimeout(() => (over = true) && recorder.end(), course.limit / 1e6);
if (course.stored) await worker.start();
else await Promise.race([enqueueAll(system, recorder, course, () => over), recorder.ended]);
await recorder.ended;
clearTimeout(limit);
const { user, system: kernel } = process.cpuUsage(cpu);
await send({ event: "ended", sent: sent - before, cpu: (user + kernel) * 1000 });

await receive(); // stop
await worker.stop();
await send({ event: "stopped", trace: recorder.trace(), left: await system.left() });
process.exit(0);
