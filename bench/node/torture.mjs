// A process of cmd/torture: "work", "enqueue" or "left", and a setting in JSON. A worker writes
// what its handlers do into its journal before they go on. It ends on SIGTERM, after its tasks.
import { openSync, readFileSync, writeSync } from "node:fs";
import { openBullMQ } from "./bullmq.mjs";
import { openGroupMQ } from "./groupmq.mjs";

const step = 20; // ms
const [command, text] = process.argv.slice(2);
const setting = JSON.parse(text);
const tasks = JSON.parse(readFileSync(setting.plan, "utf8"));
const [host, port] = setting.server.split(":");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const { ttl } = setting;
const workers = { concurrency: setting.slots, stalledInterval: ttl };
const system = {
  "bullmq+lock": () =>
    openBullMQ({ connection, ttl, delay: 100, jobs: { attempts: 25, backoff: 1000 }, workers: { ...workers, lockDuration: ttl } }),
  groupmq: () =>
    openGroupMQ({
      connection,
      jobs: { jobTimeoutMs: ttl, maxAttempts: 25 },
      workers: { ...workers, cleanupIntervalMs: ttl, maxStalledCount: 25 }, // by default the first crash fails the job
    }),
}[setting.contender]();

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Works on a task step by step.
function recorder(file) {
  let runs = 0;
  return async (task, charged) => {
    const run = ++runs;
    const write = (kind) => {
      const record = { at: Number(process.hrtime.bigint()), kind, process: process.pid, run, task, charged };
      writeSync(file, JSON.stringify(record) + "\n");
    };
    write("start");
    for (let left = tasks[task].work / 1e6; left > 0; left -= step) await pause(Math.min(step, left));
    write("end");
  };
}

if (command === "work") {
  const worker = system.worker(recorder(openSync(setting.journal, "a")));
  await worker.start();
  process.once("SIGTERM", async () => {
    await worker.stop();
    process.exit(0);
  });
  writeSync(1, "ready\n");
} else {
  if (command === "enqueue") for (const task of tasks) await system.enqueue([task]);
  else writeSync(1, String(await system.left()));
  process.exit(0);
}
