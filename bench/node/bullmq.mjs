// BullMQ with a lock per key: a job whose key is taken goes to the delayed set.
import { randomUUID } from "node:crypto";
import { DelayedError, Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { unfinished } from "./counts.mjs";

const release = `
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
end
return 0`;

// ttl is that of a lock, and delay that of a job whose key is taken, in ms.
export function openBullMQ({ connection, ttl, delay, jobs, workers }) {
  const queue = new Queue("work", { connection, defaultJobOptions: { removeOnComplete: true, ...jobs } });
  queue.on("error", () => {}); // while Redis is down, or when it ends with the run

  function worker(handle) {
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
    const worker = new Worker("work", process, { connection, autorun: false, ...workers });
    worker.on("error", () => {});
    return {
      start: async () => {
        await worker.waitUntilReady();
        worker.run().catch(() => {});
      },
      stop: () => worker.close(),
    };
  }

  return {
    worker,
    enqueue: (tasks) => queue.addBulk(tasks.map(({ id, key }) => ({ name: "work", data: { id, key } }))),
    left: async () => unfinished(await queue.getJobCounts()),
  };
}
