// BullMQ with a lock per key, for cmd/torture: a job whose key is busy goes to the delayed set.
import { randomUUID } from "node:crypto";
import { DelayedError, Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { unfinished } from "./counts.mjs";
import { release } from "./bullmq.mjs";

const delay = 100; // ms

export function openBullMQ({ connection, slots, ttl }) {
  const queue = new Queue("work", { connection, defaultJobOptions: { attempts: 25, backoff: 1000, removeOnComplete: true } });
  queue.on("error", () => {}); // while Redis is down

  async function work(handle) {
    const locks = new Redis(connection);
    locks.on("error", () => {});
    locks.defineCommand("releaseLock", { numberOfKeys: 1, lua: release });
    const process = async (job, token) => {
      const { id, key } = job.data;
      const holder = randomUUID();
      if ((await locks.set(`lock:${key}`, holder, "PX", ttl, "NX")) !== "OK") {
        await job.moveToDelayed(Date.now() + delay, token);
        throw new DelayedError();
      }
      try {
        await handle(id, job.attemptsMade);
      } finally {
        await locks.releaseLock(`lock:${key}`, holder);
      }
    };
    const worker = new Worker("work", process, { connection, concurrency: slots, lockDuration: ttl, stalledInterval: ttl });
    worker.on("error", () => {});
    await worker.waitUntilReady();
    return () => worker.close();
  }

  return {
    enqueue: (id, key) => queue.add("work", { id, key }),
    work,
    left: async () => unfinished(await queue.getJobCounts()),
  };
}
